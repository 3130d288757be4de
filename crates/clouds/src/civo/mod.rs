//! Civo: client, unit handlers, lowering, import.

mod api;
mod autoscaler;
mod cluster;
mod dialect;
mod firewall;
mod lower;
mod network;
mod offers;
mod pool;
mod pools;
mod props;
mod raise;
mod rules;
#[cfg(test)]
mod tests;
mod versions;

use crate::Credentials;
use crate::gather::Gather;
use crate::http::{self, Http};
use crate::kube::{Drained, Kubes, Node};
use crate::one_form;
use crate::registry::{AccountBlock, Cloud, Variables};
use crate::units::{self, UnitType};
use api::{Api, Firewall, Network};
use async_trait::async_trait;
use berth_engine::handler::{Class, Handler, Listed, Outcome, Page, Provider, Raised, Trouble};
use berth_engine::unit::Identity;
use berth_model::pb::berth::core::v1::{CivoAccount, account_spec};
use futures::future::try_join_all;
use offers::Offers;
use pools::View;
use secrecy::{ExposeSecret, SecretString};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;

use lower::lower;

const API_URL: &str = "https://api.civo.com";
/// Civo publishes no limit; this is what its own tools stay well below.
const REQUESTS_PER_SECOND: f64 = 20.0;
const BURST: u32 = 100;
/// How long one call drains; the engine calls again while pods are left.
const DRAIN_TIME: Duration = Duration::from_secs(60);
const POOL_LABEL: &str = "kubernetes.civo.com/civo-node-pool";
/// Lists are walked no further than this.
const MAX_PAGES: u32 = 10_000;
/// How long a create whose answer was lost may still take effect, or be missing from lists. Civo's names, and the ids of its
/// pools, are unique, so that only a deletion waits for it.
const UNANSWERED_LIMIT: Duration = Duration::from_secs(30);
/// Firewalls whose rules are read at the same time, where a list does not show them.
const RULES_AT_ONCE: usize = 8;

pub static CLOUD: Cloud = Cloud {
    name: "civo",
    title: "Civo",
    api_url: API_URL,
    variables: Variables { token: &["CIVO_TOKEN"], api_url: "CIVO_API_URL", region: Some("CIVO_REGION") },
    client: Some(("civo", &["version", "--quiet"])),
    account: |spec| {
        let Some(account_spec::Cloud::Civo(block)) = spec.cloud.clone() else { return None };
        let CivoAccount { token, observe_token, region, api_url } = block;
        Some(AccountBlock { token, observe_token, api_url, region })
    },
    units: &[
        UnitType {
            name: "civo.network",
            name_properties: &["network_name"],
            names_are_inner: false,
            summary: units::range,
        },
        UnitType {
            name: "civo.firewall",
            name_properties: &["name"],
            names_are_inner: false,
            summary: firewall::rules,
        },
        UnitType {
            name: "civo.cluster",
            name_properties: &["cluster_name"],
            names_are_inner: false,
            summary: units::nodes,
        },
        // Pools of a cluster's own and those that are resources.
        UnitType {
            name: "civo.pool",
            name_properties: &["name", "node_pool_name"],
            names_are_inner: true,
            summary: units::nodes,
        },
    ],
    main_units: &[
        ("CivoVpc", "network"),
        ("CivoFirewall", "firewall"),
        ("CivoKubernetesCluster", "cluster"),
        ("CivoKubernetesNodePool", "pool"),
    ],
    place_in_spec: |kind, key| {
        let name = key.strip_prefix("pool/").filter(|_| kind == "CivoKubernetesCluster")?;
        Some(format!("additional_node_pools[{name}]"))
    },
    connect,
    lower,
};

/// A connection to one Civo account.
pub struct Civo {
    shared: Arc<Shared>,
    network: network::NetworkHandler,
    firewall: firewall::FirewallHandler,
    cluster: cluster::ClusterHandler,
    pool: pool::PoolHandler,
    autoscaler: autoscaler::AutoscalerHandler,
}

/// What the handlers share.
pub struct Shared {
    api: Api,
    offers: Offers,
    kubes: Kubes,
    token: SecretString,
    api_url: String,
    region: Option<String>,
    networks: Gathers<Vec<Network>>,
    firewalls: Gathers<Vec<Firewall>>,
    clusters: Gathers<Vec<IndexEntry>>,
    identity: OnceCell<Identity>,
}

/// One gathering for each region.
struct Gathers<T>(Mutex<HashMap<String, Arc<Gather<T>>>>);

impl<T> Default for Gathers<T> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<T> Gathers<T> {
    fn of(&self, region: &str) -> Arc<Gather<T>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(region.to_ascii_lowercase()).or_default().clone()
    }
}

