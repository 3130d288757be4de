//! What servers hand to the state and get back from it. Plain data, with public fields.

use crate::error::StoreError;
use crate::rows::StoredResource;
use crate::run::NewResource;
use crate::seal::SealNumber;
use berth_engine::ResourceState;
use berth_engine::record::{Closing, EntryId, Intent, Status};
use berth_engine::unit::{Identity, Op, UnitState};
use berth_model::ResourceId;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Why a server's operation was not done. All but `Store` are answers, not failures.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The task is no longer held by whoever asked: its lease ended, or another holds it now.
    #[error("the lease of this task has ended or is another worker's")]
    Fenced,
    /// Another generation is stored than the one that the change was made for (0: there is none).
    #[error("{id} has generation {found}, and the change was made for generation {expected}")]
    Conflict { id: ResourceId, expected: i64, found: i64 },
    /// Another plan waits for an approval than the one that was looked at.
    #[error("another plan of {id} waits for approval than the one that was looked at")]
    OtherPlan { id: ResourceId, waiting: String },
    /// What it refers to is being deleted.
    #[error("{id} cannot be applied: it refers to {parent}, which is being deleted")]
    Going { id: Box<ResourceId>, parent: Box<ResourceId> },
    /// Something that stays refers to what should go.
    #[error("{id} cannot be deleted: {by} refers to it{}", and_more(*.more))]
    InUse { id: Box<ResourceId>, by: Box<ResourceId>, more: usize },
    /// Whoever asks to approve is the one who applied it, by whatever name.
    #[error("{by} applied {id}: somebody else must approve it")]
    OwnChange { id: Box<ResourceId>, by: String },
    /// Who applied it is known by name alone, from before identities were kept: it cannot be told from the approver.
    #[error("who applied {id} is known by name alone ({by}), so that nobody can be told to be somebody else")]
    UnknownAuthor { id: Box<ResourceId>, by: String },
    /// An ID token that was used to log in before.
    #[error("this login was used already")]
    UsedLogin,
    #[error("{0} does not exist")]
    NotFound(String),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn and_more(more: usize) -> String {
    if more > 0 { format!(", and {more} more like it") } else { String::new() }
}

impl ControlError {
    /// The same again, for each of many that share a fate.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Fenced => Self::Fenced,
            Self::Conflict { id, expected, found } => {
                Self::Conflict { id: id.clone(), expected: *expected, found: *found }
            }
            Self::OtherPlan { id, waiting } => Self::OtherPlan { id: id.clone(), waiting: waiting.clone() },
            Self::Going { id, parent } => Self::Going { id: id.clone(), parent: parent.clone() },
            Self::InUse { id, by, more } => Self::InUse { id: id.clone(), by: by.clone(), more: *more },
            Self::OwnChange { id, by } => Self::OwnChange { id: id.clone(), by: by.clone() },
            Self::UnknownAuthor { id, by } => Self::UnknownAuthor { id: id.clone(), by: by.clone() },
            Self::UsedLogin => Self::UsedLogin,
            Self::NotFound(what) => Self::NotFound(what.clone()),
            Self::Refused(why) => Self::Refused(why.clone()),
            Self::Store(error) => Self::Store(error.again()),
        }
    }
}

/// Who did something. Two are the same when their ids are; names are for people to read, and may be alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// `token:ci`, `oidc:alice@example.com`, `controller`, `worker:w1`.
    pub name: String,
    /// `token:` and the token's id; or the issuer, `#` and the subject of a person.
    pub id: String,
    /// The person who answers for it, where one made the token; otherwise the same as `id`.
    pub owner: String,
}

impl Actor {
    /// A part of the server itself, which has no other id than its name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { id: name.clone(), owner: name.clone(), name }
    }
}

/// What is to be remembered of an act. An empty action means: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditNote {
    pub action: String,
    pub target: String,
    pub detail: String,
    pub outcome: String,
}

/// Desired state, all or nothing.
pub struct Apply {
    pub resources: Vec<Desired>,
    pub delete: Vec<ResourceId>,
    pub actor: Actor,
    pub audit: AuditNote,
    /// Unchanged resources are looked at again too: failed ones are tried anew.
    pub retry: bool,
    /// W3C trace context of the request.
    pub trace: String,
}

