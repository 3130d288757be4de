//! Import: objects of an account, written as manifests' specs.

use super::client::Client;
use super::normal_form::{observed_addresses, observed_labels, observed_tags, window, without_inherited};
use super::wire::{Cluster, NodePool, Vpc};
use super::{default_pool, node_pool::holding};
use berth_engine::handler::{Class, Outcome, Raised, Trouble};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

const VPC: &str = "DigitalOceanVpc";
const CLUSTER: &str = "DigitalOceanKubernetesCluster";
const POOL: &str = "DigitalOceanKubernetesNodePool";
/// Longest DNS label.
const MAX_NAME: usize = 63;
/// So much of an id tells two objects of one name apart.
const ID_CHARS: usize = 8;

pub async fn one(client: &Client, kind: &str, id: &str) -> Outcome<Raised> {
    let raised = match kind {
        VPC => client.api.vpc(id).await?.map(vpc),
        CLUSTER => client.api.cluster(id).await?.map(|found| cluster(&found)),
        POOL => holding(client, id).await?.and_then(|cluster| {
            let found = cluster.node_pools.iter().find(|pool| pool.id == id)?;
            Some(node_pool(&cluster, found))
        }),
        _ => return Err(Trouble::refused(format!("DigitalOcean has no objects of kind {kind}"))),
    };
    let list = match kind {
        VPC => "doctl vpcs list",
        CLUSTER => "doctl kubernetes cluster list",
        _ => "doctl kubernetes cluster node-pool list CLUSTER",
    };
    raised.ok_or_else(|| {
        Trouble::new(Class::NotFound, format!("DigitalOcean has nothing with id {id} that {kind} describes"))
            .help(format!("see what there is:   {list}"))
    })
}

/// Everything of the account's own. Default networks are left out: DigitalOcean makes them.
pub async fn all(client: &Client) -> Outcome<Vec<Raised>> {
    let mut raised: Vec<Raised> = client.vpcs().await?.iter().filter(|vpc| !vpc.default).cloned().map(vpc).collect();
    for found in client.clusters().await?.iter().filter(|cluster| cluster.status.state != "deleted") {
        raised.push(cluster(found));
        raised.extend(extra_pools(found).map(|pool| node_pool(found, pool)));
    }
    let mut names = HashSet::new();
    for item in &mut raised {
        if !names.insert((item.kind.clone(), item.name.clone())) {
            let id = item.units.values().next().cloned().unwrap_or_default();
            let short: String = id.chars().take(ID_CHARS).collect();
            item.name = label(&format!("{:.1$}-{short}", item.name, MAX_NAME - 1 - ID_CHARS));
            names.insert((item.kind.clone(), item.name.clone()));
        }
    }
    Ok(raised)
}

/// Pools that are not a cluster's default one.
pub fn extra_pools(cluster: &Cluster) -> impl Iterator<Item = &NodePool> {
    let own: HashSet<String> =
        default_pool::default_pools(&cluster.name, &cluster.node_pools).iter().map(|pool| pool.id.clone()).collect();
    cluster.node_pools.iter().filter(move |pool| !own.contains(&pool.id))
}

fn vpc(vpc: Vpc) -> Raised {
    let mut spec = Map::new();
    put(&mut spec, "vpcName", json!(vpc.name));
    put(&mut spec, "description", json!(vpc.description));
    put(&mut spec, "region", json!(vpc.region));
    put(&mut spec, "ipRangeCidr", json!(vpc.ip_range));
    put(&mut spec, "isDefaultForRegion", json!(vpc.default));
    raised(VPC, &vpc.name, spec, "network", &vpc.id, vec![])
}

