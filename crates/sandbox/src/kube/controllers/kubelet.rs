//! What happens to a pod on its node: images are pulled, containers start, become ready, end and are stopped.

use std::collections::HashSet;

use serde_json::Value;

use super::kubelet_status::{self as shown, Ends};
use super::{Change, Scene, due_change, is_leaving, is_true, kind, spread, tell, warn};
use crate::clock::SimTime;
use crate::kube::objects::{Stored, meta, no_finalizers};

const PULL_MS: (i64, i64) = (1_200, 4_000);
const START_MS: i64 = 400;
const INIT_MS: i64 = 1_000;
/// From the signal to stop until a pod is gone.
const STOP_MS: i64 = 1_500;
/// How long a container runs that is expected to end.
const RUN_MS: (i64, i64) = (2_000, 4_000);
const FIRST_BACK_OFF_MS: i64 = 10_000;
const MAX_BACK_OFF_MS: i64 = 300_000;
const RETRY_MS: i64 = 2_000;

pub fn run(scene: &Scene) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut pulled: Option<HashSet<(String, String)>> = None;
    for row in scene.objects.rows_of("", "pods") {
        let pod = &row.object;
        if is_leaving(pod) {
            stop(scene, row, &mut changes);
            continue;
        }
        let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let placed = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        if over || !placed || row.due.is_some_and(|due| due > scene.now) || is_settled(row) {
            continue;
        }
        let known = pulled.get_or_insert_with(|| images_on_nodes(scene));
        advance(scene, row, known, &mut changes);
    }
    changes
}

/// A pod that changes no more by itself: it runs and nothing in it ends.
fn is_settled(row: &Stored) -> bool {
    row.due.is_none() && (is_true(&row.object, "Ready") || is_stuck(&row.object))
}

fn is_stuck(pod: &Value) -> bool {
    pod["status"]["containerStatuses"].as_array().into_iter().flatten().any(|status| {
        status["state"]["waiting"]["reason"] == "ImagePullBackOff"
            || status["state"]["waiting"]["reason"] == "InvalidImageName"
    })
}

fn images_on_nodes(scene: &Scene) -> HashSet<(String, String)> {
    let mut known = HashSet::new();
    for row in scene.objects.rows_of("", "pods") {
        let node = row.object["spec"]["nodeName"].as_str().unwrap_or_default();
        for status in row.object["status"]["containerStatuses"].as_array().into_iter().flatten() {
            if status["imageID"].as_str().is_some_and(|id| !id.is_empty()) {
                known.insert((node.to_owned(), status["image"].as_str().unwrap_or_default().to_owned()));
            }
        }
    }
    known
}

fn stop(scene: &Scene, row: &Stored, changes: &mut Vec<Change>) {
    let (pods, pod) = (kind("", "pods"), &row.object);
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    // Deletion left no time for it: this is where the signal to stop is sent.
    let Some(due) = row.due else {
        let mut stopping = pod.clone();
        let due = scene.pace.after(scene.now, (grace * 1000).min(STOP_MS));
        if is_true(pod, "Ready") {
            shown::not_ready(&mut stopping["status"], scene.now);
        }
        for container in pod["spec"]["containers"].as_array().into_iter().flatten().filter(|_| grace > 0) {
            let name = container["name"].as_str().unwrap_or_default();
            changes.push(tell(pod, "kubelet", "Killing", format!("Stopping container {name}")));
        }
        changes.push(Change::Set { resource: pods, object: stopping, due: Some(due) });
        return;
    };
    if due <= scene.now && no_finalizers(pod) {
        let (namespace, name) = (meta(pod, "namespace").to_owned(), meta(pod, "name").to_owned());
        changes.push(Change::Forget { resource: pods, namespace, name });
    }
}

