//! Leases and fences, explored: the real store under simulated workers, a simulated cloud and a simulated network, driven by a
//! seeded scheduler that owns the clock. At every await it may delay, crash a worker, deliver a request twice, lose an answer
//! after its effect, freeze a worker past its lease and thaw it, restart the server, apply another generation, or delete.
//!
//! A schedule that breaks a rule is told with its seed: `BERTH_SEED=123 cargo test -p berth-store --test simulation`.

#[path = "../support/desired.rs"]
mod desired;
mod driver;
mod server;
mod worker;
mod world;

use driver::Driver;
use server::Server;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Schedules that each run of the suite explores.
const SCHEDULES: u64 = 10_000;
const THREADS: u64 = 2;
/// A server that forgets to look at the fence is found out within this many.
const SCHEDULES_FOR_A_MUTANT: u64 = 500;

/// What schedules went through, so that one that explores nothing does not look like a good one.
#[derive(Default)]
struct Seen {
    fenced: AtomicU64,
    crashes: AtomicU64,
    expired: AtomicU64,
    restarts: AtomicU64,
    doubled: AtomicU64,
    batched: AtomicU64,
    creates: AtomicU64,
}

/// The first broken rule, with its seed.
fn explore(seeds: std::ops::Range<u64>, mutant: bool, seen: &Seen) -> Result<(), (u64, String)> {
    let broken: Mutex<Option<(u64, String)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (broken, seeds) = (&broken, seeds.clone());
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
                let mut server = runtime.block_on(Server::start(mutant));
                for seed in seeds.filter(|seed| seed % THREADS == thread) {
                    if broken.lock().expect("no panic").is_some() {
                        break;
                    }
                    runtime.block_on(server.clean());
                    let mut driver = Driver::new(seed, server);
                    let result = runtime.block_on(driver.run());
                    driver.count(seen);
                    if std::env::var_os("BERTH_TRACE").is_some() {
                        println!("{}", driver.trace().join("\n"));
                    }
                    server = driver.server;
                    if let Err(rule) = result {
                        broken.lock().expect("no panic").get_or_insert((seed, rule));
                        break;
                    }
                }
                runtime.block_on(server.stop());
            });
        }
    });
    match broken.into_inner().expect("no panic") {
        Some(found) => Err(found),
        None => Ok(()),
    }
}

#[test]
fn no_schedule_breaks_a_rule() {
    let seeds = match std::env::var("BERTH_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..SCHEDULES,
    };
    let one = seeds.end - seeds.start == 1;
    let seen = Seen::default();
    if let Err((seed, rule)) = explore(seeds, false, &seen) {
        panic!("seed {seed}: {rule}\nagain: BERTH_SEED={seed} cargo test -p berth-store --test simulation");
    }
    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    println!(
        "{} fenced, {} crashes, {} leases expired, {} restarts, {} delivered twice, {} at once, {} creates",
        count(&seen.fenced),
        count(&seen.crashes),
        count(&seen.expired),
        count(&seen.restarts),
        count(&seen.doubled),
        count(&seen.batched),
        count(&seen.creates)
    );
    if !one {
        let Seen { fenced, crashes, expired, restarts, doubled, batched, creates } = &seen;
        for number in [fenced, crashes, expired, restarts, doubled, batched, creates] {
            assert!(count(number) > 100, "the schedules explore too little");
        }
    }
}

/// The simulation is worth something only if it notices a server without fences.
#[test]
fn a_server_that_ignores_the_fence_is_found_out() {
    let found = explore(0..SCHEDULES_FOR_A_MUTANT, true, &Seen::default());
    let (seed, rule) = found.expect_err("no schedule noticed that stale writes are taken");
    println!("found by seed {seed}: {rule}");
}

/// The same seed, the same schedule: otherwise a seed in a failure is of no use.
#[test]
fn a_seed_repeats_its_schedule() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut server = runtime.block_on(Server::start(false));
    for seed in [3, 77, 4242] {
        let mut traces = Vec::new();
        for _ in 0..2 {
            runtime.block_on(server.clean());
            let mut driver = Driver::new(seed, server);
            runtime.block_on(driver.run()).expect("no rule is broken");
            traces.push(driver.trace());
            server = driver.server;
        }
        assert!(traces[0].len() > 20);
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
    runtime.block_on(server.stop());
}
