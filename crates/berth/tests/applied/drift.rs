//! The three cases: nodes scaled by hand, version upgraded outside, cluster deleted outside. Each found, each put back or kept.

use crate::project::{BLOG, Project, SHOP};
use crate::shows;
use crate::support::ran::run;
use serde_json::json;

fn shop() -> (Project, String) {
    let project = Project::applied(&[("shop.yaml", SHOP)]);
    let id = project.output("civokubernetescluster/shop", "cluster_id");
    (project, id)
}

fn plan_is_empty(project: &Project) {
    let run = project.berth(&["plan", "-f", ".", "--detailed-exitcode"]);
    assert_eq!(run.code, Some(0), "{run}");
}

#[test]
fn no_drift_is_quiet() {
    let (project, _) = shop();
    shows!("drift_none", project.berth(&["drift"]).ok());
    let value = project.json(&["drift", "-o", "json"]);
    assert_eq!((&value["checked"], &value["drifted"]), (&json!(3), &json!([])));
}

#[test]
fn nodes_scaled_by_hand_are_put_back() {
    let (project, id) = shop();
    project.scale(&id, 5);
    shows!("drift_scaled", project.berth(&["drift"]).exits(2));
    shows!("drift_scaled_get", project.berth(&["get", "civokubernetesclusters"]).ok());
    assert_eq!(project.berth(&["drift", "-o", "name"]).exits(2).stdout, "CivoKubernetesCluster/shop\n");
    let other = project.berth(&["drift", "civovpcs"]).ok();
    assert!(other.stdout.starts_with("0 of 1 resource drifted"), "{other}");
    project.berth(&["apply", "CivoKubernetesCluster/shop", "--yes"]).ok();
    let shown = project.civo("GET", &format!("kubernetes/clusters/{id}"), None);
    assert_eq!(shown["pools"][0]["count"], 3, "{shown}");
    project.berth(&["drift"]).ok();
    assert!(!project.berth(&["get"]).ok().stdout.contains("→"), "the finding no longer holds");
}

