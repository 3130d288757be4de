//! What the handlers of an account share: calls, lists that are read together, and offers.

use super::api::Api;
use super::wire::{Cluster, Options, Paged, Vpc};
use crate::Credentials;
use crate::coalesced::Coalesced;
use crate::kube::Kubes;
use crate::recent::Recent;
use berth_engine::handler::{Class, Outcome, Trouble};
use berth_engine::unit::Identity;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Versions, sizes and regions change over weeks.
const OPTIONS_KEPT_FOR: Duration = Duration::from_secs(600);

/// A connection to one account.
pub struct Client {
    pub api: Api,
    /// The clusters' own APIs.
    pub kubes: Kubes,
    all_vpcs: Coalesced<Vec<Vpc>>,
    all_clusters: Coalesced<Vec<Cluster>>,
    options: Recent<Options>,
    vpcs: Recent<Vec<Vpc>>,
    cluster_names: Recent<Vec<(String, String)>>,
    identity: OnceCell<Identity>,
}

impl Client {
    pub fn new(credentials: &Credentials) -> Outcome<Self> {
        Ok(Self {
            api: Api::new(credentials)?,
            kubes: Kubes::default(),
            all_vpcs: Coalesced::default(),
            all_clusters: Coalesced::default(),
            options: Recent::default(),
            vpcs: Recent::default(),
            cluster_names: Recent::default(),
            identity: OnceCell::new(),
        })
    }

    pub async fn identity(&self) -> Outcome<Identity> {
        self.identity.get_or_try_init(|| self.ask_identity()).await.cloned()
    }

    /// Objects belong to the team that a token was made in, not to the person who made it.
    async fn ask_identity(&self) -> Outcome<Identity> {
        let scope = |trouble: Trouble| match trouble.class {
            Class::Unauthorized => {
                trouble.help("a token with custom scopes needs account:read, which tells whose it is")
            }
            _ => trouble,
        };
        let account = self.api.account().await.map_err(scope)?;
        let team = account.team.unwrap_or_default();
        let id = if team.uuid.is_empty() { &account.uuid } else { &team.uuid };
        if id.is_empty() {
            return Err(Trouble::refused("DigitalOcean does not say which account the token belongs to"));
        }
        let name =
            [account.email.as_str(), team.name.as_str()].map(str::trim).into_iter().filter(|name| !name.is_empty());
        Ok(Identity::new("digitalocean", id, &name.collect::<Vec<_>>().join(", ")))
    }

    /// Versions, regions and sizes on offer.
    pub async fn options(&self) -> Outcome<Arc<Options>> {
        self.options.get("", OPTIONS_KEPT_FOR, || self.api.options()).await
    }

    /// All networks, begun to be read after this was asked.
    pub async fn vpcs(&self) -> Outcome<Arc<Vec<Vpc>>> {
        self.all_vpcs.get(|| self.walk_vpcs()).await
    }

    async fn walk_vpcs(&self) -> Outcome<Vec<Vpc>> {
        every_page(|page| self.api.vpc_page(page)).await
    }

    /// As they were at most so long ago: to look up names.
    pub async fn recent_vpcs(&self, age: Duration) -> Outcome<Arc<Vec<Vpc>>> {
        self.vpcs.get("", age, || self.walk_vpcs()).await
    }

    /// All clusters with their pools, begun to be read after this was asked.
    pub async fn clusters(&self) -> Outcome<Arc<Vec<Cluster>>> {
        self.all_clusters.get(|| self.walk_clusters()).await
    }

    async fn walk_clusters(&self) -> Outcome<Vec<Cluster>> {
        every_page(|page| self.api.cluster_page(page)).await
    }

    /// Ids and names as they were at most so long ago, without those that are on their way out.
    pub async fn recent_cluster_names(&self, age: Duration) -> Outcome<Arc<Vec<(String, String)>>> {
        let read = || async {
            let clusters = self.walk_clusters().await?.into_iter().filter(|c| c.status.state != "deleted");
            Ok(clusters.map(|cluster| (cluster.id, cluster.name)).collect())
        };
        self.cluster_names.get("", age, read).await
    }
}

async fn every_page<T, F: Future<Output = Outcome<Paged<T>>>>(read: impl Fn(u32) -> F) -> Outcome<Vec<T>> {
    let (mut all, mut page) = (Vec::new(), 1);
    loop {
        let answer = read(page).await?;
        all.extend(answer.items);
        match answer.next {
            Some(next) => page = next,
            None => return Ok(all),
        }
    }
}
