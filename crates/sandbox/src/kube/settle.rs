//! What the cluster does by itself: its first objects, its nodes as the cloud shows them, and workloads that come up.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::objects::{At, Objects, PatchKind};
use super::types::{self, ResourceType};
use crate::clock::SimTime;
use crate::world::{ClusterView, NodeView};

/// Under this name the cluster itself declares what the cloud shows, so that what people set on a node stays.
const CLOUD_MANAGER: &str = "cloud-controller-manager";

/// Brings the objects up to what cloud and clock say. Cheap when nothing changed. `moment_ms` is how long workloads take
/// from declared to available.
pub fn settle(objects: &mut Objects, view: &ClusterView, now: SimTime, moment_ms: i64) {
    if !objects.seeded {
        objects.seeded = true;
        seed(objects, view, view.created);
    }
    nodes(objects, view, now);
    let ready_nodes = view.nodes.iter().filter(|node| node.ready).count();
    workloads(objects, ready_nodes, now, moment_ms);
    simple_phases(objects, now, moment_ms);
}

fn find(group: &str, plural: &str) -> Option<&'static ResourceType> {
    types::TYPES.iter().find(|resource| resource.group == group && resource.plural == plural)
}

fn seed(objects: &mut Objects, view: &ClusterView, now: SimTime) {
    let mut make = |group: &str, plural: &str, namespace: &str, body: Value| {
        let Some(resource) = find(group, plural) else { return };
        if let Err(refused) = objects.create(resource, namespace, &body, now, false) {
            tracing::warn!(cluster = view.id, plural, body = %refused.body, "a sandbox cluster's first object was refused");
        }
    };
    let named = |name: &str| json!({"metadata": {"name": name}});
    for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        make("", "namespaces", "", named(namespace));
        make("", "serviceaccounts", namespace, named("default"));
    }
    make(
        "",
        "services",
        "default",
        json!({"metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
               "spec": {"clusterIP": "10.43.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]}}),
    );
    let dns = json!({"k8s-app": "kube-dns"});
    make(
        "",
        "services",
        "kube-system",
        json!({"metadata": {"name": "kube-dns", "labels": {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true",
                                                           "kubernetes.io/name": "CoreDNS"}},
               "spec": {"clusterIP": "10.43.0.10", "selector": dns, "ports": [
                   {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}]}}),
    );
    make("", "serviceaccounts", "kube-system", named("coredns"));
    make(
        "apps",
        "deployments",
        "kube-system",
        json!({"metadata": {"name": "coredns", "labels": dns}, "spec": {"selector": {"matchLabels": dns}, "template": {
            "metadata": {"labels": dns},
            "spec": {"serviceAccountName": "coredns", "containers": [{"name": "coredns", "image": "coredns/coredns:1.12.1"}]}}}}),
    );
    for role in ["admin", "cluster-admin", "edit", "view"] {
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": if role == "view" { json!(["get", "list", "watch"]) } else { json!(["*"]) }}]);
        make("rbac.authorization.k8s.io", "clusterroles", "", json!({"metadata": {"name": role}, "rules": rules}));
    }
    make(
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        "",
        json!({"metadata": {"name": "cluster-admin"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
               "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:masters"}]}),
    );
    let (class, provisioner) = view.storage_class;
    make(
        "storage.k8s.io",
        "storageclasses",
        "",
        json!({"metadata": {"name": class, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
               "provisioner": provisioner, "allowVolumeExpansion": true}),
    );
}

/// The nodes alone, for the many who look at nothing else.
pub fn nodes(objects: &mut Objects, view: &ClusterView, now: SimTime) {
    let Some(resource) = find("", "nodes") else { return };
    let gone: Vec<String> = objects
        .stored(resource)
        .filter_map(|stored| stored.object["metadata"]["name"].as_str())
        .filter(|name| !view.nodes.iter().any(|node| node.name == *name))
        .map(str::to_owned)
        .collect();
    for name in gone {
        let at = At { resource, namespace: "", name: &name };
        if let Err(refused) = objects.delete(at, &Value::Null, now, false) {
            tracing::warn!(name, body = %refused.body, "a node that the cloud removed stays in the sandbox cluster");
        }
    }
    for (number, node) in view.nodes.iter().enumerate() {
        let at = At { resource, namespace: "", name: &node.name };
        let apply = PatchKind::Apply { manager: CLOUD_MANAGER.into(), force: true };
        if let Err(refused) = objects.patch(at, &apply, &declared(view, node), false, node.created, false) {
            tracing::warn!(node = node.name, body = %refused.body, "a node of the cloud is refused by the sandbox cluster");
        }
        objects.set(at, |object| report(object, view, node, number));
    }
}

/// What the cloud declares of a node: its labels and its pool's taints.
pub fn declared(view: &ClusterView, node: &NodeView) -> Value {
    let mut labels: BTreeMap<String, String> = node.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", node.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", "amd64"),
        ("node.kubernetes.io/instance-type", node.size.as_str()),
    ] {
        labels.insert(key.into(), value.into());
    }
    let mut body = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": labels},
        "spec": {"providerID": format!("{}://{}", view.cloud, node.name)},
    });
    if !node.taints.is_empty() {
        let taints: Vec<Value> = node
            .taints
            .iter()
            .map(|taint| match taint.value.is_empty() {
                true => json!({"key": taint.key, "effect": taint.effect}),
                false => json!({"key": taint.key, "value": taint.value, "effect": taint.effect}),
            })
            .collect();
        body["spec"]["taints"] = json!(taints);
    }
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
    let since = object["status"]["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|condition| condition["type"] == "Ready" && condition["status"] == ready))
        .map_or_else(|| json!(node.created.rfc3339()), |condition| condition["lastTransitionTime"].clone());
    let condition = |kind: &str, value: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": value, "reason": reason, "message": message,
               "lastHeartbeatTime": since, "lastTransitionTime": since})
    };
    let address = format!("192.168.{}.{}", 1 + number / 250 % 250, 2 + number % 250);
    let version = kubelet_version(&view.kubernetes_version);
    object["status"] = json!({
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": node.name}],
        "capacity": {"cpu": "2", "memory": "4014424Ki", "pods": "110", "ephemeral-storage": "50620216Ki"},
        "allocatable": {"cpu": "1900m", "memory": "3170648Ki", "pods": "110", "ephemeral-storage": "46651590989"},
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", ready, reason, message),
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "Sandbox Linux", "kernelVersion": "6.1.0",
            "containerRuntimeVersion": "containerd://2.0.5", "kubeletVersion": version, "kubeProxyVersion": version,
            "machineID": node.name, "systemUUID": node.name, "bootID": node.name,
        },
    });
}

