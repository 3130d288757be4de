//! Garbage collection: what has lost its owners goes, and owners that wait for what they own.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Change, Scene, is_leaving};
use crate::kube::delete::{FOREGROUND, owners};
use crate::kube::objects::{Key, meta};

pub fn run(scene: &Scene) -> Vec<Change> {
    let objects = scene.objects;
    let mut changes = Vec::new();
    let waiting: Vec<(&Key, &Value)> = objects
        .all_rows()
        .map(|(key, row)| (key, &row.object))
        .filter(|(_, object)| is_leaving(object) && has_finalizer(object))
        .collect();
    if objects.buried() == 0 && waiting.is_empty() {
        return changes;
    }
    let alive: HashSet<&str> = objects.all_rows().map(|(_, row)| meta(&row.object, "uid")).collect();
    let leaving: HashSet<&str> = waiting.iter().map(|(_, object)| meta(object, "uid")).collect();
    let mut held: HashSet<&str> = HashSet::new();
    for (key, row) in objects.all_rows() {
        let mut has_owner = false;
        let (mut lives, mut goes) = (false, false);
        for owner in owners(&row.object) {
            let uid = owner["uid"].as_str().unwrap_or_default();
            has_owner = true;
            if leaving.contains(uid) {
                goes = true;
                if owner["blockOwnerDeletion"] == true {
                    held.insert(uid);
                }
            } else if alive.contains(uid) {
                lives = true;
            }
        }
        if has_owner && !lives && (goes || !is_leaving(&row.object)) && !is_leaving(&row.object) {
            let Some(resource) = objects.by_plural(key.0, key.1) else { continue };
            changes.push(Change::Delete {
                resource,
                namespace: key.2.clone(),
                name: key.3.clone(),
                grace: None,
                foreground: goes,
            });
        }
    }
    for (key, object) in waiting.into_iter().filter(|(_, object)| !held.contains(meta(object, "uid"))) {
        let Some(resource) = objects.by_plural(key.0, key.1) else { continue };
        let mut left = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        left.retain(|name| name != FOREGROUND);
        if left.is_empty() && resource.kind != "Pod" {
            changes.push(Change::Forget { resource, namespace: key.2.clone(), name: key.3.clone() });
        } else {
            let mut object = object.clone();
            object["metadata"]["finalizers"] = json!(left);
            changes.push(Change::Set { resource, object, due: None });
        }
    }
    changes
}

fn has_finalizer(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| list.contains(&json!(FOREGROUND)))
}
