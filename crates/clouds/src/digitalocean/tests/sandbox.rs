//! Each kind from create to delete, over real HTTP.

use super::lower::Given;
use super::world::*;
use berth_engine::handler::Class;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_network_from_create_to_delete() {
    let world = World::new().await;
    let (id, mut props) = world.make(NETWORK, &network()).await;
    let seen = world.look(NETWORK, &id, &props).await.unwrap();
    assert_eq!(seen.props["ip_range_cidr"], "10.30.0.0/20");
    assert_eq!(world.handler(NETWORK).find(&props, Some(TOKEN)).await.unwrap().unwrap().id, id);

    props.insert("description".into(), json!("for the blog"));
    let (seen, changed) = world.settle(NETWORK, &id, &props).await;
    assert_eq!((seen.props["description"].as_str(), changed.len()), (Some("for the blog"), 1));
    props.insert("description".into(), json!(""));
    let (seen, _) = world.settle(NETWORK, &id, &props).await;
    assert_eq!(seen.props["description"], "");

    let trouble = world.handler(NETWORK).create(&props, "another", false).await.unwrap_err();
    assert_eq!(trouble.class, Class::Taken { id: Some(id.clone()) });

    world.remove(NETWORK, &id, &props, false).await;
    assert!(world.everything().await.is_empty());

    props.insert("is_default_for_region".into(), json!(true));
    let id = world.handler(NETWORK).create(&props, TOKEN, false).await.unwrap();
    let (seen, changed) = world.settle(NETWORK, &id, &props).await;
    assert_eq!(changed, ["is_default_for_region"]);
    let trouble = world.handler(NETWORK).delete(&seen, &props, false).await.unwrap_err();
    assert!(trouble.to_string().contains("is the default network of fra1"), "{trouble}");
    world.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_from_create_to_delete_with_every_field_changed() {
    let world = World::new().await;
    let (vpc, vpc_props) = world.make(NETWORK, &network()).await;
    let (old, new) = versions(&world).await;
    let (id, props) = world.make(CLUSTER, &cluster(json!({"kubernetesVersion": old.clone()}))).await;
    assert_eq!(props["vpc"], json!(vpc), "the name was resolved");

    let readiness = world.ready(&id, &props).await;
    assert_eq!(readiness.gate.as_deref(), Some("api"));
    let mut gated = props.clone();
    gated.insert("ready_gate".into(), json!("cloud"));
    assert_eq!(world.ready(&id, &gated).await.gate.as_deref(), Some("cloud"));
    assert!(world.ready(&id, &props).await.secrets.contains_key("kubeconfig"));

    let seen = world.look(CLUSTER, &id, &props).await.unwrap();
    assert!(seen.outputs["api_server_endpoint"].as_str().unwrap().starts_with("https://"));
    assert_eq!(seen.props["default_node_pool.name"], "blog-k8s-default");

    let steps = [
        (json!({"defaultNodePool": {"size": "s-2vcpu-4gb", "nodeCount": 3}}), "default_node_pool.node_count"),
        (
            json!({"defaultNodePool": {"size": "s-2vcpu-4gb", "nodeCount": 2, "autoScale": true, "minNodes": 1, "maxNodes": 4}}),
            "default_node_pool.auto_scale default_node_pool.min_nodes default_node_pool.max_nodes",
        ),
        (json!({"defaultNodePool": {"size": "s-2vcpu-4gb", "nodeCount": 3}}), "default_node_pool.auto_scale"),
        (json!({"tags": ["web", "team:blog"]}), "tags"),
        (json!({"tags": []}), "tags"),
        (json!({"autoUpgrade": true}), "auto_upgrade"),
        (json!({"autoUpgrade": false}), "auto_upgrade"),
        (json!({"disableSurgeUpgrade": true}), "disable_surge_upgrade"),
        (json!({"maintenanceWindow": "sunday=02:00"}), "maintenance_window"),
        (json!({"controlPlaneFirewallAllowedIps": ["127.0.0.1", "10.0.0.0/8"]}), "control_plane_firewall_allowed_ips"),
        (json!({"controlPlaneFirewallAllowedIps": []}), "control_plane_firewall_allowed_ips"),
        (json!({"registryIntegration": true}), "registry_integration"),
        (json!({"registryIntegration": false}), "registry_integration"),
        (json!({"highlyAvailable": true}), "highly_available"),
        (json!({"clusterName": "blog-two"}), "cluster_name"),
        (json!({"kubernetesVersion": new.clone()}), "kubernetes_version"),
    ];
    let mut wanted = json!({"kubernetesVersion": old.clone()});
    for (change, fields) in steps {
        merge(&mut wanted, change.clone());
        let props = cluster(wanted.clone()).lower().unwrap().units.remove(0).props;
        let seen = world.look(CLUSTER, &id, &props).await.unwrap();
        let props = world.handler(CLUSTER).check(props, Some(&seen)).await.unwrap();
        let (_, changed) = world.settle(CLUSTER, &id, &props).await;
        assert!(changed.first().is_some_and(|first| first.starts_with(fields)), "{change} changed {changed:?}");
    }
    let seen = world.look(CLUSTER, &id, &props).await.unwrap();
    let refused = |field: &str, to: Value| world.handler(CLUSTER).refuse_change(field, &seen.props[field], &to);
    assert!(refused("kubernetes_version", json!(old)).unwrap().contains("cannot go back"));
    assert!(refused("highly_available", json!(false)).unwrap().contains("cannot take"));
    assert_eq!(refused("tags", json!([])), None);

    let network = world.look(NETWORK, &vpc, &vpc_props).await.unwrap();
    let trouble = world.handler(NETWORK).delete(&network, &vpc_props, false).await.unwrap_err();
    assert!(trouble.is_retry() && trouble.help_lines()[0].starts_with("see what is still in it"), "{trouble:?}");
    world.remove(CLUSTER, &id, &props, false).await;
    world.remove(NETWORK, &vpc, &vpc_props, false).await;
    assert!(world.everything().await.is_empty());
    world.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_pool_gets_another_size_whatever_is_lost_on_the_way() {
    let lost = [
        "",
        "POST /v2/kubernetes/clusters/*/node_pools drop-after times=1",
        "POST /v2/kubernetes/clusters/*/node_pools drop-before times=1",
        "DELETE /v2/kubernetes/clusters/*/node_pools/* drop-after times=1",
        "DELETE /v2/kubernetes/clusters/*/node_pools/* drop-before times=1",
        "PUT /v2/kubernetes/clusters/*/node_pools/* drop-after times=1",
        "PUT /v2/kubernetes/clusters/*/node_pools/* drop-before times=1",
    ];
    let world = World::new().await;
    world.make(NETWORK, &network()).await;
    let (version, _) = versions(&world).await;
    let (id, mut props) = world.make(CLUSTER, &cluster(json!({"kubernetesVersion": version}))).await;
    for (round, rule) in lost.iter().enumerate() {
        world.fail(rule);
        let size = if round % 2 == 0 { "s-4vcpu-8gb" } else { "s-2vcpu-4gb" };
        props.insert("default_node_pool.size".into(), json!(size));
        let (seen, changed) = world.settle(CLUSTER, &id, &props).await;
        world.fail("");
        assert_eq!(seen.props["default_node_pool.size"], size, "{rule}");
        let name = seen.props["default_node_pool.name"].as_str().unwrap();
        assert!(name.starts_with("blog-k8s-default-") && !name.contains('+'), "{rule}: {name}");
        assert!(!changed.is_empty(), "{rule}");
        let raised = world.cloud.raise_all().await.unwrap();
        assert!(raised.iter().all(|item| item.kind != "DigitalOceanKubernetesNodePool"), "{rule}: a pool was left");
    }
    world.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_from_create_to_delete() {
    let world = World::new().await;
    world.make(NETWORK, &network()).await;
    let (version, _) = versions(&world).await;
    let (cluster_id, _) = world.make(CLUSTER, &cluster(json!({"kubernetesVersion": version}))).await;
    let (id, props) = world.make(POOL, &pool(json!({"labels": {"tier": "batch"}}))).await;
    assert_eq!(props["cluster"], json!(cluster_id), "the name was resolved");

    let steps = [
        (json!({"nodeCount": 2}), "node_count"),
        (json!({"autoScale": true, "minNodes": 1, "maxNodes": 3}), "auto_scale min_nodes max_nodes"),
        (json!({"autoScale": false, "minNodes": 0, "maxNodes": 0}), "auto_scale"),
        (json!({"labels": {"tier": "batch", "team": "a"}}), "labels"),
        (json!({"labels": {}}), "labels"),
        (json!({"taints": [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]}), "taints"),
        (json!({"taints": []}), "taints"),
        (json!({"tags": ["b", "a"]}), "tags"),
        (json!({"tags": []}), "tags"),
        (json!({"nodePoolName": "batch-two"}), "node_pool_name"),
        (json!({"nodePoolName": "batch"}), "node_pool_name"),
    ];
    let mut wanted = json!({"labels": {"tier": "batch"}, "nodeCount": 2});
    for (change, fields) in steps {
        merge(&mut wanted, change.clone());
        let props = world.checked(POOL, &pool(wanted.clone())).await.unwrap();
        let (seen, changed) = world.settle(POOL, &id, &props).await;
        assert_eq!(changed, [fields], "{change}");
        assert_eq!(seen.outputs["node_ids"].as_array().unwrap().len(), 2);
    }

    // A new size: the new pool stands beside the old one, then takes its name.
    let mut next = world.checked(POOL, &pool(json!({"size": "s-4vcpu-8gb", "nodeCount": 2}))).await.unwrap();
    let token = "0190aaaabbbbccccddddeeee5678dcba";
    assert!(world.handler(POOL).find(&next, Some(token)).await.unwrap().is_none(), "the old one is not what was begun");
    world.fail("POST /v2/kubernetes/clusters/*/node_pools drop-after times=1");
    let trouble = world.handler(POOL).create(&next, token, true).await.unwrap_err();
    assert_eq!(trouble.class, Class::Unanswered, "{trouble:?}");
    world.fail("");
    let found = world.handler(POOL).find(&next, Some(token)).await.unwrap().unwrap();
    assert_eq!(found.props["node_pool_name"], "batch-5678dcba");
    world.remove(POOL, &id, &props, true).await;
    let (seen, changed) = world.settle(POOL, &found.id, &next).await;
    assert_eq!(
        (changed.as_slice(), seen.props["node_pool_name"].as_str()),
        (&["node_pool_name".to_owned()][..], Some("batch"))
    );

    let trouble = world.handler(POOL).create(&next, "another", false).await.unwrap_err();
    assert_eq!(trouble.class, Class::Taken { id: Some(found.id.clone()) });

    next.insert("cluster".into(), json!("blog-k8s"));
    assert_eq!(world.look(POOL, &found.id, &next).await.unwrap().id, found.id, "found by its id alone");
    world.remove(POOL, &found.id, &next, false).await;
    world.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_interrupted_create_made_is_found() {
    let world = World::new().await;
    let net = world.checked(NETWORK, &network()).await.unwrap();
    world.fail("POST /v2/vpcs drop-after times=1");
    assert!(world.handler(NETWORK).create(&net, TOKEN, false).await.unwrap_err().is_retry());
    assert!(world.handler(NETWORK).find(&net, Some(TOKEN)).await.unwrap().is_some());

    let (version, _) = versions(&world).await;
    let given = cluster(json!({"kubernetesVersion": version}));
    let props = world.checked(CLUSTER, &given).await.unwrap();
    let handler = world.handler(CLUSTER);
    assert!(handler.find(&props, Some(TOKEN)).await.unwrap().is_none());
    world.fail("POST /v2/kubernetes/clusters drop-before times=1");
    assert!(handler.create(&props, TOKEN, false).await.unwrap_err().is_retry());
    assert!(handler.find(&props, Some(TOKEN)).await.unwrap().is_none());
    world.fail("POST /v2/kubernetes/clusters drop-after times=1");
    assert!(handler.create(&props, TOKEN, false).await.unwrap_err().is_retry());
    let found = handler.find(&props, Some(TOKEN)).await.unwrap().unwrap();
    world.settle(CLUSTER, &found.id, &props).await;

    // The same name for another resource: in its way, and not its own.
    let mut other = Given::new("DigitalOceanKubernetesCluster", "other", given.spec.clone());
    other.metadata.env = "prod".into();
    let other = world.checked(CLUSTER, &other).await.unwrap();
    assert!(handler.find(&other, Some("another")).await.unwrap().is_none());
    assert_eq!(handler.find(&other, None).await.unwrap().unwrap().id, found.id);
    world.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_offered_is_refused_before_anything_is_made() {
    let world = World::new().await;
    world.make(NETWORK, &network()).await;
    let (version, _) = versions(&world).await;
    let with = |changes: Value| {
        let mut all = json!({"kubernetesVersion": version});
        merge(&mut all, changes);
        cluster(all)
    };
    let cases = [
        (with(json!({"kubernetesVersion": "1.12.0"})), "DigitalOcean does not offer Kubernetes 1.12.0"),
        (
            with(json!({"defaultNodePool": {"size": "s-2vcpu-5gb", "nodeCount": 1}})),
            "DigitalOcean has no nodes of size `s-2vcpu-5gb`",
        ),
        (with(json!({"vpc": {"value": "blog-nett"}})), "DigitalOcean has no network named `blog-nett`"),
    ];
    for (given, message) in cases {
        let trouble = world.checked(CLUSTER, &given).await.unwrap_err();
        assert_eq!((trouble.to_string().as_str(), &trouble.class), (message, &Class::Refused));
        assert!(!trouble.help.is_empty());
    }
    let trouble = world.checked(POOL, &pool(json!({}))).await.unwrap_err();
    assert_eq!(trouble.to_string(), "DigitalOcean has no cluster named `blog-k8s`");
    world.sandbox.stop().await;
}
