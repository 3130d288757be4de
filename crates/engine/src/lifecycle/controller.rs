//! What the controller and approvers decide.

use super::{Decision, Facts, Micros, Party, Patch};
use crate::state::ResourceState;

/// Nothing but a plan that waits can be approved.
pub fn approved(old: &Facts, by: &Party, now: Micros) -> Option<Patch> {
    if old.state != ResourceState::AwaitingApproval {
        return None;
    }
    let mut next = old.clone();
    next.set_state(ResourceState::Pending, "", now);
    next.set_due(Some(now));
    Some(Patch { approved: Some(by.clone()), ..Patch::of(next) })
}

pub fn decided(old: &Facts, decision: &Decision<'_>, now: Micros) -> Patch {
    let mut next = old.clone();
    match decision {
        Decision::Begin => {
            next.set_due(None);
            // What it waited for is there: that is not said any longer.
            if old.state == ResourceState::Pending {
                next.message = String::new();
            }
        }
        Decision::Rest { until } => next.set_due(*until),
        Decision::Settle { state, message, until } => {
            next.set_due(*until);
            // The controller carries nothing out: it makes nothing Ready.
            let known = *state != ResourceState::Ready || old.state == ResourceState::Ready;
            if known && (old.state != *state || old.message != *message) {
                next.set_state(*state, message, now);
            }
        }
    }
    Patch::of(next)
}
