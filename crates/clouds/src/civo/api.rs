//! Civo's HTTP API: the requests and the fields that Berth needs.

use crate::http::{Http, segment};
use berth_engine::handler::{Class, Outcome, Trouble};
use reqwest::Method;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Objects asked for in one page of a list.
pub const PAGE: u32 = 100;

pub struct Api {
    pub http: Http,
}

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
struct Made {
    id: String,
}

#[derive(Deserialize)]
struct Done {
    #[serde(default, deserialize_with = "or_default")]
    result: String,
}

#[derive(Deserialize)]
struct Kubeconfig {
    #[serde(default, deserialize_with = "or_default")]
    kubeconfig: String,
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
struct NewRule<'a> {
    region: &'a str,
    #[serde(flatten)]
    rule: &'a FirewallRule,
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

/// Civo writes region codes in capitals.
pub fn region_code(region: &str) -> String {
    region.to_ascii_uppercase()
}

impl Api {
    pub async fn regions(&self) -> Outcome<Vec<Region>> {
        self.http.get("/v2/regions", &[]).await
    }
    pub async fn versions(&self, region: &str) -> Outcome<Vec<Version>> {
        self.http.get("/v2/kubernetes/versions", &[("region", &region_code(region))]).await
    }
    pub async fn sizes(&self, region: &str) -> Outcome<Vec<Size>> {
        self.http.get("/v2/sizes", &[("region", &region_code(region))]).await
    }
    pub async fn applications(&self, region: &str) -> Outcome<Vec<Application>> {
        self.http.get("/v2/kubernetes/applications", &[("region", &region_code(region))]).await
    }
    pub async fn quota(&self, region: &str) -> Outcome<Quota> {
        self.http.get("/v2/quota", &[("region", &region_code(region))]).await
    }

    pub async fn networks(&self, region: &str) -> Outcome<Vec<Network>> {
        self.http.get("/v2/networks", &[("region", &region_code(region))]).await
    }
    pub async fn network(&self, region: &str, id: &str) -> Outcome<Network> {
        self.http.get(&format!("/v2/networks/{}", segment(id)), &[("region", &region_code(region))]).await
    }
    pub async fn create_network(&self, region: &str, body: &NewNetwork<'_>) -> Outcome<String> {
        let made: Made =
            self.http.send(Method::POST, "/v2/networks", &[("region", &region_code(region))], Some(body)).await?;
        Ok(made.id)
    }
    pub async fn update_network(&self, region: &str, id: &str, body: &NewNetwork<'_>) -> Outcome<()> {
        self.change(Method::PUT, &format!("/v2/networks/{}", segment(id)), region, Some(body)).await
    }
    pub async fn delete_network(&self, region: &str, id: &str) -> Outcome<()> {
        self.delete(&format!("/v2/networks/{}", segment(id)), region).await
    }

    pub async fn firewalls(&self, region: &str) -> Outcome<Vec<Firewall>> {
        self.http.get("/v2/firewalls", &[("region", &region_code(region))]).await
    }
    pub async fn firewall_rules(&self, region: &str, id: &str) -> Outcome<Vec<FirewallRule>> {
        let path = format!("/v2/firewalls/{}/rules", segment(id));
        self.http.get(&path, &[("region", &region_code(region))]).await
    }
    pub async fn create_firewall(&self, region: &str, body: &NewFirewall<'_>) -> Outcome<String> {
        let made: Made =
            self.http.send(Method::POST, "/v2/firewalls", &[("region", &region_code(region))], Some(body)).await?;
        Ok(made.id)
    }
    pub async fn rename_firewall(&self, region: &str, id: &str, body: &NewFirewall<'_>) -> Outcome<()> {
        self.change(Method::PUT, &format!("/v2/firewalls/{}", segment(id)), region, Some(body)).await
    }
    pub async fn delete_firewall(&self, region: &str, id: &str) -> Outcome<()> {
        self.delete(&format!("/v2/firewalls/{}", segment(id)), region).await
    }
    pub async fn create_rule(&self, region: &str, firewall: &str, rule: &FirewallRule) -> Outcome<()> {
        let code = region_code(region);
        let body = NewRule { region: &code, rule };
        self.change(Method::POST, &format!("/v2/firewalls/{}/rules", segment(firewall)), region, Some(&body)).await
    }
    pub async fn delete_rule(&self, region: &str, firewall: &str, rule: &str) -> Outcome<()> {
        let path = format!("/v2/firewalls/{}/rules/{}", segment(firewall), segment(rule));
        self.delete(&path, region).await
    }