/// One stage further.
fn advance(scene: &Scene, row: &Stored, pulled: &HashSet<(String, String)>, changes: &mut Vec<Change>) {
    let pods = kind("", "pods");
    let mut pod = row.object.clone();
    let now = scene.now;
    let begun = pod["status"]["containerStatuses"].is_array();
    let due = if !begun {
        shown::created(scene, &mut pod);
        match missing(scene, &pod) {
            Some((reason, why)) => {
                changes.push(warn(&pod, "kubelet", reason, why));
                Some(scene.pace.after(now, RETRY_MS).max(now.plus_ms(1)))
            }
            None => Some(scene.pace.after(now, pull_ms(&pod, pulled, changes))),
        }
    } else if let Some((reason, why)) = missing(scene, &pod) {
        if reason == "Failed" {
            shown::waiting(&mut pod["status"], "CreateContainerConfigError", &why);
        }
        Some(now.plus_ms(RETRY_MS))
    } else if let Some((image, name)) = shown::unpullable(&pod) {
        refuse_image(&mut pod, &image, &name, changes)
    } else if pod["status"]["phase"] == "Pending" {
        start(scene, &mut pod, changes)
    } else if shown::is_waiting_to_restart(&pod) {
        shown::restarted(&mut pod, now);
        changes.push(tell(&pod, "kubelet", "Started", format!("Started container {}", first_container(&pod))));
        after_start(scene, &pod)
    } else if !is_true(&pod, "Ready") && !has_ended(scene, &pod) {
        shown::ready(&mut pod["status"], now);
        ends_at(scene, &pod)
    } else {
        end(scene, &mut pod, changes)
    };
    if pod == row.object {
        if due != row.due {
            changes.push(due_change(pods, &pod, due));
        }
        return;
    }
    changes.insert(0, Change::Set { resource: pods, object: pod, due });
}

fn first_container(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["name"].as_str().unwrap_or_default()
}

/// What a pod mounts or reads that is not there.
fn missing(scene: &Scene, pod: &Value) -> Option<(&'static str, String)> {
    let namespace = meta(pod, "namespace");
    let there = |plural: &str, name: &str| scene.objects.peek("", plural, namespace, name).is_some();
    for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        for (source, field, plural, word) in
            [("configMap", "name", "configmaps", "configmap"), ("secret", "secretName", "secrets", "secret")]
        {
            let Some(name) = volume[source][field].as_str() else { continue };
            if volume[source]["optional"] != true && !there(plural, name) {
                let volume = volume["name"].as_str().unwrap_or_default();
                let why = format!("MountVolume.SetUp failed for volume \"{volume}\" : {word} \"{name}\" not found");
                return Some(("FailedMount", why));
            }
        }
    }
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        let from_env = container["env"].as_array().into_iter().flatten().map(|env| &env["valueFrom"]);
        let whole = container["envFrom"].as_array().into_iter().flatten();
        for source in from_env.chain(whole) {
            for (field, plural, word) in [
                ("configMapKeyRef", "configmaps", "configmap"),
                ("secretKeyRef", "secrets", "secret"),
                ("configMapRef", "configmaps", "configmap"),
                ("secretRef", "secrets", "secret"),
            ] {
                let Some(name) = source[field]["name"].as_str() else { continue };
                if source[field]["optional"] != true && !there(plural, name) {
                    return Some(("Failed", format!("Error: {word} \"{name}\" not found")));
                }
            }
        }
    }
    None
}

fn pull_ms(pod: &Value, pulled: &HashSet<(String, String)>, changes: &mut Vec<Change>) -> i64 {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let mut total = START_MS;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            let image = container["image"].as_str().unwrap_or_default();
            if !pulled.contains(&(node.to_owned(), image.to_owned())) {
                total += spread(image, PULL_MS.0, PULL_MS.1);
                changes.push(tell(pod, "kubelet", "Pulling", format!("Pulling image \"{image}\"")));
            }
        }
    }
    total
}

fn refuse_image(pod: &mut Value, image: &str, name: &str, changes: &mut Vec<Change>) -> Option<SimTime> {
    if image.chars().any(|c| c.is_ascii_uppercase() || c.is_whitespace()) && !image.contains(':') {
        shown::waiting_one(
            &mut pod["status"],
            name,
            "InvalidImageName",
            &format!(
                "Failed to apply default image tag \"{image}\": couldn't parse image name \"{image}\": invalid reference format"
            ),
        );
        return None;
    }
    let why = format!(
        "failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": {image}: not found"
    );
    let waits = format!("Back-off pulling image \"{image}\": ErrImagePull: rpc error: code = NotFound desc = {why}");
    shown::waiting_one(&mut pod["status"], name, "ImagePullBackOff", &waits);
    changes.push(warn(
        pod,
        "kubelet",
        "Failed",
        format!("Failed to pull image \"{image}\": rpc error: code = NotFound desc = {why}"),
    ));
    changes.push(warn(pod, "kubelet", "Failed", "Error: ErrImagePull".into()));
    changes.push(tell(pod, "kubelet", "BackOff", format!("Back-off pulling image \"{image}\"")));
    changes.push(warn(pod, "kubelet", "Failed", "Error: ImagePullBackOff".into()));
    None
}

