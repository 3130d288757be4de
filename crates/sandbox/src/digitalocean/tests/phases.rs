//! How long clusters, nodes and upgrades take.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::*;
use crate::{Config, Speed};

#[tokio::test]
async fn a_cluster_goes_through_its_phases() {
    // Seven simulated minutes in about two seconds: slow enough to see each phase on a busy machine.
    let cloud = Cloud::start(Config { speed: Speed::Times(200.0), ..Config::default() }).await;
    let made = cloud.cluster("shop").await;
    let path = format!("/v2/kubernetes/clusters/{}", id(&made));
    assert_eq!(made["status"], json!({"state": "provisioning", "message": "provisioning"}));
    assert_eq!(made["endpoint"], "");
    assert_eq!(made["node_pools"][0]["nodes"][0]["status"]["state"], "provisioning");
    assert_eq!(cloud.call(Method::GET, &format!("{path}/kubeconfig"), None).await.0, 412);
    let mut seen = made;
    for _ in 0..500 {
        seen = cloud.get(&path).await["kubernetes_cluster"].clone();
        if seen["status"]["state"] == "running" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(seen["status"]["state"], "running");
    assert!(seen["endpoint"].as_str().unwrap().starts_with("https://127.0.0.1:"));
    assert_eq!(seen["node_pools"][0]["nodes"][1]["status"]["state"], "running");
    let created: jiff::Timestamp = seen["created_at"].as_str().unwrap().parse().unwrap();
    let ready: jiff::Timestamp = seen["node_pools"][0]["nodes"][0]["updated_at"].as_str().unwrap().parse().unwrap();
    let took = ready.as_second() - created.as_second();
    assert!((340..=420).contains(&took), "{took}");

    assert_eq!(cloud.delete(&path).await.0, 204);
    assert_eq!(cloud.get(&path).await["kubernetes_cluster"]["status"]["state"], "deleted");
    assert_eq!(cloud.delete(&path).await.0, 204);
    for _ in 0..500 {
        if cloud.call(Method::GET, &path, None).await.0 == 404 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(cloud.call(Method::GET, &path, None).await.0, 404);
    assert_eq!(cloud.delete(&path).await.0, 404);
    let ledger = cloud.get("/_sandbox/ledger").await;
    assert_eq!(ledger["totals"]["digitalocean.cluster"], json!({"created": 1, "deleted": 1, "live": 0}));
    assert_eq!(ledger["totals"]["digitalocean.pool"], json!({"created": 1, "deleted": 1, "live": 0}));
}

#[tokio::test]
async fn new_nodes_take_minutes_and_leaving_ones_show_it() {
    let cloud = Cloud::start(Config { speed: Speed::Times(1.0), ..Config::default() }).await;
    let made = cloud.cluster("shop").await;
    let path = format!("/v2/kubernetes/clusters/{}/node_pools/{}", id(&made), id(&made["node_pools"][0]));
    let (_, grown) = cloud.put(&path, json!({"count": 3})).await;
    let states = |pool: &Value| {
        let nodes = pool["node_pool"]["nodes"].as_array().unwrap();
        nodes.iter().map(|node| node["status"]["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states(&grown), ["provisioning", "provisioning", "provisioning"]);
    let (_, shrunk) = cloud.put(&path, json!({"count": 1})).await;
    assert_eq!(states(&shrunk), ["provisioning", "deleting", "deleting"]);
    assert_eq!(shrunk["node_pool"]["count"], 1);
}

#[tokio::test]
async fn an_upgrade_takes_its_time() {
    let cloud = Cloud::start(Config { speed: Speed::Times(300.0), ..Config::default() }).await;
    let path = format!("/v2/kubernetes/clusters/{}", id(&cloud.cluster("shop").await));
    let state = || async { cloud.get(&path).await["kubernetes_cluster"]["status"]["state"].clone() };
    let (early, answer) = cloud.post(&format!("{path}/upgrade"), json!({"version": "1.33.4-do.0"})).await;
    assert_eq!((early, answer["id"].as_str()), (412, Some("precondition_failed")));
    for wanted in ["running", "upgrading", "running"] {
        if wanted == "upgrading" {
            assert_eq!(cloud.post(&format!("{path}/upgrade"), json!({"version": "1.33.4-do.0"})).await.0, 202);
        }
        for _ in 0..1000 {
            if state().await == wanted {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(state().await, wanted);
    }
}
