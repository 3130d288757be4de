//! The status of a pod at each stage of its life, as a kubelet reports it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Scene, condition, find_condition};
use crate::clock::SimTime;
use crate::kube::objects::meta;
use crate::kube::quantity;

/// When a container ends by itself, with which code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ends {
    Never,
    After(i64, i64),
}

impl Ends {
    pub fn later(self, other: Ends) -> Ends {
        match (self, other) {
            (Ends::Never, other) => other,
            (this, Ends::Never) => this,
            (Ends::After(a, x), Ends::After(b, y)) => Ends::After(a.max(b), x.max(y)),
        }
    }
}

/// Nothing is run, so what a container does is read off its command: `sleep 5`, `exit 3`, `true` and `false` end, anything else
/// runs as long as its pod does.
pub fn ends(container: &Value) -> Ends {
    let words = |field: &str| -> Vec<String> {
        container[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let line = [words("command"), words("args")].concat().join(" ");
    let last = line.rsplit([';', '&', '\n']).next().unwrap_or_default().trim();
    let last = ["sh -c", "/bin/sh -c", "bash -c", "/bin/bash -c"]
        .iter()
        .fold(last, |text, shell| text.strip_prefix(shell).unwrap_or(text))
        .trim();
    let mut parts = last.split_whitespace();
    match (parts.next(), parts.next().and_then(|number| number.parse::<i64>().ok())) {
        (Some("exit"), code) => Ends::After(500, code.unwrap_or(0)),
        (Some("false" | "/bin/false"), None) => Ends::After(500, 1),
        (Some("true" | "/bin/true"), None) => Ends::After(500, 0),
        (Some("sleep"), Some(seconds)) => Ends::After(seconds.saturating_mul(1000), 0),
        _ => Ends::Never,
    }
}

/// Images that cannot be pulled: from a registry whose name ends in `.invalid`, or with a tag that says so.
fn can_be_pulled(image: &str) -> bool {
    let registry = image.split('/').next().unwrap_or_default().split(':').next().unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|name| name.split_once(':')).map_or("", |(_, tag)| tag);
    !(registry.ends_with(".invalid") || registry == "invalid" || tag == "does-not-exist" || image.contains(' '))
}

/// The first image that cannot be pulled, and its container.
pub fn unpullable(pod: &Value) -> Option<(String, String)> {
    ["initContainers", "containers"].iter().find_map(|list| {
        let containers = pod["spec"][*list].as_array()?;
        let bad =
            containers.iter().find(|container| !can_be_pulled(container["image"].as_str().unwrap_or_default()))?;
        let text = |field: &str| bad[field].as_str().unwrap_or_default().to_owned();
        Some((text("image"), text("name")))
    })
}

fn full_name(image: &str) -> String {
    let tagged = if image.rsplit('/').next().is_some_and(|last| last.contains([':', '@'])) {
        image.to_owned()
    } else {
        format!("{image}:latest")
    };
    match tagged.split_once('/') {
        None => format!("docker.io/library/{tagged}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => tagged,
        Some(_) => format!("docker.io/{tagged}"),
    }
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn image_id(image: &str) -> String {
    let full = full_name(image);
    let name = full.rsplit_once(':').map_or(full.as_str(), |(name, _)| name);
    format!("{name}@sha256:{}", digest(&full))
}

fn container_id(pod: &Value, name: &str, restarts: i64) -> String {
    format!("containerd://{}", digest(&format!("{}/{name}/{restarts}", meta(pod, "uid"))))
}

fn statuses<'a>(pod: &'a mut Value, list: &str) -> &'a mut Vec<Value> {
    let field = if list == "initContainers" { "initContainerStatuses" } else { "containerStatuses" };
    let value = &mut pod["status"][field];
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().unwrap_or_else(|| unreachable!("made a list just above"))
}

fn conditions(status: &mut Value, wanted: &[(&str, bool, &str, &str)], now: SimTime) {
    let old = status.clone();
    let mut list: Vec<Value> = Vec::new();
    for (kind, yes, reason, message) in wanted {
        list.push(condition(&old, kind, if *yes { "True" } else { "False" }, reason, message, now));
    }
    for kept in old["conditions"].as_array().into_iter().flatten() {
        if !wanted.iter().any(|(kind, ..)| kept["type"] == *kind) {
            list.push(kept.clone());
        }
    }
    status["conditions"] = json!(list);
}

fn names(pod: &Value, list: &str) -> String {
    let names: Vec<&str> =
        pod["spec"][list].as_array().into_iter().flatten().filter_map(|container| container["name"].as_str()).collect();
    names.join(" ")
}

/// The kubelet has seen the pod.
pub fn created(scene: &Scene, pod: &mut Value) {
    let now = scene.now;
    let has_init = pod["spec"]["initContainers"].as_array().is_some_and(|list| !list.is_empty());
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    let host = scene.objects.peek("", "nodes", "", &node).and_then(|node| {
        let addresses = node["status"]["addresses"].as_array()?;
        addresses.iter().find(|address| address["type"] == "InternalIP").map(|address| address["address"].clone())
    });
    let host = host.unwrap_or_else(|| json!("192.168.1.1"));
    let not_ready = format!("containers with unready status: [{}]", names(pod, "containers"));
    let incomplete = format!("containers with incomplete status: [{}]", names(pod, "initContainers"));
    let qos = qos(&pod["spec"]);
    let status = &mut pod["status"];
    status["phase"] = json!("Pending");
    status["startTime"] = json!(now.rfc3339());
    status["hostIP"] = host.clone();
    status["hostIPs"] = json!([{"ip": host}]);
    status["qosClass"] = json!(qos);
    let initialized = if has_init { ("ContainersNotInitialized", incomplete.as_str()) } else { ("", "") };
    conditions(
        status,
        &[
            ("PodReadyToStartContainers", false, "", ""),
            ("Initialized", !has_init, initialized.0, initialized.1),
            ("Ready", false, "ContainersNotReady", &not_ready),
            ("ContainersReady", false, "ContainersNotReady", &not_ready),
            ("PodScheduled", true, "", ""),
        ],
        now,
    );
    let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
    for list in ["initContainers", "containers"] {
        let waiting: Vec<Value> = pod["spec"][list]
            .as_array()
            .into_iter()
            .flatten()
            .map(|container| {
                json!({
                    "name": container["name"], "image": container["image"], "imageID": "", "ready": false, "restartCount": 0,
                    "started": false, "lastState": {}, "state": {"waiting": {"reason": reason}},
                })
            })
            .collect();
        if !waiting.is_empty() || list == "containers" {
            *statuses(pod, list) = waiting;
        }
    }
}

pub fn qos(spec: &Value) -> &'static str {
    let containers =
        || ["containers", "initContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten());
    let amount =
        |container: &Value, part: &str, name: &str| container["resources"][part].get(name).map(quantity::parse);
    let any = containers().any(|c| {
        ["requests", "limits"]
            .iter()
            .any(|part| ["cpu", "memory"].iter().any(|name| amount(c, part, name).is_some_and(|n| n > 0)))
    });
    if !any {
        return "BestEffort";
    }
    let guaranteed = containers().all(|c| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = amount(c, "limits", name);
            limit.is_some() && amount(c, "requests", name).is_none_or(|request| Some(request) == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

pub fn waiting(status: &mut Value, reason: &str, message: &str) {
    for one in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        one["state"] = json!({"waiting": {"reason": reason, "message": message}});
    }
}

pub fn waiting_one(status: &mut Value, name: &str, reason: &str, message: &str) {
    for list in ["initContainerStatuses", "containerStatuses"] {
        for one in status[list].as_array_mut().into_iter().flatten().filter(|one| one["name"] == name) {
            one["state"] = json!({"waiting": {"reason": reason, "message": message}});
        }
    }
}

/// The init container whose turn it is.
pub fn init_at(pod: &Value) -> Option<usize> {
    let list = pod["status"]["initContainerStatuses"].as_array()?;
    list.iter().position(|one| {
        let done = one["state"]["terminated"]["exitCode"] == 0;
        let stays = one["started"] == true && one["ready"] == true;
        !done && !stays
    })
}

pub fn init_started(pod: &Value, at: usize) -> bool {
    pod["status"]["initContainerStatuses"][at]["state"]["running"].is_object()
}

fn mark_started(pod: &mut Value, list: &str, at: usize, now: SimTime) {
    let container = pod["spec"][list][at].clone();
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    let image = container["image"].as_str().unwrap_or_default().to_owned();
    let id = container_id(pod, &name, 0);
    if let Some(one) = statuses(pod, list).get_mut(at) {
        one["image"] = json!(image);
        one["imageID"] = json!(image_id(&image));
        one["containerID"] = json!(id);
        one["started"] = json!(true);
        one["state"] = json!({"running": {"startedAt": now.rfc3339()}});
    }
}

pub fn start_init(pod: &mut Value, at: usize, now: SimTime) {
    mark_started(pod, "initContainers", at, now);
}

pub fn end_init(pod: &mut Value, at: usize, now: SimTime, stays: bool) {
    if let Some(one) = statuses(pod, "initContainers").get_mut(at) {
        one["ready"] = json!(true);
        if !stays {
            let (started, id) = (one["state"]["running"]["startedAt"].clone(), one["containerID"].clone());
            one["started"] = json!(false);
            one["state"] = json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started,
                                                 "finishedAt": now.rfc3339(), "containerID": id}});
        }
    }
}

