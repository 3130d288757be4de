//! A sandbox with a connection to it, driven as the engine drives handlers: one look and one change at a time.

use super::lower::Given;
use crate::simulated;
use berth_engine::diff;
use berth_engine::handler::{Handler, Provider, Trouble};
use berth_engine::unit::{Observed, Phase, Props, Readiness};
use berth_sandbox::{Sandbox, Speed};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub const NETWORK: &str = "digitalocean.vpc";
pub const CLUSTER: &str = "digitalocean.cluster";
pub const POOL: &str = "digitalocean.pool";
pub const TOKEN: &str = "0190aaaabbbb7ccc8ddd00001234abcd";
/// Looks and changes until a test gives up.
const PASSES: usize = 2000;

pub struct World {
    pub sandbox: Sandbox,
    pub cloud: Arc<dyn Provider>,
}

impl World {
    pub async fn new() -> Self {
        let (sandbox, cloud) = simulated::start(berth_sandbox::digitalocean::NAME, Speed::Times(20_000.0)).await;
        Self { sandbox, cloud }
    }

    pub fn fail(&self, rule: &str) {
        simulated::fail(&self.sandbox, rule);
    }

    pub fn handler(&self, unit_type: &str) -> &dyn Handler {
        self.cloud.handler(unit_type).unwrap()
    }

    /// What a spec lowers to, with names resolved.
    pub async fn checked(&self, unit_type: &str, given: &Given) -> Result<Props, Trouble> {
        let props = given.lower().unwrap().units.remove(0).props;
        self.handler(unit_type).check(props, None).await
    }

    pub async fn make(&self, unit_type: &str, given: &Given) -> (String, Props) {
        let props = self.checked(unit_type, given).await.unwrap();
        let id = self.handler(unit_type).create(&props, TOKEN, false).await.unwrap();
        self.settle(unit_type, &id, &props).await;
        (id, props)
    }

    pub async fn look(&self, unit_type: &str, id: &str, props: &Props) -> Option<Observed> {
        self.handler(unit_type).read(id, props).await.unwrap()
    }

    /// Waits and changes until nothing differs; answers what it then looks like and which fields were changed, in order.
    pub async fn settle(&self, unit_type: &str, id: &str, props: &Props) -> (Observed, Vec<String>) {
        let handler = self.handler(unit_type);
        let mut changed = Vec::new();
        for _ in 0..PASSES {
            let seen = self.look(unit_type, id, props).await.expect("it is there");
            match &seen.phase {
                Phase::Ready => {}
                Phase::Failed { reason } => panic!("failed: {reason}"),
                _ => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    continue;
                }
            }
            let changes = diff(handler, props, &seen);
            if changes.is_empty() {
                return (seen, changed);
            }
            let fields: Vec<&str> = changes.iter().map(|change| change.field.as_str()).collect();
            match handler.update(&seen, props, &fields).await {
                Ok(()) => changed.push(fields.join(" ")),
                Err(trouble) if trouble.is_retry() => tokio::time::sleep(Duration::from_millis(2)).await,
                Err(trouble) => panic!("{trouble}"),
            }
        }
        panic!("it does not settle: {changed:?}");
    }

    pub async fn remove(&self, unit_type: &str, id: &str, props: &Props, drain: bool) {
        for _ in 0..PASSES {
            let Some(seen) = self.look(unit_type, id, props).await else { return };
            match self.handler(unit_type).delete(&seen, props, drain).await {
                Err(trouble) if !trouble.is_retry() => panic!("{trouble}"),
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
        panic!("{id} does not go away");
    }

    pub async fn ready(&self, id: &str, props: &Props) -> Readiness {
        for _ in 0..PASSES {
            let seen = self.look(CLUSTER, id, props).await.unwrap();
            let readiness = self.handler(CLUSTER).ready(&seen, props).await.unwrap();
            if readiness.waiting_for.is_none() {
                return readiness;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never ready");
    }

    pub async fn everything(&self) -> Vec<(&'static str, Observed)> {
        let mut all = Vec::new();
        for list in ["digitalocean.vpcs", "digitalocean.clusters"] {
            let page = self.cloud.list(list, "", 1).await.unwrap();
            assert_eq!(page.next, None);
            all.extend(page.items.into_iter().map(|item| (item.unit_type, item.observed)));
        }
        all.retain(|(_, seen)| seen.props.get("is_default_for_region") != Some(&json!(true)));
        all
    }
}

pub fn network() -> Given {
    Given::new(
        "DigitalOceanVpc",
        "blog-net",
        json!({"region": "fra1", "description": "blog", "ipRangeCidr": "10.30.0.0/20"}),
    )
}

pub fn cluster(changes: Value) -> Given {
    let mut spec = json!({
        "clusterName": "blog-k8s", "region": "fra1", "kubernetesVersion": "1.32.5", "vpc": {"value": "blog-net"},
        "defaultNodePool": {"size": "s-2vcpu-4gb", "nodeCount": 2}, "tags": ["web"]
    });
    merge(&mut spec, changes);
    Given::new("DigitalOceanKubernetesCluster", "blog", spec)
}

pub fn pool(changes: Value) -> Given {
    let mut spec =
        json!({"nodePoolName": "batch", "cluster": {"value": "blog-k8s"}, "size": "s-2vcpu-4gb", "nodeCount": 1});
    merge(&mut spec, changes);
    Given::new("DigitalOceanKubernetesNodePool", "blog-batch", spec)
}

pub fn merge(spec: &mut Value, changes: Value) {
    for (name, value) in changes.as_object().cloned().unwrap_or_default() {
        spec[name] = value;
    }
}

/// The newest version and one that can be upgraded to it, as the cloud offers them.
pub async fn versions(world: &World) -> (String, String) {
    let props = cluster(json!({"kubernetesVersion": "1.0.0"}));
    let trouble = world.checked(CLUSTER, &props).await.unwrap_err();
    let lowest = trouble.help_lines()[0].rsplit(": ").next().unwrap().to_owned();
    let minor: u32 = lowest.split('.').nth(1).unwrap().parse().unwrap();
    let next = cluster(json!({"kubernetesVersion": format!("1.{}.0", minor + 1)}));
    let higher = match world.checked(CLUSTER, &next).await {
        Ok(props) => props["kubernetes_version"].as_str().unwrap().to_owned(),
        Err(trouble) => trouble.help_lines()[0].rsplit([' ', ',']).next().unwrap().to_owned(),
    };
    (lowest, higher)
}
