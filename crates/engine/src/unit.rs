//! Units: the one mechanism. What lowering returns, what clouds show, what the state remembers.

pub use crate::unknown::output_of;
use berth_model::{Prose, ResourceId};
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Properties of a unit, by name. Desired and observed ones use the same names and the same normal form (sorted sets,
/// lower case where the cloud ignores case), so that comparing them needs no knowledge of a cloud.
pub type Props = Map<String, Value>;

/// One object in a cloud or cluster that a resource needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// Stable inside the resource: `cluster`, `pool/gpu`. It never changes meaning between versions.
    pub key: String,
    /// Such as `civo.cluster`; chooses the handler.
    pub unit_type: String,
    /// What one list call covers: a region, or empty where a cloud has no such border.
    pub scope: String,
    /// What it should look like. Absent means: not managed.
    pub props: Props,
    /// Where in the spec its properties stand, for messages and `drift --accept`: empty for the spec itself, or
    /// `additional_node_pools[gpu]` for an entry of a list found by its name. Property names are paths below it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// Keys of units in the same resource that must be ready first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

impl Unit {
    pub fn new(key: impl Into<String>, unit_type: impl Into<String>, scope: impl Into<String>, props: Props) -> Self {
        Self {
            key: key.into(),
            unit_type: unit_type.into(),
            scope: scope.into(),
            props,
            at: String::new(),
            depends_on: Vec::new(),
        }
    }

    /// Says where in the spec the properties stand.
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.at = path.into();
        self
    }

    /// Adds keys of units that must be ready before this one.
    pub fn after<I: IntoIterator<Item = S>, S: Into<String>>(mut self, keys: I) -> Self {
        self.depends_on.extend(keys.into_iter().map(Into::into));
        self
    }
}

/// What lowering returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lowered {
    pub units: Vec<Unit>,
    /// The resource's outputs (snake_case names of its Outputs message), each an output or secret of one unit. The empty
    /// key stands for the account's connection itself, which has one output: `identity`.
    pub outputs: BTreeMap<String, OutputFrom>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputFrom {
    pub unit: String,
    pub output: String,
}

impl Lowered {
    pub fn output(&mut self, name: &str, unit: &str, output: &str) {
        self.outputs.insert(name.into(), OutputFrom { unit: unit.into(), output: output.into() });
    }
}

/// What a cloud shows of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    pub id: String,
    pub props: Props,
    /// What references and other units may read. `id` need not be repeated here.
    pub outputs: Props,
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The cloud says that it is done.
    Ready,
    /// Still on its way.
    Pending(Waiting),
    /// It will not become ready by waiting.
    Failed { reason: String },
    /// On its way out.
    Deleting,
}

/// What is waited for, and how it is told to the user ("building: 2 of 3 nodes ready").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub on: WaitFor,
    pub what: Prose,
}

/// What advice may depend on when waiting took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitFor {
    /// The cloud works on it.
    Work,
    /// It does not answer this machine yet.
    Access,
    /// Parts of it are not ready: nodes of a cluster.
    Parts,
    /// It is being deleted.
    Deletion,
}

impl Waiting {
    pub fn on(on: WaitFor, what: impl Into<Prose>) -> Self {
        Self { on, what: what.into() }
    }
}

impl From<String> for Waiting {
    fn from(what: String) -> Self {
        Self::on(WaitFor::Work, what)
    }
}

impl From<&str> for Waiting {
    fn from(what: &str) -> Self {
        Self::on(WaitFor::Work, what)
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

/// What the last gate before Ready found.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    /// `None` when ready, else what is still missing.
    pub waiting_for: Option<Waiting>,
    /// Secret outputs, such as a kubeconfig.
    pub secrets: BTreeMap<String, SecretString>,
    /// Which gate was used, shown in the status: `api`, `cloud`.
    pub gate: Option<String>,
}

/// Whom credentials belong to, by the cloud's own word: `civo:44aab548-61ca-11e5-860e-5cf9389be614 ann@example.com`. The id
/// of the account decides; what follows it is how people know the account, and may change.
#[derive(Clone, Debug, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(String);

impl Identity {
    pub fn new(cloud: &str, id: &str, name: &str) -> Self {
        Self(format!("{cloud}:{id} {name}").trim_end().to_owned())
    }

    /// From its text; `None` where none was written.
    pub fn from_text(text: impl Into<String>) -> Option<Self> {
        Some(Self(text.into())).filter(|identity| !identity.0.is_empty())
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// The cloud, and the account's id there.
    pub fn id(&self) -> &str {
        self.0.split_once(' ').map_or(&*self.0, |(id, _)| id)
    }

    /// How people know the account.
    pub fn name(&self) -> &str {
        self.0.split_once(' ').map_or(&*self.0, |(_, name)| name)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once(' ') {
            Some((id, name)) => write!(f, "{id} ({name})"),
            None => f.write_str(&self.0),
        }
    }
}

/// What the state remembers of one object: one row for each object ever begun and not yet gone.
#[derive(Clone, Debug)]
pub struct UnitState {
    pub resource: ResourceId,
    pub key: String,
    /// Chosen before the create call and written with its intent; finds the object again after a crash.
    pub token: String,
    pub unit_type: String,
    pub scope: String,
    /// Name of the account resource, or `env:civo` and the like.
    pub account: String,
    /// Whom the account's credentials belonged to when the object was made; `None` where an earlier version made it and nobody
    /// has found it by its id since.
    pub identity: Option<Identity>,
    /// `None` while a create is begun and its answer was not recorded.
    pub id: Option<String>,
    /// The desired properties that were last applied.
    pub props: Props,
    pub outputs: Props,
    pub secrets: BTreeMap<String, SecretString>,
    /// Replaced by a newer object of the same key, and to be deleted.
    pub deposed: bool,
    /// Set once the unit was ready; its gate then counts as passed.
    pub ready: bool,
    pub updated_at: Timestamp,
}

/// Where a unit's outputs say that its create was sent more than once, and when last: another object with its token may be
/// there, or may still be made.
pub const ASKED_AGAIN: &str = "asked_again";

impl UnitState {
    pub fn asked_again(&self) -> bool {
        self.outputs.contains_key(ASKED_AGAIN)
    }

    /// When its create was last sent, where that was more than once.
    pub fn asked_again_at(&self) -> Option<Timestamp> {
        self.outputs.get(ASKED_AGAIN)?.as_str()?.parse().ok()
    }
}

/// An object that carries a unit's token and is not the unit: a create was acted on after it had been given up and repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stray {
    pub unit_type: String,
    pub id: String,
    /// What to type to delete it.
    pub remove: String,
}

/// One field of a unit type, and what changing it takes.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    InPlace,
    /// Done by `update`, but by making something new and removing the old (a default pool's size): announced like a
    /// replacement and allowed like one.
    Roll,
    /// The object must be replaced.
    Replace,
    /// Used at creation only (an autoscaled pool's first size); never compared.
    CreateOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Create,
    Update,
    Replace,
    Delete,
    Adopt,
}

impl Op {
    pub const ALL: [Self; 5] = [Self::Create, Self::Update, Self::Replace, Self::Delete, Self::Adopt];

    /// The name that is stored, sent, and seen by policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Replace => "replace",
            Self::Delete => "delete",
            Self::Adopt => "adopt",
        }
    }

    /// `None` for a name that this version does not know.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.as_str() == name)
    }
}

/// How long an operation usually takes; shown next to the elapsed time.
pub type Typical = Option<Duration>;
