//! Transitions of resources: case by case.

use berth_engine::ResourceState::{self, *};
use berth_engine::lifecycle::{
    Applied, Change, Decision, DriftCheck, Ended, Event, Facts, Party, Patch, Permissions, StatusReport, TaskEnd,
    transition,
};

pub const NOW: i64 = 1_000_000_000;
pub const EVERY: i64 = 600_000_000;
const ALL_ALLOWED: Permissions = Permissions { replace: true, data_loss: true, recreate: true };

/// Carried out, at rest.
fn ready() -> Facts {
    Facts {
        generation: 3,
        observed_generation: 3,
        has_objects: true,
        state: Ready,
        due_mark: 7,
        drift_every: Some(EVERY),
        drift_at: Some(NOW + 5),
        ..Facts::default()
    }
}

/// Declared, and a task is at it.
fn pending() -> Facts {
    Facts { observed_generation: 2, state: Pending, drift_at: None, ..ready() }
}

fn deleting() -> Facts {
    Facts { deleting: true, state: Deleting, drift_at: None, ..ready() }
}

pub fn party(name: &str) -> Party {
    Party { name: name.into(), id: format!("id-of-{name}") }
}

fn ended(change: Change, ended: Ended) -> TaskEnd<'static> {
    TaskEnd { change, generation: 3, ended, message: "how it ended", retry_at: None }
}

fn end(old: &Facts, end: TaskEnd<'_>) -> Facts {
    step(old, &Event::TaskEnded(end)).expect("an end is written down").facts
}

fn step(old: &Facts, event: &Event<'_>) -> Option<Patch> {
    transition(old, event, NOW)
}

fn declared<'a>(by: &'a Party, is_new: bool) -> Applied<'a> {
    Applied {
        is_new,
        is_ready: false,
        retry: false,
        differs: false,
        permissions: Permissions::default(),
        drift_every: Some(EVERY),
        by,
        trace: "trace",
    }
}

#[test]
fn a_task_that_is_done_leaves_nothing_due_and_nothing_allowed() {
    let old = Facts { permissions: ALL_ALLOWED, plan_digest: "digest".into(), attempts: 4, ..ready() };
    let new = end(&old, ended(Change::Apply, Ended::Done));
    let expected = Facts { permissions: Permissions::default(), plan_digest: String::new(), attempts: 0, ..old };
    assert_eq!(new, Facts { due_mark: 8, ..expected });
}

#[test]
fn a_task_that_says_done_of_what_is_not_ready_is_looked_at_again() {
    let new = end(&pending(), ended(Change::Apply, Ended::Done));
    assert_eq!((new.due_at, new.state), (Some(NOW + 30_000_000), Pending));
    let sooner = TaskEnd { retry_at: Some(NOW + 9), ..ended(Change::Apply, Ended::Done) };
    assert_eq!(end(&pending(), sooner).due_at, Some(NOW + 9));
    assert_eq!(end(&deleting(), ended(Change::Delete, Ended::Done)).due_at, Some(NOW + 30_000_000));
}

#[test]
fn a_failure_is_told_counted_and_tried_again_when_it_says() {
    let failed = TaskEnd { retry_at: Some(NOW + 9), ..ended(Change::Apply, Ended::Failed) };
    let new = end(&pending(), failed);
    assert_eq!((new.state, new.message.as_str(), new.attempts, new.due_at), (Failed, "how it ended", 1, Some(NOW + 9)));
    assert_eq!(new.drift_at, Some(NOW + EVERY), "what exists is looked at although it cannot be changed");
    let never_made = Facts { observed_generation: 0, ..pending() };
    assert_eq!(end(&never_made, ended(Change::Apply, Ended::Failed)).drift_at, None);
    let refused = end(&pending(), ended(Change::Apply, Ended::Refused));
    assert_eq!((refused.state, refused.attempts, refused.due_at), (Failed, 0, None));
}

#[test]
fn what_moved_on_while_a_task_ran_is_due_at_once_and_keeps_its_state() {
    let moved = [
        (Facts { generation: 4, ..pending() }, Change::Apply),
        (Facts { stale: true, ..pending() }, Change::Apply),
        (deleting(), Change::Apply),
        (pending(), Change::Delete),
    ];
    let ends = [Ended::Done, Ended::Failed, Ended::Refused, Ended::Cancelled { mark: Some(7) }, Ended::Blocked];
    for (old, change) in moved {
        for how in ends {
            let late = TaskEnd { retry_at: Some(NOW + 9), ..ended(change, how) };
            let new = end(&old, late);
            assert_eq!((new.due_at, new.state, &new.message), (Some(NOW), old.state, &old.message), "{old:?} {how:?}");
        }
    }
}

