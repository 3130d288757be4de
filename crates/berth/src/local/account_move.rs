//! Objects moved to another account by the embedded engine.

use super::workspace::Workspace;
use crate::backend::{MoveJob, Moved, MovedUnit};
use crate::failure::Failure;
use berth_engine::ResourceState;
use berth_engine::handler::Catalog;
use berth_engine::observe;
use berth_engine::record::{RecordError, Recorder, Status};
use berth_engine::unit::UnitState;
use std::collections::BTreeSet;

/// What a resource says whose objects were forgotten.
const NOT_APPLIED: &str = "moved to another account, and not applied there yet";

pub async fn move_account(workspace: &Workspace, job: &MoveJob<'_>) -> Result<Moved, Failure> {
    let account = job.account;
    let run = workspace.begin("account move").await?;
    let known = workspace.known_units(None).await?;
    let all: Vec<UnitState> = known.units.into_values().flatten().filter(|unit| unit.account == account).collect();
    if all.is_empty() {
        return Err(no_such(account, workspace).await?);
    }
    let clouds = workspace.clouds().await?;
    let who = clouds.provider(account).await?.identity().await?;
    let mut units: Vec<UnitState> = all.into_iter().filter(|unit| unit.identity.as_ref() != Some(&who)).collect();
    units.sort_by(|a, b| (&a.resource, &a.key, &a.token).cmp(&(&b.resource, &b.key, &b.token)));
    // The account that they belong to is ignored, so that they are looked for with the credentials in use.
    let asked: Vec<UnitState> = units.iter().map(|unit| UnitState { identity: None, ..unit.clone() }).collect();
    let looked = observe(&clouds, &asked.iter().collect::<Vec<_>>(), true).await;
    let mut moved = Vec::with_capacity(units.len());
    for (unit, seen) in units.iter().zip(looked.seen) {
        let becomes = match seen?.is_some() {
            true => "moved",
            false if job.forget_missing => "forgotten",
            false => "missing",
        };
        moved.push(MovedUnit {
            resource: unit.resource.clone(),
            unit: unit.key.clone(),
            id: unit.id.clone().unwrap_or_default(),
            from: unit.identity.as_ref().map(|identity| identity.id().to_owned()).unwrap_or_default(),
            becomes: becomes.into(),
        });
    }
    if !(job.ask)(&who, &moved)? {
        return Ok(None);
    }
    let failed = |error: RecordError| Failure::new(error.to_string());
    let mut forgotten = BTreeSet::new();
    for (unit, moved) in units.iter().zip(&moved) {
        if moved.becomes == "moved" {
            run.move_unit(unit, &who).await?;
        } else {
            run.forget_unit(&unit.resource, &unit.key, &unit.token).await.map_err(failed)?;
            forgotten.insert(&unit.resource);
        }
    }
    for id in forgotten {
        // Its outputs name objects of another account.
        let status = Status { state: ResourceState::Pending, message: NOT_APPLIED.into(), ..Status::default() };
        run.status(id, status).await.map_err(failed)?;
    }
    for id in moved.iter().map(|one| &one.resource).collect::<BTreeSet<_>>() {
        run.event(id, "moved", &format!("to {who}")).await.map_err(failed)?;
    }
    run.finish().await;
    Ok(Some((who, moved)))
}

async fn no_such(account: &str, workspace: &Workspace) -> Result<Failure, Failure> {
    let units = workspace.known_units(None).await?.units;
    let accounts: BTreeSet<String> = units.into_values().flatten().map(|unit| unit.account).collect();
    let failure = Failure::new(format!("nothing is managed in an account named `{account}`"));
    Ok(match accounts.is_empty() {
        true => failure.help("nothing is applied here"),
        false => failure.help(format!("there are: {}", accounts.into_iter().collect::<Vec<_>>().join(", "))),
    })
}
