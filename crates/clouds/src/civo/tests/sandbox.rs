//! Each unit type from create to delete, over real HTTP.

use super::lower::{lowered, manifest};
use super::world::*;
use crate::props::text;
use berth_engine::handler::Class;
use berth_engine::unit::{Op, Unit};
use berth_engine::{ChangeEffect, FieldChange, UnitPlan};
use serde_json::{Value, json};

fn firewall_unit(network: &str, rules: &str) -> Unit {
    let spec = format!("name: shop-fw\nregion: fra1\nnetworkId: {{value: {network}}}\ninboundRules: {rules}\n");
    lowered(&manifest("CivoFirewall", "shop-fw", &spec), &[]).unwrap().units.remove(0)
}

#[tokio::test]
async fn a_network_comes_changes_and_goes() {
    let world = World::new().await;
    let (mut unit, id) = world.network().await;
    let seen = world.look(&unit, &id).await.unwrap();
    assert_eq!(text(&seen.outputs, "cidr_block"), "10.20.0.0/24");
    assert_eq!(world.handler(NETWORK).find(&unit.props, None).await.unwrap().unwrap().id, id);
    unit.props.insert("network_name".into(), json!("shop-net-2"));
    world.settle(&unit, &id).await;
    let taken = world.handler(NETWORK).create(&unit.props, "other", false).await.unwrap_err();
    assert!(matches!(taken.class, Class::Taken { .. }), "{taken}");
    world.remove(&unit, &id, false).await;
    assert_eq!(world.handler(NETWORK).find(&unit.props, None).await.unwrap(), None);
}

#[tokio::test]
async fn a_network_is_made_although_civo_cannot_make_it_the_default_one() {
    let world = World::new().await;
    let yaml = manifest("CivoVpc", "n", "networkName: n\nregion: fra1\nisDefaultForRegion: true\n");
    let mut unit = lowered(&yaml, &[]).unwrap().units.remove(0);
    let id = world.make(&mut unit, TOKEN).await;
    let seen = world.look(&unit, &id).await.unwrap();
    assert_eq!(seen.props["is_default_for_region"], json!(false));
}

/// Civo puts a firewall into the network of that label: whose that is nobody would know from the plan.
#[tokio::test]
async fn a_name_stands_for_no_network_and_no_firewall() {
    let world = World::new().await;
    let (_, id) = world.network().await;
    let trouble = world.create(&mut firewall_unit("shop-net", "[]"), TOKEN).await.unwrap_err();
    assert!(
        trouble.to_string().contains("no network with the id") && trouble.help_lines()[0].contains(&id),
        "{trouble:?}"
    );
    let upper = firewall_unit(&id.to_uppercase(), "[]");
    let checked = world.handler(FIREWALL).check(upper.props, None).await.unwrap();
    assert_eq!(text(&checked, "network_id"), id, "an id has one form");
    let guard = world.make(&mut firewall_unit(&id, "[]"), TOKEN).await;
    let mut cluster = cluster_unit(&id.to_uppercase(), "g4s.kube.small", 1, "1.29.0");
    cluster.props.insert("firewall".into(), "shop-fw".into());
    let trouble = world.handler(CLUSTER).check(cluster.props.clone(), None).await.unwrap_err();
    assert!(trouble.to_string().contains("no firewall with the id `shop-fw`"), "{trouble:?}");
    cluster.props.insert("firewall".into(), guard.to_uppercase().into());
    let checked = world.handler(CLUSTER).check(cluster.props, None).await.unwrap();
    assert_eq!((text(&checked, "network"), text(&checked, "firewall")), (id.as_str(), guard.as_str()));
}

