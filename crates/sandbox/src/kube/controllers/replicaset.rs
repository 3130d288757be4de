//! ReplicaSets: as many pods as they say.

use serde_json::{Value, json};

use super::{Change, Scene, by_controller, delete, is_leaving, is_true, kind, set_status, tell, template, time_of};
use crate::clock::SimTime;
use crate::kube::objects::{Stored, meta};

/// Pods that are made in one round; the next round makes more.
const BURST: usize = 500;

pub fn run(scene: &Scene) -> Vec<Change> {
    let sets = kind("apps", "replicasets");
    let pods = by_controller(scene.objects, "", "pods");
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("apps", "replicasets") {
        let set = &row.object;
        let own: Vec<&Stored> = pods.get(meta(set, "uid")).into_iter().flatten().copied().collect();
        let active: Vec<&Stored> = own.iter().copied().filter(|row| is_active(&row.object)).collect();
        let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1) as usize;
        if !is_leaving(set) {
            if active.len() < wanted {
                for _ in 0..(wanted - active.len()).min(BURST) {
                    let body = template::pod(sets, set, &set["spec"]["template"], None);
                    changes.push(template::create(set, body));
                }
            }
            for surplus in surplus(&active, wanted) {
                let why = format!("Deleted pod: {}", meta(surplus, "name"));
                changes.push(delete(kind("", "pods"), surplus));
                changes.push(tell(set, "replicaset-controller", "SuccessfulDelete", why));
            }
        }
        let (status, due) = status(set, &active, scene.now);
        changes.extend(set_status(sets, row, status, due));
    }
    changes
}

pub fn is_active(pod: &Value) -> bool {
    !is_leaving(pod) && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Those to go first: not placed, not ready, then the youngest.
fn surplus<'a>(active: &[&'a Stored], wanted: usize) -> Vec<&'a Value> {
    if active.len() <= wanted {
        return Vec::new();
    }
    let mut ranked: Vec<&Value> = active.iter().map(|row| &row.object).collect();
    ranked.sort_by_key(|pod| {
        let placed = pod["spec"]["nodeName"].is_string();
        (
            placed,
            is_true(pod, "Ready"),
            std::cmp::Reverse(meta(pod, "creationTimestamp").to_owned()),
            meta(pod, "name").to_owned(),
        )
    });
    ranked.truncate(active.len() - wanted);
    ranked
}

/// How many pods are ready, how many were for long enough, and when the next one will be.
pub fn readiness<'a>(
    pods: impl Iterator<Item = &'a Value>,
    min_seconds: i64,
    now: SimTime,
) -> (usize, usize, Option<SimTime>) {
    let (mut ready, mut available, mut due) = (0, 0, None);
    for pod in pods.filter(|pod| is_true(pod, "Ready")) {
        ready += 1;
        let since =
            super::find_condition(&pod["status"], "Ready").and_then(|ready| time_of(&ready["lastTransitionTime"]));
        let at = since.unwrap_or(now).plus_ms(min_seconds * 1000);
        if min_seconds == 0 || at <= now {
            available += 1;
        } else {
            due = Some(due.map_or(at, |due: SimTime| due.min(at)));
        }
    }
    (ready, available, due)
}

fn status(set: &Value, active: &[&Stored], now: SimTime) -> (Value, Option<SimTime>) {
    let min = set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
    let (ready, available, due) = readiness(active.iter().map(|row| &row.object), min, now);
    let labels = set["spec"]["template"]["metadata"]["labels"].as_object();
    let labeled = active.iter().filter(|row| {
        labels.into_iter().flatten().all(|(key, value)| row.object["metadata"]["labels"].get(key) == Some(value))
    });
    let mut status = json!({"replicas": active.len(), "observedGeneration": set["metadata"]["generation"]});
    for (field, count) in
        [("fullyLabeledReplicas", labeled.count()), ("readyReplicas", ready), ("availableReplicas", available)]
    {
        if count > 0 {
            status[field] = json!(count);
        }
    }
    (status, due)
}
