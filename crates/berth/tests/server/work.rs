//! What users see: applied, updated, deleted in order, compared, repaired.

use crate::harness::*;
use berth_server::pb;
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../../../examples/civo/dev.yaml");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_become_ready_change_and_go_in_the_order_of_their_references() {
    let plane = Plane::start(Setup { workers: 2, ..Setup::default() }).await;
    plane.apply(EXAMPLE).await;
    plane.until_ready().await;
    assert_eq!(plane.names("civo.network"), ["dev-net"], "{}", plane.told());
    assert_eq!(plane.objects("civo.cluster").len(), 1);
    let cluster = plane.get("CivoKubernetesCluster", "dev", "dev").await.unwrap();
    assert!(cluster.secret_outputs.iter().any(|name| name.contains("kubeconfig")), "{:?}", cluster.secret_outputs);

    let bigger =
        EXAMPLE.replace("    size: g4s.kube.small\n    nodeCount: 1", "    size: g4s.kube.small\n    nodeCount: 3");
    assert_ne!(bigger, EXAMPLE);
    plane.apply(&bigger).await;
    plane.until_ready().await;
    assert_eq!(plane.made("civo.cluster"), 1, "changed in place");

    let refused = plane.delete("CivoVpc", "dev-net", "dev", false).await.expect_err("others refer to it");
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
    let going = plane.delete("CivoVpc", "dev-net", "dev", true).await.unwrap();
    assert_eq!(going, 4);
    plane.until("gone", LONGEST, |all| all.is_empty()).await;
    assert!(plane.names("civo.network").is_empty() && plane.objects("civo.cluster").is_empty());
    for process in plane.servers.iter().chain(&plane.workers) {
        assert!(!process.log().contains(CLOUD_TOKEN), "{} shows a token", process.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_fails_holds_its_children_until_it_is_mended() {
    let plane = Plane::start(Setup::default()).await;
    plane.account().await;
    plane.faults(&["POST /v2/networks 500"]);
    plane.apply(&pair(1, "web")).await;
    plane
        .until("failed once", LONGEST, |all| {
            all.iter().any(|r| kind(r) == "CivoVpc" && r.state == "Failed")
                && all
                    .iter()
                    .any(|r| kind(r) == "CivoFirewall" && r.state == "Pending" && r.message.contains("waits for"))
        })
        .await;
    plane.faults(&[]);
    plane.until_ready().await;
    assert_eq!((plane.names("civo.network").len(), plane.names("civo.firewall").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_told_and_repaired_where_that_is_wanted() {
    let plane = Plane::start(Setup::default()).await;
    plane.account().await;
    plane.apply(&pair(1, "web")).await;
    let repaired = pair(2, "web").replace("name: fw-2}", "name: fw-2, annotations: {berth.dev/drift-policy: repair}}");
    plane.apply(&repaired).await;
    plane.until_ready().await;
    for name in ["fw-1", "fw-2"] {
        let firewall = plane.objects("civo.firewall").into_iter().find(|o| o["name"] == name).unwrap();
        let url = format!(
            "{}/v2/firewalls/{}?region=FRA1",
            plane.sandbox.url(berth_sandbox::civo::NAME),
            firewall["id"].as_str().unwrap()
        );
        let request = reqwest::Client::builder().no_proxy().build().unwrap().delete(url).bearer_auth(CLOUD_TOKEN);
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }
    let client = plane.client(0).await;
    let found = client.resources().drift(pb::DriftRequest::default()).await.expect("a check").into_inner();
    assert_eq!(found.drifted.len(), 2, "{found:?}");
    // Whoever wants repair gets it; the other one is told of.
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while plane.names("civo.firewall") != ["fw-2"] {
        assert!(std::time::Instant::now() < until, "not repaired: {:?} {}", plane.names("civo.firewall"), plane.told());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let told = plane.get("CivoFirewall", "fw-1", "").await.unwrap();
    assert_eq!(told.drift.len(), 1, "{told:?}");
    assert_eq!(told.state, "Ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accounts_limit_holds_over_all_workers_and_it_stays_while_it_is_used() {
    let plane = Plane::start(Setup { workers: 2, ..Setup::default() }).await;
    let account = format!(
        "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: civo}}\nspec:\n  provider: civo\n  \
         maxConcurrentTasks: 2\n  requestsPerSecond: 10000\n  civo: {{token: {{value: {CLOUD_TOKEN}}}, region: fra1}}\n"
    );
    plane.apply(&account).await;
    plane.until_ready().await;
    plane.faults(&["POST /v2/networks delay=300ms"]);
    let all: Vec<String> = (0..12).map(|n| pair(n, "web")).collect();
    plane.apply(&all.join("---\n")).await;
    let (mut most, until) = (0, std::time::Instant::now() + LONGEST);
    loop {
        let running = plane.tasks(pb::ListTasksRequest { state: "running".into(), ..Default::default() }).await;
        most = most.max(running.len());
        let ready = plane.list(0).await.unwrap().iter().filter(|r| r.state == "Ready").count();
        if ready == 25 {
            break;
        }
        assert!(std::time::Instant::now() < until, "{ready} of 25 ready: {}", plane.told());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!((1..=2).contains(&most), "{most} at once");
    let refused = plane.delete("Account", "civo", "", false).await.expect_err("it is in use");
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_changes_nothing_and_says_what_would_be() {
    let plane = Plane::start(Setup::default()).await;
    plane.account().await;
    let files = vec![pb::ManifestFile { name: "a.yaml".into(), text: pair(1, "web") }];
    let request = pb::PlanRequest { files, ..Default::default() };
    let plan = plane.client(0).await.resources().plan(request).await.expect("a plan").into_inner();
    assert!(plan.problems.is_empty() && !plan.digest.is_empty(), "{plan:?}");
    assert_eq!(plan.bases.len(), 2);
    assert!(plane.names("civo.network").is_empty());
    assert_eq!(plane.list(0).await.unwrap().len(), 1, "only the account");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_no_longer_says_so_once_its_parent_is_ready() {
    let plane = Plane::start(Setup::default()).await;
    plane.account().await;
    plane.faults(&["POST /v2/networks delay=1s", "POST /v2/firewalls delay=6s"]);
    plane.apply(&pair(1, "web")).await;
    let waits = |r: &pb::Resource| kind(r) == "CivoFirewall" && r.message.contains("waits for");
    plane.until("waiting", LONGEST, |all| all.iter().any(waits)).await;
    let net = |r: &pb::Resource| kind(r) == "CivoVpc" && r.state == "Ready";
    plane.until("the network is there", LONGEST, |all| all.iter().any(net)).await;
    plane
        .until("begun, and waiting no more", Duration::from_secs(5), |all| {
            let firewall = all.iter().find(|r| kind(r) == "CivoFirewall");
            firewall.is_some_and(|r| r.state == "Pending" && r.message.is_empty())
        })
        .await;
    plane.until_ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_left_is_not_listed() {
    let mut plane = Plane::start(Setup { workers: 2, ..Setup::default() }).await;
    let listed = async |plane: &Plane| -> Vec<String> {
        let answer = plane.client(0).await.tasks().workers(pb::ListWorkersRequest {}).await.unwrap().into_inner();
        answer.workers.into_iter().map(|worker| worker.name).collect()
    };
    let until = std::time::Instant::now() + LONGEST;
    while listed(&plane).await != ["w0", "w1"] {
        assert!(std::time::Instant::now() < until, "{}", plane.told());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(plane.workers[1].stop(LONGEST));
    assert_eq!(listed(&plane).await, ["w0"], "{}", plane.told());
}