#[tokio::test]
async fn firewall_rules_change_without_a_gap() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let mut unit = firewall_unit(
        &network,
        "[{protocol: tcp, portRange: '80'}, {protocol: tcp, portRange: '443'}, {protocol: icmp}]",
    );
    let id = world.make(&mut unit, TOKEN).await;
    let seen = world.look(&unit, &id).await.unwrap();
    assert_eq!(seen.props["rules"], json!(["icmp from 0.0.0.0/0", "tcp 443 from 0.0.0.0/0", "tcp 80 from 0.0.0.0/0"]));

    // The removal fails: what is new must be there already, and what stays must not be doubled by the next attempt.
    let mut wider = firewall_unit(
        &network,
        "[{protocol: tcp, portRange: '443'}, {protocol: tcp, portRange: 8000-9000, label: apps}]",
    );
    wider.props = world.handler(FIREWALL).check(wider.props, Some(&seen)).await.unwrap();
    world.fail("DELETE /v2/firewalls/*/rules/* 500");
    let trouble = world.handler(FIREWALL).update(&seen, &wider.props, &["rules"]).await.unwrap_err();
    assert!(trouble.is_retry(), "{trouble}");
    let between = world.look(&unit, &id).await.unwrap().props["rules"].clone();
    assert_eq!(
        between,
        json!([
            "icmp from 0.0.0.0/0",
            "tcp 443 from 0.0.0.0/0",
            "tcp 80 from 0.0.0.0/0",
            "tcp 8000-9000 from 0.0.0.0/0 (apps)"
        ])
    );
    world.fail("");
    world.settle(&wider, &id).await;
    let rules = world.objects(FIREWALL).last().unwrap()["rules"].clone();
    assert_eq!(rules.as_array().map(Vec::len).or(rules.as_u64().map(|n| n as usize)), Some(2), "{rules}");
    world.remove(&wider, &id, false).await;
}

#[tokio::test]
async fn a_cluster_is_built_used_changed_and_deleted() {
    let world = World::new().await;
    let (network_unit, network) = world.network().await;
    let mut unit = cluster_unit(&network, "g4s.kube.small", 2, "v1.29.0");
    let id = world.create(&mut unit, TOKEN).await.unwrap();
    assert_eq!(text(&unit.props, "kubernetes_version"), "1.29.0-k3s1");
    let (seen, phases) = world.settle(&unit, &id).await;
    assert!(phases.iter().any(|p| p.starts_with("building: ") && p.ends_with(" of 2 nodes ready")), "{phases:?}");
    assert!(!text(&seen.outputs, "created_at").is_empty());
    let readiness = world.ready(&unit, &id).await;
    assert_eq!(readiness.gate.as_deref(), Some("api"));
    assert!(readiness.secrets.contains_key("kubeconfig_b64"));
    assert_eq!(seen.props["tags"].as_array().unwrap().len(), 4, "{:?}", seen.props["tags"]);

    let mut more = cluster_unit(&network, "g4s.kube.small", 4, "1.30.5");
    more.props.insert("cluster_name".into(), json!("shop-k9s"));
    more.props.insert("applications".into(), json!(["Redis:5GB"]));
    more.props = world.handler(CLUSTER).check(more.props, Some(&seen)).await.unwrap();
    let (seen, phases) = world.settle(&more, &id).await;
    assert!(phases.contains(&"upgrading to 1.30.5-k3s1".to_owned()), "{phases:?}");
    assert!(phases.iter().any(|p| p.starts_with("scaling: ") && p.ends_with(" of 4 nodes")), "{phases:?}");
    let applications = seen.props["applications"].to_string();
    assert!(applications.contains("cert-manager") && applications.contains("Redis:5GB"), "{applications}");
    // The mark that finds a lost create survives changes.
    assert_eq!(world.handler(CLUSTER).find(&more.props, Some(TOKEN)).await.unwrap().unwrap().id, id);

    let back = world.handler(CLUSTER).refuse_change("kubernetes_version", &json!("1.30.5-k3s1"), &json!("1.29.0"));
    assert!(back.is_some_and(|why| why.contains("cannot go back to 1.29.0")));
    let held = world
        .handler(NETWORK)
        .delete(&world.look(&network_unit, &network).await.unwrap(), &network_unit.props, false)
        .await;
    let held = held.unwrap_err();
    assert_eq!(held.class, Class::Refused);
    assert!(held.to_string().contains("shop-k9s"), "{held}");
    world.remove(&more, &id, false).await;
    world.remove(&network_unit, &network, false).await;
    assert_eq!(world.objects(CLUSTER).len(), 0);
}

