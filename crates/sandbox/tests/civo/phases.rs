//! Objects reach their end through the phases of the real cloud, in the times its documents give.

use std::time::{Duration, Instant};

use berth_sandbox::{Config, Speed};
use serde_json::json;

use crate::client::{Cloud, refused, start, text};

const SPEED: f64 = 200.0;

async fn fast() -> Cloud {
    start(Config { speed: Speed::Times(SPEED), seed: 3, ..Config::default() }).await
}

/// Follows a cluster until it has the status; gives the other statuses seen and the simulated seconds it took.
async fn follow(cloud: &Cloud, id: &str, until: &str) -> (Vec<String>, f64) {
    let (begun, mut seen) = (Instant::now(), Vec::<String>::new());
    loop {
        let (status, shown) = cloud.get(&format!("/v2/kubernetes/clusters/{id}")).await;
        let now = if status == 404 { "gone".to_owned() } else { text(&shown["status"]) };
        if now == until {
            return (seen, begun.elapsed().as_secs_f64() * SPEED);
        }
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "never {until}: {seen:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_cluster_is_built_scaled_upgraded_and_deleted_in_time() {
    let cloud = fast().await;
    let id = cloud.cluster("shop").await;
    let early = cloud.show(&id).await;
    assert_eq!(
        (&early["ready"], &early["kubeconfig"], &early["api_endpoint"]),
        (&json!(false), &json!(""), &json!(""))
    );
    assert_eq!((&early["built_at"], &early["pools"][0]["instances"][0]["status"]), (&json!(null), &json!("BUILDING")));
    let (phases, took) = follow(&cloud, &id, "ACTIVE").await;
    assert_eq!(phases, ["BUILDING", "AVAILABLE"]);
    assert!((75.0..150.0).contains(&took), "built in {took:.0} s");
    let view = cloud.sandbox.world().cluster_view(&id).expect("a view");
    assert!(view.api_up && view.nodes.len() == 2 && view.nodes.iter().all(|node| node.ready));
    assert_eq!(view.kubernetes_version, "v1.29.0+k3s1");

    let path = format!("/v2/kubernetes/clusters/{id}");
    cloud.put(&format!("{path}/pools/main"), json!({"count": 3})).await;
    let (phases, took) = follow(&cloud, &id, "ACTIVE").await;
    assert_eq!(phases, ["SCALING"]);
    assert!((45.0..90.0).contains(&took), "grown in {took:.0} s");
    cloud.put(&format!("{path}/pools/main"), json!({"count": 2})).await;
    let shrinking = cloud.show(&id).await;
    assert_eq!((&shrinking["pools"][0]["count"], &shrinking["required_pools"][0]["count"]), (&json!(3), &json!(2)));
    let (_, took) = follow(&cloud, &id, "ACTIVE").await;
    assert!((20.0..60.0).contains(&took), "shrunk in {took:.0} s");

    cloud.put(&path, json!({"kubernetes_version": "1.29.8-k3s1"})).await;
    let during = cloud.sandbox.world().cluster_view(&id).expect("a view").kubernetes_version;
    let (phases, took) = follow(&cloud, &id, "ACTIVE").await;
    assert_eq!((phases, during.as_str()), (vec!["UPGRADING".to_owned()], "v1.29.0+k3s1"));
    assert!((290.0..640.0).contains(&took), "patched in {took:.0} s");
    assert_eq!(cloud.sandbox.world().cluster_view(&id).expect("a view").kubernetes_version, "v1.29.8+k3s1");

    cloud.delete(&path).await;
    refused(&cloud.put(&path, json!({"tags": "x"})).await, 409, "database_kubernetes_cluster_invalid");
    let (phases, took) = follow(&cloud, &id, "gone").await;
    assert_eq!(phases, ["DELETING"]);
    assert!((55.0..120.0).contains(&took), "deleted in {took:.0} s");
}

#[tokio::test]
async fn a_pool_being_deleted_is_seen_until_it_is_gone() {
    let cloud = fast().await;
    let id = cloud.cluster("shop").await;
    follow(&cloud, &id, "ACTIVE").await;
    let pools = format!("/v2/kubernetes/clusters/{id}/pools");
    cloud.post(&pools, json!({"id": "batch", "count": 1, "size": "g4s.kube.small"})).await;
    follow(&cloud, &id, "ACTIVE").await;
    cloud.delete(&format!("{pools}/batch")).await;
    let shown = cloud.show(&id).await;
    assert_eq!(
        (shown["pools"].as_array().map(Vec::len), shown["required_pools"].as_array().map(Vec::len)),
        (Some(2), Some(1))
    );
    let again = cloud.post(&pools, json!({"id": "batch", "count": 1, "size": "g4s.kube.small"})).await;
    refused(&again, 409, "database_cluster_pool_duplicate");
    follow(&cloud, &id, "ACTIVE").await;
    refused(&cloud.get(&format!("{pools}/batch")).await, 404, "database_cluster_pool_not_found");
}

#[tokio::test]
async fn a_firewall_waits_for_the_cluster_being_deleted() {
    let cloud = fast().await;
    let network = cloud.network("shop").await;
    assert_eq!(cloud.get(&format!("/v2/networks/{network}")).await.1["status"], "Pending");
    let firewall = cloud.firewall("shop", &network).await;
    let body = json!({"name": "shop", "network_id": network, "instance_firewall": firewall, "num_target_nodes": 1});
    let cluster = text(&cloud.post("/v2/kubernetes/clusters", body).await.1["id"]);
    cloud.delete(&format!("/v2/kubernetes/clusters/{cluster}")).await;
    assert_eq!(cloud.delete(&format!("/v2/firewalls/{firewall}")).await.1["result"], "failed");
    follow(&cloud, &cluster, "gone").await;
    assert_eq!(cloud.delete(&format!("/v2/firewalls/{firewall}")).await.1["result"], "success");
    assert_eq!(cloud.delete(&format!("/v2/networks/{network}")).await.1["result"], "success");
    assert_eq!(cloud.get(&format!("/v2/networks/{network}")).await.1["status"], "Deleting");
}
