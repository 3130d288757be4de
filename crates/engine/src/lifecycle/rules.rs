//! What every transition keeps to, whatever the history. Checked at each one in debug builds, and over random histories by a
//! property test.

use super::{Change, Ended, Event, Facts, Micros, Party, Patch, Permissions};
use crate::state::ResourceState;

/// A rule about a row that it breaks.
pub fn broken_row(facts: &Facts) -> Option<&'static str> {
    let rules = [
        (facts.deleting && facts.state == ResourceState::Ready, "what is being deleted is not Ready"),
        (
            !(0..=facts.generation).contains(&facts.observed_generation),
            "what was carried out is a generation that was declared",
        ),
        (facts.state == ResourceState::Ready && facts.observed_generation == 0, "what is Ready was carried out"),
        (
            facts.is_settled() && facts.stale && facts.has_objects,
            "what was made from something that has changed since is not as declared",
        ),
        (
            facts.drift_at.is_some() && (facts.deleting || facts.drift_every.is_none()),
            "drift is looked for in what stays, and as often as was said",
        ),
    ];
    rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, rule)| rule)
}

/// Whether nobody would ever look at the resource again although it is not as declared. It may rest where somebody has to do
/// something first.
pub fn is_lost(facts: &Facts, has_open_task: bool) -> bool {
    let rests = matches!(facts.state, ResourceState::Failed | ResourceState::Blocked | ResourceState::AwaitingApproval)
        || facts.is_settled() && !facts.deleting;
    facts.due_at.is_none() && !has_open_task && !rests
}

/// A rule that the step breaks, or that the row broke only after it.
pub fn broken(old: &Facts, event: &Event<'_>, patch: &Patch, now: Micros) -> Option<&'static str> {
    let new = &patch.facts;
    let broken_now = broken_row(new).filter(|_| broken_row(old).is_none());
    broken_now
        .or_else(|| due(old, event, new, now))
        .or_else(|| declared(old, event, new))
        .or_else(|| ready(old, event, new))
        .or_else(|| allowed(old, event, patch))
}

/// One column drives the controller.
fn due(old: &Facts, event: &Event<'_>, new: &Facts, now: Micros) -> Option<&'static str> {
    if new.due_mark < old.due_mark || (new.due_at != old.due_at && new.due_mark == old.due_mark) {
        return Some("a decision about what was seen before is dropped");
    }
    match event {
        Event::TaskEnded(end) if old.moved_on(end) && new.due_at != Some(now) => {
            Some("what moved on while a task ran is due at once")
        }
        Event::Applied(applied) if applied.is_new && !applied.is_ready && new.due_at != Some(now) => {
            Some("a new generation is due at once")
        }
        Event::DeletionAsked { .. } | Event::Approved { .. } if new.due_at != Some(now) => {
            Some("a deletion and an approval are due at once")
        }
        _ => None,
    }
}

/// Desired state changes by applies and deletions alone.
fn declared(old: &Facts, event: &Event<'_>, new: &Facts) -> Option<&'static str> {
    let generation = old.generation + i64::from(matches!(event, Event::Applied(applied) if applied.is_new));
    if new.generation != generation {
        return Some("a generation is another manifest");
    }
    let deleting = match event {
        Event::Applied(_) => false,
        Event::DeletionAsked { .. } => true,
        _ => old.deleting,
    };
    (new.deleting != deleting).then_some("only an apply and a deletion say whether it is wanted")
}

/// Ready means that somebody looked.
fn ready(old: &Facts, event: &Event<'_>, new: &Facts) -> Option<&'static str> {
    let says_so = match event {
        Event::StatusReported(report) => report.state == ResourceState::Ready,
        Event::Applied(applied) => applied.is_ready,
        _ => false,
    };
    let becomes = new.state == ResourceState::Ready && old.state != ResourceState::Ready;
    let settles = new.is_settled() && !old.is_settled();
    ((becomes || settles) && !says_so).then_some("only a worker, or a kind without objects, makes it Ready")
}

/// What was allowed and approved was so for one change.
fn allowed(old: &Facts, event: &Event<'_>, patch: &Patch) -> Option<&'static str> {
    let new = &patch.facts;
    let Permissions { replace, data_loss, recreate } = new.permissions;
    let more = replace && !old.permissions.replace
        || data_loss && !old.permissions.data_loss
        || recreate && !old.permissions.recreate;
    if more && !matches!(event, Event::Applied(_)) {
        return Some("only an apply allows something");
    }
    let taken_back = patch.approved.as_ref() == Some(&Party::default());
    if patch.approved.is_some() && !taken_back && !matches!(event, Event::Approved { .. }) {
        return Some("only an approval approves");
    }
    let is_other = new.generation != old.generation
        || new.deleting && !old.deleting
        || !new.plan_digest.is_empty() && new.plan_digest != old.plan_digest
        || matches!(event, Event::ReferenceChanged { .. }) && old.is_settled();
    if is_other && !taken_back {
        return Some("an approval is of one plan");
    }
    match event {
        Event::TaskEnded(end)
            if end.ended == Ended::Done
                && end.change == Change::Apply
                && end.generation == old.generation
                && old.is_settled()
                && !old.deleting
                && (new.permissions != Permissions::default() || !new.plan_digest.is_empty()) =>
        {
            Some("a permission ends with the change that it was for")
        }
        _ => None,
    }
}
