//! What is there now, in a few words: for tables and for the line that ends a resource's work.

use crate::handler::Catalog;
use crate::unit::{Lowered, Observed, Props};
use crate::unit_loop::Made;
use serde_json::Value;
use std::collections::HashMap;

/// What tables show of a unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SummaryFacts {
    pub version: Option<Value>,
    pub region: Option<Value>,
    /// How many nodes it has; those of all units of a resource are added up.
    pub nodes: Option<u64>,
    /// Short phrases, such as `network 10.0.0.0/24`.
    pub notes: Vec<String>,
}

impl SummaryFacts {
    /// Its facts by their names in tables.
    pub(crate) fn named(self) -> impl Iterator<Item = (&'static str, Value)> {
        let facts = [("version", self.version), ("region", self.region)];
        facts.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// Brings the stored facts of a resource up to date after those of one of its units changed.
    pub fn replace_in(facts: &mut Props, before: Self, now: Self) {
        let nodes = [facts.get("nodes").and_then(Value::as_u64), before.nodes, now.nodes];
        if let [Some(all), Some(before), Some(now)] = nodes {
            facts.insert("nodes".into(), (all.saturating_sub(before) + now).into());
        }
        facts.extend(now.named().map(|(name, value)| (name.to_owned(), value)));
    }
}

/// The units that were made, with the one that the resource is about first.
fn ordered<'m>(catalog: &dyn Catalog, kind: &str, made: &'m HashMap<String, Made>) -> Vec<&'m Made> {
    let main = catalog.main_unit(kind);
    let mut units: Vec<(&String, &Made)> = made.iter().collect();
    units.sort_by_key(|(key, _)| (Some(key.as_str()) != main, *key));
    units.into_iter().map(|(_, unit)| unit).collect()
}

fn facts_of(catalog: &dyn Catalog, unit: &Made) -> Option<SummaryFacts> {
    Some(catalog.summary_facts(&unit.state.unit_type, unit.observed.as_ref()?))
}

/// What tables show: version, region, nodes, gate.
pub(crate) fn facts(catalog: &dyn Catalog, kind: &str, made: &HashMap<String, Made>) -> Props {
    let mut facts = Props::new();
    for unit in ordered(catalog, kind, made) {
        if let Some(gate) = &unit.gate {
            facts.entry("gate").or_insert_with(|| gate.clone().into());
        }
        for (name, value) in facts_of(catalog, unit).into_iter().flat_map(SummaryFacts::named) {
            facts.entry(name).or_insert(value);
        }
    }
    let seen = made.values().filter_map(|unit| Some((unit.state.unit_type.as_str(), unit.observed.as_ref()?)));
    if let Some(nodes) = nodes(catalog, seen) {
        facts.insert("nodes".into(), nodes.into());
    }
    facts
}

/// How many nodes a resource has in all its units, by unit type and what was seen.
pub(crate) fn nodes<'a>(catalog: &dyn Catalog, seen: impl Iterator<Item = (&'a str, &'a Observed)>) -> Option<u64> {
    let counts = seen.filter_map(|(unit_type, observed)| catalog.summary_facts(unit_type, observed).nodes);
    counts.reduce(|sum, count| sum + count)
}

/// One short phrase on what is there now.
pub(crate) fn summary(catalog: &dyn Catalog, kind: &str, lowered: &Lowered, made: &HashMap<String, Made>) -> String {
    let facts = facts(catalog, kind, made);
    let text = |name: &str| facts.get(name).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    let mut parts: Vec<String> = text("version").into_iter().collect();
    if let Some(nodes) = text("nodes") {
        parts.push(if nodes == "1" { "1 node".into() } else { format!("{nodes} nodes") });
    }
    for unit in ordered(catalog, kind, made) {
        parts.extend(facts_of(catalog, unit).into_iter().flat_map(|facts| facts.notes));
    }
    if parts.is_empty() && !lowered.units.is_empty() {
        parts.push("ready".into());
    }
    parts.join(", ")
}
