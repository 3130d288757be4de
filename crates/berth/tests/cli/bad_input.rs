//! Every sort of bad input, and the error that a user sees.

use crate::shop::{CLUSTER, NET, shop};
use crate::shows;
use crate::support::folder::Folder;

/// The cluster with one thing changed, beside the network it refers to.
fn cluster(from: &str, to: &str) -> Folder {
    let project = shop();
    assert!(CLUSTER.contains(from), "`{from}` is in the manifest");
    project.write("shop/cluster.yaml", &CLUSTER.replace(from, to));
    project
}

macro_rules! refused {
    ($($test:ident: $project:expr;)*) => {$(
        #[test]
        fn $test() {
            let project = $project;
            shows!(stringify!($test), project.berth(&["validate", "-f", "shop/"]).exits(1));
        }
    )*};
}

refused! {
    unknown_field: cluster("kubernetesVersion", "kubernetesVerison");
    duplicate_key: cluster("  region: fra1\n", "  region: fra1\n  region: lon1\n");
    wrong_type: cluster("nodeCount: 3", "nodeCount: three");
    text_for_a_block: cluster("  defaultNodePool:\n    size: g4s.kube.medium\n    nodeCount: 3\n", "  defaultNodePool: small\n");
    number_for_text: cluster("clusterName: shop-k8s", "clusterName: 12");
    version_as_a_number: cluster("kubernetesVersion: 1.30.5-k3s1", "kubernetesVersion: 1.30");
    unknown_enum_value: cluster("region: fra1", "region: mars1");
    tabs: cluster("  clusterName", "\tclusterName");
    rule_broken: cluster("nodeCount: 3", "nodeCount: 0");
    required_missing: cluster("  region: fra1\n", "");
    several_at_once: cluster("  region: fra1\n  kubernetesVersion: 1.30.5-k3s1\n  network: {valueFrom: {name: shop-net}}",
        "  region: fra9\n  kubernetesVerison: 1.30.5-k3s1\n  network: {valueFrom: {name: shop-nett}}");
    missing_reference: cluster("name: shop-net}", "name: shop-nett}");
    wrong_kind_of_reference: cluster("{valueFrom: {name: shop-net}}", "{valueFrom: {kind: CivoVcp, name: shop-net}}");
    unknown_output: cluster("{valueFrom: {name: shop-net}}", "{valueFrom: {name: shop-net, fieldPath: status.outputs.netId}}");
    unknown_kind: cluster("kind: CivoKubernetesCluster", "kind: CivoKuberneteCluster");
    unknown_group: cluster("apiVersion: civo.berth.dev/v1", "apiVersion: civo.example.org/v1");
    no_kind: cluster("kind: CivoKubernetesCluster\n", "");
    broken_yaml: cluster("metadata:\n  name: shop", "metadata: {name: shop");
    not_a_manifest: cluster(CLUSTER, "just some text\n");
    a_list: cluster(CLUSTER, "- a\n- b\n");
    wrong_indentation: cluster("    nodeCount: 3", "   nodeCount: 3");
    unknown_anchor: cluster("clusterName: shop-k8s", "clusterName: *nobody");
    bad_name: cluster("metadata:\n  name: shop", "metadata:\n  name: Shop_1");
    empty_file_among_others: cluster(CLUSTER, "");
    empty_file: Folder::with(&[("shop/empty.yaml", "")]);
    only_comments: Folder::with(&[("shop/empty.yaml", "# later\n---\n")]);
    long_line: cluster("clusterName: shop-k8s", &format!("tags: [{}], clusterName: shop-k8s, oops: 1", "abcdefgh, ".repeat(200)));
    control_characters: cluster("clusterName: shop-k8s", "clusterName: \"a\\u001b[31mb\"\n  \u{1f}bell\u{7}: 1");
    right_to_left: cluster("clusterName: shop-k8s", "\u{202e}eman: shop-k8s");
}

#[test]
fn exploding_anchors() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let before = format!("*a{}, ", i - 1).repeat(10);
        text.push_str(&format!("a{i}: &a{i} [{}]\n", before.trim_end_matches(", ")));
    }
    let project = Folder::with(&[("shop/bomb.yaml", &text)]);
    shows!("exploding_anchors", project.berth(&["validate", "-f", "shop/"]).exits(1));
}

#[test]
fn deep_nesting() {
    let project = Folder::with(&[("shop/deep.yaml", &"[".repeat(100_000))]);
    shows!("deep_nesting", project.berth(&["validate", "-f", "shop/"]).exits(1));
}

