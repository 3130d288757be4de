//! Manifests written for other tools are applied as they are, and mean what they mean there.

use crate::harness::{Project, all};
use crate::support::cloud::Cloud;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn fixtures() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures/other_tools");
    let paths = std::fs::read_dir(folder).expect("the fixtures").map(|entry| entry.expect("an entry").path());
    let mut all: Vec<(String, PathBuf)> =
        paths.map(|path| (path.file_stem().expect("a name").to_string_lossy().into_owned(), path)).collect();
    all.sort();
    all
}

/// The only object of a type.
#[track_caller]
fn only(cloud: &Cloud, kind: &str) -> Value {
    let objects = cloud.objects(kind);
    assert_eq!(objects.len(), 1, "{kind}: {objects:#?}");
    objects[0].clone()
}

#[test]
fn manifests_of_other_tools_live_their_whole_life() {
    let fixtures = fixtures();
    assert!(fixtures.len() >= 15, "fixtures are missing: {fixtures:?}");
    all(fixtures, |name, path| {
        let (project, cloud) = (Project::new(), Cloud::instant());
        let path = path.display().to_string();
        project.berth(&cloud, &["apply", "-f", &path, "--yes"]).ok();
        project.berth(&cloud, &["plan", "-f", &path, "--detailed-exitcode"]).ok();
        project.berth(&cloud, &["drift"]).ok();
        means(name, &cloud);
        project.berth(&cloud, &["delete", "-f", &path, "--yes", "--allow-delete"]).ok();
        cloud.is_empty();
    });
}

/// What the cloud holds after a fixture was applied.
fn means(name: &str, cloud: &Cloud) {
    match name {
        "civo-version-without-patch" => assert_eq!(only(cloud, "civo.cluster")["version"], "1.29.8-k3s1"),
        "civo-bounds-without-autoscale" => {
            let pools = only(cloud, "civo.cluster")["pools"].clone();
            assert_eq!(pools[1]["count"], 2, "{pools:#}");
        }
        "civo-names" => {
            assert_eq!(only(cloud, "civo.network")["name"], "Depot Net (1)");
            assert_eq!(only(cloud, "civo.firewall")["name"], "Gate of the Depot");
            assert_eq!(only(cloud, "civo.cluster")["name"], "Depot.Cluster-1");
        }
        "civo-firewall-rules" => {
            let rules = only(cloud, "civo.firewall")["rules"].to_string();
            assert!(rules.contains("ingress allow tcp 22 198.51.100.0/24,203.0.113.9/32"), "{rules}");
            assert!(rules.contains("ingress deny tcp 1-65535 192.0.2.0/24"), "{rules}");
        }
        "digitalocean-version-without-patch" => {
            assert_eq!(only(cloud, "digitalocean.cluster")["version"], "1.29.14-do.0");
            assert_eq!(only(cloud, "digitalocean.vpc")["name"], "Depot.Vpc");
        }
        "digitalocean-scale-to-nothing" => {
            let cluster = only(cloud, "digitalocean.cluster")["id"].as_str().expect("an id").to_owned();
            let path = format!("/v2/kubernetes/clusters/{cluster}/node_pools");
            let pools = cloud.call(berth_sandbox::digitalocean::NAME, "GET", &path, None)["node_pools"].clone();
            let pool = |name: &str| pools.as_array().into_iter().flatten().find(|p| p["name"] == name).cloned();
            let (batch, lathe) = (pool("batch").expect("a pool"), pool("lathe").expect("a pool"));
            assert_eq!(
                (&batch["auto_scale"], &batch["min_nodes"], &batch["max_nodes"]),
                (&true.into(), &0.into(), &8.into())
            );
            assert_eq!((&lathe["auto_scale"], &lathe["count"]), (&false.into(), &1.into()));
        }
        "civo-default-for-region" => assert_eq!(only(cloud, "civo.network")["name"], "depot-net"),
        "civo-one-bound" => {
            let pools = only(cloud, "civo.cluster")["pools"].clone();
            let counts: Vec<_> = pools.as_array().into_iter().flatten().map(|pool| pool["count"].as_u64()).collect();
            assert_eq!(counts, [Some(1), Some(2), Some(2), Some(1)], "brought between the bounds: {pools:#}");
        }
        "digitalocean-one-bound" => {
            let cluster = only(cloud, "digitalocean.cluster")["id"].as_str().expect("an id").to_owned();
            let path = format!("/v2/kubernetes/clusters/{cluster}/node_pools");
            let pools = cloud.call(berth_sandbox::digitalocean::NAME, "GET", &path, None)["node_pools"].clone();
            let bounds = |pool: &Value| ["count", "min_nodes", "max_nodes"].map(|name| pool[name].as_u64());
            let all: Vec<_> = pools.as_array().into_iter().flatten().map(bounds).collect();
            assert_eq!(all, [[Some(2), Some(0), Some(2)], [Some(2), Some(2), Some(3)]], "{pools:#}");
        }
        "civo-tags" => {
            let tags = only(cloud, "civo.cluster")["tags"].clone();
            let has = |word: &str| tags.as_array().into_iter().flatten().any(|tag| tag == word);
            assert!(["team", "cranes", "version:1.2", "depot"].into_iter().all(has), "{tags:#}");
        }
        "numbers-and-words" => {
            assert_eq!(only(cloud, "civo.cluster")["region"], "FRA1");
            assert_eq!(only(cloud, "digitalocean.vpc")["region"], "ams3");
        }
        _ => {}
    }
}

