//! Every long operation can be interrupted and gone on with; whoever comes second is told who was first.

use crate::declared::manifests;
use crate::harness::Project;
use crate::kill_cases::{CIVO, civo_pool, net};
use crate::support::cloud::Cloud;
use crate::support::ran::Running;
use crate::support::until;
use berth_sandbox::{Config, Speed};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// A cluster takes three to four seconds.
const SLOW: Speed = Speed::Times(30.0);
/// An interrupted command ends long before the cluster is there.
const PROMPT: Duration = Duration::from_secs(2);

fn shop() -> String {
    [net("net-a", "fra1", ""), CIVO.text(), civo_pool("g4s.kube.large", 1, "")].join("---\n")
}

fn slow() -> Cloud {
    Cloud::start(Config { speed: SLOW, ..Config::default() })
}

/// An apply that has begun to build the cluster.
fn building(project: &Project, cloud: &Cloud) -> Running {
    let running = project.start(cloud, &["apply", "-f", "shop.yaml", "--yes"]);
    until("the cluster to be begun", || !cloud.objects("civo.cluster").is_empty());
    running
}

fn interrupted_by(signal: Signal) {
    let (project, cloud) = (Project::with(&[("shop.yaml", &shop())]), slow());
    let running = building(&project, &cloud);
    std::thread::sleep(Duration::from_millis(50));
    let asked = Instant::now();
    running.signal(signal);
    let ran = running.finish().exits(1).says_all(&[
        "stopping after the call in flight",
        "interrupted:",
        "CivoKubernetesCluster/shop",
        "Run the same command to go on.",
    ]);
    assert!(asked.elapsed() < PROMPT, "not promptly: {:?}\n{ran}", asked.elapsed());
    // What was begun is in the state: the network is Ready, nothing is made twice, nothing is open.
    let states = project.berth(&cloud, &["get", "-o", "json"]).ok().json();
    let state = |kind: &str| states.as_array().into_iter().flatten().find(|r| r["kind"] == kind).cloned();
    assert_eq!(state("CivoVpc").expect("the network")["status"]["state"], "Ready", "{states:#}");
    project.berth(&cloud, &["history", "--open"]).ok().says("nothing is open");
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).ok();
    cloud.holds(&manifests(&shop()));
    project.berth(&cloud, &["plan", "-f", "shop.yaml", "--detailed-exitcode"]).ok();
}

#[test]
fn ctrl_c_ends_promptly_and_the_same_command_goes_on() {
    interrupted_by(Signal::INT);
}

#[test]
fn sigterm_does_the_same() {
    interrupted_by(Signal::TERM);
}

#[test]
fn a_delete_is_interrupted_and_gone_on_with_too() {
    let (project, cloud) = (Project::with(&[("shop.yaml", &shop())]), slow());
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).ok();
    let args = [
        "delete",
        "CivoKubernetesNodePool/batch",
        "CivoKubernetesCluster/shop",
        "CivoVpc/net",
        "--yes",
        "--allow-delete",
    ];
    let running = project.start(&cloud, &args);
    until("the cluster to be going", || cloud.objects("civo.cluster").iter().any(|c| c["status"] == "DELETING"));
    running.signal(Signal::INT);
    running.finish().exits(1).says_all(&["interrupted:", "Run the same command to go on."]);
    project.berth(&cloud, &args).ok();
    cloud.is_empty();
}

#[test]
fn two_at_once_are_told_of_each_other() {
    let (project, cloud) = (Project::with(&[("shop.yaml", &shop())]), slow());
    let first = building(&project, &cloud);
    let pid = first.pid().to_string();
    let second = project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).exits(1);
    second.says_all(&[&format!("process {pid}"), "apply"]);
    // Looking is always allowed.
    project.berth(&cloud, &["get"]).ok();
    first.finish().ok();
    cloud.holds(&manifests(&shop()));
}

#[test]
fn what_nobody_waits_for_is_waited_for_later() {
    let (project, cloud) = (Project::with(&[("shop.yaml", &shop())]), slow());
    project.write("cluster.yaml", &[net("net-a", "fra1", ""), CIVO.text()].join("---\n"));
    let begun = project.berth(&cloud, &["apply", "-f", "cluster.yaml", "--yes", "--no-wait"]).ok();
    assert_ne!(cloud.objects("civo.cluster")[0]["status"], "ACTIVE", "it waited\n{begun}");
    begun.says_all(&["begun", "berth wait"]);
    let states = project.berth(&cloud, &["get", "CivoKubernetesCluster", "-o", "json"]).ok().json();
    assert_ne!(states[0]["status"]["state"], "Ready", "{states:#}");
    project.berth(&cloud, &["wait", "--all"]).ok();
    let states = project.berth(&cloud, &["get", "-o", "json"]).ok().json();
    for resource in states.as_array().expect("a list") {
        assert_eq!(resource["status"]["state"], "Ready", "{states:#}");
    }
    project.berth(&cloud, &["plan", "-f", "cluster.yaml", "--detailed-exitcode"]).ok();
    cloud.holds(&manifests(&[net("net-a", "fra1", ""), CIVO.text()].join("---\n")));
}

#[test]
fn a_timed_out_create_is_adopted_by_the_next_apply() {
    let (project, cloud) = (Project::with(&[("shop.yaml", &shop())]), Cloud::instant());
    cloud.faults(&["POST /v2/kubernetes/clusters stuck"]);
    let ran = project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes", "--timeout", "1s"]).exits(1);
    let id = cloud.id("civo.cluster", "shop-k8s");
    ran.says_all(&[
        "CivoKubernetesCluster/shop",
        "still building",
        &id,
        "after 1s",
        "= help:",
        "run the same command again",
    ]);
    assert_eq!(cloud.objects("civo.cluster").len(), 1);
    // It is the same cluster that is waited for again.
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes", "--timeout", "1s"]).exits(1).says(&id);
    assert_eq!(cloud.objects("civo.cluster").len(), 1);
    cloud.faults(&[]);
    // A cluster that is stuck stays stuck: its owner takes it away, and the next apply makes another.
    let path = format!("/v2/kubernetes/clusters/{id}?region=FRA1");
    cloud.call(berth_sandbox::civo::NAME, "DELETE", &path, None);
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).ok();
    cloud.holds(&manifests(&shop()));
}

#[test]
fn a_slow_create_that_timed_out_is_adopted() {
    let (project, cloud) = (Project::with(&[("shop.yaml", &shop())]), slow());
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes", "--timeout", "1s"]).exits(1).says("still");
    let id = cloud.id("civo.cluster", "shop-k8s");
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).ok();
    assert_eq!(cloud.id("civo.cluster", "shop-k8s"), id, "it is another one");
    cloud.holds(&manifests(&shop()));
}

#[test]
fn a_resources_own_timeout_goes_before_the_option() {
    let own = CIVO.text().replace("{name: shop}", "{name: shop, annotations: {berth.dev/timeout: 10m}}");
    let text = [net("net-a", "fra1", ""), own].join("---\n");
    let (project, cloud) = (Project::with(&[("own.yaml", &text)]), slow());
    let ran = project.berth(&cloud, &["apply", "-f", "own.yaml", "--yes", "--timeout", "1s"]).ok();
    assert!(ran.took > Duration::from_secs(1), "too fast to tell\n{ran}");
    cloud.holds(&manifests(&text));
}
