//! Checks that a plan was made with the credentials of the account that its resource belongs to, and how much of that account it
//! would make again. Workers check this too before they read; the server repeats it, since an older worker may not.

use crate::api::ServerState;
use crate::fault::{Code, Fault};
use berth_engine::identity::other_account;
use berth_engine::unit::{Identity, Op};
use berth_engine::{GoneCount, Plan};
use berth_store::{GoneObject, Task};

/// `who`: whom the worker's credentials belong to; `None` from a worker of an earlier version. Answers how much of the
/// account seems gone, where the plan makes something again.
pub async fn check(
    server: &ServerState,
    task: &Task,
    plan: &Plan,
    who: Option<&Identity>,
) -> Result<Option<GoneCount>, Fault> {
    let Some(id) = &task.resource else { return Ok(None) };
    let store = server.control.store();
    let units = store.units_of(id).await?;
    for unit in &units {
        if let (Some(own), Some(who)) = (&unit.identity, who)
            && own != who
        {
            return Err(refused(&unit.account, own, who));
        }
    }
    let planned = plan.resources.iter().filter(|resource| resource.id == *id).flat_map(|resource| &resource.units);
    let made: Vec<&str> = planned.filter(|unit| unit.op == Some(Op::Create)).map(|unit| unit.key.as_str()).collect();
    let again = units.iter().filter(|unit| !unit.deposed && made.contains(&unit.key.as_str()));
    let mut objects = Vec::new();
    for unit in again {
        let Some(object_id) = unit.id.clone() else { continue };
        if who.is_none() && unit.identity.is_some() {
            return Err(Fault::new(
                Code::Refused,
                format!("{id} is not made again by a worker that does not say whose account it looked at"),
            )
            .help("the worker is of an earlier version: upgrade it"));
        }
        objects.push(GoneObject { account: unit.account.clone(), object_id, resource: id.clone() });
    }
    if let (Some(who), true) = (who, units.is_empty() && !made.is_empty())
        && let Some(own) = store.other_owner(&task.account, &id.org, &id.env, who).await?
    {
        return Err(refused(&task.account, &own, who));
    }
    Ok(server.control.remember_gone(objects, server.now()).await?.into_iter().next())
}

fn refused(account: &str, own: &Identity, who: &Identity) -> Fault {
    other_account(account, own, who).into()
}