/// As much of a cluster as is needed to find it.
pub struct IndexEntry {
    id: String,
    name: String,
    token_tag: Option<String>,
}

fn connect(credentials: &Credentials) -> Outcome<Arc<dyn Provider>> {
    Ok(Arc::new(Civo::new(credentials)?))
}

impl Civo {
    pub fn new(credentials: &Credentials) -> Outcome<Self> {
        let api_url = credentials.api_url.clone().unwrap_or_else(|| API_URL.into()).trim_end_matches('/').to_owned();
        let (requests_per_second, burst) =
            http::limit(&api_url, credentials.requests_per_second, REQUESTS_PER_SECOND, BURST);
        let http = Http::new(http::Settings {
            base_url: api_url.clone(),
            foreign: credentials.foreign_url,
            authorization: SecretString::from(format!("bearer {}", credentials.token.expose_secret())),
            requests_per_second,
            burst,
            timeout: http::CALL_TIMEOUT,
            dialect: &dialect::CivoDialect,
        })?;
        let shared = Arc::new(Shared {
            api: Api { http },
            offers: Offers::default(),
            kubes: Kubes::default(),
            token: credentials.token.clone(),
            api_url,
            region: credentials.region.clone(),
            networks: Gathers::default(),
            firewalls: Gathers::default(),
            clusters: Gathers::default(),
            identity: OnceCell::new(),
        });
        Ok(Self {
            network: network::NetworkHandler(shared.clone()),
            firewall: firewall::FirewallHandler(shared.clone()),
            cluster: cluster::ClusterHandler(shared.clone()),
            pool: pool::PoolHandler(shared.clone()),
            autoscaler: autoscaler::AutoscalerHandler(shared.clone()),
            shared,
        })
    }
}

impl Shared {
    async fn ask_identity(&self) -> Outcome<Identity> {
        let region = self.region.as_deref().unwrap_or("lon1");
        match self.api.quota(region).await {
            Ok(quota) if !quota.id.is_empty() => {
                return Ok(Identity::new("civo", &quota.id, &quota.default_user_email_address));
            }
            // Tokens of teams may not see the quota.
            Ok(_) => {}
            Err(trouble) if trouble.is_not_found() || trouble.class == Class::Refused => {}
            Err(trouble) => return Err(trouble),
        }
        // Every account has a default network in each region from the start, with an id that no other account's has.
        let networks = self.api.networks(region).await?;
        match networks.iter().find(|network| network.default) {
            Some(network) => Ok(Identity::new("civo", &format!("default-network/{}", network.id), "")),
            None => Err(Trouble::refused("Civo does not say which account the token belongs to")
                .help("use a token that may see the account's quota:   civo quota show")),
        }
    }

    async fn networks(&self, region: &str) -> Outcome<Arc<Vec<Network>>> {
        self.networks.of(region).get(|| self.api.networks(region)).await
    }

    async fn firewalls(&self, region: &str) -> Outcome<Arc<Vec<Firewall>>> {
        self.firewalls.of(region).get(|| self.api.firewalls(region)).await
    }

    async fn with_rules(&self, region: &str, mut firewall: Firewall) -> Outcome<Firewall> {
        if firewall.rules.is_none() {
            firewall.rules = Some(self.api.firewall_rules(region, &firewall.id).await?);
        }
        Ok(firewall)
    }

    /// Ids, names and token tags of every cluster of a region.
    async fn cluster_index(&self, region: &str) -> Outcome<Arc<Vec<IndexEntry>>> {
        let walk = || async {
            let mut index = Vec::new();
            for number in 1..=MAX_PAGES {
                let page = self.api.clusters(region, number).await?;
                index.extend(page.items.into_iter().map(|cluster| IndexEntry {
                    token_tag: cluster.tags.into_iter().find(|tag| tag.starts_with("berth-token:")),
                    id: cluster.id,
                    name: cluster.name,
                }));
                if number >= page.pages {
                    break;
                }
            }
            Ok(index)
        };
        self.clusters.of(region).get(walk).await
    }

    /// A cluster's id from its id or name. `current`: the id that it had so far.
    async fn cluster_id(&self, region: &str, cluster: &str, current: Option<&str>) -> Outcome<String> {
        if current == Some(cluster) || uuid::Uuid::parse_str(cluster).is_ok() {
            return Ok(one_form(cluster));
        }
        if let Some(current) = current
            && self.api.cluster(region, current).await.is_ok_and(|found| found.name == cluster)
        {
            return Ok(current.to_owned());
        }
        let index = self.cluster_index(region).await?;
        match index.iter().find(|entry| entry.name == cluster || entry.id == cluster) {
            Some(entry) => Ok(entry.id.clone()),
            None => Err(Trouble::new(Class::NotFound, format!("Civo has no cluster named `{cluster}` in {region}"))
                .help(format!("see which there are:   civo kubernetes list --region {}", api::region_code(region)))
                .help("to point at a CivoKubernetesCluster, write valueFrom: {name: …}")),
        }
    }

