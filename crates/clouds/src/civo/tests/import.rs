//! Lists, import, and how many calls they take.

use super::lower::{lowered, manifest};
use super::world::*;
use berth_engine::diff;
use berth_sandbox::Speed;
use futures::future::join_all;
use std::collections::BTreeMap;

#[tokio::test]
async fn clusters_and_pools_come_by_pages() {
    let world = World::at(Speed::Instant).await;
    let (_, network) = world.network().await;
    let clusters = (0..130).map(|n| {
        let (world, network) = (&world, &network);
        async move {
            let mut unit = cluster_unit(network, "g4s.kube.small", 1, "1.29.0");
            unit.props.insert("cluster_name".into(), format!("fleet-{n}").into());
            let id = world.create(&mut unit, &format!("token-{n}")).await.unwrap();
            let mut pool = pool_unit(&id, "batch", "g4s.kube.medium", 1);
            world.create(&mut pool, &format!("token-{n}")).await.unwrap();
        }
    });
    join_all(clusters).await;
    let before = world.cloud.calls();
    let (mut page, mut seen) = (1, BTreeMap::new());
    loop {
        let answer = world.cloud.list("civo.clusters", "fra1", page).await.unwrap();
        assert_eq!(answer.pages, Some(2));
        answer.items.iter().for_each(|item| *seen.entry(item.unit_type).or_insert(0) += 1);
        match answer.next {
            Some(next) => page = next,
            None => break,
        }
    }
    assert_eq!(seen, BTreeMap::from([(CLUSTER, 130), (POOL, 130)]));
    assert_eq!(world.cloud.calls() - before, 2);

    // Many who look for something lost at the same time share the walk through the list.
    let unit = cluster_unit(&network, "g4s.kube.small", 1, "1.29.0");
    let before = world.cloud.calls();
    let finds = (0..40).map(|n| {
        let (handler, props) = (world.handler(CLUSTER), &unit.props);
        async move { handler.find(props, Some(&format!("token-{n}"))).await.unwrap().is_some() }
    });
    assert!(join_all(finds).await.into_iter().all(|found| found));
    let calls = world.cloud.calls() - before;
    assert!(calls <= 40 + 3 * 2, "{calls} calls");
}

#[tokio::test]
async fn what_civo_makes_by_itself_is_imported_only_where_it_is_used() {
    let world = World::at(Speed::Instant).await;
    let names = async || -> Vec<String> {
        let raised = world.cloud.raise_all().await.unwrap();
        raised.iter().map(|found| format!("{}/{}", found.kind, found.name)).collect()
    };
    let empty: Vec<String> = Vec::new();
    assert_eq!(names().await, empty);

    // A cluster in the default network brings along the network and the firewall that Civo made for it.
    let networks = world.cloud.list("civo.networks", "fra1", 1).await.unwrap().items;
    let default = networks.iter().find(|n| n.observed.props["is_default_for_region"] == true).unwrap();
    let (unit, id) = world.cluster(&default.observed.id).await;
    let found = names().await;
    assert_eq!(found.len(), 3, "{found:?}");
    for kind in ["CivoVpc/default", "CivoFirewall/default-", "CivoKubernetesCluster/shop-k8s"] {
        assert!(found.iter().any(|name| name.starts_with(kind)), "{kind}: {found:?}");
    }

    // Nobody uses them any more; a user's own firewall keeps the network.
    world.remove(&unit, &id, false).await;
    assert_eq!(names().await, empty);
    let fw = format!("name: shop-fw\nregion: fra1\nnetworkId: {{value: {}}}\n", default.observed.id);
    let mut fw = lowered(&manifest("CivoFirewall", "fw", &fw), &[]).unwrap().units.remove(0);
    world.make(&mut fw, TOKEN).await;
    assert_eq!(names().await, ["CivoVpc/default", "CivoFirewall/shop-fw"]);
}

#[tokio::test]
async fn what_is_imported_plans_empty() {
    let world = World::at(Speed::Instant).await;
    let (_, network) = world.network().await;
    let fw = format!(
        "name: shop-fw\nregion: fra1\nnetworkId: {{value: {network}}}\ninboundRules:\n- {{protocol: tcp, portRange: '443', label: web}}\n\
         - {{protocol: udp, cidrs: [10.0.0.0/8], action: deny}}\n"
    );
    let mut fw = lowered(&manifest("CivoFirewall", "fw", &fw), &[]).unwrap().units.remove(0);
    let firewall = world.make(&mut fw, TOKEN).await;
    let mut unit = cluster_unit(&network, "g4s.kube.small", 2, "1.29.0");
    unit.props.insert("firewall".into(), firewall.clone().into());
    let cluster = world.make(&mut unit, TOKEN).await;
    let mut pool = pool_unit(&cluster, "batch", "g4s.kube.medium", 1);
    let pool_id = world.make(&mut pool, TOKEN).await;

    let mut raised = world.cloud.raise_all().await.unwrap();
    raised.push(world.cloud.raise("CivoKubernetesNodePool", &pool_id, "fra1").await.unwrap());
    raised.push(world.cloud.raise("CivoKubernetesCluster", &cluster, "").await.unwrap());
    let mut compared = Vec::new();
    for found in &raised {
        let yaml = serde_json::json!({
            "apiVersion": "civo.berth.dev/v1", "kind": found.kind, "metadata": {"name": found.name}, "spec": found.spec,
        });
        let units = lowered(&yaml.to_string(), &[]).unwrap().units;
        for unit in &units {
            let id = &found.units[&unit.key];
            let seen = world.look(unit, id).await.unwrap();
            // What another unit's output fills is checked by the engine; here it stands for itself.
            let mut props = unit.props.clone();
            props.retain(|_, value| value.get("$unit").is_none());
            assert_eq!(diff(world.handler(&unit.unit_type), &props, &seen), vec![], "{} {}", found.kind, found.name);
            compared.push(unit.unit_type.clone());
        }
    }
    for unit_type in [NETWORK, FIREWALL, CLUSTER, POOL] {
        assert!(compared.iter().any(|t| t == unit_type), "{unit_type} was not imported: {compared:?}");
    }
    let links: Vec<&str> = raised.iter().flat_map(|r| r.links.iter().map(|(field, ..)| field.as_str())).collect();
    assert!(links.contains(&"network") && links.contains(&"firewall") && links.contains(&"cluster"), "{links:?}");

    let trouble = world.cloud.raise("CivoVpc", "no-such-id", "fra1").await.unwrap_err();
    assert!(trouble.is_not_found(), "{trouble}");
}
