//! References across manifests: order, missing targets, circles, doubles.

use berth_model::{Diagnostic, Manifest, ResourceId, graph, parse};
use prost::Message;
use std::collections::HashSet;

fn all(files: &[(&str, &str)]) -> Vec<Manifest> {
    let mut out = Vec::new();
    for (file, text) in files {
        let (manifests, problems) = parse(file, text.as_bytes());
        assert_eq!(problems.iter().map(Diagnostic::to_string).collect::<Vec<_>>(), Vec::<String>::new());
        out.extend(manifests);
    }
    out
}

fn told(problem: &Diagnostic) -> String {
    format!("{problem} | {}", problem.help.join(" | "))
}

const NET: &str = "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: shop-net}\nspec: {networkName: shop-net, region: fra1}\n";
const FIREWALL: &str = "apiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {name: shop-fw}\nspec:\n  name: shop-fw\n  networkId: {valueFrom: {name: shop-net}}\n";
const CLUSTER: &str = "apiVersion: civo.berth.dev/v1
kind: CivoKubernetesCluster
metadata:
  name: shop
spec:
  clusterName: shop-k8s
  region: fra1
  kubernetesVersion: 1.30.5-k3s1
  network: {valueFrom: {name: shop-net}}
  firewall: {valueFrom: {name: shop-fw}}
  defaultNodePool: {size: g4s.kube.medium, nodeCount: 3}
";
const POOL: &str = "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesNodePool\nmetadata: {name: batch}\nspec:\n  nodePoolName: batch\n  cluster: {valueFrom: {name: shop}}\n  size: g4s.kube.medium\n  nodeCount: 1\n";

#[test]
fn order_follows_references_across_files() {
    let manifests = all(&[("pool.yaml", POOL), ("cluster.yaml", CLUSTER), ("fw.yaml", FIREWALL), ("net.yaml", NET)]);
    let graph = graph(&manifests, &HashSet::new());
    assert!(graph.diagnostics.is_empty());
    let order: Vec<String> = graph.order.iter().map(|n| manifests[*n].id.to_string()).collect();
    assert_eq!(
        order,
        ["CivoVpc/shop-net", "CivoFirewall/shop-fw", "CivoKubernetesCluster/shop", "CivoKubernetesNodePool/batch"]
    );
    let needs: Vec<String> = graph.needs[1].iter().map(|need| format!("{} {}", need.field, need.to)).collect();
    assert_eq!(needs, ["network CivoVpc/shop-net", "firewall CivoFirewall/shop-fw"]);
    assert_eq!(graph.needs[1][0].index, Some(3));
}

#[test]
fn what_is_applied_already_is_found() {
    let manifests = all(&[("fw.yaml", FIREWALL)]);
    let known = HashSet::from([ResourceId::new("CivoVpc", "shop-net")]);
    let graph = graph(&manifests, &known);
    assert!(graph.diagnostics.is_empty());
    assert_eq!((graph.order, graph.needs[0][0].index), (vec![0], None));
}

#[test]
fn a_missing_target_names_both_ends_and_the_nearest() {
    let cluster = CLUSTER.replace("network: {valueFrom: {name: shop-net}}", "network: {valueFrom: {name: shop-nett}}");
    let manifests = all(&[("shop/net.yaml", NET), ("shop/fw.yaml", FIREWALL), ("shop/cluster.yaml", &cluster)]);
    let found = graph(&manifests, &HashSet::new());
    assert_eq!(
        found.diagnostics.iter().map(told).collect::<Vec<_>>(),
        [
            "shop/cluster.yaml:9:31: nothing named `shop-nett` of kind CivoVpc is here or already applied | CivoVpc/shop-net is defined in shop/net.yaml:1"
        ]
    );
    assert_eq!(found.diagnostics[0].path, "spec.network");
    let far = CLUSTER.replace("name: shop-fw", "name: zzz");
    let known = HashSet::from([ResourceId::new("CivoFirewall", "zzy")]);
    let found = graph(&all(&[("net.yaml", NET), ("cluster.yaml", &far)]), &known);
    assert_eq!(
        found.diagnostics.iter().map(told).collect::<Vec<_>>(),
        [
            "cluster.yaml:10:32: nothing named `zzz` of kind CivoFirewall is here or already applied | CivoFirewall/zzy is already applied"
        ]
    );
}

#[test]
fn env_is_a_border() {
    let cluster = CLUSTER
        .replace("  name: shop\n", "  name: shop\n  env: prod\n")
        .replace("  firewall: {valueFrom: {name: shop-fw}}\n", "");
    let manifests = all(&[("net.yaml", NET), ("cluster.yaml", &cluster)]);
    let found = graph(&manifests, &HashSet::new());
    assert_eq!(
        found.diagnostics.iter().map(told).collect::<Vec<_>>(),
        [
            "cluster.yaml:10:31: nothing named `shop-net` of kind CivoVpc in env prod is here or already applied | CivoVpc/shop-net without an env is defined in net.yaml:1"
        ]
    );
    let net = NET.replace("{name: shop-net}", "{name: shop-net, env: shared}");
    let other = cluster.replace("{valueFrom: {name: shop-net}}", "{valueFrom: {name: shop-net, env: shared}}");
    let manifests = all(&[("net.yaml", &net), ("cluster.yaml", &other)]);
    assert!(graph(&manifests, &HashSet::new()).diagnostics.is_empty());
    assert_eq!(manifests[1].refs()[0].to.env, "shared");
}

