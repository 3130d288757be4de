//! Deployments: one ReplicaSet for each revision of the template, and the way from one to the next.

use serde_json::{Value, json};

use super::{
    Change, Scene, by_controller, condition, controller_of, delete, find_condition, is_leaving, kind, owner_reference,
    set_status, share, tell, template, time_of,
};
use crate::clock::SimTime;
use crate::kube::objects::{Stored, meta};

const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
const WHO: &str = "deployment-controller";

pub fn run(scene: &Scene) -> Vec<Change> {
    let sets = by_controller(scene.objects, "apps", "replicasets");
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("apps", "deployments") {
        let own: Vec<&Stored> = sets.get(meta(&row.object, "uid")).into_iter().flatten().copied().collect();
        if !is_leaving(&row.object) {
            reconcile(scene, row, &own, &mut changes);
        }
    }
    changes
}

/// Pods of these ReplicaSets that are not over yet, those that are being stopped included.
fn pods_left(scene: &Scene, sets: &[&Stored]) -> usize {
    let pods = scene.objects.rows_of("", "pods").map(|row| &row.object);
    let left = pods.filter(|pod| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
    let owned = |pod: &Value| {
        let owner = controller_of(pod).map(|owner| &owner["uid"]);
        sets.iter().any(|set| owner == Some(&set.object["metadata"]["uid"]))
    };
    left.filter(|pod| owned(pod)).count()
}

fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn revision(object: &Value) -> i64 {
    object["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether two templates make the same pods.
fn same_template(set: &Value, template: &Value) -> bool {
    let mut theirs = set["spec"]["template"].clone();
    if let Some(labels) = theirs["metadata"]["labels"].as_object_mut() {
        labels.remove("pod-template-hash");
    }
    theirs == *template
}

/// How many pods there may be beyond the wanted ones, and how many of those may be missing.
fn bounds(deployment: &Value, wanted: i64) -> (i64, i64) {
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    let surge = share(&rolling["maxSurge"], wanted, true);
    let missing = share(&rolling["maxUnavailable"], wanted, false);
    // Nothing could ever change if both were zero.
    if surge == 0 && missing == 0 { (0, 1) } else { (surge, missing.min(wanted)) }
}

fn reconcile(scene: &Scene, row: &Stored, own: &[&Stored], changes: &mut Vec<Change>) {
    let deployment = &row.object;
    let (spec, wanted) = (&deployment["spec"], count(&deployment["spec"]["replicas"]));
    let recreate = spec["strategy"]["type"] == "Recreate";
    let (surge, missing) = if recreate { (0, wanted) } else { bounds(deployment, wanted) };
    let current = own.iter().copied().find(|set| same_template(&set.object, &spec["template"]));
    let old: Vec<&Stored> = own
        .iter()
        .copied()
        .filter(|set| current.is_none_or(|new| meta(&set.object, "uid") != meta(&new.object, "uid")))
        .collect();
    let (status, due) = status(scene, row, own, current);
    if spec["paused"] == true {
        scale_by_share(deployment, own, wanted, surge, changes);
        changes.extend(set_status(kind("apps", "deployments"), row, status, due));
        return;
    }
    let newest = own.iter().map(|set| revision(&set.object)).max().unwrap_or(0);
    let wait = recreate && pods_left(scene, &old) > 0;
    match current {
        None => {
            let total: i64 = own.iter().map(|set| count(&set.object["spec"]["replicas"])).sum();
            let room = if recreate { wanted } else { (wanted + surge - total).clamp(0, wanted) };
            if !wait {
                create_set(deployment, room, newest + 1, wanted, surge, changes);
            }
        }
        Some(new) => {
            // Going back to an earlier template makes its ReplicaSet the newest revision.
            let at = revision(&new.object);
            let is_latest = old.iter().all(|set| revision(&set.object) < at);
            let at = if is_latest && at > 0 { at } else { newest + 1 };
            scale_new(deployment, new, &old, (wanted, surge, at, recreate, wait), changes);
        }
    }
    scale_old(deployment, current, &old, (wanted, missing, recreate), changes);
    clean_up(spec, &old, changes);
    let mut told = row.object.clone();
    told["status"] = status;
    let at = current.map_or(newest + 1, |new| revision(&new.object).max(1));
    told["metadata"]["annotations"][REVISION] = json!(at.to_string());
    if told["metadata"] != row.object["metadata"] {
        changes.push(Change::Set { resource: kind("apps", "deployments"), object: told, due });
    } else {
        changes.extend(set_status(kind("apps", "deployments"), row, told["status"].take(), due));
    }
}

fn create_set(deployment: &Value, replicas: i64, at: i64, wanted: i64, surge: i64, changes: &mut Vec<Change>) {
    let deployments = kind("apps", "deployments");
    let mut template = deployment["spec"]["template"].clone();
    let hash = template::hash(&template);
    template["metadata"]["labels"]["pod-template-hash"] = json!(hash);
    let name = format!("{}-{hash}", meta(deployment, "name"));
    let mut annotations = deployment["metadata"]["annotations"].clone();
    if let Some(map) = annotations.as_object_mut() {
        map.retain(|key, _| key != "kubectl.kubernetes.io/last-applied-configuration");
    }
    annotations[REVISION] = json!(at.to_string());
    annotations[DESIRED] = json!(wanted.to_string());
    annotations[MAX] = json!((wanted + surge).to_string());
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"]["pod-template-hash"] = json!(hash);
    let mut body = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "labels": template["metadata"]["labels"], "annotations": annotations,
                     "ownerReferences": owner_reference(deployments, deployment)},
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    });
    if let Some(seconds) = deployment["spec"]["minReadySeconds"].as_i64().filter(|seconds| *seconds > 0) {
        body["spec"]["minReadySeconds"] = json!(seconds);
    }
    if replicas > 0 {
        changes.push(tell(
            deployment,
            WHO,
            "ScalingReplicaSet",
            format!("Scaled up replica set {name} from 0 to {replicas}"),
        ));
    }
    let namespace = meta(deployment, "namespace").to_owned();
    changes.push(Change::Create { resource: kind("apps", "replicasets"), namespace, body });
}

