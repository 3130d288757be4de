//! A sandbox with a connection to it, driven as the engine drives handlers: one look and one change at a time.

use super::lower::{lowered, manifest};
use crate::simulated;
use berth_engine::diff;
use berth_engine::handler::{Handler, Outcome, Provider};
use berth_engine::unit::{Observed, Phase, Props, Readiness, Unit};
use berth_sandbox::{Sandbox, Speed};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub const NETWORK: &str = "civo.network";
pub const FIREWALL: &str = "civo.firewall";
pub const CLUSTER: &str = "civo.cluster";
pub const POOL: &str = "civo.pool";
pub const TOKEN: &str = "0190aaaabbbb7ccc8ddd00001234abcd";
pub const REGION: &str = "fra1";
/// Looks and changes until a test gives up.
pub const PASSES: usize = 3000;
pub const PAUSE: Duration = Duration::from_millis(2);

pub struct World {
    pub sandbox: Sandbox,
    pub cloud: Arc<dyn Provider>,
}

impl World {
    /// Simulated minutes pass in milliseconds, yet every phase is gone through.
    pub async fn new() -> Self {
        Self::at(Speed::Times(5_000.0)).await
    }

    pub async fn at(speed: Speed) -> Self {
        let (sandbox, cloud) = simulated::start(berth_sandbox::civo::NAME, speed).await;
        Self { sandbox, cloud }
    }

    pub fn fail(&self, rule: &str) {
        simulated::fail(&self.sandbox, rule);
    }

    pub fn handler(&self, unit_type: &str) -> &dyn Handler {
        self.cloud.handler(unit_type).unwrap()
    }

    pub async fn look(&self, unit: &Unit, id: &str) -> Option<Observed> {
        self.handler(&unit.unit_type).read(id, &unit.props).await.unwrap()
    }

    pub async fn create(&self, unit: &mut Unit, token: &str) -> Outcome<String> {
        let handler = self.handler(&unit.unit_type);
        unit.props = handler.check(unit.props.clone(), None).await?;
        handler.create(&unit.props, token, false).await
    }

    pub async fn make(&self, unit: &mut Unit, token: &str) -> String {
        let id = self.create(unit, token).await.unwrap();
        self.settle(unit, &id).await;
        id
    }

