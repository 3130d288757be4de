//! DigitalOcean's HTTP API, as far as Berth needs it: typed requests and answers, one method for each call.

use super::words::DigitalOceanWords;
use crate::Credentials;
use crate::http::{CALL_TIMEOUT, Http, Settings, segment};
use crate::kube::Kubes;
use berth_engine::handler::{Outcome, Trouble};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

const API_URL: &str = "https://api.digitalocean.com";
/// DigitalOcean allows 5,000 requests an hour and 250 a minute; the sandbox and private endpoints have a limit of their own.
const REQUESTS_PER_SECOND: f64 = 4.0;
const BURST: u32 = 200;
/// The largest page that the API gives.
const PER_PAGE: u32 = 200;
/// 200 pages are 40,000 objects: more than any account holds.
const MAX_PAGES: u32 = 200;
/// Versions, sizes and regions change over weeks.
const OPTIONS_KEPT: Duration = Duration::from_secs(600);
/// Long enough for one plan to look up a name once, short enough that a new object is soon seen.
const NAMES_KEPT: Duration = Duration::from_secs(5);

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
struct VpcRoot {
    vpc: Vpc,
}

#[derive(Deserialize)]
struct ClusterRoot {
    kubernetes_cluster: Cluster,
}

#[derive(Deserialize)]
struct PoolRoot {
    node_pool: NodePool,
}

#[derive(Deserialize)]
struct OptionsRoot {
    options: Options,
}

#[derive(Deserialize)]
struct AccountRoot {
    account: AccountInfo,
}

#[derive(Deserialize)]
struct AccountInfo {
    #[serde(default, deserialize_with = "or_default")]
    email: String,
    #[serde(default, deserialize_with = "or_default")]
    uuid: String,
    #[serde(default)]
    team: Option<Team>,
}

#[derive(Deserialize)]
struct Team {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
}

#[derive(Deserialize)]
struct VpcsRoot {
    #[serde(default, deserialize_with = "or_default")]
    vpcs: Vec<Vpc>,
    #[serde(flatten)]
    paging: Paging,
}

#[derive(Deserialize)]
struct ClustersRoot {
    #[serde(default, deserialize_with = "or_default")]
    kubernetes_clusters: Vec<Cluster>,
    #[serde(flatten)]
    paging: Paging,
}

#[derive(Deserialize)]
struct Paging {
    #[serde(default)]
    meta: Option<Meta>,
    #[serde(default)]
    links: Option<Links>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    total: Option<u64>,
}

#[derive(Deserialize)]
struct Links {
    #[serde(default)]
    pages: Option<LinkPages>,
}

#[derive(Deserialize)]
struct LinkPages {
    #[serde(default)]
    next: Option<String>,
}

/// One page of a list.
#[derive(Debug)]
pub struct Paged<T> {
    pub items: Vec<T>,
    pub next: Option<u32>,
    pub pages: Option<u32>,
}

impl Paging {
    fn page<T>(self, items: Vec<T>, page: u32) -> Paged<T> {
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

/// A value that was read a short while ago.
struct Kept<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Kept<T> {
    fn new() -> Self {
        Self(Mutex::new(None))
    }

    async fn get<F: Future<Output = Outcome<T>>>(&self, life: Duration, read: impl FnOnce() -> F) -> Outcome<Arc<T>> {
        let mut kept = self.0.lock().await;
        if let Some((since, value)) = &*kept
            && since.elapsed() < life
        {
            return Ok(value.clone());
        }
        let value = Arc::new(read().await?);
        *kept = Some((Instant::now(), value.clone()));
        Ok(value)
    }
}

/// A connection to one account.
pub struct Client {
    http: Http,
    /// The clusters' own APIs.
    pub kubes: Kubes,
    options: Kept<Options>,
    vpcs: Kept<Vec<Vpc>>,
    cluster_names: Kept<Vec<(String, String)>>,
}

impl Client {
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
            authorization: SecretString::from(format!("Bearer {token}")),
            requests_per_second: per_second,
            burst,
            timeout: CALL_TIMEOUT,
            dialect: &DigitalOceanWords,
        })?;
        Ok(Self { http, kubes: Kubes::default(), options: Kept::new(), vpcs: Kept::new(), cluster_names: Kept::new() })
    }

    pub fn calls(&self) -> u64 {
        self.http.calls()
    }

    pub async fn identity(&self) -> Outcome<String> {
        let AccountRoot { account } = self.http.get("/v2/account", &[]).await?;
        let who = if account.email.is_empty() { account.uuid } else { account.email };
        Ok(match account.team.map(|team| team.name).filter(|name| !name.is_empty()) {
            Some(team) => format!("{who} ({team})"),
            None => who,
        })
    }

    /// Versions, regions and sizes on offer.
    pub async fn options(&self) -> Outcome<Arc<Options>> {
        let read =
            || async { self.http.get("/v2/kubernetes/options", &[]).await.map(|root: OptionsRoot| root.options) };
        self.options.get(OPTIONS_KEPT, read).await
    }

    pub async fn vpc(&self, id: &str) -> Outcome<Option<Vpc>> {
        gone_is_none(self.http.get(&vpc_path(id), &[]).await.map(|root: VpcRoot| root.vpc))
    }

    pub async fn vpc_page(&self, page: u32) -> Outcome<Paged<Vpc>> {
        let root: VpcsRoot = self.page("/v2/vpcs", page).await?;
        Ok(root.paging.page(root.vpcs, page))
    }

    pub async fn vpcs(&self) -> Outcome<Vec<Vpc>> {
        let (mut all, mut page) = (Vec::new(), 1);
        loop {
            let read = self.vpc_page(page).await?;
            all.extend(read.items);
            match read.next {
                Some(next) => page = next,
                None => return Ok(all),
            }
        }
    }

    /// As it was a moment ago: to look up names.
    pub async fn recent_vpcs(&self) -> Outcome<Arc<Vec<Vpc>>> {
        self.vpcs.get(NAMES_KEPT, || self.vpcs()).await
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

    pub async fn clusters(&self) -> Outcome<Vec<Cluster>> {
        let (mut all, mut page) = (Vec::new(), 1);
        loop {
            let read = self.cluster_page(page).await?;
            all.extend(read.items);
            match read.next {
                Some(next) => page = next,
                None => return Ok(all),
            }
        }
    }

    /// Ids and names as they were a moment ago, without those that are on their way out.
    pub async fn recent_cluster_names(&self) -> Outcome<Arc<Vec<(String, String)>>> {
        let read = || async {
            let clusters = self.clusters().await?.into_iter().filter(|c| c.status.state != "deleted");
            Ok(clusters.map(|cluster| (cluster.id, cluster.name)).collect())
        };
        self.cluster_names.get(NAMES_KEPT, read).await
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

fn gone_is_none<T>(answer: Outcome<T>) -> Outcome<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(trouble) if trouble.is_not_found() => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// Deleting twice is harmless.
fn gone_is_done(answer: Outcome<()>) -> Outcome<()> {
    match answer {
        Err(trouble) if trouble.is_not_found() => Ok(()),
        other => other,
    }
}
