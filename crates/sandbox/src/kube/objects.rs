//! The objects of one sandbox cluster: rows by type, namespace and name, versions, and what watches are told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::discovery;
use super::schema::Schema;
use super::select::Selector;
use super::status::{self, Answer};
use super::types::{self, ResourceType, TYPES};
use crate::clock::SimTime;
use crate::world::NodeView;

/// More than any demonstration needs; keeps a runaway loop from filling memory.
pub const MAX_OBJECTS: usize = 20_000;
/// Deletions that a watch can still be told of.
const MAX_GONE: usize = 10_000;

/// Group, plural, namespace and name.
pub type Key = (&'static str, &'static str, String, String);

#[derive(Debug, Clone)]
pub struct Stored {
    pub object: Value,
    /// When its desired state last changed.
    pub touched: SimTime,
    /// When it changes by itself, if nothing else happens before.
    pub due: Option<SimTime>,
}

/// Where an object lives. `namespace` is empty for types without one.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    pub resource: &'static ResourceType,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl At<'_> {
    pub fn key(&self) -> Key {
        (self.resource.group, self.resource.plural, self.namespace.to_owned(), self.name.to_owned())
    }

    pub fn not_found(&self) -> status::Refused {
        status::not_found(self.resource, self.name)
    }
}

/// One version of a type that an object of the cluster defines.
#[derive(Debug)]
pub struct Custom {
    pub resource: &'static ResourceType,
    pub schema: Schema,
    /// The schema as it was given.
    pub published: Value,
    /// Changes when the definition does.
    pub stamp: String,
    /// What `kubectl get` shows of it.
    pub columns: Value,
    /// Where the scale subresource finds its numbers.
    pub scale: Value,
}

/// How far the cluster has brought its objects by itself.
#[derive(Debug, Default)]
pub struct Progress {
    pub version: u64,
    pub at: Option<SimTime>,
    /// The next moment at which something changes by itself.
    pub due: Option<SimTime>,
    pub nodes: Vec<NodeView>,
    /// Nodes whose objects were deleted while their machines stay: they do not register again.
    pub removed_nodes: BTreeSet<String>,
    /// How many objects were gone when orphans were last looked for.
    pub collected: u64,
}

#[derive(Debug, Default)]
pub struct Objects {
    pub cluster: String,
    pub(super) rows: BTreeMap<Key, Stored>,
    pub(super) version: u64,
    buried: u64,
    gone: VecDeque<(u64, (&'static str, &'static str), Value)>,
    /// Deletions up to this version are no longer remembered.
    forgotten: u64,
    pub seeded: bool,
    pub custom: Vec<Custom>,
    /// What the answer to the call at hand warns of.
    pub warnings: Vec<String>,
    pub progress: Progress,
}

/// One change for a watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub kind: &'static str,
    pub object: Value,
}

#[derive(Serialize, Deserialize)]
struct SavedRow {
    #[serde(rename = "type")]
    resource: String,
    object: Value,
    touched: SimTime,
    #[serde(default)]
    due: Option<SimTime>,
}

/// The form in which a cluster's objects outlive the sandbox process.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    version: u64,
    rows: Vec<SavedRow>,
    #[serde(default)]
    settled: Option<SimTime>,
    #[serde(default)]
    removed_nodes: BTreeSet<String>,
}

pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

