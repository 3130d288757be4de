//! Commands that read the state: get, describe, outputs, kubeconfig, history, wait, refresh.

use crate::project::{BLOG, Project, SHOP, clean};
use crate::shows;
use base64::Engine;
use berth_sandbox::Speed;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

#[test]
fn looking_around() {
    let project = Project::applied(&[("shop.yaml", SHOP), ("blog.yaml", BLOG)]);
    shows!("get_all", project.berth(&["get"]).ok());
    shows!("get_wide", project.berth(&["get", "civokubernetesclusters", "-o", "wide"]).ok());
    shows!("get_env", project.berth(&["get", "--env", "staging", "-o", "name"]).ok());
    shows!("get_label", project.berth(&["get", "-l", "team=shop", "-l", "tier=web", "-o", "name"]).ok());
    shows!("get_missing", project.berth(&["get", "civovpc/shop-nett"]).exits(1));
    shows!("get_none", project.berth(&["get", "accounts"]).ok());
    shows!("describe_cluster", project.berth(&["describe", "civokubernetescluster/shop"]).ok());
    shows!("history_one", project.berth(&["history", "CivoKubernetesCluster/shop"]).ok());
    shows!("history_open", project.berth(&["history", "--open"]).ok());

    let all = project.json(&["get", "-o", "json"]);
    assert_eq!(all.as_array().expect("a list").len(), 5);
    let one = project.json(&["get", "CivoKubernetesCluster/shop", "-o", "json"]);
    assert_eq!(one["spec"]["defaultNodePool"]["nodeCount"], 3);
    assert_eq!(one["status"]["state"], "Ready");
    assert_eq!(one["status"]["observedGeneration"], 1);
    assert_eq!(one["status"]["secretOutputs"], json!(["kubeconfig_b64"]));
    assert!(one["status"]["outputs"]["cluster_id"].is_string(), "{one}");
    assert!(one["status"]["outputs"].get("kubeconfig_b64").is_none(), "{one}");
    let lines = project.json(&["history", "-o", "json", "--limit", "100"]);
    let lines = lines.as_array().expect("a list");
    assert!(lines.iter().any(|line| line["op"] == "create" && line["unit"] == "pool/gpu" && line["outcome"] == "done"));
}

#[test]
fn an_accounts_token_is_never_shown() {
    let account = "apiVersion: berth.dev/v1\nkind: Account\nmetadata: {name: civo}\nspec:\n  provider: civo\n  civo: {token: {value: hush-hush-token}, region: fra1}\n";
    let account = match berth_model::registry().kind("Account") {
        Some(kind) => account.replace("berth.dev/v1", &kind.api_version),
        None => panic!("there is no Account"),
    };
    let project = Project::new(&[]);
    let url = &project.cloud.civo_url;
    project.write("account.yaml", &account.replace("region: fra1", &format!("region: fra1, apiUrl: '{url}'")));
    project.berth(&["apply", "-f", "account.yaml", "--yes"]).ok();
    for args in [
        &["get", "account/civo", "-o", "yaml"][..],
        &["describe", "account/civo"],
        &["get", "-o", "json"],
        &["history"],
    ] {
        let run = project.berth(args).ok();
        assert!(!run.stdout.contains("hush") && !run.stderr.contains("hush"), "{run}");
        assert!(args[0] == "history" || run.stdout.contains("(secret)"), "{run}");
    }
}

#[test]
fn outputs_are_for_shells_and_secrets_are_asked_for() {
    let project = Project::applied(&[("shop.yaml", SHOP)]);
    shows!("outputs_table", project.berth(&["outputs", "civokubernetescluster/shop"]).ok());
    shows!("outputs_secret", project.berth(&["outputs", "civokubernetescluster/shop", "kubeconfig_b64"]).exits(1));
    shows!("outputs_unknown", project.berth(&["outputs", "civokubernetescluster/shop", "cluster-id"]).exits(1));
    shows!("outputs_kind_alone", project.berth(&["outputs", "civokubernetescluster"]).exits(1));
    let id = project.output("civokubernetescluster/shop", "cluster_id");
    assert_eq!(clean(&id), "[ID]\n");
    assert_eq!(project.output("civokubernetescluster/shop", "clusterId"), id);
    let secret = project.berth(&["outputs", "civokubernetescluster/shop", "kubeconfig_b64", "--show-secrets"]).ok();
    let decoded = base64::engine::general_purpose::STANDARD.decode(secret.stdout.trim()).expect("base64");
    assert!(String::from_utf8(decoded).expect("text").contains("current-context"));
    let all = project.json(&["outputs", "civokubernetescluster/shop", "-o", "json"]);
    assert_eq!(all["kubeconfig_b64"], "(secret)");
}

