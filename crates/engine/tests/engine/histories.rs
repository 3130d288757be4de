//! Transitions of resources: random histories of applies, deletions, tasks, checks and approvals. Every step keeps to the rules
//! that ARCHITECTURE.md states for transitions, nothing is lost on the way, and once nothing disturbs it any more a resource
//! becomes what was declared last.

use crate::history_steps::{Gate, How, Step, permissions, step};
use crate::lifecycle::{EVERY, NOW, party};
use berth_engine::ResourceState;
use berth_engine::lifecycle::{
    Applied, Change, Decision, DriftCheck, Ended, Event, Facts, Micros, Party, Patch, StatusReport, TaskEnd, rules,
    transition,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;

const CASES: u32 = 6_000;
const STEPS_MAX: usize = 80;
/// Rounds without disturbances in which a resource must come to rest.
const CALM_ROUNDS: usize = 6;

/// The open task that changes the resource.
#[derive(Clone, Debug)]
struct Task {
    change: Change,
    generation: i64,
    /// Which version of what its resource refers to it reads.
    reference: u32,
    is_running: bool,
    has_plan: bool,
    /// Whoever holds it has said how its resource is.
    has_status: bool,
    is_stopping: bool,
    cancel_mark: Option<i64>,
}

/// What histories went through, so that those that explore nothing do not look like good ones.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    ends: u64,
    moved_on: u64,
    ready: u64,
    approved: u64,
    repaired: u64,
    deleted: u64,
    left_alone: u64,
    settled: u64,
}

/// One resource with as much of a control plane around it as transitions need.
#[derive(Debug)]
struct Plane {
    has_objects: bool,
    now: Micros,
    /// `None` where it is not stored.
    facts: Option<Facts>,
    approved: bool,
    /// Drift was found, and is to be repaired.
    repairs: bool,
    task: Option<Task>,
    /// The version of what it refers to.
    reference: u32,
    /// The generation and the reference that its objects were last made from.
    made_from: Option<(i64, u32)>,
    seen: Seen,
    /// Somebody cancelled it, or moved it to another account: it rests until somebody does something.
    left_alone: bool,
}

impl Plane {
    fn new(has_objects: bool) -> Self {
        Self {
            has_objects,
            now: NOW,
            facts: None,
            approved: false,
            repairs: false,
            task: None,
            reference: 0,
            made_from: None,
            seen: Seen::default(),
            left_alone: false,
        }
    }

    fn event(&mut self, event: &Event<'_>) -> Option<Patch> {
        let old = self.facts.clone()?;
        let patch = transition(&old, event, self.now)?;
        assert_eq!(rules::broken(&old, event, &patch, self.now), None, "{old:?} {event:?} {patch:?}");
        if let Some(by) = &patch.approved {
            self.approved = *by != Party::default();
            self.seen.approved += u64::from(self.approved);
        }
        if let Some(drift) = &patch.drift {
            self.repairs = !drift.is_empty() && matches!(event, Event::DriftChecked(check) if check.repair);
        }
        if patch.facts.due_at.is_some() {
            self.left_alone = false;
        }
        self.facts = Some(patch.facts.clone());
        Some(patch)
    }

    fn end(&mut self, ended: Ended, retry: bool) {
        let Some(task) = self.task.take() else { return };
        let retry_at = retry.then_some(self.now + 3_000_000);
        let end = TaskEnd { change: task.change, generation: task.generation, ended, message: "over", retry_at };
        let Some(facts) = &self.facts else { return };
        let (mark, moved_on) = (facts.due_mark, facts.moved_on(&end));
        self.event(&Event::TaskEnded(end));
        // Somebody cancelled it, and nothing happened since.
        self.left_alone = ended == Ended::Cancelled { mark: Some(mark) } && !moved_on;
        self.seen.ends += 1;
        self.seen.moved_on += u64::from(moved_on);
        self.seen.left_alone += u64::from(self.left_alone);
    }

    /// What is wanted now is something else than what an open task does.
    fn supersede(&mut self, wanted: Change) {
        match &mut self.task {
            Some(task) if task.change != wanted && task.is_running => task.is_stopping = true,
            Some(task) if task.change != wanted => self.task = None,
            _ => {}
        }
    }

    fn apply(&mut self, applied: &Applied<'_>) {
        match &self.facts {
            None => self.facts = Some(Facts::created(applied, self.has_objects, self.now)),
            Some(old) => {
                let revived = old.deleting;
                self.event(&Event::Applied(applied.clone()));
                if revived {
                    self.supersede(Change::Apply);
                }
            }
        }
    }