    pub async fn clusters(&self, region: &str, page: u32) -> Outcome<Page<Cluster>> {
        let query = [("region", &*region_code(region)), ("page", &page.to_string()), ("per_page", &PAGE.to_string())];
        self.http.get("/v2/kubernetes/clusters", &query).await
    }
    pub async fn cluster(&self, region: &str, id: &str) -> Outcome<Cluster> {
        self.http.get(&cluster_path(id), &[("region", &region_code(region))]).await
    }
    /// The kubeconfig's text, or an empty one while there is none.
    pub async fn kubeconfig(&self, region: &str, id: &str) -> Outcome<String> {
        let answer: Kubeconfig = self.http.get(&cluster_path(id), &[("region", &region_code(region))]).await?;
        Ok(answer.kubeconfig)
    }
    pub async fn create_cluster(&self, region: &str, body: &ClusterBody<'_>) -> Outcome<String> {
        let path = "/v2/kubernetes/clusters";
        let made: Made = self.http.send(Method::POST, path, &[("region", &region_code(region))], Some(body)).await?;
        Ok(made.id)
    }
    pub async fn update_cluster(&self, region: &str, id: &str, body: &ClusterBody<'_>) -> Outcome<()> {
        self.change(Method::PUT, &cluster_path(id), region, Some(body)).await
    }
    pub async fn delete_cluster(&self, region: &str, id: &str) -> Outcome<()> {
        self.delete(&cluster_path(id), region).await
    }
    pub async fn create_pool(&self, region: &str, cluster: &str, body: &PoolBody<'_>) -> Outcome<()> {
        self.change(Method::POST, &format!("{}/pools", cluster_path(cluster)), region, Some(body)).await
    }
    pub async fn update_pool(&self, region: &str, cluster: &str, pool: &str, body: &PoolBody<'_>) -> Outcome<()> {
        self.change(Method::PUT, &format!("{}/pools/{}", cluster_path(cluster), segment(pool)), region, Some(body))
            .await
    }
    pub async fn delete_pool(&self, region: &str, cluster: &str, pool: &str) -> Outcome<()> {
        self.delete(&format!("{}/pools/{}", cluster_path(cluster), segment(pool)), region).await
    }

    /// Civo answers a delete that it cannot do yet, such as that of a network with a cluster on its way out, with
    /// success and the word `failed`.
    async fn delete(&self, path: &str, region: &str) -> Outcome<()> {
        let answer = self.http.change(Method::DELETE, path, &[("region", &region_code(region))], None).await?;
        let result = serde_json::from_slice::<Done>(&answer).map(|done| done.result).unwrap_or_default();
        match result.as_str() {
            "failed" => {
                let what = format!("DELETE {path}: Civo cannot delete it yet: something in it is still on its way out");
                Err(Trouble::new(Class::Retry { after: None }, what))
            }
            _ => Ok(()),
        }
    }

    async fn change(
        &self,
        method: Method,
        path: &str,
        region: &str,
        body: Option<&(dyn crate::http::erased::Body + '_)>,
    ) -> Outcome<()> {
        self.http.change(method, path, &[("region", &region_code(region))], body).await.map(|_| ())
    }
}

fn cluster_path(id: &str) -> String {
    format!("/v2/kubernetes/clusters/{}", segment(id))
}