#[test]
fn what_was_made_from_something_that_changed_meanwhile_is_not_ready() {
    let said = step(&Facts { stale: true, ..pending() }, &Event::StatusReported(report(Ready, 3))).expect("a patch");
    assert_eq!(said.facts.state, Pending);
    let new = end(&Facts { stale: true, ..ready() }, ended(Change::Apply, Ended::Done));
    assert_eq!((new.state, new.due_at), (Pending, Some(NOW)));
}

#[test]
fn a_cancelled_task_rests_unless_something_happened_since() {
    let cancelled = |mark| end(&pending(), ended(Change::Apply, Ended::Cancelled { mark }));
    let rests = cancelled(Some(7));
    assert_eq!((rests.due_at, rests.state, rests.message.as_str(), rests.attempts), (None, Pending, "how it ended", 0));
    assert_eq!(cancelled(Some(6)).due_at, Some(NOW));
    assert_eq!(cancelled(None).due_at, Some(NOW), "nobody cancelled it: it was given up for something else");
}

#[test]
fn a_gate_that_holds_or_forbids_a_plan_leaves_it_to_somebody() {
    for (how, state) in [(Ended::AwaitsApproval, AwaitingApproval), (Ended::Blocked, Blocked)] {
        let new = end(&pending(), ended(Change::Apply, how));
        assert_eq!((new.state, new.due_at, new.attempts), (state, None, 0));
    }
}

#[test]
fn a_new_manifest_starts_over() {
    let by = party("amy");
    let permissions = Permissions { replace: true, ..Permissions::default() };
    let old = Facts {
        attempts: 5,
        plan_digest: "digest".into(),
        message: "old".into(),
        permissions: Permissions { data_loss: true, ..Permissions::default() },
        ..ready()
    };
    let patch = step(&old, &Event::Applied(Applied { permissions, ..declared(&by, true) })).expect("a patch");
    let new = &patch.facts;
    assert_eq!((new.generation, new.observed_generation, new.state, new.due_at), (4, 3, Pending, Some(NOW)));
    assert_eq!((new.attempts, new.plan_digest.as_str(), new.message.as_str()), (0, "", ""));
    assert_eq!((new.permissions, new.drift_at), (permissions, None));
    assert_eq!((patch.drift.as_deref(), patch.approved, patch.applied), (Some(""), Some(Party::default()), Some(by)));
}

#[test]
fn a_kind_without_objects_is_ready_at_once() {
    let by = party("amy");
    let event = Applied { is_ready: true, drift_every: None, ..declared(&by, true) };
    let first = Facts::created(&event, false, NOW);
    assert!(first.is_settled() && first.due_at.is_none());
    let second = step(&first, &Event::Applied(event.clone())).expect("a patch").facts;
    assert!(second.is_settled() && second.due_at.is_none() && second.generation == 2);
    let gone = step(&second, &Event::DeletionAsked { by: &by, trace: "" }).expect("a patch").facts;
    let again = step(&gone, &Event::Applied(Applied { is_new: false, ..event })).expect("a patch").facts;
    assert!(again.is_settled() && !again.deleting);
}

#[test]
fn the_same_manifest_again_changes_nothing_unless_asked() {
    let by = party("amy");
    assert_eq!(step(&ready(), &Event::Applied(declared(&by, false))), None);
    let failed = Facts { state: Failed, attempts: 3, ..pending() };
    assert_eq!(step(&failed, &Event::Applied(declared(&by, false))), None);
    let retried =
        step(&failed, &Event::Applied(Applied { retry: true, ..declared(&by, false) })).expect("a patch").facts;
    assert_eq!((retried.due_at, retried.attempts, retried.state), (Some(NOW), 0, Failed));
    let waits = Facts { state: AwaitingApproval, plan_digest: "digest".into(), ..pending() };
    let again = step(&waits, &Event::Applied(Applied { retry: true, ..declared(&by, false) })).expect("a patch");
    assert_eq!((again.facts.state, again.facts.plan_digest.as_str(), again.approved), (Pending, "digest", None));
}

