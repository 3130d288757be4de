//! Nodes as the cloud shows them: they register when their machines are there, and go with them.

use serde_json::{Value, json};

use crate::clock::SimTime;
use crate::kube::change::Write;
use crate::kube::delete::Deletion;
use crate::kube::objects::{At, Objects, as_map, meta};
use crate::kube::types;
use crate::registry;
use crate::world::{ClusterView, NodeView};

/// The next moment at which a node of the cloud comes that the cluster has not seen.
pub fn next_arrival(objects: &Objects, view: &ClusterView) -> Option<SimTime> {
    let known = |node: &&NodeView| objects.progress.nodes.iter().any(|seen| seen.name == node.name);
    view.nodes.iter().filter(|node| !known(node)).map(|node| node.created).min()
}

/// Makes the nodes what the cloud says; those that did not change cost nothing.
pub fn register(objects: &mut Objects, view: &ClusterView, now: SimTime) {
    let Some(resource) = types::built_in("", "nodes") else { return };
    let gone: Vec<String> = objects
        .stored(resource)
        .map(|row| meta(&row.object, "name"))
        .filter(|name| !view.nodes.iter().any(|node| node.name == *name))
        .map(str::to_owned)
        .collect();
    for name in gone {
        objects.forget(At { resource, namespace: "", name: &name });
        remove_lease(objects, &name, now);
    }
    objects.progress.removed_nodes.retain(|name| view.nodes.iter().any(|node| node.name == *name));
    objects.progress.nodes.retain(|node| view.nodes.iter().any(|now| now.name == node.name));
    for (number, node) in view.nodes.iter().enumerate().filter(|(_, node)| node.created <= now) {
        let before = objects.progress.nodes.iter().position(|seen| seen.name == node.name);
        if before.is_some_and(|at| objects.progress.nodes[at] == *node) {
            continue;
        }
        let old = before.map(|at| objects.progress.nodes.remove(at));
        if !objects.progress.removed_nodes.contains(&node.name) {
            declare(objects, view, node, old.as_ref(), number);
        }
        objects.progress.nodes.push(node.clone());
    }
}

fn declare(objects: &mut Objects, view: &ClusterView, node: &NodeView, old: Option<&NodeView>, number: usize) {
    let Some(resource) = types::built_in("", "nodes") else { return };
    let at = At { resource, namespace: "", name: &node.name };
    if !objects.has(at) {
        let range = free_range(objects, number);
        let mut body = declared(view, node);
        body["spec"]["podCIDR"] = json!(range);
        body["spec"]["podCIDRs"] = json!([range]);
        if let Err(refused) = objects.create(resource, "", &body, &Write::own(node.created)) {
            tracing::warn!(node = node.name, body = %refused.body, "a node of the cloud is refused by the sandbox cluster");
            return;
        }
        add_lease(objects, node);
    }
    objects.set(at, |object| {
        labels(object, node, old);
        taints(object, node, old);
        report(object, view, node, number);
    });
}

fn free_range(objects: &Objects, number: usize) -> String {
    let taken: Vec<&str> =
        objects.rows_of("", "nodes").filter_map(|row| row.object["spec"]["podCIDR"].as_str()).collect();
    let range = |n: usize| format!("10.42.{}.0/24", n % 256);
    (number..number + 256).map(range).find(|range| !taken.contains(&range.as_str())).unwrap_or_else(|| range(number))
}

/// What people set on a node stays; what the cloud no longer says goes.
fn labels(object: &mut Value, node: &NodeView, old: Option<&NodeView>) {
    let map = as_map(as_map(&mut object["metadata"]).entry("labels").or_insert_with(|| json!({})));
    for key in old.into_iter().flat_map(|old| old.labels.keys()).filter(|key| !node.labels.contains_key(*key)) {
        map.remove(key);
    }
    let fixed = [
        ("kubernetes.io/hostname", node.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", "amd64"),
        ("node.kubernetes.io/instance-type", node.size.as_str()),
        ("beta.kubernetes.io/instance-type", node.size.as_str()),
    ];
    for (key, value) in fixed.into_iter().chain(node.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))) {
        map.insert(key.to_owned(), json!(value));
    }
}

fn taints(object: &mut Value, node: &NodeView, old: Option<&NodeView>) {
    let mut list = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let is = |known: &Value, key: &str, effect: &str| known["key"] == key && known["effect"] == effect;
    for taint in old.into_iter().flat_map(|old| &old.taints).chain(&node.taints) {
        list.retain(|known| !is(known, &taint.key, &taint.effect));
    }
    list.extend(node.taints.iter().map(|taint| match taint.value.is_empty() {
        true => json!({"key": taint.key, "effect": taint.effect}),
        false => json!({"key": taint.key, "value": taint.value, "effect": taint.effect}),
    }));
    if list.is_empty() {
        as_map(&mut object["spec"]).remove("taints");
    } else {
        object["spec"]["taints"] = json!(list);
    }
}

