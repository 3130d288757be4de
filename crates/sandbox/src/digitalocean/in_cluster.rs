//! What a DigitalOcean cluster holds from the start: Cilium, the volume driver, the node agent and name service.

use serde_json::Value;

use crate::kube::seed::{self, System};
use crate::registry::{ClusterTraits, LoadBalancers};
use crate::world::ClusterView;

pub const TRAITS: ClusterTraits = ClusterTraits {
    system_objects,
    load_balancers: LoadBalancers::Addresses,
    node_os: "Debian GNU/Linux 12 (bookworm)",
};

const WORKLOADS: &[System] = &[
    System::daemon(
        "cilium",
        "quay.io/cilium/cilium:v1.17.4",
        &[("k8s-app", "cilium"), ("kubernetes.io/cluster-service", "true")],
    )
    .asks("300m", "300Mi")
    .on_host(),
    System::deployment(
        "cilium-operator",
        "quay.io/cilium/operator-generic:v1.17.4",
        &[("io.cilium/app", "operator"), ("name", "cilium-operator")],
    )
    .asks("100m", "150Mi")
    .on_host(),
    System::deployment("coredns", "docker.io/coredns/coredns:1.12.1", &[("k8s-app", "kube-dns")])
        .asks("100m", "150M")
        .times(2),
    System::daemon(
        "cpc-bridge-proxy-ebpf",
        "docker.io/digitalocean/cpbridge:1.30.0",
        &[("app", "cpc-bridge-proxy-ebpf")],
    )
    .asks("100m", "")
    .on_host(),
    System::daemon(
        "csi-do-node",
        "docker.io/digitalocean/do-csi-plugin:v4.14.0",
        &[("app", "csi-do-node"), ("role", "csi-do")],
    )
    .on_host(),
    System::daemon("do-node-agent", "docker.io/digitalocean/do-agent:3.18.3", &[("app", "do-node-agent")])
        .asks("102m", "80Mi")
        .on_host(),
    System::deployment("hubble-relay", "quay.io/cilium/hubble-relay:v1.17.4", &[("k8s-app", "hubble-relay")]),
    System::deployment("hubble-ui", "quay.io/cilium/hubble-ui:v0.13.2", &[("k8s-app", "hubble-ui")]),
    System::daemon(
        "konnectivity-agent",
        "registry.k8s.io/kas-network-proxy/proxy-agent:v0.32.0",
        &[("k8s-app", "konnectivity-agent")],
    ),
];

fn system_objects(_view: &ClusterView) -> Vec<Value> {
    let mut objects: Vec<Value> = WORKLOADS.iter().flat_map(System::objects).collect();
    objects.push(seed::dns_service());
    objects
}