pub fn fail_init(pod: &mut Value, at: usize, code: i64, now: SimTime) {
    if let Some(one) = statuses(pod, "initContainers").get_mut(at) {
        let started = one["state"]["running"]["startedAt"].clone();
        one["lastState"] = json!({"terminated": {"exitCode": code, "reason": "Error", "startedAt": started, "finishedAt": now.rfc3339()}});
        one["restartCount"] = json!(one["restartCount"].as_i64().unwrap_or(0) + 1);
        one["started"] = json!(false);
        one["state"] =
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}});
    }
}

/// All containers run; whether they are ready is another matter.
pub fn running(scene: &Scene, pod: &mut Value) {
    let now = scene.now;
    let count = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    for at in 0..count {
        mark_started(pod, "containers", at, now);
    }
    let ip =
        if pod["spec"]["hostNetwork"] == true { pod["status"]["hostIP"].clone() } else { json!(address(scene, pod)) };
    let status = &mut pod["status"];
    status["phase"] = json!("Running");
    status["podIP"] = ip.clone();
    status["podIPs"] = json!([{"ip": ip}]);
    conditions(status, &[("PodReadyToStartContainers", true, "", ""), ("Initialized", true, "", "")], now);
}

/// A free address in the range of the pod's node.
fn address(scene: &Scene, pod: &Value) -> String {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let range = scene
        .objects
        .peek("", "nodes", "", node)
        .and_then(|node| node["spec"]["podCIDR"].as_str())
        .unwrap_or("10.42.0.0/24");
    let base = range.rsplit_once('.').map_or("10.42.0", |(base, _)| base);
    let taken: Vec<&str> = scene
        .objects
        .rows_of("", "pods")
        .filter(|row| row.object["spec"]["nodeName"] == node)
        .filter_map(|row| row.object["status"]["podIP"].as_str())
        .collect();
    let first = super::spread(meta(pod, "uid"), 2, 250);
    (0..250)
        .map(|n| format!("{base}.{}", 2 + (first - 2 + n) % 249))
        .find(|ip| !taken.contains(&ip.as_str()))
        .unwrap_or_else(|| format!("{base}.254"))
}