/// What the cloud declares of a node that is new: its labels and its pool's taints.
pub fn declared(view: &ClusterView, node: &NodeView) -> Value {
    let named = || format!("{}://{}", view.cloud, node.name);
    let provider = node.machine.as_ref().map_or_else(named, |machine| machine.provider_id.clone());
    let mut body =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}, "spec": {"providerID": provider}});
    labels(&mut body, node, None);
    taints(&mut body, node, None);
    body
}

/// What the kubelet reports.
pub fn report(object: &mut Value, view: &ClusterView, node: &NodeView, number: usize) {
    object["metadata"]["creationTimestamp"] = json!(node.created.rfc3339());
    let ready = if node.ready { "True" } else { "False" };
    let (reason, message) = if node.ready {
        ("KubeletReady", "kubelet is posting ready status")
    } else {
        ("KubeletNotReady", "container runtime is starting")
    };
    let old = object["status"].clone();
    let condition = |kind: &str, value: &str, reason: &str, message: &str| {
        let mut made = super::condition(&old, kind, value, reason, message, node.created);
        made["lastHeartbeatTime"] = made["lastTransitionTime"].clone();
        made
    };
    let known = old["addresses"].as_array().and_then(|list| list.iter().find(|one| one["type"] == "InternalIP"));
    let given = node.machine.as_ref().map(|machine| json!({"address": machine.address}));
    let address = given.as_ref().or(known).map_or_else(
        || json!(format!("192.168.{}.{}", 1 + number / 250 % 250, 2 + number % 250)),
        |one| one["address"].clone(),
    );
    let version = kubelet_version(&view.kubernetes_version);
    let room = &node.capacity;
    let memory = |mib: u64| format!("{}Ki", mib * 1024);
    let mut capacity = json!({
        "cpu": room.cpus.to_string(), "memory": memory(room.memory_mib), "pods": room.pods.to_string(),
        "ephemeral-storage": memory(room.disk_gib * 1000), "hugepages-2Mi": "0", "hugepages-1Gi": "0",
    });
    let milli = u64::from(room.cpus) * 1000 - u64::from(room.reserved_cpu_milli.min(room.cpus * 900));
    let cpu = if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") };
    let mut allocatable = json!({
        "cpu": cpu, "memory": memory(room.memory_mib.saturating_sub(room.reserved_memory_mib)), "pods": room.pods.to_string(),
        "ephemeral-storage": (room.disk_gib * 1000 * 1024 * 1024 / 100 * 90).to_string(), "hugepages-2Mi": "0", "hugepages-1Gi": "0",
    });
    if room.gpus > 0 {
        capacity["nvidia.com/gpu"] = json!(room.gpus.to_string());
        allocatable["nvidia.com/gpu"] = json!(room.gpus.to_string());
    }
    let os = registry::find(view.cloud.as_str()).map_or("Linux", |cloud| cloud.clusters.node_os);
    let id = format!("{:032x}", super::spread(&node.name, 0, i64::MAX - 1));
    object["status"] = json!({
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": node.name}],
        "capacity": capacity,
        "allocatable": allocatable,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", ready, reason, message),
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": os, "kernelVersion": "6.1.0-32-amd64",
            "containerRuntimeVersion": "containerd://2.0.5", "kubeletVersion": version, "kubeProxyVersion": version,
            "machineID": id, "systemUUID": id, "bootID": id,
        },
    });
}

fn add_lease(objects: &mut Objects, node: &NodeView) {
    let Some(leases) = types::built_in("coordination.k8s.io", "leases") else { return };
    let uid = objects.peek("", "nodes", "", &node.name).map(|node| node["metadata"]["uid"].clone());
    let body = json!({
        "metadata": {"name": node.name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": uid}]},
        "spec": {"holderIdentity": node.name, "leaseDurationSeconds": 40, "renewTime": node.created.rfc3339()},
    });
    // Without its namespace, as when only nodes are looked at, there is nothing to put it in.
    if objects.peek("", "namespaces", "", "kube-node-lease").is_some()
        && let Err(refused) = objects.create(leases, "kube-node-lease", &body, &Write::own(node.created))
    {
        tracing::debug!(node = node.name, body = %refused.body, "a node's lease is refused");
    }
}

fn remove_lease(objects: &mut Objects, name: &str, now: SimTime) {
    let Some(resource) = types::built_in("coordination.k8s.io", "leases") else { return };
    let at = At { resource, namespace: "kube-node-lease", name };
    // It may have been deleted by hand.
    let _ = objects.delete(at, &Deletion::default(), now);
}

/// `1.30.5-k3s1` runs `v1.30.5+k3s1`; `1.33.1-do.0` runs `v1.33.1`.
pub fn kubelet_version(version: &str) -> String {
    let version = version.trim_start_matches("talos-").trim_start_matches('v');
    match version.split_once(['-', '+']) {
        Some((number, suffix)) if suffix.starts_with("k3s") || suffix.starts_with("eks") => {
            let mark = if suffix.starts_with("k3s") { '+' } else { '-' };
            format!("v{number}{mark}{suffix}")
        }
        Some((number, _)) => format!("v{number}"),
        None => format!("v{version}"),
    }
}
