//! A plan is a promise: converge does what it showed, or refuses because the world moved.

use crate::cloud::Fault;
use crate::memory::Crash;
use crate::world::{Spec, World, ops};
use berth_engine::{Action, Interrupt, PlanReason, Planned, Report, Request};
use serde_json::json;

async fn promise(world: &World, spec: &Spec) -> (Request, Planned) {
    let request = world.request(&spec.manifests(), Vec::new());
    let planned = world.plan(spec).await;
    assert!(planned.troubles.is_empty());
    (request, planned)
}

/// Carries out a plan whose own look at the cloud is out of date.
async fn late(world: &mut World, request: Request, mut planned: Planned) -> Report {
    planned.seen.clear();
    world.carry_out(request, planned, Crash::Never, Interrupt::default()).await
}

fn only_trouble(report: &Report) -> String {
    assert_eq!(report.failed.len(), 1, "{report:?}");
    report.failed[0].1.to_string()
}

fn change(world: &World, unit_type: &str, field: &str, value: serde_json::Value) {
    let mut inner = world.cloud.lock();
    let object = inner.objects.values_mut().find(|o| o.unit_type == unit_type).unwrap();
    object.props.insert(field.into(), value);
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_was_not_announced_is_not_made() {
    let mut world = World::with(&Spec::full()).await;
    let wanted = Spec { nodes: 5, ..Spec::full() };
    let (request, planned) = promise(&world, &wanted).await;
    change(&world, "fake.cluster", "cluster_name", json!("renamed"));
    world.cloud.lock().log.clear();
    let report = late(&mut world, request, planned).await;
    assert!(only_trouble(&report).contains("cluster_name, which takes a replacement"), "{report:?}");
    assert!(world.cloud.lock().log.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_field_that_was_not_announced_is_not_changed() {
    let mut world = World::with(&Spec::full()).await;
    let wanted = Spec { nodes: 5, ..Spec::full() };
    let (request, planned) = promise(&world, &wanted).await;
    change(&world, "fake.cluster", "version", json!("1.99.0"));
    world.cloud.lock().log.clear();
    let report = late(&mut world, request, planned).await;
    assert!(only_trouble(&report).contains("the cloud changed since the plan was made"), "{report:?}");
    assert!(world.cloud.lock().log.is_empty());
    world.settle(&wanted).await;
}

#[tokio::test(start_paused = true)]
async fn a_roll_that_was_not_announced_is_not_made() {
    let mut world = World::with(&Spec::full()).await;
    let wanted = Spec { nodes: 5, ..Spec::full() };
    let (request, planned) = promise(&world, &wanted).await;
    change(&world, "fake.cluster", "size", json!("huge"));
    let report = late(&mut world, request, planned).await;
    assert!(only_trouble(&report).contains("the cloud changed"), "{report:?}");
    let planned = world.plan(&wanted).await;
    assert!(planned.plan.resources.iter().flat_map(|r| &r.units).any(|unit| unit.is_destructive()));
    world.settle(&wanted).await;
}

#[tokio::test(start_paused = true)]
async fn what_vanishes_after_the_plan_is_not_made_again_unannounced() {
    let mut world = World::with(&Spec { pools: vec![], inner: vec![], ..Spec::full() }).await;
    let wanted = Spec { nodes: 5, pools: vec![], inner: vec![], ..Spec::full() };
    let (request, planned) = promise(&world, &wanted).await;
    world.cloud.lock().objects.retain(|_, o| o.unit_type != "fake.cluster");
    world.cloud.lock().log.clear();
    let report = late(&mut world, request, planned).await;
    assert!(only_trouble(&report).contains("is gone"), "{report:?}");
    assert!(world.cloud.lock().log.is_empty());
    let planned = world.plan(&wanted).await;
    assert_eq!(ops(&planned.plan), "test: ; net: network -; fw: firewall -; k8s: cluster create");
    assert_eq!(planned.plan.resources[3].units[0].reason, Some(PlanReason::DeletedOutside));
    world.settle(&wanted).await;
}

/// What is deleted outside while a run waits for it is told, not made in secret.
#[tokio::test(start_paused = true)]
async fn what_is_deleted_outside_during_a_run_is_told_and_made_by_the_next() {
    let mut world = World::new();
    let spec = Spec { pools: vec![], inner: vec![], ..Spec::full() };
    let cloud = world.cloud.clone();
    let thief = tokio::spawn(async move {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            let mut inner = cloud.lock();
            let before = inner.objects.len();
            inner.objects.retain(|_, o| o.unit_type != "fake.cluster");
            if inner.objects.len() < before {
                break;
            }
        }
    });
    let report = world.apply(&spec).await.unwrap();
    thief.await.unwrap();
    assert!(only_trouble(&report).contains("was made and is gone again"), "{report:?}");
    assert_eq!(world.cloud.lock().log.iter().filter(|line| line.contains("fake.cluster")).count(), 1);
    world.settle(&spec).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_out_is_planned_as_new_and_waited_for() {
    let mut world = World::with(&Spec { pools: vec![], inner: vec![], ..Spec::full() }).await;
    let spec = Spec { pools: vec![], inner: vec![], ..Spec::full() };
    let id = world.cloud.here().iter().find(|o| o.unit_type == "fake.cluster").unwrap().id.clone();
    world.cloud.delete(&id).await.unwrap();
    let planned = world.plan(&spec).await;
    assert_eq!(ops(&planned.plan), "test: ; net: network -; fw: firewall -; k8s: cluster create");
    world.settle(&spec).await;
}

/// A pool's size was changed, the run was killed, and the size was put back: the old pool stays, no other is made.
#[tokio::test(start_paused = true)]
async fn a_replacement_not_begun_is_taken_back_without_a_trace() {
    let mut world = World::with(&Spec::full()).await;
    let large = Spec { pools: vec![("batch", "large", 2)], ..Spec::full() };
    // The first write of the run says that the old pool is to go.
    _ = world.run(&large.manifests(), Vec::new(), Crash::After(0), Interrupt::default()).await;
    assert_eq!(world.state.units.values().filter(|unit| unit.deposed).count(), 1);
    let planned = world.plan(&large).await;
    assert_eq!(planned.plan.resources[4].action, Action::Replace, "{}", ops(&planned.plan));
    let planned = world.plan(&Spec::full()).await;
    assert_eq!(planned.plan.resources[4].action, Action::Resume, "{}", ops(&planned.plan));
    world.cloud.lock().log.clear();
    world.settle(&Spec::full()).await;
    assert!(world.cloud.lock().log.is_empty(), "{:?}", world.cloud.lock().log);
}

/// Our own create's answer was lost and the cloud shows it late: `taken` is about ourselves.
#[tokio::test(start_paused = true)]
async fn a_name_taken_by_our_own_attempt_is_adopted() {
    let mut world = World::new();
    world.cloud.lock().lag = std::time::Duration::from_secs(12);
    let lost = std::sync::atomic::AtomicBool::new(false);
    world.cloud.set_faults(move |_, what| {
        let first = what == "create" && !lost.swap(true, std::sync::atomic::Ordering::SeqCst);
        if first { Fault::After } else { Fault::None }
    });
    world.settle(&Spec::full()).await;
}

/// What the plan lowered and checked is carried out as it is; only what was not known then is lowered again.
#[tokio::test(start_paused = true)]
async fn lowering_and_checks_are_done_once_for_a_run() {
    let mut world = World::with(&Spec::full()).await;
    world.cloud.lock().asked.clear();
    let wanted = Spec { nodes: 5, rules: 2, ..Spec::full() };
    let report = world.apply(&wanted).await.unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    let mut asked = std::mem::take(&mut world.cloud.lock().asked);
    asked.sort();
    assert_eq!(
        asked,
        [
            "check fake.cluster",
            "check fake.firewall",
            "lower batch",
            "lower fw",
            "lower k8s",
            "lower net",
            "lower test"
        ]
    );
    let mut world = World::new();
    world.apply(&Spec { pools: vec![], inner: vec![], firewall: false, ..Spec::full() }).await.unwrap();
    let asked = world.cloud.lock().asked.clone();
    let times = |what: &str| asked.iter().filter(|one| *one == what).count();
    assert_eq!((times("lower net"), times("check fake.network")), (1, 1), "{asked:?}");
    assert_eq!((times("lower k8s"), times("check fake.cluster")), (2, 2), "its network was not there yet: {asked:?}");
}