    /// As the controller decides.
    fn decide(&mut self, waits: bool) {
        let Some(facts) = &self.facts else { return };
        if facts.due_at.is_none_or(|at| at > self.now) {
            return;
        }
        let begins = |change| Some(Task::new(change, facts.generation));
        let unapproved = facts.state == ResourceState::AwaitingApproval && !self.approved;
        let task = match facts {
            _ if self.task.is_some() => None,
            facts if facts.deleting && !self.has_objects => {
                self.facts = None;
                return;
            }
            facts if facts.deleting => begins(Change::Delete),
            facts if facts.is_settled() && self.repairs => begins(Change::Apply),
            facts if facts.is_settled() || unapproved || !self.has_objects => None,
            _ if waits => {
                let until = Some(self.now + 120_000_000);
                let settle = Decision::Settle { state: ResourceState::Pending, message: "waits for net", until };
                self.event(&Event::Decided(settle));
                return;
            }
            _ => begins(Change::Apply),
        };
        let decision = if task.is_some() { Decision::Begin } else { Decision::Rest { until: None } };
        self.event(&Event::Decided(decision));
        if task.is_some() {
            self.task = task;
        }
    }

    fn lease(&mut self) {
        let (Some(task), Some(facts)) = (&mut self.task, &mut self.facts) else { return };
        if !task.is_running {
            task.is_running = true;
            task.has_plan = false;
            task.has_status = false;
            task.generation = facts.generation;
            task.reference = self.reference;
            facts.stale = false;
        }
    }

    /// The task goes back to the queue, or is over where something else is wanted.
    fn expire(&mut self) {
        let (Some(task), Some(facts)) = (&mut self.task, &self.facts) else { return };
        let mark = task.cancel_mark;
        if !task.is_running {
        } else if task.is_stopping || facts.deleting != (task.change == Change::Delete) {
            self.end(Ended::Cancelled { mark }, false);
        } else {
            task.is_running = false;
        }
    }

    fn submit(&mut self, digest: u8, gate: Gate) {
        let Some(task) = self.task.as_mut().filter(|task| task.is_running && !task.has_plan) else { return };
        task.has_plan = matches!(gate, Gate::Proceed);
        self.event(&Event::PlanSubmitted { digest: &format!("digest-{digest}") });
        match gate {
            Gate::Proceed => {}
            Gate::Hold => self.end(Ended::AwaitsApproval, false),
            Gate::Block => self.end(Ended::Blocked, false),
        }
    }

    /// A worker records; only what its task may say.
    fn status(&mut self, state: ResourceState) {
        let Some(task) = self.task.as_mut().filter(|task| task.is_running && task.has_plan) else { return };
        task.has_status = true;
        let state = match (task.change, state) {
            (Change::Delete, ResourceState::Failed) => state,
            (Change::Delete, _) => ResourceState::Deleting,
            (Change::Apply, _) => state,
        };
        let observed_generation = if state == ResourceState::Ready { task.generation } else { 0 };
        if state == ResourceState::Ready {
            self.seen.ready += 1;
            self.made_from = Some((task.generation, task.reference));
        }
        let report =
            StatusReport { changes: true, state, message: "said", observed_generation, first_check_percent: 70 };
        self.event(&Event::StatusReported(report));
    }

    /// A deletion has taken all objects away.
    fn objects(&mut self) {
        let deletes = |task: &&Task| task.is_running && task.has_plan && task.change == Change::Delete;
        if self.task.as_ref().filter(deletes).is_none() {
            return;
        }
        if self.facts.as_ref().is_some_and(|facts| facts.deleting) {
            self.facts = None;
            self.seen.deleted += 1;
        } else {
            self.event(&Event::ObjectsDeleted);
        }
    }

    fn report(&mut self, how: How, retry: bool) {
        let Some(task) = self.task.as_ref().filter(|task| task.is_running) else { return };
        let mark = task.cancel_mark;
        match how {
            // Without an accepted plan nothing can be done, and a worker that is done has said so of the resource.
            How::Done if !task.has_plan || !task.has_status => {}
            How::Done => self.end(Ended::Done, retry),
            How::Failed => self.end(Ended::Failed, retry),
            How::Refused => self.end(Ended::Refused, false),
            How::Cancelled => self.end(Ended::Cancelled { mark }, false),
        }
    }

    fn cancel(&mut self) {
        let (Some(task), Some(facts)) = (&mut self.task, &self.facts) else { return };
        let mark = Some(facts.due_mark);
        if task.is_running {
            (task.is_stopping, task.cancel_mark) = (true, mark);
        } else {
            self.end(Ended::Cancelled { mark }, false);
        }
    }

