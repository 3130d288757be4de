//! Workers and servers that do not fit together: of another version, or simulated where the other is real.

use crate::harness::*;
use berth_server::pb;
use berth_server::worker::PROTOCOL;
use std::time::{Duration, Instant};

const NETWORK: &str =
    "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net}\nspec: {networkName: net, region: fra1}\n";

fn until_ended(process: &mut Process) -> String {
    let until = Instant::now() + Duration::from_secs(30);
    while process.is_running() {
        assert!(Instant::now() < until, "it goes on: {}", process.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    process.log()
}

/// No task of a simulated server reaches a worker with real credentials, nor the other way round; a worker of its like
/// works on the server's own clouds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_server_and_a_real_worker_never_work_together() {
    let mut simulated = Plane::start(Setup { workers: 0, sandbox: true, ..Setup::default() }).await;
    simulated.worker_token().await;
    simulated.apply(NETWORK).await;
    simulated.add_worker("real", &[]);
    let said = until_ended(&mut simulated.workers[0]);
    assert!(said.contains("this server works on simulated clouds") && said.contains("--sandbox"), "{said}");
    assert!(simulated.names("civo.network").is_empty(), "the worker's own cloud has something in it");
    simulated.add_worker("simulated", &["--sandbox"]);
    simulated.until_ready().await;
    assert!(simulated.names("civo.network").is_empty(), "it was made in the worker's own cloud");

    let mut real = Plane::start(Setup { workers: 0, ..Setup::default() }).await;
    real.worker_token().await;
    real.apply(NETWORK).await;
    real.add_worker("simulated", &["--sandbox"]);
    let said = until_ended(&mut real.workers[0]);
    assert!(said.contains("this server works on real clouds") && said.contains("without --sandbox"), "{said}");
    assert_eq!(real.list(0).await.unwrap()[0].state, "Pending");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_from_before_the_protocol_had_a_number_is_told_to_upgrade() {
    let plane = Plane::start(Setup { workers: 0, ..Setup::default() }).await;
    plane.worker_token().await;
    plane.apply(NETWORK).await;
    let client = plane.client_as(&std::fs::read_to_string(plane.folder.path().join("worker.token")).unwrap()).await;
    let recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p".to_owned();
    let old = pb::LeaseRequest { worker: "old".into(), changes: 1, recipient, wait_seconds: 1, ..Default::default() };
    let status = client.worker().lease(old.clone()).await.unwrap_err();
    let fault = client.fault(&status);
    // What a worker of any version ends on, with what it prints.
    assert_eq!(fault.code, berth_server::Code::InvalidArgument);
    assert!(fault.message.contains("older version") && fault.help[0].contains("upgrade the worker"), "{fault:?}");
    let new = pb::LeaseRequest { protocol: PROTOCOL, ..old };
    let answer = client.worker().lease(new).await.unwrap().into_inner();
    assert_eq!((answer.protocol, answer.tasks.len(), answer.simulated), (PROTOCOL, 1, None));
}
