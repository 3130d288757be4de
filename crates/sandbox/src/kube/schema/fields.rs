//! Sets of fields, in the form in which `metadata.managedFields` shows them, and what server-side apply does with them.
//!
//! A set is a tree of JSON objects: `f:NAME` is a field, `k:{...}` an item of a list by its keys, `v:VALUE` an item of a set,
//! and `.` the thing itself. An empty object is a field that is owned as a whole.

use serde_json::{Map, Value, json};

use super::{ListType, Schema};

fn empty() -> Value {
    Value::Object(Map::new())
}

/// The keys of a list item as they stand in a set, such as `k:{"name":"web"}`.
fn item_key(item: &Value, schema: &Schema) -> String {
    match schema.list {
        ListType::Set => format!("v:{item}"),
        _ => {
            let item_schema = schema.items.as_deref();
            let keys: Map<String, Value> = schema
                .keys
                .iter()
                .map(|key| {
                    let default = item_schema.and_then(|item| item.field(key)).and_then(|field| field.default.clone());
                    (key.clone(), item.get(key).cloned().or(default).unwrap_or(Value::Null))
                })
                .collect();
            format!("k:{}", Value::Object(keys))
        }
    }
}

fn is_granular_list(schema: &Schema) -> bool {
    schema.list != ListType::Atomic
}

/// The fields that a value sets.
pub fn of(value: &Value, schema: Option<&Schema>) -> Value {
    match (value, schema) {
        (Value::Object(map), _) if schema.is_none_or(|schema| !schema.is_atomic()) => {
            let child = |name: &str| schema.and_then(|schema| schema.field(name));
            Value::Object(map.iter().map(|(name, value)| (format!("f:{name}"), of(value, child(name)))).collect())
        }
        (Value::Array(items), Some(schema)) if is_granular_list(schema) => {
            let own = |item: &Value| {
                let mut inner = if schema.list == ListType::Set { empty() } else { of(item, schema.items.as_deref()) };
                if let (ListType::Map, Some(map)) = (schema.list, inner.as_object_mut()) {
                    map.insert(".".into(), empty());
                }
                (item_key(item, schema), inner)
            };
            Value::Object(items.iter().map(own).collect())
        }
        _ => empty(),
    }
}

fn is_leaf(set: &Value) -> bool {
    set.as_object().is_none_or(Map::is_empty)
}

pub fn union(into: &mut Value, other: &Value) {
    if let (Value::Object(into), Value::Object(other)) = (into, other) {
        for (name, theirs) in other {
            union(into.entry(name.clone()).or_insert_with(empty), theirs);
        }
    }
}

/// What is in `set` and not in `other`. `None` when nothing is left.
pub fn difference(set: &Value, other: &Value) -> Option<Value> {
    let (Value::Object(ours), Value::Object(theirs)) = (set, other) else { return Some(set.clone()) };
    if ours.is_empty() {
        return None;
    }
    let mut left = Map::new();
    for (name, ours) in ours {
        match theirs.get(name) {
            None => drop(left.insert(name.clone(), ours.clone())),
            Some(theirs) => {
                if let Some(rest) = difference(ours, theirs) {
                    left.insert(name.clone(), rest);
                }
            }
        }
    }
    (!left.is_empty()).then_some(Value::Object(left))
}

/// What is in both. A field that one owns as a whole meets every field below it.
pub fn intersection(set: &Value, other: &Value) -> Option<Value> {
    let (Value::Object(ours), Value::Object(theirs)) = (set, other) else { return None };
    if ours.is_empty() || theirs.is_empty() {
        return Some(empty());
    }
    let both: Map<String, Value> =
        ours.iter().filter_map(|(name, ours)| Some((name.clone(), intersection(ours, theirs.get(name)?)?))).collect();
    (!both.is_empty()).then_some(Value::Object(both))
}

/// The leaves of a set as paths, such as `.spec.containers[name="web"].image`.
pub fn paths(set: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(set, "", &mut found);
    found
}

