//! What is there now, in a few words: for tables and for the line that ends a resource's work.

use crate::unit::{Lowered, Observed, Props};
use crate::unit_loop::Made;
use std::collections::HashMap;

/// What tables show: version, nodes, gate.
pub(crate) fn facts(made: &HashMap<String, Made>) -> Props {
    let mut facts = Props::new();
    for key in ["cluster", "pool", "network", "firewall"] {
        let Some(unit) = made.get(key) else { continue };
        if let Some(gate) = &unit.gate {
            facts.entry("gate").or_insert_with(|| gate.clone().into());
        }
        let Some(observed) = &unit.observed else { continue };
        for (fact, name) in [("version", "kubernetes_version"), ("region", "region")] {
            if let Some(value) = observed.outputs.get(name).or_else(|| observed.props.get(name)) {
                facts.entry(fact).or_insert_with(|| value.clone());
            }
        }
    }
    let seen = made.iter().filter_map(|(key, unit)| Some((key.as_str(), unit.observed.as_ref()?)));
    if let Some(nodes) = nodes(seen) {
        facts.insert("nodes".into(), nodes.into());
    }
    facts
}

/// How many nodes a resource has in all its pools: a cluster's default one and those beside it, or the pool that it is.
pub(crate) fn nodes<'a>(seen: impl Iterator<Item = (&'a str, &'a Observed)>) -> Option<u64> {
    let pools = seen.filter(|(key, _)| matches!(*key, "cluster" | "pool") || key.starts_with("pool/"));
    let counts: Vec<u64> = pools
        .filter_map(|(_, observed)| {
            let names = ["nodes", "node_count", "default_node_pool.node_count"];
            names.iter().find_map(|n| observed.outputs.get(*n).or_else(|| observed.props.get(*n)))?.as_u64()
        })
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// One short phrase on what is there now.
pub(crate) fn summary(lowered: &Lowered, made: &HashMap<String, Made>) -> String {
    let facts = facts(made);
    let text = |name: &str| facts.get(name).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    let mut parts = Vec::new();
    if let Some(version) = text("version") {
        parts.push(version);
    }
    if let Some(nodes) = text("nodes") {
        parts.push(if nodes == "1" { "1 node".into() } else { format!("{nodes} nodes") });
    }
    for key in ["network", "firewall"] {
        let Some(observed) = made.get(key).and_then(|m| m.observed.as_ref()) else { continue };
        if let Some(range) =
            observed.outputs.get("cidr_block").or_else(|| observed.props.get("ip_range_cidr")).and_then(|v| v.as_str())
        {
            parts.push(format!("network {range}"));
        }
        if let Some(rules) = observed.props.get("rules").and_then(|v| v.as_array()) {
            parts.push(if rules.len() == 1 { "1 rule".into() } else { format!("{} rules", rules.len()) });
        }
    }
    if parts.is_empty() && !lowered.units.is_empty() {
        parts.push("ready".into());
    }
    parts.join(", ")
}
