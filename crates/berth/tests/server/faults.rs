//! Whatever dies, nothing is lost and nothing is made twice.

use crate::harness::*;
use berth_server::pb;
use std::time::{Duration, Instant};

/// Waits until a worker holds a task.
async fn until_running(plane: &Plane) -> pb::Task {
    let until = Instant::now() + LONGEST;
    loop {
        let running = plane.tasks(pb::ListTasksRequest { state: "running".into(), ..Default::default() }).await;
        if let Some(task) = running.into_iter().next() {
            return task;
        }
        assert!(Instant::now() < until, "no task is running: {}", plane.told());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A call to make something is on its way, and the cloud has it.
async fn until_asked(plane: &Plane) {
    let until = Instant::now() + LONGEST;
    while plane.sandbox.world().traffic(berth_sandbox::civo::NAME).held() == 0 {
        assert!(Instant::now() < until, "nothing was asked for: {}", plane.told());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_workers_task_is_taken_over_and_nothing_is_made_twice() {
    let mut plane = Plane::start(Setup { lease: "3s", ..Setup::default() }).await;
    plane.account().await;
    plane.until_ready().await;
    let before = plane.made("civo.network");
    // Made, and never answered: whoever comes next has to find it.
    plane.faults(&["POST /v2/networks hold-after times=1"]);
    plane.apply(&pair(1, "web")).await;
    until_asked(&plane).await;
    plane.workers[0].kill();
    plane.faults(&[]);
    plane.add_worker("w-next", &[]);
    plane.until_ready().await;
    assert_eq!(plane.made("civo.network") - before, 1, "{}", plane.told());
    assert_eq!(
        (plane.names("civo.network"), plane.names("civo.firewall")),
        (vec!["net-1".into()], vec!["fw-1".into()])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_froze_past_its_lease_does_no_harm() {
    let mut plane = Plane::start(Setup { lease: "2s", ..Setup::default() }).await;
    plane.account().await;
    plane.until_ready().await;
    plane.faults(&["GET /v2/networks delay=400ms"]);
    let all: Vec<String> = (0..6).map(|n| pair(n, "web")).collect();
    plane.apply(&all.join("---\n")).await;
    until_running(&plane).await;
    plane.workers[0].signal(Signal::STOP);
    plane.add_worker("w-next", &[]);
    plane.until_ready().await;
    plane.workers[0].signal(Signal::CONT);
    plane.faults(&[]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    plane.until_ready().await;
    let names: Vec<String> = (0..6).map(|n| format!("net-{n}")).collect();
    assert_eq!(plane.names("civo.network"), names, "{}", plane.told());
    assert_eq!(plane.names("civo.firewall").len(), 6);
    assert!(plane.workers[0].is_running(), "it goes on working: {}", plane.workers[0].log());
    // It takes part again.
    plane.workers[1].kill();
    plane.apply(&pair(7, "web")).await;
    plane.until_ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back_loses_nothing() {
    let mut plane = Plane::start(Setup { lease: "4s", ..Setup::default() }).await;
    plane.account().await;
    let before = plane.made("civo.network");
    plane.faults(&["POST /v2/networks delay=500ms"]);
    let all: Vec<String> = (0..6).map(|n| pair(n, "web")).collect();
    plane.apply(&all.join("---\n")).await;
    until_running(&plane).await;
    plane.servers[0].kill();
    tokio::time::sleep(Duration::from_millis(700)).await;
    plane.servers[0].start_again();
    plane.until_ready().await;
    assert_eq!((plane.names("civo.network").len(), plane.names("civo.firewall").len()), (6, 6));
    assert_eq!(plane.made("civo.network") - before, 6, "none was made twice: {}", plane.told());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_stops_after_its_call_and_can_be_gone_on_with() {
    let mut cloud = Setup::default();
    cloud.cloud.speed = Speed::Times(1.0);
    let plane = Plane::start(Setup { lease: "2s", ..cloud }).await;
    plane.account().await;
    let cluster = "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {name: slow}\nspec: {clusterName: \
        slow, region: fra1, kubernetesVersion: 1.30.5-k3s1, account: civo, network: net, defaultNodePool: {size: \
        g4s.kube.small, nodeCount: 1}}\n";
    let net = "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net}\nspec: {networkName: net, region: fra1, \
        account: civo}\n";
    plane.apply(&format!("{net}---\n{}", cluster.replace("network: net", "network: {valueFrom: {name: net}}"))).await;
    let until = Instant::now() + LONGEST;
    let task = loop {
        let running = plane.tasks(pb::ListTasksRequest { state: "running".into(), ..Default::default() }).await;
        let building = running.into_iter().find(|t| t.resource.as_ref().is_some_and(|r| r.name == "slow"));
        if let Some(task) = building.filter(|_| plane.made("civo.cluster") == 1) {
            break task;
        }
        assert!(Instant::now() < until, "{}", plane.told());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let cancel = pb::CancelTaskRequest { id: task.id.clone() };
    plane.client(0).await.tasks().cancel(cancel).await.expect("it is cancelled");
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let now = plane.client(0).await.tasks().get(pb::GetTaskRequest { id: task.id.clone() }).await.unwrap();
        if now.get_ref().state == "cancelled" {
            break;
        }
        assert!(Instant::now() < until, "{now:?} {}", plane.told());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(plane.made("civo.cluster"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_worker_gives_back_what_it_cannot_end() {
    // Before the lease would have ended, however busy the machine is.
    const WELL_BEFORE: Duration = Duration::from_secs(45);
    let mut cloud = Setup::default();
    cloud.cloud.speed = Speed::Times(6.0);
    let mut plane = Plane::start(Setup { workers: 0, lease: "60s", ..cloud }).await;
    let request = pb::CreateTokenRequest { name: "w".into(), role: "worker".into(), ..Default::default() };
    let made = plane.client(0).await.access().create_token(request).await.unwrap().into_inner();
    std::fs::write(plane.folder.path().join("worker.token"), made.secret).unwrap();
    plane.add_worker("w0", &["--drain-timeout", "1s"]);
    plane.account().await;
    plane
        .apply(
            "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net}\nspec: {networkName: net, region: fra1, \
             account: civo}\n---\napiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {name: slow}\nspec: \
             {clusterName: slow, region: fra1, kubernetesVersion: 1.30.5-k3s1, account: civo, network: {valueFrom: {name: \
             net}}, defaultNodePool: {size: g4s.kube.small, nodeCount: 1}}\n",
        )
        .await;
    let until = Instant::now() + LONGEST;
    while plane.made("civo.cluster") == 0 {
        assert!(Instant::now() < until, "{}", plane.told());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let began = Instant::now();
    assert!(plane.workers[0].stop(WELL_BEFORE), "it ends: {}", plane.workers[0].log());
    plane.add_worker("w1", &[]);
    let task = until_running(&plane).await;
    assert!(began.elapsed() < WELL_BEFORE && task.worker == "w1", "{task:?}");
    plane.until_ready().await;
    assert_eq!(plane.made("civo.cluster"), 1);
    assert_eq!(std::fs::read_dir(plane.folder.path().join("work/worker-w1")).unwrap().count(), 1, "only its lock");
}
