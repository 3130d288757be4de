//! One command, measured from outside: the operating system's own account of what the process used.

use anyhow::{Context, Result, bail};
use berth_sandbox::Sandbox;
use serde::Serialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wait4::Wait4;

/// How often the cloud is looked at while it provisions.
const SAMPLE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub what: String,
    pub size: usize,
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub api_calls: u64,
    pub peak_mib: f64,
    /// How long the simulated cloud was provisioning something meanwhile; the rest of the wall time is Berth's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_seconds: Option<f64>,
}

/// A folder of its own, a sandbox, and the binary to measure.
pub struct Bench {
    folder: TempDir,
    berth: PathBuf,
    sandbox: Sandbox,
}

impl Bench {
    pub fn new(sandbox: Sandbox) -> Result<Self> {
        let berth = std::env::current_exe()?.with_file_name("berth");
        if !berth.exists() {
            bail!("{} is not built; use bench/run", berth.display());
        }
        Ok(Self { folder: tempfile::tempdir()?, berth, sandbox })
    }

    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The quickest of several runs: what it costs when nothing else is in the way.
    pub async fn best_of(&self, runs: usize, what: &str, size: usize, args: &[&str]) -> Result<Figure> {
        let mut best: Option<Figure> = None;
        for _ in 0..runs {
            let figure = self.once(what, size, args).await?;
            if best.as_ref().is_none_or(|b| figure.wall_seconds < b.wall_seconds) {
                best = Some(figure);
            }
        }
        best.context("no run was made")
    }

    /// As [`Bench::once`], and how long the cloud itself was at work.
    pub async fn provisioning(&self, what: &str, size: usize, args: &[&str]) -> Result<Figure> {
        let world = self.sandbox.world();
        let busy = Arc::new(Mutex::new(Duration::ZERO));
        let seen = busy.clone();
        let work = tokio::spawn(async move {
            let mut last = Instant::now();
            loop {
                tokio::time::sleep(SAMPLE).await;
                let now = Instant::now();
                if is_busy(&world.ledger(berth_sandbox::civo::NAME)) {
                    *seen.lock().unwrap_or_else(PoisonError::into_inner) += now - last;
                }
                last = now;
            }
        });
        let mut figure = self.once(what, size, args).await?;
        work.abort();
        figure.provisioning_seconds = Some(busy.lock().unwrap_or_else(PoisonError::into_inner).as_secs_f64());
        Ok(figure)
    }

    pub async fn once(&self, what: &str, size: usize, args: &[&str]) -> Result<Figure> {
        let before = self.sandbox.world().traffic(berth_sandbox::civo::NAME).total();
        let mut command = Command::new(&self.berth);
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("CIVO_API_URL", self.sandbox.url(berth_sandbox::civo::NAME))
            .env("CIVO_TOKEN", "bench")
            .env("BERTH_KEY", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let started = Instant::now();
        let (status, usage) = tokio::task::spawn_blocking(move || -> Result<_> {
            let mut child = command.spawn().context("cannot start berth")?;
            let ended = child.wait4().context("cannot wait for berth")?;
            Ok((ended.status, ended.rusage))
        })
        .await??;
        let wall_seconds = started.elapsed().as_secs_f64();
        if !status.success() {
            bail!("`berth {}` failed with {status}", args.join(" "));
        }
        let figure = Figure {
            what: what.to_owned(),
            size,
            wall_seconds,
            cpu_seconds: (usage.utime + usage.stime).as_secs_f64(),
            api_calls: self.sandbox.world().traffic(berth_sandbox::civo::NAME).total() - before,
            peak_mib: usage.maxrss as f64 / (1024.0 * 1024.0),
            provisioning_seconds: None,
        };
        eprintln!("{}", row(&figure));
        Ok(figure)
    }
}

/// Whether anything in the ledger is still on its way.
fn is_busy(ledger: &serde_json::Value) -> bool {
    let objects = ledger["objects"].as_array().into_iter().flatten();
    objects.filter_map(|object| object["status"].as_str()).any(|status| !status.eq_ignore_ascii_case("active"))
}

pub fn table(figures: &[Figure], machine: &str) -> String {
    let mut text = format!("Measured on {machine}\n\n");
    text.push_str(&format!(
        "| {:<58} | {:>9} | {:>9} | {:>9} | {:>9} |\n",
        "what", "wall s", "CPU s", "API calls", "peak MiB"
    ));
    text.push_str(&format!("|{:-<60}|{:->10}:|{:->10}:|{:->10}:|{:->10}:|\n", "", "", "", "", ""));
    for figure in figures {
        text.push_str(&row(figure));
        text.push('\n');
    }
    for figure in figures {
        if let Some(provisioning) = figure.provisioning_seconds {
            let over = figure.wall_seconds - provisioning;
            text.push_str(&format!(
                "\n{}: {over:.3} s of wall time over {provisioning:.3} s of simulated provisioning\n",
                figure.what
            ));
        }
    }
    text.push_str(&growth(figures));
    text
}

/// How much each command grows from the smaller fleet to the larger one.
fn growth(figures: &[Figure]) -> String {
    let mut text = String::new();
    let command = |figure: &Figure| figure.what.rsplit_once(", ").map(|(command, _)| command.to_owned());
    for large in figures.iter().filter(|f| f.what.ends_with("each")) {
        let small =
            figures.iter().find(|f| f.size < large.size && f.what.ends_with("each") && command(f) == command(large));
        if let Some(small) = small {
            text.push_str(&format!(
                "\n{}, {} times the clusters: wall {:.1}x, CPU {:.1}x, calls {:.1}x, memory {:.1}x",
                command(large).unwrap_or_default(),
                large.size / small.size,
                large.wall_seconds / small.wall_seconds,
                large.cpu_seconds / small.cpu_seconds,
                large.api_calls as f64 / small.api_calls as f64,
                large.peak_mib / small.peak_mib,
            ));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn row(figure: &Figure) -> String {
    format!(
        "| {:<58} | {:>9.3} | {:>9.3} | {:>9} | {:>9.1} |",
        figure.what, figure.wall_seconds, figure.cpu_seconds, figure.api_calls, figure.peak_mib
    )
}
