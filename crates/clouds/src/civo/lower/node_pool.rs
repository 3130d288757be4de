//! CivoKubernetesNodePool → `pool`, and `autoscaler` where it scales by itself.
//!
//! Civo's pools have no tags: `tags` is kept by Berth only.

use super::{decode, value};
use crate::civo::props::put;
use berth_engine::handler::{LowerInput, Trouble};
use berth_engine::unit::{Lowered, Props, Unit, output_of};
use berth_model::pb::berth::civo::v1::CivoKubernetesNodePoolSpec;
use serde_json::json;

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    let spec: CivoKubernetesNodePoolSpec = decode(input)?;
    super::check_pool_name(&spec.node_pool_name)?;
    let region = super::region(input, &spec.region, "cluster")?;
    // A reference gives the other resource's name; what Civo needs is the cluster's id.
    let cluster = match super::target(input, "cluster") {
        Some(target) if target.id.kind == "CivoKubernetesCluster" => target.output("cluster_id"),
        _ => value(&spec.cluster).to_owned(),
    };
    let mut props = Props::new();
    put(&mut props, "node_pool_name", spec.node_pool_name.as_str());
    put(&mut props, "region", region.as_str());
    put(&mut props, "cluster_id", cluster.as_str());
    put(&mut props, "size", spec.size.as_str());
    put(&mut props, if spec.auto_scale { "initial_node_count" } else { "node_count" }, spec.node_count);
    put(&mut props, "labels", super::labels(input, &spec.labels));
    put(&mut props, "taints", super::taints(&spec.taints));
    super::put_ready_gate(input, &mut props);
    let mut lowered =
        Lowered { units: vec![Unit::new("pool", "civo.pool", region.as_str(), props)], ..Lowered::default() };

    if spec.auto_scale {
        let mut props = Props::new();
        put(&mut props, "region", region.as_str());
        put(&mut props, "cluster_id", cluster.as_str());
        put(&mut props, "owner", super::owner(input));
        let id = output_of("pool", "node_pool_id");
        put(&mut props, "pools", json!([{"pool": id, "min": spec.min_nodes(), "max": spec.max_nodes}]));
        lowered.units.push(Unit::new("autoscaler", "civo.autoscaler", region, props).after(["pool"]));
    }
    lowered.output("node_pool_id", "pool", "node_pool_id");
    lowered.output("node_ids", "pool", "node_ids");
    Ok(lowered)
}
