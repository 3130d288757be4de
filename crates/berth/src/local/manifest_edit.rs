//! Writes values that a drift check found into the files of manifests, and into the manifests that the state holds.

use crate::args::repeated_flags::command;
use crate::failure::Failure;
use berth_engine::Finding;
use berth_model::shape::{Holds, Many, Shape};
use berth_model::{MAX_FILE_BYTES, case, parse, set_list, set_scalar};
use berth_store::StoredResource;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A file's text before and after.
pub struct Edited {
    pub before: String,
    pub after: String,
}

/// Writes one finding into the text of the manifest's file. Answers what was written where, or why not and what to do instead.
pub fn take(
    stored: &StoredResource,
    finding: &Finding,
    files: &mut BTreeMap<PathBuf, Edited>,
) -> Result<Vec<(String, Value)>, String> {
    let id = &stored.id;
    if !finding.stray.is_empty() {
        return Err(finding.apply.clone());
    }
    if finding.gone {
        return Err(format!("make it again:   {}", command("apply", id)));
    }
    if stored.deleting {
        return Err(format!("it is being deleted:   {}", command("wait --for deleted", id)));
    }
    let put_back = format!("put it back:   {}", command("apply", id));
    let kind = berth_model::registry().kind(&id.kind).ok_or_else(|| put_back.clone())?;
    let lists = !finding.declares.is_empty();
    if !lists && !matches!(finding.found, Value::String(_) | Value::Number(_) | Value::Bool(_)) {
        return Err(format!("it is not a single value: write it into the manifest by hand, or {put_back}"));
    }
    let is_list = |field: &String| kind.spec_shape().field(field).is_some_and(|field| field.many == Many::List);
    let known = match lists {
        true => finding.declares.keys().all(is_list),
        false => is_field(kind.spec_shape(), &finding.field),
    };
    if !known {
        return Err(format!("it is not a field of the manifest; {put_back}"));
    }
    let values: Vec<(String, Value)> = match lists {
        true => finding.declares.iter().map(|(field, value)| (format!("spec.{field}"), value.clone())).collect(),
        false => vec![(format!("spec.{}", finding.field), finding.found.clone())],
    };
    if stored.source.file.is_empty() || stored.source.file == "-" {
        return Err(format!("the manifest was not applied from a file: change it where it is kept, or {put_back}"));
    }
    let file = PathBuf::from(&stored.source.file);
    let edited = match files.entry(file.clone()) {
        std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::btree_map::Entry::Vacant(entry) => {
            let text = read(&file).map_err(|why| {
                format!("{} cannot be read ({why}): run it where the manifests are, or {put_back}", file.display())
            })?;
            entry.insert(Edited { before: text.clone(), after: text })
        }
    };
    let (manifests, _) = parse(&stored.source.file, edited.after.as_bytes());
    let document = manifests
        .iter()
        .find(|manifest| manifest.id == *id && !manifest.faulty)
        .and_then(|manifest| manifest.source.as_ref())
        .map(|source| source.document)
        .ok_or_else(|| {
            format!("{} does not hold it any more: change it where it is kept, or {put_back}", file.display())
        })?;
    let mut text = edited.after.clone();
    for (path, value) in &values {
        let written = match value.as_array() {
            Some(items) => set_list(&text, document, path, items),
            None => set_scalar(&text, document, path, value),
        };
        text = written.map_err(|error| format!("{}: {error}; write it by hand, or {put_back}", file.display()))?;
    }
    // The edited manifest must be valid: the bounds of an autoscaler, for example, may exclude the value.
    let (manifests, problems) = parse(&stored.source.file, text.as_bytes());
    let good = manifests.iter().any(|manifest| manifest.id == *id && !manifest.faulty);
    if !good {
        let why = problems.into_iter().find(berth_model::Diagnostic::is_error).map(|problem| problem.message);
        return Err(format!("the manifest would not be valid: {}; {put_back}", why.unwrap_or_default()));
    }
    edited.after = text;
    Ok(values)
}

