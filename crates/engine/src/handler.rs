//! What a cloud gives the engine: handlers for unit types, lists, lowering, import.

use crate::diff::FieldChange;
use crate::plan::UnitPlan;
pub use crate::summary::SummaryFacts;
pub use crate::trouble::{Class, Help, Outcome, Trouble};
use crate::unit::*;
use crate::unknown::unknown_output;
use async_trait::async_trait;
use berth_model::ResourceId;
use secrecy::SecretString;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Knows one unit type of one cloud. Methods make one change each, or none; they do not wait and do not retry changes:
/// the engine looks again after every error and decides again, so that recovery after a crash uses the ordinary path.
#[async_trait]
pub trait Handler: Send + Sync {
    /// The properties that are compared, and what changing each takes. Others are not compared.
    fn fields(&self) -> &'static [Field];

    /// When replacing: make the new object before the old one is deleted.
    fn create_first(&self) -> bool {
        false
    }

    /// Whether the cloud by itself refuses a second object for the same create: by a unique name, or an id that the client
    /// chooses. Where it does not, a create carries the token in a tag, and one without an answer is repeated only after
    /// [`Provider::unanswered_limit`].
    fn refuses_doubles(&self) -> bool {
        true
    }

    /// Objects that carry this token besides the one with this id. Asked only of units whose create was sent more than once.
    async fn strays(&self, _token: &str, _id: &str) -> Outcome<Vec<Stray>> {
        Ok(Vec::new())
    }

    /// Whether deleting it loses data of the user's (a cluster does, a firewall does not).
    fn holds_data(&self) -> bool {
        false
    }

    /// Whether a desired and an observed value mean the same (`1.29.0` and `1.29.0-k3s1`).
    fn same(&self, _field: &str, desired: &Value, observed: &Value) -> bool {
        desired == observed
    }

    /// Why a change must not be made (a version downwards), or `None`.
    fn refuse_change(&self, _field: &str, _from: &Value, _to: &Value) -> Option<String> {
        None
    }

    /// What a spec would say to declare a value that was found, where that is not the property itself: its fields and their
    /// values.
    fn declares(&self, _field: &str, _found: &Value) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// How long the operation usually takes. `changes` are those of an update or replacement.
    fn typical(&self, _op: Op, _props: &Props, _changes: &[FieldChange]) -> Typical {
        None
    }

    /// Called for an object that its resource no longer declares, before anything is changed: why it could not be deleted
    /// although `staying`, the resource's other units, are carried out as planned.
    async fn check_leaving(&self, _observed: &Observed, _staying: &[UnitPlan]) -> Outcome<()> {
        Ok(())
    }

    /// Checks against the cloud, before anything is changed, what lowering could not know: versions and sizes on offer,
    /// a region's capacity. Returns the properties with such names resolved (`1.29.0` → `1.29.0-k3s1`, a cluster's name
    /// → its id). Called for units to be created or changed; must not change anything.
    async fn check(&self, desired: Props, _observed: Option<&Observed>) -> Outcome<Props> {
        Ok(desired)
    }

    /// Reads one object. `props` are the ones last applied. `None` when it is gone.
    async fn read(&self, id: &str, props: &Props) -> Outcome<Option<Observed>>;

    /// Finds what an interrupted create with this token and these properties made, or, with no token, what would be in
    /// its way (the same name).
    async fn find(&self, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>>;

    /// Begins to make it, and answers its id. `replacing`: the old object is still there, with its name.
    async fn create(&self, desired: &Props, token: &str, replacing: bool) -> Outcome<String>;

    /// Makes the named fields as desired. May do only a part: the engine reads again and calls until nothing differs.
    async fn update(&self, observed: &Observed, desired: &Props, fields: &[&str]) -> Outcome<()>;

    /// Begins to delete it. `drain`: a replacement is there, so move the work over first where the unit runs any.
    async fn delete(&self, observed: &Observed, props: &Props, drain: bool) -> Outcome<()>;

    /// The last gate before Ready, asked once the cloud says Ready: secrets to keep, and whether it truly answers.
    async fn ready(&self, _observed: &Observed, _props: &Props) -> Outcome<Readiness> {
        Ok(Readiness::default())
    }

    /// Whether the cloud gives out secrets for a time only.
    fn has_fresh_secrets(&self) -> bool {
        false
    }

    /// Secrets that expire, fetched again; `None` where the stored ones stay valid.
    async fn fresh_secrets(&self, _id: &str) -> Outcome<Option<BTreeMap<String, SecretString>>> {
        Ok(None)
    }

    /// What to tell the user when waiting took too long: what was seen, what to check, what to type.
    fn overdue(&self, id: &str, waiting: &Waiting) -> Vec<String> {
        vec![format!("{id} is still {waiting}; run the same command again to go on waiting")]
    }
}

/// One page of a list call.
#[derive(Debug, Default)]
pub struct Page {
    pub items: Vec<Listed>,
    /// Number of the next page.
    pub next: Option<u32>,
    /// How many pages there are, where the cloud tells.
    pub pages: Option<u32>,
}

#[derive(Debug)]
pub struct Listed {
    pub unit_type: &'static str,
    pub observed: Observed,
}

/// A connection to one account of one cloud.
#[async_trait]
pub trait Provider: Send + Sync {
    fn handler(&self, unit_type: &str) -> Option<&dyn Handler>;