#[test]
fn a_finding_that_went_away_by_itself_is_forgotten() {
    let (project, id) = shop();
    project.scale(&id, 5);
    project.berth(&["drift"]).exits(2);
    assert!(project.berth(&["get"]).ok().stdout.contains("3 → 5"));
    project.scale(&id, 3);
    project.berth(&["drift"]).ok();
    assert!(!project.berth(&["get"]).ok().stdout.contains("→"));
    let told: Vec<String> = project
        .json(&["history", "CivoKubernetesCluster/shop", "-o", "json"])
        .as_array()
        .expect("a list")
        .iter()
        .filter(|line| line["outcome"] == "event")
        .map(|line| line["what"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(told, ["drift ended", "drift found", "Ready"]);
}

#[test]
fn nodes_scaled_by_hand_are_accepted() {
    let (project, id) = shop();
    project.scale(&id, 5);
    shows!("drift_accept_scaled", project.berth(&["drift", "--accept", "CivoKubernetesCluster/shop"]).ok());
    assert_eq!(project.read("shop.yaml"), SHOP.replace("nodeCount: 3 # one", "nodeCount: 5 # one"));
    plan_is_empty(&project);
    project.berth(&["drift"]).ok();
    let one = project.json(&["get", "CivoKubernetesCluster/shop", "-o", "json"]);
    assert_eq!(one["spec"]["defaultNodePool"]["nodeCount"], 5);
    assert_eq!((&one["status"]["ready"], &one["status"]["facts"]["nodes"]), (&json!(true), &json!(6)));
    assert_eq!(one["status"]["observedGeneration"], 2);
    assert_eq!(one["status"]["source"]["file"], "./shop.yaml");
    assert_eq!(one["status"]["secretOutputs"], json!(["kubeconfig_b64"]), "secrets stay");
}

#[test]
fn an_additional_pool_is_accepted_where_it_stands() {
    let (project, id) = shop();
    let shown = project.civo("GET", &format!("kubernetes/clusters/{id}"), None);
    let pools = shown["pools"].as_array().expect("pools");
    let gpu = pools.iter().find(|pool| pool["id"].as_str().is_some_and(|id| id.contains("gpu"))).expect("the pool");
    let path = format!("kubernetes/clusters/{id}/pools/{}", gpu["id"].as_str().expect("an id"));
    project.civo("PUT", &path, Some(json!({"count": 4, "region": "FRA1"})));
    shows!("drift_accept_pool", project.berth(&["drift", "--accept"]).ok());
    let text = project.read("shop.yaml");
    assert!(text.contains("    - name: gpu\n      size: g4s.kube.large\n      nodeCount: 4\n"), "{text}");
    plan_is_empty(&project);
}

#[test]
fn a_version_upgraded_outside_is_refused_backwards_and_accepted() {
    let (project, id) = shop();
    let body = json!({"kubernetes_version": "1.31.2-k3s1", "region": "FRA1"});
    project.civo("PUT", &format!("kubernetes/clusters/{id}"), Some(body));
    shows!("drift_upgraded", project.berth(&["drift"]).exits(2));
    project.berth(&["apply", "CivoKubernetesCluster/shop", "--yes"]).exits(1);
    project.berth(&["drift", "--accept"]).ok();
    assert_eq!(project.read("shop.yaml"), SHOP.replace("1.30.5-k3s1 # tested", "1.31.2-k3s1 # tested"));
    plan_is_empty(&project);
}

#[test]
fn a_cluster_deleted_outside_is_made_again() {
    let project = Project::applied(&[("shop.yaml", SHOP), ("blog.yaml", BLOG)]);
    let blog = project.output("digitaloceankubernetescluster/blog", "cluster_id");
    let shop = project.output("civokubernetescluster/shop", "cluster_id");
    project.digitalocean("DELETE", &format!("kubernetes/clusters/{blog}"), None);
    project.scale(&shop, 5);
    shows!("drift_deleted", project.berth(&["drift"]).exits(2));
    shows!(
        "drift_accept_deleted",
        project.berth(&["drift", "--accept", "digitaloceankubernetescluster/blog"]).exits(2)
    );
    project.berth(&["apply", "-f", ".", "--yes"]).ok();
    project.berth(&["drift"]).ok();
    assert_ne!(project.output("digitaloceankubernetescluster/blog", "cluster_id"), blog);
}

#[test]
fn other_edits_in_the_file_are_not_taken_for_applied() {
    let (project, id) = shop();
    let edited = SHOP.replace("nodePoolName: batch", "nodePoolName: batch2").replace("tier: web", "tier: api");
    project.write("shop.yaml", &edited);
    project.scale(&id, 5);
    project.berth(&["drift", "--accept"]).ok();
    let one = project.json(&["get", "CivoKubernetesCluster/shop", "-o", "json"]);
    assert_eq!(one["spec"]["defaultNodePool"]["nodeCount"], 5);
    assert_eq!(one["metadata"]["labels"]["tier"], "web");
    assert_eq!(project.read("shop.yaml"), edited.replace("nodeCount: 3 # one", "nodeCount: 5 # one"));
}

#[test]
fn what_cannot_be_accepted_says_what_to_do() {
    let (project, id) = shop();
    project.scale(&id, 5);
    std::fs::remove_file(project.path().join("shop.yaml")).expect("removed");
    shows!("drift_accept_no_file", project.berth(&["drift", "--accept"]).exits(2));
    project.write("shop.yaml", "# moved elsewhere\n");
    shows!("drift_accept_moved", project.berth(&["drift", "--accept"]).exits(2));
    project.write("shop.yaml", SHOP);
    let body = json!({"tags": "by-hand", "region": "FRA1"});
    project.civo("PUT", &format!("kubernetes/clusters/{id}"), Some(body));
    shows!("drift_accept_some", project.berth(&["drift", "--accept"]).exits(2));
    assert!(project.read("shop.yaml").contains("nodeCount: 5 # one"));
}

#[test]
fn clouds_that_cannot_be_asked_are_a_failure_not_drift() {
    let (project, _) = shop();
    let ran = run(project.command(&["drift"]).env_remove("CIVO_TOKEN")).exits(1);
    assert!(ran.stderr.contains("could not be checked") && ran.stderr.contains("CIVO_TOKEN"), "{ran}");
}