#[test]
fn a_circle_names_all_ends() {
    let one = NET.replace("spec: {networkName: shop-net, region: fra1}", "spec:\n  networkName: a\n  region: fra1\n  account: {valueFrom: {kind: CivoFirewall, name: shop-fw, fieldPath: metadata.name}}");
    let manifests = all(&[("net.yaml", &one), ("fw.yaml", FIREWALL), ("cluster.yaml", CLUSTER)]);
    let found = graph(&manifests, &HashSet::new());
    assert_eq!(
        found.diagnostics.iter().map(told).collect::<Vec<_>>(),
        [
            "net.yaml:7:3: references go in a circle: CivoVpc/shop-net → CivoFirewall/shop-fw → CivoVpc/shop-net | CivoVpc/shop-net refers to CivoFirewall/shop-fw at net.yaml:7:3 (spec.account) | CivoFirewall/shop-fw refers to CivoVpc/shop-net at fw.yaml:6:3 (spec.networkId)"
        ]
    );
    assert!(found.order.is_empty());
    let own = NET.replace(
        "region: fra1",
        "region: fra1, account: {valueFrom: {kind: CivoVpc, name: shop-net, fieldPath: metadata.name}}",
    );
    let found = graph(&all(&[("net.yaml", &own)]), &HashSet::new());
    assert!(found.diagnostics[0].message.ends_with("CivoVpc/shop-net → CivoVpc/shop-net"));
}

#[test]
fn a_resource_that_is_defined_twice_names_both_places() {
    let manifests = all(&[("a.yaml", NET), ("b.yaml", NET)]);
    let found = graph(&manifests, &HashSet::new());
    assert_eq!(
        found.diagnostics.iter().map(told).collect::<Vec<_>>(),
        ["b.yaml:3:18: CivoVpc/shop-net is defined twice | it is defined first in a.yaml:1"]
    );
    let other_env = NET.replace("{name: shop-net}", "{name: shop-net, env: dev}");
    assert!(graph(&all(&[("a.yaml", NET), ("b.yaml", &other_env)]), &HashSet::new()).diagnostics.is_empty());
}

#[test]
fn an_account_by_name_comes_first_where_it_is_known() {
    let account = "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {name: main}\nspec: {provider: civo, civo: {token: {fromEnv: T}}}\n";
    let net = NET.replace("region: fra1}", "region: fra1, civoCredentialId: main}");
    let firewall = FIREWALL.to_owned() + "  account: main\n";
    let manifests = all(&[("fw.yaml", &firewall), ("net.yaml", &net), ("account.yaml", account)]);
    let found = graph(&manifests, &HashSet::new());
    assert_eq!(found.order, [2, 1, 0]);
    assert_eq!(manifests[1].account().as_deref(), Some("main"));
    // Text may also name what only the environment knows.
    let found = graph(&manifests[..2], &HashSet::new());
    assert!(found.diagnostics.is_empty());
    assert_eq!(found.order, [1, 0]);
}

#[test]
fn references_are_replaced_by_their_values() {
    let manifests = all(&[("cluster.yaml", CLUSTER)]);
    let bytes = manifests[0].resolve(&|to| (to.field == "network").then(|| format!("{}.{}", to.to, to.field_path)));
    let spec = berth_model::pb::berth::civo::v1::CivoKubernetesClusterSpec::decode(bytes.as_slice()).unwrap();
    use berth_model::pb::berth::core::v1::string_value_or_ref::LiteralOrRef;
    assert_eq!(
        spec.network.unwrap().literal_or_ref,
        Some(LiteralOrRef::Value("CivoVpc/shop-net.status.outputs.network_id".into()))
    );
    // What has no value yet stays a reference, with everything that is usually left out.
    let Some(LiteralOrRef::ValueFrom(from)) = spec.firewall.unwrap().literal_or_ref else { panic!("a value") };
    assert_eq!((&*from.kind, &*from.field_path), ("CivoFirewall", "status.outputs.firewall_id"));
    assert_eq!(spec.cluster_name, "shop-k8s");
    assert_eq!(manifests[0].refs().len(), 2, "the manifest itself is as it was");
}

#[test]
fn a_fleet_is_sorted_fast_enough_to_test() {
    let text: String = (0..3000)
        .map(|n| {
            format!(
                "---\n{}---\n{}",
                NET.replace("{name: shop-net}", &format!("{{name: net-{n}}}")),
                FIREWALL
                    .replace("shop-net", &format!("net-{n}"))
                    .replace("{name: shop-fw}", &format!("{{name: fw-{n}}}"))
            )
        })
        .collect();
    let manifests = all(&[("fleet.yaml", &text)]);
    let found = graph(&manifests, &HashSet::new());
    assert!(found.diagnostics.is_empty());
    assert_eq!(found.order.len(), 6000);
}

#[test]
fn an_org_is_a_border_and_is_named() {
    let cluster = CLUSTER
        .replace("  name: shop\n", "  name: shop\n  org: acme\n")
        .replace("  firewall: {valueFrom: {name: shop-fw}}\n", "");
    let net = NET.replace("{name: shop-net}", "{name: shop-net, org: shop, env: dev}");
    let manifests = all(&[("net.yaml", &net), ("cluster.yaml", &cluster)]);
    let found = graph(&manifests, &HashSet::new());
    assert_eq!(
        found.diagnostics.iter().map(told).collect::<Vec<_>>(),
        [
            "cluster.yaml:10:31: nothing named `shop-net` of kind CivoVpc in org acme is here or already applied | CivoVpc/shop-net in org shop, in env dev, is defined in net.yaml:1; references stay in one org"
        ]
    );
}
