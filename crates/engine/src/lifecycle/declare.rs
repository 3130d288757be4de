//! What is declared: applies and deletions.

use super::{Applied, Facts, Micros, Party, Patch, Permissions};
use crate::state::ResourceState;

pub fn applied(old: &Facts, applied: &Applied<'_>, now: Micros) -> Option<Patch> {
    let mut patch = if applied.is_new { replaced(old, applied, now) } else { repeated(old, applied, now)? };
    patch.applied = Some(applied.by.clone());
    patch.trace = Some(applied.trace.to_owned());
    Some(patch)
}

/// Another manifest. What was found out, planned, approved and tried was about the one before.
fn replaced(old: &Facts, applied: &Applied<'_>, now: Micros) -> Patch {
    let ready = applied.is_ready;
    let mut next = old.clone();
    next.generation += 1;
    next.deleting = false;
    next.set_state(if ready { ResourceState::Ready } else { ResourceState::Pending }, "", now);
    if ready {
        next.observed_generation = next.generation;
        next.stale = false;
    }
    next.permissions = applied.permissions;
    next.set_due((!ready).then_some(now));
    next.attempts = 0;
    next.plan_digest = String::new();
    next.drift_every = applied.drift_every;
    next.drift_at = None;
    Patch { drift: Some(String::new()), approved: Some(Party::default()), ..Patch::of(next) }
}

/// The stored manifest again: what goes with it may differ, it may have been on its way out, or it is tried again. A plan that
/// waits for approval is made again, since whether it still has to wait may have changed; the same plan has the same digest,
/// so that nobody has to look twice.
fn repeated(old: &Facts, applied: &Applied<'_>, now: Micros) -> Option<Patch> {
    let settled = old.is_settled();
    let due =
        !applied.is_ready && (old.deleting || applied.retry || (!settled && old.permissions != applied.permissions));
    // A permission is for the change that it came with: what is as declared has none to keep.
    let permissions = if !due && settled { Permissions::default() } else { applied.permissions };
    let differs = applied.differs || old.permissions != permissions || old.drift_every != applied.drift_every;
    if !due && !differs && !old.deleting {
        return None;
    }
    let mut next = old.clone();
    next.permissions = permissions;
    next.drift_every = applied.drift_every;
    next.drift_at = match applied.drift_every {
        None => None,
        Some(every) if old.state == ResourceState::Ready && !old.deleting => {
            old.drift_at.or(Some(now.saturating_add(every)))
        }
        Some(_) => old.drift_at,
    };
    next.state = match old.state {
        ResourceState::Ready | ResourceState::AwaitingApproval if due => ResourceState::Pending,
        state if !old.deleting => state,
        _ if applied.is_ready => ResourceState::Ready,
        _ => ResourceState::Pending,
    };
    if old.deleting {
        next.deleting = false;
        next.stale &= !applied.is_ready;
        next.observed_generation = if applied.is_ready { old.generation } else { 0 };
    }
    if due {
        next.attempts = 0;
    }
    next.set_due(if due { Some(now) } else { old.due_at });
    Some(Patch::of(next))
}

/// Whoever asks for a deletion cannot be the one who approves it. Asked for again, one that failed or was blocked is tried
/// anew; a plan that waits for approval goes on waiting.
pub fn deletion_asked(old: &Facts, by: &Party, trace: &str, now: Micros) -> Option<Patch> {
    if old.deleting && old.state == ResourceState::AwaitingApproval {
        return None;
    }
    let mut next = old.clone();
    next.deleting = true;
    next.set_state(ResourceState::Deleting, "", now);
    next.set_due(Some(now));
    next.attempts = 0;
    if old.deleting {
        return Some(Patch::of(next));
    }
    next.drift_at = None;
    next.plan_digest = String::new();
    Some(Patch {
        approved: Some(Party::default()),
        applied: (!by.name.is_empty()).then(|| by.clone()),
        trace: Some(trace.to_owned()),
        ..Patch::of(next)
    })
}
