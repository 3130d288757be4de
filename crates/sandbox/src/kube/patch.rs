//! Three ways in which Kubernetes clients change an object: merge patch, JSON patch and strategic merge patch. Pure
//! functions over JSON.

use serde_json::{Map, Value};

use super::schema::Schema;

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

/// The field that tells items of a list apart, for lists that are merged item by item. Every other list is replaced as a whole.
fn merge_key<'a>(schema: Option<&'a Schema>, items: &[Value]) -> Option<&'a str> {
    let key = schema.filter(|schema| schema.merges)?.merge_key.as_deref()?;
    items.iter().all(|item| item.get(key).is_some()).then_some(key)
}

/// Lists of plain values that are merged as sets.
fn is_set(schema: Option<&Schema>) -> bool {
    schema.is_some_and(|schema| schema.merges && schema.merge_key.is_none())
}

/// Strategic merge patch, with its `$patch`, `$retainKeys`, `$setElementOrder` and `$deleteFromPrimitiveList` directives.
pub fn strategic(target: &mut Value, patch: &Value, schema: Option<&Schema>) {
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
            let inner = schema.and_then(|schema| schema.field(name));
            merge_list(map.entry(name.clone()).or_insert(Value::Null), inner, items);
        } else {
            let inner = schema.and_then(|schema| schema.field(name));
            strategic(map.entry(name.clone()).or_insert(Value::Null), value, inner);
        }
    }
    for (name, order) in fields {
        if let (Some(list), Value::Array(order)) = (name.strip_prefix("$setElementOrder/"), order)
            && let Some(Value::Array(items)) = map.get_mut(list)
        {
            set_order(schema.and_then(|schema| schema.field(list)), items, order);
        }
    }
}

fn merge_list(target: &mut Value, schema: Option<&Schema>, patch: &[Value]) {
    let old = match target.take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let replace = patch.iter().any(|item| item.get("$patch").and_then(Value::as_str) == Some("replace"));
    let patch: Vec<&Value> =
        patch.iter().filter(|item| item.get("$patch").and_then(Value::as_str) != Some("replace")).collect();
    let cloned: Vec<Value> = patch.iter().map(|item| (*item).clone()).collect();
    let mut items = if replace { Vec::new() } else { old };
    let item_schema = schema.and_then(|schema| schema.items.as_deref());
    if is_set(schema) {
        for item in patch {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
    } else if let Some(key) = merge_key(schema, &cloned) {
        for item in patch {
            let at = items.iter().position(|old| old.get(key) == item.get(key));
            match (at, item.get("$patch").and_then(Value::as_str)) {
                (Some(at), Some("delete")) => drop(items.remove(at)),
                (None, Some("delete")) => {}
                (Some(at), _) => strategic(&mut items[at], item, item_schema),
                (None, _) => {
                    let mut made = Value::Null;
                    strategic(&mut made, item, item_schema);
                    items.push(made);
                }
            }
        }
    } else {
        items = cloned;
    }
    *target = Value::Array(items);
}

fn set_order(schema: Option<&Schema>, items: &mut [Value], order: &[Value]) {
    let key = merge_key(schema, order);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::schema::definition;
    use serde_json::json;

    #[test]
    fn merge_patch_removes_by_null() {
        let mut target = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut target, &json!({"a": {"b": null, "e": {"f": null}}, "d": [2]}));
        assert_eq!(target, json!({"a": {"c": 2, "e": {}}, "d": [2]}));
    }

    #[test]
    fn strategic_merge_knows_list_keys_and_directives() {
        let schema = definition("io.k8s.api.core.v1.Pod");
        let mut target = json!({"spec": {
            "containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}], "args": ["1", "2"]}, {"name": "b", "image": "b:1"}],
            "tolerations": [{"key": "k", "effect": "NoSchedule"}],
        }, "metadata": {"finalizers": ["one", "two"]}});
        strategic(
            &mut target,
            &json!({"spec": {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                "containers": [{"name": "a", "image": "a:2", "args": ["3"]}, {"name": "b", "$patch": "delete"}, {"name": "c", "image": "c:1"}],
                "tolerations": null,
            }, "metadata": {"$deleteFromPrimitiveList/finalizers": ["one"], "finalizers": ["three"]}}),
            schema,
        );
        let expected = json!({"spec": {
            "containers": [{"name": "c", "image": "c:1"}, {"name": "a", "image": "a:2", "env": [{"name": "X", "value": "1"}], "args": ["3"]}],
        }, "metadata": {"finalizers": ["two", "three"]}});
        assert_eq!(target, expected);
        strategic(&mut target, &json!({"spec": {"$patch": "replace", "hostname": "x"}}), schema);
        assert_eq!(target["spec"], json!({"hostname": "x"}));
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
}
