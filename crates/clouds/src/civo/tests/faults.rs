//! What goes wrong in a cloud: answers that are lost, a token that is refused, an address where nobody answers.

use super::world::*;
use crate::props::text;
use crate::{Credentials, connect};
use berth_engine::diff;
use berth_engine::handler::Class;
use berth_engine::unit::Phase;

#[tokio::test]
async fn a_lost_answer_is_found_again() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let mut unit = cluster_unit(&network, "g4s.kube.small", 1, "1.29.0");
    world.fail("POST /v2/kubernetes/clusters drop-after");
    let trouble = world.create(&mut unit, TOKEN).await.unwrap_err();
    assert!(trouble.is_retry(), "{trouble}");
    assert!(trouble.to_string().starts_with("POST /v2/kubernetes/clusters: no answer from Civo"), "{trouble}");
    world.fail("");
    let found = world.handler(CLUSTER).find(&unit.props, Some(TOKEN)).await.unwrap().unwrap();
    world.settle(&unit, &found.id).await;
    assert_eq!(world.objects(CLUSTER).len(), 1);

    let mut pool = pool_unit(&found.id, "batch", "g4s.kube.medium", 1);
    world.fail("POST /v2/kubernetes/clusters/*/pools drop-after");
    assert!(world.create(&mut pool, TOKEN).await.unwrap_err().is_retry());
    world.fail("");
    let again = world.handler(POOL).find(&pool.props, Some(TOKEN)).await.unwrap().unwrap();
    assert_eq!(world.handler(POOL).find(&pool.props, Some("other")).await.unwrap(), None);
    let twice = world.handler(POOL).create(&pool.props, TOKEN, false).await.unwrap_err();
    assert!(matches!(twice.class, Class::Taken { .. }), "{twice}");
    world.settle(&pool, &again.id).await;
}

#[tokio::test]
async fn a_default_pool_changes_its_size_even_when_every_answer_is_lost() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let (unit, id) = world.cluster(&network).await;
    let mut pool = pool_unit(&id, "batch", "g4s.kube.medium", 1);
    world.make(&mut pool, TOKEN).await;
    let seen = world.look(&unit, &id).await.unwrap();

    let mut larger = cluster_unit(&network, "g4s.kube.large", 3, "1.29.0");
    larger.props = world.handler(CLUSTER).check(larger.props, Some(&seen)).await.unwrap();
    let handler = world.handler(CLUSTER);
    let mut sizes = Vec::new();
    for _ in 0..PASSES {
        let seen = world.look(&larger, &id).await.unwrap();
        let size = text(&seen.props, "default_node_pool.size").to_owned();
        if sizes.last() != Some(&size) {
            sizes.push(size);
        }
        if seen.phase == Phase::Ready {
            let changes = diff(handler, &larger.props, &seen);
            if changes.is_empty() {
                break;
            }
            let fields: Vec<&str> = changes.iter().map(|change| change.field.as_str()).collect();
            // Every change takes effect, and no answer to it ever arrives.
            world.fail("mutating drop-after");
            let _ = handler.update(&seen, &larger.props, &fields).await;
            world.fail("");
        }
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(sizes, ["g4s.kube.small", "g4s.kube.small + g4s.kube.large", "g4s.kube.large"]);
    let cluster = &world.objects(CLUSTER)[0];
    let pools: Vec<(&str, u64)> = cluster["pools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["size"].as_str().unwrap(), p["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(pools, [("g4s.kube.medium", 1), ("g4s.kube.large", 3)]);
}

#[tokio::test]
async fn unreachable_and_unwelcome_are_told_apart() {
    let world = World::new().await;
    world.fail("401");
    let trouble = world.cloud.identity().await.unwrap_err();
    assert_eq!(trouble.class, Class::Unauthorized);
    assert!(trouble.help_lines()[0].contains("CIVO_TOKEN"), "{:?}", trouble.help);
    world.fail("");
    assert_eq!(world.cloud.identity().await.unwrap().name(), "sandbox@berth.dev");

    let mut credentials = Credentials::new("civo", "secret-token-123");
    credentials.api_url = Some("http://127.0.0.1:9".into());
    let trouble = connect(&credentials).unwrap().identity().await.unwrap_err();
    assert!(trouble.is_retry() && trouble.to_string().contains("no answer from Civo"), "{trouble}");
    assert!(!format!("{trouble:?}").contains("secret-token-123"));
}
