//! One value changed in a file, everything else as it was.

use berth_model::{EditError, parse, set_scalar};
use proptest::prelude::*;
use serde_json::json;

const FILE: &str = "# the shop
apiVersion: civo.berth.dev/v1
kind: CivoKubernetesCluster # a cluster
metadata:
  name: shop

spec:
  clusterName: 'shop-k8s'   # as people know it
  region: fra1
  kubernetesVersion: \"1.30.5-k3s1\"
  network: {value: net-1}
  defaultNodePool:
    # three are enough
    size: g4s.kube.medium
    nodeCount: 3   # was 2
  additionalNodePools:
    - name: gpu
      size: g4g.kube.small
      nodeCount: 1
    - {name: batch, size: g4s.kube.small, nodeCount: 2}
  firewall:
    valueFrom: {name: fw}
---
apiVersion: civo.berth.dev/v1
kind: CivoVpc
metadata: {name: net}
spec: {networkName: net, region: fra1}
";

#[test]
fn only_the_value_changes() {
    for (path, value, from, to) in [
        ("spec.default_node_pool.node_count", json!(5), "nodeCount: 3   # was 2", "nodeCount: 5   # was 2"),
        ("spec.kubernetesVersion", json!("1.31.0-k3s1"), "\"1.30.5-k3s1\"", "\"1.31.0-k3s1\""),
        ("spec.clusterName", json!("it's"), "'shop-k8s'", "'it''s'"),
        ("spec.region", json!("lon1"), "region: fra1\n  kub", "region: lon1\n  kub"),
        ("spec.region", json!("1.5"), "region: fra1\n  kub", "region: \"1.5\"\n  kub"),
        ("spec.network", json!("net-2"), "{value: net-1}", "{value: net-2}"),
        ("spec.additional_node_pools[gpu].node_count", json!(4), "nodeCount: 1", "nodeCount: 4"),
        ("spec.additionalNodePools[batch].nodeCount", json!(7), "nodeCount: 2}", "nodeCount: 7}"),
        ("spec.additionalNodePools[0].size", json!("g4g.kube.large"), "g4g.kube.small", "g4g.kube.large"),
    ] {
        let out = set_scalar(FILE, 0, path, &value).unwrap();
        assert_eq!(out, FILE.replacen(from, to, 1), "{path}");
        assert_eq!(FILE.matches(from).count(), 1, "{from}");
    }
}

#[test]
fn what_is_absent_is_added_beside_its_siblings() {
    let out = set_scalar(FILE, 0, "spec.additionalNodePools[gpu].autoScale", &json!(true)).unwrap();
    assert_eq!(out, FILE.replacen("      nodeCount: 1\n", "      nodeCount: 1\n      autoScale: true\n", 1));
    let out = set_scalar(FILE, 0, "spec.default_node_pool.auto_scale", &json!(true)).unwrap();
    assert_eq!(out, FILE.replacen("# was 2\n", "# was 2\n    autoScale: true\n", 1));
    let out = set_scalar(FILE, 0, "spec.additional_node_pools[batch].max_nodes", &json!(9)).unwrap();
    assert_eq!(out, FILE.replacen("nodeCount: 2}", "nodeCount: 2, maxNodes: 9}", 1));
    let out = set_scalar(FILE, 1, "spec.description", &json!("a net: mine")).unwrap();
    assert_eq!(out, FILE.replacen("region: fra1}", "region: fra1, description: \"a net: mine\"}", 1));
    let out = set_scalar(FILE, 0, "spec.autoscaler.enabled", &json!(true)).unwrap();
    assert_eq!(out, FILE.replacen("\"1.30.5-k3s1\"\n", "\"1.30.5-k3s1\"\n  autoscaler:\n    enabled: true\n", 1));
    assert!(parse("m.yaml", out.as_bytes()).1.is_empty());
    let windows = FILE.replace('\n', "\r\n");
    let out = set_scalar(&windows, 0, "spec.default_node_pool.auto_scale", &json!(true)).unwrap();
    assert_eq!(out, windows.replacen("# was 2\r\n", "# was 2\r\n    autoScale: true\r\n", 1));
}

#[test]
fn a_field_without_a_value_gets_one() {
    let empty = FILE.replace("nodeCount: 3   # was 2", "nodeCount:   # was 2");
    let out = set_scalar(&empty, 0, "spec.defaultNodePool.nodeCount", &json!(3)).unwrap();
    assert_eq!(out, empty.replace("nodeCount:   # was 2", "nodeCount: 3   # was 2"));
    let bare = "spec:\n  defaultNodePool:\n  region: fra1\n";
    let out = set_scalar(bare, 0, "spec.defaultNodePool.nodeCount", &json!(3)).unwrap();
    assert_eq!(out, "spec:\n  defaultNodePool: {nodeCount: 3}\n  region: fra1\n");
    let nested = "spec:\n  pool:\n    labels:\n      a: b\n";
    let out = set_scalar(nested, 0, "spec.region", &json!("fra1")).unwrap();
    assert_eq!(out, "spec:\n  region: fra1\n  pool:\n    labels:\n      a: b\n");
}

#[test]
fn json_stays_json() {
    let json = "{\n  \"spec\": {\n    \"region\": \"fra1\"\n  }\n}\n";
    let out = set_scalar(json, 0, "spec.region", &json!("lon1")).unwrap();
    assert_eq!(out, json.replace("fra1", "lon1"));
    let out = set_scalar(json, 0, "spec.nodeCount", &json!(3)).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&out).unwrap(),
        json!({"spec": {"region": "fra1", "nodeCount": 3}})
    );
}

#[test]
fn what_cannot_be_done_is_said() {
    let set = |path: &str| set_scalar(FILE, 0, path, &json!(1)).unwrap_err();
    assert_eq!(set("spec.firewall"), EditError::Reference("spec.firewall".into()));
    assert_eq!(set("spec.additionalNodePools"), EditError::NotScalar("spec.additionalNodePools".into()));
    assert_eq!(set("spec.additionalNodePools[none].size"), EditError::NoEntry("none".into()));
    assert_eq!(set("spec..x"), EditError::NotAPath("spec..x".into()));
    assert_eq!(set_scalar(FILE, 7, "spec.region", &json!(1)), Err(EditError::NoDocument(7)));
    assert_eq!(set_scalar(FILE, 0, "spec.region", &json!([1])), Err(EditError::NotWritable));
    assert!(matches!(set_scalar("a: [", 0, "a", &json!(1)), Err(EditError::Unreadable(_))));
    let block = "spec:\n  description: |\n    long\n    text\n";
    assert!(set_scalar(block, 0, "spec.description", &json!("x")).is_err());
}

proptest! {
    /// Any text can be written at any scalar and is read back the same, and writing it again changes nothing.
    #[test]
    fn any_text_survives(text in "\\PC{0,40}", path in prop::sample::select(vec!["spec.clusterName", "spec.region", "spec.kubernetesVersion", "spec.network", "spec.defaultNodePool.size", "spec.additionalNodePools[batch].size", "spec.cni"])) {
        let once = set_scalar(FILE, 0, path, &json!(text)).unwrap();
        prop_assert_eq!(set_scalar(&once, 0, path, &json!(text)).unwrap(), once.clone());
        let (manifests, _) = parse("m.yaml", once.as_bytes());
        let found = manifests[0].field_value(path).unwrap_or_default();
        prop_assert_eq!(found, text);
        prop_assert_eq!(&manifests[1], &parse("m.yaml", FILE.as_bytes()).0[1]);
    }
}
