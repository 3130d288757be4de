//! DigitalOcean: client, unit handlers, lowering, import.

mod api;
mod client;
mod cluster;
mod default_pool;
mod errors;
mod kube_api;
mod lower;
mod node_pool;
mod normal_form;
mod offers;
mod raise;
#[cfg(test)]
mod tests;
mod versions;
mod vpc;
mod wire;

use crate::Credentials;
use crate::registry::{AccountBlock, Cloud, Variables};
use crate::units::{self, UnitType};
use async_trait::async_trait;
use berth_engine::handler::{Handler, Listed, Outcome, Page, Provider, Raised, Trouble};
use berth_engine::unit::Identity;
use berth_model::pb::berth::core::v1::{DigitalOceanAccount, account_spec};
use client::Client;
use lower::lower;
use std::sync::Arc;
use std::time::Duration;

const VPC: &str = "digitalocean.vpc";
const CLUSTER: &str = "digitalocean.cluster";
const POOL: &str = "digitalocean.pool";
/// The list of clusters shows their pools too.
const CLUSTERS: &str = "digitalocean.clusters";
const VPCS: &str = "digitalocean.vpcs";
/// How long a create whose answer was lost may still take effect, or be missing from lists. DigitalOcean makes as many clusters
/// of one name as it is asked for: a create is repeated only after this.
const UNANSWERED_LIMIT: Duration = Duration::from_secs(30);

pub static CLOUD: Cloud = Cloud {
    name: "digitalocean",
    title: "DigitalOcean",
    api_url: api::API_URL,
    variables: Variables {
        token: &["DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_TOKEN"],
        api_url: "DIGITALOCEAN_API_URL",
        region: None,
    },
    client: Some(("doctl", &["version"])),
    account: |spec| {
        let Some(account_spec::Cloud::Digitalocean(block)) = spec.cloud.clone() else { return None };
        let DigitalOceanAccount { token, observe_token, api_url } = block;
        Some(AccountBlock { token, observe_token, api_url, region: String::new() })
    },
    units: &[
        UnitType { name: VPC, name_properties: &["name", "vpc_name"], names_are_inner: false, summary: units::range },
        UnitType { name: CLUSTER, name_properties: &["cluster_name"], names_are_inner: false, summary: units::nodes },
        UnitType { name: POOL, name_properties: &["node_pool_name"], names_are_inner: true, summary: units::nodes },
    ],
    main_units: &[
        ("DigitalOceanVpc", "network"),
        ("DigitalOceanKubernetesCluster", "cluster"),
        ("DigitalOceanKubernetesNodePool", "pool"),
    ],
    place_in_spec: |_, _| None,
    connect,
    lower,
};

struct DigitalOcean {
    client: Arc<Client>,
    vpc: vpc::VpcHandler,
    cluster: cluster::ClusterHandler,
    pool: node_pool::PoolHandler,
}

/// Opens a connection; nothing is sent yet.
fn connect(credentials: &Credentials) -> Outcome<Arc<dyn Provider>> {
    let client = Arc::new(Client::new(credentials)?);
    Ok(Arc::new(DigitalOcean {
        vpc: vpc::VpcHandler { client: client.clone() },
        cluster: cluster::ClusterHandler { client: client.clone() },
        pool: node_pool::PoolHandler { client: client.clone() },
        client,
    }))
}

#[async_trait]
impl Provider for DigitalOcean {
    fn handler(&self, unit_type: &str) -> Option<&dyn Handler> {
        match unit_type {
            VPC => Some(&self.vpc),
            CLUSTER => Some(&self.cluster),
            POOL => Some(&self.pool),
            _ => None,
        }
    }

    fn list_for(&self, unit_type: &str) -> Option<&'static str> {
        match unit_type {
            VPC => Some(VPCS),
            CLUSTER | POOL => Some(CLUSTERS),
            _ => None,
        }
    }

    async fn list(&self, list: &str, _scope: &str, page: u32) -> Outcome<Page> {
        match list {
            VPCS => {
                let read = self.client.api.vpc_page(page).await?;
                let listed = |found| Listed { unit_type: VPC, observed: vpc::observed(found) };
                Ok(Page { items: read.items.into_iter().map(listed).collect(), next: read.next, pages: read.pages })
            }
            CLUSTERS => {
                let read = self.client.api.cluster_page(page).await?;
                let mut items = Vec::new();
                for found in &read.items {
                    items.push(Listed { unit_type: CLUSTER, observed: cluster::observed(found) });
                    let pools = raise::extra_pools(found);
                    items.extend(pools.map(|p| Listed { unit_type: POOL, observed: node_pool::observed(found, p) }));
                }
                Ok(Page { items, next: read.next, pages: read.pages })
            }
            other => Err(Trouble::refused(format!("DigitalOcean has no list named {other}"))),
        }
    }

    fn unanswered_limit(&self) -> Duration {
        UNANSWERED_LIMIT
    }

    fn calls(&self) -> u64 {
        self.client.api.calls()
    }

    async fn identity(&self) -> Outcome<Identity> {
        self.client.identity().await
    }

    async fn raise(&self, kind: &str, id: &str, _scope: &str) -> Outcome<Raised> {
        raise::one(&self.client, kind, id).await
    }

    async fn raise_all(&self) -> Outcome<Vec<Raised>> {
        raise::all(&self.client).await
    }
}