/// What the other validator takes passes a check alone, with a word; a plan says why the cloud could not.
#[test]
fn what_only_the_cloud_refuses_is_told_by_the_plan() {
    let (project, cloud) = (Project::new(), Cloud::instant());
    let made = cloud.mutating();
    let head = |kind: &str, name: &str| {
        let group = if kind.starts_with("Civo") { "civo" } else { "digital-ocean" };
        format!("apiVersion: {group}.openmcf.org/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: ")
    };
    let pool =
        "{nodePoolName: p, cluster: {value: k}, size: g4s.kube.small, region: lon1, nodeCount: 1, autoScale: true";
    for (kind, name, spec, told) in [
        ("CivoVpc", "n", "{civoCredentialId: c, networkName: n, region: SIN1}".to_owned(), "not `SIN1`"),
        ("DigitalOceanVpc", "n", "{region: fra1, ipRangeCidr: 10.20.0.5/24}".into(), "has bits set beyond its prefix"),
        ("CivoFirewall", "f", "{name: f, networkId: {valueFrom: {name: gone}}}".into(), "nothing named `gone`"),
    ] {
        project.write("one.yaml", &format!("{}{spec}\n", head(kind, name)));
        let checked = project.berth(&cloud, &["validate", "-f", "one.yaml"]).ok();
        checked.says_all(&["warning", told, "no plan is made with it", "1 manifest in 1 file is valid"]);
        project.berth(&cloud, &["plan", "-f", "one.yaml"]).exits(1).says_all(&["error", told]);
    }
    for (kind, name, spec, told) in [
        ("CivoKubernetesNodePool", "p", format!("{pool}}}"), "needs `maxNodes` of at least 1"),
        (
            "CivoKubernetesNodePool",
            "p",
            format!("{pool}, minNodes: 4, maxNodes: 2}}"),
            "must not be more than its `maxNodes`",
        ),
        ("DigitalOceanVpc", "my_net", "{region: fra1}".into(), "does not take `my_net` as the name of a network"),
    ] {
        project.write("one.yaml", &format!("{}{spec}\n", head(kind, name)));
        project.berth(&cloud, &["validate", "-f", "one.yaml"]).ok();
        project.berth(&cloud, &["plan", "-f", "one.yaml"]).exits(1).says_all(&[told]);
    }
    assert_eq!(cloud.mutating(), made, "nothing is made");
}

/// A minor version is met by any patch of it, and what a cloud cannot take is refused before anything is made.
#[test]
fn what_was_left_to_the_cloud_is_not_changed_later() {
    let (project, cloud) = (Project::new(), Cloud::instant());
    let text =
        std::fs::read_to_string(&fixtures().iter().find(|(name, _)| name == "civo-version-without-patch").unwrap().1);
    let minor = text.expect("a fixture");
    project.write("exact.yaml", &minor.replace("\"1.29\"", "1.29.0-k3s1"));
    project.write("minor.yaml", &minor);
    project.write("next.yaml", &minor.replace("\"1.29\"", "\"1.30\""));
    project.berth(&cloud, &["apply", "-f", "exact.yaml", "--yes"]).ok();
    project.berth(&cloud, &["plan", "-f", "minor.yaml", "--detailed-exitcode"]).ok();
    project.berth(&cloud, &["apply", "-f", "minor.yaml", "--yes"]).ok();
    // A patch that was taken outside is what a minor version leaves open.
    let id = only(&cloud, "civo.cluster")["id"].as_str().expect("an id").to_owned();
    let body = serde_json::json!({"region": "LON1", "kubernetes_version": "1.29.8-k3s1"});
    cloud.call(berth_sandbox::civo::NAME, "PUT", &format!("/v2/kubernetes/clusters/{id}"), Some(body));
    project.berth(&cloud, &["drift"]).ok();
    project.berth(&cloud, &["plan", "-f", "minor.yaml", "--detailed-exitcode"]).ok();
    project.berth(&cloud, &["apply", "-f", "next.yaml", "--yes"]).ok();
    assert_eq!(only(&cloud, "civo.cluster")["version"], "1.30.5-k3s1");
    project.berth(&cloud, &["plan", "-f", "next.yaml", "--detailed-exitcode"]).ok();

    let made = cloud.mutating();
    project.write("spaced.yaml", &minor.replace("depot", "crane").replace("crane-k8s", "Crane K8s"));
    let refused = project.berth(&cloud, &["apply", "-f", "spaced.yaml", "--yes"]).exits(1);
    refused.says_all(&["Civo does not take `Crane K8s` as the name of a cluster", "spec.clusterName"]);
    assert_eq!(cloud.mutating(), made, "nothing is made before a name is known to be good");
}
