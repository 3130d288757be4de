//! One value changed in a file, everything else as it was.

use berth_model::{EditError, parse, set_list, set_scalar};
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

const RULES: &str = "\
# before
kind: CivoFirewall
spec:
  name: web
  inboundRules:
    # for everyone
    - {protocol: tcp, portRange: \"443\"}
    - protocol: tcp
      portRange: \"80\"
  # between
  tags: [a, b] # after
---
spec: {name: web, inboundRules: [{protocol: udp}], tags: [a]}
";

#[test]
fn a_list_is_written_in_the_style_of_its_place() {
    let rule = json!({"protocol": "tcp", "cidrs": ["10.0.0.0/8"], "portRange": "8000-9000"});
    let line = "    - {cidrs: [10.0.0.0/8], portRange: 8000-9000, protocol: tcp}";
    let out = set_list(RULES, 0, "spec.inbound_rules", std::slice::from_ref(&rule)).unwrap();
    let written = out.lines().find(|written| written.contains("8000-9000")).unwrap();
    assert_eq!(written, line, "{out}");
    assert!(out.starts_with("# before\n") && out.contains("  # between\n  tags: [a, b] # after\n"), "{out}");
    assert!(!out.contains("443") && out.ends_with(RULES.split("---").nth(1).unwrap()), "{out}");

    let out = set_list(RULES, 0, "spec.inbound_rules", &[]).unwrap();
    assert!(out.contains("  inboundRules: []\n  # between\n"), "{out}");
    let out = set_list(RULES, 0, "spec.outbound_rules", std::slice::from_ref(&rule)).unwrap();
    assert!(out.contains("spec:\n  outboundRules:\n    - {") && out.contains("\n  name: web\n"), "{out}");
    assert_eq!(set_list(RULES, 0, "spec.outbound_rules", &[]).unwrap(), RULES, "nothing to say");

    let out = set_list(RULES, 1, "spec.inbound_rules", std::slice::from_ref(&rule)).unwrap();
    assert!(out.contains("spec: {name: web, inboundRules: [{") && out.ends_with("}], tags: [a]}\n"), "{out}");
    let out = set_list(RULES, 1, "spec.outbound_rules", std::slice::from_ref(&rule)).unwrap();
    assert!(out.contains("tags: [a], outboundRules: [{"), "{out}");
    assert!(matches!(set_list(RULES, 2, "spec.x", &[]), Err(EditError::NoDocument(2))));
    assert!(set_list(RULES, 0, "spec.name.x", std::slice::from_ref(&rule)).is_err());
}
