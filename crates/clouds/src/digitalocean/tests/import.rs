//! Lists and import.

use super::lower::Given;
use super::world::*;
use berth_engine::diff;
use berth_engine::handler::Class;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_imported_plans_nothing() {
    let world = World::new().await;
    let (vpc, _) = world.make(NETWORK, &network()).await;
    let (version, _) = versions(&world).await;
    let full = json!({
        "kubernetesVersion": version, "autoUpgrade": true, "maintenanceWindow": "any=00:00",
        "defaultNodePool": {"size": "s-2vcpu-4gb", "nodeCount": 2, "autoScale": true, "minNodes": 1, "maxNodes": 4}
    });
    let (id, _) = world.make(CLUSTER, &cluster(full)).await;
    let taints = json!([{"key": "dedicated", "effect": "NoSchedule"}]);
    let (batch, _) = world.make(POOL, &pool(json!({"labels": {"tier": "b"}, "taints": taints, "tags": ["x"]}))).await;

    let raised = world.cloud.raise_all().await.unwrap();
    let found: Vec<(&str, &str)> = raised.iter().map(|item| (item.kind.as_str(), item.name.as_str())).collect();
    assert_eq!(
        found,
        [
            ("DigitalOceanVpc", "blog-net"),
            ("DigitalOceanKubernetesCluster", "blog-k8s"),
            ("DigitalOceanKubernetesNodePool", "batch")
        ]
    );
    assert_eq!(raised[1].links, [("vpc".to_owned(), "DigitalOceanVpc".to_owned(), vpc)]);
    assert_eq!(raised[2].links[0].2, id);
    let all = world.everything().await;
    assert_eq!(all.iter().map(|(unit_type, _)| *unit_type).collect::<Vec<_>>(), [NETWORK, CLUSTER, POOL]);

    for item in raised {
        let kind = ["DigitalOceanVpc", "DigitalOceanKubernetesCluster", "DigitalOceanKubernetesNodePool"];
        let kind = kind.into_iter().find(|kind| *kind == item.kind).unwrap();
        let one = world.cloud.raise(&item.kind, item.units.values().next().unwrap(), "").await.unwrap();
        assert_eq!(one.spec, item.spec);
        let unit = Given::new(kind, "imported", item.spec).lower().unwrap().units.remove(0);
        let id = &item.units[&unit.key];
        let (_, seen) = all.iter().find(|(unit_type, seen)| *unit_type == unit.unit_type && seen.id == *id).unwrap();
        assert_eq!(diff(world.handler(&unit.unit_type), &unit.props, seen), [], "{}", item.kind);
    }
    let trouble = world.cloud.raise("DigitalOceanVpc", &batch, "").await.unwrap_err();
    assert_eq!(trouble.class, Class::NotFound);
    let identity = world.cloud.identity().await.unwrap();
    assert!(
        identity.id().starts_with("digitalocean:") && identity.name() == "sandbox@berth.dev, Sandbox",
        "{identity}"
    );
    assert!(world.cloud.calls() > 10);
    world.sandbox.stop().await;
}
