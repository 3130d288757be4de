//! Networks: made, changed, deleted, refused.

use reqwest::Method;
use serde_json::json;

use super::client::*;
use crate::{Config, Speed};

#[tokio::test]
async fn networks_are_made_changed_and_deleted() {
    let cloud = Cloud::instant().await;
    let all = cloud.get("/v2/vpcs?per_page=200").await;
    let defaults = all["vpcs"].as_array().unwrap().len();
    assert!(all["vpcs"].as_array().unwrap().iter().all(|vpc| vpc["default"] == true));

    let (status, made) =
        cloud.post("/v2/vpcs", json!({"name": "net", "region": "fra1", "ip_range": "10.10.0.0/16"})).await;
    assert_eq!(status, 201);
    let net = id(&made["vpc"]);
    assert_eq!(made["vpc"]["urn"], format!("do:vpc:{net}"));
    assert_eq!(made["vpc"]["default"], false);

    let (_, chosen) = cloud.post("/v2/vpcs", json!({"name": "free", "region": "fra1"})).await;
    assert!(chosen["vpc"]["ip_range"].as_str().unwrap().ends_with("/20"), "{chosen}");

    let path = format!("/v2/vpcs/{net}");
    let (status, changed) =
        cloud.put(&path, json!({"name": "net-2", "description": "for tests", "default": false})).await;
    assert_eq!((status, &changed["vpc"]["description"]), (200, &json!("for tests")));
    let (_, patched) = cloud.call(Method::PATCH, &path, Some(json!({"name": "net-3"}))).await;
    assert_eq!(patched["vpc"]["description"], "for tests");
    let (_, replaced) = cloud.put(&path, json!({"name": "net-3"})).await;
    assert_eq!(replaced["vpc"]["description"], "");

    let (_, default) = cloud.put(&path, json!({"name": "net-3", "default": true})).await;
    assert_eq!(default["vpc"]["default"], true);
    let all = cloud.get("/v2/vpcs?per_page=200").await;
    let in_region = all["vpcs"].as_array().unwrap().iter().filter(|v| v["region"] == "fra1" && v["default"] == true);
    assert_eq!(in_region.count(), 1);
    assert_eq!(all["meta"]["total"], defaults + 2);
    assert_eq!(cloud.delete(&path).await.0, 403);
    assert_eq!(cloud.delete(&format!("/v2/vpcs/{}", id(&chosen["vpc"]))).await.0, 204);
    assert_eq!(cloud.call(Method::GET, &format!("/v2/vpcs/{}", id(&chosen["vpc"])), None).await.0, 404);
}

#[tokio::test]
async fn bad_networks_are_refused() {
    let cloud = Cloud::instant().await;
    let net = json!({"name": "net", "region": "fra1", "ip_range": "10.10.0.0/16"});
    assert_eq!(cloud.post("/v2/vpcs", net.clone()).await.0, 201);
    for (body, says) in [
        (with(net.clone(), "ip_range", json!("10.20.0.0/16")), "already exists"),
        (json!({"name": "b", "region": "fra1", "ip_range": "10.10.16.0/20"}), "overlaps"),
        (json!({"name": "b", "region": "mars1"}), "mars1"),
        (json!({"name": "b c", "region": "fra1"}), "Name is invalid"),
        (json!({"region": "fra1"}), "Name is invalid"),
        (json!({"name": "b", "region": "fra1", "ip_range": "8.8.8.0/24"}), "RFC 1918"),
        (json!({"name": "b", "region": "fra1", "ip_range": "10.0.0.0/8"}), "/16"),
        (json!({"name": "b", "region": "fra1", "ip_range": "10.30.0.5/16"}), "10.30.0.0/16"),
        (json!({"name": "b", "region": "fra1", "ip_range": "wide"}), "CIDR"),
        (json!({"name": "b", "region": "fra1", "description": "x".repeat(256)}), "too long"),
    ] {
        let message = cloud.refused(Method::POST, "/v2/vpcs", body, 422).await;
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(cloud.call(Method::POST, "/v2/vpcs", Some(json!([1]))).await.0, 400);
}

#[tokio::test]
async fn a_network_with_members_stays() {
    let cloud = Cloud::start(Config { speed: Speed::Times(1.0), ..Config::default() }).await;
    let (_, net) = cloud.post("/v2/vpcs", json!({"name": "net", "region": "fra1"})).await;
    let path = format!("/v2/vpcs/{}", id(&net["vpc"]));
    let body = with(cluster("shop"), "vpc_uuid", net["vpc"]["id"].clone());
    let (_, made) = cloud.post("/v2/kubernetes/clusters", body).await;
    let made = id(&made["kubernetes_cluster"]);
    let members = cloud.get(&format!("{path}/members")).await;
    assert_eq!(members["members"][0]["urn"], format!("do:kubernetes:{made}"));
    let (status, refused) = cloud.delete(&path).await;
    assert_eq!((status, refused["id"].as_str()), (403, Some("forbidden")));
    // While the cluster is on its way out it is still a member.
    assert_eq!(cloud.delete(&format!("/v2/kubernetes/clusters/{made}")).await.0, 204);
    assert_eq!(cloud.delete(&path).await.0, 403);
}
