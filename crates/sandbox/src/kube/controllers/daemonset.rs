//! DaemonSets: one pod on every node that it fits.

use serde_json::{Value, json};

use super::placement::{fits_node, matches_node_affinity};
use super::replicaset::is_active;
use super::{
    Change, Scene, by_controller, delete, is_leaving, is_true, kind, revisions, set_status, share, tell, template,
};
use crate::kube::objects::{Stored, meta};

const WHO: &str = "daemonset-controller";
/// Conditions of a node that do not keep daemons away.
const TOLERATED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

pub fn run(scene: &Scene) -> Vec<Change> {
    let pods = by_controller(scene.objects, "", "pods");
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("apps", "daemonsets").filter(|row| !is_leaving(&row.object)) {
        let own: Vec<&Stored> = pods.get(meta(&row.object, "uid")).into_iter().flatten().copied().collect();
        reconcile(scene, row, &own, &mut changes);
    }
    changes
}

/// The node that a pod of a DaemonSet is made for: its affinity says so before it is placed.
fn node_of(pod: &Value) -> &str {
    let term = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        [0];
    let field = term["matchFields"][0]["values"][0].as_str();
    pod["spec"]["nodeName"].as_str().or(field).unwrap_or_default()
}

fn pod_for(set: &Value, node: &str, hash: &str) -> Value {
    let mut pod = template::pod(kind("apps", "daemonsets"), set, &set["spec"]["template"], None);
    pod["metadata"]["labels"]["controller-revision-hash"] = json!(hash);
    let only = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let required = &mut pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    match required.as_array_mut().filter(|terms| !terms.is_empty()) {
        Some(terms) => terms.iter_mut().for_each(|term| term["matchFields"] = json!([only])),
        None => *required = json!([{"matchFields": [only]}]),
    }
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let network = ("node.kubernetes.io/network-unavailable", "NoSchedule");
    let extra = (pod["spec"]["hostNetwork"] == true).then_some(&network);
    for (key, effect) in TOLERATED.iter().chain(extra) {
        if !tolerations.iter().any(|known| known["key"] == *key && known["effect"] == *effect) {
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": effect}));
        }
    }
    pod["spec"]["tolerations"] = json!(tolerations);
    pod
}

fn reconcile(scene: &Scene, row: &Stored, own: &[&Stored], changes: &mut Vec<Change>) {
    let (sets, pods, set) = (kind("apps", "daemonsets"), kind("", "pods"), &row.object);
    let current = revisions::current(scene, sets, set);
    changes.extend(current.changes);
    let hash = current.hash.as_str();
    let is_updated = |pod: &Value| pod["metadata"]["labels"]["controller-revision-hash"] == hash;
    let (mut wanted, mut made, mut updated, mut ready) = (0, 0, 0, 0);
    let mut outdated: Vec<&Value> = Vec::new();
    let mut misplaced = 0;
    for node in scene.objects.rows_of("", "nodes").map(|row| &row.object) {
        let name = meta(node, "name");
        let here: Vec<&Value> = own.iter().map(|row| &row.object).filter(|pod| node_of(pod) == name).collect();
        let active: Vec<&Value> = here.iter().copied().filter(|pod| is_active(pod)).collect();
        let body = pod_for(set, name, hash);
        let runs =
            matches_node_affinity(&body["spec"], node) && fits_node(&body["spec"], node, &["NoSchedule", "NoExecute"]);
        if !runs {
            misplaced += active.len();
            let stays = matches_node_affinity(&body["spec"], node) && fits_node(&body["spec"], node, &["NoExecute"]);
            if !stays {
                changes.extend(active.iter().map(|pod| delete(pods, pod)));
            }
            continue;
        }
        wanted += 1;
        // A pod that ended is replaced.
        changes.extend(here.iter().filter(|pod| !is_active(pod) && !is_leaving(pod)).map(|pod| delete(pods, pod)));
        match active.split_first() {
            None if here.is_empty() => changes.push(template::create(set, body)),
            None => {}
            Some((first, rest)) => {
                made += 1;
                updated += usize::from(is_updated(first));
                ready += usize::from(is_true(first, "Ready"));
                if !is_updated(first) {
                    outdated.push(first);
                }
                changes.extend(rest.iter().map(|pod| delete(pods, pod)));
            }
        }
    }
    if set["spec"]["updateStrategy"]["type"] != "OnDelete" {
        let most = share(&set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], wanted, true).max(1);
        let missing = wanted - ready as i64;
        outdated.sort_by_key(|pod| is_true(pod, "Ready"));
        for (at, pod) in outdated.into_iter().enumerate() {
            if !is_true(pod, "Ready") || at as i64 + missing < most {
                changes.push(tell(set, WHO, "SuccessfulDelete", format!("Deleted pod: {}", meta(pod, "name"))));
                changes.push(delete(pods, pod));
            }
        }
    }
    let wanted = wanted as usize;
    let mut status = json!({
        "observedGeneration": set["metadata"]["generation"], "desiredNumberScheduled": wanted, "currentNumberScheduled": made,
        "numberMisscheduled": misplaced, "numberReady": ready,
    });
    for (field, number) in [
        ("updatedNumberScheduled", updated),
        ("numberAvailable", ready),
        ("numberUnavailable", wanted.saturating_sub(ready)),
    ] {
        if number > 0 {
            status[field] = json!(number);
        }
    }
    changes.extend(set_status(sets, row, status, None));
}