/// Whether a path leads to a single value of the spec.
fn is_field(shape: &Shape, path: &str) -> bool {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let (name, picked) = match name.split_once('[') {
        Some((name, _)) => (name, true),
        None => (name, false),
    };
    let Some(field) = shape.field(name) else { return false };
    if (field.many == Many::One) == picked {
        return false;
    }
    match (field.holds, rest) {
        (Holds::Message, "") => false,
        (Holds::Message, rest) => field.shape().is_some_and(|inner| is_field(inner, rest)),
        (_, rest) => rest.is_empty(),
    }
}

/// The same change in the manifest that the state holds. It is made there by itself: other edits in the file are not applied
/// yet, and accepting a value must not pretend that they were.
pub fn set(manifest: &mut Value, path: &str, value: &Value) {
    let mut at = manifest;
    for step in path.split('.') {
        let (name, pick) = match step.split_once('[') {
            Some((name, pick)) => (name, Some(pick.trim_end_matches(']'))),
            None => (step, None),
        };
        if !at.is_object() {
            return;
        }
        at = &mut at[case::camel_case(name)];
        if let Some(pick) = pick {
            let items = at.as_array_mut().into_iter().flatten();
            let Some(item) = items.into_iter().find(|item| item.get("name").and_then(Value::as_str) == Some(pick))
            else {
                return;
            };
            at = item;
        } else if at.is_null() && !path.ends_with(step) {
            *at = Value::Object(serde_json::Map::new());
        }
    }
    // A field that takes references is stored as `{value: …}`.
    if at.get("value").is_some() {
        at["value"] = value.clone();
    } else {
        *at = value.clone();
    }
}

fn read(path: &Path) -> Result<String, std::io::Error> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    if text.len() > MAX_FILE_BYTES {
        return Err(std::io::Error::other("it is too large"));
    }
    Ok(text)
}

/// Whole or not at all, with the permissions that the file had; a link stays a link.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::caused(format!("cannot write {}", path.display()), &error);
    let target = std::fs::canonicalize(path).map_err(cannot)?;
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let half = target.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&half)?;
        file.set_permissions(std::fs::metadata(&target)?.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&half, &target)
    };
    write().inspect_err(|_| _ = std::fs::remove_file(&half)).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_set_where_the_state_keeps_them() {
        let mut manifest = json!({"spec": {
            "kubernetesVersion": "1.29.0", "network": {"value": "n-1"},
            "additionalNodePools": [{"name": "a", "nodeCount": 1}, {"name": "gpu", "nodeCount": 2}],
        }});
        set(&mut manifest, "spec.kubernetes_version", &json!("1.30.5-k3s1"));
        set(&mut manifest, "spec.network", &json!("n-2"));
        set(&mut manifest, "spec.additional_node_pools[gpu].node_count", &json!(4));
        set(&mut manifest, "spec.default_node_pool.node_count", &json!(5));
        assert_eq!(
            manifest,
            json!({"spec": {
                "kubernetesVersion": "1.30.5-k3s1", "network": {"value": "n-2"}, "defaultNodePool": {"nodeCount": 5},
                "additionalNodePools": [{"name": "a", "nodeCount": 1}, {"name": "gpu", "nodeCount": 4}],
            }})
        );
    }

    #[test]
    fn only_single_values_of_the_spec_are_fields() {
        let shape = berth_model::registry().kind("CivoKubernetesCluster").unwrap().spec_shape();
        for path in ["kubernetes_version", "default_node_pool.node_count", "additional_node_pools[gpu].size", "network"]
        {
            assert!(is_field(shape, path), "{path}");
        }
        for path in ["tags", "default_node_pool", "cluster_id", "default_node_pool.name", "additional_node_pools.size"]
        {
            assert!(!is_field(shape, path), "{path}");
        }
    }
}
