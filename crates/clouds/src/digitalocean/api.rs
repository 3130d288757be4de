//! A connection to DigitalOcean's HTTP API: one method for each call.

use super::errors::DigitalOceanErrors;
use super::wire::*;
use crate::Credentials;
use crate::http::{CALL_TIMEOUT, Http, Settings, gone_is_none, segment};
use berth_engine::handler::{Outcome, Trouble};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;

pub const API_URL: &str = "https://api.digitalocean.com";
/// DigitalOcean allows 5,000 requests an hour and 250 a minute; the sandbox and private endpoints have a limit of their own.
const REQUESTS_PER_SECOND: f64 = 4.0;
const BURST: u32 = 200;

pub struct Api {
    http: Http,
}

impl Api {
    pub fn new(credentials: &Credentials) -> Outcome<Self> {
        let token = credentials.token.expose_secret();
        let own = credentials.api_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let (per_second, burst) = match credentials.requests_per_second {
            // Another endpoint than DigitalOcean's says by itself when it has had enough.
            0 if own.is_some_and(|url| url.trim_end_matches('/') != API_URL) => (1000.0, 1000),
            0 => (REQUESTS_PER_SECOND, BURST),
            given => (f64::from(given), given),
        };
        let http = Http::new(Settings {
            base_url: own.unwrap_or(API_URL).to_owned(),
            foreign: credentials.foreign_url,
            authorization: SecretString::from(format!("Bearer {token}")),
            requests_per_second: per_second,
            burst,
            timeout: CALL_TIMEOUT,
            dialect: &DigitalOceanErrors,
        })?;
        Ok(Self { http })
    }

    pub fn calls(&self) -> u64 {
        self.http.calls()
    }

    pub async fn account(&self) -> Outcome<AccountInfo> {
        self.http.get("/v2/account", &[]).await.map(|root: AccountRoot| root.account)
    }

    /// Versions, regions and sizes on offer.
    pub async fn options(&self) -> Outcome<Options> {
        self.http.get("/v2/kubernetes/options", &[]).await.map(|root: OptionsRoot| root.options)
    }

    pub async fn vpc(&self, id: &str) -> Outcome<Option<Vpc>> {
        gone_is_none(self.http.get(&vpc_path(id), &[]).await.map(|root: VpcRoot| root.vpc))
    }

    pub async fn vpc_page(&self, page: u32) -> Outcome<Paged<Vpc>> {
        let root: VpcsRoot = self.page("/v2/vpcs", page).await?;
        Ok(root.paging.page(root.vpcs, page))
    }

    pub async fn create_vpc(&self, body: &VpcCreate<'_>) -> Outcome<Vpc> {
        self.http.send(Method::POST, "/v2/vpcs", &[], Some(body)).await.map(|root: VpcRoot| root.vpc)
    }

    pub async fn update_vpc(&self, id: &str, body: &VpcUpdate<'_>) -> Outcome<()> {
        self.change(Method::PUT, &vpc_path(id), Some(body)).await
    }

    pub async fn delete_vpc(&self, id: &str) -> Outcome<()> {
        gone_is_done(self.change(Method::DELETE, &vpc_path(id), None).await)
    }

    pub async fn cluster(&self, id: &str) -> Outcome<Option<Cluster>> {
        gone_is_none(self.http.get(&cluster_path(id), &[]).await.map(|root: ClusterRoot| root.kubernetes_cluster))
    }

    pub async fn cluster_page(&self, page: u32) -> Outcome<Paged<Cluster>> {
        let root: ClustersRoot = self.page("/v2/kubernetes/clusters", page).await?;
        Ok(root.paging.page(root.kubernetes_clusters, page))
    }

    pub async fn create_cluster(&self, body: &ClusterCreate<'_>) -> Outcome<Cluster> {
        let root: ClusterRoot = self.http.send(Method::POST, "/v2/kubernetes/clusters", &[], Some(body)).await?;
        Ok(root.kubernetes_cluster)
    }

    pub async fn update_cluster(&self, id: &str, body: &ClusterUpdate<'_>) -> Outcome<()> {
        self.change(Method::PUT, &cluster_path(id), Some(body)).await
    }

    pub async fn upgrade_cluster(&self, id: &str, version: &str) -> Outcome<()> {
        let body = BTreeMap::from([("version", version)]);
        self.change(Method::POST, &format!("{}/upgrade", cluster_path(id)), Some(&body)).await
    }

    pub async fn delete_cluster(&self, id: &str) -> Outcome<()> {
        gone_is_done(self.change(Method::DELETE, &cluster_path(id), None).await)
    }

    /// The kubeconfig, as YAML.
    pub async fn kubeconfig(&self, id: &str) -> Outcome<SecretString> {
        let bytes = self.http.get_bytes(&format!("{}/kubeconfig", cluster_path(id)), &[]).await?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Trouble::refused(format!("the kubeconfig of cluster {id} is not text")))?;
        Ok(SecretString::from(text))
    }

    /// Lets a cluster pull from the account's registry, or no longer.
    pub async fn set_registry(&self, id: &str, on: bool) -> Outcome<()> {
        let method = if on { Method::POST } else { Method::DELETE };
        let body = BTreeMap::from([("cluster_uuids", [id])]);
        self.change(method, "/v2/kubernetes/registry", Some(&body)).await
    }

    pub async fn pool(&self, cluster: &str, id: &str) -> Outcome<Option<NodePool>> {
        gone_is_none(self.http.get(&pool_path(cluster, id), &[]).await.map(|root: PoolRoot| root.node_pool))
    }

    pub async fn create_pool(&self, cluster: &str, body: &PoolChange) -> Outcome<NodePool> {
        let path = format!("{}/node_pools", cluster_path(cluster));
        self.http.send(Method::POST, &path, &[], Some(body)).await.map(|root: PoolRoot| root.node_pool)
    }

    pub async fn update_pool(&self, cluster: &str, id: &str, body: &PoolChange) -> Outcome<()> {
        self.change(Method::PUT, &pool_path(cluster, id), Some(body)).await
    }

    pub async fn delete_pool(&self, cluster: &str, id: &str) -> Outcome<()> {
        gone_is_done(self.change(Method::DELETE, &pool_path(cluster, id), None).await)
    }

    async fn page<T: serde::de::DeserializeOwned>(&self, path: &str, page: u32) -> Outcome<T> {
        self.http.get(path, &[("page", &page.to_string()), ("per_page", &PER_PAGE.to_string())]).await
    }

    async fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<&(dyn crate::http::erased::Body + '_)>,
    ) -> Outcome<()> {
        self.http.change(method, path, &[], body).await.map(|_| ())
    }
}

fn vpc_path(id: &str) -> String {
    format!("/v2/vpcs/{}", segment(id))
}

fn cluster_path(id: &str) -> String {
    format!("/v2/kubernetes/clusters/{}", segment(id))
}

fn pool_path(cluster: &str, id: &str) -> String {
    format!("{}/node_pools/{}", cluster_path(cluster), segment(id))
}

/// Deleting twice is harmless.
fn gone_is_done(answer: Outcome<()>) -> Outcome<()> {
    match answer {
        Err(trouble) if trouble.is_not_found() => Ok(()),
        other => other,
    }
}
