//! What the state remembers, brought up to what clouds show. Pure.

use crate::handler::Catalog;
use crate::record::Status;
use crate::state::ResourceState;
use crate::summary::nodes;
use crate::unit::{Observed, UnitState};
use berth_model::{ResourceId, registry};

/// What a resource whose object is gone says.
const GONE: &str = "gone: deleted outside";

/// A unit and what was seen of it; `None` when it is gone.
pub type Seen = (UnitState, Option<Observed>);

/// The unit's row as it should be, or `None` when it is right. One that is gone stays in the state, no longer ready: so drift
/// goes on telling about it, and apply knows that it has to be made again.
pub fn unit_now(mut unit: UnitState, observed: Option<&Observed>) -> Option<UnitState> {
    let Some(observed) = observed else {
        let was_ready = unit.ready;
        unit.ready = false;
        return was_ready.then_some(unit);
    };
    let mut changed = false;
    for (name, value) in &observed.outputs {
        if unit.outputs.get(name) != Some(value) {
            unit.outputs.insert(name.clone(), value.clone());
            changed = true;
        }
    }
    changed.then_some(unit)
}

/// The status, as far as reading can tell it. What becomes of something unfinished is for `wait` and `apply` to say.
pub fn status_now(catalog: &dyn Catalog, id: &ResourceId, before: &Status, deleting: bool, units: &[Seen]) -> Status {
    let mut status = before.clone();
    let Some(kind) = registry().kind(&id.kind) else { return status };
    // Outputs that can change carry the same name in the unit; the others are ids, and times of creation.
    for (unit, observed) in units.iter().filter(|(unit, _)| !unit.key.contains('/')) {
        let Some(observed) = observed else { continue };
        for field in kind.outputs_shape().fields.iter().filter(|field| !field.secret) {
            if let Some(value) = observed.outputs.get(&field.name) {
                status.outputs.insert(field.name.clone(), value.clone());
            }
        }
        if Some(unit.key.as_str()) == catalog.main_unit(&id.kind) {
            let facts = catalog.summary_facts(&unit.unit_type, observed).named();
            status.facts.extend(facts.map(|(name, value)| (name.to_owned(), value)));
        }
    }
    let seen = units.iter().filter_map(|(unit, observed)| Some((unit.unit_type.as_str(), observed.as_ref()?)));
    if let Some(nodes) = nodes(catalog, seen) {
        status.facts.insert("nodes".into(), nodes.into());
    }
    let gone = units.iter().any(|(_, observed)| observed.is_none());
    if gone && !deleting {
        status.state = ResourceState::Failed;
        status.message = GONE.into();
    }
    status
}

/// Names of what differs: outputs, facts, or `state`.
pub fn changed(before: &Status, now: &Status) -> Vec<String> {
    let mut names = Vec::new();
    if before.message != now.message {
        names.push("state".to_owned());
    }
    for (before, now) in [(&before.outputs, &now.outputs), (&before.facts, &now.facts)] {
        names.extend(now.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(|(name, _)| name.clone()));
    }
    names
}
