//! What clients do to objects: create, replace and patch, under the rules that every Kubernetes resource shares.

use serde_json::{Value, json};

use super::admission;
use super::defaults;
use super::objects::{At, MAX_OBJECTS, Objects, as_map, meta, no_finalizers};
use super::ownership::{self, By};
use super::patch;
use super::schema::check;
use super::status::{self, Answer};
use super::types::ResourceType;
use super::validate;
use crate::clock::SimTime;

/// How a PATCH is to be read.
#[derive(Debug, Clone, PartialEq)]
pub enum PatchKind {
    Merge,
    Json,
    Strategic,
    Apply { force: bool },
}

/// What happens to fields that a type does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validation {
    Ignore,
    Warn,
    Strict,
}

/// Who changes something, when, and how much of it is meant.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    pub now: SimTime,
    pub dry_run: bool,
    pub manager: &'a str,
    pub validation: Validation,
}

impl Write<'static> {
    /// A change by the cluster itself, whose fields nobody owns.
    pub fn own(now: SimTime) -> Write<'static> {
        Write { now, dry_run: false, manager: "", validation: Validation::Ignore }
    }
}

impl<'a> Write<'a> {
    fn by(&self, operation: &'static str, subresource: &'a str) -> By<'a> {
        By { manager: self.manager, operation, subresource, now: self.now }
    }
}

/// Fields that only the server sets.
const SERVER_FIELDS: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
];

impl Objects {
    /// Checks, fills in and, unless it is a dry run, keeps a new object.
    pub fn create(
        &mut self,
        resource: &'static ResourceType,
        namespace: &str,
        body: &Value,
        write: &Write,
    ) -> Answer<Value> {
        self.create_as(resource, namespace, body, write, "Update")
    }

    fn create_as(
        &mut self,
        resource: &'static ResourceType,
        namespace: &str,
        body: &Value,
        write: &Write,
        operation: &'static str,
    ) -> Answer<Value> {
        let mut object = body.clone();
        self.identify(resource, namespace, &mut object)?;
        let name = meta(&object, "name").to_owned();
        let at = At { resource, namespace, name: &name };
        if self.has(at) {
            return Err(status::already_exists(resource, &name));
        }
        self.check_fields(resource, &mut object, write)?;
        if resource.has("status") && resource.plural != "nodes" {
            as_map(&mut object).remove("status");
        }
        for field in SERVER_FIELDS.iter().skip(2).filter(|field| **field != "generateName") {
            as_map(&mut object["metadata"]).remove(*field);
        }
        as_map(&mut object["metadata"]).remove("managedFields");
        defaults::fill(resource, &mut object);
        admission::on_create(self, resource, namespace, &mut object)?;
        let warnings = admission::webhooks(self, "CREATE", resource, namespace, &object, write.dry_run)?;
        self.warnings.extend(warnings);
        self.validate(resource, &object)?;
        admission::quota(self, resource, namespace, &object)?;
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(self.uid(&at, write.now));
        metadata["creationTimestamp"] = json!(write.now.rfc3339());
        defaults::with_uid(resource, &mut object);
        let counted = object.get("spec").is_some() && !resource.group.is_empty();
        if counted || resource.group == "admissionregistration.k8s.io" || resource.custom {
            object["metadata"]["generation"] = json!(1);
        }
        if self.len() >= MAX_OBJECTS {
            return Err(status::bad_request(format!("a sandbox cluster holds at most {MAX_OBJECTS} objects")));
        }
        if !write.manager.is_empty() {
            let by = write.by(operation, "");
            // An applier owns what it declared, not the defaults beside it.
            let mut declared = if operation == "Apply" { body.clone() } else { object.clone() };
            declared["metadata"]["managedFields"] = json!([]);
            ownership::updated(None, &mut declared, self.schema(resource), &by, &resource.api_version());
            object["metadata"]["managedFields"] = declared["metadata"]["managedFields"].take();
        }
        if write.dry_run {
            return Ok(object);
        }
        Ok(self.put(at, object, write.now, None))
    }

