use serde_json::json;

use crate::client::{cloud, refused, text};

#[tokio::test]
async fn every_region_starts_with_a_default_network() {
    let cloud = cloud().await;
    let (_, regions) = cloud.get("/v2/regions").await;
    for region in regions.as_array().expect("regions") {
        let path = format!("{}/v2/networks?region={}", cloud.url, text(&region["code"]).to_lowercase());
        let (status, networks) = cloud.send(cloud.http.get(path)).await;
        assert_eq!((status, networks.as_array().map(Vec::len)), (200, Some(1)));
        assert_eq!((&networks[0]["default"], &networks[0]["label"]), (&json!(true), &json!("default")));
    }
}

#[tokio::test]
async fn a_network_lives_through_both_families_of_paths() {
    let cloud = cloud().await;
    let body = json!({"label": "shop", "cidr_v4": "10.20.0.0/24", "nameservers_v4": ["9.9.9.9"]});
    let (status, made) = cloud.post("/v2/vpc/networks", body).await;
    assert_eq!((status, &made["label"], &made["result"]), (200, &json!("shop"), &json!("success")));
    let id = text(&made["id"]);

    for path in [format!("/v2/networks/{id}"), format!("/v2/vpc/networks/{id}")] {
        let (status, seen) = cloud.get(&path).await;
        assert_eq!(status, 200);
        assert_eq!((&seen["cidr"], &seen["status"]), (&json!("10.20.0.0/24"), &json!("Active")));
        assert_eq!((&seen["nameservers_v4"], &seen["default"]), (&json!(["9.9.9.9"]), &json!(false)));
    }
    let (_, renamed) = cloud.put(&format!("/v2/networks/{id}"), json!({"label": "store"})).await;
    assert_eq!(renamed["label"], "store");
    assert_eq!(cloud.network("shop").await.len(), 36, "the old label is free again");

    assert_eq!(cloud.delete(&format!("/v2/vpc/networks/{id}")).await.1["result"], "success");
    refused(&cloud.get(&format!("/v2/networks/{id}")).await, 404, "database_network_not_found");
}

#[tokio::test]
async fn ranges_are_chosen_when_not_given() {
    let cloud = cloud().await;
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..20 {
        let id = cloud.network(&format!("n{n}")).await;
        seen.insert(text(&cloud.get(&format!("/v2/networks/{id}")).await.1["cidr"]));
    }
    assert_eq!(seen.len(), 20, "{seen:?}");
}

#[tokio::test]
async fn wrong_networks_are_refused() {
    let cloud = cloud().await;
    cloud.network("shop").await;
    refused(&cloud.post("/v2/networks", json!({"label": "shop"})).await, 409, "database_network_duplicate_name");
    refused(&cloud.post("/v2/networks", json!({})).await, 400, "parameter_label_invalid");
    refused(&cloud.post("/v2/networks", json!({"label": " "})).await, 400, "parameter_label_invalid");
    for cidr in ["10.0.0.0/40", "ten", "10.0.0.1"] {
        let answer = cloud.post("/v2/networks", json!({"label": "x", "cidr_v4": cidr})).await;
        refused(&answer, 400, "database_network_create");
    }
    let (status, _) = cloud.post("/v2/networks", json!({"label": "shop", "region": "LON1"})).await;
    assert_eq!(status, 200, "labels are unique in their region only");
}

#[tokio::test]
async fn a_network_in_use_stays() {
    let cloud = cloud().await;
    let network = cloud.network("shop").await;
    let firewall = cloud.firewall("shop-fw", &network).await;
    let path = format!("/v2/networks/{network}");
    refused(&cloud.delete(&path).await, 409, "database_network_inuse_by_firewall");
    let body = json!({"name": "shop", "network_id": network, "instance_firewall": firewall});
    let cluster = text(&cloud.post("/v2/kubernetes/clusters", body).await.1["id"]);
    refused(&cloud.delete(&path).await, 409, "database_network_delete_with_instance");

    cloud.delete(&format!("/v2/kubernetes/clusters/{cluster}")).await;
    cloud.delete(&format!("/v2/firewalls/{firewall}")).await;
    assert_eq!(cloud.delete(&path).await.0, 200);

    let (_, networks) = cloud.get("/v2/networks").await;
    let default = text(&networks[0]["id"]);
    refused(&cloud.delete(&format!("/v2/networks/{default}")).await, 403, "network_delete_default");
}

#[tokio::test]
async fn the_region_is_asked_for() {
    let cloud = cloud().await;
    let no_region = cloud.send(cloud.http.get(format!("{}/v2/networks", cloud.url))).await;
    refused(&no_region, 400, "region_unavailable");
    let unknown = cloud.send(cloud.http.get(format!("{}/v2/networks?region=MARS1", cloud.url))).await;
    refused(&unknown, 404, "region_unavailable");
    refused(&cloud.post("/v2/networks", json!({"label": "x", "region": "MARS1"})).await, 404, "region_unavailable");
    let id = cloud.network("shop").await;
    let elsewhere = cloud.send(cloud.http.get(format!("{}/v2/networks/{id}?region=LON1", cloud.url))).await;
    refused(&elsewhere, 404, "database_network_not_found");
}
