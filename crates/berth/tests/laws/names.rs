//! The resource's name is Berth's, the object's name is the cloud's.

use crate::harness::Project;
use crate::support::cloud::Cloud;
use berth_sandbox::civo::NAME as CIVO_NAME;
use berth_sandbox::digitalocean::NAME as DIGITALOCEAN_NAME;
use serde_json::json;

fn text(value: &serde_json::Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// Names that clouds allow and resources cannot have.
#[test]
fn whatever_a_cloud_allows_as_a_name_is_imported() {
    let (project, cloud) = (Project::new(), Cloud::instant());
    let network = |label: &str| {
        text(&cloud.call(CIVO_NAME, "POST", "/v2/networks", Some(json!({"label": label, "region": "FRA1"})))["id"])
    };
    let main = network("My Network");
    network("my-network");
    let firewall = |name: &str, network: &str| {
        let body = json!({"name": name, "network_id": network, "region": "FRA1"});
        text(&cloud.call(CIVO_NAME, "POST", "/v2/firewalls", Some(body))["id"])
    };
    let guard = firewall("MixedCase - Default", &main);
    let body = json!({"name": "Upper.Case", "region": "FRA1", "kubernetes_version": "1.30.5-k3s1", "network_id": main,
                      "instance_firewall": guard, "num_target_nodes": 1, "target_nodes_size": "g4s.kube.small"});
    let cluster = text(&cloud.call(CIVO_NAME, "POST", "/v2/kubernetes/clusters", Some(body))["id"]);
    let body = json!({"id": "Workers.Main_1", "count": 1, "size": "g4s.kube.small", "region": "FRA1"});
    cloud.call(CIVO_NAME, "POST", &format!("/v2/kubernetes/clusters/{cluster}/pools"), Some(body));
    cloud.call(DIGITALOCEAN_NAME, "POST", "/v2/vpcs", Some(json!({"name": "Upper.Case", "region": "fra1"})));
    let before = cloud.shape();

    project
        .berth(&cloud, &["import", "--all", "--provider", "civo"])
        .ok()
        .says_all(&["CivoVpc/my-network imported", "CivoVpc/my-network-2"]);
    project
        .berth(&cloud, &["import", "--all", "--provider", "digitalocean"])
        .ok()
        .says("DigitalOceanVpc/upper-case imported");
    project.berth(&cloud, &["plan", "-f", "imported", "--detailed-exitcode"]).ok();
    project.berth(&cloud, &["drift"]).ok();
    assert_eq!(cloud.shape(), before, "import changed the cloud");
    let names = project.berth(&cloud, &["get", "-o", "json"]).ok().json().to_string();
    for name in ["My Network", "MixedCase - Default", "Upper.Case"] {
        assert!(names.contains(name), "{name} is not in {names}");
    }
    project.berth(&cloud, &["delete", "-f", "imported", "--yes", "--allow-delete"]).ok();
    cloud.is_empty();
}

/// A pool of any name can be taken over by itself.
#[test]
fn a_pool_keeps_its_name() {
    let (project, cloud) = (Project::new(), Cloud::instant());
    let body = json!({"name": "shop", "region": "FRA1", "num_target_nodes": 1, "target_nodes_size": "g4s.kube.small"});
    let cluster = text(&cloud.call(CIVO_NAME, "POST", "/v2/kubernetes/clusters", Some(body))["id"]);
    let body = json!({"id": "Workers.Main_1", "count": 1, "size": "g4s.kube.small", "region": "FRA1"});
    cloud.call(CIVO_NAME, "POST", &format!("/v2/kubernetes/clusters/{cluster}/pools"), Some(body));
    let object = format!("{cluster}/Workers.Main_1");
    project.berth(&cloud, &["import", "CivoKubernetesNodePool/workers", &object]).ok().says("the plan is empty");
}

/// A resource that was named for another tool is adopted under that name, as the refusal says.
#[test]
fn a_name_of_another_tool_is_adopted() {
    let (project, cloud) = (Project::new(), Cloud::instant());
    let net = "apiVersion: civo.openmcf.org/v1\nkind: CivoVpc\nmetadata: {name: Depot.Net}\nspec: {networkName: Depot Net, region: FRA1}\n";
    project.write("net.yaml", net);
    let body = json!({"label": "Depot Net", "region": "FRA1"});
    let id = text(&cloud.call(CIVO_NAME, "POST", "/v2/networks", Some(body))["id"]);
    let advised = format!("berth import CivoVpc/Depot.Net {id}");
    project.berth(&cloud, &["apply", "-f", "net.yaml", "--yes"]).exits(1).says(&advised);
    project.berth(&cloud, &["import", "CivoVpc/Depot.Net", &id]).ok().says("the plan is empty");
    for file in ["net.yaml", "civovpc-Depot.Net.yaml"] {
        project.berth(&cloud, &["plan", "-f", file, "--detailed-exitcode"]).ok();
    }
}

/// What no manifest can say is told, and the exit code says so; everything else is imported.
#[test]
fn what_cannot_be_imported_is_listed() {
    let (project, cloud) = (Project::new(), Cloud::instant());
    let network = |label: &str| {
        text(&cloud.call(CIVO_NAME, "POST", "/v2/networks", Some(json!({"label": label, "region": "FRA1"})))["id"])
    };
    let (hidden, _) = (network("in\u{200b}visible"), network("plain"));
    let body = json!({"name": "edge", "network_id": hidden, "region": "FRA1"});
    cloud.call(CIVO_NAME, "POST", "/v2/firewalls", Some(body));
    let before = cloud.shape();
    let told = "not imported: CivoVpc";
    let reason = "spec.networkName: network name has characters that cannot be seen";
    let first = project.berth(&cloud, &["import", "--all", "--provider", "civo"]).exits(1);
    first.says_all(&[told, &hidden, reason, "CivoVpc/plain imported", "CivoFirewall/edge imported"]);
    project.berth(&cloud, &["plan", "-f", "imported", "--detailed-exitcode"]).ok();
    let again = project.berth(&cloud, &["import", "--all", "--provider", "civo", "--out", "again"]).exits(1);
    again.says_all(&["nothing to import", told]);
    let alone = project.berth(&cloud, &["import", "CivoVpc/hidden", &hidden]).exits(1);
    alone.says("cannot be described as a manifest");
    assert_eq!(cloud.shape(), before, "import changed the cloud");
}
