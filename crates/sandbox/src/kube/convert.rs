//! The same objects in another version, and what is only known when somebody looks.

use serde_json::{Value, json};

use super::objects::{as_map, meta};
use super::types::{self, ResourceType};
use crate::clock::SimTime;

/// Nodes renew their leases this often.
const RENEWED_MS: i64 = 10_000;

/// The type under which objects are kept.
pub fn stored(asked: &'static ResourceType) -> &'static ResourceType {
    if asked.custom { asked } else { types::built_in(asked.group, asked.plural).unwrap_or(asked) }
}

/// Whether objects are shown just as they are kept.
pub fn is_plain(asked: &ResourceType) -> bool {
    !asked.custom && asked.kind != "Lease" && !is_old_autoscaler(asked)
}

fn is_old_autoscaler(asked: &ResourceType) -> bool {
    asked.kind == "HorizontalPodAutoscaler" && asked.version == "v1"
}

/// A body in the asked version, as it is kept.
pub fn given(asked: &ResourceType, mut body: Value) -> Value {
    if is_old_autoscaler(asked) && body.is_object() {
        body["apiVersion"] = json!("autoscaling/v2");
        let share = body["spec"].as_object_mut().and_then(|spec| spec.remove("targetCPUUtilizationPercentage"));
        if let Some(share) = share {
            body["spec"]["metrics"] = json!([{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": share}}}]);
        }
    }
    body
}

pub fn shown(asked: &ResourceType, object: &Value, now: SimTime) -> Value {
    let mut object = object.clone();
    if asked.custom {
        object["apiVersion"] = json!(asked.api_version());
    } else if asked.kind == "Lease" && meta(&object, "namespace") == "kube-node-lease" {
        let at = SimTime(now.0 - now.0.rem_euclid(RENEWED_MS));
        object["spec"]["renewTime"] = json!(at.rfc3339().replace('Z', ".000000Z"));
    } else if is_old_autoscaler(asked) {
        object["apiVersion"] = json!("autoscaling/v1");
        let metrics = as_map(&mut object["spec"]).remove("metrics");
        let share = metrics.as_ref().and_then(|list| list.pointer("/0/resource/target/averageUtilization"));
        if let Some(share) = share {
            object["spec"]["targetCPUUtilizationPercentage"] = share.clone();
        }
        if let Some(status) = object.get_mut("status") {
            as_map(status).retain(|field, _| {
                matches!(field.as_str(), "currentReplicas" | "desiredReplicas" | "observedGeneration")
            });
        }
    }
    object
}
