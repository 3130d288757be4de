//! StatefulSets: pods with a number and volumes of their own, made and replaced in order.

use serde_json::{Value, json};

use super::replicaset::{is_active, readiness};
use super::{Change, Scene, by_controller, delete, is_leaving, is_true, kind, revisions, set_status, tell, template};
use crate::kube::objects::{Stored, meta};

const WHO: &str = "statefulset-controller";

pub fn run(scene: &Scene) -> Vec<Change> {
    let pods = by_controller(scene.objects, "", "pods");
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("apps", "statefulsets").filter(|row| !is_leaving(&row.object)) {
        let own: Vec<&Stored> = pods.get(meta(&row.object, "uid")).into_iter().flatten().copied().collect();
        reconcile(scene, row, &own, &mut changes);
    }
    changes
}

fn ordinal(pod: &Value) -> Option<i64> {
    meta(pod, "name").rsplit_once('-')?.1.parse().ok()
}

/// The revision that a pod was made from: StatefulSets label their pods with its whole name.
fn hash_of(pod: &Value) -> &str {
    let name = pod["metadata"]["labels"]["controller-revision-hash"].as_str().unwrap_or_default();
    name.rsplit('-').next().unwrap_or_default()
}

fn reconcile(scene: &Scene, row: &Stored, own: &[&Stored], changes: &mut Vec<Change>) {
    let (sets, set) = (kind("apps", "statefulsets"), &row.object);
    let spec = &set["spec"];
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let first = spec["ordinals"]["start"].as_i64().unwrap_or(0);
    let current = revisions::current(scene, sets, set);
    let parallel = spec["podManagementPolicy"] == "Parallel";
    changes.extend(current.changes);
    let pod_at = |number: i64| own.iter().copied().find(|pod| ordinal(&pod.object) == Some(number));
    let mut waits = false;
    for number in first..first + wanted {
        match pod_at(number) {
            None => {
                make(set, number, &current.hash, changes);
                waits = true;
            }
            Some(pod) if !is_active(&pod.object) => {
                if !is_leaving(&pod.object) {
                    changes.push(delete(kind("", "pods"), &pod.object));
                }
                waits = true;
            }
            Some(pod) => waits = !is_true(&pod.object, "Ready"),
        }
        if waits && !parallel {
            break;
        }
    }
    let mut surplus: Vec<&Stored> = own
        .iter()
        .copied()
        .filter(|pod| ordinal(&pod.object).is_some_and(|n| n < first || n >= first + wanted))
        .collect();
    surplus.sort_by_key(|pod| std::cmp::Reverse(ordinal(&pod.object)));
    let leaving = surplus.iter().any(|pod| is_leaving(&pod.object));
    for pod in surplus.iter().filter(|pod| !is_leaving(&pod.object)).take(if parallel {
        usize::MAX
    } else {
        usize::from(!leaving && !waits)
    }) {
        let name = meta(&pod.object, "name");
        let why = format!("delete Pod {name} in StatefulSet {} successful", meta(set, "name"));
        changes.push(tell(set, WHO, "SuccessfulDelete", why));
        changes.push(delete(kind("", "pods"), &pod.object));
    }
    let settled =
        own.iter().all(|pod| is_active(&pod.object) && is_true(&pod.object, "Ready")) && own.len() as i64 == wanted;
    replace_oldest(set, own, &current.hash, settled, (first, wanted), changes);
    let status = status(scene, set, own, &current.name, &current.hash);
    changes.extend(set_status(sets, row, status, None));
}

/// From the highest number down, one at a time, when all others are ready.
fn replace_oldest(
    set: &Value,
    own: &[&Stored],
    hash: &str,
    settled: bool,
    (first, wanted): (i64, i64),
    changes: &mut Vec<Change>,
) {
    if set["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return;
    }
    let from = first.max(set["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0));
    for number in (from..first + wanted).rev() {
        let Some(pod) = own.iter().find(|pod| ordinal(&pod.object) == Some(number)) else { continue };
        if hash_of(&pod.object) == hash {
            continue;
        }
        // A pod that does not work must not keep its better successor away.
        let broken = is_active(&pod.object) && !is_true(&pod.object, "Ready");
        if (settled || broken) && !is_leaving(&pod.object) {
            let why =
                format!("delete Pod {} in StatefulSet {} successful", meta(&pod.object, "name"), meta(set, "name"));
            changes.push(tell(set, WHO, "SuccessfulDelete", why));
            changes.push(delete(kind("", "pods"), &pod.object));
        }
        return;
    }
}

fn make(set: &Value, number: i64, hash: &str, changes: &mut Vec<Change>) {
    let (sets, claims) = (kind("apps", "statefulsets"), kind("", "persistentvolumeclaims"));
    let name = format!("{}-{number}", meta(set, "name"));
    let mut pod = template::pod(sets, set, &set["spec"]["template"], Some(&name));
    pod["metadata"]["labels"]["controller-revision-hash"] = json!(format!("{}-{hash}", meta(set, "name")));
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
    pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(number.to_string());
    pod["spec"]["hostname"] = json!(name);
    if let Some(service) = set["spec"]["serviceName"].as_str().filter(|service| !service.is_empty()) {
        pod["spec"]["subdomain"] = json!(service);
    }
    let mut volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    for claim in set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
        let volume = meta(claim, "name");
        let claim_name = format!("{volume}-{name}");
        volumes.retain(|known| known["name"] != volume);
        volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}}));
        let mut labels = set["spec"]["selector"]["matchLabels"].clone();
        for (key, value) in claim["metadata"]["labels"].as_object().into_iter().flatten() {
            labels[key.as_str()] = value.clone();
        }
        let mut metadata = json!({"name": claim_name, "labels": labels});
        if claim["metadata"]["annotations"].is_object() {
            metadata["annotations"] = claim["metadata"]["annotations"].clone();
        }
        let body =
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim["spec"]});
        changes.push(Change::Create { resource: claims, namespace: meta(set, "namespace").to_owned(), body });
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = json!(volumes);
    }
    let why = format!("create Pod {name} in StatefulSet {} successful", meta(set, "name"));
    changes.push(template::create(set, pod));
    changes.push(tell(set, WHO, "SuccessfulCreate", why));
}

fn status(scene: &Scene, set: &Value, own: &[&Stored], revision: &str, hash: &str) -> Value {
    let active: Vec<&Value> = own.iter().map(|row| &row.object).filter(|pod| is_active(pod)).collect();
    let wanted = set["spec"]["replicas"].as_i64().unwrap_or(1);
    let min = set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
    let (ready, available, _) = readiness(active.iter().copied(), min, scene.now);
    let updated = active.iter().filter(|pod| hash_of(pod) == hash).count();
    let done = updated as i64 == wanted && ready as i64 == wanted && active.len() as i64 == wanted;
    let before = set["status"]["currentRevision"].as_str().filter(|name| !name.is_empty());
    let current = if done { revision } else { before.unwrap_or(revision) };
    let on_current = if current == revision { updated } else { active.len() - updated };
    let mut status = json!({
        "observedGeneration": set["metadata"]["generation"], "replicas": active.len(), "currentRevision": current,
        "updateRevision": revision, "collisionCount": 0, "availableReplicas": available,
    });
    for (field, number) in [("readyReplicas", ready), ("currentReplicas", on_current), ("updatedReplicas", updated)] {
        if number > 0 {
            status[field] = json!(number);
        }
    }
    status
}
