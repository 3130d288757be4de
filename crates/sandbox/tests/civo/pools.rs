use serde_json::json;

use crate::client::{cloud, refused, text};

#[tokio::test]
async fn a_pool_is_made_changed_and_deleted() {
    let cloud = cloud().await;
    let id = cloud.cluster("shop").await;
    let pools = format!("/v2/kubernetes/clusters/{id}/pools");
    let taints = json!([{"key": "only", "value": "batch", "effect": "NoExecute"}]);
    let body = json!({"id": "batch", "count": 2, "size": "g4s.kube.large", "labels": {"a": "b"}, "taints": taints});
    let (status, made) = cloud.post(&pools, body.clone()).await;
    assert_eq!((status, &made["result"]), (200, &json!("success")));
    refused(&cloud.post(&pools, body).await, 409, "database_cluster_pool_duplicate");

    let path = format!("{pools}/batch");
    let (_, seen) = cloud.get(&path).await;
    assert_eq!((&seen["id"], &seen["count"], &seen["size"]), (&json!("batch"), &json!(2), &json!("g4s.kube.large")));
    assert_eq!((&seen["labels"], &seen["taints"]), (&json!({"a": "b"}), &taints));
    let (_, list) = cloud.get(&pools).await;
    assert_eq!((list.as_array().map(Vec::len), &list[0]["id"]), (Some(2), &json!("main")));

    let (_, changed) = cloud.put(&path, json!({"count": 4, "labels": {"c": "d"}, "taints": []})).await;
    assert_eq!(
        (&changed["count"], &changed["labels"], &changed["taints"]),
        (&json!(4), &json!({"c": "d"}), &json!([]))
    );
    assert_eq!(cloud.put(&path, json!({"count": 1})).await.1["labels"], json!({"c": "d"}), "what is not sent stays");
    assert_eq!(cloud.get(&path).await.1["count"], 1);

    assert_eq!(cloud.delete(&path).await.1["result"], "success");
    refused(&cloud.get(&path).await, 404, "database_cluster_pool_not_found");
    assert_eq!(cloud.show(&id).await["required_pools"].as_array().map(Vec::len), Some(1));
    refused(&cloud.delete(&format!("{pools}/main")).await, 400, "database_kubernetes_cluster_no_pools");
}

#[tokio::test]
async fn wrong_pools_are_refused() {
    let cloud = cloud().await;
    let id = cloud.cluster("shop").await;
    let pools = format!("/v2/kubernetes/clusters/{id}/pools");
    refused(&cloud.post(&pools, json!({"id": "x", "count": 0})).await, 400, "database_kubernetes_cluster_invalid");
    refused(&cloud.post(&pools, json!({"id": "x", "size": "nope"})).await, 404, "database_size_not_found");
    refused(&cloud.post(&pools, json!({"id": "x y"})).await, 400, "parameter_name_invalid");
    refused(&cloud.put(&format!("{pools}/nope"), json!({"count": 2})).await, 404, "database_cluster_pool_not_found");
    let bigger = cloud.put(&format!("{pools}/main"), json!({"size": "g4s.kube.large"})).await;
    refused(&bigger, 400, "database_kubernetes_cluster_invalid");
    refused(&cloud.delete(&format!("{pools}/nope")).await, 404, "database_cluster_pool_not_found");
    let nowhere = cloud.get("/v2/kubernetes/clusters/nope/pools").await;
    refused(&nowhere, 404, "database_kubernetes_cluster_not_found");
}

#[tokio::test]
async fn the_pools_of_a_cluster_update_are_all_its_pools() {
    let cloud = cloud().await;
    let id = cloud.cluster("shop").await;
    let path = format!("/v2/kubernetes/clusters/{id}");
    let body = json!({"pools": [{"id": "main", "count": 3}, {"id": "extra", "count": 1, "size": "g4s.kube.small"}]});
    let (_, grown) = cloud.put(&path, body).await;
    assert_eq!((&grown["required_pools"][0]["count"], &grown["required_pools"][1]["id"]), (&json!(3), &json!("extra")));
    let (_, shrunk) = cloud.put(&path, json!({"pools": [{"id": "extra", "count": 2}]})).await;
    assert_eq!(shrunk["required_pools"].as_array().map(Vec::len), Some(1), "{shrunk}");
    assert_eq!(cloud.show(&id).await["pools"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn nodes_are_recycled_and_taken_out() {
    let cloud = cloud().await;
    let id = cloud.cluster("shop").await;
    let path = format!("/v2/kubernetes/clusters/{id}");
    let names = |shown: &serde_json::Value| shown["pools"][0]["instance_names"].clone();
    let before = names(&cloud.show(&id).await);
    let (status, _) = cloud.post(&format!("{path}/recycle"), json!({"hostname": before[0]})).await;
    assert_eq!(status, 200);
    let after = names(&cloud.show(&id).await);
    assert_eq!(after.as_array().map(Vec::len), Some(2));
    assert!(!after.as_array().expect("names").contains(&before[0]) && after[0] == before[1]);
    let gone = cloud.post(&format!("{path}/recycle"), json!({"hostname": before[0]})).await;
    refused(&gone, 404, "database_kubernetes_node_not_found");

    let instance = text(&cloud.show(&id).await["pools"][0]["instances"][0]["id"]);
    let (status, _) = cloud.delete(&format!("{path}/pools/main/instances/{instance}")).await;
    assert_eq!((status, &cloud.show(&id).await["num_target_nodes"]), (200, &json!(1)));
    let again = cloud.delete(&format!("{path}/pools/main/instances/{instance}")).await;
    refused(&again, 404, "database_cluster_pool_instance_not_found");
    let last = text(&cloud.show(&id).await["pools"][0]["instances"][0]["id"]);
    let refusal = cloud.delete(&format!("{path}/pools/main/instances/{last}")).await;
    refused(&refusal, 400, "database_cluster_pool_no_sufficient_instances_available");
}
