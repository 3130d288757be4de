//! What a server with a large fleet costs, on one of the databases.

use crate::figures::{Times, median};
use crate::postgres::Postgres;
use crate::process::{usage, usage_of_all};
use crate::server::{Server, fleet_manifest};
use crate::workers::{self, Link};
use crate::{Options, Target};
use anyhow::{Result, bail};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Manifests in one request while the fleet is made.
const BATCH: usize = 500;
const STARTS: usize = 5;
const SINGLE_CALLS: usize = 1_000;
const APPLY_TO_LEASE: usize = 300;
/// How long each number of workers is looked at.
const DRAIN: Duration = Duration::from_secs(15);
const DRAIN_ALL: Duration = Duration::from_secs(600);
/// After the last change: what the server still had to do is done.
const SETTLE: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
pub struct Fleet {
    pub target: Target,
    pub resources: usize,
    /// Seconds from start to `/readyz`: in an empty folder, and with the fleet stored.
    pub start_empty: f64,
    pub start_full: f64,
    /// How many resources a second were accepted while the fleet was made, [`BATCH`] in each request.
    pub filled_per_second: f64,
    /// (workers, tasks leased and reported a second)
    pub tasks_per_second: Vec<(usize, f64)>,
    pub list_p50_ms: f64,
    pub list_p99_ms: f64,
    pub apply_p50_ms: f64,
    pub apply_p99_ms: f64,
    /// From the request to apply until a waiting worker has the task; and from the answer to that request.
    pub to_lease_p50_ms: f64,
    pub to_lease_p99_ms: f64,
    pub answer_to_lease_p99_ms: f64,
    pub resident_mib: f64,
    pub peak_mib: f64,
    pub idle_core_percent: f64,
    /// The database server's own, where there is one.
    pub database_idle_core_percent: Option<f64>,
}

pub async fn run(options: &Options, target: Target) -> Result<Fleet> {
    let folder = tempfile::Builder::new().prefix("berth-bench-").tempdir()?;
    let folder = folder.path();
    let postgres = if target == Target::Postgres { Some(Postgres::start(folder)?) } else { None };
    let say = |what: &str| eprintln!("{}: {what}", target.name());

    let start_empty = start_empty(options, postgres.as_ref(), folder).await?;
    say(&format!("ready in {start_empty:.3} s in an empty folder"));

    let home = folder.join("fleet");
    let database = database(postgres.as_ref(), "fleet")?;
    let server = Server::start(&options.berth, &database, &home).await?;
    let filled_per_second = fill(&server, options.fleet).await?;
    say(&format!("{} resources stored, {filled_per_second:.0} a second", options.fleet));
    let link = Link::new(&server).await?;

    let tasks_per_second = tasks_per_second(&link, options.fleet as u64, &say).await?;
    tokio::time::sleep(SETTLE).await;
    let idle = idle(options, &server, postgres.as_ref()).await?;
    say(&format!("idle: {:.0} MiB, {:.2} % of a core", idle.resident_mib, idle.core_percent));
    let lists = lists(&server, SINGLE_CALLS).await?;
    say(&format!("list: p50 {:.2} ms, p99 {:.2} ms", lists.percentile_ms(50.0), lists.percentile_ms(99.0)));
    let applies = applies(&server, SINGLE_CALLS).await?;
    say(&format!("apply: p50 {:.2} ms, p99 {:.2} ms", applies.percentile_ms(50.0), applies.percentile_ms(99.0)));
    workers::drain(&link, 4, applies.len() as u64, DRAIN_ALL).await?;
    tokio::time::sleep(SETTLE).await;
    let (to_lease, answer_to_lease) = workers::apply_to_lease(&link, &server, APPLY_TO_LEASE, "lease").await?;
    say(&format!("to lease: p50 {:.2} ms, p99 {:.2} ms", to_lease.percentile_ms(50.0), to_lease.percentile_ms(99.0)));
    let peak_mib = usage(server.id())?.peak_mib;

    let expected = options.fleet + applies.len() + to_lease.len();
    let stored = server.count().await?;
    if stored != expected as u64 {
        bail!("{expected} resources were accepted and {stored} are stored");
    }
    server.stop()?;
    let server = Server::start(&options.berth, &database, &home).await?;
    let start_full = server.started_in.as_secs_f64();
    server.stop()?;
    if let Some(postgres) = postgres {
        postgres.stop()?;
    }
    Ok(Fleet {
        target,
        resources: options.fleet,
        start_empty,
        start_full,
        filled_per_second,
        tasks_per_second,
        list_p50_ms: lists.percentile_ms(50.0),
        list_p99_ms: lists.percentile_ms(99.0),
        apply_p50_ms: applies.percentile_ms(50.0),
        apply_p99_ms: applies.percentile_ms(99.0),
        to_lease_p50_ms: to_lease.percentile_ms(50.0),
        to_lease_p99_ms: to_lease.percentile_ms(99.0),
        answer_to_lease_p99_ms: answer_to_lease.percentile_ms(99.0),
        resident_mib: idle.resident_mib,
        peak_mib,
        idle_core_percent: idle.core_percent,
        database_idle_core_percent: idle.database_core_percent,
    })
}

