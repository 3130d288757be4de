//! What an event means for a resource: the facts of its row and an event in, a patch of the row out. Pure and total: no clock,
//! no database, no error. The store reads the facts, asks here and writes the patch, in one transaction.

mod controller;
mod declare;
mod references;
pub mod rules;
mod task;

use crate::state::ResourceState;

/// Microseconds since 1970, as the store keeps times.
pub type Micros = i64;

/// What transitions read of a resource's row, and what they write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Of the manifest, from 1.
    pub generation: i64,
    /// The generation that was last carried out; 0 for none.
    pub observed_generation: i64,
    pub deleting: bool,
    /// What it refers to has changed since the last lease: a task may be making it from what was before.
    pub stale: bool,
    /// Whether resources of its kind have objects in a cloud. Written by the apply alone.
    pub has_objects: bool,
    pub state: ResourceState,
    pub message: String,
    pub status_at: Option<Micros>,
    /// When the controller is to look at it; `None` while it rests.
    pub due_at: Option<Micros>,
    /// Grows each time `due_at` is set: a decision is about what was seen.
    pub due_mark: i64,
    /// Failures since it last went well.
    pub attempts: i64,
    pub permissions: Permissions,
    /// Of the plan that waits for approval or was approved; empty for none.
    pub plan_digest: String,
    pub drift_every: Option<Micros>,
    pub drift_at: Option<Micros>,
    pub drift_checked_at: Option<Micros>,
}

/// What the user allowed when applying a generation. Empty once that generation is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    pub replace: bool,
    pub data_loss: bool,
    pub recreate: bool,
}

/// Somebody who applied or approved: a name for people, and the identity that is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    pub name: String,
    pub id: String,
}

#[derive(Clone, Debug)]
pub enum Event<'a> {
    Applied(Applied<'a>),
    /// Also of what is being deleted: it is tried again then.
    DeletionAsked {
        by: &'a Party,
        trace: &'a str,
    },
    /// A worker says how far it is.
    StatusReported(StatusReport<'a>),
    /// A worker handed in its plan.
    PlanSubmitted {
        digest: &'a str,
    },
    TaskEnded(TaskEnd<'a>),
    DriftChecked(DriftCheck<'a>),
    Approved {
        by: &'a Party,
    },
    /// The controller looked at it.
    Decided(Decision<'a>),
    /// Something that it refers to became Ready.
    ReferenceReady,
    /// Something that it refers to is another than it was made from.
    ReferenceChanged {
        message: &'a str,
        by: &'a Party,
        trace: &'a str,
    },
    /// Something that refers to it does so no longer.
    ReferrerGone,
    /// Its objects were deleted, and it is wanted again.
    ObjectsDeleted,
    /// Its objects are in an account that it no longer belongs to.
    AccountLeft {
        message: &'a str,
    },
}

#[derive(Clone, Debug)]
pub struct Applied<'a> {
    /// Another manifest than the one that is stored.
    pub is_new: bool,
    /// It has no objects, and is Ready at once.
    pub is_ready: bool,
    /// One that failed is tried again, although nothing else is declared.
    pub retry: bool,
    /// Its account, service or author differ from what is stored.
    pub differs: bool,
    pub permissions: Permissions,
    pub drift_every: Option<Micros>,
    pub by: &'a Party,
    pub trace: &'a str,
}

#[derive(Clone, Debug)]
pub struct StatusReport<'a> {
    /// Whether the task changes its resource; a check only looks.
    pub changes: bool,
    pub state: ResourceState,
    pub message: &'a str,
    /// 0: the stored one, where the state is Ready.
    pub observed_generation: i64,
    /// When the first drift check comes, in percent of the time between two: checks of many that became Ready at once are
    /// spread.
    pub first_check_percent: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Apply,
    Delete,
}

/// How a task that changes its resource ended.
#[derive(Clone, Debug)]
pub struct TaskEnd<'a> {
    pub change: Change,
    /// Of the resource, when the task was leased.
    pub generation: i64,
    pub ended: Ended,
    pub message: &'a str,
    pub retry_at: Option<Micros>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    Failed,
    /// Trying again will not help.
    Refused,
    /// `mark` is the resource's mark when somebody cancelled the task; `None` where it was given up for something else.
    Cancelled {
        mark: Option<i64>,
    },
    /// The gate keeps the plan until it is approved.
    AwaitsApproval,
    /// The gate forbids the plan.
    Blocked,
}

/// What a comparison with the cloud found.
#[derive(Clone, Debug)]
pub struct DriftCheck<'a> {
    /// That was compared.
    pub generation: i64,
    /// JSON; empty for none.
    pub differences: &'a str,
    pub repair: bool,
    pub next: Option<Micros>,
}

