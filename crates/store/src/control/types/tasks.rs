//! Tasks: what is to be done, who holds it, what is recorded meanwhile, and how it ends.

use berth_engine::record::{Closing, EntryId, Intent, Status};
use berth_engine::unit::{Op, UnitState};
use berth_model::ResourceId;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A uuid v7.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub String);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskOp {
    Apply,
    Delete,
    Drift,
    Plan,
    Import,
}

impl TaskOp {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::Drift => "drift",
            Self::Plan => "plan",
            Self::Import => "import",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Apply, Self::Delete, Self::Drift, Self::Plan, Self::Import].into_iter().find(|op| op.as_str() == text)
    }

    /// Whether it changes its resource; of such, a resource has at most one that is open.
    pub fn mutates(self) -> bool {
        matches!(self, Self::Apply | Self::Delete)
    }

    /// Checks have places of their own, so that they never take one from a change.
    pub fn is_check(self) -> bool {
        matches!(self, Self::Drift)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskState {
    Queued,
    Running,
    Done,
    Failed,
    Cancelled,
}

impl TaskState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Queued, Self::Running, Self::Done, Self::Failed, Self::Cancelled]
            .into_iter()
            .find(|state| state.as_str() == text)
    }

    pub fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

/// A task to be made.
#[derive(Debug)]
pub struct NewTask {
    pub op: TaskOp,
    pub resource: Option<ResourceId>,
    /// The resources of a drift check.
    pub resources: Vec<ResourceId>,
    pub org: String,
    pub service: String,
    pub account: String,
    /// Tasks of this account that may run at once, changes and checks each; 0: any number.
    pub account_limit: u32,
    /// Higher goes first, inside an account.
    pub priority: i32,
    pub run_after: Timestamp,
    pub generation: i64,
    /// A check that writes down what it saw.
    pub refresh: bool,
    /// The request of a plan or import; sealed before it is written.
    pub payload: Option<SecretString>,
    /// W3C trace context.
    pub trace: String,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub id: TaskId,
    pub op: TaskOp,
    pub state: TaskState,
    pub resource: Option<ResourceId>,
    pub resources: Vec<ResourceId>,
    pub org: String,
    pub service: String,
    pub account: String,
    pub account_limit: u32,
    pub priority: i32,
    /// Of the resource, when the task was last leased.
    pub generation: i64,
    pub worker: String,
    pub fence: i64,
    /// How often it was leased.
    pub attempts: u32,
    pub cancelling: bool,
    pub created_at: Timestamp,
    pub run_after: Timestamp,
    pub started_at: Option<Timestamp>,
    pub lease_until: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// The last progress, then how it ended.
    pub message: String,
    pub help: Vec<String>,
    pub trace: String,
}

/// Which tasks to list, newest first. `None` takes any.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    pub state: Option<TaskState>,
    /// Queued or running.
    pub open: bool,
    pub op: Option<TaskOp>,
    pub kind: Option<String>,
    pub name: Option<String>,
    pub org: Option<String>,
    pub env: Option<String>,
    pub account: Option<String>,
    /// Only older ones than this.
    pub before: Option<TaskId>,
    pub limit: u32,
}

/// A worker's claim: this task, under this number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub task: TaskId,
    pub fence: i64,
}

#[derive(Clone, Debug, Default)]
pub struct LeaseAsk {
    pub worker: String,
    /// Only tasks of this org; empty: all.
    pub org: String,
    /// Empty: all.
    pub services: Vec<String>,
    /// Tasks that change something or that someone waits for, at most.
    pub changes: u32,
    /// Drift checks, at most.
    pub checks: u32,
    pub lease: Duration,
    pub version: String,
    pub capacity: u32,
    pub draining: bool,
}

#[derive(Clone, Debug)]
pub struct Leased {
    pub held: Held,
    pub task: Task,
}

#[derive(Clone, Debug, Default)]
pub struct Beat {
    /// Still the worker's, for another lease's time.
    pub kept: Vec<Held>,
    /// To be stopped after the call in flight. These are kept too.
    pub cancel: Vec<Held>,
}

/// A write of a worker's, as the engine's `Recorder` has them.
#[derive(Clone, Debug)]
pub enum Recorded {
    Intent(Intent),
    Close { entry: EntryId, closing: Closing },
    SaveUnit(UnitState),
    ForgetUnit { resource: ResourceId, key: String, token: String },
    Status { resource: ResourceId, status: Status },
    ForgetResource(ResourceId),
    Event { resource: ResourceId, what: String, detail: String },
}

/// A plan that a worker handed in, as the server read it.
#[derive(Clone, Debug, Default)]
pub struct SubmittedPlan {
    /// JSON, for people.
    pub text: String,
    pub digest: String,
    /// What the worker may record once it may proceed.
    pub steps: Vec<PlanStep>,
    /// What policies warn about.
    pub warnings: Vec<String>,
}

/// One unit of an accepted plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    pub key: String,
    pub unit_type: String,
    /// Changes that may be begun.
    pub ops: Vec<Op>,
}

/// What the gate said to a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanDecision {
    Proceed,
    /// The task is over, and the resource waits.
    AwaitApproval,
    /// The same, and why it waits although its environment needs no approval.
    Hold(String),
    /// The task is over, and the resource stays as it is until someone changes something.
    Block(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskOutcome {
    Done,
    Failed,
    /// Trying again will not help.
    Refused,
    Cancelled,
}

/// How a task ended.
#[derive(Clone, Debug)]
pub struct Ending {
    pub outcome: TaskOutcome,
    pub message: String,
    pub help: Vec<String>,
    /// JSON of a plan, an import or a drift check; sealed before it is written.
    pub result: Option<String>,
    /// When a failed change is to be tried again; `None`: when something changes.
    pub retry_at: Option<Timestamp>,
    /// What a drift check found.
    pub drift: Vec<DriftFound>,
}

impl Ending {
    pub fn new(outcome: TaskOutcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into(), help: Vec::new(), result: None, retry_at: None, drift: Vec::new() }
    }
}

#[derive(Clone, Debug)]
pub struct DriftFound {
    pub id: ResourceId,
    /// The finding is dropped when the resource moved on since.
    pub generation: i64,
    /// JSON list; empty text for none.
    pub differences: String,
    /// Let the controller look at the resource, to repair it.
    pub repair: bool,
    /// Why it is not repaired although it would be; empty where nothing is held back.
    pub held: String,
    pub next: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub struct WorkerRow {
    pub name: String,
    pub services: Vec<String>,
    pub capacity: u32,
    pub running: u32,
    pub version: String,
    pub seen_at: Timestamp,
    pub draining: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountLoad {
    pub org: String,
    pub account: String,
    pub queued: u32,
    pub running: u32,
    /// 0: none.
    pub limit: u32,
}
