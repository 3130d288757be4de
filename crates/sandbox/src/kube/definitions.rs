//! Types that objects of the cluster define: CustomResourceDefinitions.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::objects::{Custom, Objects, meta};
use super::schema::Schema;
use super::types::{self, ResourceType};

/// Reads the definitions again, after one of them changed.
pub fn refresh(objects: &mut Objects) {
    let custom: Vec<Custom> = objects
        .rows_of("apiextensions.k8s.io", "customresourcedefinitions")
        .filter(|stored| stored.object["metadata"].get("deletionTimestamp").is_none())
        .flat_map(|stored| versions(&stored.object))
        .collect();
    objects.custom = custom;
}

fn texts(value: &Value) -> &'static [&'static str] {
    let list: Vec<&'static str> =
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(types::intern_text).collect();
    if list.is_empty() {
        return &[];
    }
    // Lists are interned by their text, so that the same definition in many clusters is one.
    static KNOWN: std::sync::OnceLock<std::sync::Mutex<std::collections::HashSet<&'static [&'static str]>>> =
        std::sync::OnceLock::new();
    let mut known = KNOWN.get_or_init(Default::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(same) = known.get(list.as_slice()) {
        return same;
    }
    let kept: &'static [&'static str] = Box::leak(list.into_boxed_slice());
    known.insert(kept);
    kept
}

/// The served versions of one definition.
fn versions(definition: &Value) -> Vec<Custom> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| types::intern_text(value.as_str().unwrap_or_default());
    let served = spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true);
    served
        .map(|version| {
            let published = version["schema"]["openAPIV3Schema"].clone();
            let mut subresources = Vec::new();
            for sub in ["scale", "status"] {
                if version["subresources"].get(sub).is_some() {
                    subresources.push(json!(sub));
                }
            }
            let resource = types::intern(ResourceType {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                plural: text(&names["plural"]),
                singular: text(&names["singular"]),
                kind: text(&names["kind"]),
                short: texts(&names["shortNames"]),
                namespaced: spec["scope"] == "Namespaced",
                categories: texts(&names["categories"]),
                subresources: texts(&json!(subresources)),
                custom: true,
            });
            let stamp = Sha256::new().chain_update(version.to_string()).finalize();
            let mut schema = Schema::custom(&published);
            schema.open = schema.open || spec["preserveUnknownFields"] == true;
            Custom {
                resource,
                schema,
                stamp: stamp[..6].iter().map(|byte| format!("{byte:02x}")).collect(),
                columns: version["additionalPrinterColumns"].clone(),
                scale: version["subresources"]["scale"].clone(),
                published,
            }
        })
        .collect()
}

/// The first served version of what is defined.
pub fn type_of(definition: &Value) -> Option<&'static ResourceType> {
    versions(definition).first().map(|custom| custom.resource)
}

/// The status of a definition that is accepted and served.
pub fn status(definition: &Value, now: &str) -> Value {
    let spec = &definition["spec"];
    let stored: Vec<&Value> = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| &version["name"])
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    json!({
        "acceptedNames": spec["names"], "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    })
}

/// What a definition gets when it says less, and what is wrong with it.
pub fn fill(object: &mut Value) {
    let spec = &mut object["spec"];
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    if spec["names"]["singular"].as_str().unwrap_or_default().is_empty() {
        spec["names"]["singular"] = json!(kind.to_lowercase());
    }
    if spec["names"]["listKind"].as_str().unwrap_or_default().is_empty() {
        spec["names"]["listKind"] = json!(format!("{kind}List"));
    }
}

pub fn wrong(object: &Value) -> Option<(&'static str, String)> {
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (plural, group) = (text(&spec["names"]["plural"]), text(&spec["group"]));
    let wanted = format!("{plural}.{group}");
    if meta(object, "name") != wanted {
        let name = meta(object, "name");
        let why = format!("Invalid value: \"{name}\": must be spec.names.plural+\".\"+spec.group");
        return Some(("metadata.name", why));
    }
    let versions = spec["versions"].as_array().filter(|list| !list.is_empty());
    let Some(versions) = versions else { return Some(("spec.versions", "Required value".into())) };
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "Invalid value: must have exactly one version marked as storage version";
        return Some(("spec.versions", why.into()));
    }
    if versions.iter().any(|version| !version["schema"]["openAPIV3Schema"].is_object()) {
        return Some(("spec.versions[0].schema.openAPIV3Schema", "Required value: schemas are required".into()));
    }
    if text(&spec["names"]["kind"]).is_empty() {
        return Some(("spec.names.kind", "Required value".into()));
    }
    if !matches!(spec["scope"].as_str(), Some("Namespaced" | "Cluster")) {
        let why = format!("Unsupported value: {}: supported values: \"Cluster\", \"Namespaced\"", spec["scope"]);
        return Some(("spec.scope", why));
    }
    None
}
