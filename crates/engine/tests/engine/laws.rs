//! Laws over every change: a failure, a lost answer or a kill at any call or write leaves nothing that one more run does
//! not put right.

use crate::cloud::Fault;
use crate::memory::Crash;
use crate::world::{Spec, World};
use berth_engine::Interrupt;
use std::sync::{Arc, Mutex};

/// From what, to what; `None` is nothing at all.
fn changes() -> Vec<(&'static str, Option<Spec>, Option<Spec>)> {
    let full = Spec::full();
    let update = Spec { description: "second".into(), rules: 2, version: "1.30.0", nodes: 3, ..full.clone() };
    let scaled = Spec { inner: vec![("gpu", "large", 2)], pools: vec![("batch", "small", 4)], ..full.clone() };
    let pool = Spec { pools: vec![("batch", "large", 3)], ..full.clone() };
    let inner = Spec { inner: vec![("gpu", "small", 1)], ..full.clone() };
    let chain = Spec { cidr: 2, ..full.clone() };
    let other_pools = Spec { inner: vec![("cpu", "small", 1)], ..full.clone() };
    let rolled = Spec { size: "large", ..full.clone() };
    vec![
        ("create", None, Some(full.clone())),
        ("update", Some(full.clone()), Some(update)),
        ("scale", Some(full.clone()), Some(scaled)),
        ("replace a pool", Some(full.clone()), Some(pool)),
        ("replace an inner pool", Some(full.clone()), Some(inner)),
        ("replace the network and all in it", Some(full.clone()), Some(chain)),
        ("another unit in place of one", Some(full.clone()), Some(other_pools)),
        ("roll", Some(full.clone()), Some(rolled)),
        ("destroy", Some(full), None),
    ]
}

async fn start(from: &Option<Spec>) -> World {
    match from {
        Some(spec) => World::with(spec).await,
        None => World::new(),
    }
}

/// Goes for it once, with whatever was set up to fail.
async fn attempt(world: &mut World, to: &Option<Spec>, crash: Crash) {
    let all = || world.state.resources.keys().cloned().collect();
    let (manifests, unwanted) = to.as_ref().map_or_else(|| (Vec::new(), all()), |spec| (spec.manifests(), Vec::new()));
    // How it ends does not matter: what it leaves does.
    _ = world.run(&manifests, unwanted, crash, Interrupt::default()).await;
}

async fn finish(world: &mut World, to: &Option<Spec>) {
    match to {
        Some(spec) => world.settle(spec).await,
        None => {
            let report = world.destroy().await.unwrap_or_else(|troubles| panic!("{troubles:?}"));
            assert!(report.failed.is_empty() && report.skipped.is_empty(), "{report:?}");
            world.assert_empty();
        }
    }
}

/// Calls, in order, and the number of writes of a run in which nothing fails.
async fn calls_of(world: &World, to: &Option<Spec>) -> (Vec<String>, usize) {
    let mut world = world.copy();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    world.cloud.set_faults(move |_, what| {
        sink.lock().unwrap().push(what.to_owned());
        Fault::None
    });
    attempt(&mut world, to, Crash::Never).await;
    let calls = seen.lock().unwrap().clone();
    (calls, world.writes)
}

async fn measure(world: &World, to: &Option<Spec>) -> (usize, usize) {
    let (calls, writes) = calls_of(world, to).await;
    (calls.len(), writes)
}

#[tokio::test(start_paused = true)]
async fn a_fault_or_kill_at_any_call_is_put_right_by_one_more_run() {
    let mut points = 0;
    for (name, from, to) in changes() {
        let world = start(&from).await;
        let (calls, _) = measure(&world, &to).await;
        assert!(calls > 5, "{name} makes {calls} calls");
        for at in 0..calls {
            for fault in [Fault::Before, Fault::After, Fault::KillBefore, Fault::KillAfter] {
                let mut world = world.copy();
                world.cloud.set_faults(move |index, _| if index == at { fault } else { Fault::None });
                attempt(&mut world, &to, Crash::Never).await;
                finish(&mut world, &to).await;
                points += 1;
            }
        }
    }
    assert!(points > 1000, "only {points} points were tried");
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_any_write_is_put_right_by_one_more_run() {
    let mut points = 0;
    for (name, from, to) in changes() {
        let world = start(&from).await;
        let (_, writes) = measure(&world, &to).await;
        assert!(writes > 2, "{name} makes {writes} writes");
        for crash in (0..writes).flat_map(|at| [Crash::Before(at), Crash::After(at)]) {
            let mut world = world.copy();
            attempt(&mut world, &to, crash).await;
            finish(&mut world, &to).await;
            points += 1;
        }
    }
    assert!(points > 200, "only {points} points were tried");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_killed_anywhere_can_be_taken_back() {
    for (_, from, to) in changes() {
        let world = start(&from).await;
        let (calls, writes) = measure(&world, &to).await;
        let kills = (0..calls).flat_map(|at| [Fault::KillBefore, Fault::KillAfter].map(|fault| (at, fault)));
        for (at, fault) in kills {
            let mut world = world.copy();
            world.cloud.set_faults(move |index, _| if index == at { fault } else { Fault::None });
            attempt(&mut world, &to, Crash::Never).await;
            finish(&mut world, &from).await;
        }
        for at in 0..writes {
            let mut world = world.copy();
            attempt(&mut world, &to, Crash::After(at)).await;
            finish(&mut world, &from).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn destroying_after_half_an_apply_empties_the_cloud() {
    for (_, from, to) in changes() {
        let world = start(&from).await;
        let (calls, writes) = measure(&world, &to).await;
        for at in 0..calls.max(writes) {
            for after_call in [true, false] {
                let mut world = world.copy();
                let crash = if after_call { Crash::Never } else { Crash::Before(at) };
                if after_call {
                    world.cloud.set_faults(move |index, _| if index == at { Fault::KillAfter } else { Fault::None });
                }
                attempt(&mut world, &to, crash).await;
                finish(&mut world, &None).await;
            }
        }
    }
}

/// A cloud that shows new objects late: what was made and not shown must not be made again, nor forgotten.
#[tokio::test(start_paused = true)]
async fn objects_that_show_up_late_are_not_made_twice_and_not_lost() {
    for (_, from, to) in changes() {
        let world = start(&from).await;
        world.cloud.lock().lag = std::time::Duration::from_secs(8);
        let (calls, _) = calls_of(&world, &to).await;
        // Reads that fail are tried above; here it is the changes that matter.
        let changing = ["create", "update", "delete"];
        for at in (0..calls.len()).filter(|at| changing.contains(&calls[*at].as_str())) {
            for (fault, back) in [Fault::After, Fault::KillAfter].into_iter().flat_map(|f| [(f, false), (f, true)]) {
                let mut world = world.copy();
                world.cloud.set_faults(move |index, _| if index == at { fault } else { Fault::None });
                attempt(&mut world, &to, Crash::Never).await;
                finish(&mut world, if back { &None } else { &to }).await;
            }
        }
    }
}
