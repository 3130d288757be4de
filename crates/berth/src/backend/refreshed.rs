//! What a refresh changed.

use berth_engine::GoneCount;
use berth_engine::handler::Trouble;
use berth_engine::record::Status;
use berth_model::ResourceId;
use berth_store::StoredResource;
use serde::Serialize;
use serde_json::{Value, json};

pub struct Refreshed {
    pub changes: Vec<StateChange>,
    /// Resources that were read.
    pub checked: usize,
    pub calls: u64,
    pub troubles: Vec<(ResourceId, Trouble)>,
    /// Accounts of which much seems gone at once.
    pub much_gone: Vec<GoneCount>,
}

/// A value of the state that a refresh changed.
#[derive(Debug, Serialize)]
pub struct StateChange {
    pub resource: ResourceId,
    /// Name of an output or fact, or `state`.
    pub what: String,
    pub before: Value,
    pub now: Value,
    /// The resource failed meanwhile: an object of it is gone.
    #[serde(skip)]
    pub failed: bool,
}

/// Adds what differs between a resource in the state and its status now.
pub fn compare(stored: &StoredResource, status: &Status, changes: &mut Vec<StateChange>) {
    let change_of = |what: &str, before: Value, now: Value| StateChange {
        resource: stored.id.clone(),
        what: what.to_owned(),
        before,
        now,
        failed: false,
    };
    if stored.status.message != status.message {
        let failed = status.state == berth_engine::ResourceState::Failed;
        changes.push(StateChange { failed, ..change_of("state", json!(stored.status.state), json!(status.message)) });
    }
    let mut differ = |what: &str, before: Value, now: Value| {
        if before != now {
            changes.push(change_of(what, before, now));
        }
    };
    for (before, now) in [(&stored.status.outputs, &status.outputs), (&stored.status.facts, &status.facts)] {
        for (name, value) in now {
            differ(name, before.get(name).cloned().unwrap_or_default(), value.clone());
        }
    }
}
