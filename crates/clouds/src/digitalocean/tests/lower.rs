//! What each kind lowers to, from specs as users write them.

use crate::digitalocean::lower;
use berth_engine::handler::{LowerInput, Target, Trouble};
use berth_engine::unit::Lowered;
use berth_model::ResourceId;
use berth_model::pb::berth::core::v1::Metadata;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub struct Given {
    pub kind: &'static str,
    pub name: &'static str,
    pub spec: Value,
    pub metadata: Metadata,
    pub targets: BTreeMap<String, Target>,
}

impl Given {
    pub fn new(kind: &'static str, name: &'static str, spec: Value) -> Self {
        let metadata = Metadata { name: name.into(), ..Metadata::default() };
        Self { kind, name, spec, metadata, targets: BTreeMap::new() }
    }

    pub fn target(mut self, field: &str, kind: &str, outputs: Value) -> Self {
        let outputs = outputs.as_object().cloned().unwrap_or_default();
        let target = Target { id: ResourceId::new(kind, "other"), spec: json!({}), outputs };
        self.targets.insert(field.into(), target);
        self
    }

    pub fn lower(&self) -> Result<Lowered, Trouble> {
        let pool = DescriptorPool::decode(berth_model::DESCRIPTORS).unwrap();
        let spec = pool.get_message_by_name(&format!("berth.digitalocean.v1.{}Spec", self.kind)).unwrap();
        let encoded = DynamicMessage::deserialize(spec, self.spec.clone()).unwrap().encode_to_vec();
        lower(&LowerInput {
            id: &ResourceId::new(self.kind, self.name),
            metadata: &self.metadata,
            spec: &encoded,
            targets: &self.targets,
            default_region: None,
            label_prefix: "planton",
        })
    }
}

#[test]
fn networks() {
    let small = Given::new("DigitalOceanVpc", "blog-net", json!({"region": "fra1"}));
    insta::assert_yaml_snapshot!("vpc_small", small.lower().unwrap());
    let full = json!({"region": "nyc3", "description": "for the blog", "ipRangeCidr": "10.30.0.0/20", "isDefaultForRegion": true});
    insta::assert_yaml_snapshot!("vpc_full", Given::new("DigitalOceanVpc", "blog-net", full).lower().unwrap());
}

#[test]
fn clusters() {
    let small = json!({
        "clusterName": "blog-k8s", "region": "fra1", "kubernetesVersion": "1.33.1", "vpc": {"value": "blog-net"},
        "defaultNodePool": {"size": "s-2vcpu-4gb", "nodeCount": 2}
    });
    insta::assert_yaml_snapshot!(
        "cluster_small",
        Given::new("DigitalOceanKubernetesCluster", "blog", small.clone()).lower().unwrap()
    );

    let full = json!({
        "clusterName": "blog-k8s", "region": "fra1", "kubernetesVersion": "v1.33.1-do.0", "vpc": {"value": "ignored"},
        "defaultNodePool": {"size": "s-2vcpu-4gb", "nodeCount": 3, "autoScale": true, "minNodes": 2, "maxNodes": 5},
        "highlyAvailable": true, "autoUpgrade": true, "disableSurgeUpgrade": true, "maintenanceWindow": "Sunday=2:00",
        "registryIntegration": true, "controlPlaneFirewallAllowedIps": ["203.0.113.9/32", "10.0.0.0/8"],
        "tags": ["web", "team:blog", "planton-environment:mine"]
    });
    let mut full = Given::new("DigitalOceanKubernetesCluster", "blog", full).target(
        "vpc",
        "DigitalOceanVpc",
        json!({"vpc_id": "3164192d-2c1c-4f0c-8d3a-5b0b7a0f3a11"}),
    );
    full.metadata.org = "Acme & Co".into();
    full.metadata.env = "prod".into();
    full.metadata.id = "res-1".into();
    full.metadata.annotations.insert("berth.dev/ready-gate".into(), "cloud".into());
    insta::assert_yaml_snapshot!("cluster_full", full.lower().unwrap());

    let unknown =
        Given::new("DigitalOceanKubernetesCluster", "blog", small).target("vpc", "DigitalOceanVpc", json!({}));
    let lowered = unknown.lower().unwrap();
    assert!(berth_engine::is_unknown(&lowered.units[0].props["vpc"]));
}