    /// Which list shows units of this type, or `None` where they are read one by one.
    fn list_for(&self, unit_type: &str) -> Option<&'static str>;

    /// One page of a list. Pages start at 1. One list may show several unit types (clusters with their pools).
    async fn list(&self, list: &str, scope: &str, page: u32) -> Outcome<Page>;

    /// How long a create whose answer was lost may still take effect, or be missing from lists.
    fn unanswered_limit(&self) -> Duration;

    /// How many requests were sent so far.
    fn calls(&self) -> u64;

    /// Whom the credentials belong to. The cloud is asked once for each connection.
    async fn identity(&self) -> Outcome<Identity>;

    /// Reads one object and writes it as a manifest's spec.
    async fn raise(&self, kind: &str, id: &str, scope: &str) -> Outcome<Raised>;

    /// Everything in the account that a kind of this cloud can describe.
    async fn raise_all(&self) -> Outcome<Vec<Raised>>;
}

/// An object of a cloud, described as a resource.
#[derive(Debug, Clone)]
pub struct Raised {
    pub kind: String,
    /// A name for the resource, from the object's own; already a DNS label.
    pub name: String,
    /// The object's own name, as its cloud shows it.
    pub object_name: String,
    /// The spec, with camelCase names.
    pub spec: Value,
    /// Ids of the objects behind the units that lowering this spec gives, by unit key.
    pub units: BTreeMap<String, String>,
    /// Fields of the spec that hold another object's id, as (field such as `network`, kind, id): a reference is written
    /// there when that object is managed too.
    pub links: Vec<(String, String, String)>,
}

/// What lowering may look at: pure data.
pub struct LowerInput<'a> {
    pub id: &'a ResourceId,
    pub metadata: &'a berth_model::pb::berth::core::v1::Metadata,
    /// The spec, encoded: `T::decode` gives the typed message. A reference in it is a `value`, unless that is known only after
    /// apply: [`crate::reference_property`] makes either a property.
    pub spec: &'a [u8],
    /// The resources that references point at, by field (`network`, `cluster`).
    pub targets: &'a BTreeMap<String, Target>,
    /// Region of the account, where a spec names none.
    pub default_region: Option<&'a str>,
    /// Prefix of the labels that Berth writes: `planton`.
    pub label_prefix: &'a str,
}

/// A resource that a reference points at.
#[derive(Clone, Debug)]
pub struct Target {
    pub id: ResourceId,
    /// Its spec as JSON with camelCase names.
    pub spec: Value,
    /// Its outputs (snake_case names). One that is not known yet is absent, or marked.
    pub outputs: Props,
}

impl Target {
    /// An output as a property, which may be known only after apply.
    pub fn output(&self, name: &str) -> Value {
        match self.outputs.get(name).and_then(Value::as_str) {
            Some(value) if !value.is_empty() => value.into(),
            _ => unknown_output(&self.id, name),
        }
    }
}

/// Everything that clouds give the engine.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// Resource and resolved references in, units out. Pure.
    fn lower(&self, input: &LowerInput<'_>) -> Result<Lowered, Trouble>;

    /// The connection for an account.
    async fn provider(&self, account: &str) -> Outcome<Arc<dyn Provider>>;

    /// A cloud's name as its users write it: `DigitalOcean`.
    fn cloud_title(&self, provider: &str) -> &'static str;

    /// The properties of a unit type that hold an object's own name. The first one that is present is the name.
    fn name_properties(&self, unit_type: &str) -> &'static [&'static str];

    /// Whether names of this unit type are unique inside another object only, as a pool's is in its cluster.
    fn names_are_inner(&self, _unit_type: &str) -> bool {
        false
    }

    /// Key of the unit that a resource of this kind is about, as opposed to what it has besides.
    fn main_unit(&self, kind: &str) -> Option<&'static str>;

    /// Where in the spec a unit's properties stand, where that is not the spec itself: `additional_node_pools[gpu]`. Lowering
    /// says the same; a drift check of thousands of units must not lower their resources for it.
    fn place_in_spec(&self, _kind: &str, _key: &str) -> Option<String> {
        None
    }

    /// What tables show of a unit.
    fn summary_facts(&self, unit_type: &str, observed: &Observed) -> SummaryFacts;

    /// How many resources of an account may be worked on at once, where the account sets a limit of its own.
    fn most_at_once(&self, _account: &str) -> Option<usize> {
        None
    }

    /// How many times faster than real clouds these are: what usually takes a minute takes a second at 60.
    fn pace(&self) -> f64 {
        1.0
    }
}