pub fn ready(status: &mut Value, now: SimTime) {
    for one in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        one["ready"] = json!(true);
    }
    conditions(status, &[("Ready", true, "", ""), ("ContainersReady", true, "", "")], now);
}

pub fn not_ready(status: &mut Value, now: SimTime) {
    for one in status["containerStatuses"].as_array_mut().into_iter().flatten() {
        one["ready"] = json!(false);
    }
    let why = "containers with unready status";
    conditions(
        status,
        &[("Ready", false, "ContainersNotReady", why), ("ContainersReady", false, "ContainersNotReady", why)],
        now,
    );
}

/// Every container ended and none is started again.
pub fn over(pod: &mut Value, code: i64, now: SimTime) {
    let reason = if code == 0 { "Completed" } else { "Error" };
    for one in statuses(pod, "containers") {
        let (started, id) = (one["state"]["running"]["startedAt"].clone(), one["containerID"].clone());
        one["ready"] = json!(false);
        one["started"] = json!(false);
        one["state"] = json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": started,
                                             "finishedAt": now.rfc3339(), "containerID": id}});
    }
    let status = &mut pod["status"];
    status["phase"] = json!(if code == 0 { "Succeeded" } else { "Failed" });
    let why = if code == 0 { "PodCompleted" } else { "PodFailed" };
    conditions(
        status,
        &[("PodReadyToStartContainers", false, "", ""), ("Ready", false, why, ""), ("ContainersReady", false, why, "")],
        now,
    );
}