/// Images are there: init containers run one after the other, then all containers start.
fn start(scene: &Scene, pod: &mut Value, changes: &mut Vec<Change>) -> Option<SimTime> {
    let (now, at) = (scene.now, shown::init_at(pod));
    if let Some(at) = at {
        let name = pod["spec"]["initContainers"][at]["name"].as_str().unwrap_or_default().to_owned();
        let stays = pod["spec"]["initContainers"][at]["restartPolicy"] == "Always";
        if !shown::init_started(pod, at) {
            shown::start_init(pod, at, now);
            changes.push(tell(pod, "kubelet", "Created", format!("Created container: {name}")));
            changes.push(tell(pod, "kubelet", "Started", format!("Started container {name}")));
            if !stays {
                return Some(scene.pace.after(now, INIT_MS));
            }
        }
        if let Ends::After(_, code @ 1..) = shown::ends(&pod["spec"]["initContainers"][at]) {
            shown::fail_init(pod, at, code, now);
            changes.push(warn(
                pod,
                "kubelet",
                "BackOff",
                format!("Back-off restarting failed container {name} in pod {}", meta(pod, "name")),
            ));
            return None;
        }
        shown::end_init(pod, at, now, stays);
        return Some(now);
    }
    let containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
    for container in &containers {
        let text = |field: &str| container[field].as_str().unwrap_or_default();
        let image = text("image");
        changes.push(tell(pod, "kubelet", "Pulled", format!("Container image \"{image}\" already present on machine")));
        changes.push(tell(pod, "kubelet", "Created", format!("Created container: {}", text("name"))));
        changes.push(tell(pod, "kubelet", "Started", format!("Started container {}", text("name"))));
    }
    shown::running(scene, pod);
    after_start(scene, pod)
}

/// A probe may keep a pod from being ready for a while.
fn after_start(scene: &Scene, pod: &Value) -> Option<SimTime> {
    let delay = |probe: &Value| {
        if probe.is_object() { probe["initialDelaySeconds"].as_i64().unwrap_or(0) * 1000 + 1000 } else { 0 }
    };
    let containers = pod["spec"]["containers"].as_array();
    let wait = containers
        .into_iter()
        .flatten()
        .map(|container| delay(&container["readinessProbe"]).max(delay(&container["startupProbe"])))
        .max()
        .unwrap_or(0);
    Some(scene.pace.after(scene.now, wait))
}

fn ending(pod: &Value) -> Ends {
    let again = pod["spec"]["restartPolicy"].as_str() != Some("Always");
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut longest = Ends::Never;
    for container in containers {
        match shown::ends(container) {
            Ends::Never if again => {
                longest = longest.later(Ends::After(spread(meta(pod, "uid"), RUN_MS.0, RUN_MS.1), 0))
            }
            other => longest = longest.later(other),
        }
    }
    longest
}

fn started_at(pod: &Value) -> Option<SimTime> {
    super::time_of(&pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])
}

fn ends_at(scene: &Scene, pod: &Value) -> Option<SimTime> {
    match ending(pod) {
        Ends::Never => None,
        // Rather than nothing: a step later, so that a pod that runs is seen to have run.
        Ends::After(ms, _) => Some(scene.pace.after(scene.now, ms)),
    }
}

fn has_ended(scene: &Scene, pod: &Value) -> bool {
    matches!(ending(pod), Ends::After(ms, code) if code != 0 && started_at(pod).is_some_and(|at| at.plus_ms(ms) <= scene.now))
        && !scene.pace.instant
}

fn end(scene: &Scene, pod: &mut Value, changes: &mut Vec<Change>) -> Option<SimTime> {
    let Ends::After(_, code) = ending(pod) else { return None };
    let policy = pod["spec"]["restartPolicy"].as_str().unwrap_or("Always").to_owned();
    if policy == "Never" || (policy == "OnFailure" && code == 0) {
        shown::over(pod, code, scene.now);
        return None;
    }
    let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(0);
    shown::crashed(pod, code, scene.now);
    let name = first_container(pod).to_owned();
    let why = format!(
        "Back-off restarting failed container {name} in pod {}_{}({})",
        meta(pod, "name"),
        meta(pod, "namespace"),
        meta(pod, "uid")
    );
    changes.push(warn(pod, "kubelet", "BackOff", why));
    let wait = FIRST_BACK_OFF_MS.saturating_mul(1 << restarts.clamp(0, 10)).min(MAX_BACK_OFF_MS);
    // A container that fails at once would be restarted without end in a world where nothing takes time.
    Some(scene.now.plus_ms(wait))
}
