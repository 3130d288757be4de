//! What is done inside a cluster: draining.

use super::world::*;
use crate::kube::{Drained, Kube, Kubes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::time::Duration;

pub async fn open(world: &World, unit: &berth_engine::unit::Unit, id: &str) -> Kube {
    let readiness = world.ready(unit, id).await;
    let kubeconfig = STANDARD.decode(readiness.secrets["kubeconfig_b64"].expose_secret()).unwrap();
    Kubes::default().open(&String::from_utf8(kubeconfig).unwrap()).unwrap()
}

fn pod(name: &str, node: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]},
    })
}

#[tokio::test]
async fn nodes_are_drained_as_budgets_allow() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let (unit, id) = world.cluster(&network).await;
    let kube = open(&world, &unit, &id).await;
    let nodes = kube.nodes(None).await.unwrap();
    assert!(nodes.len() == 2 && nodes.iter().all(|node| node.ready && !node.unschedulable), "{nodes:?}");
    let old = &nodes[..1];
    let pods = "/api/v1/namespaces/default/pods";
    kube.create(pods, &pod("free", &old[0].name, json!({}))).await.unwrap();
    kube.create(pods, &pod("elsewhere", &nodes[1].name, json!({}))).await.unwrap();
    assert_eq!(kube.drain(old, Duration::from_secs(20)).await.unwrap(), Drained::Done);
    assert!(kube.get(&format!("{pods}/free")).await.unwrap().is_none());
    assert!(kube.get(&format!("{pods}/elsewhere")).await.unwrap().is_some());
    let cordoned: Vec<bool> = kube.nodes(None).await.unwrap().iter().map(|node| node.unschedulable).collect();
    assert_eq!(cordoned.iter().filter(|c| **c).count(), 1);
}

#[tokio::test]
async fn a_replaced_pool_is_drained_before_it_goes() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let (cluster, id) = world.cluster(&network).await;
    let mut unit = pool_unit(&id, "batch", "g4s.kube.medium", 1);
    let pool = world.make(&mut unit, TOKEN).await;
    let kube = open(&world, &cluster, &id).await;
    let pool_id = pool.split('/').next_back().unwrap();
    let node = loop {
        let nodes = kube.nodes(Some(&format!("kubernetes.civo.com/civo-node-pool={pool_id}"))).await.unwrap();
        match nodes.into_iter().next() {
            Some(node) => break node,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    kube.create("/api/v1/namespaces/default/pods", &pod("work", &node.name, json!({}))).await.unwrap();
    world.remove(&unit, &pool, true).await;
    assert!(kube.get("/api/v1/namespaces/default/pods/work").await.unwrap().is_none());
}

#[tokio::test]
async fn clusters_with_the_same_authority_share_a_client() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let (unit, id) = world.cluster(&network).await;
    let kube = open(&world, &unit, &id).await;
    assert_eq!(kube.answers().await, Ok(()));
    assert!(kube.server().ends_with(&format!("/clusters/{id}")), "{}", kube.server());
    world.remove(&unit, &id, false).await;
    assert!(kube.answers().await.is_err());
}