pub fn crashed(pod: &mut Value, code: i64, now: SimTime) {
    let name = format!("{}_{}({})", meta(pod, "name"), meta(pod, "namespace"), meta(pod, "uid"));
    let reason = if code == 0 { "Completed" } else { "Error" };
    for one in statuses(pod, "containers") {
        let (started, id) = (one["state"]["running"]["startedAt"].clone(), one["containerID"].clone());
        let container = one["name"].as_str().unwrap_or_default().to_owned();
        one["lastState"] = json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": started,
                                                 "finishedAt": now.rfc3339(), "containerID": id}});
        one["ready"] = json!(false);
        one["started"] = json!(false);
        one["state"] = json!({"waiting": {"reason": "CrashLoopBackOff",
            "message": format!("back-off 10s restarting failed container={container} pod={name}")}});
    }
    not_ready(&mut pod["status"], now);
}

pub fn is_waiting_to_restart(pod: &Value) -> bool {
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
}

pub fn restarted(pod: &mut Value, now: SimTime) {
    let count = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    for at in 0..count {
        let restarts =
            statuses(pod, "containers").get(at).and_then(|one| one["restartCount"].as_i64()).unwrap_or(0) + 1;
        mark_started(pod, "containers", at, now);
        let name = pod["spec"]["containers"][at]["name"].as_str().unwrap_or_default().to_owned();
        let id = container_id(pod, &name, restarts);
        if let Some(one) = statuses(pod, "containers").get_mut(at) {
            one["restartCount"] = json!(restarts);
            one["containerID"] = json!(id);
        }
    }
}

/// Why a pod is not placed, as its condition says.
pub fn unschedulable(status: &Value, message: &str, now: SimTime) -> Value {
    let mut status = status.clone();
    status["phase"] = json!("Pending");
    let old = find_condition(&status, "PodScheduled").cloned();
    if old.is_some_and(|old| old["message"] == message) {
        return status;
    }
    conditions(&mut status, &[("PodScheduled", false, "Unschedulable", message)], now);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_does_is_read_off_its_command() {
        let ends_of = |command: Value| ends(&json!({"command": command}));
        assert_eq!(ends_of(json!(["sh", "-c", "echo hi; exit 3"])), Ends::After(500, 3));
        assert_eq!(ends_of(json!(["sleep", "5"])), Ends::After(5000, 0));
        assert_eq!(ends_of(json!(["sleep", "infinity"])), Ends::Never);
        assert_eq!(ends_of(json!(["/bin/false"])), Ends::After(500, 1));
        assert_eq!(ends(&json!({})), Ends::Never);
    }

    #[test]
    fn some_images_cannot_be_pulled() {
        for bad in ["registry.invalid/a:1", "nginx:does-not-exist", "invalid/x"] {
            assert!(!can_be_pulled(bad), "{bad}");
        }
        for good in ["nginx", "registry.example.com:5000/a/b:1", "ghcr.io/a/b@sha256:00"] {
            assert!(can_be_pulled(good), "{good}");
        }
        assert_eq!(full_name("nginx"), "docker.io/library/nginx:latest");
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let pod = |resources: Value| json!({"containers": [{"resources": resources}]});
        assert_eq!(qos(&pod(json!({}))), "BestEffort");
        assert_eq!(qos(&pod(json!({"requests": {"cpu": "1"}}))), "Burstable");
        assert_eq!(qos(&pod(json!({"limits": {"cpu": "1", "memory": "1Gi"}}))), "Guaranteed");
    }
}
