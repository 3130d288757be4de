//! A cluster and its schedule: what it is at a moment follows from the times in it.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::{CLOUD, Store, catalog};
use crate::clock::SimTime;
use crate::table::Object;
use crate::world::{ClusterView, NodeView, TaintView};

/// Settings that the API keeps and gives back, and that change nothing in the sandbox.
pub const KEPT: [&str; 12] = [
    "cluster_autoscaler_configuration",
    "coredns_autoscaler",
    "sso",
    "p2p_oci_registry_plugin",
    "nfs_csi_plugin",
    "nvidia_gpu_dra_driver",
    "amd_gpu_dra_driver",
    "routing_agent",
    "amd_gpu_device_plugin",
    "amd_gpu_device_metrics_exporter_plugin",
    "nvidia_gpu_device_plugin",
    "rdma_shared_dev_plugin",
];
/// Simulated time between a node's joining and its being ready.
const JOINING_MS: i64 = 20_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Firewall {
    #[serde(default, alias = "enable", deserialize_with = "or_default")]
    pub enabled: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub allowed_addresses: Vec<String>,
}

/// DigitalOcean's Terraform provider sends a firewall that is not configured as a block of nulls.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(input: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(input).map(Option::unwrap_or_default)
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Maintenance {
    #[serde(default)]
    pub start_time: String,
    #[serde(default)]
    pub day: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Upgrade {
    pub from: String,
    pub until: SimTime,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cluster {
    pub id: String,
    pub name: String,
    pub region: String,
    pub version: String,
    pub upgrade: Option<Upgrade>,
    pub cluster_subnet: String,
    pub service_subnet: String,
    pub vpc: String,
    pub tags: Vec<String>,
    pub ha: bool,
    pub auto_upgrade: bool,
    pub surge_upgrade: bool,
    pub registry_enabled: bool,
    pub maintenance: Maintenance,
    pub firewall: Option<Firewall>,
    pub kept: Map<String, Value>,
    #[serde(default)]
    pub isolated_workers: bool,
    pub created: SimTime,
    pub updated: SimTime,
    pub api_up: SimTime,
    pub ready: SimTime,
    pub gone: Option<SimTime>,
}

impl Cluster {
    pub fn state(&self, now: SimTime) -> &'static str {
        if self.gone.is_some() {
            "deleted"
        } else if now < self.ready {
            "provisioning"
        } else if self.upgrade.as_ref().is_some_and(|upgrade| now < upgrade.until) {
            "upgrading"
        } else {
            "running"
        }
    }

    /// What runs: during an upgrade still the old version.
    fn running_version(&self, now: SimTime) -> &str {
        match &self.upgrade {
            Some(upgrade) if now < upgrade.until => &upgrade.from,
            _ => &self.version,
        }
    }
}

impl Object for Cluster {
    const TYPE: &'static str = "digitalocean.cluster";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("name:{}", self.name), format!("vpc:{}", self.vpc)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone
    }

    fn ledger(&self, now: SimTime) -> Value {
        json!({
            "name": self.name, "region": self.region, "version": self.version, "vpc": self.vpc,
            "state": self.state(now), "tags": self.tags,
        })
    }
}

pub fn view(store: &Store, id: &str, now: SimTime) -> Option<ClusterView> {
    let cluster = store.clusters.get(id)?;
    let mut nodes = Vec::new();
    for pool in store.pools.find(&format!("cluster:{id}")) {
        let mut labels = pool.labels.clone();
        for (key, value) in [
            ("doks.digitalocean.com/node-pool", pool.name.as_str()),
            ("doks.digitalocean.com/node-pool-id", pool.id.as_str()),
            ("doks.digitalocean.com/version", cluster.running_version(now)),
            ("topology.kubernetes.io/region", cluster.region.as_str()),
            ("region", cluster.region.as_str()),
        ] {
            labels.insert(key.into(), value.into());
        }
        let taints: Vec<TaintView> = pool
            .taints
            .iter()
            .map(|t| TaintView { key: t.key.clone(), value: t.value.clone(), effect: t.effect.clone() })
            .collect();
        let here = pool.nodes.iter().filter(|node| node.gone.is_none_or(|gone| gone > now));
        for node in here.filter(|node| now >= node.ready.plus_ms(-JOINING_MS).max(node.created)) {
            let mut labels = labels.clone();
            labels.insert("doks.digitalocean.com/node-id".into(), node.id.clone());
            nodes.push(NodeView {
                name: node.name.clone(),
                ready: now >= node.ready && node.gone.is_none(),
                pool: pool.name.clone(),
                size: pool.size.clone(),
                labels,
                taints: taints.clone(),
                machine: None,
                capacity: catalog::node_capacity(&pool.size),
                created: node.created,
            });
        }
    }
    Some(ClusterView {
        id: cluster.id.clone(),
        name: cluster.name.clone(),
        cloud: CLOUD.name,
        storage_class: CLOUD.storage_class,
        kubernetes_version: format!("v{}", catalog::kubernetes_version(cluster.running_version(now))),
        nodes,
        api_up: now >= cluster.api_up && cluster.gone.is_none(),
        created: cluster.created,
    })
}