/// Changes a ReplicaSet's size and annotations, and tells of it.
fn resize(deployment: &Value, set: &Stored, replicas: i64, annotations: &[(&str, String)], changes: &mut Vec<Change>) {
    let before = count(&set.object["spec"]["replicas"]);
    let mut object = set.object.clone();
    object["spec"]["replicas"] = json!(replicas);
    for (key, value) in annotations {
        object["metadata"]["annotations"][*key] = json!(value);
    }
    if object == set.object {
        return;
    }
    if before != replicas {
        let way = if replicas > before { "up" } else { "down" };
        let why = format!("Scaled {way} replica set {} from {before} to {replicas}", meta(&object, "name"));
        changes.push(tell(deployment, WHO, "ScalingReplicaSet", why));
    }
    changes.push(Change::Set { resource: kind("apps", "replicasets"), object, due: set.due });
}

fn scale_new(
    deployment: &Value,
    new: &Stored,
    old: &[&Stored],
    (wanted, surge, at, recreate, wait): (i64, i64, i64, bool, bool),
    changes: &mut Vec<Change>,
) {
    let now = count(&new.object["spec"]["replicas"]);
    let others: i64 = old.iter().map(|set| count(&set.object["spec"]["replicas"])).sum();
    let size = if now > wanted {
        wanted
    } else if recreate {
        if wait { now } else { wanted }
    } else {
        (now + (wanted + surge - now - others).max(0)).min(wanted)
    };
    let marks = [(REVISION, at.to_string()), (DESIRED, wanted.to_string()), (MAX, (wanted + surge).to_string())];
    resize(deployment, new, size, &marks, changes);
}

fn scale_old(
    deployment: &Value,
    new: Option<&Stored>,
    old: &[&Stored],
    (wanted, missing, recreate): (i64, i64, bool),
    changes: &mut Vec<Change>,
) {
    let live: Vec<&Stored> = old.iter().copied().filter(|set| count(&set.object["spec"]["replicas"]) > 0).collect();
    if recreate {
        live.iter().for_each(|set| resize(deployment, set, 0, &[], changes));
        return;
    }
    let Some(new) = new else { return };
    let size = |set: &Stored| count(&set.object["spec"]["replicas"]);
    // Pods that are about to be deleted do not count, although the status still has them.
    let available = |set: &Stored| count(&set.object["status"]["availableReplicas"]).min(size(set));
    let least = wanted - missing;
    let total: i64 = size(new) + live.iter().map(|set| size(set)).sum::<i64>();
    // Pods of the new revision that are not there yet must not be counted on.
    let new_missing = (size(new) - available(new)).max(0);
    let mut spare = total - least - new_missing;
    let mut sizes: Vec<(&Stored, i64)> = live.iter().map(|set| (*set, size(set))).collect();
    sizes.sort_by_key(|(set, _)| revision(&set.object));
    for (set, left) in &mut sizes {
        // Pods that do not work are no loss.
        let broken = (size(set) - available(set)).clamp(0, spare.max(0));
        *left -= broken;
        spare -= broken;
    }
    let ready: i64 = available(new) + live.iter().map(|set| available(set)).sum::<i64>();
    let mut spare = (ready - least).max(0);
    for (_, left) in &mut sizes {
        let down = spare.min(*left);
        *left -= down;
        spare -= down;
    }
    for (set, left) in sizes {
        resize(deployment, set, left, &[], changes);
    }
}

