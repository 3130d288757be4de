//! `DigitalOceanKubernetesNodePool` → one pool in a cluster that is there already.

use super::{counts, reference};
use crate::digitalocean::POOL;
use crate::digitalocean::normal_form::{OWN_LABELS, desired_labels, taints};
use crate::{decode_spec, own_labels, ready_gate};
use berth_engine::handler::{LowerInput, Trouble};
use berth_engine::unit::{Lowered, Props, Unit};
use berth_model::pb::berth::digitalocean::v1::DigitalOceanKubernetesNodePoolSpec;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    let spec: DigitalOceanKubernetesNodePoolSpec = decode_spec(input)?;
    let mut props = Props::new();
    let mut put = |name: &str, value: Value| props.insert(name.to_owned(), value);

    put("node_pool_name", json!(spec.node_pool_name));
    put("cluster", reference(input, "cluster", "cluster_id", spec.cluster.as_ref()));
    put("size", json!(spec.size));
    for (name, value) in counts(spec.auto_scale, spec.node_count, spec.min_nodes, spec.max_nodes)? {
        put(name, value);
    }
    let (labels, own) = desired_labels(&own_labels(input), &spec.labels);
    put("labels", labels);
    put(OWN_LABELS, own);
    put("taints", taints(spec.taints.iter().map(|t| (t.key.as_str(), t.value.as_str(), t.effect.as_str()))));
    put("tags", json!(spec.tags.iter().collect::<BTreeSet<_>>()));
    ready_gate::put(input, &mut props);

    let mut lowered = Lowered { units: vec![Unit::new("pool", POOL, "", props)], ..Lowered::default() };
    lowered.output("node_pool_id", "pool", "id");
    lowered.output("node_ids", "pool", "node_ids");
    Ok(lowered)
}
