//! Through a server: calls that are acted on late, lists that are behind and workers that die make nothing twice, whichever
//! database keeps the state.

use crate::harness::*;
use berth_server::pb;
use std::time::{Duration, Instant};

/// Every kind, with everything that is made besides the object itself.
const EVERYTHING: &str = "\
apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net}\nspec: {account: civo, networkName: net, region: fra1}\n---\n\
apiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {name: fw}\nspec: {account: civo, name: fw, networkId: {valueFrom: {name: net}}, \
inboundRules: [{protocol: tcp, portRange: \"443\"}]}\n---\n\
apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {name: shop}\nspec: {account: civo, clusterName: shop, region: fra1, \
kubernetesVersion: 1.30.5-k3s1, network: {valueFrom: {name: net}}, defaultNodePool: {size: g4s.kube.medium, nodeCount: 1}}\n---\n\
apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesNodePool\nmetadata: {name: batch}\nspec: {account: civo, nodePoolName: batch, \
cluster: {valueFrom: {name: shop}}, size: g4s.kube.large, nodeCount: 1}\n---\n\
apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanVpc\nmetadata: {name: do-net}\nspec: {account: digitalocean, region: fra1}\n---\n\
apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanKubernetesCluster\nmetadata: {name: blog}\nspec: {account: digitalocean, \
clusterName: blog, region: fra1, kubernetesVersion: 1.32.5-do.0, vpc: {valueFrom: {name: do-net}}, \
defaultNodePool: {size: s-2vcpu-4gb, nodeCount: 1}}\n---\n\
apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanKubernetesNodePool\nmetadata: {name: waves}\nspec: {account: digitalocean, \
nodePoolName: waves, cluster: {valueFrom: {name: blog}}, size: s-4vcpu-8gb, nodeCount: 1}\n";

/// What is there when everything is there once.
const OBJECTS: [(&str, usize); 7] = [
    ("civo.network", 1),
    ("civo.firewall", 1),
    ("civo.cluster", 1),
    ("digitalocean.vpc", 1),
    ("digitalocean.cluster", 1),
    // The default one, and the one beside it.
    ("digitalocean.pool", 2),
    ("civo.instance", 0),
];
const FAULTS: [&str; 2] = ["lag=1s", "late=500ms rate=0.2"];
/// A create without an answer is waited for; several may follow one another.
const WITHIN: Duration = Duration::from_secs(300);

async fn late_and_lag(postgres: bool) {
    let mut plane = Plane::start(Setup { lease: "3s", postgres, ..Setup::default() }).await;
    plane.account().await;
    plane.digitalocean_account().await;
    plane.until_ready().await;
    plane.faults(&FAULTS);
    plane.apply(EVERYTHING).await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        plane.workers[0].restart();
    }
    plane
        .until("all Ready", WITHIN, |all| {
            all.len() == 9 && all.iter().all(|r| r.state == "Ready" && r.observed_generation == r.generation)
        })
        .await;
    calm(&plane).await;
    for (kind, count) in OBJECTS {
        assert_eq!(plane.objects(kind).len(), count, "{kind}: {:?}\n{}", plane.objects(kind), plane.told());
    }
    let drift =
        plane.client(0).await.resources().drift(pb::DriftRequest::default()).await.expect("an answer").into_inner();
    assert!(drift.drifted.is_empty() && drift.problems.is_empty(), "{drift:?}");

    plane.faults(&FAULTS);
    for (kind, name) in [
        ("CivoKubernetesNodePool", "batch"),
        ("CivoFirewall", "fw"),
        ("DigitalOceanKubernetesNodePool", "waves"),
        ("CivoKubernetesCluster", "shop"),
        ("DigitalOceanKubernetesCluster", "blog"),
        ("CivoVpc", "net"),
        ("DigitalOceanVpc", "do-net"),
    ] {
        plane.delete(kind, name, "", true).await.unwrap_or_else(|status| panic!("{kind}/{name}: {status}"));
    }
    plane.workers[0].restart();
    plane.until("gone", WITHIN, |all| all.iter().all(|r| kind(r) == "Account")).await;
    calm(&plane).await;
    for (kind, _) in OBJECTS {
        assert_eq!(plane.objects(kind).len(), 0, "{kind} is left: {:?}\n{}", plane.objects(kind), plane.told());
    }
}

/// Until nothing is on its way any more, and lists are current.
async fn calm(plane: &Plane) {
    let until = Instant::now() + LONGEST;
    while plane.late() > 0 {
        assert!(Instant::now() < until, "calls stay late");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    plane.faults(&[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_twice_on_sqlite() {
    late_and_lag(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_twice_on_postgresql() {
    late_and_lag(true).await;
}
