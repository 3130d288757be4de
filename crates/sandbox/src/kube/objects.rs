//! The objects of one sandbox cluster: a small, honest store with the rules that every Kubernetes resource shares.

use std::collections::{BTreeMap, VecDeque};

use rand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::defaults;
use super::patch;
use super::select::Selector;
use super::status::{self, Answer};
use super::types::{self, ResourceType, TYPES};
use crate::clock::SimTime;

/// More than any demonstration needs; keeps a runaway loop from filling memory.
const MAX_OBJECTS: usize = 20_000;
/// Deletions that a watch can still be told of.
const MAX_GONE: usize = 1_000;

type Key = (usize, String, String);

#[derive(Debug, Clone)]
pub struct Stored {
    pub object: Value,
    /// What each server-side applier last declared.
    applied: BTreeMap<String, Value>,
    /// When its desired state last changed, for how far its status has come.
    pub touched: SimTime,
}

/// Where an object lives. `namespace` is empty for types without one.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    pub resource: &'static ResourceType,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl At<'_> {
    fn key(&self) -> Key {
        (index(self.resource), self.namespace.to_owned(), self.name.to_owned())
    }

    fn not_found(&self) -> status::Refused {
        status::not_found(self.resource, self.name)
    }
}

#[derive(Debug, Default)]
pub struct Objects {
    cluster: String,
    rows: BTreeMap<Key, Stored>,
    version: u64,
    buried: u64,
    gone: VecDeque<(u64, usize, Value)>,
    pub seeded: bool,
}

/// One change for a watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub kind: &'static str,
    pub object: Value,
}

/// How a PATCH is to be read.
#[derive(Debug, Clone, PartialEq)]
pub enum PatchKind {
    Merge,
    Json,
    Strategic,
    Apply { manager: String, force: bool },
}

#[derive(Serialize, Deserialize)]
struct SavedRow {
    #[serde(rename = "type")]
    resource: String,
    object: Value,
    applied: BTreeMap<String, Value>,
    touched: SimTime,
}

/// The form in which a cluster's objects outlive the sandbox process.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    version: u64,
    rows: Vec<SavedRow>,
}

fn index(resource: &ResourceType) -> usize {
    TYPES.iter().position(|known| std::ptr::eq(known, resource)).unwrap_or(usize::MAX)
}