#[test]
fn a_permission_is_kept_only_while_there_is_a_change_that_it_is_for() {
    let by = party("amy");
    let allowing = Applied { permissions: ALL_ALLOWED, ..declared(&by, false) };
    assert_eq!(step(&ready(), &Event::Applied(allowing.clone())), None, "what is as declared has none to keep");
    let failed = Facts { state: Failed, ..pending() };
    let new = step(&failed, &Event::Applied(allowing)).expect("a patch").facts;
    assert_eq!((new.permissions, new.due_at), (ALL_ALLOWED, Some(NOW)));
}

#[test]
fn what_is_applied_while_it_is_being_deleted_is_wanted_again() {
    let by = party("amy");
    let new = step(&deleting(), &Event::Applied(declared(&by, false))).expect("a patch").facts;
    let expected = (false, Pending, 0, Some(NOW));
    assert_eq!((new.deleting, new.state, new.observed_generation, new.due_at), expected);
}

#[test]
fn a_deletion_takes_back_approvals_and_ends_the_search_for_drift() {
    let by = party("amy");
    let old = Facts { plan_digest: "digest".into(), attempts: 2, ..ready() };
    let patch = step(&old, &Event::DeletionAsked { by: &by, trace: "trace" }).expect("a patch");
    let new = &patch.facts;
    assert_eq!((new.deleting, new.state, new.due_at, new.drift_at), (true, Deleting, Some(NOW), None));
    assert_eq!((new.plan_digest.as_str(), new.attempts, patch.approved), ("", 0, Some(Party::default())));
    assert_eq!(patch.applied, Some(by.clone()), "whoever asks for it cannot approve it");
    let failed = Facts { state: Failed, attempts: 3, ..deleting() };
    let again = step(&failed, &Event::DeletionAsked { by: &by, trace: "" }).expect("a patch");
    assert_eq!((again.facts.state, again.facts.attempts, again.applied), (Deleting, 0, None));
    let waits = Facts { state: AwaitingApproval, ..deleting() };
    assert_eq!(step(&waits, &Event::DeletionAsked { by: &by, trace: "" }), None);
}

fn report(state: ResourceState, observed_generation: i64) -> StatusReport<'static> {
    StatusReport { changes: true, state, message: "said", observed_generation, first_check_percent: 50 }
}

#[test]
fn ready_is_what_a_worker_says_of_the_generation_it_made() {
    let patch = step(&pending(), &Event::StatusReported(report(Ready, 3))).expect("a patch");
    assert!(patch.facts.is_settled());
    assert_eq!((patch.facts.drift_at, patch.drift.as_deref()), (Some(NOW + EVERY / 2), Some("")));
    let older = step(&Facts { generation: 4, ..pending() }, &Event::StatusReported(report(Ready, 3))).expect("a patch");
    assert!(older.facts.state == Ready && !older.facts.is_settled());
    let going = step(&deleting(), &Event::StatusReported(report(Ready, 3))).expect("a patch");
    assert_eq!((going.facts.state, going.facts.drift_at), (Deleting, None));
    let failed = step(&ready(), &Event::StatusReported(report(Failed, 0))).expect("a patch");
    assert_eq!((failed.facts.observed_generation, failed.facts.drift_at, failed.drift), (3, None, None));
    let seen = StatusReport { changes: false, ..report(Failed, 3) };
    assert_eq!(step(&ready(), &Event::StatusReported(seen)).expect("a patch").facts.drift_at, ready().drift_at);
}

#[test]
fn an_approval_is_of_one_plan() {
    let by = party("bob");
    let waits = Facts { state: AwaitingApproval, plan_digest: "one".into(), ..pending() };
    let patch = step(&waits, &Event::Approved { by: &by }).expect("a patch");
    assert_eq!((patch.facts.state, patch.facts.due_at, patch.approved), (Pending, Some(NOW), Some(by.clone())));
    assert_eq!(step(&pending(), &Event::Approved { by: &by }), None);
    let same = step(&patch.facts, &Event::PlanSubmitted { digest: "one" }).expect("a patch");
    assert_eq!(same.approved, None);
    let other = step(&patch.facts, &Event::PlanSubmitted { digest: "other" }).expect("a patch");
    assert_eq!((other.approved, other.facts.plan_digest.as_str()), (Some(Party::default()), "other"));
}

