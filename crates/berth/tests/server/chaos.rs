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

/// How often what was done.
#[derive(Default)]
struct Counts {
    kills: u32,
    freezes: u32,
    restarts: u32,
    /// Stale writes that were refused by servers that are gone.
    refused: f64,
}

struct Chaos {
    plane: Plane,
    dice: Dice,
    /// How many pairs are declared in the end, and how many have been so far.
    pairs: usize,
    next: usize,
    declared: Declared,
    gone: Vec<usize>,
    /// Workers, and until when.
    frozen: Vec<(usize, Instant)>,
    last_database: Instant,
    counts: Counts,
}

impl Chaos {
    async fn start(seed: u64, pairs: usize) -> Self {
        let mut setup = Setup { servers: 2, workers: 3, postgres: true, lease: "3s", capacity: 16, ..Setup::default() };
        setup.cloud.speed = Speed::Times(60.0);
        setup.cloud.seed = seed;
        let plane = Plane::start(setup).await;
        plane.account().await;
        plane.until_ready().await;
        plane.faults(&["delay=20ms", "mutating random=0.03"]);
        Self {
            plane,
            dice: Dice(seed),
            pairs,
            next: 0,
            declared: Declared::new(),
            gone: Vec::new(),
            frozen: Vec::new(),
            last_database: Instant::now(),
            counts: Counts::default(),
        }
    }

    async fn declare(&mut self, numbers: Vec<usize>) {
        let new: Vec<(usize, usize)> = numbers.into_iter().map(|n| (n, 0)).collect();
        apply(&self.plane, &manifests(new.iter().copied())).await;
        self.declared.extend(new);
    }

    /// Somebody declares, changes or deletes.
    async fn users(&mut self) {
        match self.dice.roll(10) {
            0..=5 if self.next < self.pairs => {
                let many = (self.pairs / 12).max(1).min(self.pairs - self.next);
                self.declare((self.next..self.next + many).collect()).await;
                self.next += many;
            }
            // Names that were deleted come back, some of them while their objects are still going.
            0..=2 if !self.gone.is_empty() => {
                let again = std::mem::take(&mut self.gone);
                self.declare(again).await;
            }
            6..=7 if !self.declared.is_empty() => self.change().await,
            8 if self.declared.len() > 10 => {
                let keys: Vec<usize> = self.declared.keys().copied().collect();
                for _ in 0..3 {
                    let n = keys[self.dice.roll(keys.len())];
                    if self.declared.remove(&n).is_some() {
                        delete(&self.plane, n).await;
                        self.gone.push(n);
                    }
                }
            }
            _ => {}
        }
    }

    async fn change(&mut self) {
        let chosen: Vec<usize> = self.declared.keys().copied().filter(|_| self.dice.roll(8) == 0).collect();
        for n in &chosen {
            *self.declared.entry(*n).or_default() += 1;
        }
        if !chosen.is_empty() {
            apply(&self.plane, &manifests(chosen.iter().map(|n| (*n, self.declared[n])))).await;
        }
    }

    /// Something breaks. Near the end the database is spared, so that it is back by then.
    async fn fate(&mut self, is_near_end: bool) {
        self.thaw(Instant::now());
        match self.dice.roll(8) {
            0 => {
                let worker = self.dice.roll(self.plane.workers.len());
                self.frozen.retain(|(other, _)| *other != worker);
                self.plane.workers[worker].restart();
                self.counts.kills += 1;
            }
            1 => {
                let server = self.dice.roll(self.plane.servers.len());
                // What it has counted goes with it.
                self.counts.refused += self.plane.counter_of(server, REFUSED).await;
                self.plane.servers[server].restart();
                self.counts.kills += 1;
            }
            2 | 3 => self.freeze(),
            4 if self.last_database.elapsed() > Duration::from_secs(20) && !is_near_end => self.restart_database(),
            _ => {}
        }
    }

    fn freeze(&mut self) {
        let worker = self.dice.roll(self.plane.workers.len());
        if self.frozen.len() < 2 && !self.frozen.iter().any(|(other, _)| *other == worker) {
            self.plane.workers[worker].signal(Signal::STOP);
            let beyond = Duration::from_millis(500 + self.dice.roll(3000) as u64);
            self.frozen.push((worker, Instant::now() + LEASE + beyond));
            self.counts.freezes += 1;
        }
    }

    /// Those whose time has come by then.
    fn thaw(&mut self, then: Instant) {
        for (worker, _) in self.frozen.extract_if(.., |(_, until)| then >= *until) {
            self.plane.workers[worker].signal(Signal::CONT);
        }
    }

    fn restart_database(&mut self) {
        self.last_database = Instant::now();
        if let Some(postgres) = &self.plane.postgres {
            postgres.crash_and_restart();
            self.counts.restarts += 1;
        }
    }

    /// Nothing is broken any more, and everything is declared.
    async fn calm(&mut self) {
        if self.counts.restarts == 0 {
            self.restart_database();
        }
        if self.next < self.pairs {
            self.declare((self.next..self.pairs).collect()).await;
        }
        for (worker, _) in self.frozen.drain(..) {
            self.plane.workers[worker].signal(Signal::CONT);
        }
        self.plane.faults(&[]);
        for process in self.plane.servers.iter_mut().chain(&mut self.plane.workers) {
            if !process.is_running() {
                process.start_again();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos() {
    let lasts = Duration::from_secs(number("BERTH_CHAOS_SECONDS").unwrap_or(SHORT));
    let seed = number("BERTH_CHAOS_SEED").unwrap_or_else(|| u64::from(std::process::id()) ^ 0x5eed);
    let pairs = usize::try_from(number("BERTH_CHAOS_RESOURCES").unwrap_or(RESOURCES as u64)).unwrap() / 2;
    println!("chaos: seed {seed}, {lasts:?}, {} resources (BERTH_CHAOS_SEED={seed} repeats it)", pairs * 2);
    let mut chaos = Chaos::start(seed, pairs).await;
    let began = Instant::now();
    while began.elapsed() < lasts {
        chaos.users().await;
        chaos.fate(lasts.saturating_sub(began.elapsed()) <= Duration::from_secs(5)).await;
        tokio::time::sleep(Duration::from_millis(300 + chaos.dice.roll(700) as u64)).await;
    }
    chaos.calm().await;
    let Chaos { plane, declared, counts, .. } = chaos;
    println!(
        "chaos: {} kills, {} freezes, {} restarts of PostgreSQL, {} declared",
        counts.kills,
        counts.freezes,
        counts.restarts,
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
        began.elapsed().saturating_sub(lasts).as_secs_f64(),
        counts.refused + plane.counter(REFUSED).await,
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