    /// Waits and changes until nothing differs; answers what it then looks like and the phases that were shown.
    pub async fn settle(&self, unit: &Unit, id: &str) -> (Observed, Vec<String>) {
        let handler = self.handler(&unit.unit_type);
        let mut phases: Vec<String> = Vec::new();
        for _ in 0..PASSES {
            let seen = self.look(unit, id).await.expect("it is there");
            if let Phase::Pending(waiting) = &seen.phase {
                if phases.last() != Some(&waiting.to_string()) {
                    phases.push(waiting.to_string());
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            assert_eq!(seen.phase, Phase::Ready);
            let changes = diff(handler, &unit.props, &seen);
            if changes.is_empty() {
                return (seen, phases);
            }
            let fields: Vec<&str> = changes.iter().map(|change| change.field.as_str()).collect();
            match handler.update(&seen, &unit.props, &fields).await {
                Err(trouble) if !trouble.is_retry() => panic!("{trouble} {:?}", trouble.help),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
        panic!("{id} does not settle: {phases:?}");
    }

    pub async fn ready(&self, unit: &Unit, id: &str) -> Readiness {
        for _ in 0..PASSES {
            let seen = self.look(unit, id).await.unwrap();
            let readiness = self.handler(&unit.unit_type).ready(&seen, &unit.props).await.unwrap();
            if readiness.waiting_for.is_none() {
                return readiness;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{id} never gets ready");
    }

    pub async fn remove(&self, unit: &Unit, id: &str, drain: bool) {
        for _ in 0..PASSES {
            let Some(seen) = self.look(unit, id).await else { return };
            if seen.phase != Phase::Deleting {
                match self.handler(&unit.unit_type).delete(&seen, &unit.props, drain).await {
                    Err(trouble) if !trouble.is_retry() && !trouble.is_not_found() => panic!("{trouble}"),
                    _ => {}
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{id} does not go away");
    }

    pub async fn network(&self) -> (Unit, String) {
        let yaml = manifest("CivoVpc", "shop-net", "networkName: shop-net\nregion: fra1\nipRangeCidr: 10.20.0.0/24\n");
        let mut unit = lowered(&yaml, &[]).unwrap().units.remove(0);
        let id = self.make(&mut unit, TOKEN).await;
        (unit, id)
    }

    pub async fn cluster(&self, network: &str) -> (Unit, String) {
        let mut unit = cluster_unit(network, "g4s.kube.small", 2, "1.29.0");
        let id = self.make(&mut unit, TOKEN).await;
        self.ready(&unit, &id).await;
        (unit, id)
    }

    pub fn objects(&self, kind: &str) -> Vec<Value> {
        let ledger = self.sandbox.world().ledger(berth_sandbox::civo::NAME);
        let objects = ledger["objects"].as_array().unwrap().iter();
        objects.filter(|o| o["type"] == kind).cloned().collect()
    }
}

pub fn cluster_unit(network: &str, size: &str, count: u32, version: &str) -> Unit {
    let spec = format!(
        "clusterName: shop-k8s\nregion: fra1\nkubernetesVersion: {version}\nnetwork: {{value: {network}}}\n\
         defaultNodePool: {{size: {size}, nodeCount: {count}}}\ntags: [team:shop]\napplications: [cert-manager]\n"
    );
    lowered(&manifest("CivoKubernetesCluster", "shop", &spec), &[]).unwrap().units.remove(0)
}

pub fn pool_unit(cluster: &str, name: &str, size: &str, count: u32) -> Unit {
    let spec = format!(
        "nodePoolName: {name}\ncluster: {{value: {cluster}}}\nregion: fra1\nsize: {size}\nnodeCount: {count}\n\
         labels: {{workload: {name}}}\ntaints: [{{key: dedicated, value: {name}, effect: NoSchedule}}]\n"
    );
    lowered(&manifest("CivoKubernetesNodePool", &format!("shop-{name}"), &spec), &[]).unwrap().units.remove(0)
}

/// Fills in outputs of other units, as the engine does.
pub fn fill(props: &Props, output: &dyn Fn(&str, &str) -> Option<Value>) -> Props {
    let one = |value: &Value| fill_value(value, output);
    props.iter().map(|(name, value)| (name.clone(), one(value))).collect()
}

fn fill_value(value: &Value, output: &dyn Fn(&str, &str) -> Option<Value>) -> Value {
    match value {
        Value::Object(map) => {
            match (map.get("$unit").and_then(Value::as_str), map.get("output").and_then(Value::as_str)) {
                (Some(unit), Some(name)) => output(unit, name).unwrap_or_default(),
                _ => Value::Object(fill(map, output)),
            }
        }
        Value::Array(items) => items.iter().map(|item| fill_value(item, output)).collect(),
        other => other.clone(),
    }
}

/// Gives every unit of a resource what it depends on, makes it, and answers the ids.
pub async fn make_all(world: &World, units: Vec<Unit>) -> Vec<(Unit, String)> {
    let mut made: HashMap<String, Props> = HashMap::new();
    let mut all = Vec::new();
    for mut unit in units {
        unit.props = fill(&unit.props, &|key, name| made.get(key).and_then(|outputs| outputs.get(name)).cloned());
        let token = format!("{TOKEN}{}", unit.key);
        let id = world.make(&mut unit, &token).await;
        if unit.unit_type == CLUSTER {
            world.ready(&unit, &id).await;
        }
        let mut outputs = world.look(&unit, &id).await.unwrap().outputs;
        outputs.insert("id".into(), json!(id));
        made.insert(unit.key.clone(), outputs);
        all.push((unit, id));
    }
    all
}
