//! What each kind lowers to, from manifests as users write them.

use berth_engine::handler::{LowerInput, Target, Trouble};
use berth_engine::unit::Lowered;
use berth_model::{Manifest, parse};
use serde_json::json;
use std::collections::BTreeMap;

/// Reads one manifest, gives its references these outputs, and lowers it.
pub fn lowered(yaml: &str, outputs: &[(&str, &str)]) -> Result<Lowered, Trouble> {
    lowered_in(yaml, outputs, None)
}

pub fn lowered_in(yaml: &str, outputs: &[(&str, &str)], default_region: Option<&str>) -> Result<Lowered, Trouble> {
    let (manifests, problems) = parse("test.yaml", yaml.as_bytes());
    assert!(problems.is_empty(), "{problems:?}");
    let manifest: &Manifest = &manifests[0];
    let known = |path: &str| outputs.iter().find(|(name, _)| path.ends_with(name)).map(|(_, value)| value.to_string());
    let mut targets = BTreeMap::new();
    for reference in manifest.refs() {
        let outputs = outputs.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
        let spec = json!({"region": "nyc1"});
        targets.insert(reference.field.clone(), Target { id: reference.to.clone(), spec, outputs });
    }
    let spec = manifest.resolve(&|reference| known(&reference.field_path));
    crate::lower(&LowerInput {
        id: &manifest.id,
        metadata: &manifest.metadata,
        spec: &spec,
        targets: &targets,
        default_region,
        label_prefix: "planton",
    })
}

pub fn manifest(kind: &str, name: &str, spec: &str) -> String {
    let indented: String = spec.trim_matches('\n').lines().map(|line| format!("  {line}\n")).collect();
    format!("apiVersion: civo.berth.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{indented}")
}

#[test]
fn networks() {
    let small = manifest("CivoVpc", "shop-net", "networkName: shop-net\nregion: fra1\n");
    insta::assert_yaml_snapshot!("vpc_small", lowered(&small, &[]).unwrap());
    let full = "networkName: shop-net\nregion: lon1\nipRangeCidr: 10.20.0.0/24\nisDefaultForRegion: true\ndescription: the shop\n";
    insta::assert_yaml_snapshot!("vpc_full", lowered(&manifest("CivoVpc", "shop-net", full), &[]).unwrap());
}

#[test]
fn firewalls() {
    let closed = manifest("CivoFirewall", "shop-fw", "name: shop-fw\nregion: fra1\nnetworkId: {value: net-1}\n");
    insta::assert_yaml_snapshot!("firewall_closed", lowered(&closed, &[]).unwrap());
    let full = "
name: shop-fw
networkId: {valueFrom: {name: shop-net}}
inboundRules:
- {protocol: tcp, portRange: '443', label: web}
- {protocol: tcp, portRange: 8000-9000, cidrs: [10.1.0.0/16, 10.0.0.0/16]}
- {protocol: icmp}
- {protocol: tcp, portRange: '22', cidrs: [203.0.113.0/24], action: deny}
outboundRules:
- {protocol: udp}
tags: [team:shop]
";
    let full = manifest("CivoFirewall", "shop-fw", full);
    insta::assert_yaml_snapshot!("firewall_full", lowered(&full, &[("network_id", "net-1")]).unwrap());
    insta::assert_yaml_snapshot!("firewall_unknown_network", lowered(&full, &[]).unwrap());
}

#[test]
fn a_firewall_without_a_region_says_what_to_set() {
    let yaml = manifest("CivoFirewall", "shop-fw", "name: shop-fw\nnetworkId: {value: net-1}\n");
    let trouble = lowered(&yaml, &[]).unwrap_err();
    assert_eq!(trouble.to_string(), "it is not said in which region CivoFirewall/shop-fw is");
    assert!(
        trouble.help_lines()[0].contains("spec.region") && trouble.help_lines()[0].contains("CIVO_REGION"),
        "{:?}",
        trouble.help
    );
    let in_account = lowered_in(&yaml, &[], Some("PHX1")).unwrap();
    assert_eq!(in_account.units[0].scope, "phx1");
}

