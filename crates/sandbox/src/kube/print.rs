//! The tables that `kubectl get` prints: the server makes them, kubectl only lays them out.

use serde_json::{Value, json};

use super::columns::{Column, age, columns_of};
use super::objects::Custom;
use super::types::ResourceType;
use crate::clock::SimTime;

/// How much of each object travels along with its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    Nothing,
    Metadata,
    Object,
}

pub fn table(
    resource: &ResourceType,
    custom: &[Custom],
    objects: &[&Value],
    include: Include,
    now: SimTime,
    list_meta: Value,
) -> Value {
    if let Some(custom) = custom.iter().find(|custom| custom.resource == resource && custom.columns.is_array()) {
        return custom_table(custom, objects, include, now, list_meta);
    }
    let kind = if resource.custom { "" } else { resource.kind };
    let columns: Vec<Column> = columns_of(kind).collect();
    let definitions: Vec<Value> = columns
        .iter()
        .map(|(name, wide, _)| {
            let format = if *name == "Name" { "name" } else { "" };
            json!({"name": name, "type": "string", "format": format, "description": "", "priority": u8::from(*wide)})
        })
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = columns.iter().map(|(_, _, cell)| cell(object, now)).collect();
            row(cells, object, include)
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "columnDefinitions": definitions, "rows": rows})
}

fn row(cells: Vec<Value>, object: &Value, include: Include) -> Value {
    let mut row = json!({"cells": cells});
    match include {
        Include::Nothing => {}
        Include::Object => row["object"] = object.clone(),
        Include::Metadata => {
            row["object"] = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            });
        }
    }
    row
}

/// The columns that a custom type's definition asks for.
fn custom_table(custom: &Custom, objects: &[&Value], include: Include, now: SimTime, list_meta: Value) -> Value {
    let columns: Vec<&Value> = custom.columns.as_array().into_iter().flatten().collect();
    let mut definitions =
        vec![json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0})];
    definitions.extend(columns.iter().map(|column| {
        json!({"name": column["name"], "type": column["type"], "format": column["format"].as_str().unwrap_or_default(),
               "description": column["description"].as_str().unwrap_or_default(), "priority": column["priority"].as_i64().unwrap_or(0)})
    }));
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut cells = vec![object["metadata"]["name"].clone()];
            cells.extend(columns.iter().map(|column| {
                let value = at_path(object, column["jsonPath"].as_str().unwrap_or_default());
                match (column["type"].as_str(), value) {
                    (Some("date"), value) => json!(age(value.and_then(Value::as_str), now)),
                    (_, Some(Value::Array(items))) => json!(Value::from(items.clone()).to_string()),
                    (_, Some(value)) => value.clone(),
                    (_, None) => Value::Null,
                }
            }));
            row(cells, object, include)
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "columnDefinitions": definitions, "rows": rows})
}

/// A simple JSON path: fields, list items by number, and `[?(@.type=="Ready")]`.
fn at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(filter) = rest.strip_prefix("[?(@.") {
            let (condition, after) = filter.split_once(")]")?;
            let (field, wanted) = condition.split_once("==")?;
            let wanted = wanted.trim_matches([' ', '"', '\'']);
            value = value.as_array()?.iter().find(|item| item[field.trim()].as_str() == Some(wanted))?;
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('[') {
            let (key, after) = inner.split_once(']')?;
            value = match key.parse::<usize>() {
                Ok(number) => value.get(number)?,
                Err(_) => value.get(key.trim_matches(['"', '\'']))?,
            };
            rest = after;
        } else {
            let plain = rest.trim_start_matches('.');
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            value = value.get(&plain[..end])?;
            rest = &plain[end..];
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_fields_items_and_conditions() {
        let object = json!({"spec": {"size": 3}, "status": {"conditions": [{"type": "A", "status": "x"}, {"type": "Ready", "status": "True"}]}});
        assert_eq!(at_path(&object, ".spec.size"), Some(&json!(3)));
        assert_eq!(at_path(&object, ".status.conditions[0].status"), Some(&json!("x")));
        assert_eq!(at_path(&object, ".status.conditions[?(@.type==\"Ready\")].status"), Some(&json!("True")));
        assert_eq!(at_path(&object, ".spec.none"), None);
    }
}
