//! CivoKubernetesCluster → `cluster`, `pool/NAME` for each additional pool, `firewall` where the API's callers are
//! restricted, `autoscaler` where pools scale by themselves.
//!
//! Civo runs the control plane itself and upgrades only when asked to: it has no switch for `highly_available`,
//! `auto_upgrade` or `disable_surge_upgrade`. They are kept with the cluster's unit and change nothing in Civo.

use crate::bounds::Bounds;
use crate::civo::autoscaler::sorted;
use crate::civo::firewall_rules::{Rule, lines};
use crate::civo::versions;
use crate::props::put;
use crate::{decode_spec, ready_gate};
use berth_engine::handler::{LowerInput, Trouble};
use berth_engine::reference_property;
use berth_engine::unit::{Lowered, Props, Unit, output_of};
use berth_model::pb::berth::civo::v1::{CivoAdditionalNodePool, CivoKubernetesClusterSpec};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    let spec: CivoKubernetesClusterSpec = decode_spec(input)?;
    let region = super::region(input, &spec.region, "network")?;
    let network = reference_property(spec.network.as_ref());
    let restricted = !spec.api_allowed_cidrs.is_empty();
    let mut lowered = Lowered::default();

    if restricted {
        lowered.units.push(firewall(&spec, &region, &network));
    }
    let default = spec.default_node_pool.clone().unwrap_or_default();
    let mut props = Props::new();
    put(&mut props, "cluster_name", spec.cluster_name.as_str());
    put(&mut props, "region", region.as_str());
    put(&mut props, "network", network);
    put(&mut props, "cni", if spec.cni.is_empty() { "flannel" } else { &spec.cni });
    put(&mut props, "kubernetes_version", versions::desired(&spec.kubernetes_version));
    put(&mut props, "default_node_pool.size", default.size);
    put(&mut props, "default_node_pool.node_count", default.node_count);
    put(&mut props, "default_node_pool.labels", json!(default.labels));
    put(&mut props, "tags", tags(input, &spec.tags));
    match restricted {
        true => put(&mut props, "firewall", output_of("firewall", "id")),
        false => put(&mut props, "firewall", reference_property(spec.firewall.as_ref())),
    }
    if !spec.applications.is_empty() {
        let applications: BTreeSet<&String> = spec.applications.iter().collect();
        put(&mut props, "applications", json!(applications));
    }
    for (name, set) in [
        ("highly_available", spec.highly_available),
        ("auto_upgrade", spec.auto_upgrade),
        ("disable_surge_upgrade", spec.disable_surge_upgrade),
    ] {
        if set {
            put(&mut props, name, true);
        }
    }
    ready_gate::put(input, &mut props);
    let unit = Unit::new("cluster", "civo.cluster", region.as_str(), props);
    lowered.units.push(if restricted { unit.after(["firewall"]) } else { unit });

    for pool in &spec.additional_node_pools {
        super::check_pool_name(&pool.name)?;
        lowered.units.push(additional_pool(input, pool, &region)?);
    }
    lowered.units.extend(autoscaler(input, &spec, &region)?);

    lowered.output("cluster_id", "cluster", "id");
    lowered.output("kubeconfig_b64", "cluster", "kubeconfig_b64");
    lowered.output("api_server_endpoint", "cluster", "api_server_endpoint");
    lowered.output("created_at_rfc3339", "cluster", "created_at");
    Ok(lowered)
}

/// Berth's labels as `key:value` words, with the user's words; a word of the user's with the same key wins. Civo takes tags as words
/// with spaces between them, so that a tag with spaces in it is several.
fn tags(input: &LowerInput<'_>, own: &[String]) -> Value {
    let own: Vec<&str> = own.iter().flat_map(|tag| tag.split_whitespace()).collect();
    let mut tags: BTreeSet<String> = own.iter().map(|tag| (*tag).to_owned()).collect();
    for (key, value) in crate::own_labels(input) {
        let word = format!("{key}:");
        if !own.iter().any(|tag| tag.starts_with(&word)) {
            tags.insert(word + &value);
        }
    }
    json!(tags)
}

/// The API for those who may call it, web traffic for everyone, everything outwards. Node ports stay closed: a service
/// reaches the world through a load balancer, or through a firewall that the user writes.
fn firewall(spec: &CivoKubernetesClusterSpec, region: &str, network: &Value) -> Unit {
    let mut rules = vec![
        Rule::new(true, "tcp", "6443", &spec.api_allowed_cidrs, "kubernetes api"),
        Rule::new(true, "tcp", "80", &[], "http"),
        Rule::new(true, "tcp", "443", &[], "https"),
    ];
    rules.extend(["tcp", "udp", "icmp"].map(|protocol| Rule::new(false, protocol, "", &[], "")));
    let mut props = Props::new();
    put(&mut props, "name", format!("{}-api", spec.cluster_name));
    put(&mut props, "region", region);
    put(&mut props, "network_id", network.clone());
    put(&mut props, "rules", lines(&rules));
    Unit::new("firewall", "civo.firewall", region, props)
}

fn additional_pool(input: &LowerInput<'_>, pool: &CivoAdditionalNodePool, region: &str) -> Result<Unit, Trouble> {
    let mut props = Props::new();
    put(&mut props, "name", pool.name.as_str());
    put(&mut props, "region", region);
    put(&mut props, "cluster_id", output_of("cluster", "id"));
    put(&mut props, "size", pool.size.as_str());
    match bounds_of(pool)? {
        Some(bounds) => put(&mut props, "initial_node_count", bounds.first),
        None => put(&mut props, "node_count", pool.node_count),
    }
    put(&mut props, "labels", super::labels(input, &pool.labels));
    put(&mut props, "taints", super::taints(&pool.taints));
    ready_gate::put(input, &mut props);
    Ok(Unit::new(format!("pool/{}", pool.name), "civo.pool", region, props)
        .at(format!("additional_node_pools[{}]", pool.name))
        .after(["cluster"]))
}

fn bounds_of(pool: &CivoAdditionalNodePool) -> Result<Option<Bounds>, Trouble> {
    super::scaled(pool.auto_scale, pool.node_count, pool.min_nodes, pool.max_nodes)
}

fn autoscaler(input: &LowerInput<'_>, spec: &CivoKubernetesClusterSpec, region: &str) -> Result<Option<Unit>, Trouble> {
    let scaled: Vec<&CivoAdditionalNodePool> =
        spec.additional_node_pools.iter().filter(|pool| pool.auto_scale).collect();
    if scaled.is_empty() && !spec.autoscaler.as_ref().is_some_and(|a| a.enabled) {
        return Ok(None);
    }
    let mut pools = Vec::new();
    for pool in &scaled {
        let id = output_of(&format!("pool/{}", pool.name), "node_pool_id");
        pools.extend(bounds_of(pool)?.map(|bounds| json!({"pool": id, "min": bounds.min, "max": bounds.max})));
    }
    let mut props = Props::new();
    put(&mut props, "region", region);
    put(&mut props, "cluster_id", output_of("cluster", "id"));
    put(&mut props, "owner", super::owner(input));
    put(&mut props, "pools", sorted(pools.into()));
    let unit = Unit::new("autoscaler", "civo.autoscaler", region, props).at("autoscaler").after(["cluster"]);
    Ok(Some(unit.after(scaled.iter().map(|pool| format!("pool/{}", pool.name)))))
}
