//! What the clients ask about the account, and lists of things that a sandbox never has any of.

use serde_json::{Value, json};

use super::State;
use super::catalog;
use crate::http::Reply;

pub fn quota(state: &State) -> Reply {
    let (store, quota, account) = (&state.store, &state.quota, state.account);
    let nodes = store.clusters.weight();
    // Cores and memory follow from the nodes as if all were of the default size: sums over thousands of clusters
    // on every call would cost more than anybody looks at them.
    let size = catalog::kube_size(catalog::DEFAULT_SIZE);
    let (cpu, ram) = size.map_or((0, 0), |s| (u64::from(s.cpu_cores), u64::from(s.ram_mb)));
    let disk = size.map_or(0, |s| u64::from(s.disk_gb));
    Reply::json(
        200,
        &json!({
            "id": account, "default_user_id": account, "default_user_email_address": "sandbox@berth.dev",
            "instance_count_limit": quota.nodes, "instance_count_usage": nodes,
            "cpu_core_limit": quota.nodes * cpu, "cpu_core_usage": nodes * cpu,
            "ram_mb_limit": quota.nodes * ram, "ram_mb_usage": nodes * ram,
            "disk_gb_limit": quota.nodes * disk, "disk_gb_usage": nodes * disk,
            "disk_volume_count_limit": quota.nodes, "disk_volume_count_usage": 0,
            "disk_snapshot_count_limit": 30, "disk_snapshot_count_usage": 0,
            "public_ip_address_limit": quota.clusters, "public_ip_address_usage": store.clusters.len(),
            "subnet_count_limit": 10, "subnet_count_usage": 0,
            "network_count_limit": quota.networks, "network_count_usage": store.networks.len(),
            "security_group_limit": quota.firewalls, "security_group_usage": store.firewalls.len(),
            "security_group_rule_limit": quota.firewalls * 100, "security_group_rule_usage": 0,
            "port_count_limit": 32, "port_count_usage": 0,
            "loadbalancer_count_limit": 16, "loadbalancer_count_usage": 0,
            "objectstore_gb_limit": 1000, "objectstore_gb_usage": 0,
            "database_count_limit": 4, "database_count_usage": 0,
        }),
    )
}

pub fn organisation(state: &State) -> Reply {
    Reply::json(
        200,
        &json!({"id": state.account, "name": "Berth sandbox", "created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z"}),
    )
}

pub fn accounts(state: &State) -> Reply {
    let account = json!({"id": state.account, "email_address": "sandbox@berth.dev", "label": "Berth sandbox", "flags": "",
                         "timezone": "UTC", "status": "active", "created_at": "2020-01-01T00:00:00Z",
                         "updated_at": "2020-01-01T00:00:00Z"});
    Reply::json(200, &paged(vec![account]))
}

pub fn none() -> Reply {
    Reply::json(200, &json!([]))
}

pub fn no_pages() -> Reply {
    Reply::json(200, &paged(vec![]))
}

fn paged(items: Vec<Value>) -> Value {
    json!({"page": 1, "per_page": 20, "pages": 1, "items": items})
}
