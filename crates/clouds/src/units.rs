//! What the engine and views have to know of unit types without a connection.

use berth_engine::handler::SummaryFacts;
use berth_engine::unit::Observed;
use serde_json::Value;

/// A cloud's name as its users write it.
pub fn cloud_title(provider: &str) -> &'static str {
    match provider {
        "civo" => "Civo",
        "digitalocean" => "DigitalOcean",
        _ => "the cloud",
    }
}

/// The properties that hold an object's own name.
pub fn name_properties(unit_type: &str) -> &'static [&'static str] {
    match unit_type {
        "civo.network" => &["network_name"],
        "civo.firewall" => &["name"],
        // Pools of a cluster's own and those that are resources.
        "civo.pool" => &["name", "node_pool_name"],
        "digitalocean.vpc" => &["name", "vpc_name"],
        "digitalocean.pool" => &["node_pool_name"],
        "civo.cluster" | "digitalocean.cluster" => &["cluster_name"],
        _ => &[],
    }
}

/// Whether names are unique inside another object only.
pub fn names_are_inner(unit_type: &str) -> bool {
    matches!(unit_type, "civo.pool" | "digitalocean.pool")
}

/// Key of the unit that a resource of this kind is about.
pub fn main_unit(kind: &str) -> Option<&'static str> {
    match kind {
        "CivoVpc" | "DigitalOceanVpc" => Some("network"),
        "CivoFirewall" => Some("firewall"),
        "CivoKubernetesCluster" | "DigitalOceanKubernetesCluster" => Some("cluster"),
        "CivoKubernetesNodePool" | "DigitalOceanKubernetesNodePool" => Some("pool"),
        _ => None,
    }
}

/// Where in the spec a unit's properties stand, where that is not the spec itself. Keys never change meaning.
pub fn place_in_spec(kind: &str, key: &str) -> Option<String> {
    let name = key.strip_prefix("pool/").filter(|_| kind == "CivoKubernetesCluster")?;
    Some(format!("additional_node_pools[{name}]"))
}

/// What tables show of a unit.
pub fn summary_facts(unit_type: &str, observed: &Observed) -> SummaryFacts {
    let found = |name: &str| observed.outputs.get(name).or_else(|| observed.props.get(name));
    let number = |names: &[&str]| names.iter().find_map(|name| found(name)).and_then(Value::as_u64);
    let mut facts = SummaryFacts {
        version: found("kubernetes_version").cloned(),
        region: found("region").cloned(),
        ..SummaryFacts::default()
    };
    match unit_type {
        "civo.cluster" | "digitalocean.cluster" | "civo.pool" | "digitalocean.pool" => {
            facts.nodes = number(&["nodes", "node_count", "default_node_pool.node_count"]);
        }
        "civo.network" | "digitalocean.vpc" => {
            let range = observed.outputs.get("cidr_block").or_else(|| observed.props.get("ip_range_cidr"));
            facts.notes.extend(range.and_then(Value::as_str).map(|range| format!("network {range}")));
        }
        "civo.firewall" => {
            let rules = observed.props.get("rules").and_then(Value::as_array).map(Vec::len);
            facts.notes.extend(rules.map(|n| if n == 1 { "1 rule".to_owned() } else { format!("{n} rules") }));
        }
        _ => {}
    }
    facts
}