#[tokio::test]
async fn what_the_cloud_does_not_offer_is_refused_with_what_it_does() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let refuse = async |size: &str, version: &str, change: &dyn Fn(&mut Unit)| {
        let mut unit = cluster_unit(&network, size, 1, version);
        change(&mut unit);
        let trouble = world.create(&mut unit, TOKEN).await.unwrap_err();
        assert_eq!(trouble.class, Class::Refused);
        format!("{}: {}", trouble, trouble.help_lines().join("; "))
    };
    let version = refuse("g4s.kube.small", "1.29.7", &|_| {}).await;
    assert!(
        version.starts_with("Civo does not offer Kubernetes 1.29.7 in fra1: the nearest it offers: 1.29.8-k3s1"),
        "{version}"
    );
    let size = refuse("g4s.medium", "1.29.0", &|_| {}).await;
    assert!(size.starts_with("Civo has no size `g4s.medium` for nodes in fra1"), "{size}");
    let application =
        refuse("g4s.kube.small", "1.29.0", &|u| drop(u.props.insert("applications".into(), json!(["redsi"])))).await;
    assert!(application.contains("no application `redsi`") && application.contains("Redis"), "{application}");
    let plan =
        refuse("g4s.kube.small", "1.29.0", &|u| drop(u.props.insert("applications".into(), json!(["redis:7GB"]))))
            .await;
    assert!(plan.contains("no plan `7GB`") && plan.contains("5GB"), "{plan}");
    let network =
        refuse("g4s.kube.small", "1.29.0", &|u| drop(u.props.insert("network".into(), json!("default")))).await;
    assert!(network.contains("the network named `default` has the id"), "{network}");
    assert_eq!(world.objects(CLUSTER).len(), 0);
}

#[tokio::test]
async fn a_taken_name_tells_whose_it_is() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let (mut unit, id) = world.cluster(&network).await;
    let trouble = world.create(&mut unit, "another-token").await.unwrap_err();
    assert_eq!(trouble.class, Class::Taken { id: Some(id.clone()) });
    assert_eq!(world.handler(CLUSTER).find(&unit.props, Some("another-token")).await.unwrap(), None);
    assert_eq!(world.handler(CLUSTER).find(&unit.props, None).await.unwrap().unwrap().id, id);
}

#[tokio::test]
async fn a_pool_scales_relabels_and_goes() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let (_, cluster) = world.cluster(&network).await;
    let mut unit = pool_unit("shop-k8s", "batch", "g4s.kube.medium", 2);
    let id = world.make(&mut unit, TOKEN).await;
    assert_eq!(text(&unit.props, "cluster_id"), cluster, "a cluster's name is resolved to its id");
    let (seen, _) = world.settle(&unit, &id).await;
    let pool_id = text(&seen.outputs, "node_pool_id");
    assert!(pool_id.starts_with("batch-") && id == format!("{cluster}/{pool_id}"));
    assert_eq!(seen.outputs["node_ids"].as_array().unwrap().len(), 2);

    unit.props.insert("node_count".into(), json!(3));
    unit.props["labels"]["workload"] = json!("night");
    unit.props.insert("taints".into(), json!([]));
    let (seen, phases) = world.settle(&unit, &id).await;
    assert!(phases.contains(&"scaling: 2 of 3 nodes".to_owned()), "{phases:?}");
    assert_eq!((&seen.props["taints"], &seen.props["labels"]["workload"]), (&json!([]), &json!("night")));
    world.remove(&unit, &id, true).await;
    let pools = world.objects(CLUSTER)[0]["pools"].as_array().unwrap().iter().filter(|p| p["count"] != 0).count();
    assert_eq!(pools, 1);
}

