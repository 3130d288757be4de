//! The machines behind the nodes of node groups, for EC2 to show.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::Tables;
use super::node_group::{Node, NodeGroup};
use crate::aws::ask::Tags;
use crate::clock::SimTime;

pub struct Machine {
    pub id: String,
    pub instance_type: String,
    pub address: Ipv4Addr,
    pub zone: String,
    /// Kubernetes' version, by which its image is chosen.
    pub version: String,
    /// The node group's, one of which it is in.
    pub subnets: Vec<String>,
    pub group: Option<String>,
    pub spot: bool,
    pub tags: Tags,
    pub created_at: SimTime,
    pub ready_at: SimTime,
}

/// Those of a region that are there at a moment.
pub fn machines(eks: &Tables, region: &str, now: SimTime) -> Vec<Machine> {
    let groups = eks.node_groups.iter().filter(|group| group.region == region);
    groups.flat_map(|group| of_group(eks, group, now)).collect()
}

fn of_group(eks: &Tables, group: &NodeGroup, now: SimTime) -> Vec<Machine> {
    let cluster = eks.clusters.get(&group.cluster_id);
    let network = cluster.map(|cluster| cluster.spec.get("resourcesVpcConfig", now)).unwrap_or(&Value::Null);
    let security_group = network["clusterSecurityGroupId"].as_str().map(str::to_owned);
    let subnets = group.spec.get("subnets", now).as_array().into_iter().flatten();
    let subnets: Vec<String> = subnets.filter_map(|subnet| subnet.as_str().map(str::to_owned)).collect();
    let tags = Tags::from([
        ("aws:autoscaling:groupName".into(), group.autoscaling_group()),
        ("eks:cluster-name".into(), group.cluster.clone()),
        ("eks:nodegroup-name".into(), group.name.clone()),
        (format!("k8s.io/cluster-autoscaler/{}", group.cluster), "owned".into()),
        ("k8s.io/cluster-autoscaler/enabled".into(), "true".into()),
        (format!("kubernetes.io/cluster/{}", group.cluster), "owned".into()),
    ]);
    let machine = |node: &Node| Machine {
        id: node.id.clone(),
        instance_type: group.instance_type.clone(),
        address: node.address,
        zone: node.zone.clone(),
        version: node.version.clone(),
        subnets: subnets.clone(),
        group: security_group.clone(),
        spot: group.spec.text("capacityType", now) == "SPOT",
        tags: tags.clone(),
        created_at: node.created_at,
        ready_at: node.ready_at,
    };
    group.nodes.iter().filter(|node| node.there(now)).map(machine).collect()
}
