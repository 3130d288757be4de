use berth_sandbox::{Config, Speed};
use serde_json::json;

use crate::client::{cloud, refused, start, text};

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

/// What Civo's Terraform provider and `civo network create --create-default-firewall` make with every network goes with it.
#[tokio::test]
async fn a_network_goes_with_its_default_firewall() {
    let cloud = cloud().await;
    let network = cloud.network("Shop net").await;
    let firewall = cloud.firewall("Shop net-default", &network).await;
    let path = format!("/v2/networks/{network}");
    assert_eq!(cloud.delete(&path).await, (200, json!({"id": network, "result": "success"})));
    refused(&cloud.get(&format!("/v2/firewalls/{firewall}")).await, 404, "database_firewall_not_found");

    let network = cloud.network("shop").await;
    cloud.firewall("store-default", &network).await;
    let path = format!("/v2/networks/{network}");
    refused(&cloud.delete(&path).await, 409, "database_network_inuse_by_firewall");
}

/// Civo's Terraform provider sends DELETE at each look, until one is answered as it likes.
#[tokio::test]
async fn deleting_a_network_again_succeeds_while_it_goes_and_once_it_is_gone() {
    let cloud = start(Config { speed: Speed::Times(100.0), ..Config::default() }).await;
    let network = cloud.network("shop").await;
    cloud.firewall("shop-default", &network).await;
    let path = format!("/v2/networks/{network}");
    let (mut going, mut gone) = (0, 0);
    for _ in 0..200 {
        assert_eq!(cloud.delete(&path).await, (200, json!({"id": network, "result": "success"})));
        match cloud.get(&path).await {
            (200, seen) => {
                assert_eq!(seen["status"], "Deleting");
                going += 1;
            }
            answer => {
                refused(&answer, 404, "database_network_not_found");
                gone += 1;
            }
        }
        if gone == 3 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(going > 0 && gone == 3, "{going} looks while it went, {gone} after");
    let never = "5d3f0d1c-0000-4000-8000-000000000000";
    refused(&cloud.delete(&format!("/v2/networks/{never}")).await, 404, "database_network_not_found");
}

#[tokio::test]
async fn the_default_network_has_its_firewall() {
    let cloud = cloud().await;
    let (_, network) = cloud.get("/v2/networks/default").await;
    let (status, firewall) = cloud.get("/v2/firewalls/default-default").await;
    assert_eq!((status, &firewall["network_id"], &firewall["rules_count"]), (200, &network["id"], &json!(6)));
}

#[tokio::test]
async fn nameservers_change_without_a_label() {
    let cloud = cloud().await;
    let id = cloud.network("shop").await;
    let path = format!("/v2/networks/{id}");
    let (status, made) = cloud.put(&path, json!({"label": "", "nameservers_v4": ["9.9.9.9", "1.0.0.1"]})).await;
    assert_eq!((status, &made["label"], &made["result"]), (200, &json!("shop"), &json!("success")));
    let (_, seen) = cloud.get(&path).await;
    assert_eq!((&seen["label"], &seen["nameservers_v4"]), (&json!("shop"), &json!(["9.9.9.9", "1.0.0.1"])));
}

/// Civo's CLI puts a name where the API has an id.
#[tokio::test]
async fn names_are_looked_up_where_the_cli_sends_them() {
    let cloud = cloud().await;
    let id = cloud.network("My Network").await;
    for path in ["/v2/networks/My%20Network", "/v2/vpc/networks/My%20Network"] {
        assert_eq!(cloud.get(path).await.1["id"], id.as_str(), "{path}");
    }
    let name = text(&cloud.get(&format!("/v2/networks/{id}")).await.1["name"]).replace(' ', "%20");
    assert_eq!(cloud.get(&format!("/v2/networks/{name}")).await.1["id"], id.as_str());
    let elsewhere = format!("{}/v2/networks/My%20Network?region=LON1", cloud.url);
    refused(&cloud.send(cloud.http.get(elsewhere)).await, 404, "database_network_not_found");

    let firewall = cloud.firewall("front door", &id).await;
    let body = json!({"name": "shop", "network_id": id, "num_target_nodes": 1});
    let cluster = text(&cloud.post("/v2/kubernetes/clusters", body).await.1["id"]);
    let path = format!("/v2/kubernetes/clusters/{cluster}");
    let (status, changed) = cloud.put(&path, json!({"firewall_id": "front door"})).await;
    assert_eq!((status, &changed["firewall_id"]), (200, &json!(firewall)));
    refused(&cloud.put(&path, json!({"firewall_id": "back door"})).await, 404, "database_firewall_not_found");
}
