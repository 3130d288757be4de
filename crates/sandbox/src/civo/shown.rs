//! Clusters, pools and instances as Civo writes them. Serialised straight from the stored objects: a page of a
//! hundred clusters is written without copying any of them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::catalog;
use super::cluster::{Cluster, Installed};
use super::node_pool::{Node, Pool, Taint};
use crate::clock::SimTime;
use crate::kube::{self, KubeServer};

#[derive(Serialize)]
pub struct Page<'a> {
    pub page: usize,
    pub per_page: usize,
    pub pages: usize,
    pub items: Vec<ClusterOut<'a>>,
}

#[derive(Serialize)]
pub struct ClusterOut<'a> {
    id: &'a str,
    name: &'a str,
    generated_name: &'a str,
    version: &'a str,
    status: &'static str,
    ready: bool,
    cluster_type: &'a str,
    num_target_nodes: usize,
    target_nodes_size: &'a str,
    built_at: Option<String>,
    kubeconfig: String,
    kubernetes_version: &'a str,
    api_endpoint: String,
    master_ip: &'a str,
    dns_entry: String,
    upgrade_available_to: Option<&'static str>,
    legacy: bool,
    network_id: &'a str,
    namespace: String,
    tags: &'a [String],
    created_at: String,
    instances: Vec<InstanceOut<'a>>,
    pools: Vec<PoolOut<'a>>,
    required_pools: Vec<RequiredOut<'a>>,
    installed_applications: Vec<ApplicationOut<'a>>,
    firewall_id: &'a str,
    cni_plugin: &'a str,
    ccm_installed: &'static str,
    conditions: [Condition; 3],
}

#[derive(Serialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: &'static str,
    status: &'static str,
    synced: bool,
    last_transition_time: String,
}

#[derive(Serialize)]
pub struct PoolOut<'a> {
    id: &'a str,
    count: usize,
    size: &'a str,
    instance_names: Vec<&'a str>,
    instances: Vec<InstanceOut<'a>>,
    labels: &'a BTreeMap<String, String>,
    taints: &'a [Taint],
    public_ip_node_pool: bool,
}

#[derive(Serialize)]
struct RequiredOut<'a> {
    id: &'a str,
    size: &'a str,
    count: usize,
    labels: &'a BTreeMap<String, String>,
    taints: &'a [Taint],
}

#[derive(Serialize)]
pub struct InstanceOut<'a> {
    id: &'a str,
    hostname: &'a str,
    name: &'a str,
    size: &'a str,
    region: &'a str,
    source_type: &'static str,
    source_id: &'a str,
    initial_user: &'static str,
    status: &'static str,
    firewall_id: &'a str,
    network_id: &'a str,
    cpu_cores: u32,
    ram_mb: u32,
    disk_gb: u32,
    tags: [&'static str; 0],
    created_at: String,
}

#[derive(Serialize)]
struct ApplicationOut<'a> {
    application: &'a str,
    name: &'a str,
    title: Option<&'static str>,
    version: &'a str,
    dependencies: &'a [&'static str],
    maintainer: &'static str,
    description: &'a str,
    post_install: &'static str,
    installed: bool,
    url: &'static str,
    category: &'a str,
    updated_at: String,
    image_url: &'static str,
    plan: Option<&'a str>,
    configuration: BTreeMap<String, String>,
}

