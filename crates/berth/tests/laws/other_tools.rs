//! Manifests written for other tools are applied as they are, and mean what they mean there.

use crate::harness::{Cloud, Project, all};
use berth_sandbox::CloudName;
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
    assert!(fixtures.len() >= 9, "fixtures are missing: {fixtures:?}");
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
            let pools = cloud.call(CloudName::DigitalOcean, "GET", &path, None)["node_pools"].clone();
            let pool = |name: &str| pools.as_array().into_iter().flatten().find(|p| p["name"] == name).cloned();
            let (batch, lathe) = (pool("batch").expect("a pool"), pool("lathe").expect("a pool"));
            assert_eq!(
                (&batch["auto_scale"], &batch["min_nodes"], &batch["max_nodes"]),
                (&true.into(), &0.into(), &8.into())
            );
            assert_eq!((&lathe["auto_scale"], &lathe["count"]), (&false.into(), &1.into()));
        }
        _ => {}
    }
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
    cloud.call(CloudName::Civo, "PUT", &format!("/v2/kubernetes/clusters/{id}"), Some(body));
    project.berth(&cloud, &["drift"]).ok();
    project.berth(&cloud, &["plan", "-f", "minor.yaml", "--detailed-exitcode"]).ok();
    project.berth(&cloud, &["apply", "-f", "next.yaml", "--yes"]).ok();
    assert_eq!(only(&cloud, "civo.cluster")["version"], "1.30.5-k3s1");
    project.berth(&cloud, &["plan", "-f", "next.yaml", "--detailed-exitcode"]).ok();

    let made = cloud.mutating();
    project.write("spaced.yaml", &minor.replace("depot", "crane").replace("crane-k8s", "Crane K8s"));
    let refused = project.berth(&cloud, &["apply", "-f", "spaced.yaml", "--yes"]).ends_with(1);
    refused.says(&["Civo does not take `Crane K8s` as the name of a cluster", "spec.clusterName"]);
    assert_eq!(cloud.mutating(), made, "nothing is made before a name is known to be good");
}
