//! Servers and workers are killed, workers frozen past their leases and thawed, the database restarted, while hundreds of
//! resources are applied, changed and deleted. At the end the cloud holds what is declared, each object once.
//!
//! `BERTH_CHAOS_SECONDS` says how long, `BERTH_CHAOS_SEED` repeats a run's choices, `BERTH_CHAOS_RESOURCES` how many.

use crate::harness::*;
use berth_server::pb;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const SHORT: u64 = 60;
const RESOURCES: usize = 500;
const REFUSED: &str = "berth_fenced_total";
const LEASE: Duration = Duration::from_secs(3);
/// How long everything has to settle once nothing is broken any more.
const SETTLE: Duration = Duration::from_secs(240);

/// Choices that a seed repeats.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap_or(0)
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What is declared: the number of a pair, and how often it was changed.
type Declared = BTreeMap<usize, usize>;

fn manifests(numbers: impl IntoIterator<Item = (usize, usize)>) -> String {
    let all: Vec<String> = numbers.into_iter().map(|(n, version)| pair(n, &format!("v{version}"))).collect();
    all.join("---\n")
}

/// Applies by whichever server answers; what is not answered is said again: applying is idempotent.
async fn apply(plane: &Plane, text: &str) {
    let until = Instant::now() + LONGEST;
    for server in (0..plane.urls.len()).cycle() {
        match tokio::time::timeout(Duration::from_secs(20), plane.try_apply(server, text)).await {
            Ok(Ok(_)) => return,
            Ok(Err(status)) if status.code() == tonic::Code::InvalidArgument => panic!("{status}"),
            Ok(Err(_)) | Err(_) => {}
        }
        assert!(Instant::now() < until, "no server takes an apply: {}", plane.told());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn delete(plane: &Plane, number: usize) {
    let until = Instant::now() + LONGEST;
    loop {
        for (server, _) in plane.urls.iter().enumerate() {
            let ids = [("CivoFirewall", format!("fw-{number}")), ("CivoVpc", format!("net-{number}"))];
            let delete = ids
                .map(|(kind, name)| pb::ResourceId { kind: kind.into(), name, ..pb::ResourceId::default() })
                .to_vec();
            let request = pb::ApplyRequest { delete, ..pb::ApplyRequest::default() };
            let Ok(client) = tokio::time::timeout(Duration::from_secs(20), plane.client(server)).await else {
                continue;
            };
            match client.resources().apply(request).await {
                Ok(_) => return,
                Err(status) if status.code() == tonic::Code::NotFound => return,
                Err(_) => {}
            }
        }
        assert!(Instant::now() < until, "no server takes a delete: {}", plane.told());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos() {
    let seconds = number("BERTH_CHAOS_SECONDS").unwrap_or(SHORT);
    let seed = number("BERTH_CHAOS_SEED").unwrap_or_else(|| u64::from(std::process::id()) ^ 0x5eed);
    let pairs = usize::try_from(number("BERTH_CHAOS_RESOURCES").unwrap_or(RESOURCES as u64)).unwrap() / 2;
    println!("chaos: seed {seed}, {seconds} s, {} resources (BERTH_CHAOS_SEED={seed} repeats it)", pairs * 2);
    let mut dice = Dice(seed);
    let mut setup = Setup { servers: 2, workers: 3, postgres: true, lease: "3s", capacity: 16, ..Setup::default() };
    setup.cloud.speed = Speed::Times(60.0);
    setup.cloud.seed = seed;
    let mut plane = Plane::start(setup).await;
    plane.account().await;
    plane.until_ready().await;
    plane.faults(&["delay=20ms", "mutating random=0.03"]);

    let began = Instant::now();
    let mut declared = Declared::new();
    let mut gone: Vec<usize> = Vec::new();
    let mut next = 0;
    let mut frozen: Vec<(usize, Instant)> = Vec::new();
    let (mut kills, mut freezes, mut restarts, mut refused) = (0, 0, 0, 0.0);
    let mut last_database = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        // Users.
        let left = Duration::from_secs(seconds).saturating_sub(began.elapsed());
        match dice.roll(10) {
            0..=5 if next < pairs => {
                let many = (pairs / 12).max(1).min(pairs - next);
                let new: Vec<(usize, usize)> = (next..next + many).map(|n| (n, 0)).collect();
                apply(&plane, &manifests(new.iter().copied())).await;
                declared.extend(new);
                next += many;
            }
            // Names that were deleted come back, some of them while their objects are still going.
            0..=2 if !gone.is_empty() => {
                let again: Vec<(usize, usize)> = gone.drain(..).map(|n| (n, 0)).collect();
                apply(&plane, &manifests(again.iter().copied())).await;
                declared.extend(again);
            }
            6..=7 if !declared.is_empty() => {
                let chosen: Vec<usize> = declared.keys().copied().filter(|_| dice.roll(8) == 0).collect();
                for n in &chosen {
                    *declared.entry(*n).or_default() += 1;
                }
                if !chosen.is_empty() {
                    apply(&plane, &manifests(chosen.iter().map(|n| (*n, declared[n])))).await;
                }
            }
            8 if declared.len() > 10 => {
                let keys: Vec<usize> = declared.keys().copied().collect();
                for _ in 0..3 {
                    let n = keys[dice.roll(keys.len())];
                    if declared.remove(&n).is_some() {
                        delete(&plane, n).await;
                        gone.push(n);
                    }
                }
            }
            _ => {}
        }
        // Fate.
        let thaw: Vec<usize> = frozen.iter().filter(|(_, until)| Instant::now() >= *until).map(|(w, _)| *w).collect();
        for worker in thaw {
            plane.workers[worker].signal("CONT");
            frozen.retain(|(other, _)| *other != worker);
        }
        match dice.roll(8) {
            0 => {
                let worker = dice.roll(plane.workers.len());
                frozen.retain(|(other, _)| *other != worker);
                plane.workers[worker].restart();
                kills += 1;
            }
            1 => {
                let server = dice.roll(plane.servers.len());
                // What it has counted goes with it.
                refused += plane.counter_of(server, REFUSED).await;
                plane.servers[server].restart();
                kills += 1;
            }
            2 | 3 => {
                let worker = dice.roll(plane.workers.len());
                if frozen.len() < 2 && !frozen.iter().any(|(other, _)| *other == worker) {
                    plane.workers[worker].signal("STOP");
                    frozen.push((worker, Instant::now() + LEASE + Duration::from_millis(500 + dice.roll(3000) as u64)));
                    freezes += 1;
                }
            }
            4 if last_database.elapsed() > Duration::from_secs(20) && left > Duration::from_secs(5) => {
                last_database = Instant::now();
                if let Some(postgres) = &mut plane.postgres {
                    tokio::task::block_in_place(|| postgres.crash_and_restart());
                    restarts += 1;
                }
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(300 + dice.roll(700) as u64)).await;
    }
    if restarts == 0
        && let Some(postgres) = &mut plane.postgres
    {
        tokio::task::block_in_place(|| postgres.crash_and_restart());
        restarts += 1;
    }
    if next < pairs {
        let new: Vec<(usize, usize)> = (next..pairs).map(|n| (n, 0)).collect();
        apply(&plane, &manifests(new.iter().copied())).await;
        declared.extend(new);
    }
    for (worker, _) in frozen.drain(..) {
        plane.workers[worker].signal("CONT");
    }
    plane.faults(&[]);
    for process in plane.servers.iter_mut().chain(&mut plane.workers) {
        if !process.is_running() {
            process.start();
        }
    }
    println!(
        "chaos: {kills} kills, {freezes} freezes, {restarts} restarts of PostgreSQL, {} declared",
        declared.len() * 2
    );

    let wanted = declared.len() * 2 + 1;
    plane
        .until("settled", SETTLE, |all| {
            all.len() == wanted && all.iter().all(|r| r.state == "Ready" && r.observed_generation == r.generation)
        })
        .await;
    holds(&plane, &declared).await;
    println!(
        "chaos: settled {:.0} s after the last fault; {} stale writes were refused, {} leases ended",
        began.elapsed().as_secs_f64() - seconds as f64,
        refused + plane.counter(REFUSED).await,
        plane.counter("berth_leases_expired_total").await
    );
}

/// Each declared object exactly once, none undeclared, no task open, nothing written under a stale number.
async fn holds(plane: &Plane, declared: &Declared) {
    let nets: Vec<String> = plane.names("civo.network");
    let walls: Vec<String> = plane.names("civo.firewall");
    let expect = |prefix: &str| -> Vec<String> {
        let names: BTreeSet<String> = declared.keys().map(|n| format!("{prefix}-{n}")).collect();
        names.into_iter().collect()
    };
    assert_eq!(nets, expect("net"), "networks");
    assert_eq!(walls, expect("fw"), "firewalls");
    for wall in plane.objects("civo.firewall") {
        let name = wall["name"].as_str().unwrap_or_default();
        let n: usize = name.trim_start_matches("fw-").parse().unwrap();
        let label = format!("v{}", declared[&n]);
        assert!(wall.to_string().contains(&label), "{name} is as last declared ({label}): {wall}");
    }
    // No task is left behind, but for drift checks that come by themselves.
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let tasks = plane.tasks(pb::ListTasksRequest::default()).await;
        let open: Vec<&pb::Task> =
            tasks.iter().filter(|t| matches!(t.state.as_str(), "queued" | "running") && t.op != "drift").collect();
        if open.is_empty() {
            break;
        }
        assert!(Instant::now() < until, "open for ever: {open:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Every change of the journal was begun under a number that no later change of its resource goes below: whoever lost a
    // task wrote no more. And every number is of a lease that was given out.
    if let Some(postgres) = &plane.postgres {
        let behind = "SELECT COUNT(*) FROM (SELECT fence, LAG(fence) OVER (PARTITION BY kind, name, org, env ORDER BY id) \
            AS before FROM journal) AS j WHERE j.before > j.fence";
        assert_eq!(postgres.ask(behind), "0", "changes under a stale number");
        let ahead = "SELECT COUNT(*) FROM journal WHERE fence > (SELECT MAX(number) FROM fence)";
        assert_eq!(postgres.ask(ahead), "0", "changes under a number that nobody has");
        let open = "SELECT COUNT(*) FROM journal WHERE ended_at IS NULL";
        assert_eq!(postgres.ask(open), "0", "changes that nobody knows the end of");
        println!(
            "chaos: {} changes in the journal, none under a stale number",
            postgres.ask("SELECT COUNT(*) FROM journal")
        );
    }
    for n in declared.keys().take(40) {
        let request = pb::HistoryRequest { kind: "CivoVpc".into(), name: format!("net-{n}"), ..Default::default() };
        let lines = plane.client(0).await.resources().history(request).await.expect("its history").into_inner().lines;
        assert!(lines.iter().any(|line| line.op == "create"), "net-{n}: {lines:?}");
        let open = lines.iter().filter(|line| !line.op.is_empty() && line.outcome.is_empty()).count();
        assert_eq!(open, 0, "net-{n} has changes that nobody knows the end of: {lines:?}");
    }
}
