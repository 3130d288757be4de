//! The tables that `kubectl get` prints: the server makes them, kubectl only lays them out.

use serde_json::{Value, json};

use super::columns::{Column, columns_of};
use super::types::ResourceType;
use crate::clock::SimTime;

/// How much of each object travels along with its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    Nothing,
    Metadata,
    Object,
}

pub fn table(resource: &ResourceType, objects: &[&Value], include: Include, now: SimTime, list_meta: Value) -> Value {
    let columns: Vec<Column> = columns_of(resource.kind).collect();
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
            let mut row = json!({"cells": cells});
            match include {
                Include::Nothing => {}
                Include::Object => row["object"] = (*object).clone(),
                Include::Metadata => {
                    row["object"] = json!({
                        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
                    });
                }
            }
            row
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "columnDefinitions": definitions, "rows": rows})
}
