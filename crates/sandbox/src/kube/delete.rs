//! Deletion: at once, after a grace period, or when finalizers are gone; with what an object owns or without.

use serde_json::{Value, json};

use super::admission;
use super::objects::{At, Objects, as_map, meta, no_finalizers};
use super::status::{self, Answer};
use super::types::ResourceType;
use crate::clock::SimTime;

/// Holds an object until what it owns is gone.
pub const FOREGROUND: &str = "foregroundDeletion";

/// What a client asks for when it deletes.
#[derive(Debug, Clone, Default)]
pub struct Deletion {
    pub uid: Option<String>,
    pub version: Option<String>,
    pub grace_seconds: Option<i64>,
    /// `Background`, `Foreground`, `Orphan`, or what is usual for the type.
    pub propagation: Option<String>,
    pub dry_run: bool,
}

impl Deletion {
    pub fn parse(body: &Value) -> Deletion {
        let text = |path: &str| body.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let orphans =
            body["orphanDependents"].as_bool().map(|yes| if yes { "Orphan" } else { "Background" }.to_owned());
        Deletion {
            uid: text("/preconditions/uid"),
            version: text("/preconditions/resourceVersion"),
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            propagation: text("/propagationPolicy").or(orphans),
            dry_run: body["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
        }
    }
}

/// What became of it.
pub enum Deleted {
    Gone(Value),
    Going(Value),
}

impl Objects {
    pub fn delete(&mut self, at: At, deletion: &Deletion, now: SimTime) -> Answer<Deleted> {
        let stored = self.row(at).ok_or_else(|| at.not_found())?;
        let (object, touched) = (stored.object.clone(), stored.touched);
        for (field, name, wanted) in
            [("uid", "UID", &deletion.uid), ("resourceVersion", "ResourceVersion", &deletion.version)]
        {
            if let Some(wanted) = wanted.as_deref().filter(|wanted| meta(&object, field) != *wanted) {
                let why = format!(
                    "Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {}",
                    meta(&object, field)
                );
                return Err(status::conflict(at.resource, at.name, &why));
            }
        }
        if at.resource.plural == "namespaces" && matches!(at.name, "default" | "kube-system" | "kube-public") {
            return Err(status::not_admitted(at.resource, at.name, "this namespace may not be deleted"));
        }
        admission::webhooks(self, "DELETE", at.resource, at.namespace, &object, deletion.dry_run)?;
        if deletion.dry_run {
            return Ok(Deleted::Going(object));
        }
        if at.resource.plural == "nodes" {
            self.progress.removed_nodes.insert(at.name.to_owned());
        }
        let mut going = object;
        match deletion.propagation.as_deref().unwrap_or_else(|| usual(at.resource)) {
            "Orphan" => self.let_go(meta(&going, "uid").to_owned().as_str(), now),
            "Foreground" => add_finalizer(&mut going, FOREGROUND),
            _ => {}
        }
        let grace = grace_of(at.resource, &going, deletion.grace_seconds);
        let is_leaving = going["metadata"].get("deletionTimestamp").is_some();
        if at.resource.plural == "namespaces" {
            going["status"]["phase"] = json!("Terminating");
        } else if no_finalizers(&going) && grace == 0 {
            self.forget(at);
            return Ok(Deleted::Gone(going));
        }
        let sooner = going["metadata"]["deletionGracePeriodSeconds"].as_i64().is_none_or(|left| grace < left);
        if !is_leaving || sooner {
            going["metadata"]["deletionTimestamp"] = json!(now.plus_ms(grace * 1000).rfc3339());
            going["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            if let Some(generation) = going["metadata"]["generation"].as_u64() {
                going["metadata"]["generation"] = json!(generation + 1);
            }
        }
        let due = (grace == 0).then_some(now);
        Ok(Deleted::Going(self.put(at, going, touched, due)))
    }

    /// What the object owned stays, without an owner.
    fn let_go(&mut self, uid: &str, _now: SimTime) {
        let owned: Vec<(&'static str, &'static str, String, String)> = self
            .all_rows()
            .filter(|(_, row)| owners(&row.object).any(|owner| owner["uid"] == uid))
            .map(|(key, _)| key.clone())
            .collect();
        for (group, plural, namespace, name) in owned {
            let Some(resource) = self.by_plural(group, plural) else { continue };
            self.set(At { resource, namespace: &namespace, name: &name }, |object| {
                if let Some(Value::Array(list)) = object["metadata"].get_mut("ownerReferences") {
                    list.retain(|owner| owner["uid"] != uid);
                    if list.is_empty() {
                        as_map(&mut object["metadata"]).remove("ownerReferences");
                    }
                }
            });
        }
    }
}

pub fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// Jobs keep their pods unless the client says otherwise; everything else takes what it owns along.
fn usual(resource: &ResourceType) -> &'static str {
    if resource.kind == "Job" { "Orphan" } else { "Background" }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let metadata = as_map(&mut object["metadata"]);
    let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Value::Array(list) = list
        && !list.contains(&json!(finalizer))
    {
        list.push(json!(finalizer));
    }
}

/// Only pods that run somewhere are given time.
fn grace_of(resource: &ResourceType, object: &Value, asked: Option<i64>) -> i64 {
    let placed = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if resource.kind != "Pod" || !resource.group.is_empty() || !placed || over {
        return 0;
    }
    asked.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30).max(0)
}
