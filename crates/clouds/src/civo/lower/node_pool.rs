//! CivoKubernetesNodePool → `pool`, and `autoscaler` where it scales by itself.
//!
//! Civo's pools have no tags: `tags` is kept by Berth only.

use crate::props::put;
use crate::{decode_spec, ready_gate};
use berth_engine::handler::{LowerInput, Trouble};
use berth_engine::reference_property;
use berth_engine::unit::{Lowered, Props, Unit, output_of};
use berth_model::pb::berth::civo::v1::CivoKubernetesNodePoolSpec;
use serde_json::json;

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    let spec: CivoKubernetesNodePoolSpec = decode_spec(input)?;
    super::check_pool_name(&spec.node_pool_name)?;
    let scaled = super::scaled(spec.auto_scale, spec.node_count, spec.min_nodes, spec.max_nodes)?;
    let region = super::region(input, &spec.region, "cluster")?;
    // A reference gives the other resource's name; what Civo needs is the cluster's id.
    let cluster = match super::target(input, "cluster") {
        Some(target) if target.id.kind == "CivoKubernetesCluster" => target.output("cluster_id"),
        _ => reference_property(spec.cluster.as_ref()),
    };
    let mut props = Props::new();
    put(&mut props, "node_pool_name", spec.node_pool_name.as_str());
    put(&mut props, "region", region.as_str());
    put(&mut props, "cluster_id", cluster.clone());
    put(&mut props, "size", spec.size.as_str());
    match &scaled {
        Some(bounds) => put(&mut props, "initial_node_count", bounds.first),
        None => put(&mut props, "node_count", spec.node_count),
    }
    put(&mut props, "labels", super::labels(input, &spec.labels));
    put(&mut props, "taints", super::taints(&spec.taints));
    ready_gate::put(input, &mut props);
    let mut lowered =
        Lowered { units: vec![Unit::new("pool", "civo.pool", region.as_str(), props)], ..Lowered::default() };

    if let Some(bounds) = scaled {
        let mut props = Props::new();
        put(&mut props, "region", region.as_str());
        put(&mut props, "cluster_id", cluster.clone());
        put(&mut props, "owner", super::owner(input));
        let id = output_of("pool", "node_pool_id");
        put(&mut props, "pools", json!([{"pool": id, "min": bounds.min, "max": bounds.max}]));
        lowered.units.push(Unit::new("autoscaler", "civo.autoscaler", region, props).after(["pool"]));
    }
    lowered.output("node_pool_id", "pool", "node_pool_id");
    lowered.output("node_ids", "pool", "node_ids");
    Ok(lowered)
}
