//! The only way that converge touches anything durable. Each write is fenced: a run that lost its right to write is refused.

use crate::state::ResourceState;
use crate::unit::{Op, Props, UnitState};
use async_trait::async_trait;
use berth_model::ResourceId;
use secrecy::SecretString;
use std::collections::BTreeMap;

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Another run holds the state now.
    #[error("this run lost its right to write: another one has taken over")]
    Fenced,
    #[error("cannot write the state: {0}")]
    Failed(String),
}

/// A change that is about to be made.
#[derive(Clone, Debug)]
pub struct Intent {
    pub op: Op,
    /// For people: `civo.cluster shop-k8s in fra1`.
    pub what: String,
    /// The unit as it stands before the change. For a create: without id, with the token that will find it.
    pub unit: UnitState,
}

/// Number of a journal entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(pub i64);

/// How a change ended.
#[derive(Clone, Debug)]
pub enum Closing {
    /// It took effect; the unit as it now stands, or `None` when it is gone.
    Done(Option<Box<UnitState>>),
    /// It did not, or nobody knows: the unit's row stays as the intent left it, to be looked for.
    Failed(String),
    /// It surely had no effect; a create's row is removed again.
    Refused(String),
}

/// State of a resource, as shown by `get`.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub state: ResourceState,
    pub message: String,
    pub outputs: Props,
    pub secrets: BTreeMap<String, SecretString>,
    /// Facts for tables: version, nodes, gate.
    pub facts: Props,
    /// The generation of the manifest that this status is about; 0 means the one stored, when the state is Ready.
    pub observed_generation: i64,
}

#[async_trait]
pub trait Recorder: Send + Sync {
    /// Durable before it returns: the journal entry, and for a create the unit's row.
    async fn intent(&self, intent: Intent) -> Result<EntryId, RecordError>;
    /// Durable before it returns: the entry's end and the unit's row.
    async fn close(&self, entry: EntryId, closing: Closing) -> Result<(), RecordError>;
    /// Writes a unit's row without a journal entry (it became ready, it was adopted, it was found gone).
    async fn save_unit(&self, unit: UnitState) -> Result<(), RecordError>;
    async fn forget_unit(&self, resource: &ResourceId, key: &str, token: &str) -> Result<(), RecordError>;
    async fn status(&self, resource: &ResourceId, status: Status) -> Result<(), RecordError>;
    /// The resource is gone, with all its units.
    async fn forget_resource(&self, resource: &ResourceId) -> Result<(), RecordError>;
    /// Something worth keeping in the history.
    async fn event(&self, resource: &ResourceId, what: &str, detail: &str) -> Result<(), RecordError>;
    /// The work on a resource that was changed has come to its end: `Ready` or `Failed`. For the history of recorders that do
    /// not see it from the status.
    async fn ended(&self, _resource: &ResourceId, _state: ResourceState, _message: &str) -> Result<(), RecordError> {
        Ok(())
    }
}
