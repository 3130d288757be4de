//! What the engine and views have to know of unit types without a connection.

use crate::registry::{self, Cloud};
use berth_engine::handler::SummaryFacts;
use berth_engine::unit::{Observed, Phase, Props};
use serde_json::Value;

/// A type of unit, as its cloud's descriptor lists it.
pub struct UnitType {
    /// Such as `civo.cluster`.
    pub name: &'static str,
    /// The properties that hold an object's own name.
    pub name_properties: &'static [&'static str],
    /// Names are unique inside another object only.
    pub names_are_inner: bool,
    /// What tables show of a unit besides its version and region.
    pub summary: fn(&Observed, &mut SummaryFacts),
}

fn find(unit_type: &str) -> Option<&'static UnitType> {
    registry::clouds().flat_map(|cloud| cloud.units).find(|unit| unit.name == unit_type)
}

fn cloud_of(kind: &str) -> Option<&'static Cloud> {
    let kind = berth_model::registry().kind(kind)?;
    registry::clouds().find(|cloud| cloud.name == kind.provider)
}

/// A cloud's name as its users write it.
pub fn cloud_title(provider: &str) -> &'static str {
    registry::find(provider).map_or("the cloud", |cloud| cloud.title)
}

/// The properties that hold an object's own name.
pub fn name_properties(unit_type: &str) -> &'static [&'static str] {
    find(unit_type).map_or(&[], |unit| unit.name_properties)
}

/// Whether names are unique inside another object only.
pub fn names_are_inner(unit_type: &str) -> bool {
    find(unit_type).is_some_and(|unit| unit.names_are_inner)
}

/// Key of the unit that a resource of this kind is about.
pub fn main_unit(kind: &str) -> Option<&'static str> {
    cloud_of(kind)?.main_units.iter().find(|(of, _)| *of == kind).map(|(_, key)| *key)
}

/// Where in the spec a unit's properties stand, where that is not the spec itself. Keys never change meaning.
pub fn place_in_spec(kind: &str, key: &str) -> Option<String> {
    (cloud_of(kind)?.place_in_spec)(kind, key)
}

/// What tables show of a unit.
pub fn summary_facts(unit_type: &str, observed: &Observed) -> SummaryFacts {
    let found = |name: &str| observed.outputs.get(name).or_else(|| observed.props.get(name)).cloned();
    let mut facts =
        SummaryFacts { version: found("kubernetes_version"), region: found("region"), ..SummaryFacts::default() };
    if let Some(unit) = find(unit_type) {
        (unit.summary)(observed, &mut facts);
    }
    facts
}

/// What tables show of a unit of which one property is known.
pub fn summary_facts_of(unit_type: &str, property: &str, value: &Value) -> SummaryFacts {
    let props = Props::from_iter([(property.to_owned(), value.clone())]);
    let observed = Observed { id: String::new(), props, outputs: Props::new(), phase: Phase::Ready };
    summary_facts(unit_type, &observed)
}

/// For units with nodes: how many.
pub fn nodes(observed: &Observed, facts: &mut SummaryFacts) {
    let found = |name: &&str| observed.outputs.get(*name).or_else(|| observed.props.get(*name));
    let names = ["nodes", "node_count", "default_node_pool.node_count"];
    facts.nodes = names.iter().find_map(found).and_then(Value::as_u64);
}

/// For networks: the range of addresses.
pub fn range(observed: &Observed, facts: &mut SummaryFacts) {
    let range = observed.outputs.get("cidr_block").or_else(|| observed.props.get("ip_range_cidr"));
    facts.notes.extend(range.and_then(Value::as_str).map(|range| format!("network {range}")));
}
