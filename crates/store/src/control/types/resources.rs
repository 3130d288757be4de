//! Resources: what is declared, what is listed, and what is decided about them.

use super::{Actor, AuditNote, NewTask, TaskId};
use crate::rows::StoredResource;
use crate::run::NewResource;
use crate::sealed_place::SealNumber;
use berth_engine::ResourceState;
use berth_engine::unit::{Identity, UnitState};
use berth_model::ResourceId;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

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

/// A generation of a resource's manifest. The stored one and the last [`REVISIONS_KEPT`](crate::REVISIONS_KEPT) before it are kept.
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
    /// At most [`LIST_MAX`](crate::LIST_MAX).
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
