//! Clusters: settings, upgrades, credentials, what is refused.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::*;

#[tokio::test]
async fn a_firewall_of_nulls_is_one_that_is_off() {
    let cloud = Cloud::instant().await;
    let nulls = json!({"enabled": null, "allowed_addresses": null});
    let (status, made) =
        cloud.post("/v2/kubernetes/clusters", with(cluster("shop"), "control_plane_firewall", nulls)).await;
    let off = json!({"enabled": false, "allowed_addresses": []});
    assert_eq!((status, &made["kubernetes_cluster"]["control_plane_firewall"]), (201, &off));
}

#[tokio::test]
async fn settings_of_a_cluster_come_back_as_given() {
    let cloud = Cloud::instant().await;
    let mut body = cluster("shop");
    body["maintenance_policy"] = json!({"start_time": "2:00", "day": "sunday", "duration": ""});
    body["control_plane_firewall"] = json!({"enabled": true, "allowed_addresses": ["1.2.3.4/32"]});
    body["ha"] = json!(false);
    body["surge_upgrade"] = json!(true);
    body["routing_agent"] = json!({"enabled": true});
    let (status, made) = cloud.post("/v2/kubernetes/clusters", body).await;
    assert_eq!(status, 201, "{made}");
    let made = &made["kubernetes_cluster"];
    let path = format!("/v2/kubernetes/clusters/{}", id(made));
    let own = [json!("team-a"), json!("env:dev"), json!("k8s"), json!(format!("k8s:{}", id(made)))];
    assert_eq!(made["tags"], json!(own));
    assert_eq!(made["maintenance_policy"], json!({"start_time": "02:00", "day": "sunday", "duration": "4h0m0s"}));
    assert_eq!(made["control_plane_firewall"], json!({"enabled": true, "allowed_addresses": ["1.2.3.4/32"]}));
    assert_eq!(made["routing_agent"], json!({"enabled": true}));
    assert_eq!(made["amd_gpu_device_plugin"], Value::Null);
    let default_vpc = cloud.get(&format!("/v2/vpcs/{}", made["vpc_uuid"].as_str().unwrap())).await;
    assert_eq!(default_vpc["vpc"]["name"], "default-fra1");

    let change = json!({"name": "shop-2", "ha": true, "auto_upgrade": true, "tags": ["k8s", "new"]});
    let (status, changed) = cloud.put(&path, change).await;
    let changed = &changed["kubernetes_cluster"];
    assert_eq!(
        (status, &changed["ha"], &changed["auto_upgrade"], &changed["name"]),
        (202, &json!(true), &json!(true), &json!("shop-2"))
    );
    assert_eq!(changed["tags"], json!(["new", "k8s", format!("k8s:{}", id(changed))]));
    assert_eq!(changed["surge_upgrade"], true);
    let message = cloud.refused(Method::PUT, &path, json!({"name": "shop-2", "ha": false}), 422).await;
    assert!(message.contains("cannot be disabled"), "{message}");

    let id = id(changed);
    assert_eq!(cloud.post("/v2/kubernetes/registry", json!({"cluster_uuids": [id]})).await.0, 204);
    assert_eq!(cloud.get(&path).await["kubernetes_cluster"]["registry_enabled"], true);
    assert_eq!(
        cloud.call(Method::DELETE, "/v2/kubernetes/registry", Some(json!({"cluster_uuids": [id]}))).await.0,
        204
    );
    assert_eq!(cloud.get(&path).await["kubernetes_cluster"]["registry_enabled"], false);
    assert_eq!(cloud.post("/v2/kubernetes/registry", json!({"cluster_uuids": ["none"]})).await.0, 404);
    assert_eq!(cloud.post("/v2/kubernetes/registry", json!({})).await.0, 422);
    assert_eq!(cloud.get(&format!("{path}/destroy_with_associated_resources")).await["volumes"], json!([]));
    assert_eq!(cloud.get(&format!("{path}/status_messages")).await["messages"], json!([]));
    assert!(cloud.get(&format!("{path}/user")).await["kubernetes_cluster_user"]["username"].is_string());
    assert_eq!(cloud.delete(&format!("{path}/destroy_with_associated_resources/dangerous")).await.0, 204);
    assert_eq!(cloud.call(Method::GET, &path, None).await.0, 404);
}