#[tokio::test]
async fn labels_of_the_default_pool_are_its_nodes() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let mut unit = cluster_unit(&network, "g4s.kube.small", 1, "1.29.0");
    unit.props.insert("default_node_pool.labels".into(), json!({"tier": "web"}));
    let id = world.make(&mut unit, TOKEN).await;
    world.ready(&unit, &id).await;
    let labels = || world.sandbox.world().cluster_view(&id).unwrap().nodes[0].labels.clone();
    assert_eq!(labels().get("tier").map(String::as_str), Some("web"));

    unit.props.insert("default_node_pool.labels".into(), json!({"tier": "db"}));
    world.settle(&unit, &id).await;
    assert_eq!(labels().get("tier").map(String::as_str), Some("db"));
    // Another size is another pool, with the same labels.
    unit.props.insert("default_node_pool.size".into(), json!("g4s.kube.medium"));
    world.settle(&unit, &id).await;
    assert_eq!(labels().get("tier").map(String::as_str), Some("db"));
    let raised = world.cloud.raise("CivoKubernetesCluster", &id, "").await.unwrap();
    assert_eq!(raised.spec["defaultNodePool"]["labels"], json!({"tier": "db"}));
    unit.props.insert("default_node_pool.labels".into(), json!({}));
    world.settle(&unit, &id).await;
    assert!(!labels().contains_key("tier"));
}

#[tokio::test]
async fn expected_times_follow_what_changes() {
    let world = World::new().await;
    let unit = cluster_unit("net-1", "g4s.kube.small", 3, "1.30.5");
    let seconds = |field: &str, from: Value, to: Value| {
        let change = FieldChange { field: field.into(), from, to, effect: ChangeEffect::InPlace };
        world.handler(CLUSTER).typical(Op::Update, &unit.props, &[change]).unwrap().as_secs()
    };
    assert_eq!(seconds("default_node_pool.node_count", json!(2), json!(3)), 60);
    assert_eq!(seconds("default_node_pool.node_count", json!(5), json!(2)), 180);
    let upgrade = seconds("kubernetes_version", json!("1.29.0-k3s1"), json!("1.30.5-k3s1"));
    assert!((300..=600).contains(&upgrade), "{upgrade}");
    assert!(seconds("tags", json!([]), json!(["web"])) < 60);
}

#[tokio::test]
async fn a_restricted_cluster_has_a_firewall_of_its_own() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let spec = format!(
        "clusterName: shop-k8s\nregion: {REGION}\nkubernetesVersion: 1.29.0\nnetwork: {{value: {network}}}\n\
         defaultNodePool: {{size: g4s.kube.small, nodeCount: 1}}\napiAllowedCidrs: [203.0.113.0/24]\n"
    );
    let units = lowered(&manifest("CivoKubernetesCluster", "shop", &spec), &[]).unwrap().units;
    let made = make_all(&world, units).await;
    let seen = world.look(&made[1].0, &made[1].1).await.unwrap();
    assert_eq!(text(&seen.props, "firewall"), made[0].1);
    let own = world.look(&made[0].0, &made[0].1).await.unwrap();
    let refused = world.handler(FIREWALL).check_leaving(&own, &[]).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the firewall `shop-k8s-api` that apiAllowedCidrs made cannot go: shop-k8s uses it"
    );
    assert!(
        refused.help_lines().iter().any(|line| line.contains("apiAllowedCidrs: [0.0.0.0/0]")),
        "{:?}",
        refused.help
    );
    // The same plan gives the cluster another firewall.
    let moving: UnitPlan = serde_json::from_value(json!({
        "key": "cluster", "unit_type": CLUSTER, "op": "update",
        "changes": [{"field": "firewall", "from": made[0].1, "to": "another", "takes": "in_place"}],
    }))
    .unwrap();
    world.handler(FIREWALL).check_leaving(&own, &[moving]).await.unwrap();
    let trouble = {
        let seen = world.look(&made[0].0, &made[0].1).await.unwrap();
        world.handler(FIREWALL).delete(&seen, &made[0].0.props, false).await.unwrap_err()
    };
    assert_eq!(trouble.class, Class::Refused);
    assert!(
        trouble.help_lines().iter().any(|line| line.contains("apiAllowedCidrs: [0.0.0.0/0]")),
        "{:?}",
        trouble.help
    );
    for (unit, id) in made.iter().rev() {
        world.remove(unit, id, false).await;
    }
    assert!(world.objects(CLUSTER).is_empty());
}