impl Objects {
    pub fn new(cluster: &str) -> Objects {
        Objects { cluster: cluster.to_owned(), ..Objects::default() }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many objects were ever removed.
    pub fn buried(&self) -> u64 {
        self.buried
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn save(&self) -> Saved {
        let row = |((group, plural, _, _), stored): (&Key, &Stored)| SavedRow {
            resource: if group.is_empty() { (*plural).to_owned() } else { format!("{plural}.{group}") },
            object: stored.object.clone(),
            touched: stored.touched,
            due: stored.due,
        };
        Saved {
            version: self.version,
            rows: self.rows.iter().map(row).collect(),
            settled: self.progress.at,
            removed_nodes: self.progress.removed_nodes.clone(),
        }
    }

    pub fn restore(cluster: &str, saved: Saved) -> Objects {
        let mut objects = Objects { version: saved.version, seeded: true, ..Objects::new(cluster) };
        objects.forgotten = saved.version;
        objects.progress.at = saved.settled;
        objects.progress.removed_nodes = saved.removed_nodes;
        for row in saved.rows {
            let (plural, group) = row.resource.split_once('.').unwrap_or((&row.resource, ""));
            let (namespace, name) = (meta(&row.object, "namespace").to_owned(), meta(&row.object, "name").to_owned());
            let key = (types::intern_text(group), types::intern_text(plural), namespace, name);
            objects.rows.insert(key, Stored { object: row.object, touched: row.touched, due: row.due });
        }
        objects.progress.due = objects.rows.values().filter_map(|row| row.due).min();
        super::definitions::refresh(&mut objects);
        objects
    }

    /// The type behind a path, built in or defined by an object.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static ResourceType> {
        let fits = |r: &ResourceType| r.group == group && r.version == version && r.plural == plural;
        let custom = || self.custom.iter().map(|custom| custom.resource).find(|resource| fits(resource));
        TYPES.iter().find(|resource| fits(resource)).or_else(custom)
    }

    /// The preferred version of a type.
    pub fn by_plural(&self, group: &str, plural: &str) -> Option<&'static ResourceType> {
        let custom = || self.custom.iter().map(|c| c.resource).find(|r| r.group == group && r.plural == plural);
        types::built_in(group, plural).or_else(custom)
    }