#[test]
fn drift_is_kept_and_repaired_where_that_is_wanted() {
    let check = |repair, differences| DriftCheck { generation: 3, differences, repair, next: Some(NOW + EVERY) };
    let told = step(&ready(), &Event::DriftChecked(check(false, "[1]"))).expect("a patch");
    assert_eq!((told.drift.as_deref(), told.facts.due_at, told.facts.drift_at), (Some("[1]"), None, Some(NOW + EVERY)));
    assert_eq!(told.facts.drift_checked_at, Some(NOW));
    let repaired = step(&ready(), &Event::DriftChecked(check(true, "[1]"))).expect("a patch").facts;
    assert_eq!((repaired.due_at, repaired.due_mark), (Some(NOW), 8));
    assert_eq!(step(&ready(), &Event::DriftChecked(check(true, ""))).expect("a patch").facts.due_at, None);
    for old in [deleting(), Facts { generation: 4, ..pending() }] {
        assert_eq!(step(&old, &Event::DriftChecked(check(true, "[1]"))), None, "a finding about what was before");
    }
}

#[test]
fn the_controller_makes_nothing_ready() {
    let decide = |old: &Facts, decision| step(old, &Event::Decided(decision)).expect("a patch").facts;
    let waits = Facts { message: "waits".into(), due_at: Some(NOW), ..pending() };
    let begun = decide(&waits, Decision::Begin);
    assert_eq!((begun.due_at, begun.message.as_str(), begun.due_mark), (None, "", 8));
    assert_eq!(decide(&waits, Decision::Rest { until: Some(NOW + 1) }).due_at, Some(NOW + 1));
    let settled = decide(&pending(), Decision::Settle { state: Failed, message: "bad", until: None });
    assert_eq!((settled.state, settled.message.as_str(), settled.status_at), (Failed, "bad", Some(NOW)));
    let never = decide(&pending(), Decision::Settle { state: Ready, message: "", until: None });
    assert_eq!(never.state, Pending);
}

#[test]
fn what_is_referred_to_wakes_and_outdates() {
    let by = party("amy");
    let changed = Event::ReferenceChanged { message: "net has changed", by: &by, trace: "" };
    assert_eq!(step(&ready(), &Event::ReferenceReady), None);
    assert_eq!(step(&pending(), &Event::ReferenceReady).expect("a patch").facts.due_at, Some(NOW));
    assert_eq!(step(&ready(), &Event::ReferrerGone), None);
    assert_eq!(step(&deleting(), &Event::ReferrerGone).expect("a patch").facts.due_at, Some(NOW));
    let old = Facts { permissions: ALL_ALLOWED, plan_digest: "digest".into(), ..ready() };
    let patch = step(&old, &changed).expect("a patch");
    let new = &patch.facts;
    assert_eq!((new.state, new.due_at, new.message.as_str()), (Pending, Some(NOW), "net has changed"));
    assert_eq!((new.permissions, patch.approved), (Permissions::default(), Some(Party::default())));
    assert!(new.stale, "a repair that is under way was begun with what was before");
    let repaired = step(new, &Event::StatusReported(report(Ready, 3))).expect("a patch").facts;
    assert_eq!(repaired.state, Pending);
    let again = end(&repaired, ended(Change::Apply, Ended::Done));
    assert_eq!((again.state, again.due_at), (Pending, Some(NOW)));
    let busy = step(&pending(), &changed).expect("a patch").facts;
    assert_eq!(busy, Facts { stale: true, ..pending() }, "a task may be making it from what was before");
    let going = step(&deleting(), &changed).expect("a patch").facts;
    assert_eq!(going, Facts { stale: true, ..deleting() }, "it may be wanted again before that task has stopped");
    assert_eq!(step(&Facts { has_objects: false, ..ready() }, &changed), None);
}

#[test]
fn what_lost_its_objects_begins_anew() {
    let gone = step(&ready(), &Event::ObjectsDeleted).expect("a patch");
    assert_eq!((gone.facts.observed_generation, gone.facts.state, gone.facts.due_at), (0, Pending, Some(NOW)));
    let left = step(&ready(), &Event::AccountLeft { message: "moved" }).expect("a patch");
    assert_eq!((left.facts.state, left.facts.due_at, left.facts.observed_generation), (Pending, None, 0));
    assert!(gone.forgets_outputs && left.forgets_outputs);
}
