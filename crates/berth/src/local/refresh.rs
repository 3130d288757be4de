//! The state brought up to date with the clouds.

use super::drift;
use super::workspace::Workspace;
use crate::backend::Selection;
use crate::backend::refreshed::{Refreshed, StateChange, compare};
use crate::failure::Failure;
use crate::view::progress;
use berth_engine::record::{RecordError, Recorder};
use berth_engine::refresh::{status_now, unit_now};
use berth_engine::unit::{Observed, UnitState};
use berth_model::ResourceId;
use std::collections::BTreeMap;

pub async fn refresh(workspace: &Workspace, selection: &Selection) -> Result<Refreshed, Failure> {
    let run = workspace.begin("refresh").await?;
    let (known, ids) = drift::selected(workspace, selection).await?;
    let clouds = workspace.clouds().await?;
    let seen = progress::patiently("reading the clouds", berth_engine::drift(&clouds, &known, &ids, true)).await;

    let mut by_resource: BTreeMap<ResourceId, Vec<(UnitState, Option<Observed>)>> = BTreeMap::new();
    for unit in &seen.learned {
        run.save_unit(unit.clone()).await.map_err(|error| Failure::new(error.to_string()))?;
    }
    // Where much of an account seems gone, objects that were not found are left as they are.
    for (unit, observed) in seen.believed().cloned() {
        by_resource.entry(unit.resource.clone()).or_default().push((unit, observed));
    }
    let mut changes = Vec::new();
    for (id, units) in by_resource {
        let Some(stored) = workspace.store.resource(&id).await? else { continue };
        let failed = |error: RecordError| Failure::new(error.to_string());
        let status = status_now(&clouds, &id, &stored.status, stored.deleting, &units);
        let before = changes.len();
        compare(&stored, &status, &mut changes);
        for (unit, observed) in units {
            if let Some(unit) = unit_now(unit, observed.as_ref()) {
                run.save_unit(unit).await.map_err(failed)?;
            }
        }
        if changes.len() > before {
            let names: Vec<&str> = changes[before..].iter().map(|one: &StateChange| one.what.as_str()).collect();
            run.event(&id, "refreshed", &names.join(", ")).await.map_err(failed)?;
            run.status(&id, status).await.map_err(failed)?;
        }
    }
    run.finish().await;
    let (much_gone, troubles) = (seen.much_gone(), seen.troubles);
    Ok(Refreshed { changes, checked: ids.len(), calls: clouds.calls(), troubles, much_gone })
}
