//! A cluster as its own Kubernetes API shows it.

use serde_json::Value;

use super::instance_types;
use super::node_group::{Node, NodeGroup};
use super::versions;
use crate::aws::{CLOUD, Store};
use crate::clock::SimTime;
use crate::world::{ClusterView, MachineView, NodeCapacity, NodeView, TaintView};

pub fn has_ready_node(store: &Store, cluster: &str, now: SimTime) -> bool {
    let groups = store.eks.node_groups.find(&format!("cluster:{cluster}"));
    groups.flat_map(|group| &group.nodes).any(|node| node.ready(now))
}

pub fn cluster_view(store: &Store, id: &str, now: SimTime) -> Option<ClusterView> {
    let cluster = store.eks.clusters.get(id)?;
    let groups = store.eks.node_groups.find(&format!("cluster:{id}"));
    let nodes = groups.flat_map(|group| {
        let there = group.nodes.iter().filter(|node| node.there(now));
        there.map(|node| node_view(group, node, now))
    });
    Some(ClusterView {
        id: cluster.id.clone(),
        name: cluster.name.clone(),
        cloud: CLOUD.name,
        storage_class: CLOUD.storage_class,
        kubernetes_version: versions::kubernetes(cluster.version(now)),
        nodes: nodes.collect(),
        api_up: now >= cluster.active_at,
        created: cluster.created_at,
    })
}

fn node_view(group: &NodeGroup, node: &Node, now: SimTime) -> NodeView {
    let labels = group.spec.get("labels", now).as_object();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut labels: std::collections::BTreeMap<String, String> =
        labels.into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect();
    let release = group.spec.text("releaseVersion", now);
    for (key, value) in [
        ("eks.amazonaws.com/nodegroup", group.name.as_str()),
        ("eks.amazonaws.com/capacityType", group.spec.text("capacityType", now)),
        ("eks.amazonaws.com/nodegroup-image", release),
        ("topology.kubernetes.io/region", group.region.as_str()),
        ("topology.kubernetes.io/zone", node.zone.as_str()),
        ("topology.k8s.aws/zone-id", &zone_id(&group.region, &node.zone)),
        ("failure-domain.beta.kubernetes.io/region", group.region.as_str()),
        ("failure-domain.beta.kubernetes.io/zone", node.zone.as_str()),
        ("beta.kubernetes.io/instance-type", group.instance_type.as_str()),
        ("k8s.io/cloud-provider-aws", "f2e1f0a5bd4f6ff5a1a6b0c4d3c1a3e7"),
    ] {
        labels.insert(key.into(), value.into());
    }
    let taint = |taint: &Value| TaintView {
        key: text(&taint["key"]),
        value: text(&taint["value"]),
        effect: match taint["effect"].as_str() {
            Some("NO_EXECUTE") => "NoExecute".into(),
            Some("PREFER_NO_SCHEDULE") => "PreferNoSchedule".into(),
            _ => "NoSchedule".into(),
        },
    };
    NodeView {
        name: node.name(&group.region),
        ready: node.ready(now) && group.gone_at.is_none(),
        pool: group.name.clone(),
        size: group.instance_type.clone(),
        labels,
        taints: group.spec.get("taints", now).as_array().into_iter().flatten().map(taint).collect(),
        capacity: capacity(&group.instance_type),
        machine: Some(MachineView { provider_id: format!("aws:///{}/{}", node.zone, node.id), address: node.address }),
        created: node.created_at,
    }
}

/// What EKS's own images leave to pods.
fn capacity(instance_type: &str) -> NodeCapacity {
    instance_types::find(instance_type).map_or_else(NodeCapacity::default, |found| NodeCapacity {
        cpus: found.cpus,
        memory_mib: found.memory_mib,
        pods: found.pods,
        disk_gib: 20,
        reserved_cpu_milli: 70,
        reserved_memory_mib: 574,
        ..NodeCapacity::default()
    })
}

/// `eu-central-1a` is `euc1-az1`, as far as one account is concerned.
fn zone_id(region: &str, zone: &str) -> String {
    let mut parts = region.split('-');
    let (area, place) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let number = parts.next().unwrap_or_default();
    let letter = zone.bytes().last().unwrap_or(b'a');
    format!("{area}{}{number}-az{}", place.chars().next().unwrap_or('x'), 1 + i32::from(letter) - i32::from(b'a'))
}