pub fn cluster<'a>(cluster: &'a Cluster, now: SimTime, kube: &KubeServer) -> ClusterOut<'a> {
    let api = cluster.api_up(now);
    let first = cluster.pools_at(now).find(|pool| pool.gone_at.is_none());
    let wanted = || cluster.pools_at(now).filter(|pool| pool.gone_at.is_none());
    ClusterOut {
        id: &cluster.id,
        name: &cluster.name,
        generated_name: &cluster.name,
        version: &cluster.version,
        status: cluster.status(now),
        ready: cluster.ready(now),
        cluster_type: &cluster.cluster_type,
        num_target_nodes: wanted().map(|pool| pool.count).sum(),
        target_nodes_size: first.map_or("", |pool| pool.size.as_str()),
        built_at: cluster.ready(now).then(|| cluster.built_at.rfc3339()),
        kubeconfig: if api { kube::kubeconfig(kube, &cluster.id, &cluster.name) } else { String::new() },
        kubernetes_version: &cluster.version,
        api_endpoint: if api { kube::endpoint(kube, &cluster.id) } else { String::new() },
        master_ip: if api { &cluster.master_ip } else { "" },
        dns_entry: format!("{}.k8s.civo.com", cluster.id),
        upgrade_available_to: catalog::newest_above(&cluster.version, &cluster.cluster_type),
        legacy: false,
        network_id: &cluster.network_id,
        namespace: format!("cust-default-{}", &cluster.id[..cluster.id.len().min(8)]),
        tags: &cluster.tags,
        created_at: cluster.created_at.rfc3339(),
        instances: instances(cluster, now),
        pools: cluster.pools_at(now).map(|p| pool(cluster, p, now)).collect(),
        required_pools: wanted().map(required).collect(),
        installed_applications: cluster.applications.iter().map(|a| application(a, now)).collect(),
        firewall_id: &cluster.firewall_id,
        cni_plugin: &cluster.cni,
        ccm_installed: if api { "true" } else { "false" },
        conditions: conditions(cluster, now),
    }
}

fn conditions(cluster: &Cluster, now: SimTime) -> [Condition; 3] {
    let when = |kind, done: bool, at: SimTime| Condition {
        kind,
        status: if done { "True" } else { "False" },
        synced: done,
        last_transition_time: if done { at } else { cluster.created_at }.rfc3339(),
    };
    let nodes = cluster.nodes_at(now).all(|(_, node)| now >= node.active_at);
    [
        when("ControlPlaneAccessible", cluster.api_up(now), cluster.control_plane_at),
        when("AllWorkerNodesReady", nodes && cluster.ready(now), cluster.built_at),
        when("ClusterVersionSync", cluster.status(now) != "UPGRADING" && cluster.ready(now), cluster.built_at),
    ]
}

pub fn pool<'a>(cluster: &'a Cluster, pool: &'a Pool, now: SimTime) -> PoolOut<'a> {
    PoolOut {
        id: &pool.id,
        count: pool.nodes_at(now).count(),
        size: &pool.size,
        instance_names: pool.nodes_at(now).map(|node| node.name.as_str()).collect(),
        instances: pool.nodes_at(now).map(|node| instance(cluster, pool, node, now)).collect(),
        labels: &pool.labels,
        taints: &pool.taints,
        public_ip_node_pool: pool.public_ip,
    }
}

fn required(pool: &Pool) -> RequiredOut<'_> {
    RequiredOut { id: &pool.id, size: &pool.size, count: pool.count, labels: &pool.labels, taints: &pool.taints }
}

pub fn instances(cluster: &Cluster, now: SimTime) -> Vec<InstanceOut<'_>> {
    cluster.nodes_at(now).map(|(pool, node)| instance(cluster, pool, node, now)).collect()
}

fn instance<'a>(cluster: &'a Cluster, pool: &'a Pool, node: &'a Node, now: SimTime) -> InstanceOut<'a> {
    let size = catalog::kube_size(&pool.size);
    InstanceOut {
        id: &node.id,
        hostname: &node.name,
        name: &node.name,
        size: &pool.size,
        region: &cluster.region,
        source_type: "diskimage",
        source_id: &cluster.version,
        initial_user: "root",
        status: node.status(now),
        firewall_id: &cluster.firewall_id,
        network_id: &cluster.network_id,
        cpu_cores: size.map_or(0, |s| s.cpu_cores),
        ram_mb: size.map_or(0, |s| s.ram_mb),
        disk_gb: size.map_or(0, |s| s.disk_gb),
        tags: [],
        created_at: node.created_at.rfc3339(),
    }
}

fn application(installed: &Installed, now: SimTime) -> ApplicationOut<'_> {
    let known = catalog::find_application(&installed.name);
    ApplicationOut {
        application: &installed.name,
        name: &installed.name,
        title: known.map(|a| a.title),
        version: known.map_or("", |a| a.version),
        dependencies: known.map_or(&[], |a| a.dependencies),
        maintainer: "@civocloud",
        description: known.map_or("", |a| a.description),
        post_install: "",
        installed: now >= installed.at,
        url: "https://www.civo.com/marketplace",
        category: known.map_or("", |a| a.category),
        updated_at: installed.at.rfc3339(),
        image_url: "",
        plan: installed.plan.as_deref(),
        configuration: BTreeMap::new(),
    }
}
