//! The four ways in which Kubernetes clients change an object: merge patch, JSON patch, strategic merge patch and
//! server-side apply. Pure functions over JSON.

use serde_json::{Map, Value};

/// RFC 7386.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            as_object(target).remove(name);
        } else {
            merge(as_object(target).entry(name.clone()).or_insert(Value::Null), value);
        }
    }
    as_object(target);
}

/// The value as an object, turned into an empty one if it is something else.
fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}

/// The field that tells items of a list apart, for lists that Kubernetes merges item by item. Every other list is
/// replaced as a whole. Types are not consulted: the names are unambiguous in the types that are served.
fn merge_key(field: &str, items: &[Value]) -> Option<&'static str> {
    let key = match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets" => "name",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "conditions" | "addresses" => "type",
        "taints" => "key",
        "ownerReferences" => "uid",
        "hostAliases" => "ip",
        "topologySpreadConstraints" => "topologyKey",
        "ports" if items.iter().any(|item| item.get("containerPort").is_some()) => "containerPort",
        "ports" => "port",
        _ => return None,
    };
    items.iter().all(|item| item.get(key).is_some()).then_some(key)
}

fn is_set(field: &str) -> bool {
    matches!(field, "finalizers" | "podCIDRs")
}

/// Strategic merge patch, with its `$patch`, `$retainKeys`, `$setElementOrder` and `$deleteFromPrimitiveList` directives.
pub fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    match fields.get("$patch").and_then(Value::as_str) {
        Some("replace") => *target = Value::Object(Map::new()),
        Some("delete") => {
            *target = Value::Object(Map::new());
            return;
        }
        _ => {}
    }
    let map = as_object(target);
    if let Some(Value::Array(keep)) = fields.get("$retainKeys") {
        map.retain(|name, _| keep.iter().any(|kept| kept.as_str() == Some(name)));
    }
    for (name, value) in fields {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Value::Array(gone)) = (map.get_mut(list), value) {
                items.retain(|item| !gone.contains(item));
            }
        } else if name.starts_with('$') {
            continue;
        } else if value.is_null() {
            map.remove(name);
        } else if let Value::Array(items) = value {
            merge_list(map.entry(name.clone()).or_insert(Value::Null), name, items);
        } else {
            strategic(map.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
    for (name, order) in fields {
        if let (Some(list), Value::Array(order)) = (name.strip_prefix("$setElementOrder/"), order)
            && let Some(Value::Array(items)) = map.get_mut(list)
        {
            set_order(list, items, order);
        }
    }
}

fn merge_list(target: &mut Value, field: &str, patch: &[Value]) {
    let old = match target.take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let replace = patch.iter().any(|item| item.get("$patch").and_then(Value::as_str) == Some("replace"));
    let patch: Vec<&Value> =
        patch.iter().filter(|item| item.get("$patch").and_then(Value::as_str) != Some("replace")).collect();
    let cloned: Vec<Value> = patch.iter().map(|item| (*item).clone()).collect();
    let mut items = if replace { Vec::new() } else { old };
    if is_set(field) {
        for item in patch {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
    } else if let Some(key) = merge_key(field, &cloned) {
        for item in patch {
            let at = items.iter().position(|old| old.get(key) == item.get(key));
            match (at, item.get("$patch").and_then(Value::as_str)) {
                (Some(at), Some("delete")) => drop(items.remove(at)),
                (None, Some("delete")) => {}
                (Some(at), _) => strategic(&mut items[at], item),
                (None, _) => {
                    let mut made = Value::Null;
                    strategic(&mut made, item);
                    items.push(made);
                }
            }
        }
    } else {
        items = cloned;
    }
    *target = Value::Array(items);
}

fn set_order(field: &str, items: &mut [Value], order: &[Value]) {
    let key = merge_key(field, order);
    let place = |item: &Value| {
        let same = |wanted: &&Value| match key {
            Some(key) => wanted.get(key) == item.get(key),
            None => *wanted == item,
        };
        order.iter().position(|wanted| same(&wanted)).unwrap_or(usize::MAX)
    };
    items.sort_by_key(place);
}

/// RFC 6902. The message names the operation that does not fit.
pub fn json_patch(target: &mut Value, operations: &Value) -> Result<(), String> {
    let operations = operations.as_array().ok_or("a JSON patch is a list of operations")?;
    for operation in operations {
        let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
        let (op, path) = (text("op"), text("path"));
        let value = operation.get("value").cloned().unwrap_or(Value::Null);
        match op {
            "add" => insert(target, path, value)?,
            "remove" => drop(take(target, path)?),
            "replace" => *target.pointer_mut(path).ok_or_else(|| missing(path))? = value,
            "copy" => {
                let copied = target.pointer(text("from")).cloned().ok_or_else(|| missing(text("from")))?;
                insert(target, path, copied)?;
            }
            "move" => {
                let moved = take(target, text("from"))?;
                insert(target, path, moved)?;
            }
            "test" if target.pointer(path) == Some(&value) => {}
            "test" => return Err(format!("testing value {path} failed")),
            other => return Err(format!("unknown operation {other:?}")),
        }
    }
    Ok(())
}

fn missing(path: &str) -> String {
    format!("path {path:?} does not exist")
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (parent, last) = path.rsplit_once('/').ok_or_else(|| missing(path))?;
    let holder = target.pointer_mut(parent).ok_or_else(|| missing(path))?;
    Ok((holder, last.replace("~1", "/").replace("~0", "~")))
}

fn insert(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (holder, last) = parent(target, path)?;
    match holder {
        Value::Object(map) => drop(map.insert(last, value)),
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let at = last.parse::<usize>().ok().filter(|at| *at <= items.len()).ok_or_else(|| missing(path))?;
            items.insert(at, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn take(target: &mut Value, path: &str) -> Result<Value, String> {
    let (holder, last) = parent(target, path)?;
    let taken = match holder {
        Value::Object(map) => map.remove(&last),
        Value::Array(items) => last.parse::<usize>().ok().filter(|at| *at < items.len()).map(|at| items.remove(at)),
        _ => None,
    };
    taken.ok_or_else(|| missing(path))
}

/// Server-side apply: what `before` had and `now` has not goes away, then `now` is merged in.
pub fn apply(target: &mut Value, before: Option<&Value>, now: &Value) {
    if let Some(before) = before {
        prune(target, before, Some(now));
    }
    strategic(target, now);
}

fn prune(target: &mut Value, before: &Value, now: Option<&Value>) {
    let (Value::Object(map), Value::Object(had)) = (target, before) else { return };
    for (name, old) in had {
        let new = now.and_then(|now| now.get(name));
        let Some(current) = map.get_mut(name) else { continue };
        let empty = match (old, current) {
            (Value::Object(_), current @ Value::Object(_)) => {
                prune(current, old, new);
                new.is_none() && current.as_object().is_some_and(Map::is_empty)
            }
            (Value::Array(old), Value::Array(items)) if merge_key(name, old).is_some() => {
                let key = merge_key(name, old).unwrap_or_default();
                let kept: &[Value] = new.and_then(Value::as_array).map_or(&[], Vec::as_slice);
                for gone in old {
                    let again = kept.iter().find(|item| item.get(key) == gone.get(key));
                    let at = items.iter().position(|item| item.get(key) == gone.get(key));
                    match (at, again) {
                        (Some(at), None) => drop(items.remove(at)),
                        (Some(at), Some(again)) => prune(&mut items[at], gone, Some(again)),
                        (None, _) => {}
                    }
                }
                new.is_none() && items.is_empty()
            }
            _ => new.is_none(),
        };
        if empty {
            map.remove(name);
        }
    }
}

/// Puts back what `other` still wants and pruning took away.
pub fn fill_missing(target: &mut Value, other: &Value) {
    let (Value::Object(map), Value::Object(wanted)) = (target, other) else { return };
    for (name, value) in wanted {
        match map.get_mut(name) {
            None => drop(map.insert(name.clone(), value.clone())),
            Some(current) => fill_missing(current, value),
        }
    }
}

/// The fields that both set, to different values, as paths like `.spec.replicas`.
pub fn conflicts(other: &Value, now: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk_conflicts(other, now, "", "", &mut found);
    found
}

fn walk_conflicts(other: &Value, now: &Value, field: &str, path: &str, found: &mut Vec<String>) {
    match (other, now) {
        (Value::Object(other), Value::Object(now)) => {
            for (name, value) in now {
                if let Some(theirs) = other.get(name) {
                    walk_conflicts(theirs, value, name, &format!("{path}.{name}"), found);
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) if merge_key(field, ours).is_some() => {
            let key = merge_key(field, ours).unwrap_or_default();
            for item in ours {
                if let Some(same) = theirs.iter().find(|theirs| theirs.get(key) == item.get(key)) {
                    let at = item.get(key).map(Value::to_string).unwrap_or_default();
                    walk_conflicts(same, item, "", &format!("{path}[{key}={at}]"), found);
                }
            }
        }
        _ if other != now => found.push(path.to_owned()),
        _ => {}
    }
}

/// A forced apply: the other manager's record takes the new values of the fields that both set.
pub fn overwrite_shared(other: &mut Value, now: &Value) {
    match (other, now) {
        (Value::Object(other), Value::Object(now)) => {
            for (name, value) in now {
                if let Some(theirs) = other.get_mut(name) {
                    overwrite_shared(theirs, value);
                }
            }
        }
        (other, now) => *other = now.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patch_removes_by_null() {
        let mut target = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut target, &json!({"a": {"b": null, "e": {"f": null}}, "d": [2]}));
        assert_eq!(target, json!({"a": {"c": 2, "e": {}}, "d": [2]}));
    }

    #[test]
    fn strategic_merge_knows_list_keys_and_directives() {
        let mut target = json!({"spec": {
            "containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "b:1"}],
            "taints": [{"key": "k", "effect": "NoSchedule"}], "args": [1, 2],
        }, "metadata": {"finalizers": ["one", "two"]}});
        strategic(
            &mut target,
            &json!({"spec": {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                "containers": [{"name": "a", "image": "a:2"}, {"name": "b", "$patch": "delete"}, {"name": "c", "image": "c:1"}],
                "taints": null, "args": [3],
            }, "metadata": {"$deleteFromPrimitiveList/finalizers": ["one"], "finalizers": ["three"]}}),
        );
        let expected = json!({"spec": {
            "containers": [{"name": "c", "image": "c:1"}, {"name": "a", "image": "a:2", "env": [{"name": "X", "value": "1"}]}],
            "args": [3],
        }, "metadata": {"finalizers": ["two", "three"]}});
        assert_eq!(target, expected);
        strategic(&mut target, &json!({"spec": {"$patch": "replace", "x": 1}}));
        assert_eq!(target["spec"], json!({"x": 1}));
    }

    #[test]
    fn json_patch_follows_the_rfc() {
        let mut target = json!({"a": [1, 2], "b": {"x/y": 1}});
        let patch = json!([
            {"op": "test", "path": "/a/0", "value": 1}, {"op": "add", "path": "/a/-", "value": 3},
            {"op": "remove", "path": "/a/0"}, {"op": "replace", "path": "/b/x~1y", "value": 2},
            {"op": "copy", "from": "/a", "path": "/c"}, {"op": "move", "from": "/b", "path": "/d"},
        ]);
        json_patch(&mut target, &patch).unwrap();
        assert_eq!(target, json!({"a": [2, 3], "c": [2, 3], "d": {"x/y": 2}}));
        assert!(json_patch(&mut target, &json!([{"op": "remove", "path": "/none"}])).is_err());
        assert!(json_patch(&mut target, &json!([{"op": "test", "path": "/a/0", "value": 9}])).is_err());
        assert!(json_patch(&mut target, &json!({"op": "add"})).is_err());
    }

    #[test]
    fn apply_takes_back_what_is_no_longer_declared() {
        let before = json!({"spec": {"replicas": 2, "paused": true, "containers": [{"name": "a", "image": "x"}, {"name": "b"}]}});
        let mut target = before.clone();
        target["spec"]["extra"] = json!("kept");
        apply(&mut target, Some(&before), &json!({"spec": {"replicas": 3, "containers": [{"name": "a"}]}}));
        assert_eq!(target, json!({"spec": {"replicas": 3, "containers": [{"name": "a"}], "extra": "kept"}}));
    }

    #[test]
    fn conflicting_fields_are_named_and_can_be_taken() {
        let mut other = json!({"spec": {"replicas": 2, "containers": [{"name": "a", "image": "x"}]}});
        let now = json!({"spec": {"replicas": 3, "containers": [{"name": "a", "image": "y"}]}});
        assert_eq!(conflicts(&other, &now), [".spec.containers[name=\"a\"].image", ".spec.replicas"]);
        assert!(conflicts(&other, &other.clone()).is_empty());
        overwrite_shared(&mut other, &now);
        assert!(conflicts(&other, &now).is_empty());
    }
}