pub struct Desired {
    pub resource: NewResource,
    pub labels: BTreeMap<String, String>,
    /// What it refers to.
    pub parents: Vec<ResourceId>,
    /// The engine's name of the account; empty for kinds without.
    pub account: String,
    pub service: String,
    /// The generation that must be stored; 0: it must not exist.
    pub expect: Option<i64>,
    pub allow_replace: bool,
    pub allow_data_loss: bool,
    /// What is not found may be made again, also when much of its account seems gone at once.
    pub allow_recreate: bool,
    /// Kinds without units are Ready at once.
    pub ready: bool,
    /// How often to look for drift; the first check comes after a part of it that differs from resource to resource.
    pub drift_every: Option<Duration>,
    /// Objects that it has from the first: those that an import binds to it.
    pub units: Vec<UnitState>,
}

/// What became of one resource of an [`Apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub id: ResourceId,
    pub generation: i64,
    pub result: AppliedResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliedResult {
    Created,
    Updated,
    Unchanged,
    Deleting,
}

impl AppliedResult {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Deleting => "deleting",
        }
    }
}

/// A generation of a resource's manifest. The stored one and the last [`REVISIONS_KEPT`](super::REVISIONS_KEPT) before it are kept.
#[derive(Clone, Debug)]
pub struct Revision {
    pub id: ResourceId,
    pub generation: i64,
    pub at: Timestamp,
    pub applied_by: String,
    pub(crate) manifest: String,
    pub(crate) manifest_seal: SealNumber,
    pub(crate) sealed_paths: String,
}

/// Which resources to list. `None` takes any.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    pub kind: Option<String>,
    pub name: Option<String>,
    pub org: Option<String>,
    pub env: Option<String>,
    /// The caller's scope: what is outside is not there.
    pub scope_org: Option<String>,
    pub scope_env: Option<String>,
    pub labels: Vec<LabelTerm>,
    pub fields: Vec<FieldTerm>,
    /// Only what comes after this one, by kind, name, org and env.
    pub after: Option<ResourceId>,
    /// At most [`LIST_MAX`](super::LIST_MAX).
    pub limit: u32,
}

/// One condition on labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelTerm {
    Is(String, String),
    /// Another value, or none.
    IsNot(String, String),
    Has(String),
    HasNot(String),
}

/// One condition on a field: `state`, `deleting`, `drifted`, `account`, `service`, or a path in the manifest such as
/// `spec.region`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub path: String,
    pub value: String,
    /// `false` for `!=`.
    pub equal: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub resources: Vec<Listed>,
    /// Where the next page begins: give it as `after`. `None` at the end.
    pub next: Option<ResourceId>,
}

#[derive(Clone, Debug)]
pub struct Listed {
    pub resource: StoredResource,
    pub meta: ControlMeta,
}

/// What servers know of a resource beside what an embedded run knows.
#[derive(Clone, Debug)]
pub struct ControlMeta {
    pub id: ResourceId,
    pub labels: BTreeMap<String, String>,
    pub applied_by: String,
    pub allow_replace: bool,
    pub allow_data_loss: bool,
    pub allow_recreate: bool,
    pub account: String,
    pub service: String,
    /// Failures since it last went well.
    pub attempts: u32,
    /// JSON of the differences found last; empty for none.
    pub drift: String,
    pub drift_checked_at: Option<Timestamp>,
    /// When the next check is due.
    pub drift_at: Option<Timestamp>,
    pub drift_every: Option<Duration>,
    /// JSON of the last plan; empty for none. Left out of lists.
    pub plan: String,
    pub plan_digest: String,
    pub approved_by: String,
    /// Owners of those who applied and approved; empty where only names are known, or nobody did.
    pub applied_id: String,
    pub approved_id: String,
    pub due_at: Option<Timestamp>,
    /// Grows each time `due_at` is set; a decision is about what was seen.
    pub due_mark: i64,
    /// Of the last task that changed something.
    pub fence: i64,
    /// W3C trace context of the request that applied it.
    pub trace: String,
}

/// A resource that a decision is due for.
#[derive(Clone, Debug)]
pub struct Due {
    pub resource: StoredResource,
    pub meta: ControlMeta,
    /// The open task that changes it.
    pub task: Option<TaskId>,
}

/// A resource that a decision is due for and whose row cannot be read.
#[derive(Clone, Debug)]
pub struct UnreadableRow {
    pub id: ResourceId,
    pub generation: i64,
    pub due_mark: i64,
    pub cause: String,
}

