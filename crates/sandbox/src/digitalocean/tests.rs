//! The API over real HTTP, as clients see it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{Config, Quota, Sandbox, Speed};

pub(super) struct Cloud {
    sandbox: Sandbox,
    client: reqwest::Client,
}

impl Cloud {
    pub(super) async fn start(config: Config) -> Cloud {
        let sandbox = Sandbox::start(config).await.unwrap();
        Cloud { sandbox, client: reqwest::Client::new() }
    }

    pub(super) async fn instant() -> Cloud {
        Cloud::start(Config { speed: Speed::Instant, ..Config::default() }).await
    }

    pub(super) async fn raw(&self, method: Method, path: &str, body: Option<Value>) -> reqwest::Response {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.sandbox.url(crate::digitalocean::NAME)))
            .bearer_auth("any");
        if let Some(body) = body {
            request = request.json(&body);
        }
        request.send().await.unwrap()
    }

    pub(super) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let response = self.raw(method, path, body).await;
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() })
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::POST, path, Some(body)).await
    }

    pub(super) async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::PUT, path, Some(body)).await
    }

    pub(super) async fn delete(&self, path: &str) -> (u16, Value) {
        self.call(Method::DELETE, path, None).await
    }

    pub(super) async fn cluster(&self, name: &str) -> Value {
        let (status, body) = self.post("/v2/kubernetes/clusters", cluster(name)).await;
        assert_eq!(status, 201, "{body}");
        body["kubernetes_cluster"].clone()
    }

    /// Sends what must be refused, and gives the message.
    pub(super) async fn refused(&self, method: Method, path: &str, body: Value, status: u16) -> String {
        let (seen, answer) = self.call(method, path, Some(body.clone())).await;
        assert_eq!(seen, status, "{path} {body}: {answer}");
        assert!(answer["id"].is_string() && answer["request_id"].is_string(), "{answer}");
        answer["message"].as_str().unwrap().to_owned()
    }
}

