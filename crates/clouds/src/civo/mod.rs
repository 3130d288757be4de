//! Civo: client, unit handlers, lowering, import.

mod api;
mod autoscaler;
mod client;
mod cluster;
mod default_pool;
mod errors;
mod firewall;
mod firewall_rules;
mod kube_api;
mod lower;
mod node_pool;
mod normal_form;
mod offers;
mod pool_view;
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
use berth_model::pb::berth::core::v1::{CivoAccount, account_spec};
use client::Client;
use futures::future::try_join_all;
use lower::lower;
use std::sync::Arc;
use std::time::Duration;

/// How long a create whose answer was lost may still take effect, or be missing from lists. Civo's names, and the ids of its
/// pools, are unique, so that only a deletion waits for it.
const UNANSWERED_LIMIT: Duration = Duration::from_secs(30);
/// Firewalls whose rules are read at the same time, where a list does not show them.
const RULES_AT_ONCE: usize = 8;

pub static CLOUD: Cloud = Cloud {
    name: "civo",
    title: "Civo",
    api_url: api::API_URL,
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
struct Civo {
    client: Arc<Client>,
    vpc: vpc::VpcHandler,
    firewall: firewall::FirewallHandler,
    cluster: cluster::ClusterHandler,
    pool: node_pool::PoolHandler,
    autoscaler: autoscaler::AutoscalerHandler,
}

/// Opens a connection; nothing is sent yet.
fn connect(credentials: &Credentials) -> Outcome<Arc<dyn Provider>> {
    let client = Arc::new(Client::new(credentials)?);
    Ok(Arc::new(Civo {
        vpc: vpc::VpcHandler { client: client.clone() },
        firewall: firewall::FirewallHandler { client: client.clone() },
        cluster: cluster::ClusterHandler { client: client.clone() },
        pool: node_pool::PoolHandler { client: client.clone() },
        autoscaler: autoscaler::AutoscalerHandler { client: client.clone() },
        client,
    }))
}

#[async_trait]
impl Provider for Civo {
    fn handler(&self, unit_type: &str) -> Option<&dyn Handler> {
        Some(match unit_type {
            "civo.network" => &self.vpc,
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
                let networks = self.client.networks(scope).await?;
                let seen =
                    networks.iter().map(|n| Listed { unit_type: "civo.network", observed: vpc::observed(n, scope) });
                Ok(Page { items: seen.collect(), next: None, pages: Some(1) })
            }
            "civo.firewalls" => {
                let firewalls = self.client.firewalls(scope).await?;
                let mut items = Vec::with_capacity(firewalls.len());
                for some in firewalls.chunks(RULES_AT_ONCE) {
                    let full = some.iter().map(|firewall| self.client.with_rules(scope, firewall.clone()));
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
                let answer = self.client.api.clusters(scope, page).await?;
                let mut items = Vec::with_capacity(answer.items.len() * 2);
                for cluster in &answer.items {
                    let views = pool_view::views(cluster);
                    let default = default_pool::default_chain(&views);
                    for (_, view) in views.iter().enumerate().filter(|(index, _)| !default.contains(index)) {
                        items.push(Listed {
                            unit_type: "civo.pool",
                            observed: node_pool::observed(cluster, view, scope),
                        });
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
        self.client.api.calls()
    }

    async fn identity(&self) -> Outcome<Identity> {
        self.client.identity().await
    }

    async fn raise(&self, kind: &str, id: &str, scope: &str) -> Outcome<Raised> {
        raise::one(&self.client, kind, id, scope).await
    }

    async fn raise_all(&self) -> Outcome<Vec<Raised>> {
        raise::all(&self.client).await
    }
}