fn walk(set: &Value, path: &str, found: &mut Vec<String>) {
    let Some(map) = set.as_object() else { return };
    if map.is_empty() {
        return found.push(path.to_owned());
    }
    for (name, child) in map {
        if name == "." {
            if map.len() == 1 {
                found.push(path.to_owned());
            }
        } else if let Some(field) = name.strip_prefix("f:") {
            walk(child, &format!("{path}.{field}"), found);
        } else if let Some(value) = name.strip_prefix("v:") {
            walk(child, &format!("{path}[={value}]"), found);
        } else if let Some(keys) = name.strip_prefix("k:") {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let list: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            walk(child, &format!("{path}[{}]", list.join(",")), found);
        }
    }
}

/// Which fields are new or different in `new`, and which `old` had and `new` has not.
#[derive(Debug, Default)]
pub struct Difference {
    pub changed: Option<Value>,
    pub removed: Option<Value>,
}

pub fn compare(old: &Value, new: &Value, schema: Option<&Schema>) -> Difference {
    if old == new {
        return Difference::default();
    }
    let entries = |value: &Value| -> Option<Vec<(String, Value)>> {
        match (value, schema) {
            (Value::Object(map), _) if schema.is_none_or(|schema| !schema.is_atomic()) => {
                Some(map.iter().map(|(name, value)| (format!("f:{name}"), value.clone())).collect())
            }
            (Value::Array(items), Some(schema)) if is_granular_list(schema) => {
                Some(items.iter().map(|item| (item_key(item, schema), item.clone())).collect())
            }
            _ => None,
        }
    };
    let (Some(before), Some(after)) = (entries(old), entries(new)) else {
        return Difference { changed: Some(empty()), removed: None };
    };
    let (mut changed, mut removed) = (Map::new(), Map::new());
    for (name, value) in &after {
        let inner = inner_schema(name, schema);
        match before.iter().find(|(known, _)| known == name) {
            None => {
                let mut added = of(value, inner);
                if let (true, Some(map)) = (name.starts_with("k:"), added.as_object_mut()) {
                    map.insert(".".into(), empty());
                }
                changed.insert(name.clone(), added);
            }
            Some((_, earlier)) => {
                let difference = compare(earlier, value, inner);
                difference.changed.into_iter().for_each(|set| drop(changed.insert(name.clone(), set)));
                difference.removed.into_iter().for_each(|set| drop(removed.insert(name.clone(), set)));
            }
        }
    }
    for (name, value) in &before {
        if !after.iter().any(|(known, _)| known == name) {
            removed.insert(name.clone(), of(value, inner_schema(name, schema)));
        }
    }
    let some = |map: Map<String, Value>| (!map.is_empty()).then_some(Value::Object(map));
    Difference { changed: some(changed), removed: some(removed) }
}

fn inner_schema<'a>(name: &str, schema: Option<&'a Schema>) -> Option<&'a Schema> {
    match name.strip_prefix("f:") {
        Some(field) => schema?.field(field),
        None => schema?.items.as_deref(),
    }
}

/// Puts what an applier declares into the live object.
pub fn merge(live: &mut Value, declared: &Value, schema: Option<&Schema>) {
    match (&mut *live, declared, schema) {
        (Value::Object(target), Value::Object(fields), _) if schema.is_none_or(|schema| !schema.is_atomic()) => {
            for (name, value) in fields {
                let inner = schema.and_then(|schema| schema.field(name));
                if value.is_null() {
                    target.remove(name);
                } else {
                    merge(target.entry(name.clone()).or_insert(Value::Null), value, inner);
                }
            }
        }
        (Value::Array(items), Value::Array(wanted), Some(schema)) if is_granular_list(schema) => {
            for item in wanted {
                let key = item_key(item, schema);
                match items.iter().position(|known| item_key(known, schema) == key) {
                    Some(at) if schema.list == ListType::Map => merge(&mut items[at], item, schema.items.as_deref()),
                    Some(_) => {}
                    None => items.push(item.clone()),
                }
            }
        }
        _ => *live = declared.clone(),
    }
}

