//! What becomes of pods when something happens to their node: taints that drive them away, and nodes that are gone.

use serde_json::{Value, json};

use super::placement::tolerates;
use super::{Change, Scene, delete, due_change, find_condition, is_leaving, kind, tell, time_of};
use crate::clock::SimTime;
use crate::kube::objects::{Stored, meta};

const WHO: &str = "taint-eviction-controller";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const CORDONED: &str = "node.kubernetes.io/unschedulable";

pub fn run(scene: &Scene) -> Vec<Change> {
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("", "nodes") {
        taint_by_condition(scene, row, &mut changes);
    }
    for row in scene.objects.rows_of("", "pods") {
        let Some(name) = row.object["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) else { continue };
        let pods = kind("", "pods");
        match scene.objects.peek("", "nodes", "", name) {
            None => {
                // Nothing will ever answer for it again.
                let (namespace, name) =
                    (meta(&row.object, "namespace").to_owned(), meta(&row.object, "name").to_owned());
                changes.push(Change::Delete { resource: pods, namespace, name, grace: Some(0), foreground: false });
            }
            Some(node) if !is_leaving(&row.object) => evict(scene, row, node, &mut changes),
            Some(_) => {}
        }
    }
    changes
}

/// Nodes that are not ready or cordoned carry a taint that says so.
fn taint_by_condition(scene: &Scene, row: &Stored, changes: &mut Vec<Change>) {
    let node = &row.object;
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let ready = find_condition(&node["status"], "Ready").is_none_or(|ready| ready["status"] == "True");
    let now = scene.now.rfc3339();
    let wanted = [
        (NOT_READY, "NoSchedule", !ready),
        (NOT_READY, "NoExecute", !ready),
        (CORDONED, "NoSchedule", node["spec"]["unschedulable"] == true),
    ];
    for (key, effect, yes) in wanted {
        let at = taints.iter().position(|taint| taint["key"] == key && taint["effect"] == effect);
        match (at, yes) {
            (None, true) => taints.push(json!({"key": key, "effect": effect, "timeAdded": now})),
            (Some(at), false) => drop(taints.remove(at)),
            _ => {}
        }
    }
    // Pods that tolerate a taint for a while count from when it was added.
    for taint in taints.iter_mut().filter(|taint| taint["effect"] == "NoExecute" && taint["timeAdded"].is_null()) {
        taint["timeAdded"] = json!(now);
    }
    let before = node["spec"]["taints"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    if taints != before {
        let mut object = node.clone();
        if taints.is_empty() {
            object["spec"].as_object_mut().map(|spec| spec.remove("taints"));
        } else {
            object["spec"]["taints"] = json!(taints);
        }
        changes.push(Change::Set { resource: kind("", "nodes"), object, due: row.due });
    }
}

fn evict(scene: &Scene, row: &Stored, node: &Value, changes: &mut Vec<Change>) {
    let pod = &row.object;
    let taints = node["spec"]["taints"].as_array().into_iter().flatten().filter(|taint| taint["effect"] == "NoExecute");
    let mut leaves: Option<SimTime> = None;
    for taint in taints {
        let at = match tolerates(&pod["spec"], taint) {
            None => Some(scene.now),
            Some(toleration) => toleration["tolerationSeconds"].as_i64().map(|seconds| {
                let since = time_of(&taint["timeAdded"]).unwrap_or(scene.now);
                since.plus_ms(seconds.max(0) * 1000)
            }),
        };
        leaves = leaves.into_iter().chain(at).min();
    }
    match leaves {
        Some(at) if at <= scene.now => {
            let why = format!("Marking for deletion Pod {}/{}", meta(pod, "namespace"), meta(pod, "name"));
            changes.push(tell(pod, WHO, "TaintManagerEviction", why));
            changes.push(delete(kind("", "pods"), pod));
        }
        Some(at) if row.due.is_none_or(|due| due <= scene.now || due > at) => {
            changes.push(due_change(kind("", "pods"), pod, Some(at)));
        }
        _ => {}
    }
}
