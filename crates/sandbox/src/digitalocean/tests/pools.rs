//! Node pools: made, scaled, deleted.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::*;

#[tokio::test]
async fn pools_are_made_scaled_and_deleted() {
    let cloud = Cloud::instant().await;
    let made = cloud.cluster("shop").await;
    let pools = format!("/v2/kubernetes/clusters/{}/node_pools", id(&made));
    // The Go client sends the keys of taints capitalised.
    let body = json!({"name": "gpu", "size": "g-2vcpu-8gb", "count": 2, "tags": ["x"], "labels": {"role": "gpu"},
                      "taints": [{"Key": "gpu", "Value": "yes", "Effect": "NoSchedule"}]});
    let (status, gpu) = cloud.post(&pools, body.clone()).await;
    assert_eq!(status, 201, "{gpu}");
    let gpu = &gpu["node_pool"];
    assert_eq!(gpu["taints"], json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]));
    assert_eq!(gpu["tags"], json!(["x", "k8s", format!("k8s:{}", id(&made)), "k8s:worker"]));
    assert_eq!((&gpu["labels"], gpu["nodes"].as_array().unwrap().len()), (&json!({"role": "gpu"}), 2));
    let path = format!("{pools}/{}", id(gpu));
    assert!(cloud.refused(Method::POST, &pools, body, 422).await.contains("already exists"));
    assert_eq!(cloud.get(&pools).await["meta"]["total"], 2);

    let kept: Vec<String> = gpu["nodes"].as_array().unwrap().iter().map(id).collect();
    let (status, grown) = cloud.put(&path, json!({"name": "gpu", "count": 4})).await;
    assert_eq!((status, &grown["node_pool"]["count"]), (202, &json!(4)));
    let now: Vec<String> = grown["node_pool"]["nodes"].as_array().unwrap().iter().map(id).collect();
    assert!(now.len() == 4 && kept.iter().all(|node| now.contains(node)));
    assert_eq!(grown["node_pool"]["labels"], json!({"role": "gpu"}));
    cloud.put(&path, json!({"name": "gpu", "count": 1, "labels": {}, "taints": []})).await;
    let shrunk = cloud.get(&path).await["node_pool"].clone();
    assert_eq!(
        (shrunk["nodes"].as_array().unwrap().len(), &shrunk["labels"], &shrunk["taints"]),
        (1, &Value::Null, &json!([]))
    );

    let (_, scaled) = cloud.put(&path, json!({"auto_scale": true, "min_nodes": 2, "max_nodes": 5})).await;
    assert_eq!((&scaled["node_pool"]["count"], &scaled["node_pool"]["min_nodes"]), (&json!(2), &json!(2)));
    let (_, fixed) = cloud.put(&path, json!({"auto_scale": false, "count": 3, "min_nodes": 0, "max_nodes": 0})).await;
    assert_eq!((&fixed["node_pool"]["count"], &fixed["node_pool"]["max_nodes"]), (&json!(3), &json!(0)));
    assert!(cloud.refused(Method::PUT, &path, json!({"size": "c-2"}), 422).await.contains("cannot be changed"));
    assert!(cloud.refused(Method::PUT, &path, json!({"name": "default"}), 422).await.contains("already exists"));

    let node = id(&fixed["node_pool"]["nodes"][0]);
    assert_eq!(cloud.delete(&format!("{path}/nodes/{node}?skip_drain=1&replace=1")).await.0, 202);
    let replaced = cloud.get(&path).await["node_pool"].clone();
    assert!(replaced["nodes"].as_array().unwrap().iter().all(|n| id(n) != node));
    assert_eq!((replaced["nodes"].as_array().unwrap().len(), &replaced["count"]), (3, &json!(3)));
    let node = id(&replaced["nodes"][0]);
    assert_eq!(cloud.delete(&format!("{path}/nodes/{node}")).await.0, 202);
    assert_eq!(cloud.get(&path).await["node_pool"]["count"], 2);
    assert_eq!(cloud.delete(&format!("{path}/nodes/none")).await.0, 404);
    assert_eq!(cloud.post(&format!("{path}/recycle"), json!({"nodes": []})).await.0, 202);

    assert_eq!(cloud.delete(&path).await.0, 204);
    assert_eq!(cloud.call(Method::GET, &path, None).await.0, 404);
    let last = format!("{pools}/{}", id(&made["node_pools"][0]));
    let (status, refused) = cloud.delete(&last).await;
    assert!(status == 422 && refused["message"].as_str().unwrap().contains("at least one node pool"), "{refused}");
    assert_eq!(cloud.call(Method::GET, "/v2/kubernetes/clusters/none/node_pools", None).await.0, 404);
}
