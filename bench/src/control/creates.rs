//! Creates accepted per second: kube-apiserver with etcd, Berth on SQLite, Berth on PostgreSQL, in turns. Each turn starts its
//! server anew on an empty store, warms it up, loads it, and counts what is stored afterwards.

use crate::figures::median;
use crate::http::Site;
use crate::kube::Kube;
use crate::load::{self, CONNECTIONS, Loaded};
use crate::postgres::Postgres;
use crate::server::Server;
use crate::{Options, Target};
use anyhow::{Result, bail};
use serde::Serialize;
use std::path::Path;

#[derive(Debug, Serialize)]
pub struct Turn {
    pub target: Target,
    pub round: usize,
    #[serde(flatten)]
    pub loaded: Loaded,
    pub per_second: f64,
    /// Objects that were found stored at the end, warm-up included.
    pub stored: u64,
}

pub async fn run(options: &Options) -> Result<Vec<Turn>> {
    let mut turns = Vec::new();
    for round in 0..options.rounds {
        // Each goes first once: whoever comes later finds warmer or slower disks.
        for place in 0..options.targets.len() {
            let target = options.targets[(place + round) % options.targets.len()];
            let turn = one(options, target, round + 1).await?;
            eprintln!(
                "{:<26} round {}: {:>7.0} creates/s, p50 {:>7.2} ms, p99 {:>7.2} ms, {} stored",
                target.name(),
                turn.round,
                turn.per_second,
                turn.loaded.p50_ms,
                turn.loaded.p99_ms,
                turn.stored
            );
            turns.push(turn);
        }
    }
    Ok(turns)
}

async fn one(options: &Options, target: Target, round: usize) -> Result<Turn> {
    let folder = tempfile::Builder::new().prefix("berth-bench-").tempdir()?;
    let folder = folder.path();
    let (warm, loaded, stored) = match target {
        Target::Kube => {
            let kube = Kube::start(&options.etcd, &options.kube_apiserver, folder).await?;
            let (warm, loaded) = load(options, &kube.site, folder).await?;
            let stored = kube.count().await?;
            kube.stop()?;
            (warm, loaded, stored)
        }
        Target::Sqlite => {
            let server = Server::start(&options.berth, "sqlite:berth-server/state.db", folder).await?;
            let (warm, loaded, stored) = load_server(options, &server, folder).await?;
            server.stop()?;
            (warm, loaded, stored)
        }
        Target::Postgres => {
            let postgres = Postgres::start(folder)?;
            let server = Server::start(&options.berth, &postgres.database("berth")?, folder).await?;
            let (warm, loaded, stored) = load_server(options, &server, folder).await?;
            server.stop()?;
            postgres.stop()?;
            (warm, loaded, stored)
        }
    };
    // wrk leaves without waiting for the answers that are on their way: at most one for each connection, each time.
    let counted = warm.requests + loaded.requests;
    if stored < counted || stored > counted + 2 * CONNECTIONS {
        bail!("{}: {counted} creates were accepted and {stored} objects are stored", target.name());
    }
    Ok(Turn { target, round, per_second: loaded.per_second(), loaded, stored })
}

async fn load_server(options: &Options, server: &Server, folder: &Path) -> Result<(Loaded, Loaded, u64)> {
    server.proves_its_schema().await?;
    let (warm, loaded) = load(options, &server.site, folder).await?;
    Ok((warm, loaded, server.count().await?))
}

async fn load(options: &Options, site: &Site, folder: &Path) -> Result<(Loaded, Loaded)> {
    let warm = load::creates(&options.wrk, site, "warm", options.warm_seconds, folder).await?;
    let loaded = load::creates(&options.wrk, site, "load", options.load_seconds, folder).await?;
    Ok((warm, loaded))
}

/// The medians over the rounds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Middle {
    pub target: Target,
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

pub fn middles(turns: &[Turn]) -> Vec<Middle> {
    let targets = [Target::Kube, Target::Sqlite, Target::Postgres];
    let of = |target: Target, value: fn(&Turn) -> f64| median(turns.iter().filter(|t| t.target == target).map(value));
    targets
        .into_iter()
        .filter(|target| turns.iter().any(|turn| turn.target == *target))
        .map(|target| Middle {
            target,
            per_second: of(target, |turn| turn.per_second),
            p50_ms: of(target, |turn| turn.loaded.p50_ms),
            p99_ms: of(target, |turn| turn.loaded.p99_ms),
        })
        .collect()
}