#[test]
fn a_kubeconfig_is_printed_written_and_merged() {
    let project = Project::applied(&[("shop.yaml", SHOP), ("blog.yaml", BLOG)]);
    let printed = project.berth(&["kubeconfig", "civokubernetescluster/shop"]).ok();
    assert!(printed.stdout.contains("certificate-authority-data") && printed.stderr.is_empty(), "{printed}");
    project.berth(&["kubeconfig", "civokubernetescluster/shop", "--out", "shop.kubeconfig"]).ok();
    assert_eq!(project.read("shop.kubeconfig"), printed.stdout);
    let mode = |name: &str| std::fs::metadata(project.path().join(name)).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode("shop.kubeconfig"), 0o600);

    shows!("kubeconfig_merge", project.berth(&["kubeconfig", "civokubernetescluster/shop", "--merge"]).ok());
    assert_eq!(mode(".kube/config"), 0o600);
    assert!(!project.path().join(".kube/config.bak").exists(), "there was nothing of others");
    let first = project.read(".kube/config");
    project.berth(&["kubeconfig", "civokubernetescluster/shop", "--merge"]).ok();
    assert_eq!(project.read(".kube/config"), first, "a second merge changes nothing");
    project.berth(&["kubeconfig", "digitaloceankubernetescluster/blog", "--merge"]).ok();
    let both = project.read(".kube/config");
    assert!(both.contains("name: shop\n") && both.contains("current-context: staging-blog\n"), "{both}");
    assert!(!project.path().join(".kube/config.lock").exists());

    let mine = "apiVersion: v1\nkind: Config\nclusters:\n- name: shop # by hand\n  cluster: {server: https://mine}\ncurrent-context: x\n";
    project.write("mine", mine);
    let merge = ["kubeconfig", "civokubernetescluster/shop", "--merge", "--kubeconfig", "mine"];
    shows!("kubeconfig_taken", project.berth(&merge).exits(1));
    assert_eq!(project.read("mine"), mine);
    let named = [&merge[..], &["--context", "shop-two"]].concat();
    project.berth(&named).ok();
    assert!(project.read("mine").contains("- name: shop # by hand\n"));
    assert_eq!(project.read("mine.bak"), mine, "the current context was somebody else's");
    project.berth(&[&merge[..], &["--force"]].concat()).ok();
    assert!(!project.read("mine").contains("by hand"));

    shows!("kubeconfig_of_a_pool", project.berth(&["kubeconfig", "civokubernetesnodepool/shop-batch"]).exits(1));
    shows!("kubeconfig_of_a_network", project.berth(&["kubeconfig", "civovpc/shop-net"]).exits(1));
}

#[test]
fn what_was_begun_is_waited_for() {
    // Slow enough that it is not ready when the first command ends, fast enough to wait for.
    let project = Project::at(Speed::Times(40.0), &[("shop.yaml", SHOP)]);
    project.berth(&["apply", "-f", "shop.yaml", "--yes", "--no-wait"]).ok();
    let pool = project.json(&["get", "-o", "json"]);
    let unready = pool.as_array().expect("a list").iter().filter(|one| one["status"]["ready"] == false).count();
    assert!(unready > 0, "{pool:#}");
    project.berth(&["wait", "--all", "--timeout", "60s"]).ok();
    let after = project.json(&["get", "-o", "json"]);
    assert!(after.as_array().expect("a list").iter().all(|one| one["status"]["ready"] == true), "{after:#}");
    shows!("wait_nothing", project.berth(&["wait", "--all"]).ok());
    shows!("wait_not_deleting", project.berth(&["wait", "civovpc/shop-net", "--for", "deleted"]).exits(1));
    shows!("wait_gone", project.berth(&["wait", "civovpc/other", "--for", "deleted"]).ok());
    shows!("wait_missing", project.berth(&["wait", "civovpc/other"]).exits(1));
}

#[test]
fn waiting_ends_when_the_time_is_up() {
    let project = Project::at(Speed::Times(1.0), &[("net.yaml", NET), ("cluster.yaml", CLUSTER)]);
    // The network is waited for, since the cluster needs it: some seconds at this speed.
    project.berth(&["apply", "-f", "net.yaml", "-f", "cluster.yaml", "--yes", "--no-wait"]).ok();
    let run = project.berth(&["kubeconfig", "civokubernetescluster/slow"]).exits(1);
    assert!(run.stderr.contains("berth wait CivoKubernetesCluster/slow"), "{run}");
    let run = project.berth(&["wait", "civokubernetescluster/slow", "--timeout", "1s"]).exits(1);
    assert!(run.stderr.contains("is still building"), "{run}");
    let run = project.berth(&["get", "civokubernetescluster/slow"]).ok();
    assert!(run.stdout.contains("failed"), "{run}");
}

const NET: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoVpc
metadata: {name: slow-net}
spec: {networkName: slow-net, region: fra1}
";
const CLUSTER: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoKubernetesCluster
metadata: {name: slow}
spec:
  clusterName: slow
  region: fra1
  kubernetesVersion: 1.30.5-k3s1
  network: {valueFrom: {name: slow-net}}
  defaultNodePool: {size: g4s.kube.medium, nodeCount: 1}
";

#[test]
fn refresh_brings_the_state_up_to_date() {
    let project = Project::applied(&[("shop.yaml", SHOP)]);
    shows!("refresh_nothing", project.berth(&["refresh"]).ok());
    let id = project.output("civokubernetescluster/shop", "cluster_id");
    project.scale(&id, 5);
    shows!("refresh_scaled", project.berth(&["refresh", "civokubernetescluster/shop"]).ok());
    assert_eq!(project.json(&["get", "civokubernetescluster/shop", "-o", "json"])["status"]["facts"]["nodes"], 6);
    // What is declared stays what it was: drift still tells.
    project.berth(&["drift"]).exits(2);
    project.civo("DELETE", &format!("kubernetes/clusters/{id}"), None);
    shows!("refresh_gone", project.berth(&["refresh"]).ok());
    shows!("get_gone", project.berth(&["get", "civokubernetesclusters"]).ok());
    project.berth(&["drift"]).exits(2);
    project.berth(&["apply", "-f", "shop.yaml", "--yes"]).ok();
    project.berth(&["drift"]).ok();
}
