//! Moving what an account manages to the cloud account of the credentials in use. A worker looks for each object by its id;
//! nothing is changed in a cloud.

use super::work::{new_task, run};
use crate::access::{Principal, audit};
use crate::api::ServerState;
use crate::api::arguments::{check_text, invalid_argument};
use crate::context::DriftAsk;
use crate::fault::{Code, Fault};
use crate::pb;
use crate::results::{DriftResult, Located};
use berth_engine::unit::{Identity, UnitState};
use berth_model::{ResourceId, registry};
use berth_store::{MoveAccount, TaskOp};
use futures::future::try_join_all;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Resources in one task.
const BATCH: usize = 500;

pub async fn move_account(
    server: &ServerState,
    caller: &Principal,
    request: pb::MoveAccountRequest,
) -> Result<pb::MoveAccountResponse, Fault> {
    caller.require_everywhere()?;
    let pb::MoveAccountRequest { account, forget_missing, dry_run } = request;
    check_text("account", &account)?;
    if account.is_empty() {
        return Err(invalid_argument("account", "it is needed"));
    }
    let units = server.control.store().units_in(&account).await?;
    if units.is_empty() {
        let message = format!("nothing is managed in an account named `{account}`");
        return Err(Fault::new(Code::NotFound, message).help("to see the accounts in use:   berth accounts"));
    }
    let (who, found) = locate(server, &account, &units).await?;
    let mut answer = pb::MoveAccountResponse { identity: who.text().to_owned(), ..Default::default() };
    let (mut moved, mut forgotten) = (Vec::new(), Vec::new());
    for unit in units.into_iter().filter(|unit| unit.identity.as_ref() != Some(&who)) {
        let is_found = found.contains(&unit.token);
        let becomes = match is_found {
            true => "moved",
            false if forget_missing => "forgotten",
            false => "missing",
        };
        answer.missing |= becomes == "missing";
        answer.units.push(pb::MovedUnit {
            resource: Some((&unit.resource).into()),
            unit: unit.key.clone(),
            object_id: unit.id.clone().unwrap_or_default(),
            from: unit.identity.as_ref().map(|identity| identity.id().to_owned()).unwrap_or_default(),
            becomes: becomes.into(),
        });
        if is_found { moved.push(unit) } else { forgotten.push(unit) }
    }
    if dry_run || answer.missing || answer.units.is_empty() {
        return Ok(answer);
    }
    let note = audit::note("move account", account, format!("to {who}"));
    let change = MoveAccount { identity: who, moved, forgotten, actor: caller.actor.clone(), audit: note };
    server.control.move_account(change, server.now()).await?;
    answer.done = true;
    Ok(answer)
}

/// Whom the credentials in use belong to, and the tokens of the units that they find.
async fn locate(
    server: &ServerState,
    account: &str,
    units: &[UnitState],
) -> Result<(Identity, HashSet<String>), Fault> {
    let mut groups: BTreeMap<(String, String), BTreeSet<&ResourceId>> = BTreeMap::new();
    for unit in units {
        let id = &unit.resource;
        let service = registry().kind(&id.kind).map(|kind| kind.service.clone()).unwrap_or_default();
        groups.entry((service, id.org.clone())).or_default().insert(id);
    }
    let mut tasks = Vec::new();
    for ((service, org), ids) in groups {
        let ids: Vec<ResourceId> = ids.into_iter().cloned().collect();
        for batch in ids.chunks(BATCH) {
            let mut task = new_task(server, TaskOp::Drift, &org, &DriftAsk { refresh: false, locate: account.into() })?;
            (task.account, task.service, task.resources) = (account.to_owned(), service.clone(), batch.to_vec());
            tasks.push(task);
        }
    }
    let results: Vec<DriftResult> = try_join_all(tasks.into_iter().map(|task| run(server, task))).await?;
    let (mut who, mut found): (Option<Identity>, HashSet<String>) = (None, HashSet::new());
    for result in results {
        let earlier = || {
            Fault::new(Code::Refused, "the worker that looked is of an earlier version")
                .help("upgrade the workers, then try again")
        };
        let Located { identity, tokens } = result.located.ok_or_else(earlier)?;
        if let Some(trouble) = result.troubles.into_iter().next() {
            let fault = Fault::new(Code::Refused, format!("{}: {}", trouble.id, trouble.message));
            return Err(Fault { help: trouble.help, ..fault });
        }
        if let Some(other) = who.as_ref().filter(|who| **who != identity) {
            let message = format!("the workers' credentials belong to different accounts: {other} and {identity}");
            return Err(Fault::new(Code::Refused, message)
                .help("give all workers the credentials of the account to move to, then try again"));
        }
        who = Some(identity);
        found.extend(tokens);
    }
    let who = who.ok_or_else(|| Fault::new(Code::Internal, "nothing was looked for"))?;
    Ok((who, found))
}