#[test]
fn pools() {
    let small =
        json!({"nodePoolName": "batch", "cluster": {"value": "blog-k8s"}, "size": "s-4vcpu-8gb", "nodeCount": 2});
    insta::assert_yaml_snapshot!(
        "pool_small",
        Given::new("DigitalOceanKubernetesNodePool", "blog-batch", small).lower().unwrap()
    );

    let full = json!({
        "nodePoolName": "gpu", "cluster": {"value": "ignored"}, "size": "g-2vcpu-8gb", "nodeCount": 1, "autoScale": true,
        "minNodes": 1, "maxNodes": 4, "labels": {"tier": "gpu", "planton-resource-name": "mine"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}, {"key": "dedicated", "effect": "NoExecute"}],
        "tags": ["web", "batch"]
    });
    let mut full = Given::new("DigitalOceanKubernetesNodePool", "blog-gpu", full).target(
        "cluster",
        "DigitalOceanKubernetesCluster",
        json!({"cluster_id": "bd5f5959-5e1e-4205-a714-a914373942af"}),
    );
    full.metadata.org = "acme".into();
    full.metadata.env = "prod".into();
    insta::assert_yaml_snapshot!("pool_full", full.lower().unwrap());
}

#[test]
fn odd_metadata_becomes_valid_labels_and_tags() {
    let odd = |kind, spec| {
        let mut given = Given::new(kind, "blog", spec);
        given.metadata.org = "Acme & Söhne Ltd.".into();
        given.metadata.env = " prod.eu ".into();
        given.metadata.id = "x".repeat(128);
        given.lower().unwrap().units.remove(0).props
    };
    let pool = json!({"nodePoolName": "p", "cluster": {"value": "c"}, "size": "s", "nodeCount": 1});
    let labels = &odd("DigitalOceanKubernetesNodePool", pool)["own_labels"];
    assert_eq!(labels["planton-organization"], "Acme---S-hne-Ltd");
    assert_eq!(labels["planton-environment"], "prod.eu");
    assert_eq!(labels["planton-resource-id"], json!("x".repeat(63)));
    let cluster = json!({"clusterName": "c", "region": "fra1", "kubernetesVersion": "1.33.1", "vpc": {"value": "v"},
        "defaultNodePool": {"size": "s", "nodeCount": 1}});
    let props = odd("DigitalOceanKubernetesCluster", cluster);
    let tags: Vec<&str> = props["own_tags"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let is_valid = |tag: &&str| tag.chars().all(|c| c.is_ascii_alphanumeric() || ":_-".contains(c));
    assert!(tags.iter().all(is_valid), "{tags:?}");
    assert!(tags.contains(&"planton-environment:prod-eu"), "{tags:?}");
}

#[test]
fn lists_in_any_order_lower_to_the_same() {
    let spec = |tags: Value, taints: Value| json!({"nodePoolName": "batch", "cluster": {"value": "c"}, "size": "s", "nodeCount": 2, "tags": tags, "taints": taints});
    let a = json!({"key": "a", "effect": "NoSchedule"});
    let b = json!({"key": "b", "value": "x", "effect": "NoSchedule"});
    let one = Given::new("DigitalOceanKubernetesNodePool", "p", spec(json!(["x", "y"]), json!([a, b])));
    let two = Given::new("DigitalOceanKubernetesNodePool", "p", spec(json!(["y", "x"]), json!([b, a])));
    assert_eq!(one.lower().unwrap(), two.lower().unwrap());
}

/// Manifests written for Project Planton and OpenMCF, as they are.
#[test]
fn aliases_lower_like_our_own_group() {
    let manifest = |group: &str| {
        format!(
            "apiVersion: {group}\nkind: DigitalOceanKubernetesNodePool\nmetadata:\n  name: blog-batch\n  env: prod\nspec:\n  \
             nodePoolName: batch\n  cluster: {{value: blog-k8s}}\n  size: s-2vcpu-4gb\n  nodeCount: 2\n  labels: {{tier: batch}}\n"
        )
    };
    let lowered = |group: &str| {
        let (manifests, problems) = berth_model::parse("pool.yaml", manifest(group).as_bytes());
        assert!(problems.is_empty(), "{group}: {problems:?}");
        let manifest = &manifests[0];
        lower(&LowerInput {
            id: &manifest.id,
            metadata: &manifest.metadata,
            spec: &manifest.resolve(&|_| Some(String::new())),
            targets: &BTreeMap::new(),
            default_region: None,
            label_prefix: "planton",
        })
        .unwrap()
    };
    let ours = lowered("digitalocean.berth.dev/v1");
    assert_eq!(ours.units[0].props["labels"], json!({"tier": "batch"}));
    assert_eq!(ours.units[0].props["own_labels"]["planton-environment"], "prod");
    for alias in ["digital-ocean.project-planton.org/v1", "digital-ocean.openmcf.org/v1"] {
        assert_eq!(lowered(alias), ours, "{alias}");
    }
}
