//! Pods made from the template of what manages them.

use serde_json::{Value, json};

use super::{Change, kind, owner_reference};
use crate::kube::objects::{meta, safe_letters};
use crate::kube::types::ResourceType;
use sha2::{Digest, Sha256};

/// The short hash of a pod template, which names its ReplicaSet and labels its pods.
pub fn hash(template: &Value) -> String {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove("pod-template-hash");
        labels.remove("controller-revision-hash");
    }
    safe_letters(&Sha256::digest(template.to_string())[..10])
}

/// A pod of `owner`. Without a name it gets one that begins with the owner's.
pub fn pod(resource: &ResourceType, owner: &Value, template: &Value, name: Option<&str>) -> Value {
    let mut metadata = json!({"ownerReferences": owner_reference(resource, owner)});
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            metadata[field] = value.clone();
        }
    }
    match name {
        Some(name) => metadata["name"] = json!(name),
        None => metadata["generateName"] = json!(format!("{}-", meta(owner, "name"))),
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

pub fn create(owner: &Value, pod: Value) -> Change {
    Change::Create { resource: kind("", "pods"), namespace: meta(owner, "namespace").to_owned(), body: pod }
}
