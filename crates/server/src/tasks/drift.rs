//! What a drift check found, as the store keeps it.

use super::plan_gate::HELD;
use crate::api::ServerState;
use crate::controller::next_check::NextChecks;
use crate::fault::{Code, Fault};
use crate::results::DriftResult;
use berth_engine::GoneCount;
use berth_model::ResourceId;
use berth_store::DriftFound;
use berth_store::GoneObject;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};

/// One for each resource that could be compared. What could not is compared again at its next time.
pub async fn findings(server: &ServerState, result: &str, now: Timestamp) -> Result<Vec<DriftFound>, Fault> {
    let result: DriftResult = serde_json::from_str(result)
        .map_err(|_| Fault::new(Code::InvalidArgument, "the result of the drift check cannot be read"))?;
    let blind: HashSet<_> = result.troubles.iter().map(|trouble| &trouble.id).collect();
    let held = much_gone(server, &result, now).await?;
    let mut differences: HashMap<_, (String, bool)> = HashMap::new();
    for row in result.drifted {
        // An apply leaves strays alone: it would be repeated at every check.
        let repairable = row.differences.iter().any(|difference| difference.stray.is_empty());
        differences.insert(row.id, (serde_json::to_string(&row.differences).unwrap_or_default(), repairable));
    }
    let mut next_checks = NextChecks::new(&server.control);
    let mut found = Vec::with_capacity(result.checked.len());
    for row in result.checked.into_iter().filter(|row| !blind.contains(&row.id)) {
        let (differences, repairable) = differences.remove(&row.id).unwrap_or_default();
        let (next, repairs) = next_checks.of(&row.id, now).await?;
        let held = held.get(&row.id).filter(|_| repairs).cloned().unwrap_or_default();
        found.push(DriftFound {
            repair: repairs && repairable && held.is_empty(),
            held,
            differences,
            id: row.id,
            generation: row.generation,
            next,
        });
    }
    Ok(found)
}

/// Remembers what is not found. Why the resources are not repaired that are gone together with much of their account: either
/// among all that the account has, or among those that were looked for now.
async fn much_gone(
    server: &ServerState,
    result: &DriftResult,
    now: Timestamp,
) -> Result<HashMap<ResourceId, String>, Fault> {
    let mut objects = Vec::new();
    let mut there: HashSet<&ResourceId> = result.checked.iter().map(|row| &row.id).collect();
    for row in result.drifted.iter().filter(|row| !row.gone.is_empty()) {
        there.remove(&row.id);
        for unit in server.control.store().units_of(&row.id).await? {
            if let Some(object_id) = unit.id.filter(|_| !unit.deposed && row.gone.contains(&unit.key)) {
                objects.push(GoneObject { account: unit.account, object_id, resource: row.id.clone() });
            }
        }
    }
    server.control.forget_gone(there.into_iter().cloned().collect()).await?;
    let counts = server.control.remember_gone(objects.clone(), now).await?;
    let mut held = HashMap::new();
    for object in objects {
        let of_account = |count: &&GoneCount| count.account == object.account && count.is_much();
        if let Some(much) = counts.iter().chain(&result.counts).find(of_account) {
            held.insert(object.resource, format!("{much}: {HELD}"));
        }
    }
    Ok(held)
}
