//! The first objects of a cluster: what every cluster has, and what its cloud puts there.

use serde_json::{Value, json};

use super::access::{self, Role};
use super::change::Write;
use super::objects::{Objects, meta};
#[cfg(test)]
use super::types;
use crate::registry;
use crate::world::ClusterView;

pub fn first_objects(objects: &mut Objects, view: &ClusterView) {
    for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        make(objects, view, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    }
    for object in common(view) {
        make(objects, view, object);
    }
    if let Some(cloud) = registry::find(view.cloud.as_str()) {
        for object in (cloud.clusters.system_objects)(view) {
            make(objects, view, object);
        }
    }
}

fn make(objects: &mut Objects, view: &ClusterView, object: Value) {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let Some(resource) = objects.by_kind(text("apiVersion"), text("kind")) else {
        tracing::warn!(kind = text("kind"), "a sandbox cluster's first object is of an unknown type");
        return;
    };
    let namespace = meta(&object, "namespace").to_owned();
    if let Err(refused) = objects.create(resource, &namespace, &object, &Write::own(view.created)) {
        tracing::warn!(cluster = view.id, body = %refused.body, "a sandbox cluster's first object was refused");
    }
}

fn common(view: &ClusterView) -> Vec<Value> {
    let mut made = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default",
                     "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "10.43.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
    })];
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        made.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
                         "description": "Used for system critical pods."}));
    }
    let roles =
        [("admin", Role::Admin), ("cluster-admin", Role::ClusterAdmin), ("edit", Role::Edit), ("view", Role::View)];
    for (role, kind) in roles {
        let rules = access::rules(kind);
        made.push(json!({"apiVersion": RBAC, "kind": "ClusterRole", "rules": rules,
                         "metadata": {"name": role, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}}));
    }
    made.push(json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": "cluster-admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:masters"}],
    }));
    let (class, provisioner) = view.storage_class;
    made.push(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": provisioner, "allowVolumeExpansion": true,
        "metadata": {"name": class, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    }));
    made.push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": provisioner},
                     "spec": {"attachRequired": true, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent"]}}));
    made
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// A workload of kube-system: its kind, name, image, and what its pods ask for.
pub struct System {
    pub kind: &'static str,
    pub name: &'static str,
    pub labels: &'static [(&'static str, &'static str)],
    pub image: &'static str,
    pub replicas: u32,
    pub cpu: &'static str,
    pub memory: &'static str,
    /// Runs on the node's own network, as daemons of the network itself do.
    pub host_network: bool,
}

impl System {
    pub const fn deployment(
        name: &'static str,
        image: &'static str,
        labels: &'static [(&'static str, &'static str)],
    ) -> System {
        System { kind: "Deployment", name, labels, image, replicas: 1, cpu: "", memory: "", host_network: false }
    }

    pub const fn daemon(
        name: &'static str,
        image: &'static str,
        labels: &'static [(&'static str, &'static str)],
    ) -> System {
        System { kind: "DaemonSet", name, labels, image, replicas: 0, cpu: "", memory: "", host_network: false }
    }

    pub const fn asks(mut self, cpu: &'static str, memory: &'static str) -> System {
        self.cpu = cpu;
        self.memory = memory;
        self
    }

    pub const fn times(mut self, replicas: u32) -> System {
        self.replicas = replicas;
        self
    }

    pub const fn on_host(mut self) -> System {
        self.host_network = true;
        self
    }

    /// The workload and its service account.
    pub fn objects(&self) -> Vec<Value> {
        let labels: serde_json::Map<String, Value> =
            self.labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let mut container = json!({"name": self.name, "image": self.image});
        for (resource, amount) in [("cpu", self.cpu), ("memory", self.memory)] {
            if !amount.is_empty() {
                container["resources"]["requests"][resource] = json!(amount);
            }
        }
        // System workloads run wherever there is a node, whatever it is kept for.
        let critical = if self.kind == "DaemonSet" { "system-node-critical" } else { "system-cluster-critical" };
        let mut pod = json!({"serviceAccountName": self.name, "priorityClassName": critical, "containers": [container],
                             "tolerations": [{"operator": "Exists"}]});
        if self.host_network {
            pod["hostNetwork"] = json!(true);
        }
        let mut spec =
            json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}});
        if self.kind == "Deployment" {
            spec["replicas"] = json!(self.replicas);
        }
        let metadata = json!({"name": self.name, "namespace": "kube-system", "labels": labels});
        vec![
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": self.name, "namespace": "kube-system"}}),
            json!({"apiVersion": "apps/v1", "kind": self.kind, "metadata": metadata, "spec": spec}),
        ]
    }
}

/// The cluster's name service, which every cloud puts at the same address.
pub fn dns_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system",
                     "labels": {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}},
        "spec": {"clusterIP": "10.43.0.10", "selector": {"k8s-app": "kube-dns"}, "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}]},
    })
}

/// What makes `kubectl top` answer.
pub fn metrics_service() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics-server", "namespace": "kube-system",
                   "labels": {"k8s-app": "metrics-server"}},
               "spec": {"selector": {"k8s-app": "metrics-server"}, "ports": [{"name": "https", "port": 443, "targetPort": 10250}]}}),
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
               "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                        "insecureSkipTLSVerify": true,
                        "service": {"name": "metrics-server", "namespace": "kube-system", "port": 443}}}),
    ]
}

/// Whether a type is known: for tests of what clouds put there.
#[cfg(test)]
pub fn is_known(object: &Value) -> bool {
    let (group, _) = object["apiVersion"].as_str().unwrap_or_default().split_once('/').unwrap_or(("", ""));
    types::TYPES.iter().any(|resource| resource.group == group && object["kind"] == resource.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clouds_put_into_clusters_is_accepted() {
        for cloud in registry::clouds() {
            let view = ClusterView {
                id: "id".into(),
                name: "name".into(),
                cloud: cloud.name,
                storage_class: cloud.storage_class,
                kubernetes_version: "v1.33.1".into(),
                nodes: Vec::new(),
                api_up: true,
                created: crate::clock::SimTime(0),
            };
            let own = (cloud.clusters.system_objects)(&view);
            assert!(own.iter().all(is_known), "{}", cloud.name);
            let mut objects = Objects::new("id");
            first_objects(&mut objects, &view);
            for object in own {
                let resource =
                    objects.by_kind(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
                let at = super::super::objects::At {
                    resource: resource.unwrap(),
                    namespace: meta(&object, "namespace"),
                    name: meta(&object, "name"),
                };
                assert!(objects.has(at), "{}: {object}", cloud.name);
            }
        }
    }
}