    /// Names of the clusters that fit and are not on their way out.
    async fn clusters_that(&self, region: &str, fits: impl Fn(&api::Cluster) -> bool) -> Outcome<Vec<String>> {
        let stays = |c: &api::Cluster| !c.status.eq_ignore_ascii_case("deleting") && fits(c);
        let mut names = Vec::new();
        for number in 1..=MAX_PAGES {
            let page = self.api.clusters(region, number).await?;
            for listed in page.items.iter().filter(|cluster| stays(cluster)) {
                // A list may be behind, and show what is gone.
                match self.api.cluster(region, &listed.id).await {
                    Ok(cluster) if stays(&cluster) => names.push(cluster.name),
                    Err(trouble) if !trouble.is_not_found() => return Err(trouble),
                    _ => {}
                }
            }
            if number >= page.pages {
                break;
            }
        }
        Ok(names)
    }

    /// The id of a network, which is there. Civo takes a label in its place, and would put into that network whatever it is
    /// told to: which one is meant has to be known before.
    async fn network_id(&self, region: &str, given: &str) -> Outcome<String> {
        let id = one_form(given);
        let networks = self.networks(region).await?;
        // A list may be behind: a network that was just made is read by itself.
        let is_id = uuid::Uuid::parse_str(&id).is_ok();
        if networks.iter().any(|network| network.id == id) || is_id && self.api.network(region, &id).await.is_ok() {
            return Ok(id);
        }
        let trouble = Trouble::refused(format!("Civo has no network with the id `{id}` in {region}"));
        Err(match networks.iter().find(|network| network.label == id) {
            Some(network) => trouble.help(format!("the network named `{id}` has the id {}", network.id)),
            None => {
                trouble.help(format!("see which there are:   civo network list --region {}", api::region_code(region)))
            }
        })
    }

    /// The id of a firewall. Civo takes a name in its place, too.
    async fn firewall_id(&self, region: &str, given: &str) -> Outcome<String> {
        let id = one_form(given);
        if uuid::Uuid::parse_str(&id).is_ok() {
            return Ok(id);
        }
        let firewalls = self.firewalls(region).await?;
        if firewalls.iter().any(|firewall| firewall.id == id) {
            return Ok(id);
        }
        let trouble = Trouble::refused(format!("Civo has no firewall with the id `{id}` in {region}"));
        Err(match firewalls.iter().find(|firewall| firewall.name == id) {
            Some(firewall) => trouble.help(format!("the firewall named `{id}` has the id {}", firewall.id)),
            None => {
                trouble.help(format!("see which there are:   civo firewall list --region {}", api::region_code(region)))
            }
        })
    }

    /// Moves the work off a pool's nodes, once the nodes of the pool that takes its place are Ready.
    async fn drain(&self, region: &str, cluster: &str, old: Option<&View<'_>>, new: Option<&View<'_>>) -> Outcome<()> {
        let Some(old) = old else { return Ok(()) };
        let unreachable = |trouble: Trouble| {
            let message = format!("the nodes of pool {} cannot be drained: {trouble}", old.id);
            Trouble::new(trouble.class, message)
                .help("Berth moves the work to the new nodes before the old ones go, and needs the cluster's API for it")
                .help("check that the firewall lets this machine reach port 6443")
                .help("where Berth is not meant to reach it, set the annotation berth.dev/ready-gate: cloud: Civo then drains by itself")
        };
        let kubeconfig = self.api.kubeconfig(region, cluster).await?;
        let kube = self.kubes.open(&kubeconfig)?;
        let nodes = kube.nodes(None).await.map_err(unreachable)?;
        if let Some(new) = new {
            let fresh = nodes_of(&nodes, new);
            let ready = fresh.iter().filter(|node| node.ready).count();
            let wanted = new.wanted.unwrap_or(0) as usize;
            if ready < wanted {
                let what = format!("pool {} cannot take over yet: {ready} of {wanted} nodes are Ready", new.id);
                return Err(Trouble::new(Class::Retry { after: Some(Duration::from_secs(2)) }, what)
                    .help("look at the nodes:   kubectl describe nodes"));
            }
        }
        match kube.drain(&nodes_of(&nodes, old), DRAIN_TIME).await.map_err(unreachable)? {
            Drained::Done => Ok(()),
            Drained::Waiting { pods, held_back } => {
                let some: Vec<&str> = pods.iter().map(String::as_str).take(3).collect();
                let what = format!("draining pool {}: {} pods are left ({})", old.id, pods.len(), some.join(", "));
                let trouble = Trouble::new(Class::Retry { after: None }, what);
                Err(match held_back {
                    true => {
                        trouble.help("a PodDisruptionBudget holds some back:   kubectl get poddisruptionbudgets -A")
                    }
                    false => trouble,
                })
            }
        }
    }
}

