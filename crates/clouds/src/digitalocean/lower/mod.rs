//! From kinds to units. Pure.

mod cluster;
mod node_pool;
mod vpc;

use crate::bounds::bounds;
use berth_engine::handler::{LowerInput, Trouble};
use berth_engine::reference_property;
use berth_engine::unit::Lowered;
use berth_model::pb::berth::core::v1::StringValueOrRef;
use serde_json::{Value, json};

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    match input.id.kind.as_str() {
        "DigitalOceanVpc" => vpc::lower(input),
        "DigitalOceanKubernetesCluster" => cluster::lower(input),
        "DigitalOceanKubernetesNodePool" => node_pool::lower(input),
        kind => Err(Trouble::refused(format!("DigitalOcean does not know the kind {kind}"))),
    }
}

/// A reference gives the other resource's id, whichever of its fields it names; a literal is a name or an id.
fn reference(input: &LowerInput<'_>, field: &str, output: &str, given: Option<&StringValueOrRef>) -> Value {
    match input.targets.get(field) {
        Some(target) => target.output(output),
        None => reference_property(given),
    }
}

/// The properties that say how many nodes a pool has.
fn counts(auto_scale: bool, count: u32, min: Option<u32>, max: u32) -> Result<Vec<(&'static str, Value)>, Trouble> {
    let mut counts = vec![("auto_scale", json!(auto_scale))];
    if auto_scale {
        let bounds = bounds(count, min, max)?;
        counts.push(("initial_node_count", json!(bounds.first)));
        counts.push(("min_nodes", json!(bounds.min)));
        counts.push(("max_nodes", json!(bounds.max)));
    } else {
        counts.push(("node_count", json!(count)));
    }
    Ok(counts)
}