    fn check(&mut self, drifted: bool, repair: bool, late: bool) {
        let Some(facts) = self.facts.as_ref().filter(|facts| facts.drift_at.is_some()) else { return };
        if self.task.as_ref().is_some_and(|task| task.is_running) {
            return;
        }
        let differences = if drifted { "[\"a difference\"]" } else { "" };
        let generation = facts.generation - i64::from(late);
        let before = facts.clone();
        let check = DriftCheck { generation, differences, repair, next: Some(self.now + EVERY) };
        let patch = self.event(&Event::DriftChecked(check));
        self.seen.repaired += u64::from(patch.is_some_and(|patch| patch.facts.due_mark != before.due_mark));
        if late {
            assert_eq!(self.facts, Some(before), "a finding about another generation says nothing");
        }
    }

    fn act(&mut self, step: &Step) {
        let amy = party("amy");
        match *step {
            Step::Apply { is_new, retry, differs, permissions, drift } => {
                let drift_every = (drift && self.has_objects).then_some(EVERY);
                let (is_ready, by, trace) = (!self.has_objects, &amy, "");
                self.apply(&Applied { is_new, is_ready, retry, differs, permissions, drift_every, by, trace });
            }
            Step::Delete => {
                let begins = self.facts.as_ref().is_some_and(|facts| !facts.deleting);
                self.event(&Event::DeletionAsked { by: &amy, trace: "" });
                if begins {
                    self.supersede(Change::Delete);
                }
            }
            Step::Decide { waits } => self.decide(waits),
            Step::Begin { digest, gate } => {
                self.decide(false);
                self.lease();
                self.submit(digest, gate);
            }
            Step::Finish => {
                self.status(ResourceState::Ready);
                self.objects();
                self.report(How::Done, false);
            }
            Step::Lease => self.lease(),
            Step::Expire => self.expire(),
            Step::Submit { digest, gate } => self.submit(digest, gate),
            Step::Status { state } => self.status(state),
            Step::Objects => self.objects(),
            Step::Report { how, retry } => self.report(how, retry),
            Step::Cancel => self.cancel(),
            Step::Check { drifted, repair, late } => self.check(drifted, repair, late),
            Step::Approve => {
                self.event(&Event::Approved { by: &party("bob") });
            }
            Step::ReferenceReady => {
                self.event(&Event::ReferenceReady);
            }
            Step::ReferenceChanged => {
                self.reference += 1;
                self.event(&Event::ReferenceChanged { message: "net has changed", by: &amy, trace: "" });
            }
            Step::ReferrerGone => {
                self.event(&Event::ReferrerGone);
            }
            Step::AccountLeft => {
                if self.has_objects && self.task.as_ref().is_none_or(|task| !task.is_running) {
                    self.event(&Event::AccountLeft { message: "moved" });
                    self.left_alone = true;
                }
            }
            Step::Pass { seconds } => self.now += i64::from(seconds) * 1_000_000,
        }
    }

    fn check_row(&self) {
        let Some(facts) = &self.facts else { return };
        assert_eq!(rules::broken_row(facts), None, "{self:?}");
        let lost = rules::is_lost(facts, self.task.is_some());
        assert!(self.left_alone || !lost, "nobody looks at it again: {self:?}");
    }

    /// Whether it waits for somebody: nothing happens by itself.
    fn waits(&self, facts: &Facts) -> bool {
        let state =
            matches!(facts.state, ResourceState::Failed | ResourceState::Blocked | ResourceState::AwaitingApproval);
        self.task.is_none() && facts.due_at.is_none() && (state || self.left_alone)
    }

    /// Everything works from now on: gates let pass, and clouds do what they are told.
    fn calm(&mut self) {
        for _ in 0..CALM_ROUNDS {
            if let Some(due) = self.facts.as_ref().and_then(|facts| facts.due_at) {
                self.now = self.now.max(due);
            }
            self.decide(false);
            self.lease();
            self.submit(9, Gate::Proceed);
            let stopping = self.task.as_ref().is_some_and(|task| task.is_stopping);
            if stopping {
                self.report(How::Cancelled, false);
                continue;
            }
            self.status(ResourceState::Ready);
            self.objects();
            self.report(How::Done, false);
            self.check_row();
        }
        let Some(facts) = &self.facts else { return };
        let is_there = facts.is_settled() && !facts.deleting && self.task.is_none();
        assert!(is_there || self.waits(facts), "it did not become what was declared: {self:?}");
        if is_there && self.has_objects {
            let wanted = Some((facts.generation, self.reference));
            assert_eq!(self.made_from, wanted, "it was made from something else: {self:?}");
        }
        self.seen.settled += u64::from(is_there);
    }
}

