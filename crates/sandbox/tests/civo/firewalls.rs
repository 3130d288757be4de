use serde_json::json;

use crate::client::{cloud, refused, text};

#[tokio::test]
async fn a_firewall_without_rules_is_open() {
    let cloud = cloud().await;
    let network = cloud.network("shop").await;
    let id = cloud.firewall("open", &network).await;
    let (_, list) = cloud.get("/v2/firewalls").await;
    let seen = list.as_array().and_then(|all| all.iter().find(|one| one["name"] == "open")).expect("the firewall");
    assert_eq!((&seen["id"], &seen["name"], &seen["network_id"]), (&json!(id), &json!("open"), &json!(network)));
    assert_eq!((&seen["rules_count"], &seen["cluster_count"]), (&json!(6), &json!(0)));
    assert_eq!((&seen["rules"][0]["ports"], &seen["rules"][0]["direction"]), (&json!("1-65535"), &json!("ingress")));
}

#[tokio::test]
async fn rules_are_taken_at_creation_and_changed_later() {
    let cloud = cloud().await;
    let network = cloud.network("shop").await;
    let body = json!({"name": "shop", "network_id": network, "create_rules": false, "rules": [
        {"protocol": "tcp", "ports": "443", "cidr": ["0.0.0.0/0"], "direction": "ingress", "action": "allow", "label": "web"},
        {"protocol": "udp", "start_port": "8000", "end_port": "9000", "cidr": ["10.0.0.0/8"], "direction": "egress", "action": "deny"},
        {"protocol": "icmp", "cidr": "1.2.3.4", "direction": "ingress", "action": "allow"}]});
    let (status, made) = cloud.post("/v2/vpc/firewalls", body).await;
    assert_eq!((status, &made["result"], &made["name"]), (200, &json!("success"), &json!("shop")));
    let path = format!("/v2/firewalls/{}", text(&made["id"]));

    let (_, rules) = cloud.get(&format!("{path}/rules")).await;
    assert_eq!(rules.as_array().map(Vec::len), Some(3));
    assert_eq!(
        (&rules[0]["start_port"], &rules[0]["end_port"], &rules[0]["label"]),
        (&json!("443"), &json!("443"), &json!("web"))
    );
    assert_eq!((&rules[1]["ports"], &rules[1]["action"]), (&json!("8000-9000"), &json!("deny")));
    assert_eq!((&rules[2]["cidr"], &rules[2]["ports"]), (&json!(["1.2.3.4/32"]), &json!("")));

    let new = json!({"protocol": "tcp", "start_port": "22", "cidr": ["10.0.0.0/8"], "direction": "ingress"});
    let (status, rule) = cloud.post(&format!("{path}/rules"), new).await;
    assert_eq!((status, &rule["end_port"], &rule["action"]), (200, &json!("22"), &json!("allow")));
    let rule_path = format!("{path}/rules/{}", text(&rule["id"]));
    assert_eq!(cloud.get(&rule_path).await.1["protocol"], "tcp");
    assert_eq!(cloud.delete(&rule_path).await.1["result"], "success");
    refused(&cloud.delete(&rule_path).await, 404, "database_firewall_rules_find");

    let (_, renamed) = cloud.put(&path, json!({"name": "store"})).await;
    assert_eq!((&renamed["result"], &renamed["name"]), (&json!("success"), &json!("store")));
    assert_eq!(cloud.get(&path).await.1["name"], "store");
    assert_eq!(cloud.delete(&path).await.1["result"], "success");
    refused(&cloud.get(&path).await, 404, "database_firewall_not_found");
}

#[tokio::test]
async fn create_rules_comes_as_text_too() {
    let cloud = cloud().await;
    let network = cloud.network("shop").await;
    for (form, rules) in [(json!("true"), 6), (json!(true), 6), (json!("false"), 0), (json!(false), 0)] {
        let body = json!({"name": format!("f-{form}"), "network_id": network, "create_rules": form});
        let id = text(&cloud.post("/v2/firewalls", body).await.1["id"]);
        assert_eq!(cloud.get(&format!("/v2/firewalls/{id}")).await.1["rules"].as_array().map(Vec::len), Some(rules));
    }
}

#[tokio::test]
async fn wrong_firewalls_and_rules_are_refused() {
    let cloud = cloud().await;
    let network = cloud.network("shop").await;
    let id = cloud.firewall("shop", &network).await;
    let again = cloud.post("/v2/firewalls", json!({"name": "shop", "network_id": network})).await;
    refused(&again, 409, "database_firewall_duplicate_name");
    let nowhere = cloud.post("/v2/firewalls", json!({"name": "x", "network_id": "nope"})).await;
    refused(&nowhere, 404, "database_network_not_found");
    refused(&cloud.post("/v2/firewalls", json!({"network_id": network})).await, 400, "parameter_name_invalid");

    let path = format!("/v2/firewalls/{id}/rules");
    refused(&cloud.post(&path, json!({"protocol": "tcp"})).await, 400, "parameter_start_port_missing");
    for wrong in [
        json!({"protocol": "smtp", "ports": "25"}),
        json!({"ports": "99999"}),
        json!({"ports": "90-80"}),
        json!({"ports": "80", "cidr": ["10.0.0.0/99"]}),
        json!({"ports": "80", "direction": "sideways"}),
        json!({"ports": "80", "action": "maybe"}),
    ] {
        refused(&cloud.post(&path, wrong).await, 400, "database_firewall_rules_invalid_params");
    }
}

#[tokio::test]
async fn a_firewall_in_use_stays() {
    let cloud = cloud().await;
    let network = cloud.network("shop").await;
    let firewall = cloud.firewall("shop", &network).await;
    let body = json!({"name": "shop", "network_id": network, "instance_firewall": firewall});
    let cluster = text(&cloud.post("/v2/kubernetes/clusters", body).await.1["id"]);
    let path = format!("/v2/firewalls/{firewall}");
    assert_eq!(cloud.get(&path).await.1["cluster_count"], 1);
    refused(&cloud.delete(&path).await, 409, "database_firewall_inuse_by_cluster");
    cloud.delete(&format!("/v2/kubernetes/clusters/{cluster}")).await;
    assert_eq!(cloud.delete(&path).await.1["result"], "success");
}
