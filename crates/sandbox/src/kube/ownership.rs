//! Who set which field: `metadata.managedFields`, kept as the API server keeps it for changes that clients make.

use serde_json::{Value, json};

use super::schema::{Schema, fields};
use super::status::{self, Answer};
use super::types::ResourceType;
use crate::clock::SimTime;

/// One change by one manager.
#[derive(Debug, Clone, Copy)]
pub struct By<'a> {
    pub manager: &'a str,
    pub operation: &'static str,
    pub subresource: &'a str,
    pub now: SimTime,
}

/// The parts of an object that somebody can own: not what identifies it, nor what the server writes.
pub fn ownable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
        if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
            metadata.retain(|field, _| {
                matches!(field.as_str(), "labels" | "annotations" | "finalizers" | "ownerReferences")
            });
            if metadata.is_empty() {
                map.remove("metadata");
            }
        }
    }
    object
}

fn entries(object: &Value) -> Vec<Value> {
    object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default()
}

fn is_own(entry: &Value, by: &By) -> bool {
    entry["manager"] == by.manager
        && entry["operation"] == by.operation
        && entry["subresource"].as_str().unwrap_or_default() == by.subresource
}

fn write(object: &mut Value, entries: Vec<Value>) {
    let kept: Vec<Value> =
        entries.into_iter().filter(|entry| entry["fieldsV1"].as_object().is_some_and(|set| !set.is_empty())).collect();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if kept.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".into(), json!(kept));
        }
    }
}

/// After an update: the manager owns what it changed, and nobody owns what is gone.
pub fn updated(old: Option<&Value>, new: &mut Value, schema: Option<&Schema>, by: &By, api_version: &str) {
    let before = old.map(ownable).unwrap_or_else(|| json!({}));
    let difference = fields::compare(&before, &ownable(new), schema);
    let mut list = old.map(entries).unwrap_or_default();
    let mut touched = difference.changed.clone().unwrap_or_else(|| json!({}));
    difference.removed.iter().for_each(|set| fields::union(&mut touched, set));
    let mut own = json!({});
    list.retain_mut(|entry| {
        if is_own(entry, by) {
            own = entry["fieldsV1"].take();
            return false;
        }
        let left = fields::difference(&entry["fieldsV1"], &touched);
        entry["fieldsV1"] = left.unwrap_or_else(|| json!({}));
        true
    });
    if let Some(removed) = &difference.removed {
        own = fields::difference(&own, removed).unwrap_or_else(|| json!({}));
    }
    if let Some(changed) = &difference.changed {
        fields::union(&mut own, changed);
    }
    list.push(fields::entry(by.manager, by.operation, by.subresource, api_version, &by.now.rfc3339(), own));
    write(new, list);
}

/// Server-side apply on an object that is there: the object as it becomes, with its owners.
pub fn applied(
    resource: &ResourceType,
    live: &Value,
    declared: &Value,
    schema: Option<&Schema>,
    by: &By,
    force: bool,
) -> Answer<Value> {
    let set = fields::of(declared, schema);
    let mut merged = live.clone();
    fields::merge(&mut merged, declared, schema);
    let list = entries(live);
    let before = list.iter().find(|entry| is_own(entry, by)).map(|entry| entry["fieldsV1"].clone());
    let others = || list.iter().filter(|entry| !is_own(entry, by));
    if let Some(mut dropped) = before.and_then(|before| fields::difference(&before, &set)) {
        for entry in others() {
            dropped = fields::difference(&dropped, &entry["fieldsV1"]).unwrap_or_else(|| json!({}));
        }
        if dropped.as_object().is_some_and(|set| !set.is_empty()) {
            fields::remove(&mut merged, &dropped, schema);
        }
    }
    let difference = fields::compare(&ownable(live), &ownable(&merged), schema);
    let changed = difference.changed.unwrap_or_else(|| json!({}));
    let is_changed = changed.as_object().is_some_and(|set| !set.is_empty());
    let mut clashes = Vec::new();
    let mut after = Vec::new();
    for entry in others() {
        let mut entry = entry.clone();
        if is_changed && let Some(both) = fields::intersection(&entry["fieldsV1"], &changed) {
            let paths: Vec<String> = fields::paths(&both);
            clashes.extend(paths.into_iter().map(|path| (shown(&entry), path)));
            entry["fieldsV1"] = fields::difference(&entry["fieldsV1"], &both).unwrap_or_else(|| json!({}));
        }
        if let Some(removed) = &difference.removed {
            entry["fieldsV1"] = fields::difference(&entry["fieldsV1"], removed).unwrap_or_else(|| json!({}));
        }
        after.push(entry);
    }
    if !clashes.is_empty() && !force {
        return Err(status::apply_conflict(&clashes));
    }
    let own = list.iter().find(|entry| is_own(entry, by) && entry["fieldsV1"] == set).cloned();
    let fresh = || {
        fields::entry(by.manager, by.operation, by.subresource, &resource.api_version(), &by.now.rfc3339(), set.clone())
    };
    after.push(own.unwrap_or_else(fresh));
    after.sort_by_key(|entry| entry["operation"].as_str().map(str::to_owned));
    write(&mut merged, after);
    Ok(merged)
}

/// The owner of a field in the words of the API server.
fn shown(entry: &Value) -> String {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    let mut shown = format!("\"{}\"", text("manager"));
    if !text("subresource").is_empty() {
        shown.push_str(&format!(" with subresource \"{}\"", text("subresource")));
    }
    if text("operation") == "Update" {
        shown.push_str(&format!(" using {}", text("apiVersion")));
    }
    shown
}
