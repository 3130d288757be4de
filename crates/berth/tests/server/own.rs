//! What is a worker's own: its environment's token, for whom it was told.

use crate::harness::*;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workers_own_token_is_for_the_orgs_that_it_was_told() {
    let mut plane = Plane::start(Setup { workers: 0, ..Setup::default() }).await;
    plane.worker_token().await;
    let network = |name: &str, org: &str| {
        format!(
            "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}{org}}}\n\
             spec: {{networkName: {name}, region: fra1}}\n---\n"
        )
    };
    plane.apply(&[network("free", ""), network("shops", ", org: shop")].concat()).await;
    plane.add_worker("untold", &[]);
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let all = plane.list(0).await.unwrap();
        let of = |name: &str| all.iter().find(|one| one.id.as_ref().is_some_and(|id| id.name == name)).unwrap();
        if of("free").state == "Ready" && of("shops").state == "Failed" {
            let message = &of("shops").message;
            assert!(message.contains("does not use its own credentials for org shop"), "{message}");
            break;
        }
        assert!(Instant::now() < until, "{all:?} {}", plane.told());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let made = |plane: &Plane, name: &str| plane.names("civo.network").iter().any(|one| one == name);
    assert!(made(&plane, "free") && !made(&plane, "shops"));
    assert!(plane.workers[0].stop(Duration::from_secs(30)));
    plane.add_worker("told", &["--own-credentials-for", "shop"]);
    plane.until_ready().await;
    assert!(made(&plane, "shops"));
}
