//! The drift check of the project's own state.

use super::workspace::Workspace;
use crate::backend::{DriftCheck, Selection, lookup};
use crate::failure::Failure;
use crate::view::drift_view::{self, Finding};
use crate::view::progress;
use crate::view::resource_view::DRIFT;
use berth_engine::record::{Recorder, Status};
use berth_engine::unit::UnitState;
use berth_engine::{Drifted, Known, drift};
use berth_model::ResourceId;
use berth_store::{Store, StoredResource};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// At most this many findings are stored with the resources, for `get`.
const KEPT_MAX: usize = 1000;
/// How many events are looked through for findings of earlier checks that no longer hold.
const EVENTS_MAX: u32 = 2000;
const FOUND: &str = "drift found";
const ENDED: &str = "drift ended";

/// With `keep`, what was found is written to the state.
pub async fn check(workspace: &Workspace, selection: &Selection, keep: bool) -> Result<Option<DriftCheck>, Failure> {
    let (known, ids) = selected(workspace, selection).await?;
    if ids.is_empty() {
        return Ok(None);
    }
    let clouds = workspace.clouds().await?;
    let seen = progress::patiently("reading the clouds", drift(&clouds, &known, &ids, false)).await;
    learn(&workspace.store, &seen.learned).await?;
    let findings = drift_view::findings(&clouds, &known, &seen).await;
    if keep {
        remember(&workspace.store, &ids, &findings, &seen).await?;
    }
    Ok(Some(DriftCheck { findings, asked: ids.len(), calls: clouds.calls(), seen }))
}

/// The units of the selected resources, and their ids in order. Manifests are not needed, so none is parsed.
pub async fn selected(workspace: &Workspace, selection: &Selection) -> Result<(Known, Vec<ResourceId>), Failure> {
    let Selection { addresses, scope } = selection;
    let ids = match !addresses.is_empty() || scope.is_given() {
        true => {
            let found = lookup::find(workspace, addresses, scope).await?;
            Some(found.into_iter().map(|stored| stored.id).collect::<Vec<_>>())
        }
        false => None,
    };
    let known = workspace.known_units(ids.as_deref()).await?;
    let mut ids = ids.unwrap_or_else(|| known.units.keys().cloned().collect());
    ids.sort();
    Ok((known, ids))
}

/// Units of an earlier version's were found by their id: the state remembers from now on which account they are in. Where
/// another run is writing, the next one learns it.
async fn learn(store: &Store, learned: &[UnitState]) -> Result<(), Failure> {
    if learned.is_empty() {
        return Ok(());
    }
    let Ok(run) = store.begin_run("drift").await else { return Ok(()) };
    for unit in learned {
        run.save_unit(unit.clone()).await.map_err(|error| Failure::new(error.to_string()))?;
    }
    run.finish().await;
    Ok(())
}

/// Stores the findings with the resources, for `get` and `history`. Only changes are written, so that a check that finds
/// nothing new never blocks an apply. Where another command is writing, nothing is stored.
async fn remember(
    store: &Store,
    ids: &[ResourceId],
    findings: &BTreeMap<ResourceId, Vec<Finding>>,
    seen: &Drifted,
) -> Result<(), Failure> {
    let blind: BTreeSet<&ResourceId> = seen.troubles.iter().map(|(id, _)| id).collect();
    let mut news: Vec<(StoredResource, Option<String>)> = Vec::new();
    for (id, found) in findings.iter().take(KEPT_MAX) {
        let Some(stored) = store.resource(id).await? else { continue };
        let line = drift_view::short(found);
        if stored.status.facts.get(DRIFT).and_then(Value::as_str) != Some(&line) {
            news.push((stored, Some(line)));
        }
    }
    // Events tell which resources may still have an old finding, without reading all resources.
    let mut earlier: BTreeMap<ResourceId, bool> = BTreeMap::new();
    for event in store.events(EVENTS_MAX).await? {
        if event.what == FOUND || event.what == ENDED {
            earlier.entry(event.resource).or_insert(event.what == FOUND);
        }
    }
    for (id, _) in earlier.iter().filter(|(id, open)| **open && !findings.contains_key(id) && !blind.contains(id)) {
        if ids.binary_search(id).is_err() {
            continue;
        }
        let Some(stored) = store.resource(id).await? else { continue };
        if stored.status.facts.contains_key(DRIFT) {
            news.push((stored, None));
        }
    }
    if news.is_empty() {
        return Ok(());
    }
    let Ok(run) = store.begin_run("drift").await else { return Ok(()) };
    for (stored, line) in news {
        let (what, detail) = match &line {
            Some(line) => (FOUND, line.as_str()),
            None => (ENDED, ""),
        };
        let status = with_drift(&stored, line.as_deref());
        let written = async {
            run.status(&stored.id, status).await?;
            run.event(&stored.id, what, detail).await
        };
        written.await.map_err(|error| Failure::new(error.to_string()))?;
    }
    run.finish().await;
    Ok(())
}

/// The status as it is, with the finding in its facts or without any.
fn with_drift(stored: &StoredResource, line: Option<&str>) -> Status {
    let mut status = stored.status.clone();
    match line {
        Some(line) => _ = status.facts.insert(DRIFT.into(), json!(line)),
        None => _ = status.facts.remove(DRIFT),
    }
    status
}
