//! Requests and answers of Civo's API: only the fields that Berth uses.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Objects asked for in one page of a list.
pub const PER_PAGE: u32 = 100;

/// Civo writes `null` for empty lists and texts.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Network {
    pub id: String,
    /// The name that the user gave; `name` is one of Civo's own.
    #[serde(deserialize_with = "or_default")]
    pub label: String,
    #[serde(deserialize_with = "or_default")]
    pub default: bool,
    #[serde(deserialize_with = "or_default")]
    pub cidr: String,
    #[serde(deserialize_with = "or_default")]
    pub status: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Firewall {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub network_id: String,
    /// Absent where a list does not inline them.
    pub rules: Option<Vec<FirewallRule>>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq)]
#[serde(default)]
pub struct FirewallRule {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub protocol: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub ports: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub start_port: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub end_port: String,
    #[serde(deserialize_with = "or_default")]
    pub cidr: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub direction: String,
    #[serde(deserialize_with = "or_default")]
    pub action: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// A cluster without its kubeconfig, which is long, secret, and skipped while reading lists.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Cluster {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    pub ready: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub kubernetes_version: String,
    #[serde(deserialize_with = "or_default")]
    pub api_endpoint: String,
    #[serde(deserialize_with = "or_default")]
    pub network_id: String,
    #[serde(deserialize_with = "or_default")]
    pub firewall_id: String,
    #[serde(deserialize_with = "or_default")]
    pub cni_plugin: String,
    #[serde(deserialize_with = "or_default")]
    pub tags: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub created_at: String,
    #[serde(deserialize_with = "or_default")]
    pub pools: Vec<Pool>,
    #[serde(deserialize_with = "or_default")]
    pub required_pools: Vec<RequiredPool>,
    #[serde(deserialize_with = "or_default")]
    pub installed_applications: Vec<InstalledApplication>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pool {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub count: u32,
    #[serde(deserialize_with = "or_default")]
    pub size: String,
    #[serde(deserialize_with = "or_default")]
    pub instances: Vec<Instance>,
    pub labels: Option<BTreeMap<String, String>>,
    pub taints: Option<Vec<Taint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RequiredPool {
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub count: u32,
    #[serde(deserialize_with = "or_default")]
    pub size: String,
    pub labels: Option<BTreeMap<String, String>>,
    pub taints: Option<Vec<Taint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Instance {
    #[serde(deserialize_with = "or_default")]
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub hostname: String,
    #[serde(deserialize_with = "or_default")]
    pub status: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    #[serde(deserialize_with = "or_default")]
    pub value: String,
    pub effect: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct InstalledApplication {
    #[serde(deserialize_with = "or_default")]
    pub application: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub plan: String,
}

#[derive(Deserialize)]
pub struct Page<T> {
    #[serde(default)]
    pub pages: u32,
    #[serde(default = "Vec::new")]
    pub items: Vec<T>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Region {
    pub code: String,
    #[serde(deserialize_with = "or_default")]
    pub out_of_capacity: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Version {
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    #[serde(deserialize_with = "or_default", rename = "clusterType")]
    pub cluster_type: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Size {
    pub name: String,
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Application {
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub plans: Vec<Plan>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Plan {
    pub label: String,
}

#[derive(Deserialize)]
pub struct Made {
    pub id: String,
}

#[derive(Deserialize)]
pub struct Done {
    #[serde(default, deserialize_with = "or_default")]
    pub result: String,
}

#[derive(Deserialize)]
pub struct Kubeconfig {
    #[serde(default, deserialize_with = "or_default")]
    pub kubeconfig: String,
}

#[derive(Deserialize)]
pub struct Quota {
    /// The account's own id: an account has one quota.
    #[serde(default, deserialize_with = "or_default")]
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub default_user_email_address: String,
}

#[derive(Serialize)]
pub struct NewNetwork<'a> {
    pub label: &'a str,
    pub region: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cidr_v4: Option<&'a str>,
}

#[derive(Serialize)]
pub struct NewFirewall<'a> {
    pub name: &'a str,
    pub region: &'a str,
    pub network_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_rules: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<FirewallRule>>,
}

#[derive(Serialize)]
pub struct NewRule<'a> {
    pub region: &'a str,
    #[serde(flatten)]
    pub rule: &'a FirewallRule,
}

#[derive(Serialize, Default)]
pub struct ClusterBody<'a> {
    pub region: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_id: Option<&'a str>,
    /// One string, words separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<PoolBody<'a>>>,
    /// One string, names separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applications: Option<String>,
    /// The firewall, when making a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_firewall: Option<&'a str>,
    /// The firewall, when changing one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cni_plugin: Option<&'a str>,
}

#[derive(Serialize, Default)]
pub struct PoolBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<&'a str>,
}
