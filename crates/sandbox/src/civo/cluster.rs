//! A Civo cluster and its schedule: what it is at a moment follows from the times in it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::CLOUD;
use super::catalog;
use super::node_pool::{Node, Pool, Taint};
use crate::clock::SimTime;
use crate::table::Object;
use crate::world::{ClusterView, Dice, NodeView, TaintView};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cluster {
    pub id: String,
    pub name: String,
    pub region: String,
    pub cluster_type: String,
    /// What was asked for last; `upgrade` says from what and until when.
    pub version: String,
    pub network_id: String,
    pub firewall_id: String,
    pub cni: String,
    pub tags: Vec<String>,
    pub applications: Vec<Installed>,
    pub master_ip: String,
    pub created_at: SimTime,
    pub control_plane_at: SimTime,
    /// When its first nodes had all joined: the end of building.
    pub built_at: SimTime,
    pub upgrade: Option<Upgrade>,
    pub pools: Vec<Pool>,
    pub gone_at: Option<SimTime>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Upgrade {
    pub from: String,
    pub done_at: SimTime,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Installed {
    pub name: String,
    pub plan: Option<String>,
    pub at: SimTime,
}

impl Object for Cluster {
    const TYPE: &'static str = "civo.cluster";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![
            format!("region:{}", self.region),
            format!("name:{}", self.name),
            format!("network:{}", self.network_id),
            format!("firewall:{}", self.firewall_id),
        ]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone_at
    }

    fn weight(&self) -> u64 {
        self.pools.iter().filter(|pool| pool.gone_at.is_none()).map(|pool| pool.count as u64).sum()
    }

    fn ledger(&self, now: SimTime) -> Value {
        let pools = self.pools.iter().filter(|pool| pool.there(now)).map(|pool| {
            json!({"id": pool.id, "size": pool.size, "count": pool.count, "nodes": pool.nodes_at(now).count(),
                   "labels": pool.labels, "taints": pool.taints})
        });
        let applications: Vec<_> = self.applications.iter().map(|a| a.name.as_str()).collect();
        json!({"name": self.name, "region": self.region, "status": self.status(now), "version": self.version,
               "network_id": self.network_id, "firewall_id": self.firewall_id, "cni": self.cni, "tags": self.tags,
               "applications": applications, "pools": pools.collect::<Vec<_>>(),
               "created_at": self.created_at.rfc3339()})
    }
}

impl Cluster {
    /// Sets the times of a new cluster: control plane, then machines, then k3s on each.
    pub fn schedule(&mut self, dice: &mut Dice, stuck: bool) {
        let now = self.created_at;
        self.control_plane_at = if stuck { SimTime::NEVER } else { now.plus_ms(dice.seconds(30, 40)) };
        self.built_at = self.control_plane_at;
        for pool in &mut self.pools {
            for _ in 0..pool.count {
                let active = self.control_plane_at.plus_ms(dice.seconds(40, 60));
                let ready = active.plus_ms(dice.seconds(10, 20));
                pool.nodes.push(pool.node(&self.name, now, (active, ready), dice));
                self.built_at = self.built_at.max(ready);
            }
        }
    }

