//! What goes wrong in a cloud: calls that fail at random, quotas, clusters that are stuck.

use super::world::*;
use berth_engine::handler::Class;
use berth_engine::unit::Phase;
use serde_json::json;
use std::time::Duration;

/// Creates until it is there, as the engine does: look for what was begun, then begin.
async fn insist(world: &World, unit_type: &str, given: &super::lower::Given, replacing: bool) -> String {
    // Each object has a token of its own.
    let token = if replacing { "0190aaaabbbbccccddddeeee5678dcba" } else { TOKEN };
    let props = world.checked(unit_type, given).await.unwrap();
    for _ in 0..200 {
        if let Some(found) = world.handler(unit_type).find(&props, Some(token)).await.unwrap() {
            return found.id;
        }
        match world.handler(unit_type).create(&props, token, replacing).await {
            Ok(id) => return id,
            Err(trouble) if trouble.is_retry() || matches!(trouble.class, Class::Taken { .. }) => {}
            Err(trouble) => panic!("{trouble}"),
        }
    }
    panic!("never made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_of_all_changes_failing_leaves_exactly_what_was_declared() {
    let world = World::new().await;
    let (_, _) = world.make(NETWORK, &network()).await;
    let (version, _) = versions(&world).await;
    world.fail("mutating digitalocean random=0.3");
    let given = cluster(json!({"kubernetesVersion": version}));
    let mut props = world.checked(CLUSTER, &given).await.unwrap();
    let id = insist(&world, CLUSTER, &given, false).await;
    world.settle(CLUSTER, &id, &props).await;
    for round in 0..4 {
        let size = ["c-2", "c-4", "s-2vcpu-4gb"][round % 3];
        props.insert("default_node_pool.size".into(), json!(size));
        props.insert("default_node_pool.node_count".into(), json!(1 + round % 2));
        props.insert("registry_integration".into(), json!(round % 2 == 0));
        let (seen, _) = world.settle(CLUSTER, &id, &props).await;
        let name = seen.props["default_node_pool.name"].as_str().unwrap();
        assert!(name.starts_with("blog-k8s-default-") && !name.contains('+'), "{name}");
    }
    let old = insist(&world, POOL, &pool(json!({})), false).await;
    let larger = pool(json!({"size": "c-4"}));
    let wanted = world.checked(POOL, &larger).await.unwrap();
    world.settle(POOL, &old, &world.checked(POOL, &pool(json!({}))).await.unwrap()).await;
    let new = insist(&world, POOL, &larger, true).await;
    assert_ne!(old, new);
    world.remove(POOL, &old, &wanted, true).await;
    let (seen, _) = world.settle(POOL, &new, &wanted).await;
    assert_eq!(seen.props["node_pool_name"], "batch");

    let all = world.everything().await;
    assert_eq!(all.iter().map(|(unit_type, _)| *unit_type).collect::<Vec<_>>(), [NETWORK, CLUSTER, POOL]);
    world.remove(CLUSTER, &id, &props, false).await;
    assert_eq!(world.everything().await.len(), 1);
    world.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_and_full_regions_say_what_to_do() {
    let world = World::new().await;
    world.make(NETWORK, &network()).await;
    let (version, _) = versions(&world).await;
    let props = world.checked(CLUSTER, &cluster(json!({"kubernetesVersion": version}))).await.unwrap();
    for rule in ["POST /v2/kubernetes/clusters quota", "POST /v2/kubernetes/clusters no-capacity=fra1"] {
        world.fail(rule);
        let trouble = world.handler(CLUSTER).create(&props, TOKEN, false).await.unwrap_err();
        assert_eq!(trouble.class, Class::Quota, "{rule}: {trouble}");
        assert!(trouble.help_lines().iter().any(|line| line.contains("raise the limit")));
    }
    world.fail("POST /v2/kubernetes/clusters 403");
    let trouble = world.handler(CLUSTER).create(&props, TOKEN, false).await.unwrap_err();
    assert_eq!(trouble.class, Class::Unauthorized);
    assert!(trouble.help_lines()[0].contains("DIGITALOCEAN_ACCESS_TOKEN"));
    assert!(world.handler(CLUSTER).find(&props, Some(TOKEN)).await.unwrap().is_none());
    world.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_cluster_shows_what_it_waits_for() {
    let world = World::new().await;
    world.make(NETWORK, &network()).await;
    let (version, _) = versions(&world).await;
    let props = world.checked(CLUSTER, &cluster(json!({"kubernetesVersion": version}))).await.unwrap();
    world.fail("POST /v2/kubernetes/clusters stuck");
    let id = world.handler(CLUSTER).create(&props, TOKEN, false).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let seen = world.look(CLUSTER, &id, &props).await.unwrap();
    let Phase::Pending(waiting) = seen.phase else { panic!("{:?}", seen.phase) };
    assert_eq!(waiting.to_string(), "building: 0 of 2 nodes ready");
    let help = world.handler(CLUSTER).overdue(&id, &waiting);
    assert!(help[0].contains(&format!("https://cloud.digitalocean.com/kubernetes/clusters/{id}")), "{help:?}");
    world.sandbox.stop().await;
}