/// What the controller decided about a resource; skipped when the resource moved on since it was looked at.
#[derive(Debug)]
pub struct Decision {
    pub id: ResourceId,
    /// Both as seen in [`Due`].
    pub generation: i64,
    pub due_mark: i64,
    pub what: Decided,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "few live at once, and most are tasks")]
pub enum Decided {
    /// Nothing happens if there is an open task already.
    Enqueue(NewTask),
    /// Nothing is due until something happens.
    Rest,
    RestUntil(Timestamp),
    /// State and message alone are written; outputs stay. Then it rests.
    Settle {
        state: ResourceState,
        message: String,
    },
    /// The same, and to be looked at again at that time.
    SettleUntil {
        state: ResourceState,
        message: String,
        until: Timestamp,
    },
    /// The row goes: a resource without units that is being deleted.
    Forget,
}

/// A resource whose drift check is due.
#[derive(Clone, Debug)]
pub struct DriftDue {
    pub id: ResourceId,
    pub generation: i64,
    pub service: String,
    pub due_at: Timestamp,
}

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

/// Units that belong to another cloud account from now on.
pub struct MoveAccount {
    pub identity: Identity,
    pub moved: Vec<UnitState>,
    /// Not found there: the state forgets them.
    pub forgotten: Vec<UnitState>,
    pub actor: Actor,
    pub audit: AuditNote,
}

/// An object of a cloud that was not found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoneObject {
    pub account: String,
    pub object_id: String,
    pub resource: ResourceId,
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
pub enum Outcome {
    Done,
    Failed,
    /// Trying again will not help.
    Refused,
    Cancelled,
}

/// How a task ended.
#[derive(Clone, Debug)]
pub struct Ending {
    pub outcome: Outcome,
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
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
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

/// Which events to read. `None` takes any.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    pub kind: Option<String>,
    pub name: Option<String>,
    pub org: Option<String>,
    pub env: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only older ones than this number; 0: from the newest on.
    pub before: i64,
    pub actor: Option<String>,
    pub action: Option<String>,
    pub limit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// From 1, without gaps.
    pub id: i64,
    pub at: Timestamp,
    pub actor: String,
    /// Empty in entries from before there were ids.
    pub actor_id: String,
    pub action: String,
    pub target: String,
    pub detail: String,
    pub outcome: String,
    /// Hexadecimal SHA-256 over the previous hash and all fields of this one.
    pub hash: String,
    pub previous: String,
}

/// What a check of the audit log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditState {
    pub whole: bool,
    /// Entries that were read.
    pub entries: i64,
    /// The first number that is missing or changed.
    pub broken_at: Option<i64>,
    /// Why it is not whole.
    pub broken: Option<AuditBroken>,
    /// The last entry's hash, and its number.
    pub head: String,
    pub last: i64,
    /// There was no time for all of it: go on after the last one.
    pub more: bool,
}

/// What is wrong with an audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditBroken {
    /// An entry does not follow from the one before it, or is missing.
    Entry,
    /// All entries follow from each other, and the sealed head is another one: the log was written anew without the key, or
    /// its head was.
    Head,
    /// A server found the head missing or not genuine at this entry, and went on after it: nothing shows that the entries
    /// before are those that were written.
    HeadLost,
    /// What the head vouches for is as it was written, and no server wrote this entry beside it.
    Added,
}

impl AuditBroken {
    pub fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Head => "head",
            Self::HeadLost => "head-lost",
            Self::Added => "added",
        }
    }
}

/// The newest entry of the audit log. Kept elsewhere, it shows later whether anything up to it was changed or cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditHead {
    /// 0 for an empty log.
    pub id: i64,
    pub hash: String,
}

/// A token to be kept: its hash, never itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewToken {
    pub id: String,
    pub name: String,
    pub hash: [u8; 32],
    pub role: String,
    pub org: String,
    pub env: String,
    pub expires_at: Option<Timestamp>,
    /// Issuer, `#` and subject, for a person's session.
    pub identity: String,
    /// The person who made it; empty for none.
    pub owner: String,
    /// For a session: what was shown to log in, which must not have been used before.
    pub login: Option<UsedOnce>,
}

/// Something that may be used once, and is of no use after a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedOnce {
    pub hash: [u8; 32],
    pub expires_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    pub id: String,
    pub name: String,
    pub role: String,
    pub org: String,
    pub env: String,
    pub created_at: Timestamp,
    pub created_by: String,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub used_at: Option<Timestamp>,
    pub identity: String,
    pub owner: String,
}
