//! DigitalOcean: client, unit handlers, lowering, import.

mod api;
mod cluster;
mod kube_api;
mod lower_cluster;
mod lower_pool;
mod lower_vpc;
mod normal;
mod offers;
mod pool;
mod raise;
mod roll;
#[cfg(test)]
mod tests;
mod version;
mod vpc;
mod wire;
mod words;

use crate::Credentials;
use crate::registry::{AccountBlock, Cloud, Variables};
use crate::units::{self, UnitType};
use api::Client;
use async_trait::async_trait;
use berth_engine::handler::{Handler, Listed, LowerInput, Outcome, Page, Provider, Raised, Trouble};
use berth_engine::reference_property;
use berth_engine::unit::{Identity, Lowered};
use berth_model::pb::berth::core::v1::{DigitalOceanAccount, StringValueOrRef, account_spec};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const NETWORK: &str = "digitalocean.vpc";
const CLUSTER: &str = "digitalocean.cluster";
const POOL: &str = "digitalocean.pool";
/// The list of clusters shows their pools too.
const CLUSTERS: &str = "digitalocean.clusters";
const VPCS: &str = "digitalocean.vpcs";
/// How long a create whose answer was lost may still take effect, or be missing from lists. DigitalOcean makes as many clusters
/// of one name as it is asked for: a create is repeated only after this.
const UNANSWERED_LIMIT: Duration = Duration::from_secs(30);
const READY_GATE_ANNOTATION: &str = "berth.dev/ready-gate";

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
        UnitType {
            name: NETWORK,
            name_properties: &["name", "vpc_name"],
            names_are_inner: false,
            summary: units::range,
        },
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
    pool: pool::PoolHandler,
}

/// Opens a connection; nothing is sent yet.
fn connect(credentials: &Credentials) -> Outcome<Arc<dyn Provider>> {
    let client = Arc::new(Client::new(credentials)?);
    Ok(Arc::new(DigitalOcean {
        vpc: vpc::VpcHandler { client: client.clone() },
        cluster: cluster::ClusterHandler { client: client.clone() },
        pool: pool::PoolHandler { client: client.clone() },
        client,
    }))
}

/// Resource and resolved references in, units out. Pure.
fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    match input.id.kind.as_str() {
        "DigitalOceanVpc" => lower_vpc::lower(input),
        "DigitalOceanKubernetesCluster" => lower_cluster::lower(input),
        "DigitalOceanKubernetesNodePool" => lower_pool::lower(input),
        kind => Err(Trouble::refused(format!("DigitalOcean does not know the kind {kind}"))),
    }
}

fn decode<T: prost::Message + Default>(input: &LowerInput<'_>) -> Result<T, Trouble> {
    T::decode(input.spec).map_err(|e| Trouble::refused(format!("the spec of {} cannot be read: {e}", input.id)))
}

/// A reference gives the other resource's id, whichever of its fields it names; a literal is a name or an id.
fn reference(input: &LowerInput<'_>, field: &str, output: &str, given: Option<&StringValueOrRef>) -> Value {
    match input.targets.get(field) {
        Some(target) => target.output(output),
        None => reference_property(given),
    }
}

/// `cloud` where Berth cannot reach the cluster's API: then it neither asks it nor drains through it.
fn ready_gate(input: &LowerInput<'_>) -> Result<Option<Value>, Trouble> {
    match input.metadata.annotations.get(READY_GATE_ANNOTATION).map(String::as_str) {
        None | Some("" | "api") => Ok(None),
        Some("cloud") => Ok(Some(Value::from("cloud"))),
        Some(other) => Err(Trouble::refused(format!("the annotation {READY_GATE_ANNOTATION} is `{other}`"))
            .help("it can be `api` (wait until the API server answers) or `cloud` (believe DigitalOcean)")),
    }
}

#[async_trait]
impl Provider for DigitalOcean {
    fn handler(&self, unit_type: &str) -> Option<&dyn Handler> {
        match unit_type {
            NETWORK => Some(&self.vpc),
            CLUSTER => Some(&self.cluster),
            POOL => Some(&self.pool),
            _ => None,
        }
    }

    fn list_for(&self, unit_type: &str) -> Option<&'static str> {
        match unit_type {
            NETWORK => Some(VPCS),
            CLUSTER | POOL => Some(CLUSTERS),
            _ => None,
        }
    }

    async fn list(&self, list: &str, _scope: &str, page: u32) -> Outcome<Page> {
        match list {
            VPCS => {
                let read = self.client.vpc_page(page).await?;
                let listed = |found| Listed { unit_type: NETWORK, observed: vpc::observed(found) };
                Ok(Page { items: read.items.into_iter().map(listed).collect(), next: read.next, pages: read.pages })
            }
            CLUSTERS => {
                let read = self.client.cluster_page(page).await?;
                let mut items = Vec::new();
                for found in &read.items {
                    items.push(Listed { unit_type: CLUSTER, observed: cluster::observed(found) });
                    let pools = raise::extra_pools(found);
                    items.extend(pools.map(|p| Listed { unit_type: POOL, observed: pool::observed(found, p) }));
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
        self.client.calls()
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
