//! What happens to others that a resource refers to or that refer to it, and to its objects.

use super::{Facts, Micros, Party, Patch, Permissions};
use crate::state::ResourceState;

fn woken(old: &Facts, now: Micros) -> Patch {
    let mut next = old.clone();
    next.set_due(Some(now));
    Patch::of(next)
}

/// One that is not as it should be is looked at again: it may have waited for this.
pub fn ready(old: &Facts, now: Micros) -> Option<Patch> {
    (old.deleting || !old.is_settled()).then(|| woken(old, now))
}

/// What one that is being deleted waits for may be that nobody refers to it any more.
pub fn referrer_gone(old: &Facts, now: Micros) -> Option<Patch> {
    old.deleting.then(|| woken(old, now))
}

/// One that was made from what was before is as it should be no longer. What was allowed or approved for it was not for this.
/// Whoever changed the other changed this one. A task may be making it right now: the next lease sees what is.
pub fn changed(old: &Facts, message: &str, by: &Party, trace: &str, now: Micros) -> Option<Patch> {
    if old.is_settled() && !old.has_objects {
        return None;
    }
    let mut next = old.clone();
    // Also of what is Ready: a repair may be under way, and would say so again. Also of what is being deleted: it may be wanted
    // again before the task that was making it has stopped.
    next.stale = true;
    if old.deleting || !old.is_settled() {
        return (!old.stale).then(|| Patch::of(next));
    }
    next.set_state(ResourceState::Pending, message, now);
    next.set_due(Some(now));
    next.attempts = 0;
    next.permissions = Permissions::default();
    next.plan_digest = String::new();
    Some(Patch {
        approved: Some(Party::default()),
        applied: Some(by.clone()),
        trace: Some(trace.to_owned()),
        ..Patch::of(next)
    })
}

/// It begins anew.
pub fn objects_deleted(old: &Facts, now: Micros) -> Patch {
    let mut next = old.clone();
    next.state = ResourceState::Pending;
    next.message = String::new();
    next.observed_generation = 0;
    next.set_due(Some(now));
    Patch { forgets_outputs: true, ..Patch::of(next) }
}

/// The next apply makes new ones.
pub fn account_left(old: &Facts, message: &str, now: Micros) -> Patch {
    let mut next = old.clone();
    next.set_state(ResourceState::Pending, message, now);
    next.observed_generation = 0;
    next.set_due(None);
    Patch { drift: Some(String::new()), forgets_outputs: true, ..Patch::of(next) }
}
