//! What a drift check found, as the store keeps it.

use crate::api::Shared;
use crate::controller::schedule;
use crate::fault::{Code, Fault};
use crate::results::DriftResult;
use berth_store::DriftFound;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};

/// One for each resource that could be compared. What could not is compared again at its next time.
pub async fn findings(shared: &Shared, result: &str, now: Timestamp) -> Result<Vec<DriftFound>, Fault> {
    let result: DriftResult = serde_json::from_str(result)
        .map_err(|_| Fault::new(Code::InvalidArgument, "the result of the drift check cannot be read"))?;
    let blind: HashSet<_> = result.troubles.iter().map(|trouble| &trouble.id).collect();
    let mut differences: HashMap<_, String> = HashMap::new();
    for row in result.drifted {
        differences.insert(row.id, serde_json::to_string(&row.differences).unwrap_or_default());
    }
    let mut schedules = schedule::Schedules::new(&shared.control);
    let mut found = Vec::with_capacity(result.checked.len());
    for row in result.checked.into_iter().filter(|row| !blind.contains(&row.id)) {
        let differences = differences.remove(&row.id).unwrap_or_default();
        let (next, repairs) = schedules.of(&row.id, now).await?;
        found.push(DriftFound {
            repair: repairs && !differences.is_empty(),
            differences,
            id: row.id,
            generation: row.generation,
            next,
        });
    }
    Ok(found)
}