#[tokio::test]
async fn bad_clusters_are_refused() {
    let cloud = Cloud::instant().await;
    let pool = |change: Value| {
        let mut pool = json!({"name": "default", "size": "s-2vcpu-4gb", "count": 2});
        change.as_object().unwrap().iter().for_each(|(key, value)| pool[key] = value.clone());
        with(cluster("shop"), "node_pools", json!([pool]))
    };
    let (_, elsewhere) = cloud.post("/v2/vpcs", json!({"name": "far", "region": "nyc3"})).await;
    for (body, says) in [
        (with(cluster("shop"), "version", json!("1.99.0-do.0")), "invalid version slug"),
        (with(cluster("shop"), "region", json!("mars1")), "invalid region"),
        (with(cluster("Shop"), "tags", json!([])), "name \"Shop\" is invalid"),
        (with(cluster("shop"), "tags", json!(["a b"])), "tag \"a b\" is not valid"),
        (with(cluster("shop"), "node_pools", json!([])), "at least one node pool"),
        (with(cluster("shop"), "node_pools", Value::Null), "at least one node pool"),
        (with(cluster("shop"), "vpc_uuid", elsewhere["vpc"]["id"].clone()), "is in region nyc3"),
        (with(cluster("shop"), "vpc_uuid", json!("none")), "was not found"),
        (with(cluster("shop"), "cluster_subnet", json!("wide")), "cluster_subnet"),
        (
            with(cluster("shop"), "maintenance_policy", json!({"start_time": "25:00", "day": "any"})),
            "maintenance_policy",
        ),
        (
            with(cluster("shop"), "maintenance_policy", json!({"start_time": "2:00", "day": "someday"})),
            "maintenance_policy",
        ),
        (
            with(cluster("shop"), "control_plane_firewall", json!({"enabled": true, "allowed_addresses": ["x"]})),
            "\"x\"",
        ),
        (pool(json!({"size": "huge"})), "invalid droplet size"),
        (pool(json!({"count": 0})), "count must be greater than 0"),
        (pool(json!({"count": -1})), "count must be between"),
        (pool(json!({"name": "x".repeat(56)})), "greater than 55 characters"),
        (pool(json!({"name": "Bad_Name"})), "DNS label"),
        (pool(json!({"min_nodes": 1, "max_nodes": 3})), "need auto_scale"),
        (pool(json!({"auto_scale": true, "min_nodes": 3, "max_nodes": 2})), "not less than min_nodes"),
        (pool(json!({"taints": [{"key": "k", "effect": "Sometimes"}]})), "taint"),
    ] {
        let message = cloud.refused(Method::POST, "/v2/kubernetes/clusters", body, 422).await;
        assert!(message.contains(says), "{message}");
    }
    let twice = json!([{"name": "a", "size": "c-2", "count": 1}, {"name": "a", "size": "c-2", "count": 1}]);
    let message =
        cloud.refused(Method::POST, "/v2/kubernetes/clusters", with(cluster("shop"), "node_pools", twice), 422).await;
    assert!(message.contains("must be unique"), "{message}");
    assert_eq!(cloud.get("/v2/kubernetes/clusters").await["meta"]["total"], 0);
}

#[tokio::test]
async fn clusters_are_upgraded_but_never_downwards() {
    let cloud = Cloud::instant().await;
    let made = cloud.cluster("shop").await;
    let path = format!("/v2/kubernetes/clusters/{}", id(&made));
    let upgrades = cloud.get(&format!("{path}/upgrades")).await;
    let slugs: Vec<&str> = upgrades["available_upgrade_versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["slug"].as_str().unwrap())
        .collect();
    assert!(slugs.contains(&"1.33.1-do.0") && !slugs.contains(&"1.32.5-do.0"), "{slugs:?}");
    let upgrade = format!("{path}/upgrade");
    for (version, says) in [
        ("1.31.9-do.3", "cannot upgrade"),
        ("1.32.5-do.0", "already"),
        ("2.0.0-do.0", "invalid version"),
        ("", "invalid version"),
    ] {
        let message = cloud.refused(Method::POST, &upgrade, json!({"version": version}), 422).await;
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(cloud.post(&upgrade, json!({"version": "1.33.4-do.0"})).await.0, 202);
    assert_eq!(cloud.get(&path).await["kubernetes_cluster"]["version"], "1.33.4-do.0");
    assert_eq!(cloud.get(&format!("{path}/upgrades")).await["available_upgrade_versions"], Value::Null);
    assert_eq!(cloud.post("/v2/kubernetes/clusters/none/upgrade", json!({"version": "1.33.4-do.0"})).await.0, 404);
}

#[tokio::test]
async fn credentials_open_the_clusters_api() {
    let cloud = Cloud::instant().await;
    let path = format!("/v2/kubernetes/clusters/{}", id(&cloud.cluster("shop").await));
    let response = cloud.raw(Method::GET, &format!("{path}/kubeconfig"), None).await;
    assert_eq!(response.headers()["content-type"], "application/yaml");
    let text = response.text().await.unwrap();
    assert!(text.contains("current-context: \"do-fra1-shop\"") && text.contains("token: "), "{text}");

    let given = cloud.get(&format!("{path}/credentials?expiry_seconds=600")).await;
    use base64::Engine;
    let ca = base64::engine::general_purpose::STANDARD
        .decode(given["certificate_authority_data"].as_str().unwrap())
        .unwrap();
    let client =
        reqwest::Client::builder().add_root_certificate(reqwest::Certificate::from_pem(&ca).unwrap()).build().unwrap();
    let url = format!("{}/version", given["server"].as_str().unwrap());
    let token = given["token"].as_str().unwrap();
    let version: Value = client.get(&url).bearer_auth(token).send().await.unwrap().json().await.unwrap();
    assert_eq!(version["gitVersion"], "v1.32.5");
    assert_eq!(client.get(&url).bearer_auth("wrong").send().await.unwrap().status(), 401);
    let expires: jiff::Timestamp = given["expires_at"].as_str().unwrap().parse().unwrap();
    assert!(expires > jiff::Timestamp::now());
}
