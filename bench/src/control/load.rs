//! The load: wrk, with 32 connections, making creates under names of their own.

use crate::http::Site;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

pub const CONNECTIONS: u64 = 32;
const THREADS: u64 = 2;
const SCRIPT: &str = include_str!("../../create.lua");

/// What wrk counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Loaded {
    pub requests: u64,
    pub seconds: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Answers that were no success.
    pub refused: u64,
    /// Connections that failed, and requests without an answer in time.
    pub broken: u64,
}

impl Loaded {
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}

pub async fn creates(wrk: &Path, site: &Site, prefix: &str, seconds: u64, folder: &Path) -> Result<Loaded> {
    let script = folder.join("create.lua");
    std::fs::write(&script, SCRIPT)?;
    let output = Command::new(wrk)
        .args(["-t", &THREADS.to_string(), "-c", &CONNECTIONS.to_string(), "-d", &format!("{seconds}s")])
        .args(["--timeout", "10s", "-s"])
        .arg(&script)
        .arg(&site.url)
        // By the environment: arguments are there for everyone to read.
        .env("BENCH_TARGET", site.dialect)
        .env("BENCH_TOKEN", &site.token)
        .env("BENCH_PREFIX", prefix)
        .stdin(Stdio::null())
        .output()
        .await
        .context("cannot run wrk")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find_map(|line| line.strip_prefix("RESULT "));
    let Some(line) = line else {
        bail!("wrk said nothing that is known: {said}{}", String::from_utf8_lossy(&output.stderr));
    };
    let loaded: Loaded = serde_json::from_str(line)?;
    if loaded.refused + loaded.broken > 0 {
        bail!(
            "{} creates were refused and {} broke off: nothing can be said of the rest",
            loaded.refused,
            loaded.broken
        );
    }
    Ok(loaded)
}