/// A delete that was refused: with clusters that stay, asking again will not help.
fn in_use(trouble: Trouble, clusters: Outcome<Vec<String>>) -> Trouble {
    match clusters {
        Ok(names) if !names.is_empty() => {
            Trouble::refused(format!("it is still in use by {}: {trouble}", names.join(", ")))
        }
        _ => trouble,
    }
}

/// The nodes of a pool: by Civo's label, or by the names of its instances.
fn nodes_of(nodes: &[Node], pool: &View<'_>) -> Vec<Node> {
    let belongs = |node: &&Node| {
        node.labels.get(POOL_LABEL).map(String::as_str) == Some(pool.id)
            || pool.instances.iter().any(|instance| instance.hostname == node.name)
    };
    nodes.iter().filter(belongs).cloned().collect()
}

#[async_trait]
impl Provider for Civo {
    fn handler(&self, unit_type: &str) -> Option<&dyn Handler> {
        Some(match unit_type {
            "civo.network" => &self.network,
            "civo.firewall" => &self.firewall,
            "civo.cluster" => &self.cluster,
            "civo.pool" => &self.pool,
            "civo.autoscaler" => &self.autoscaler,
            _ => return None,
        })
    }

    fn list_for(&self, unit_type: &str) -> Option<&'static str> {
        Some(match unit_type {
            "civo.network" => "civo.networks",
            "civo.firewall" => "civo.firewalls",
            "civo.cluster" | "civo.pool" => "civo.clusters",
            _ => return None,
        })
    }

    async fn list(&self, list: &str, scope: &str, page: u32) -> Outcome<Page> {
        match list {
            "civo.networks" => {
                let networks = self.shared.networks(scope).await?;
                let seen = networks
                    .iter()
                    .map(|n| Listed { unit_type: "civo.network", observed: network::observed(n, scope) });
                Ok(Page { items: seen.collect(), next: None, pages: Some(1) })
            }
            "civo.firewalls" => {
                let firewalls = self.shared.firewalls(scope).await?;
                let mut items = Vec::with_capacity(firewalls.len());
                for some in firewalls.chunks(RULES_AT_ONCE) {
                    let full = some.iter().map(|firewall| self.shared.with_rules(scope, firewall.clone()));
                    for firewall in try_join_all(full).await? {
                        items.push(Listed {
                            unit_type: "civo.firewall",
                            observed: firewall::observed(&firewall, scope),
                        });
                    }
                }
                Ok(Page { items, next: None, pages: Some(1) })
            }
            "civo.clusters" => {
                let answer = self.shared.api.clusters(scope, page).await?;
                let mut items = Vec::with_capacity(answer.items.len() * 2);
                for cluster in &answer.items {
                    let views = pools::views(cluster);
                    let default = pools::default_chain(&views);
                    for (_, view) in views.iter().enumerate().filter(|(index, _)| !default.contains(index)) {
                        items.push(Listed { unit_type: "civo.pool", observed: pool::observed(cluster, view, scope) });
                    }
                    items.push(Listed {
                        unit_type: "civo.cluster",
                        observed: cluster::observed_with(cluster, &views, &default, scope),
                    });
                }
                Ok(Page { items, next: (page < answer.pages).then_some(page + 1), pages: Some(answer.pages) })
            }
            other => Err(Trouble::refused(format!("Civo has no list named {other}"))),
        }
    }

    fn unanswered_limit(&self) -> Duration {
        UNANSWERED_LIMIT
    }

    fn calls(&self) -> u64 {
        self.shared.api.http.calls()
    }

    async fn identity(&self) -> Outcome<Identity> {
        self.shared.identity.get_or_try_init(|| self.shared.ask_identity()).await.cloned()
    }

    async fn raise(&self, kind: &str, id: &str, scope: &str) -> Outcome<Raised> {
        raise::one(&self.shared, kind, id, scope).await
    }

    async fn raise_all(&self) -> Outcome<Vec<Raised>> {
        raise::all(&self.shared).await
    }
}
