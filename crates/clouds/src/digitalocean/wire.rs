//! Requests and answers of DigitalOcean's API: only the fields that Berth uses.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The largest page that the API gives.
pub const PER_PAGE: u32 = 200;
/// 200 pages are 40,000 objects: more than any account holds.
const MAX_PAGES: u32 = 200;

#[derive(Debug, Clone, Deserialize)]
pub struct Vpc {
    pub id: String,
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    #[serde(default, deserialize_with = "or_default")]
    pub ip_range: String,
    #[serde(default, deserialize_with = "or_default")]
    pub region: String,
    #[serde(default, deserialize_with = "or_default")]
    pub default: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Cluster {
    pub id: String,
    pub name: String,
    pub region: String,
    pub version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub endpoint: String,
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub vpc_uuid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub ha: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub node_pools: Vec<NodePool>,
    #[serde(default)]
    pub maintenance_policy: Option<MaintenancePolicy>,
    #[serde(default, deserialize_with = "or_default")]
    pub auto_upgrade: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub surge_upgrade: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub registry_enabled: bool,
    #[serde(default)]
    pub control_plane_firewall: Option<Firewall>,
    #[serde(default, deserialize_with = "or_default")]
    pub status: State,
    #[serde(default, deserialize_with = "or_default")]
    pub created_at: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct State {
    #[serde(default, deserialize_with = "or_default")]
    pub state: String,
    #[serde(default, deserialize_with = "or_default")]
    pub message: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MaintenancePolicy {
    pub start_time: String,
    pub day: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Firewall {
    #[serde(default, deserialize_with = "or_default")]
    pub enabled: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub allowed_addresses: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct NodePool {
    pub id: String,
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub size: String,
    #[serde(default, deserialize_with = "or_default")]
    pub count: u32,
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
    #[serde(default, deserialize_with = "or_default")]
    pub auto_scale: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub min_nodes: u32,
    #[serde(default, deserialize_with = "or_default")]
    pub max_nodes: u32,
    #[serde(default, deserialize_with = "or_default")]
    pub nodes: Vec<Node>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Node {
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub status: State,
}

/// Some clients send, and some answers have, the keys capitalised.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    #[serde(alias = "Key")]
    pub key: String,
    #[serde(default, alias = "Value", deserialize_with = "or_default")]
    pub value: String,
    #[serde(alias = "Effect")]
    pub effect: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Options {
    #[serde(default, deserialize_with = "or_default")]
    pub versions: Vec<VersionOption>,
    #[serde(default, deserialize_with = "or_default")]
    pub regions: Vec<Slug>,
    #[serde(default, deserialize_with = "or_default")]
    pub sizes: Vec<Slug>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct VersionOption {
    pub slug: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Slug {
    pub slug: String,
}

#[derive(Debug, Serialize)]
pub struct VpcCreate<'a> {
    pub name: &'a str,
    pub region: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub ip_range: &'a str,
}

#[derive(Debug, Serialize)]
pub struct VpcUpdate<'a> {
    pub name: &'a str,
    pub description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
}

#[derive(Debug, Serialize)]
pub struct ClusterCreate<'a> {
    pub name: &'a str,
    pub region: &'a str,
    pub version: &'a str,
    pub vpc_uuid: &'a str,
    pub tags: Vec<String>,
    pub ha: bool,
    pub auto_upgrade: bool,
    pub surge_upgrade: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_policy: Option<MaintenancePolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_firewall: Option<Firewall>,
    pub node_pools: Vec<PoolChange>,
}

/// The name is always sent, the rest only where it changes.
#[derive(Debug, Default, Serialize)]
pub struct ClusterUpdate<'a> {
    pub name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ha: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_upgrade: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surge_upgrade: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_policy: Option<MaintenancePolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_firewall: Option<Firewall>,
}

/// Creates a pool, or changes one: then `size` is absent, because it cannot change.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PoolChange {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_scale: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
}

#[derive(Deserialize)]
pub struct VpcRoot {
    pub vpc: Vpc,
}

#[derive(Deserialize)]
pub struct ClusterRoot {
    pub kubernetes_cluster: Cluster,
}

#[derive(Deserialize)]
pub struct PoolRoot {
    pub node_pool: NodePool,
}

#[derive(Deserialize)]
pub struct OptionsRoot {
    pub options: Options,
}

#[derive(Deserialize)]
pub struct AccountRoot {
    pub account: AccountInfo,
}

#[derive(Deserialize)]
pub struct AccountInfo {
    #[serde(default, deserialize_with = "or_default")]
    pub email: String,
    #[serde(default, deserialize_with = "or_default")]
    pub uuid: String,
    #[serde(default)]
    pub team: Option<Team>,
}

#[derive(Default, Deserialize)]
pub struct Team {
    #[serde(default, deserialize_with = "or_default")]
    pub uuid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
}

#[derive(Deserialize)]
pub struct VpcsRoot {
    #[serde(default, deserialize_with = "or_default")]
    pub vpcs: Vec<Vpc>,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Deserialize)]
pub struct ClustersRoot {
    #[serde(default, deserialize_with = "or_default")]
    pub kubernetes_clusters: Vec<Cluster>,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Deserialize)]
pub struct Paging {
    #[serde(default)]
    pub meta: Option<Meta>,
    #[serde(default)]
    pub links: Option<Links>,
}

#[derive(Deserialize)]
pub struct Meta {
    #[serde(default)]
    pub total: Option<u64>,
}

#[derive(Deserialize)]
pub struct Links {
    #[serde(default)]
    pub pages: Option<LinkPages>,
}

#[derive(Deserialize)]
pub struct LinkPages {
    #[serde(default)]
    pub next: Option<String>,
}

/// One page of a list.
#[derive(Debug)]
pub struct Paged<T> {
    pub items: Vec<T>,
    pub next: Option<u32>,
    pub pages: Option<u32>,
}

impl Paging {
    pub fn page<T>(self, items: Vec<T>, page: u32) -> Paged<T> {
        let pages = self
            .meta
            .and_then(|meta| meta.total)
            .map(|total| u32::try_from(total.div_ceil(u64::from(PER_PAGE))).unwrap_or(MAX_PAGES).max(1));
        let linked = self.links.and_then(|links| links.pages).is_some_and(|pages| pages.next.is_some());
        let more = linked || pages.is_some_and(|pages| page < pages);
        Paged { items, next: (more && page < MAX_PAGES).then_some(page + 1), pages }
    }
}

/// A `null` where the API leaves out a list or a text.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
