//! What workers report: status, plans, ends of tasks, drift.

use super::{Change, DriftCheck, Ended, Facts, Micros, Party, Patch, Permissions, StatusReport, TaskEnd};
use crate::state::ResourceState;

/// When to look again at what is said to be done and is not Ready.
const UNSETTLED_AGAIN: Micros = 30_000_000;

/// What is being deleted is not Ready, nor is what was made from something that has changed since, whatever a worker that has
/// not heard of it says. Drift is looked for while Ready; a check neither begins nor ends that.
pub fn status_reported(old: &Facts, report: &StatusReport<'_>, now: Micros) -> Patch {
    let is_ready = report.state == ResourceState::Ready;
    let mut next = old.clone();
    let state = match report.state {
        ResourceState::Ready if old.deleting => ResourceState::Deleting,
        ResourceState::Ready if old.stale => ResourceState::Pending,
        state => state,
    };
    next.set_state(state, report.message, now);
    if report.observed_generation > 0 {
        next.observed_generation = report.observed_generation.min(old.generation);
    } else if is_ready {
        next.observed_generation = old.generation;
    }
    if report.changes {
        next.drift_at = match old.drift_every {
            Some(every) if is_ready && !old.deleting => {
                let first = every.saturating_mul(report.first_check_percent) / 100;
                old.drift_at.or(Some(now.saturating_add(first)))
            }
            _ => None,
        };
    }
    let drift = (report.changes && is_ready).then(String::new);
    Patch { drift, ..Patch::of(next) }
}

/// An approval is of one plan, and of no other.
pub fn plan_submitted(old: &Facts, digest: &str) -> Patch {
    let approved = (old.plan_digest != digest).then(Party::default);
    Patch { approved, ..Patch::of(Facts { plan_digest: digest.to_owned(), ..old.clone() }) }
}

/// One that moved on while the task ran is due at once, however that ended; so is one whose task was stopped, unless someone
/// cancelled it and nothing happened since. What could not be changed is looked at all the same: drift does not wait for
/// whoever mends a failure.
pub fn ended(old: &Facts, end: &TaskEnd<'_>, now: Micros) -> Patch {
    let moved_on = old.moved_on(end);
    let is_done = end.ended == Ended::Done;
    let is_over = old.is_settled() && !old.deleting;
    let mut next = old.clone();
    next.set_due(match end.ended {
        _ if moved_on => Some(now),
        Ended::Cancelled { mark } if mark != Some(old.due_mark) => Some(now),
        Ended::Done if !is_over => end.retry_at.or(Some(now.saturating_add(UNSETTLED_AGAIN))),
        _ => end.retry_at,
    });
    match end.ended {
        Ended::Done => next.attempts = 0,
        Ended::Failed => next.attempts = old.attempts.saturating_add(1),
        Ended::Refused | Ended::Cancelled { .. } | Ended::AwaitsApproval | Ended::Blocked => {}
    }
    let outcome = match end.ended {
        Ended::Done | Ended::Cancelled { .. } => None,
        Ended::Failed | Ended::Refused => Some(ResourceState::Failed),
        Ended::AwaitsApproval => Some(ResourceState::AwaitingApproval),
        Ended::Blocked => Some(ResourceState::Blocked),
    };
    if end.change == Change::Apply && old.stale && old.state == ResourceState::Ready && !old.deleting {
        next.state = ResourceState::Pending;
    } else if let Some(state) = outcome.filter(|_| !moved_on) {
        next.state = state;
    }
    if !is_done {
        next.status_at = Some(now);
        if !moved_on {
            next.message = end.message.to_owned();
        }
        if let Some(every) = old.drift_every.filter(|_| !old.deleting && old.observed_generation > 0) {
            next.drift_at = old.drift_at.or(Some(now.saturating_add(every)));
        }
    }
    // What was allowed and approved was so for what is now done, and for nothing that comes later.
    if is_done && is_over && end.change == Change::Apply && old.generation == end.generation {
        next.permissions = Permissions::default();
        next.plan_digest = String::new();
    }
    Patch::of(next)
}

/// Dropped where the resource moved on since it was looked at.
pub fn drift_checked(old: &Facts, check: &DriftCheck<'_>, now: Micros) -> Option<Patch> {
    if old.deleting || old.generation != check.generation {
        return None;
    }
    let mut next = old.clone();
    next.drift_checked_at = Some(now);
    next.drift_at = old.drift_at.and(check.next);
    let repairs = check.repair && !check.differences.is_empty();
    if repairs && matches!(old.state, ResourceState::Ready | ResourceState::Failed) {
        next.set_due(Some(now));
    }
    Some(Patch { drift: Some(check.differences.to_owned()), ..Patch::of(next) })
}
