//! Places pods on nodes, or says why not.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::placement::{
    NodeRoom, Placed, affinity_between, host_ports, matches_node_affinity, preference, spread_over, untolerated,
};
use super::{
    Change, Scene, condition, controller_of, is_leaving, kind, kubelet_status, set_status, tell, volumes, warn,
};
use crate::kube::objects::{Stored, meta};

const WHO: &str = "default-scheduler";

pub fn run(scene: &Scene) -> Vec<Change> {
    let pods = kind("", "pods");
    let waiting: Vec<&Stored> = scene.objects.rows_of("", "pods").filter(|row| waits(&row.object)).collect();
    if waiting.is_empty() {
        return Vec::new();
    }
    let nodes: Vec<&Value> = scene.objects.rows_of("", "nodes").map(|row| &row.object).collect();
    let by_name: HashMap<&str, &Value> = nodes.iter().map(|node| (meta(node, "name"), *node)).collect();
    let mut rooms: HashMap<&str, NodeRoom> =
        nodes.iter().map(|node| (meta(node, "name"), NodeRoom::of(node))).collect();
    let mut placed: Vec<Placed> = Vec::new();
    for row in scene.objects.rows_of("", "pods") {
        let pod = &row.object;
        let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let Some(node) = pod["spec"]["nodeName"].as_str().and_then(|name| by_name.get(name)).filter(|_| !over) else {
            continue;
        };
        if let Some(room) = rooms.get_mut(meta(node, "name")) {
            room.take(&pod["spec"]);
        }
        placed.push(Placed { pod, node });
    }
    let mut changes = Vec::new();
    for row in waiting {
        let pod = &row.object;
        match choose(scene, pod, &nodes, &rooms, &placed) {
            Ok(node) => {
                if let Some(room) = rooms.get_mut(meta(node, "name")) {
                    room.take(&pod["spec"]);
                }
                placed.push(Placed { pod, node });
                changes.push(bind(scene, pod, meta(node, "name")));
                let (namespace, name) = (meta(pod, "namespace"), meta(pod, "name"));
                let why = format!("Successfully assigned {namespace}/{name} to {}", meta(node, "name"));
                changes.push(tell(pod, WHO, "Scheduled", why));
            }
            Err(why) => {
                let status = kubelet_status::unschedulable(&pod["status"], &why, scene.now);
                let told = set_status(pods, row, status, None);
                let is_news = matches!(told, Some(Change::Set { .. }));
                changes.extend(told);
                if is_news {
                    changes.push(warn(pod, WHO, "FailedScheduling", why));
                }
            }
        }
    }
    changes
}

fn waits(pod: &Value) -> bool {
    let unplaced = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ours = pod["spec"]["schedulerName"].as_str().is_none_or(|name| name == WHO);
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    unplaced && ours && !gated && !is_leaving(pod)
}

fn bind(scene: &Scene, pod: &Value, node: &str) -> Change {
    let mut bound = pod.clone();
    bound["spec"]["nodeName"] = json!(node);
    let scheduled = condition(&json!({}), "PodScheduled", "True", "", "", scene.now);
    bound["status"]["conditions"] = json!([scheduled]);
    bound["status"]["phase"] = json!("Pending");
    Change::Set { resource: kind("", "pods"), object: bound, due: None }
}

/// The best node, or the scheduler's account of why there is none.
fn choose<'a>(
    scene: &Scene,
    pod: &Value,
    nodes: &[&'a Value],
    rooms: &HashMap<&str, NodeRoom>,
    placed: &[Placed],
) -> Result<&'a Value, String> {
    if nodes.is_empty() {
        return Err("no nodes available to schedule pods".into());
    }
    if let Some(why) = volumes::not_schedulable(scene, pod) {
        return Err(format!(
            "0/{} nodes are available: {why}. preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling.",
            nodes.len()
        ));
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let (mut hopeless, mut crowded) = (0, 0);
    let mut fitting = Vec::new();
    for node in nodes {
        match refusal(scene, pod, node, nodes, rooms, placed) {
            None => fitting.push(*node),
            Some((why, helpful)) => {
                if helpful {
                    crowded += 1
                } else {
                    hopeless += 1
                }
                for reason in why {
                    *reasons.entry(reason).or_insert(0) += 1;
                }
            }
        }
    }
    let owner = controller_of(pod).map(|owner| &owner["uid"]);
    let siblings = |node: &Value| {
        placed
            .iter()
            .filter(|other| meta(other.node, "name") == meta(node, "name"))
            .filter(|other| owner.is_some() && controller_of(other.pod).map(|by| &by["uid"]) == owner)
            .count()
    };
    let score = |node: &Value| {
        let freedom = rooms.get(meta(node, "name")).map_or(0, NodeRoom::freedom);
        (preference(&pod["spec"], node), -(siblings(node) as i64), freedom)
    };
    // Of equal nodes the first by name.
    fitting.sort_by_key(|node| std::cmp::Reverse(score(node)));
    if let Some(best) = fitting.first() {
        return Ok(best);
    }
    let mut list: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    list.sort();
    let mut preemption = Vec::new();
    if crowded > 0 {
        preemption.push(format!("{crowded} No preemption victims found for incoming pod"));
    }
    if hopeless > 0 {
        preemption.push(format!("{hopeless} Preemption is not helpful for scheduling"));
    }
    let all = nodes.len();
    Err(format!(
        "0/{all} nodes are available: {}. preemption: 0/{all} nodes are available: {}.",
        list.join(", "),
        preemption.join(", ")
    ))
}

/// Why a pod does not go to a node, and whether other pods' leaving would help.
fn refusal(
    scene: &Scene,
    pod: &Value,
    node: &Value,
    nodes: &[&Value],
    rooms: &HashMap<&str, NodeRoom>,
    placed: &[Placed],
) -> Option<(Vec<String>, bool)> {
    let spec = &pod["spec"];
    let no = |why: &str| Some((vec![why.to_owned()], false));
    let cordon = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    if node["spec"]["unschedulable"] == true && super::placement::tolerates(spec, &cordon).is_none() {
        return no("node(s) were unschedulable");
    }
    if let Some(taint) = untolerated(spec, node, &["NoSchedule", "NoExecute"]) {
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        return no(&format!("node(s) had untolerated taint {{{}: {}}}", text("key"), text("value")));
    }
    if !matches_node_affinity(spec, node) {
        return no("node(s) didn't match Pod's node affinity/selector");
    }
    let room = rooms.get(meta(node, "name"))?;
    let ports = host_ports(spec);
    if ports.iter().any(|port| room.host_ports.contains(port)) {
        return Some((vec!["node(s) didn't have free ports for the requested pod ports".into()], true));
    }
    let missing = room.missing(spec);
    if !missing.is_empty() {
        return Some((missing, true));
    }
    if let Some(why) = volumes::wrong_node(scene, pod, node) {
        return no(why);
    }
    if let Some(why) = spread_over(pod, node, nodes, placed).or_else(|| affinity_between(pod, node, placed)) {
        return no(why);
    }
    None
}
