//! What a state file keeps.

use serde_json::json;

use super::client::*;
use crate::{Config, Speed};

#[tokio::test]
async fn objects_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { state: Some(folder.path().join("state")), speed: Speed::Instant, ..Config::default() };
    let cloud = Cloud::start(config.clone()).await;
    let made = cloud.cluster("shop").await;
    let (_, net) = cloud.post("/v2/vpcs", json!({"name": "net", "region": "ams3"})).await;
    cloud.sandbox.stop().await;
    let cloud = Cloud::start(config).await;
    let path = format!("/v2/kubernetes/clusters/{}", id(&made));
    let again = cloud.get(&path).await["kubernetes_cluster"].clone();
    assert_eq!(again["node_pools"], made["node_pools"]);
    assert_eq!(again["endpoint"], made["endpoint"]);
    assert_eq!(cloud.get(&format!("/v2/vpcs/{}", id(&net["vpc"]))).await["vpc"], net["vpc"]);
}
