//! What the handlers of an account share: calls, lists that are read together, and offers.

use super::api::{Api, region_code};
use super::normal_form::is_token_tag;
use super::offers::Offers;
use super::wire::{Cluster, Firewall, Network};
use crate::coalesced::Coalesced;
use crate::kube::Kubes;
use crate::{Credentials, one_form};
use berth_engine::handler::{Class, Outcome, Trouble};
use berth_engine::unit::Identity;
use secrecy::SecretString;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

/// Lists are walked no further than this.
pub const MAX_PAGES: u32 = 10_000;

/// A connection to one account.
pub struct Client {
    pub api: Api,
    pub offers: Offers,
    /// The clusters' own APIs.
    pub kubes: Kubes,
    pub token: SecretString,
    /// Where a resource names none.
    pub region: Option<String>,
    networks: ByRegion<Vec<Network>>,
    firewalls: ByRegion<Vec<Firewall>>,
    clusters: ByRegion<Vec<IndexEntry>>,
    identity: OnceCell<Identity>,
}

/// One list for each region.
struct ByRegion<T>(Mutex<HashMap<String, Arc<Coalesced<T>>>>);

impl<T> Default for ByRegion<T> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<T> ByRegion<T> {
    fn of(&self, region: &str) -> Arc<Coalesced<T>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(region.to_ascii_lowercase()).or_default().clone()
    }
}

/// As much of a cluster as is needed to find it.
pub struct IndexEntry {
    pub id: String,
    pub name: String,
    pub token_tag: Option<String>,
}

impl Client {
    pub fn new(credentials: &Credentials) -> Outcome<Self> {
        Ok(Self {
            api: Api::new(credentials)?,
            offers: Offers::default(),
            kubes: Kubes::default(),
            token: credentials.token.clone(),
            region: credentials.region.clone(),
            networks: ByRegion::default(),
            firewalls: ByRegion::default(),
            clusters: ByRegion::default(),
            identity: OnceCell::new(),
        })
    }

    pub async fn identity(&self) -> Outcome<Identity> {
        self.identity.get_or_try_init(|| self.ask_identity()).await.cloned()
    }

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

    pub async fn networks(&self, region: &str) -> Outcome<Arc<Vec<Network>>> {
        self.networks.of(region).get(|| self.api.networks(region)).await
    }

    pub async fn firewalls(&self, region: &str) -> Outcome<Arc<Vec<Firewall>>> {
        self.firewalls.of(region).get(|| self.api.firewalls(region)).await
    }

    pub async fn with_rules(&self, region: &str, mut firewall: Firewall) -> Outcome<Firewall> {
        if firewall.rules.is_none() {
            firewall.rules = Some(self.api.firewall_rules(region, &firewall.id).await?);
        }
        Ok(firewall)
    }

    /// Ids, names and token tags of every cluster of a region.
    pub async fn cluster_index(&self, region: &str) -> Outcome<Arc<Vec<IndexEntry>>> {
        let walk = || async {
            let mut index = Vec::new();
            for number in 1..=MAX_PAGES {
                let page = self.api.clusters(region, number).await?;
                index.extend(page.items.into_iter().map(|cluster| IndexEntry {
                    token_tag: cluster.tags.into_iter().find(|tag| is_token_tag(tag)),
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
    pub async fn cluster_id(&self, region: &str, cluster: &str, current: Option<&str>) -> Outcome<String> {
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
                .help(format!("see which there are:   civo kubernetes list --region {}", region_code(region)))
                .help("to point at a CivoKubernetesCluster, write valueFrom: {name: …}")),
        }
    }

    /// Names of the clusters that fit and are not on their way out.
    pub async fn clusters_that(&self, region: &str, fits: impl Fn(&Cluster) -> bool) -> Outcome<Vec<String>> {
        let stays = |c: &Cluster| !c.status.eq_ignore_ascii_case("deleting") && fits(c);
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
    pub async fn network_id(&self, region: &str, given: &str) -> Outcome<String> {
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
            None => trouble.help(format!("see which there are:   civo network list --region {}", region_code(region))),
        })
    }

    /// The id of a firewall. Civo takes a name in its place, too.
    pub async fn firewall_id(&self, region: &str, given: &str) -> Outcome<String> {
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
            None => trouble.help(format!("see which there are:   civo firewall list --region {}", region_code(region))),
        })
    }

    /// The answer to a delete. Where it was refused because of clusters that stay, asking again will not help: the clusters are named.
    pub async fn or_in_use(
        &self,
        deleted: Outcome<()>,
        region: &str,
        uses: impl Fn(&Cluster) -> bool,
        help: &[&str],
    ) -> Outcome<()> {
        let trouble = match deleted {
            Err(trouble) if !trouble.is_not_found() => trouble,
            other => return other,
        };
        let trouble = match self.clusters_that(region, uses).await {
            Ok(names) if !names.is_empty() => {
                Trouble::refused(format!("it is still in use by {}: {trouble}", names.join(", ")))
            }
            _ => trouble,
        };
        Err(help.iter().fold(trouble, |trouble, line| trouble.help(*line)))
    }
}