/// `1.30.5-k3s1` runs `v1.30.5+k3s1`; `1.33.1-do.0` runs `v1.33.1`.
pub fn kubelet_version(version: &str) -> String {
    let version = version.trim_start_matches("talos-").trim_start_matches('v');
    match version.split_once(['-', '+']) {
        Some((number, suffix)) if suffix.starts_with("k3s") => format!("v{number}+{suffix}"),
        Some((number, _)) => format!("v{number}"),
        None => format!("v{version}"),
    }
}

fn workloads(objects: &mut Objects, ready_nodes: usize, now: SimTime, moment_ms: i64) {
    for kind in ["deployments", "statefulsets", "replicasets", "daemonsets"] {
        let Some(resource) = find("apps", kind) else { continue };
        let behind: Vec<(String, String, Value)> = objects
            .stored(resource)
            .filter_map(|stored| {
                let settled = now >= stored.touched.plus_ms(moment_ms);
                let status = workload_status(kind, &stored.object, if settled { ready_nodes } else { 0 }, now);
                let meta = |field: &str| stored.object["metadata"][field].as_str().unwrap_or_default().to_owned();
                (!same_status(&status, &stored.object["status"])).then(|| (meta("namespace"), meta("name"), status))
            })
            .collect();
        for (namespace, name, status) in behind {
            objects.set(At { resource, namespace: &namespace, name: &name }, |object| object["status"] = status);
        }
    }
}

/// Times of conditions do not count, else every look would be a change.
fn same_status(new: &Value, old: &Value) -> bool {
    let strip = |status: &Value| {
        let mut status = status.clone();
        if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
            for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
                condition.retain(|field, _| !field.ends_with("Time"));
            }
        }
        status
    };
    strip(new) == strip(old)
}

