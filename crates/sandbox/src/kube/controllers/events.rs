//! Events: what the cluster tells of its doings. They are forgotten after an hour.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Told, controller_of};
use crate::clock::SimTime;
use crate::kube::change::Write;
use crate::kube::objects::{At, Objects, meta};
use crate::kube::status::Refused;
use crate::kube::types::{self, ResourceType};

const KEPT_MS: i64 = 3_600_000;

/// The same thing told again is counted.
pub fn tell(objects: &mut Objects, told: &Told, now: SimTime) {
    let Some(resource) = types::built_in("", "events") else { return };
    let about = &told.about;
    let namespace = if meta(about, "namespace").is_empty() { "default" } else { meta(about, "namespace") };
    let hash =
        Sha256::new().chain_update(meta(about, "uid")).chain_update(told.reason).chain_update(&told.message).finalize();
    let hash: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{}.{hash}", meta(about, "name"));
    let at = At { resource, namespace, name: &name };
    let time = now.rfc3339();
    if objects.has(at) {
        objects.set(at, |event| {
            if event["lastTimestamp"] != time {
                event["count"] = json!(event["count"].as_i64().unwrap_or(1) + 1);
                event["lastTimestamp"] = json!(time);
            }
        });
        return;
    }
    let body = json!({
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": meta(about, "name"),
                           "namespace": about["metadata"]["namespace"], "uid": about["metadata"]["uid"],
                           "resourceVersion": about["metadata"]["resourceVersion"]},
        "type": if told.warning { "Warning" } else { "Normal" }, "reason": told.reason, "message": told.message,
        "source": {"component": told.component}, "reportingComponent": told.component, "reportingInstance": "",
        "firstTimestamp": time, "lastTimestamp": time, "count": 1, "eventTime": null,
    });
    // A namespace that is on its way out takes no events.
    let _ = objects.create(resource, namespace, &body, &Write::own(now));
}

/// Something that a controller wanted to make was refused: the object that wanted it is told.
pub fn refused(objects: &mut Objects, resource: &ResourceType, body: &Value, refused: &Refused, now: SimTime) {
    let message = refused.body["message"].as_str().unwrap_or_default();
    let exists = refused.body["reason"] == "AlreadyExists";
    let Some(owner) = controller_of(body).filter(|_| !exists) else { return };
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let Some(kind) = objects.by_kind(text("apiVersion"), text("kind")) else { return };
    let uid = text("uid");
    let Some(about) = objects.stored(kind).map(|row| &row.object).find(|object| meta(object, "uid") == uid).cloned()
    else {
        return;
    };
    let component = match kind.kind {
        "ReplicaSet" => "replicaset-controller",
        "StatefulSet" => "statefulset-controller",
        "DaemonSet" => "daemonset-controller",
        "Job" => "job-controller",
        _ => "controller-manager",
    };
    let what = if resource.kind == "Pod" { "Error creating: " } else { "" };
    let told = Told { about, warning: true, reason: "FailedCreate", message: format!("{what}{message}"), component };
    tell(objects, &told, now);
}

pub fn expire(objects: &mut Objects, now: SimTime) {
    let Some(resource) = types::built_in("", "events") else { return };
    let limit = SimTime(now.0 - KEPT_MS).rfc3339();
    let old: Vec<(String, String)> = objects
        .stored(resource)
        .filter(|row| row.object["lastTimestamp"].as_str().is_some_and(|last| last < limit.as_str()))
        .map(|row| (meta(&row.object, "namespace").to_owned(), meta(&row.object, "name").to_owned()))
        .collect();
    for (namespace, name) in old {
        objects.forget(At { resource, namespace: &namespace, name: &name });
    }
}
