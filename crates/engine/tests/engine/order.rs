//! Who comes before whom, and who is not tried when another fails.

use crate::cloud::Fault;
use crate::world::{Spec, World, ops, parse};
use berth_engine::ResourceState;
use berth_engine::handler::{Class, Help, Trouble};
use berth_engine::{Interrupt, Report};
use std::time::Duration;

fn names(ids: &[berth_model::ResourceId]) -> Vec<&str> {
    let mut names: Vec<&str> = ids.iter().map(|id| id.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn failed(report: &Report) -> Vec<&str> {
    report.failed.iter().map(|(id, _)| id.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_made_comes_after_what_it_refers_to_and_goes_before_it() {
    let mut world = World::with(&Spec::full()).await;
    assert_eq!(
        world.cloud.lock().log,
        [
            "create fake.network net",
            "create fake.firewall fw",
            "create fake.cluster k8s",
            "create fake.pool gpu",
            "create fake.pool batch"
        ]
    );
    world.cloud.lock().log.clear();
    world.destroy().await.unwrap();
    world.assert_empty();
    assert_eq!(
        world.cloud.lock().log,
        [
            "delete fake.pool batch",
            "delete fake.pool gpu",
            "delete fake.cluster k8s",
            "delete fake.firewall fw",
            "delete fake.network net"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_replaced_network_takes_everything_in_it_along_in_order() {
    let mut world = World::with(&Spec::full()).await;
    let chain = Spec { cidr: 2, ..Spec::full() };
    let planned = world.plan(&chain).await;
    assert_eq!(
        ops(&planned.plan),
        "test: ; net: network replace; fw: firewall replace; k8s: cluster replace, pool/gpu replace; batch: pool replace"
    );
    assert!(planned.plan.resources.iter().flat_map(|r| &r.units).all(|u| u.delete_first), "none can come first");
    world.cloud.lock().log.clear();
    world.settle(&chain).await;
    assert_eq!(
        world.cloud.lock().log,
        [
            "delete fake.pool batch",
            "delete fake.pool gpu",
            "delete fake.cluster k8s",
            "delete fake.firewall fw",
            "delete fake.network net",
            "create fake.network net",
            "create fake.firewall fw",
            "create fake.cluster k8s",
            "create fake.pool gpu",
            "create fake.pool batch"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_replaced_pool_comes_before_the_old_one_goes_and_gets_its_name() {
    let mut world = World::with(&Spec::full()).await;
    world.cloud.lock().log.clear();
    world.settle(&Spec { pools: vec![("batch", "large", 2)], ..Spec::full() }).await;
    let log = world.cloud.lock().log.clone();
    assert_eq!(log.len(), 3, "{log:?}");
    assert!(log[0].starts_with("create fake.pool batch-"), "{log:?}");
    assert_eq!(log[1..], ["delete fake.pool batch", "update fake.pool batch node_pool_name"]);
}

/// The new object's name waits for the old one to go, and another field changes at the same time.
#[tokio::test(start_paused = true)]
async fn a_half_replaced_pool_can_be_changed_before_it_has_its_name() {
    let start = World::with(&Spec::full()).await;
    let large = Spec { pools: vec![("batch", "large", 2)], ..Spec::full() };
    let mut world = start.copy();
    world.cloud.set_faults(|_, what| if what == "delete" { Fault::KillBefore } else { Fault::None });
    _ = world.apply(&large).await;
    assert_eq!(world.cloud.here().len(), 6, "both pools are there");
    world.settle(&Spec { pools: vec![("batch", "large", 5)], ..Spec::full() }).await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_parent_skips_its_children_and_nothing_else() {
    let mut world = World::new();
    world.cloud.lock().breaks = Some("fake.cluster");
    let text = "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: other}\nspec: {networkName: other, region: fra1}\n";
    let mut manifests = Spec::full().manifests();
    manifests.extend(parse(text));
    let report = world.run(&manifests, Vec::new(), crate::memory::Crash::Never, Interrupt::default()).await.unwrap();
    assert_eq!(failed(&report), ["k8s"]);
    assert_eq!(names(&report.skipped), ["batch"]);
    assert_eq!(names(&report.done), ["fw", "net", "other", "test"]);
    assert!(report.failed[0].1.to_string().contains("no capacity"), "{report:?}");
    assert_eq!(world.state.resources.values().filter(|r| r.status.state == ResourceState::Failed).count(), 1);
}

/// Nothing is taken away from under what could not be taken away.
#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_go_keeps_its_parents() {
    for destroy in [true, false] {
        let mut world = World::with(&Spec::full()).await;
        world.cloud.lock().log.clear();
        let deletes = std::sync::atomic::AtomicBool::new(true);
        // The pool's delete is refused once tries are used up; those of others would work.
        world.cloud.set_faults(move |_, what| match what {
            "delete" if deletes.load(std::sync::atomic::Ordering::SeqCst) => Fault::Before,
            _ => Fault::None,
        });
        let report = match destroy {
            true => world.destroy().await.unwrap(),
            false => world.apply(&Spec { cidr: 2, ..Spec::full() }).await.unwrap(),
        };
        assert_eq!(failed(&report), ["batch"], "{report:?}");
        // An account has nothing in a cloud; it is unmade last, and made first.
        let skipped = if destroy { vec!["fw", "k8s", "net", "test"] } else { vec!["fw", "k8s", "net"] };
        assert_eq!(names(&report.skipped), skipped, "{report:?}");
        assert!(world.cloud.lock().log.is_empty(), "{:?}", world.cloud.lock().log);
        match destroy {
            true => {
                world.destroy().await.unwrap();
                world.assert_empty();
            }
            false => world.settle(&Spec { cidr: 2, ..Spec::full() }).await,
        }
    }
}

/// One plan that lets go of a firewall and deletes it: the cluster is changed first.
#[tokio::test(start_paused = true)]
async fn what_stays_lets_go_before_what_it_referred_to_goes() {
    let mut world = World::with(&Spec::full()).await;
    world.cloud.lock().log.clear();
    let without = Spec { firewall: false, nodes: 3, ..Spec::full() };
    let firewall = Spec::full().manifests().iter().find(|m| m.id.kind == "CivoFirewall").map(|m| m.id.clone()).unwrap();
    let report = world
        .run(&without.manifests(), vec![firewall], crate::memory::Crash::Never, Interrupt::default())
        .await
        .unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    assert_eq!(world.cloud.lock().log, ["update fake.cluster k8s node_count", "delete fake.firewall fw"]);
    world.settle(&without).await;
}

/// A name that belongs to somebody else is told by the plan, also while the place for the new object is not there yet.
#[tokio::test(start_paused = true)]
async fn a_taken_name_is_known_before_anything_is_made() {
    for (unit_type, props) in
        [("fake.network", r#"{"network_name": "net"}"#), ("fake.cluster", r#"{"cluster_name": "k8s"}"#)]
    {
        let world = World::new();
        world.cloud.create(unit_type, serde_json::from_str(props).unwrap(), "").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let planned = world.plan(&Spec::full()).await;
        assert_eq!(planned.troubles.len(), 1, "{:?}", planned.troubles);
        let trouble = &planned.troubles[0].1;
        assert!(
            matches!(trouble.class, Class::Taken { .. }) && matches!(trouble.help[0], Help::Adopt { .. }),
            "{trouble:?}"
        );
    }
}

/// Taken between plan and create: the cloud's refusal is told, and nothing is remembered of what was not made.
#[tokio::test(start_paused = true)]
async fn a_name_taken_after_the_plan_is_told_by_the_create() {
    let mut world = World::new();
    let request = world.request(&Spec::full().manifests(), Vec::new());
    let planned = world.plan(&Spec::full()).await;
    assert!(planned.troubles.is_empty(), "{:?}", planned.troubles);
    world.cloud.create("fake.cluster", serde_json::from_str(r#"{"cluster_name": "k8s"}"#).unwrap(), "").await.unwrap();
    let report = world.carry_out(request, planned, crate::memory::Crash::Never, Interrupt::default()).await;
    let (id, trouble): &(_, Trouble) = &report.failed[0];
    assert_eq!((id.name.as_str(), report.failed.len()), ("k8s", 1));
    assert!(
        matches!(trouble.class, Class::Taken { .. }) && matches!(trouble.help[0], Help::Adopt { .. }),
        "{trouble:?}"
    );
    assert!(!world.state.units.values().any(|unit| unit.key == "cluster"), "a refused create leaves no row");
}

/// Many resources are read by lists, and a list's pages are enough.
#[tokio::test(start_paused = true)]
async fn a_fleet_is_planned_by_lists() {
    let mut world = World::new();
    let text: String = (0..300)
        .map(|i| format!("---\napiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: n{i}}}\nspec: {{networkName: n{i}, region: fra1}}\n"))
        .collect();
    let manifests = parse(&text);
    let report = world.run(&manifests, Vec::new(), crate::memory::Crash::Never, Interrupt::default()).await.unwrap();
    assert_eq!(report.done.len(), 300);
    world.cloud.set_faults(|_, _| Fault::None);
    let request = world.request(&manifests, Vec::new());
    let planned = berth_engine::plan(&crate::catalog::Fake::new(world.cloud.clone()), &request).await;
    assert!(planned.plan.is_empty() && planned.troubles.is_empty());
    assert_eq!(world.cloud.lock().calls, 6, "300 objects in pages of 50");
    let report = world.carry_out(request, planned, crate::memory::Crash::Never, Interrupt::default()).await;
    assert_eq!((report.done.len(), world.cloud.lock().calls, world.writes), (300, 0, 0));
}
