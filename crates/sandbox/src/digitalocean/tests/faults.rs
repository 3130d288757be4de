//! Quotas and faults.

use reqwest::Method;
use serde_json::json;

use super::client::*;
use crate::{Config, Quota, Speed};

#[tokio::test]
async fn quotas_and_faults_reach_this_cloud_too() {
    let quota = Quota { clusters: 2, nodes: 5, networks: 1, ..Quota::default() };
    let fail = vec!["POST /v2/kubernetes/clusters digitalocean stuck nth=1".parse().unwrap()];
    let cloud = Cloud::start(Config { quota, fail, speed: Speed::Instant, ..Config::default() }).await;
    let stuck = cloud.cluster("one").await;
    assert_eq!(
        cloud.get(&format!("/v2/kubernetes/clusters/{}", id(&stuck))).await["kubernetes_cluster"]["status"]["state"],
        "provisioning"
    );
    let fine = cloud.cluster("two").await;
    assert_eq!(fine["status"]["state"], "running");
    assert!(cloud.refused(Method::POST, "/v2/kubernetes/clusters", cluster("three"), 422).await.contains("limit"));
    let pools = format!("/v2/kubernetes/clusters/{}/node_pools", id(&fine));
    let pool = json!({"name": "more", "size": "c-2", "count": 2});
    assert!(cloud.refused(Method::POST, &pools, pool, 422).await.contains("droplet limit"));
    assert_eq!(cloud.post("/v2/vpcs", json!({"name": "a", "region": "fra1"})).await.0, 201);
    assert!(
        cloud.refused(Method::POST, "/v2/vpcs", json!({"name": "b", "region": "fra1"}), 422).await.contains("limit")
    );
}