fn cluster(cluster: &Cluster) -> Raised {
    let mut spec = Map::new();
    put(&mut spec, "clusterName", json!(cluster.name));
    put(&mut spec, "region", json!(cluster.region));
    put(&mut spec, "kubernetesVersion", json!(cluster.version));
    put(&mut spec, "vpc", json!({"value": cluster.vpc_uuid}));
    let pools = default_pool::default_pools(&cluster.name, &cluster.node_pools);
    if let Some(pool) = default_pool::primary(&pools) {
        let mut nodes = Map::new();
        put(&mut nodes, "size", json!(pool.size));
        counts(&mut nodes, pool);
        spec.insert("defaultNodePool".into(), Value::Object(nodes));
    }
    put(&mut spec, "highlyAvailable", json!(cluster.ha));
    put(&mut spec, "autoUpgrade", json!(cluster.auto_upgrade));
    put(&mut spec, "disableSurgeUpgrade", json!(!cluster.surge_upgrade));
    if let Some(policy) = &cluster.maintenance_policy {
        put(&mut spec, "maintenanceWindow", json!(window(&policy.day, &policy.start_time)));
    }
    put(&mut spec, "registryIntegration", json!(cluster.registry_enabled));
    put(&mut spec, "controlPlaneFirewallAllowedIps", observed_addresses(cluster.control_plane_firewall.as_ref()));
    put(&mut spec, "tags", observed_tags(&cluster.tags));
    let links = vec![("vpc".into(), VPC.into(), cluster.vpc_uuid.clone())];
    raised(CLUSTER, &cluster.name, spec, "cluster", &cluster.id, links)
}

fn node_pool(cluster: &Cluster, pool: &NodePool) -> Raised {
    let mut spec = Map::new();
    put(&mut spec, "nodePoolName", json!(pool.name));
    put(&mut spec, "cluster", json!({"value": cluster.id}));
    put(&mut spec, "size", json!(pool.size));
    counts(&mut spec, pool);
    put(&mut spec, "labels", observed_labels(&pool.labels));
    let taints = pool.taints.iter().map(|taint| {
        let mut object = Map::new();
        put(&mut object, "key", json!(taint.key));
        put(&mut object, "value", json!(taint.value));
        put(&mut object, "effect", json!(taint.effect));
        Value::Object(object)
    });
    put(&mut spec, "taints", Value::Array(taints.collect()));
    put(&mut spec, "tags", observed_tags(&without_inherited(&pool.tags, &cluster.tags)));
    let links = vec![("cluster".into(), CLUSTER.into(), cluster.id.clone())];
    raised(POOL, &pool.name, spec, "pool", &pool.id, links)
}

/// A manifest's first size is at least 1 and lies between its bounds.
fn counts(spec: &mut Map<String, Value>, pool: &NodePool) {
    let (min, max) = (pool.min_nodes, pool.max_nodes.max(1));
    let count = if pool.auto_scale { pool.count.min(max).max(min) } else { pool.count }.max(1);
    put(spec, "nodeCount", json!(count));
    if pool.auto_scale {
        put(spec, "autoScale", json!(true));
        put(spec, "minNodes", json!(min));
        put(spec, "maxNodes", json!(max));
    }
}

/// Leaves out what an omitted field means anyway.
fn put(spec: &mut Map<String, Value>, name: &str, value: Value) {
    let is_default = match &value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        _ => false,
    };
    if !is_default {
        spec.insert(name.to_owned(), value);
    }
}

fn raised(
    kind: &str,
    name: &str,
    spec: Map<String, Value>,
    unit: &str,
    id: &str,
    links: Vec<(String, String, String)>,
) -> Raised {
    Raised {
        kind: kind.into(),
        name: label(name),
        object_name: name.to_owned(),
        spec: Value::Object(spec),
        units: BTreeMap::from([(unit.to_owned(), id.to_owned())]),
        links,
    }
}

/// The nearest DNS label.
fn label(name: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = name.chars().map(clean).collect();
    let text: String = text.trim_matches('-').chars().take(MAX_NAME).collect();
    let text = text.trim_end_matches('-');
    if text.is_empty() { "imported".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_a_dns_label() {
        assert_eq!(label("Default_VPC.fra1"), "default-vpc-fra1");
        assert_eq!(label("--"), "imported");
        assert_eq!(label(&"a".repeat(80)).len(), 63);
    }

    #[test]
    fn what_is_omitted_stays_omitted() {
        let shown = json!({"id": "c", "name": "c", "region": "fra1", "version": "1.33.1-do.0", "tags": ["web"]});
        let cluster: Cluster = serde_json::from_value(shown).unwrap();
        let tags = vec!["web".to_owned(), "k8s".to_owned(), "k8s:c".to_owned()];
        let pool =
            NodePool { tags, id: "p".into(), name: "batch".into(), size: "s".into(), count: 2, ..NodePool::default() };
        assert_eq!(
            node_pool(&cluster, &pool).spec,
            json!({"nodePoolName": "batch", "cluster": {"value": "c"}, "size": "s", "nodeCount": 2})
        );
    }
}
