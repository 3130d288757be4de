//! `DigitalOceanKubernetesCluster` → one cluster with its default pool.

use super::{counts, reference};
use crate::digitalocean::CLUSTER;
use crate::digitalocean::default_pool::default_pool_name;
use crate::digitalocean::normal_form::{OWN_TAGS, addresses, desired_tags, window_of_text};
use crate::digitalocean::versions::{AT_LEAST, Version};
use crate::{decode_spec, own_labels, ready_gate};
use berth_engine::handler::{LowerInput, Trouble};
use berth_engine::unit::{Lowered, Props, Unit};
use berth_model::pb::berth::digitalocean::v1::DigitalOceanKubernetesClusterSpec;
use serde_json::{Value, json};

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    let spec: DigitalOceanKubernetesClusterSpec = decode_spec(input)?;
    let pool = spec.default_node_pool.clone().unwrap_or_default();
    let mut props = Props::new();
    let mut put = |name: &str, value: Value| props.insert(name.to_owned(), value);

    put("cluster_name", json!(spec.cluster_name));
    put("region", json!(spec.region));
    put("vpc", reference(input, "vpc", "vpc_id", spec.vpc.as_ref()));
    // The cloud moves an automatically upgraded cluster on by itself: the version is then where it starts from.
    // So it is without a patch number, which leaves the patch to the cloud.
    let version = spec.kubernetes_version.trim();
    let parsed = Version::parse(version);
    let mark = if spec.auto_upgrade || parsed.is_some_and(|version| version.patch.is_none()) { AT_LEAST } else { "" };
    let version = parsed.map_or_else(|| version.to_owned(), |version| version.to_string());
    put("kubernetes_version", json!(format!("{mark}{version}")));
    put("highly_available", json!(spec.highly_available));
    put("auto_upgrade", json!(spec.auto_upgrade));
    put("disable_surge_upgrade", json!(spec.disable_surge_upgrade));
    put("registry_integration", json!(spec.registry_integration));
    put("control_plane_firewall_allowed_ips", addresses(spec.control_plane_firewall_allowed_ips.iter()));
    if !spec.maintenance_window.is_empty() {
        put("maintenance_window", json!(window_of_text(&spec.maintenance_window)));
    }

    put("default_node_pool.name", json!(default_pool_name(&spec.cluster_name)));
    put("default_node_pool.size", json!(pool.size));
    for (name, value) in counts(pool.auto_scale, pool.node_count, pool.min_nodes, pool.max_nodes)? {
        put(&format!("default_node_pool.{name}"), value);
    }

    let (tags, own) = desired_tags(&own_labels(input), &spec.tags);
    put("tags", tags);
    put(OWN_TAGS, own);
    ready_gate::put(input, &mut props);

    let mut lowered = Lowered { units: vec![Unit::new("cluster", CLUSTER, "", props)], ..Lowered::default() };
    lowered.output("cluster_id", "cluster", "id");
    lowered.output("kubeconfig", "cluster", "kubeconfig");
    lowered.output("api_server_endpoint", "cluster", "api_server_endpoint");
    Ok(lowered)
}