impl Task {
    fn new(change: Change, generation: i64) -> Self {
        Self {
            change,
            generation,
            reference: 0,
            is_running: false,
            has_plan: false,
            has_status: false,
            is_stopping: false,
            cancel_mark: None,
        }
    }
}

fn any_time() -> impl Strategy<Value = Option<Micros>> {
    proptest::option::of(any::<i64>())
}

/// Rows as nobody should ever find them, too.
fn any_facts() -> impl Strategy<Value = Facts> {
    let numbers = (0..i64::MAX / 2, any::<i64>(), 0..i64::MAX / 2, any::<i64>());
    let times = (any_time(), any_time(), any_time(), any_time(), any_time());
    (numbers, any::<[bool; 3]>(), 0..ResourceState::ALL.len(), times, permissions(), "[a-z]{0,4}").prop_map(
        |(numbers, [deleting, stale, has_objects], state, times, permissions, plan_digest)| Facts {
            generation: numbers.0,
            observed_generation: numbers.1,
            due_mark: numbers.2,
            attempts: numbers.3,
            deleting,
            stale,
            has_objects,
            state: ResourceState::ALL[state],
            message: "message".into(),
            status_at: times.0,
            due_at: times.1,
            drift_at: times.2,
            drift_every: times.3,
            drift_checked_at: times.4,
            permissions,
            plan_digest,
        },
    )
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn no_history_breaks_a_rule() {
    let all = RefCell::new(Vec::new());
    let has_objects = prop_oneof![5 => Just(true), 1 => Just(false)];
    let run = |(has_objects, steps): (bool, Vec<Step>)| {
        let mut plane = Plane::new(has_objects);
        for step in &steps {
            plane.act(step);
            plane.check_row();
        }
        plane.calm();
        all.borrow_mut().push(plane.seen);
        Ok(())
    };
    TestRunner::new(config())
        .run(&(has_objects, vec(step(), 1..STEPS_MAX)), run)
        .unwrap_or_else(|error| panic!("{error}"));
    let all = all.into_inner();
    let counts: [fn(&Seen) -> u64; 8] = [
        |seen| seen.ends,
        |seen| seen.moved_on,
        |seen| seen.ready,
        |seen| seen.approved,
        |seen| seen.repaired,
        |seen| seen.deleted,
        |seen| seen.left_alone,
        |seen| seen.settled,
    ];
    let counts = counts.map(|count| all.iter().map(count).sum::<u64>());
    println!("ends, moved on, ready, approved, repaired, deleted, left alone, settled: {counts:?}");
    assert!(counts.iter().all(|count| *count > 50), "the histories explore too little: {counts:?}");
}

proptest! {
    #![proptest_config(config())]

    /// A row may have been written by an older version, or by hand: an event has an answer all the same, and the rules about
    /// single steps hold.
    #[test]
    fn every_event_has_an_answer_for_every_row(facts in any_facts(), now in any::<i64>(), at in any_time(), number in any::<i64>(), state in 0..ResourceState::ALL.len(), flags in any::<[bool; 4]>(), permissions in permissions()) {
        let by = party("amy");
        let [one, two, three, four] = flags;
        let state = ResourceState::ALL[state];
        let applied = Applied { is_new: one, is_ready: two, retry: three, differs: four, permissions, drift_every: at, by: &by, trace: "" };
        let end = |change, ended| TaskEnd { change, generation: number, ended, message: "over", retry_at: at };
        let mut events = vec![
            Event::Applied(applied),
            Event::DeletionAsked { by: &by, trace: "" },
            Event::StatusReported(StatusReport { changes: one, state, message: "", observed_generation: number, first_check_percent: 60 }),
            Event::PlanSubmitted { digest: "abc" },
            Event::DriftChecked(DriftCheck { generation: facts.generation, differences: "[]", repair: one, next: at }),
            Event::Approved { by: &by },
            Event::Decided(Decision::Begin),
            Event::Decided(Decision::Rest { until: at }),
            Event::Decided(Decision::Settle { state, message: "", until: at }),
            Event::ReferenceReady,
            Event::ReferenceChanged { message: "", by: &by, trace: "" },
            Event::ReferrerGone,
            Event::ObjectsDeleted,
            Event::AccountLeft { message: "" },
        ];
        for change in [Change::Apply, Change::Delete] {
            for ended in [Ended::Done, Ended::Failed, Ended::Refused, Ended::Cancelled { mark: at }, Ended::AwaitsApproval, Ended::Blocked] {
                events.push(Event::TaskEnded(end(change, ended)));
            }
        }
        for event in events {
            if let Some(patch) = transition(&facts, &event, now) {
                prop_assert_eq!(rules::broken(&facts, &event, &patch, now), None);
            }
        }
    }
}