    pub fn status(&self, now: SimTime) -> &'static str {
        if self.gone_at.is_some() {
            return "DELETING";
        }
        if now < self.built_at {
            // All machines run and only k3s is still to come up on some of them.
            let machines = self.nodes_at(now).all(|(_, node)| now >= node.active_at);
            return if now >= self.control_plane_at && machines { "AVAILABLE" } else { "BUILDING" };
        }
        if self.upgrade.as_ref().is_some_and(|upgrade| now < upgrade.done_at) {
            return "UPGRADING";
        }
        let settled = |node: &Node| node.gone_at.is_none() && now >= node.active_at;
        let scaling = self.pools.iter().any(|p| p.there(now) && p.gone_at.is_some());
        if scaling || !self.nodes_at(now).all(|(_, node)| settled(node)) { "SCALING" } else { "ACTIVE" }
    }

    pub fn ready(&self, now: SimTime) -> bool {
        self.gone_at.is_none() && now >= self.built_at
    }

    pub fn api_up(&self, now: SimTime) -> bool {
        now >= self.control_plane_at
    }

    pub fn pools_at(&self, now: SimTime) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(move |pool| pool.there(now))
    }

    pub fn nodes_at(&self, now: SimTime) -> impl Iterator<Item = (&Pool, &Node)> {
        self.pools_at(now).flat_map(move |pool| pool.nodes_at(now).map(move |node| (pool, node)))
    }

    /// Forgets pools and nodes that are gone; done at every change so that a cluster never only grows.
    pub fn prune(&mut self, now: SimTime) {
        self.pools.retain(|pool| pool.there(now));
        self.pools.iter_mut().for_each(|pool| pool.nodes.retain(|node| node.there(now)));
        if self.upgrade.as_ref().is_some_and(|upgrade| now >= upgrade.done_at) {
            self.upgrade = None;
        }
    }

    /// The version that its nodes run now.
    fn running_version(&self, now: SimTime) -> &str {
        match &self.upgrade {
            Some(upgrade) if now < upgrade.done_at => &upgrade.from,
            _ => &self.version,
        }
    }

    pub fn view(&self, now: SimTime) -> ClusterView {
        let nodes = self.nodes_at(now).filter(|(_, node)| now >= node.active_at).map(|(pool, node)| {
            let taint = |t: &Taint| TaintView { key: t.key.clone(), value: t.value.clone(), effect: t.effect.clone() };
            let mut labels = pool.labels.clone();
            labels.insert("kubernetes.civo.com/civo-node-pool".into(), pool.id.clone());
            labels.insert("kubernetes.civo.com/civo-node-size".into(), pool.size.clone());
            labels.insert("topology.kubernetes.io/region".into(), self.region.to_lowercase());
            NodeView {
                name: node.name.clone(),
                ready: now >= node.ready_at && node.gone_at.is_none(),
                pool: pool.id.clone(),
                size: pool.size.clone(),
                labels,
                taints: pool.taints.iter().map(taint).collect(),
                machine: None,
                capacity: catalog::node_capacity(&pool.size),
                created: node.created_at,
            }
        });
        ClusterView {
            id: self.id.clone(),
            name: self.name.clone(),
            cloud: CLOUD.name,
            storage_class: CLOUD.storage_class,
            kubernetes_version: kubectl_version(self.running_version(now)),
            nodes: nodes.collect(),
            api_up: self.api_up(now),
            created: self.created_at,
        }
    }

    pub fn begin_upgrade(&mut self, to: &str, now: SimTime, dice: &mut Dice) {
        let from = self.running_version(now).to_owned();
        let minor = |version: &str| catalog::order(version).into_iter().take(2).collect::<Vec<_>>();
        let patch = minor(&from) == minor(to);
        let takes = if patch { dice.seconds(300, 600) } else { dice.seconds(600, 900) };
        self.version = to.to_owned();
        self.upgrade = Some(Upgrade { from, done_at: now.plus_ms(takes) });
    }
}

/// `1.30.5-k3s1` as Kubernetes itself says it: `v1.30.5+k3s1`.
fn kubectl_version(version: &str) -> String {
    match version.strip_prefix("talos-v1.5") {
        // Talos names its own version; 1.5 shipped this Kubernetes.
        Some(_) => "v1.28.0".into(),
        None => format!("v{}", version.replacen('-', "+", 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_sees_the_k3s_form() {
        assert_eq!(kubectl_version("1.30.5-k3s1"), "v1.30.5+k3s1");
        assert_eq!(kubectl_version("1.31.1"), "v1.31.1");
        assert_eq!(kubectl_version("talos-v1.5.0"), "v1.28.0");
    }
}