    /// By what an object says of itself.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&'static ResourceType> {
        let (group, _) = api_version.split_once('/').unwrap_or(("", api_version));
        let fits = |r: &ResourceType| r.group == group && r.kind == kind;
        let custom = || self.custom.iter().map(|custom| custom.resource).find(|resource| fits(resource));
        TYPES.iter().find(|resource| fits(resource)).or_else(custom)
    }

    pub fn schema(&self, resource: &ResourceType) -> Option<&Schema> {
        discovery::schema_of(resource, &self.custom)
    }

    pub fn get(&self, at: At) -> Answer<&Value> {
        self.rows.get(&at.key()).map(|stored| &stored.object).ok_or_else(|| at.not_found())
    }

    pub fn row(&self, at: At) -> Option<&Stored> {
        self.rows.get(&at.key())
    }

    pub fn has(&self, at: At) -> bool {
        self.rows.contains_key(&at.key())
    }

    /// An object of a built-in type, if it is there.
    pub fn peek(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<&Value> {
        let resource = types::built_in(group, plural)?;
        self.row(At { resource, namespace, name }).map(|stored| &stored.object)
    }

    /// All objects of a type, in a namespace if one is given, ordered by namespace and name.
    pub fn list<'a>(
        &'a self,
        resource: &'static ResourceType,
        namespace: &'a str,
        selector: &'a Selector,
    ) -> impl Iterator<Item = &'a Value> {
        self.stored(resource)
            .map(|stored| &stored.object)
            .filter(move |object| namespace.is_empty() || object["metadata"]["namespace"].as_str() == Some(namespace))
            .filter(move |object| selector.matches(object))
    }

    pub fn stored(&self, resource: &ResourceType) -> impl Iterator<Item = &Stored> {
        self.rows_of(resource.group, resource.plural)
    }

    pub fn rows_of(&self, group: &'static str, plural: &'static str) -> impl Iterator<Item = &Stored> {
        self.rows
            .range((group, plural, String::new(), String::new())..)
            .take_while(move |(key, _)| key.0 == group && key.1 == plural)
            .map(|(_, stored)| stored)
    }

    pub fn all_rows(&self) -> impl Iterator<Item = (&Key, &Stored)> {
        self.rows.iter()
    }

    /// Follows from where and when an object is made, so that the first objects of a cluster can be made again for every
    /// look at it and are still the same.
    pub fn uid(&self, at: &At, now: SimTime) -> uuid::Uuid {
        let parts = [&self.cluster, &at.resource.qualified(), at.namespace, at.name];
        let mut hash = Sha256::new();
        parts.iter().for_each(|part| hash.update([part.as_bytes(), b"/"].concat()));
        hash.update(now.0.to_be_bytes());
        hash.update(self.buried.to_be_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// Five letters behind a generated name; they follow from what was made before, as uids do.
    pub fn suffix(&self, prefix: &str) -> String {
        let hash = Sha256::new()
            .chain_update(&self.cluster)
            .chain_update(prefix)
            .chain_update((self.version + self.buried).to_be_bytes())
            .finalize();
        safe_letters(&hash[..5])
    }

    /// Keeps an object under its next version.
    pub fn put(&mut self, at: At, mut object: Value, touched: SimTime, due: Option<SimTime>) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.rows.insert(at.key(), Stored { object: object.clone(), touched, due });
        self.types_changed(at.resource);
        object
    }

    fn types_changed(&mut self, resource: &ResourceType) {
        if resource.plural == "customresourcedefinitions" {
            super::definitions::refresh(self);
        }
    }

    /// Takes an object away for good.
    pub fn forget(&mut self, at: At) {
        let Some(stored) = self.rows.remove(&at.key()) else { return };
        let mut object = stored.object;
        self.version += 1;
        self.buried += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.gone.push_back((self.version, (at.resource.group, at.resource.plural), object));
        if self.gone.len() > MAX_GONE
            && let Some((version, _, _)) = self.gone.pop_front()
        {
            self.forgotten = version;
        }
        self.types_changed(at.resource);
    }

    /// Changes what the cluster itself reports, without the rules for clients. A generation that follows the desired
    /// state is kept up.
    pub fn set(&mut self, at: At, change: impl FnOnce(&mut Value)) {
        let Some(stored) = self.rows.get_mut(&at.key()) else { return };
        let mut object = stored.object.clone();
        change(&mut object);
        if object != stored.object {
            self.version += 1;
            if let (true, Some(generation)) =
                (object["spec"] != stored.object["spec"], object["metadata"]["generation"].as_u64())
            {
                object["metadata"]["generation"] = json!(generation + 1);
            }
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            stored.object = object;
            self.types_changed(at.resource);
        }
    }

    pub fn set_due(&mut self, at: At, due: Option<SimTime>) {
        if let Some(stored) = self.rows.get_mut(&at.key()) {
            stored.due = due;
        }
    }

    /// Whether a watch from that version would miss deletions.
    pub fn too_old(&self, version: u64) -> bool {
        version > 0 && version < self.forgotten
    }

    /// What happened after a version, oldest first, for one type and namespace.
    pub fn since(
        &self,
        resource: &'static ResourceType,
        namespace: &str,
        selector: &Selector,
        version: u64,
    ) -> Vec<Event> {
        if version == self.version {
            return Vec::new();
        }
        let revision = |object: &Value| meta(object, "resourceVersion").parse::<u64>().unwrap_or(0);
        let mut events: Vec<(u64, Event)> = Vec::new();
        for (at, kind, object) in self.gone.iter().rev().take_while(|(at, _, _)| *at > version) {
            let here = namespace.is_empty() || object["metadata"]["namespace"].as_str() == Some(namespace);
            if *kind == (resource.group, resource.plural) && here && selector.matches(object) {
                events.push((*at, Event { kind: "DELETED", object: object.clone() }));
            }
        }
        for object in self.list(resource, namespace, selector).filter(|object| revision(object) > version) {
            // An object made after the version is new to the watcher. Ones that were there before have changed.
            let kind = if version == 0 { "ADDED" } else { "MODIFIED" };
            events.push((revision(object), Event { kind, object: object.clone() }));
        }
        events.sort_by_key(|(at, _)| *at);
        events.into_iter().map(|(_, event)| event).collect()
    }
}

/// Letters that make no words, one for each byte, as Kubernetes puts them behind generated names.
pub fn safe_letters(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

pub fn no_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

pub fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().unwrap_or_else(|| unreachable!("made an object just above"))
}
