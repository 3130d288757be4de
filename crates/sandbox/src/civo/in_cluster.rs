//! What a Civo cluster holds from the start: k3s without its own load balancer, with Civo's controllers.

use serde_json::Value;

use crate::kube::seed::{self, System};
use crate::registry::{ClusterTraits, LoadBalancers};
use crate::world::ClusterView;

pub const TRAITS: ClusterTraits =
    ClusterTraits { system_objects, load_balancers: LoadBalancers::Addresses, node_os: "Alpine Linux v3.20" };

const WORKLOADS: &[System] = &[
    System::deployment("coredns", "rancher/mirrored-coredns-coredns:1.12.1", &[("k8s-app", "kube-dns")])
        .asks("100m", "70Mi"),
    System::deployment("metrics-server", "rancher/mirrored-metrics-server:v0.7.2", &[("k8s-app", "metrics-server")])
        .asks("100m", "70Mi"),
    System::deployment("civo-ccm", "docker.io/civo/cloud-controller-manager:v0.0.21", &[("app", "civo-ccm")]),
    System::deployment("civo-csi-controller", "docker.io/civo/csi:v0.3.0", &[("app", "civo-csi-controller")]),
    System::daemon("civo-csi-node", "docker.io/civo/csi:v0.3.0", &[("app", "civo-csi-node")]),
];

fn system_objects(_view: &ClusterView) -> Vec<Value> {
    let mut objects: Vec<Value> = WORKLOADS.iter().flat_map(System::objects).collect();
    objects.push(seed::dns_service());
    objects.extend(seed::metrics_service());
    objects
}
