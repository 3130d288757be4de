//! What an EKS cluster holds from the start: the add-ons that a cluster gets when none is asked for.

use serde_json::Value;

use crate::kube::seed::{self, System};
use crate::registry::{ClusterTraits, LoadBalancers};
use crate::world::ClusterView;

pub const TRAITS: ClusterTraits = ClusterTraits {
    system_objects,
    load_balancers: LoadBalancers::Names("elb.amazonaws.com"),
    node_os: "Amazon Linux 2023.7.20250609",
};

const REGISTRY: [&str; 3] = [
    "602401143452.dkr.ecr.us-west-2.amazonaws.com/amazon-k8s-cni:v1.19.5",
    "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/coredns:v1.11.4-eksbuild.14",
    "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/kube-proxy:v1.33.0-minimal-eksbuild.2",
];

const WORKLOADS: &[System] = &[
    System::daemon("aws-node", REGISTRY[0], &[("app.kubernetes.io/name", "aws-node"), ("k8s-app", "aws-node")])
        .asks("50m", "")
        .on_host(),
    System::deployment("coredns", REGISTRY[1], &[("eks.amazonaws.com/component", "coredns"), ("k8s-app", "kube-dns")])
        .asks("100m", "70Mi")
        .times(2),
    System::daemon("kube-proxy", REGISTRY[2], &[("k8s-app", "kube-proxy")]).asks("100m", "").on_host(),
];

fn system_objects(_view: &ClusterView) -> Vec<Value> {
    let mut objects: Vec<Value> = WORKLOADS.iter().flat_map(System::objects).collect();
    objects.push(seed::dns_service());
    objects
}
