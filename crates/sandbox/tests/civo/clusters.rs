use berth_sandbox::{Config, Quota, Speed};
use serde_json::{Value, json};

use crate::client::{cloud, refused, start, text};

const CLUSTERS: &str = "/v2/kubernetes/clusters";

#[tokio::test]
async fn a_cluster_is_made_read_listed_and_deleted() {
    let cloud = cloud().await;
    let network = cloud.network("shop").await;
    let firewall = cloud.firewall("shop", &network).await;
    let body = json!({
        "name": "shop", "network_id": network, "instance_firewall": firewall, "kubernetes_version": "1.30.5-k3s1",
        "cni_plugin": "cilium", "tags": "team:web prod", "applications": "ArgoCD,MariaDB:10GB",
        "pools": [{"id": "main", "count": 3, "size": "g4s.kube.medium", "labels": {"tier": "front"},
                   "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
                  {"id": "gpu", "count": 1, "size": "g4g.40.kube.small", "public_ip_node_pool": true}],
    });
    let (status, made) = cloud.post(CLUSTERS, body).await;
    assert_eq!(status, 200, "{made}");
    let id = text(&made["id"]);
    let seen = cloud.show(&id).await;
    for (field, value) in [
        ("name", json!("shop")),
        ("status", json!("ACTIVE")),
        ("ready", json!(true)),
        ("cluster_type", json!("k3s")),
        ("num_target_nodes", json!(4)),
        ("target_nodes_size", json!("g4s.kube.medium")),
        ("kubernetes_version", json!("1.30.5-k3s1")),
        ("network_id", json!(network)),
        ("firewall_id", json!(firewall)),
        ("cni_plugin", json!("cilium")),
        ("tags", json!(["team:web", "prod"])),
        ("dns_entry", json!(format!("{id}.k8s.civo.com"))),
        ("upgrade_available_to", json!("1.32.5-k3s1")),
    ] {
        assert_eq!(seen[field], value, "{field}");
    }
    assert_eq!(text(&seen["api_endpoint"]), format!("https://{}/clusters/{id}", cloud.sandbox.kube_addr()));
    assert!(text(&seen["kubeconfig"]).contains("clusters:"));
    assert!(text(&seen["created_at"]).ends_with('Z'));
    let pools = &seen["pools"];
    assert_eq!((&pools[0]["id"], &pools[0]["count"], &pools[1]["id"]), (&json!("main"), &json!(3), &json!("gpu")));
    assert_eq!(
        (&pools[0]["labels"], &pools[0]["taints"][0]["effect"]),
        (&json!({"tier": "front"}), &json!("NoSchedule"))
    );
    assert_eq!(
        (&pools[1]["public_ip_node_pool"], &pools[0]["instances"][0]["status"]),
        (&json!(true), &json!("ACTIVE"))
    );
    assert_eq!(pools[0]["instance_names"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        (&seen["required_pools"][0]["count"], &seen["required_pools"][1]["size"]),
        (&json!(3), &json!("g4g.40.kube.small"))
    );
    let apps: Vec<_> =
        seen["installed_applications"].as_array().expect("apps").iter().map(|a| text(&a["name"])).collect();
    assert_eq!(apps, ["Traefik-v2-nodeport", "metrics-server", "ArgoCD", "MariaDB"]);

    let (_, page) = cloud.get(CLUSTERS).await;
    assert_eq!((&page["page"], &page["per_page"], &page["pages"]), (&json!(1), &json!(20), &json!(1)));
    assert_eq!(page["items"][0], seen);
    let (_, instances) = cloud.get(&format!("{CLUSTERS}/{id}/instances")).await;
    assert_eq!(instances.as_array().map(Vec::len), Some(4));

    let (status, deleted) = cloud.delete(&format!("{CLUSTERS}/{id}")).await;
    assert_eq!((status, &deleted["result"]), (200, &json!("success")));
    refused(&cloud.get(&format!("{CLUSTERS}/{id}")).await, 404, "database_kubernetes_cluster_not_found");
    refused(&cloud.delete(&format!("{CLUSTERS}/{id}")).await, 404, "database_kubernetes_cluster_not_found");
}

#[tokio::test]
async fn what_is_not_given_is_filled_in() {
    let cloud = cloud().await;
    let (_, made) = cloud.post(CLUSTERS, json!({"name": "plain"})).await;
    assert_eq!((&made["num_target_nodes"], &made["target_nodes_size"]), (&json!(3), &json!("g4s.kube.medium")));
    assert_eq!((&made["kubernetes_version"], &made["cni_plugin"]), (&json!("1.30.5-k3s1"), &json!("flannel")));
    assert_eq!((&made["tags"], made["pools"].as_array().map(Vec::len)), (&json!([]), Some(1)));
    let (_, networks) = cloud.get("/v2/networks").await;
    assert_eq!(made["network_id"], networks[0]["id"]);

    let (_, talos) = cloud.post(CLUSTERS, json!({"name": "t", "cluster_type": "talos", "num_target_nodes": 1})).await;
    assert_eq!((&talos["kubernetes_version"], &talos["num_target_nodes"]), (&json!("talos-v1.5.0"), &json!(1)));
}

#[tokio::test]
async fn the_cli_can_ask_for_a_firewall_with_the_cluster() {
    let cloud = cloud().await;
    let body = json!({"name": "shop", "firewall_rule": "80,443,6443;8000-8100:1.2.3.4", "tags": ["one tag", "two"],
                      "applications": "metrics-server,Nginx"});
    let (_, made) = cloud.post(CLUSTERS, body).await;
    let (_, firewall) = cloud.get(&format!("/v2/firewalls/{}", text(&made["firewall_id"]))).await;
    let rules = firewall["rules"].as_array().expect("rules");
    let ports: Vec<_> = rules.iter().map(|r| text(&r["ports"])).collect();
    assert_eq!(ports, ["80", "443", "6443", "8000-8100"]);
    assert_eq!((&rules[0]["cidr"][0], &rules[3]["cidr"][0]), (&json!("0.0.0.0/0"), &json!("1.2.3.4/32")));
    assert_eq!(made["tags"], json!(["one tag", "two"]));
    assert_eq!(made["installed_applications"].as_array().map(Vec::len), Some(2), "its list is the whole list");
}

#[tokio::test]
async fn wrong_clusters_are_refused() {
    let cloud = cloud().await;
    cloud.cluster("taken").await;
    let elsewhere = cloud.network("elsewhere").await;
    let firewall = cloud.firewall("f", &elsewhere).await;
    let with = |field: &str, value: Value| json!({"name": "new", field: value});
    for (body, status, code) in [
        (json!({"name": "taken"}), 409, "database_kubernetes_cluster_duplicate"),
        (json!({"name": "taken", "region": "LON1"}), 409, "database_kubernetes_cluster_duplicate"),
        (json!({}), 400, "kubernetes_cluster_invalid_name"),
        (json!({"name": "-x"}), 400, "kubernetes_cluster_invalid_name"),
        (json!({"name": "a b"}), 400, "kubernetes_cluster_invalid_name"),
        (json!({"name": "x".repeat(64)}), 400, "kubernetes_cluster_invalid_name"),
        (with("kubernetes_version", json!("1.2.3")), 400, "database_kubernetes_cluster_invalid_version"),
        (with("kubernetes_version", json!("1.30.5+k3s1")), 400, "database_kubernetes_cluster_invalid_version"),
        (with("network_id", json!("nope")), 404, "database_network_not_found"),
        (with("instance_firewall", json!("nope")), 404, "database_firewall_not_found"),
        (with("instance_firewall", json!(firewall)), 400, "database_firewall_mismatch"),
        (with("target_nodes_size", json!("g9.huge")), 404, "database_size_not_found"),
        (with("target_nodes_size", json!("g4s.medium")), 404, "database_size_not_found"),
        (with("num_target_nodes", json!(0)), 400, "database_kubernetes_cluster_invalid"),
        (with("num_target_nodes", json!(4_000_000_000_i64)), 400, "database_kubernetes_cluster_invalid"),
        (with("cni_plugin", json!("weave")), 400, "database_kubernetes_cluster_invalid"),
        (with("cluster_type", json!("kubeadm")), 400, "database_kubernetes_cluster_invalid"),
        (with("applications", json!("Nope")), 404, "database_kubernetes_application_not_found"),
        (with("applications", json!("MariaDB:7GB")), 400, "database_kubernetes_application_invalid_plan"),
        (
            with("pools", json!([{"id": "a", "count": 1}, {"id": "a", "count": 1}])),
            409,
            "database_cluster_pool_duplicate",
        ),
        (
            with("pools", json!([{"taints": [{"key": "a", "effect": "Never"}]}])),
            400,
            "database_kubernetes_cluster_invalid",
        ),
        (with("pools", json!("many")), 400, "json_parse_error"),
    ] {
        refused(&cloud.post(CLUSTERS, body).await, status, code);
    }
    let broken = cloud.request(reqwest::Method::POST, CLUSTERS).body("{\"name\":");
    refused(&cloud.send(broken).await, 400, "json_parse_error");
    let ledger = cloud.admin("ledger").await;
    assert_eq!(ledger["totals"]["civo.cluster"]["created"], 1);
}

#[tokio::test]
async fn a_cluster_is_changed_in_place() {
    let cloud = cloud().await;
    let id = cloud.cluster("shop").await;
    cloud.cluster("other").await;
    let path = format!("{CLUSTERS}/{id}");
    let network = text(&cloud.show(&id).await["network_id"]);
    let firewall = cloud.firewall("tight", &network).await;
    let body = json!({"name": "store", "kubernetes_version": "1.30.5-k3s1", "tags": "x", "firewall_id": firewall,
                      "num_target_nodes": 4, "applications": "Nginx,metrics-server"});
    let (status, changed) = cloud.put(&path, body).await;
    assert_eq!(status, 200, "{changed}");
    let seen = cloud.show(&id).await;
    assert_eq!((&seen["name"], &seen["kubernetes_version"]), (&json!("store"), &json!("1.30.5-k3s1")));
    assert_eq!((&seen["tags"], &seen["firewall_id"]), (&json!(["x"]), &json!(firewall)));
    assert_eq!((&seen["num_target_nodes"], &seen["pools"][0]["count"]), (&json!(4), &json!(4)));
    assert_eq!(seen["installed_applications"].as_array().map(Vec::len), Some(3));
    assert_eq!(cloud.put(&path, json!({"tags": ""})).await.1["tags"], json!([]));
    assert_eq!(
        cloud.put(&path, json!({"kubernetes_version": "1.30.5-k3s1"})).await.0,
        200,
        "the same version is no change"
    );

    for (body, status, code) in [
        (json!({"name": "other"}), 409, "database_kubernetes_cluster_duplicate"),
        (json!({"name": "no good"}), 400, "kubernetes_cluster_invalid_name"),
        (json!({"kubernetes_version": "1.29.8-k3s1"}), 400, "database_kubernetes_cluster_invalid_version"),
        (json!({"kubernetes_version": "9.9.9"}), 400, "database_kubernetes_cluster_invalid_version"),
        (json!({"network_id": "other"}), 400, "database_kubernetes_cluster_invalid"),
        (json!({"cni_plugin": "cilium"}), 400, "database_kubernetes_cluster_invalid"),
        (json!({"firewall_id": "nope"}), 404, "database_firewall_not_found"),
        (json!({"num_target_nodes": -1}), 400, "database_kubernetes_cluster_invalid"),
        (
            json!({"pools": [{"id": "main", "count": 1, "size": "g4s.kube.large"}]}),
            400,
            "database_kubernetes_cluster_invalid",
        ),
    ] {
        refused(&cloud.put(&path, body).await, status, code);
    }
    assert_eq!(cloud.show(&id).await["name"], "store", "a refused change changes nothing");
    refused(&cloud.put(&format!("{CLUSTERS}/nope"), json!({})).await, 404, "database_kubernetes_cluster_not_found");
}

#[tokio::test]
async fn quotas_hold() {
    let quota = Quota { clusters: 2, nodes: 5, networks: 8, firewalls: 2, ..Quota::default() };
    let cloud = start(Config { speed: Speed::Instant, quota, ..Config::default() }).await;
    let first = cloud.cluster("one").await;
    let too_many = cloud.post(CLUSTERS, json!({"name": "two", "num_target_nodes": 4})).await;
    refused(&too_many, 403, "quota_limit_reached");
    cloud.cluster("two").await;
    refused(&cloud.post(CLUSTERS, json!({"name": "three", "num_target_nodes": 1})).await, 403, "quota_limit_reached");
    let path = format!("{CLUSTERS}/{first}");
    assert_eq!(cloud.put(&path, json!({"num_target_nodes": 3})).await.0, 200);
    refused(&cloud.put(&path, json!({"num_target_nodes": 4})).await, 403, "quota_limit_reached");
    let (_, shown) = cloud.get("/v2/quota").await;
    assert_eq!((&shown["instance_count_limit"], &shown["instance_count_usage"]), (&json!(5), &json!(5)));
    cloud.network("a").await;
    cloud.network("b").await;
    refused(&cloud.post("/v2/networks", json!({"label": "c"})).await, 403, "quota_limit_reached");
}

#[tokio::test]
async fn the_catalogue_is_there() {
    let cloud = cloud().await;
    let bare = |path: &str| cloud.http.get(format!("{}{path}", cloud.url));
    let (_, versions) = cloud.send(bare("/v2/kubernetes/versions")).await;
    let default: Vec<_> = versions.as_array().expect("versions").iter().filter(|v| v["default"] == true).collect();
    assert_eq!(
        (default.len(), &default[0]["version"], &default[0]["clusterType"]),
        (1, &json!("1.30.5-k3s1"), &json!("k3s"))
    );
    let (_, sizes) = cloud.send(bare("/v2/sizes")).await;
    let medium = sizes.as_array().expect("sizes").iter().find(|s| s["name"] == "g4s.kube.medium").expect("medium");
    assert_eq!(
        (&medium["type"], &medium["cpu_cores"], &medium["ram_mb"]),
        (&json!("Kubernetes"), &json!(2), &json!(4096))
    );
    let (_, applications) = cloud.send(bare("/v2/kubernetes/applications")).await;
    assert!(applications.as_array().is_some_and(|a| a.iter().any(|a| a["name"] == "civo-cluster-autoscaler")));
    for path in ["/v2/volumes", "/v2/loadbalancers", "/v2/vpc/loadbalancers", "/v2/sshkeys"] {
        assert_eq!(cloud.get(path).await, (200, json!([])), "{path}");
    }
    for path in ["/v2/instances", "/v2/ips", "/v2/vpc/ips", "/v2/databases", "/v2/objectstores"] {
        assert_eq!(cloud.get(path).await.1["items"], json!([]), "{path}");
    }
    for path in ["/v2/accounts", "/v2/organisation", "/v2/ping", "/v2/disk_images"] {
        assert_eq!(cloud.get(path).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn what_the_documents_of_the_provider_look_up_is_there() {
    let cloud = cloud().await;
    let (_, regions) = cloud.get("/v2/regions").await;
    for region in regions.as_array().expect("regions") {
        assert_eq!((&region["features"]["kubernetes"], &region["features"]["volume"]), (&json!(true), &json!(true)));
    }
    let named = |list: &serde_json::Value, name: &str| {
        list.as_array().and_then(|all| all.iter().find(|one| one["name"] == name).cloned()).expect("one of that name")
    };
    let (_, sizes) = cloud.get("/v2/sizes").await;
    assert_eq!(named(&sizes, "g3.small")["type"], "Instance");
    let instance = cloud.post(CLUSTERS, json!({"name": "x", "target_nodes_size": "g3.small"})).await;
    assert_eq!(instance.0, 404, "sizes of instances carry no nodes");

    let (_, images) = cloud.get("/v2/disk_images").await;
    let focal = named(&images, "ubuntu-focal");
    let (status, one) = cloud.get(&format!("/v2/disk_images/{}", text(&focal["id"]))).await;
    assert_eq!((status, &one), (200, &focal));
    refused(&cloud.get("/v2/disk_images/nope").await, 404, "database_disk_image_not_found");

    let (_, applications) = cloud.get("/v2/kubernetes/applications").await;
    let plans = &named(&applications, "PostgreSQL")["plans"];
    assert_eq!(plans[0], json!({"label": "5GB", "configuration": {"VOLUME_SIZE": {"value": "5Gi"}}}));

    let (_, types) = cloud.get("/v2/volumetypes").await;
    assert_eq!(types[0]["enabled"], true);
    let network = cloud.network("shop").await;
    for family in ["/v2", "/v2/vpc"] {
        let subnets = format!("{family}/networks/{network}/subnets");
        assert_eq!(cloud.get(&subnets).await, (200, json!([])));
        refused(&cloud.get(&format!("{subnets}/nope")).await, 404, "database_subnet_not_found");
        refused(&cloud.post(&subnets, json!({"name": "front"})).await, 403, "subnet_create_unavailable");
    }
}