    /// Type, namespace and name of a new object, from the path and the body together.
    fn identify(&self, resource: &'static ResourceType, namespace: &str, object: &mut Value) -> Answer<()> {
        validate::shape(object)?;
        let Value::Object(map) = &mut *object else { return Err(status::bad_request("the body is not an object")) };
        for (field, expected) in [("kind", resource.kind.to_owned()), ("apiVersion", resource.api_version())] {
            let given = map.entry(field).or_insert_with(|| json!(expected));
            if given.as_str() == Some("") {
                *given = json!(expected);
            }
            if *given != json!(expected) {
                let given = given.as_str().unwrap_or_default();
                let why = format!("the {field} in the data ({given}) does not match the expected {field} ({expected})");
                return Err(status::bad_request(why));
            }
        }
        let metadata = as_map(map.entry("metadata").or_insert_with(|| json!({})));
        let prefix = metadata.get("generateName").and_then(Value::as_str).filter(|prefix| !prefix.is_empty());
        let unnamed = metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty();
        if let (true, Some(prefix)) = (unnamed, prefix) {
            // The API server cuts the prefix so that the name stays within its limit.
            let cut: String = prefix.chars().take(58).collect();
            let name = format!("{cut}{}", self.suffix(prefix));
            metadata.insert("name".into(), json!(name));
        }
        let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if resource.namespaced {
            let given = metadata.entry("namespace").or_insert_with(|| json!(namespace));
            if given.as_str() == Some("") {
                *given = json!(namespace);
            }
            if *given != json!(namespace) {
                return Err(status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        } else {
            metadata.remove("namespace");
        }
        validate::name(resource, &name)?;
        if resource.namespaced {
            let Some(home) = self.peek("", "namespaces", "", namespace) else {
                return Err(status::namespace_not_found(namespace));
            };
            if home["metadata"].get("deletionTimestamp").is_some() {
                return Err(status::terminating(resource, &name, namespace));
            }
        }
        Ok(())
    }

    /// Values of the wrong type are refused; fields that the type does not have are dropped, told or refused.
    fn check_fields(&mut self, resource: &'static ResourceType, object: &mut Value, write: &Write) -> Answer<()> {
        let Some(schema) = self.schema(resource) else { return Ok(()) };
        if !resource.custom
            && let Some(why) = check::undecodable(object, schema, "", "")
        {
            let (kind, version) = (resource.kind, resource.version);
            let why = format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}");
            return Err(status::bad_request(why));
        }
        let mut unknown = Vec::new();
        check::prune(object, schema, "", &mut unknown);
        let told = unknown.iter().map(|path| format!("unknown field \"{path}\""));
        match write.validation {
            Validation::Strict if !unknown.is_empty() => {
                let list: Vec<String> = told.collect();
                let (kind, version) = (resource.kind, resource.version);
                let errors = format!("strict decoding error: {}", list.join(", "));
                Err(status::bad_request(if resource.custom {
                    errors
                } else {
                    format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {errors}")
                }))
            }
            Validation::Warn => {
                let told: Vec<String> = told.collect();
                self.warnings.extend(told);
                Ok(())
            }
            _ => Ok(()),
        }?;
        if resource.custom {
            let schema = self.schema(resource).cloned();
            schema.iter().for_each(|schema| check::fill(object, schema));
        }
        Ok(())
    }

    fn validate(&self, resource: &'static ResourceType, object: &Value) -> Answer<()> {
        if resource.custom
            && let Some(schema) = self.schema(resource)
        {
            let mut found = Vec::new();
            check::violations(object, schema, "", &mut found);
            if !found.is_empty() {
                return Err(status::invalid_fields(resource, meta(object, "name"), &found));
            }
        }
        validate::object(resource, object)
    }

    /// PUT: the whole object, or only its status.
    pub fn replace(&mut self, at: At, body: &Value, only_status: bool, write: &Write) -> Answer<Value> {
        let stored = self.row(at).ok_or_else(|| at.not_found())?;
        let version = meta(body, "resourceVersion");
        if !version.is_empty() && version != meta(&stored.object, "resourceVersion") {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(status::conflict(at.resource, at.name, why));
        }
        let uid = meta(body, "uid");
        if !uid.is_empty() && uid != meta(&stored.object, "uid") {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta(&stored.object, "uid")
            );
            return Err(status::conflict(at.resource, at.name, &why));
        }
        self.change(at, body.clone(), only_status, write, None)
    }

    /// PATCH of any kind. The flag in the answer says whether the object is new (server-side apply only).
    pub fn patch(
        &mut self,
        at: At,
        kind: &PatchKind,
        body: &Value,
        only_status: bool,
        write: &Write,
    ) -> Answer<(Value, bool)> {
        if let PatchKind::Apply { force } = kind {
            return self.apply(at, *force, body, only_status, write);
        }
        let stored = self.row(at).ok_or_else(|| at.not_found())?;
        let mut object = stored.object.clone();
        match kind {
            PatchKind::Merge => patch::merge(&mut object, body),
            PatchKind::Strategic if at.resource.custom => {
                return Err(status::not_acceptable_media("application/strategic-merge-patch+json"));
            }
            PatchKind::Strategic => patch::strategic(&mut object, body, self.schema(at.resource)),
            _ => patch::json_patch(&mut object, body)
                .map_err(|why| status::invalid(at.resource, at.name, "patch", &why))?,
        }
        let given = body["metadata"]["resourceVersion"].as_str();
        if given.is_some() && given != stored.object["metadata"]["resourceVersion"].as_str() {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(status::conflict(at.resource, at.name, why));
        }
        self.change(at, object, only_status, write, None).map(|object| (object, false))
    }