fn workload_status(kind: &str, object: &Value, ready_nodes: usize, now: SimTime) -> Value {
    let generation = object["metadata"]["generation"].clone();
    if kind == "daemonsets" {
        return json!({
            "observedGeneration": generation, "desiredNumberScheduled": ready_nodes, "currentNumberScheduled": ready_nodes,
            "updatedNumberScheduled": ready_nodes, "numberReady": ready_nodes, "numberAvailable": ready_nodes,
            "numberMisscheduled": 0,
        });
    }
    let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
    let ready = if ready_nodes > 0 { wanted } else { 0 };
    let mut status = json!({"observedGeneration": generation, "replicas": wanted, "updatedReplicas": wanted});
    if ready > 0 {
        status["readyReplicas"] = json!(ready);
        status["availableReplicas"] = json!(ready);
    } else if wanted > 0 {
        status["unavailableReplicas"] = json!(wanted);
    }
    if kind == "deployments" {
        let up = ready == wanted;
        let condition = |kind: &str, ok: bool, reason: &str| {
            json!({"type": kind, "status": if ok { "True" } else { "False" }, "reason": reason,
                   "message": if ok { "Deployment has minimum availability." } else { "Deployment does not have minimum availability." },
                   "lastTransitionTime": now.rfc3339(), "lastUpdateTime": now.rfc3339()})
        };
        status["conditions"] = json!([
            condition("Available", up, if up { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" }),
            {"type": "Progressing", "status": "True", "reason": if up { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" },
             "message": "ReplicaSet has successfully progressed.", "lastTransitionTime": now.rfc3339(), "lastUpdateTime": now.rfc3339()},
        ]);
    } else {
        status["currentReplicas"] = json!(wanted);
    }
    status
}

/// Pods run, claims are bound, load balancers get an address, jobs complete: after the same moment as workloads.
fn simple_phases(objects: &mut Objects, now: SimTime, moment_ms: i64) {
    for (group, plural) in [("", "pods"), ("", "persistentvolumeclaims"), ("", "services"), ("batch", "jobs")] {
        let Some(resource) = find(group, plural) else { continue };
        let due: Vec<(String, String, Value)> = objects
            .stored(resource)
            .filter_map(|stored| {
                let settled = now >= stored.touched.plus_ms(moment_ms);
                let status = phase(plural, &stored.object, settled, now)?;
                let meta = |field: &str| stored.object["metadata"][field].as_str().unwrap_or_default().to_owned();
                (!same_status(&status, &stored.object["status"])).then(|| (meta("namespace"), meta("name"), status))
            })
            .collect();
        for (namespace, name, status) in due {
            objects.set(At { resource, namespace: &namespace, name: &name }, |object| object["status"] = status);
        }
    }
}

fn phase(plural: &str, object: &Value, settled: bool, now: SimTime) -> Option<Value> {
    let old = &object["status"];
    match plural {
        "pods" if !settled => Some(json!({"phase": "Pending"})),
        "pods" if old["phase"] != "Running" => {
            let containers: Vec<Value> = object["spec"]["containers"]
                .as_array()
                .map(|list| list.iter().map(|c| json!({"name": c["name"], "image": c["image"], "ready": true, "restartCount": 0, "started": true, "state": {"running": {"startedAt": now.rfc3339()}}})).collect())
                .unwrap_or_default();
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now.rfc3339()});
            Some(
                json!({"phase": "Running", "startTime": now.rfc3339(), "conditions": [ready], "containerStatuses": containers}),
            )
        }
        "persistentvolumeclaims" if settled => {
            let size = &object["spec"]["resources"]["requests"]["storage"];
            Some(json!({"phase": "Bound", "accessModes": object["spec"]["accessModes"], "capacity": {"storage": size}}))
        }
        "persistentvolumeclaims" => Some(json!({"phase": "Pending"})),
        "services" if object["spec"]["type"] == "LoadBalancer" && settled => {
            let last =
                object["spec"]["clusterIP"].as_str().and_then(|ip| ip.rsplit('.').next()).unwrap_or("10").to_owned();
            Some(json!({"loadBalancer": {"ingress": [{"ip": format!("203.0.113.{last}")}]}}))
        }
        "services" => Some(json!({"loadBalancer": {}})),
        "jobs" if settled && old["succeeded"].is_null() => {
            let at = now.rfc3339();
            let complete = json!({"type": "Complete", "status": "True", "lastTransitionTime": at});
            let count = object["spec"]["completions"].clone();
            Some(json!({"succeeded": count, "startTime": at, "completionTime": at, "conditions": [complete]}))
        }
        _ => None,
    }
}