fn cluster(name: &str) -> Value {
    json!({
        "name": name, "region": "fra1", "version": "1.32.5-do.0", "tags": ["team-a", "env:dev"],
        "node_pools": [{"name": "default", "size": "s-2vcpu-4gb", "count": 2}],
    })
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_on_offer_can_be_listed() {
    let cloud = Cloud::instant().await;
    assert_eq!(cloud.get("/v2/account").await["account"]["status"], "active");
    let options = cloud.get("/v2/kubernetes/options").await;
    let slugs = |list: &Value| {
        list.as_array().unwrap().iter().map(|o| o["slug"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(slugs(&options["options"]["versions"]).contains(&"1.33.1-do.0".to_owned()));
    assert_eq!(options["options"]["versions"][0]["kubernetes_version"], "1.33.4");
    let regions = cloud.get("/v2/regions?per_page=200").await;
    assert_eq!(slugs(&regions["regions"]).len(), slugs(&options["options"]["regions"]).len());
    let sizes = cloud.get("/v2/sizes?per_page=200").await;
    assert!(slugs(&sizes["sizes"]).contains(&"s-1vcpu-2gb".to_owned()));
    assert_eq!(cloud.call(Method::GET, "/v2/nothing", None).await.0, 404);
    assert_eq!(cloud.call(Method::GET, "/v1/account", None).await.0, 404);
}

#[tokio::test]
async fn answers_carry_request_ids_and_the_state_of_the_rate_limit() {
    let cloud = Cloud::instant().await;
    let response = cloud.raw(Method::GET, "/v2/account", None).await;
    for header in ["x-request-id", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"] {
        assert!(response.headers().contains_key(header), "{header}");
    }
    let response = cloud.raw(Method::GET, "/v2/vpcs/none", None).await;
    let header = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["request_id"], header);
    assert_eq!(body["id"], "not_found");
}

#[tokio::test]
async fn a_spent_rate_limit_answers_429_until_the_minute_is_over() {
    let quota = Quota { requests_per_hour: 5_000, requests_per_minute: 3, ..Quota::default() };
    let cloud = Cloud::start(Config { quota, speed: Speed::Times(60.0), ..Config::default() }).await;
    for left in ["4999", "4998", "4997"] {
        let response = cloud.raw(Method::GET, "/v2/account", None).await;
        assert_eq!(response.headers()["ratelimit-remaining"], left);
    }
    let response = cloud.raw(Method::GET, "/v2/account", None).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["ratelimit-remaining"], "0");
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(response.json::<Value>().await.unwrap()["id"], "too_many_requests");
    tokio::time::sleep(std::time::Duration::from_secs(wait.min(2))).await;
    assert_eq!(cloud.call(Method::GET, "/v2/account", None).await.0, 200);
}

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
async fn lists_come_in_pages() {
    let cloud = Cloud::instant().await;
    for n in 0..5 {
        cloud.cluster(&format!("c{n}")).await;
    }
    let first = cloud.get("/v2/kubernetes/clusters?per_page=2").await;
    assert_eq!(first["kubernetes_clusters"].as_array().unwrap().len(), 2);
    assert_eq!(first["meta"]["total"], 5);
    assert!(first["links"]["pages"]["next"].as_str().unwrap().contains("page=2&per_page=2"), "{first}");
    assert!(first["links"]["pages"].get("prev").is_none());
    let last = cloud.get("/v2/kubernetes/clusters?page=3&per_page=2").await;
    assert_eq!(last["kubernetes_clusters"][0]["name"], "c4");
    assert!(last["links"]["pages"].get("next").is_none() && last["links"]["pages"]["prev"].is_string());
    let beyond = cloud.get("/v2/kubernetes/clusters?page=9&per_page=2").await;
    assert_eq!(beyond["kubernetes_clusters"], json!([]));
    let all = cloud.get("/v2/kubernetes/clusters?per_page=9999").await;
    assert_eq!((all["kubernetes_clusters"].as_array().unwrap().len(), &all["links"]), (5, &json!({})));
}

#[tokio::test]
async fn a_cluster_goes_through_its_phases() {
    // Seven simulated minutes in about two seconds: slow enough to see each phase on a busy machine.
    let cloud = Cloud::start(Config { speed: Speed::Times(200.0), ..Config::default() }).await;
    let made = cloud.cluster("shop").await;
    let path = format!("/v2/kubernetes/clusters/{}", id(&made));
    assert_eq!(made["status"], json!({"state": "provisioning", "message": "provisioning"}));
    assert_eq!(made["endpoint"], "");
    assert_eq!(made["node_pools"][0]["nodes"][0]["status"]["state"], "provisioning");
    assert_eq!(cloud.call(Method::GET, &format!("{path}/kubeconfig"), None).await.0, 412);
    let mut seen = made;
    for _ in 0..500 {
        seen = cloud.get(&path).await["kubernetes_cluster"].clone();
        if seen["status"]["state"] == "running" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(seen["status"]["state"], "running");
    assert!(seen["endpoint"].as_str().unwrap().starts_with("https://127.0.0.1:"));
    assert_eq!(seen["node_pools"][0]["nodes"][1]["status"]["state"], "running");
    let created: jiff::Timestamp = seen["created_at"].as_str().unwrap().parse().unwrap();
    let ready: jiff::Timestamp = seen["node_pools"][0]["nodes"][0]["updated_at"].as_str().unwrap().parse().unwrap();
    let took = ready.as_second() - created.as_second();
    assert!((340..=420).contains(&took), "{took}");

    assert_eq!(cloud.delete(&path).await.0, 204);
    assert_eq!(cloud.get(&path).await["kubernetes_cluster"]["status"]["state"], "deleted");
    assert_eq!(cloud.delete(&path).await.0, 204);
    for _ in 0..500 {
        if cloud.call(Method::GET, &path, None).await.0 == 404 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(cloud.call(Method::GET, &path, None).await.0, 404);
    assert_eq!(cloud.delete(&path).await.0, 404);
    let ledger = cloud.get("/_sandbox/ledger").await;
    assert_eq!(ledger["totals"]["digitalocean.cluster"], json!({"created": 1, "deleted": 1, "live": 0}));
    assert_eq!(ledger["totals"]["digitalocean.pool"], json!({"created": 1, "deleted": 1, "live": 0}));
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

#[tokio::test]
async fn new_nodes_take_minutes_and_leaving_ones_show_it() {
    let cloud = Cloud::start(Config { speed: Speed::Times(1.0), ..Config::default() }).await;
    let made = cloud.cluster("shop").await;
    let path = format!("/v2/kubernetes/clusters/{}/node_pools/{}", id(&made), id(&made["node_pools"][0]));
    let (_, grown) = cloud.put(&path, json!({"count": 3})).await;
    let states = |pool: &Value| {
        let nodes = pool["node_pool"]["nodes"].as_array().unwrap();
        nodes.iter().map(|node| node["status"]["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states(&grown), ["provisioning", "provisioning", "provisioning"]);
    let (_, shrunk) = cloud.put(&path, json!({"count": 1})).await;
    assert_eq!(states(&shrunk), ["provisioning", "deleting", "deleting"]);
    assert_eq!(shrunk["node_pool"]["count"], 1);
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
async fn an_upgrade_takes_its_time() {
    let cloud = Cloud::start(Config { speed: Speed::Times(300.0), ..Config::default() }).await;
    let path = format!("/v2/kubernetes/clusters/{}", id(&cloud.cluster("shop").await));
    let state = || async { cloud.get(&path).await["kubernetes_cluster"]["status"]["state"].clone() };
    let (early, answer) = cloud.post(&format!("{path}/upgrade"), json!({"version": "1.33.4-do.0"})).await;
    assert_eq!((early, answer["id"].as_str()), (412, Some("precondition_failed")));
    for wanted in ["running", "upgrading", "running"] {
        if wanted == "upgrading" {
            assert_eq!(cloud.post(&format!("{path}/upgrade"), json!({"version": "1.33.4-do.0"})).await.0, 202);
        }
        for _ in 0..1000 {
            if state().await == wanted {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(state().await, wanted);
    }
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