/// A paused rollout still follows the number of replicas; with one live ReplicaSet that one gets all.
fn scale_by_share(deployment: &Value, own: &[&Stored], wanted: i64, surge: i64, changes: &mut Vec<Change>) {
    let live: Vec<&&Stored> = own.iter().filter(|set| count(&set.object["spec"]["replicas"]) > 0).collect();
    let marks = [(DESIRED, wanted.to_string()), (MAX, (wanted + surge).to_string())];
    if let [only] = live.as_slice() {
        resize(deployment, only, wanted, &marks, changes);
    }
}

fn clean_up(spec: &Value, old: &[&Stored], changes: &mut Vec<Change>) {
    let keep = spec["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize;
    let mut idle: Vec<&&Stored> = old
        .iter()
        .filter(|set| {
            let object = &set.object;
            count(&object["spec"]["replicas"]) == 0 && count(&object["status"]["replicas"]) == 0 && !is_leaving(object)
        })
        .collect();
    idle.sort_by_key(|set| revision(&set.object));
    let surplus = idle.len().saturating_sub(keep);
    changes.extend(idle.into_iter().take(surplus).map(|set| delete(kind("apps", "replicasets"), &set.object)));
}

fn status(scene: &Scene, row: &Stored, own: &[&Stored], current: Option<&Stored>) -> (Value, Option<SimTime>) {
    let (deployment, now) = (&row.object, scene.now);
    let wanted = count(&deployment["spec"]["replicas"]);
    let sum = |field: &str| own.iter().map(|set| count(&set.object["status"][field])).sum::<i64>();
    let (replicas, ready, available) = (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
    let updated = current.map_or(0, |set| count(&set.object["status"]["replicas"]));
    let mut status = json!({"observedGeneration": deployment["metadata"]["generation"]});
    for (field, number) in [
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", (wanted.max(replicas) - available).max(0)),
    ] {
        if number > 0 {
            status[field] = json!(number);
        }
    }
    let (_, missing) = bounds(deployment, wanted);
    let old = &deployment["status"];
    let up = available >= wanted - missing;
    let (word, reason, message) = if up {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    let stamp = |mut one: Value, moved: bool| {
        let same = find_condition(old, one["type"].as_str().unwrap_or_default()).filter(|known| {
            !moved
                && known["status"] == one["status"]
                && known["reason"] == one["reason"]
                && known["message"] == one["message"]
        });
        one["lastUpdateTime"] = same.map_or_else(|| json!(now.rfc3339()), |known| known["lastUpdateTime"].clone());
        one
    };
    let is_available = stamp(condition(old, "Available", word, reason, message, now), false);
    let before = |field: &str| count(&old[field]);
    let moved = updated > before("updatedReplicas")
        || ready > before("readyReplicas")
        || available > before("availableReplicas");
    let complete = updated == wanted && replicas == wanted && available == wanted && current.is_some();
    let (progress, due) = progressing(scene, row, current, complete, moved);
    status["conditions"] = json!([is_available, stamp(progress, moved)]);
    (status, due)
}

/// Whether the rollout gets on, and when it is given up.
fn progressing(
    scene: &Scene,
    row: &Stored,
    current: Option<&Stored>,
    complete: bool,
    moved: bool,
) -> (Value, Option<SimTime>) {
    let (deployment, now) = (&row.object, scene.now);
    let (old, name) = (&deployment["status"], current.map_or("", |set| meta(&set.object, "name")));
    let set =
        |status: &str, reason: &str, message: String| condition(old, "Progressing", status, reason, &message, now);
    let known = find_condition(old, "Progressing");
    if deployment["spec"]["paused"] == true {
        return (set("Unknown", "DeploymentPaused", "Deployment is paused".into()), None);
    }
    if complete {
        return (
            set("True", "NewReplicaSetAvailable", format!("ReplicaSet \"{name}\" has successfully progressed.")),
            None,
        );
    }
    let seconds = deployment["spec"]["progressDeadlineSeconds"].as_i64().unwrap_or(600);
    let observed = old["observedGeneration"] == deployment["metadata"]["generation"];
    let since = known.and_then(|known| time_of(&known["lastUpdateTime"])).unwrap_or(now);
    let running =
        known.is_some_and(|known| known["reason"] != "NewReplicaSetAvailable" && known["reason"] != "DeploymentPaused");
    let deadline = since.plus_ms(seconds * 1000);
    if observed && running && !moved && deadline <= now {
        let why = format!("ReplicaSet \"{name}\" has timed out progressing.");
        return (set("False", "ProgressDeadlineExceeded", why), None);
    }
    if known.is_some_and(|known| known["reason"] == "ProgressDeadlineExceeded") && observed && !moved {
        return (known.cloned().unwrap_or_default(), None);
    }
    let due = if observed && running && !moved { deadline } else { now.plus_ms(seconds * 1000) };
    if current.is_none() {
        return (set("True", "NewReplicaSetCreated", "Created new replica set".into()), Some(due));
    }
    (set("True", "ReplicaSetUpdated", format!("ReplicaSet \"{name}\" is progressing.")), Some(due))
}