#[test]
fn clusters() {
    let small = "
clusterName: shop-k8s
region: fra1
kubernetesVersion: v1.29.0+k3s1
network: {value: net-1}
defaultNodePool: {size: g4s.kube.medium, nodeCount: 3}
";
    insta::assert_yaml_snapshot!(
        "cluster_small",
        lowered(&manifest("CivoKubernetesCluster", "shop", small), &[]).unwrap()
    );
    let full = "
apiVersion: civo.berth.dev/v1
kind: CivoKubernetesCluster
metadata:
  name: shop
  id: cikc-1
  org: acme
  env: prod
  annotations: {berth.dev/ready-gate: cloud}
spec:
  clusterName: shop-k8s
  region: fra1
  kubernetesVersion: 1.30.5
  network: {valueFrom: {name: shop-net}}
  defaultNodePool: {size: g4s.kube.large, nodeCount: 3}
  highlyAvailable: true
  autoUpgrade: true
  disableSurgeUpgrade: true
  tags: [team:shop, 'planton-environment:live']
  cni: cilium
  applications: [PostgreSQL:5GB, cert-manager]
  apiAllowedCidrs: [203.0.113.0/24, 198.51.100.0/24]
  additionalNodePools:
  - name: gpu
    size: an.g1.l40s.kube.x1
    nodeCount: 1
    labels: {workload: train, planton-resource: 'no'}
    taints: [{key: nvidia.com/gpu, effect: NoSchedule}, {key: dedicated, value: train, effect: NoExecute}]
  - {name: batch, size: g4s.kube.medium, nodeCount: 2, autoScale: true, minNodes: 1, maxNodes: 5}
";
    insta::assert_yaml_snapshot!("cluster_full", lowered(full, &[("network_id", "net-1")]).unwrap());
    let referenced = "
clusterName: shop-k8s
region: fra1
kubernetesVersion: 1.30.5-k3s1
network: {valueFrom: {name: shop-net}}
firewall: {valueFrom: {name: shop-fw}}
defaultNodePool: {size: g4s.kube.medium, nodeCount: 1}
autoscaler: {enabled: true}
";
    let referenced = manifest("CivoKubernetesCluster", "shop", referenced);
    insta::assert_yaml_snapshot!("cluster_by_reference", lowered(&referenced, &[]).unwrap());
}

#[test]
fn long_metadata_becomes_valid_labels_and_tags() {
    let metadata = format!("{{name: shop, org: acme, env: prod-eu, id: {}}}", "x".repeat(128));
    let spec = "clusterName: shop-k8s\nregion: fra1\nkubernetesVersion: 1.30.5\nnetwork: {value: net-1}\n\
                defaultNodePool: {size: g4s.kube.medium, nodeCount: 1}\n\
                additionalNodePools: [{name: gpu, size: g4s.kube.medium, nodeCount: 1}]\n";
    let yaml = manifest("CivoKubernetesCluster", "shop", spec).replace("{name: shop}", &metadata);
    let units = lowered(&yaml, &[]).unwrap().units;
    let id = "x".repeat(63);
    let tags: Vec<&str> = units[0].props["tags"].as_array().unwrap().iter().filter_map(|tag| tag.as_str()).collect();
    assert!(tags.iter().all(|tag| !tag.contains(char::is_whitespace)), "{tags:?}");
    assert!(tags.contains(&"planton-organization:acme"), "{tags:?}");
    assert!(tags.contains(&"planton-environment:prod-eu"), "{tags:?}");
    let labels = &units[1].props["labels"];
    assert_eq!(labels["planton-organization"], "acme");
    assert_eq!(labels["planton-environment"], "prod-eu");
    assert_eq!(labels["planton-resource-id"], json!(id));
}

#[test]
fn manifests_of_other_groups_lower_alike() {
    let ours = manifest(
        "CivoKubernetesCluster",
        "prod-cluster",
        "clusterName: prod-k8s\nregion: fra1\nkubernetesVersion: 1.29.0+k3s1\nnetwork: {value: net-1}\ndefaultNodePool: {size: g4s.kube.large, nodeCount: 5}\n",
    );
    let expected = lowered(&ours, &[]).unwrap();
    for group in ["civo.project-planton.org/v1", "civo.openmcf.org/v1"] {
        assert_eq!(lowered(&ours.replace("civo.berth.dev/v1", group), &[]).unwrap(), expected);
    }
}

#[test]
fn node_pools() {
    let fixed = "nodePoolName: batch\ncluster: {value: shop-k8s}\nregion: fra1\nsize: g4s.kube.medium\nnodeCount: 2\n";
    insta::assert_yaml_snapshot!(
        "pool_fixed",
        lowered(&manifest("CivoKubernetesNodePool", "shop-batch", fixed), &[]).unwrap()
    );
    let scaled = "
nodePoolName: batch
cluster: {valueFrom: {name: shop}}
size: g4s.kube.medium
nodeCount: 2
autoScale: true
minNodes: 1
maxNodes: 9
tags: [team:shop]
labels: {workload: batch}
taints: [{key: dedicated, value: batch, effect: NoSchedule}]
";
    let scaled = manifest("CivoKubernetesNodePool", "shop-batch", scaled);
    insta::assert_yaml_snapshot!("pool_scaled", lowered(&scaled, &[("cluster_id", "c-1")]).unwrap());
    insta::assert_yaml_snapshot!("pool_of_a_cluster_to_come", lowered(&scaled, &[]).unwrap());
}

#[test]
fn a_pool_cannot_be_taken_for_a_default_one() {
    let spec = "nodePoolName: berth-default\ncluster: {value: c}\nregion: fra1\nsize: g4s.kube.medium\nnodeCount: 2\n";
    let trouble = lowered(&manifest("CivoKubernetesNodePool", "p", spec), &[]).unwrap_err();
    assert_eq!(trouble.to_string(), "a pool cannot be named `berth-default`");
}