/// Seconds from start to `/readyz` in an empty folder.
async fn start_empty(options: &Options, postgres: Option<&Postgres>, folder: &Path) -> Result<f64> {
    let mut starts = Vec::new();
    for number in 0..STARTS {
        let home = folder.join(format!("empty-{number}"));
        let server = Server::start(&options.berth, &database(postgres, &format!("empty{number}"))?, &home).await?;
        starts.push(server.started_in.as_secs_f64());
        server.stop()?;
    }
    Ok(median(starts))
}

/// Tasks that some numbers of workers lease and report, the last of them all that are left.
async fn tasks_per_second(link: &Link, mut left: u64, say: &impl Fn(&str)) -> Result<Vec<(usize, f64)>> {
    let mut found = Vec::new();
    for workers in [1, 4, 16] {
        let time = if workers == 16 { DRAIN_ALL } else { DRAIN };
        let share = if workers == 16 { left } else { left / 3 };
        let done = workers::drain(link, workers, share, time).await?;
        left = left.saturating_sub(done.tasks);
        say(&format!(
            "{workers} workers: {:.0} tasks a second ({} in {:.1} s)",
            done.per_second(),
            done.tasks,
            done.seconds
        ));
        found.push((workers, done.per_second()));
    }
    Ok(found)
}

fn database(postgres: Option<&Postgres>, name: &str) -> Result<String> {
    match postgres {
        Some(postgres) => postgres.database(name),
        None => Ok("sqlite:berth-server/state.db".into()),
    }
}

async fn fill(server: &Server, resources: usize) -> Result<f64> {
    let begun = Instant::now();
    for first in (0..resources).step_by(BATCH) {
        let texts: Vec<_> =
            (first..resources.min(first + BATCH)).map(|i| fleet_manifest(&format!("f-{i:06}"), "")).collect();
        server.apply(&texts).await?;
    }
    Ok(resources as f64 / begun.elapsed().as_secs_f64())
}

/// Pages of a hundred, one at a time, each where the one before ended: from everywhere in the fleet.
async fn lists(server: &Server, calls: usize) -> Result<Times> {
    let mut times = Times::default();
    let mut next = String::new();
    for _ in 0..calls {
        let begun = Instant::now();
        let page = server.site.get(&format!("/v1/resources?pageToken={next}")).await?;
        times.add(begun.elapsed());
        if page["resources"].as_array().is_none_or(Vec::is_empty) {
            bail!("a page without resources");
        }
        next = page["nextPageToken"].as_str().unwrap_or_default().to_owned();
    }
    Ok(times)
}

async fn applies(server: &Server, calls: usize) -> Result<Times> {
    let mut times = Times::default();
    for number in 0..calls {
        let text = fleet_manifest(&format!("single-{number}"), "");
        let begun = Instant::now();
        server.apply(&[text]).await?;
        times.add(begun.elapsed());
    }
    Ok(times)
}

struct Idle {
    resident_mib: f64,
    core_percent: f64,
    database_core_percent: Option<f64>,
}

async fn idle(options: &Options, server: &Server, postgres: Option<&Postgres>) -> Result<Idle> {
    let database = |postgres: &Postgres| usage_of_all(postgres.id());
    let (before, database_before) = (usage(server.id())?, postgres.map(database).transpose()?);
    tokio::time::sleep(Duration::from_secs(options.idle_seconds)).await;
    let (after, database_after) = (usage(server.id())?, postgres.map(database).transpose()?);
    let percent = |from: f64, to: f64| (to - from) / options.idle_seconds as f64 * 100.0;
    Ok(Idle {
        resident_mib: after.resident_mib,
        core_percent: percent(before.cpu_seconds, after.cpu_seconds),
        database_core_percent: database_before.zip(database_after).map(|(b, a)| percent(b.cpu_seconds, a.cpu_seconds)),
    })
}