#[derive(Clone, Debug)]
pub enum Decision<'a> {
    /// A task was made.
    Begin,
    /// Nothing is to be done, until then or until something happens.
    Rest { until: Option<Micros> },
    /// It waits for something, or nothing can be decided about it.
    Settle { state: ResourceState, message: &'a str, until: Option<Micros> },
}

/// What becomes of a row. `None` in an option: that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    pub facts: Facts,
    pub drift: Option<String>,
    /// Empty: the approval is taken back.
    pub approved: Option<Party>,
    pub applied: Option<Party>,
    pub trace: Option<String>,
    /// Outputs, facts and secrets are of objects that are no longer there.
    pub forgets_outputs: bool,
}

impl Patch {
    /// Everything but the facts stays as it is.
    pub fn of(facts: Facts) -> Self {
        Self { facts, drift: None, approved: None, applied: None, trace: None, forgets_outputs: false }
    }
}

impl Patch {
    /// Whether nothing changes but when the controller looks.
    pub fn is_only_due(&self, old: &Facts) -> bool {
        let Self { facts, drift, approved, applied, trace, forgets_outputs } = self;
        let stays = drift.is_none() && approved.is_none() && applied.is_none() && trace.is_none() && !forgets_outputs;
        stays && *facts == Facts { due_at: facts.due_at, due_mark: facts.due_mark, ..old.clone() }
    }
}

impl Facts {
    /// A resource that was not stored before.
    pub fn created(applied: &Applied<'_>, has_objects: bool, now: Micros) -> Self {
        let ready = applied.is_ready;
        Self {
            generation: 1,
            observed_generation: i64::from(ready),
            has_objects,
            state: if ready { ResourceState::Ready } else { ResourceState::Pending },
            status_at: ready.then_some(now),
            due_at: (!ready).then_some(now),
            due_mark: 1,
            permissions: applied.permissions,
            drift_every: applied.drift_every,
            ..Self::default()
        }
    }

    /// Whether the stored manifest is the one that was last carried out.
    pub fn is_settled(&self) -> bool {
        self.state == ResourceState::Ready && self.observed_generation == self.generation
    }

    /// Whether something else is wanted now than what the task did, or what its resource refers to is another.
    pub fn moved_on(&self, end: &TaskEnd<'_>) -> bool {
        match end.change {
            Change::Apply => self.deleting || self.stale || self.generation != end.generation,
            Change::Delete => !self.deleting,
        }
    }

    /// Whether another row says something else to people.
    pub fn has_other_status(&self, other: &Self) -> bool {
        self.state != other.state || self.message != other.message
    }

    fn set_due(&mut self, at: Option<Micros>) {
        self.due_at = at;
        self.due_mark += 1;
    }

    fn set_state(&mut self, state: ResourceState, message: &str, now: Micros) {
        self.state = state;
        self.message = message.to_owned();
        self.status_at = Some(now);
    }
}

/// What the event changes; `None` for nothing.
pub fn transition(old: &Facts, event: &Event<'_>, now: Micros) -> Option<Patch> {
    let patch = match event {
        Event::Applied(applied) => declare::applied(old, applied, now),
        Event::DeletionAsked { by, trace } => declare::deletion_asked(old, by, trace, now),
        Event::StatusReported(report) => Some(task::status_reported(old, report, now)),
        Event::PlanSubmitted { digest } => Some(task::plan_submitted(old, digest)),
        Event::TaskEnded(end) => Some(task::ended(old, end, now)),
        Event::DriftChecked(check) => task::drift_checked(old, check, now),
        Event::Approved { by } => controller::approved(old, by, now),
        Event::Decided(decision) => Some(controller::decided(old, decision, now)),
        Event::ReferenceReady => references::ready(old, now),
        Event::ReferenceChanged { message, by, trace } => references::changed(old, message, by, trace, now),
        Event::ReferrerGone => references::referrer_gone(old, now),
        Event::ObjectsDeleted => Some(references::objects_deleted(old, now)),
        Event::AccountLeft { message } => Some(references::account_left(old, message, now)),
    };
    if let Some(patch) = &patch {
        debug_assert_eq!(rules::broken(old, event, patch, now), None, "{old:?} {event:?} {patch:?}");
    }
    patch
}
