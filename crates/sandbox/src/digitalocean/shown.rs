//! Networks, clusters and pools as DigitalOcean writes them.

use std::time::Duration;

use serde_json::{Value, json};

use super::Store;
use super::cluster::{Cluster, KEPT};
use super::node_pool::{Pool, node_state};
use super::vpc::Vpc;
use crate::clock::SimTime;
use crate::kube::{self, KubeServer};

pub fn vpc(vpc: &Vpc) -> Value {
    json!({
        "id": vpc.id, "urn": format!("do:vpc:{}", vpc.id), "name": vpc.name, "description": vpc.description,
        "ip_range": vpc.ip_range, "region": vpc.region, "created_at": vpc.created.rfc3339(), "default": vpc.default,
    })
}

/// `lag`: its pools are shown as they were so long ago.
pub fn cluster(store: &Store, kube: &KubeServer, cluster: &Cluster, now: SimTime, lag: Duration) -> Value {
    let mut tags = cluster.tags.clone();
    tags.extend(["k8s".to_owned(), format!("k8s:{}", cluster.id)]);
    let pools = store.pools.behind(&format!("cluster:{}", cluster.id), lag);
    let pools: Vec<Value> = pools.into_iter().map(|pool| self::pool(pool, now)).collect();
    let up = now >= cluster.api_up;
    let state = cluster.state(now);
    let status =
        if state == "provisioning" { json!({"state": state, "message": state}) } else { json!({"state": state}) };
    let mut all = json!({
        "id": cluster.id, "name": cluster.name, "region": cluster.region, "version": cluster.version,
        "cluster_subnet": cluster.cluster_subnet, "service_subnet": cluster.service_subnet, "vpc_uuid": cluster.vpc,
        "ipv4": if up { "127.0.0.1" } else { "" },
        "endpoint": if up { kube::endpoint(kube, &cluster.id) } else { String::new() },
        "tags": tags, "node_pools": pools,
        "maintenance_policy": {
            "start_time": cluster.maintenance.start_time, "duration": "4h0m0s", "day": cluster.maintenance.day,
        },
        "auto_upgrade": cluster.auto_upgrade, "surge_upgrade": cluster.surge_upgrade, "ha": cluster.ha,
        "registry_enabled": cluster.registry_enabled, "control_plane_firewall": cluster.firewall, "status": status,
        "isolated_workers": cluster.isolated_workers,
        "created_at": cluster.created.rfc3339(), "updated_at": cluster.updated.rfc3339(),
    });
    for name in KEPT {
        all[name] = cluster.kept.get(name).cloned().unwrap_or(Value::Null);
    }
    all
}

pub fn pool(pool: &Pool, now: SimTime) -> Value {
    let mut tags = pool.tags.clone();
    tags.extend(["k8s".to_owned(), format!("k8s:{}", pool.cluster), "k8s:worker".to_owned()]);
    let there = pool.nodes.iter().filter(|node| node.gone.is_none_or(|gone| gone > now));
    let nodes: Vec<Value> = there
        .map(|node| {
            let changed = if now >= node.ready { node.ready } else { node.created };
            json!({
                "id": node.id, "name": node.name, "status": {"state": node_state(node, now)},
                "droplet_id": node.droplet.to_string(),
                "created_at": node.created.rfc3339(), "updated_at": changed.rfc3339(),
            })
        })
        .collect();
    let labels = if pool.labels.is_empty() { Value::Null } else { json!(pool.labels) };
    json!({
        "id": pool.id, "name": pool.name, "size": pool.size, "count": pool.count, "tags": tags, "labels": labels,
        "taints": pool.taints, "auto_scale": pool.auto_scale, "min_nodes": pool.min_nodes, "max_nodes": pool.max_nodes,
        "nodes": nodes,
    })
}