#[test]
fn a_file_of_100_mb() {
    let project = Folder::new();
    std::fs::create_dir(project.path().join("shop")).unwrap();
    std::fs::File::create(project.path().join("shop/big.yaml")).unwrap().set_len(100_000_000).unwrap();
    shows!("a_file_of_100_mb", project.berth(&["validate", "-f", "shop/"]).exits(1));
}

#[test]
fn input_of_100_mb() {
    let input = vec![b'#'; 100_000_000];
    shows!("input_of_100_mb", Folder::new().berth_with_input(&["validate", "-f", "-"], &input).exits(1));
}

#[test]
fn invalid_utf8() {
    let project = shop();
    let mut bytes = CLUSTER.as_bytes().to_vec();
    let at = CLUSTER.find("shop-k8s").unwrap();
    bytes[at] = 0xff;
    project.write("shop/cluster.yaml", &bytes);
    shows!("invalid_utf8", project.berth(&["validate", "-f", "shop/"]).exits(1));
}

#[test]
fn utf16() {
    let bytes: Vec<u8> = [0xff, 0xfe].into_iter().chain(NET.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let project = Folder::new();
    project.write("net.yaml", &bytes);
    shows!("utf16", project.berth(&["validate", "-f", "net.yaml"]).exits(1));
}

#[test]
fn missing_file() {
    shows!("missing_file", Folder::new().berth(&["validate", "-f", "nowhere.yaml", "-f", "neither.yaml"]).exits(1));
}

#[test]
fn folder_without_manifests() {
    let project = Folder::with(&[("notes/readme.md", "# notes"), ("notes/.hidden.yaml", NET)]);
    shows!("folder_without_manifests", project.berth(&["validate", "-f", "notes"]).exits(1));
}

#[test]
fn empty_input() {
    shows!("empty_input", Folder::new().berth_with_input(&["validate", "-f", "-"], b"").exits(1));
}

#[test]
fn broken_json() {
    let project = Folder::with(&[(
        "net.json",
        "{\"apiVersion\": \"civo.berth.dev/v1\", \"kind\": \"CivoVpc\",\n \"metadata\": {\"name\": \"a\"\n",
    )]);
    shows!("broken_json", project.berth(&["validate", "-f", "net.json"]).exits(1));
}

#[test]
fn reference_cycle() {
    let a = NET.replace("region: fra1", "region: fra1\n  description: x");
    let pool = |name: &str, other: &str| {
        format!(
            "apiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata:\n  name: {name}\nspec:\n  name: {name}\n  \
             networkId: {{valueFrom: {{kind: CivoFirewall, name: {other}, fieldPath: status.outputs.firewall_id}}}}\n"
        )
    };
    let project = Folder::with(&[
        ("shop/net.yaml", &a),
        ("shop/one.yaml", &pool("one", "two")),
        ("shop/two.yaml", &pool("two", "one")),
    ]);
    shows!("reference_cycle", project.berth(&["validate", "-f", "shop/"]).exits(1));
}

#[test]
fn duplicate_resource() {
    let project = Folder::with(&[("shop/a.yaml", NET), ("shop/b.yaml", NET)]);
    shows!("duplicate_resource", project.berth(&["validate", "-f", "shop/"]).exits(1));
}

#[test]
fn a_secret_is_not_shown() {
    let account = "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata:\n  name: main\nspec:\n  provider: civo\n  \
                   civo:\n    token: {value: [hunter2-planted-secret]}\n";
    let project = Folder::with(&[("account.yaml", account)]);
    let run = project.berth(&["validate", "-f", "account.yaml"]).exits(1);
    assert!(!run.to_string().contains("hunter2"), "{run}");
    shows!("a_secret_is_not_shown", run);
}

#[test]
fn problems_as_json() {
    let project = cluster("kubernetesVersion", "kubernetesVerison");
    let run = project.berth(&["validate", "-f", "shop/", "-o", "json"]).exits(1);
    let value: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(value["valid"], false);
    let problems = value["diagnostics"].as_array().unwrap();
    assert!(problems.iter().any(|problem| problem["line"] == 8 && problem["column"] == 3), "{run}");
    shows!("problems_as_json", run);
}

/// Not by its permissions, which root would not heed: what stands in the way of the file is itself a file.
#[test]
fn unreadable_file() {
    let project = shop();
    shows!("unreadable_file", project.berth(&["validate", "-f", "shop/net.yaml/more.yaml"]).exits(1));
}