impl Objects {
    pub fn new(cluster: &str) -> Objects {
        Objects { cluster: cluster.to_owned(), ..Objects::default() }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn save(&self) -> Saved {
        let row = |((resource, _, _), stored): (&Key, &Stored)| SavedRow {
            resource: TYPES[*resource].qualified(),
            object: stored.object.clone(),
            applied: stored.applied.clone(),
            touched: stored.touched,
        };
        Saved { version: self.version, rows: self.rows.iter().map(row).collect() }
    }

    /// Rows of types that are no longer known are dropped.
    pub fn restore(cluster: &str, saved: Saved) -> Objects {
        let mut objects = Objects { version: saved.version, seeded: true, ..Objects::new(cluster) };
        for row in saved.rows {
            let Some(resource) = types::by_qualified(&row.resource) else { continue };
            let meta = |field: &str| row.object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let key = (index(resource), meta("namespace"), meta("name"));
            objects.rows.insert(key, Stored { object: row.object, applied: row.applied, touched: row.touched });
        }
        objects
    }

    pub fn get(&self, at: At) -> Answer<&Value> {
        self.rows.get(&at.key()).map(|stored| &stored.object).ok_or_else(|| at.not_found())
    }

    pub fn has(&self, at: At) -> bool {
        self.rows.contains_key(&at.key())
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
        let at = index(resource);
        self.rows
            .range((at, String::new(), String::new())..(at + 1, String::new(), String::new()))
            .map(|(_, stored)| stored)
    }

    /// Checks, fills in and, unless it is a dry run, keeps a new object.
    pub fn create(
        &mut self,
        resource: &'static ResourceType,
        namespace: &str,
        body: &Value,
        now: SimTime,
        dry_run: bool,
    ) -> Answer<Value> {
        let mut object = body.clone();
        self.identify(resource, namespace, &mut object)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let at = At { resource, namespace, name: &name };
        if self.has(at) {
            return Err(status::already_exists(resource, &name));
        }
        if resource.has("status") && resource.plural != "nodes" {
            as_map(&mut object).remove("status");
        }
        defaults::fill(resource, &mut object);
        defaults::validate(resource, &object)?;
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(self.uid(&at, now));
        metadata["creationTimestamp"] = json!(now.rfc3339());
        if object.get("spec").is_some() && !resource.group.is_empty() {
            object["metadata"]["generation"] = json!(1);
        }
        if self.rows.len() >= MAX_OBJECTS {
            return Err(status::bad_request(format!("a sandbox cluster holds at most {MAX_OBJECTS} objects")));
        }
        self.put(at, object, BTreeMap::new(), now, dry_run)
    }

    /// Follows from where and when an object is made, so that the first objects of a cluster can be made again for every
    /// look at it and are still the same.
    fn uid(&self, at: &At, now: SimTime) -> uuid::Uuid {
        let parts = [&self.cluster, &at.resource.qualified(), at.namespace, at.name];
        let mut hash = Sha256::new();
        parts.iter().for_each(|part| hash.update([part.as_bytes(), b"/"].concat()));
        hash.update(now.0.to_be_bytes());
        hash.update(self.buried.to_be_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    fn put(
        &mut self,
        at: At,
        mut object: Value,
        applied: BTreeMap<String, Value>,
        touched: SimTime,
        dry_run: bool,
    ) -> Answer<Value> {
        object["metadata"]["resourceVersion"] = json!((self.version + 1).to_string());
        if !dry_run {
            self.version += 1;
            self.rows.insert(at.key(), Stored { object: object.clone(), applied, touched });
        }
        Ok(object)
    }

    /// Type, namespace and name of a new object, from the path and the body together.
    fn identify(&self, resource: &'static ResourceType, namespace: &str, object: &mut Value) -> Answer<()> {
        defaults::check_shape(object)?;
        let Value::Object(map) = &mut *object else { return Err(status::bad_request("the body is not an object")) };
        for (field, expected) in [("kind", resource.kind.to_owned()), ("apiVersion", resource.api_version())] {
            let given = map.entry(field).or_insert_with(|| json!(expected));
            if *given != json!(expected) {
                return Err(status::bad_request(format!(
                    "the {field} in the data ({given}) does not match the expected ({expected:?})"
                )));
            }
        }
        let metadata = as_map(map.entry("metadata").or_insert_with(|| json!({})));
        let prefix = metadata.get("generateName").and_then(Value::as_str).filter(|prefix| !prefix.is_empty());
        let unnamed = metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty();
        if let (true, Some(prefix)) = (unnamed, prefix) {
            let name = format!("{prefix}{}", suffix());
            metadata.insert("name".into(), json!(name));
        }
        let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if resource.namespaced {
            let given = metadata.entry("namespace").or_insert_with(|| json!(namespace));
            if *given != json!(namespace) {
                return Err(status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        } else {
            metadata.remove("namespace");
        }
        defaults::check_name(resource, &name)?;
        if let (true, Some(namespaces)) = (resource.namespaced, types::find("", "v1", "namespaces")) {
            let home = At { resource: namespaces, namespace: "", name: namespace };
            if !self.has(home) {
                return Err(home.not_found());
            }
        }
        Ok(())
    }

    /// PUT: the whole object, or only its status.
    pub fn replace(&mut self, at: At, body: &Value, only_status: bool, now: SimTime, dry_run: bool) -> Answer<Value> {
        let stored = self.rows.get(&at.key()).ok_or_else(|| at.not_found())?;
        let version = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && Some(version) != stored.object["metadata"]["resourceVersion"].as_str() {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(status::conflict(at.resource, at.name, why));
        }
        let applied = stored.applied.clone();
        self.change(at, body.clone(), applied, only_status, now, dry_run)
    }

    /// PATCH of any kind. The flag in the answer says whether the object is new (server-side apply only).
    pub fn patch(
        &mut self,
        at: At,
        kind: &PatchKind,
        body: &Value,
        only_status: bool,
        now: SimTime,
        dry_run: bool,
    ) -> Answer<(Value, bool)> {
        if let PatchKind::Apply { manager, force } = kind {
            return self.apply(at, manager, *force, body, only_status, now, dry_run);
        }
        let stored = self.rows.get(&at.key()).ok_or_else(|| at.not_found())?;
        let mut object = stored.object.clone();
        match kind {
            PatchKind::Merge => patch::merge(&mut object, body),
            PatchKind::Strategic => patch::strategic(&mut object, body),
            _ => patch::json_patch(&mut object, body)
                .map_err(|why| status::invalid(at.resource, at.name, "patch", &why))?,
        }
        let applied = stored.applied.clone();
        let given = body["metadata"]["resourceVersion"].as_str();
        if given.is_some() && given != stored.object["metadata"]["resourceVersion"].as_str() {
            return Err(status::conflict(at.resource, at.name, "the object has been modified"));
        }
        self.change(at, object, applied, only_status, now, dry_run).map(|object| (object, false))
    }

    #[allow(clippy::too_many_arguments)]
    fn apply(
        &mut self,
        at: At,
        manager: &str,
        force: bool,
        body: &Value,
        only_status: bool,
        now: SimTime,
        dry_run: bool,
    ) -> Answer<(Value, bool)> {
        if manager.is_empty() {
            return Err(status::bad_request(
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            ));
        }
        let Some(stored) = self.rows.get(&at.key()) else {
            let object = self.create(at.resource, at.namespace, body, now, dry_run)?;
            if let Some(stored) = self.rows.get_mut(&at.key()) {
                stored.applied.insert(manager.to_owned(), declared(body));
            }
            return Ok((object, true));
        };
        let declared = declared(body);
        let mut applied = stored.applied.clone();
        let before = applied.remove(manager);
        let others = applied.iter().filter(|_| !force);
        let clashes: Vec<(String, String)> = others
            .flat_map(|(name, theirs)| {
                patch::conflicts(theirs, &declared).into_iter().map(|field| (name.clone(), field))
            })
            .collect();
        if !clashes.is_empty() {
            return Err(status::apply_conflict(at.resource, at.name, &clashes));
        }
        let mut object = stored.object.clone();
        patch::apply(&mut object, before.as_ref(), &declared);
        for theirs in applied.values_mut() {
            patch::overwrite_shared(theirs, &declared);
            patch::fill_missing(&mut object, theirs);
        }
        applied.insert(manager.to_owned(), declared);
        self.change(at, object, applied, only_status, now, dry_run).map(|object| (object, false))
    }

    /// Keeps the changed object under the rules for what a client may not touch.
    fn change(
        &mut self,
        at: At,
        mut object: Value,
        applied: BTreeMap<String, Value>,
        only_status: bool,
        now: SimTime,
        dry_run: bool,
    ) -> Answer<Value> {
        let stored = self.rows.get(&at.key()).ok_or_else(|| at.not_found())?;
        defaults::check_shape(&object)?;
        let (old, touched) = (stored.object.clone(), stored.touched);
        if object["metadata"]["name"].as_str().is_some_and(|name| name != at.name) {
            return Err(status::bad_request("the name of the object does not match the name on the URL"));
        }
        if only_status {
            let status = object["status"].take();
            object = old.clone();
            object["status"] = status;
        } else if at.resource.has("status") {
            match old.get("status") {
                Some(status) => object["status"] = status.clone(),
                None => drop(as_map(&mut object).remove("status")),
            }
        }
        for field in
            ["name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp"]
        {
            match old["metadata"].get(field) {
                Some(value) => object["metadata"][field] = value.clone(),
                None => drop(as_map(&mut object["metadata"]).remove(field)),
            }
        }
        object["kind"] = json!(at.resource.kind);
        object["apiVersion"] = json!(at.resource.api_version());
        defaults::fill(at.resource, &mut object);
        defaults::validate(at.resource, &object)?;
        if object == old {
            if let (false, Some(stored)) = (dry_run, self.rows.get_mut(&at.key())) {
                stored.applied = applied;
            }
            return Ok(old);
        }
        let desired = object["spec"] != old["spec"];
        if let (true, Some(generation)) = (desired, old["metadata"]["generation"].as_u64()) {
            object["metadata"]["generation"] = json!(generation + 1);
        }
        if object["metadata"].get("deletionTimestamp").is_some() && no_finalizers(&object) {
            if !dry_run {
                self.forget(at);
            }
            return Ok(object);
        }
        self.put(at, object, applied, if desired { now } else { touched }, dry_run)
    }

    /// DELETE. The object goes at once unless finalizers hold it; what it owns or contains goes with it.
    pub fn delete(&mut self, at: At, preconditions: &Value, now: SimTime, dry_run: bool) -> Answer<Value> {
        let object = self.get(at)?.clone();
        for field in ["uid", "resourceVersion"] {
            let wanted = preconditions.get(field).and_then(Value::as_str);
            if wanted.is_some() && object["metadata"][field].as_str() != wanted {
                return Err(status::conflict(at.resource, at.name, &format!("Precondition failed: {field}")));
            }
        }
        if dry_run {
            return Ok(object);
        }
        if !no_finalizers(&object) {
            let mut going = object;
            going["metadata"]["deletionTimestamp"] = json!(now.rfc3339());
            let applied = self.rows.get(&at.key()).map(|stored| stored.applied.clone()).unwrap_or_default();
            return self.put(at, going, applied, now, false);
        }
        self.forget(at);
        Ok(object)
    }

    fn forget(&mut self, at: At) {
        let Some(stored) = self.rows.remove(&at.key()) else { return };
        let is_namespace = at.resource.group.is_empty() && at.resource.plural == "namespaces";
        let uid = stored.object["metadata"]["uid"].clone();
        self.bury(index(at.resource), stored.object);
        let owned = |object: &Value| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
        };
        let dependants: Vec<Key> = self
            .rows
            .iter()
            .filter(|(key, row)| owned(&row.object) || (is_namespace && key.1 == at.name))
            .map(|(key, _)| key.clone())
            .collect();
        for (resource, namespace, name) in dependants {
            self.forget(At { resource: &TYPES[resource], namespace: &namespace, name: &name });
        }
    }

    fn bury(&mut self, resource: usize, mut object: Value) {
        self.version += 1;
        self.buried += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.gone.push_back((self.version, resource, object));
        if self.gone.len() > MAX_GONE {
            self.gone.pop_front();
        }
    }

    /// Changes what the cluster itself reports, without the rules for clients.
    pub fn set(&mut self, at: At, change: impl FnOnce(&mut Value)) {
        let Some(stored) = self.rows.get_mut(&at.key()) else { return };
        let mut object = stored.object.clone();
        change(&mut object);
        if object != stored.object {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            stored.object = object;
        }
    }

    /// What happened after a version, oldest first, for one type and namespace.
    pub fn since(
        &self,
        resource: &'static ResourceType,
        namespace: &str,
        selector: &Selector,
        version: u64,
    ) -> Vec<Event> {
        let revision = |object: &Value| {
            object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok()).unwrap_or(0)
        };
        let mut events: Vec<(u64, Event)> = Vec::new();
        for (at, kind, object) in &self.gone {
            let here = namespace.is_empty() || object["metadata"]["namespace"].as_str() == Some(namespace);
            if *at > version && *kind == index(resource) && here && selector.matches(object) {
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

/// What an applier declares, without what identifies the object.
fn declared(body: &Value) -> Value {
    let mut declared = body.clone();
    let map = as_map(&mut declared);
    map.remove("status");
    map.remove("apiVersion");
    map.remove("kind");
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        metadata
            .retain(|field, _| matches!(field.as_str(), "labels" | "annotations" | "finalizers" | "ownerReferences"));
    }
    declared
}

fn no_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().unwrap_or_else(|| unreachable!("made an object just above"))
}

fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = rand::rng();
    (0..5).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])).collect()
}
