//! Random histories from fixed seeds: several changes of mind, each run with faults, kills and interruptions; then one run
//! in which nothing fails.

use crate::cloud::Fault;
use crate::memory::Crash;
use crate::world::{Spec, World};
use berth_engine::Interrupt;
use berth_engine::handler::Class;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Mutex;
use std::time::Duration;

const SCHEDULES: u64 = 2500;
const SIZES: [&str; 3] = ["small", "medium", "large"];

fn some_spec(random: &mut StdRng) -> Spec {
    let mut size = || SIZES[random.random_range(0..SIZES.len())];
    let (one, two, three) = (size(), size(), size());
    let mut spec = Spec {
        cidr: random.random_range(1..=2),
        description: if random.random() { "first" } else { "second" }.into(),
        rules: random.random_range(1..=3),
        version: ["1.29.0", "1.30.0"][random.random_range(0..2)],
        size: one,
        nodes: random.random_range(1..=3),
        inner: vec![("gpu", two, random.random_range(1..=3))],
        pools: vec![("batch", three, random.random_range(1..=3))],
        firewall: true,
    };
    if random.random_bool(0.3) {
        spec.inner.clear();
    }
    spec
}

fn some_fault(random: &mut StdRng, rate: f64) -> Fault {
    if !random.random_bool(rate) {
        return Fault::None;
    }
    match random.random_range(0..20) {
        0 => Fault::KillBefore,
        1 => Fault::KillAfter,
        n if n % 2 == 0 => Fault::Before,
        _ => Fault::After,
    }
}

async fn schedule(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::new();
    world.cloud.lock().lag = Duration::from_millis(random.random_range(0..4000));
    let mut spec = some_spec(&mut random);
    for _ in 0..random.random_range(1..=4) {
        let rate = [0.0, 0.05, 0.3][random.random_range(0..3)];
        let own = Mutex::new(StdRng::seed_from_u64(random.random()));
        world.cloud.set_faults(move |_, _| some_fault(&mut own.lock().unwrap(), rate));
        let crash = match random.random_range(0..4) {
            0 => Crash::Before(random.random_range(0..40)),
            1 => Crash::After(random.random_range(0..40)),
            _ => Crash::Never,
        };
        let interrupt = Interrupt::default();
        let timer = random.random_bool(0.3).then(|| {
            let (setter, after) = (interrupt.clone(), Duration::from_millis(random.random_range(0..5000)));
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                setter.set();
            })
        });
        world.options.wait = random.random_bool(0.8);
        let destroy = random.random_bool(0.2);
        let all = world.state.resources.keys().cloned().collect();
        let (manifests, unwanted) = if destroy { (Vec::new(), all) } else { (spec.manifests(), Vec::new()) };
        // How it ends does not matter: what it leaves does.
        _ = world.run(&manifests, unwanted, crash, interrupt).await;
        if let Some(timer) = timer {
            timer.abort();
        }
        if random.random_bool(0.6) {
            spec = some_spec(&mut random);
        }
    }
    world.revive();
    world.options.wait = true;
    if random.random_bool(0.3) {
        let report = world.destroy().await.unwrap_or_else(|troubles| panic!("{troubles:?}"));
        assert!(report.failed.is_empty(), "{report:?}");
        world.assert_empty();
    } else {
        let report = world.apply(&spec).await.unwrap_or_else(|troubles| panic!("{troubles:?}"));
        // What was begun, not shown yet, and is now wanted otherwise, appears after the plan: that is told, not replaced
        // unannounced, and the run after it does what its own plan says.
        match report.failed.iter().any(|(_, trouble)| trouble.class == Class::Moved) {
            true => world.settle(&spec).await,
            false => world.assert_settled(&spec, &report).await,
        }
    }
}

#[test]
fn any_history_ends_well_after_one_clean_run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    for seed in 0..SCHEDULES {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(schedule(seed))));
        if let Err(panic) = result {
            eprintln!("schedule {seed} went wrong");
            std::panic::resume_unwind(panic);
        }
    }
}