/// Takes the fields of a set away; containers that become empty by it go too.
pub fn remove(live: &mut Value, set: &Value, schema: Option<&Schema>) {
    let Some(names) = set.as_object() else { return };
    for (name, inner) in names {
        let whole = is_leaf(inner) || inner.get(".").is_some();
        let inner_schema = inner_schema(name, schema);
        match (&mut *live, schema) {
            (Value::Object(map), _) => {
                let Some(field) = name.strip_prefix("f:") else { continue };
                let Some(child) = map.get_mut(field) else { continue };
                if !whole {
                    remove(child, inner, inner_schema);
                }
                let hollow = match child {
                    Value::Object(map) => map.is_empty(),
                    Value::Array(items) => items.is_empty(),
                    _ => false,
                };
                if whole || hollow {
                    map.remove(field);
                }
            }
            (Value::Array(items), Some(schema)) => {
                let Some(at) = items.iter().position(|item| item_key(item, schema) == *name) else { continue };
                if whole {
                    items.remove(at);
                } else {
                    remove(&mut items[at], inner, inner_schema);
                }
            }
            _ => {}
        }
    }
}

/// A field set as an entry of `managedFields`.
pub fn entry(manager: &str, operation: &str, subresource: &str, api_version: &str, time: &str, set: Value) -> Value {
    let mut entry = json!({
        "manager": manager, "operation": operation, "apiVersion": api_version, "time": time, "fieldsType": "FieldsV1",
        "fieldsV1": set,
    });
    if !subresource.is_empty() {
        entry["subresource"] = json!(subresource);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::schema::definition;

    fn deployment() -> Option<&'static Schema> {
        definition("io.k8s.api.apps.v1.Deployment")
    }

    #[test]
    fn sets_follow_the_lists_of_the_type() {
        let object = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [
            {"name": "web", "image": "a", "args": ["x"], "ports": [{"containerPort": 80}]}]}}}});
        let set = of(&object, deployment());
        assert_eq!(set["f:spec"]["f:selector"], json!({}), "selectors are one thing");
        let container = &set["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"web\"}"];
        assert_eq!(container["f:args"], json!({}));
        assert_eq!(container["f:ports"]["k:{\"containerPort\":80,\"protocol\":\"TCP\"}"]["."], json!({}));
        assert!(paths(&set).contains(&".spec.template.spec.containers[name=\"web\"].image".to_owned()));
    }

    #[test]
    fn what_changed_and_what_went_is_told_apart() {
        let old = json!({"data": {"a": "1", "b": "1"}});
        let new = json!({"data": {"a": "2", "c": "1"}});
        let difference = compare(&old, &new, definition("io.k8s.api.core.v1.ConfigMap"));
        assert_eq!(difference.changed.unwrap(), json!({"f:data": {"f:a": {}, "f:c": {}}}));
        assert_eq!(difference.removed.unwrap(), json!({"f:data": {"f:b": {}}}));
    }

    #[test]
    fn sets_can_be_taken_apart() {
        let (a, b) = (json!({"f:x": {"f:y": {}, "f:z": {}}}), json!({"f:x": {"f:z": {}}}));
        assert_eq!(difference(&a, &b).unwrap(), json!({"f:x": {"f:y": {}}}));
        assert_eq!(difference(&b, &a), None);
        assert_eq!(intersection(&a, &b).unwrap(), json!({"f:x": {"f:z": {}}}));
        let mut both = b.clone();
        union(&mut both, &json!({"f:w": {}}));
        assert_eq!(both, json!({"f:w": {}, "f:x": {"f:z": {}}}));
    }

    #[test]
    fn merging_and_removing_know_list_items() {
        let mut live = json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}}});
        let declared = json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "2"}]}}}});
        merge(&mut live, &declared, deployment());
        assert_eq!(live["spec"]["template"]["spec"]["containers"][1]["image"], "2");
        remove(&mut live, &of(&declared, deployment()), deployment());
        assert_eq!(live["spec"]["template"]["spec"]["containers"], json!([{"name": "a", "image": "1"}]));
    }
}
