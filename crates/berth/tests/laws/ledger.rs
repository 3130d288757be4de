//! What a cloud holds, in a form that two runs can be compared by: names for ids, no times, no tokens.

use crate::support::cloud::Cloud;
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl Cloud {
    /// Every object but the cloud's own defaults, one line each, sorted.
    pub fn shape(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.ledgers().iter().flat_map(shape_of).collect();
        lines.sort();
        lines
    }

    /// The objects of one type, without the cloud's own defaults.
    pub fn objects(&self, kind: &str) -> Vec<Value> {
        let [civo, digitalocean] = self.ledgers();
        let all = if kind.starts_with("civo.") { civo } else { digitalocean };
        let objects = all["objects"].as_array().cloned().unwrap_or_default();
        objects.into_iter().filter(|o| o["type"] == kind && !is_own(o)).collect()
    }

    /// The id of the object of that type and name.
    #[track_caller]
    pub fn id(&self, kind: &str, name: &str) -> String {
        let found = self.objects(kind).into_iter().find(|o| o["name"] == name);
        let found = found.unwrap_or_else(|| panic!("no {kind} named {name} in\n{}", self.told()));
        found["id"].as_str().expect("an id").to_owned()
    }

    /// What was ever made, less what was ever deleted, is what is there.
    #[track_caller]
    pub fn adds_up(&self) {
        for ledger in self.ledgers() {
            for (kind, total) in ledger["totals"].as_object().expect("totals") {
                let number = |name: &str| total[name].as_i64().unwrap_or_default();
                assert_eq!(number("created") - number("deleted"), number("live"), "{kind}: {ledger:#}");
            }
        }
    }

    /// For messages: what is there, and what was asked for.
    pub fn told(&self) -> String {
        format!("----- in the cloud\n{}\n----- changes asked for\n{}", self.shape().join("\n"), self.events())
    }
}

/// A cloud's own: default networks, and the firewalls that Civo makes for a network without one.
fn is_own(object: &Value) -> bool {
    object["default"] == true || object["auto"] == true
}

fn shape_of(ledger: &Value) -> Vec<String> {
    let objects = ledger["objects"].as_array().cloned().unwrap_or_default();
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let names: BTreeMap<String, String> = objects.iter().map(|o| (text(o, "id"), text(o, "name"))).collect();
    let name_of = |id: String| match names.get(&id) {
        Some(name) => Value::String(name.clone()),
        None => Value::String(format!("unknown {id}")),
    };
    let own: Vec<String> = objects.iter().filter(|o| o["auto"] == true).map(|o| text(o, "id")).collect();
    let mut lines = Vec::new();
    for object in objects.iter().filter(|o| !is_own(o)) {
        let mut shown = object.as_object().cloned().unwrap_or_default();
        for field in ["id", "created_at", "ip_range", "cidr"] {
            shown.remove(field);
        }
        for field in ["network_id", "cluster", "vpc"] {
            if shown.contains_key(field) {
                shown[field] = name_of(text(object, field));
            }
        }
        if shown.contains_key("firewall_id") {
            let id = text(object, "firewall_id");
            shown["firewall_id"] = if own.contains(&id) { json!("the network's own") } else { name_of(id) };
        }
        for field in ["tags", "rules"] {
            if let Some(Value::Array(items)) = shown.get_mut(field) {
                items.retain(|item| !item.as_str().unwrap_or_default().contains("berth-token:"));
                items.sort_by_key(Value::to_string);
            }
        }
        if let Some(Value::Array(pools)) = shown.get_mut("pools") {
            pools.iter_mut().filter_map(Value::as_object_mut).for_each(|pool| _ = pool.remove("id"));
            pools.sort_by_key(Value::to_string);
        }
        lines.push(Value::Object(shown).to_string());
    }
    lines
}