    fn apply(&mut self, at: At, force: bool, body: &Value, only_status: bool, write: &Write) -> Answer<(Value, bool)> {
        if write.manager.is_empty() {
            let why =
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
            return Err(status::bad_request(why));
        }
        if body["metadata"]["managedFields"].as_array().is_some_and(|list| !list.is_empty()) {
            return Err(status::bad_request("metadata.managedFields must be nil"));
        }
        let mut body = body.clone();
        validate::shape(&body)?;
        let Some(stored) = self.row(at) else {
            if only_status {
                return Err(at.not_found());
            }
            as_map(&mut body["metadata"]).insert("name".into(), json!(at.name));
            let object = self.create_as(at.resource, at.namespace, &body, write, "Apply")?;
            return Ok((object, true));
        };
        let live = stored.object.clone();
        self.check_fields_of_patch(at.resource, &mut body, write)?;
        let mut declared = ownership::ownable(&body);
        if !only_status && at.resource.has("status") {
            as_map(&mut declared).remove("status");
        }
        let by = write.by("Apply", if only_status { "status" } else { "" });
        let merged = ownership::applied(at.resource, &live, &declared, self.schema(at.resource), &by, force)?;
        let owners = merged["metadata"]["managedFields"].clone();
        self.change(at, merged, only_status, write, Some(owners)).map(|object| (object, false))
    }

    fn check_fields_of_patch(
        &mut self,
        resource: &'static ResourceType,
        body: &mut Value,
        write: &Write,
    ) -> Answer<()> {
        if resource.custom {
            // Defaults are filled in after merging, so that they do not become the applier's.
            let mut unknown = Vec::new();
            if let Some(schema) = self.schema(resource) {
                check::prune(body, schema, "", &mut unknown);
            }
            if write.validation == Validation::Strict && !unknown.is_empty() {
                let list: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
                return Err(status::bad_request(format!("strict decoding error: {}", list.join(", "))));
            }
            return Ok(());
        }
        self.check_fields(resource, body, write)
    }

    /// Keeps the changed object under the rules for what a client may not touch.
    fn change(
        &mut self,
        at: At,
        mut object: Value,
        only_status: bool,
        write: &Write,
        owners: Option<Value>,
    ) -> Answer<Value> {
        let stored = self.row(at).ok_or_else(|| at.not_found())?;
        validate::shape(&object)?;
        let (old, touched, due) = (stored.object.clone(), stored.touched, stored.due);
        if !meta(&object, "name").is_empty() && meta(&object, "name") != at.name {
            let why = format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                meta(&object, "name"),
                at.name
            );
            return Err(status::bad_request(why));
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
        // A client may hand ownership over, as kubectl does when it takes up server-side apply.
        let handed = object["metadata"]["managedFields"].as_array().filter(|list| !list.is_empty()).cloned();
        for field in SERVER_FIELDS.iter().chain(&["managedFields"]) {
            match old["metadata"].get(*field) {
                Some(value) => object["metadata"][*field] = value.clone(),
                None => drop(as_map(&mut object["metadata"]).remove(*field)),
            }
        }
        object["kind"] = json!(at.resource.kind);
        object["apiVersion"] = json!(at.resource.api_version());
        self.check_fields(at.resource, &mut object, write)?;
        defaults::fill(at.resource, &mut object);
        validate::update(at.resource, &old, &mut object)?;
        if object != old {
            let warnings = admission::webhooks(self, "UPDATE", at.resource, at.namespace, &object, write.dry_run)?;
            self.warnings.extend(warnings);
        }
        self.validate(at.resource, &object)?;
        let by = write.by("Update", if only_status { "status" } else { "" });
        let handed = handed.map(Value::from).filter(|list| *list != old["metadata"]["managedFields"]);
        match owners.or(handed.filter(|_| !only_status)) {
            Some(owners) => object["metadata"]["managedFields"] = owners,
            None if object != old && !write.manager.is_empty() => {
                ownership::updated(Some(&old), &mut object, self.schema(at.resource), &by, &at.resource.api_version());
            }
            None => {}
        }
        if object == old {
            return Ok(old);
        }
        let desired = ["spec", "webhooks"].iter().any(|part| object.get(part) != old.get(part));
        if let (true, Some(generation)) = (desired, old["metadata"]["generation"].as_u64()) {
            object["metadata"]["generation"] = json!(generation + 1);
        }
        if write.dry_run {
            return Ok(object);
        }
        let leaving = object["metadata"].get("deletionTimestamp").is_some();
        if leaving && no_finalizers(&object) && !matches!(at.resource.kind, "Pod" | "Namespace") {
            self.forget(at);
            return Ok(object);
        }
        Ok(self.put(at, object, if desired { write.now } else { touched }, due))
    }
}
