//! Measures the control plane, beside the peer that others build on, and prints what was reached next to what was to be reached.

mod creates;
mod figures;
mod fleet;
mod http;
mod kube;
mod load;
#[path = "../machine.rs"]
mod machine;
mod postgres;
// The same that the tests start.
#[path = "../../../crates/store/tests/support/postgres_programs.rs"]
mod postgres_programs;
mod process;
mod report;
mod server;
mod workers;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    Kube,
    Sqlite,
    Postgres,
}

impl Target {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kube => "kube-apiserver with etcd",
            Self::Sqlite => "berth server, SQLite",
            Self::Postgres => "berth server, PostgreSQL",
        }
    }
}

pub struct Options {
    pub berth: PathBuf,
    pub etcd: PathBuf,
    pub kube_apiserver: PathBuf,
    pub wrk: PathBuf,
    pub targets: Vec<Target>,
    pub rounds: usize,
    pub warm_seconds: u64,
    pub load_seconds: u64,
    /// Resources that are stored while the fleet's figures are taken.
    pub fleet: usize,
    pub idle_seconds: u64,
    creates: bool,
    fleets: bool,
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = options()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(&options))
}

async fn run(options: &Options) -> Result<()> {
    process::check_disk(&std::env::temp_dir())?;
    let turns = if options.creates { creates::run(options).await? } else { Vec::new() };
    let mut fleets = Vec::new();
    for target in options.targets.iter().copied().filter(|target| options.fleets && *target != Target::Kube) {
        fleets.push(fleet::run(options, target).await?);
    }
    let machine = machine::machine();
    print!("{}", report::text(&machine, &creates::middles(&turns), &fleets));
    let report = serde_json::to_string_pretty(&serde_json::json!({
        "machine": machine, "creates": turns, "fleets": fleets,
    }))?;
    match &options.json {
        Some(path) => std::fs::write(path, report).with_context(|| format!("cannot write {}", path.display()))?,
        None => println!("\n{report}"),
    }
    Ok(())
}

fn options() -> Result<Options> {
    let berth = std::env::current_exe()?.with_file_name("berth");
    let mut options = Options {
        berth,
        etcd: PathBuf::new(),
        kube_apiserver: PathBuf::new(),
        wrk: PathBuf::new(),
        targets: vec![Target::Kube, Target::Sqlite, Target::Postgres],
        rounds: 3,
        warm_seconds: 5,
        load_seconds: 15,
        fleet: 100_000,
        idle_seconds: 30,
        creates: true,
        fleets: true,
        json: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--etcd" => options.etcd = value()?.into(),
            "--kube-apiserver" => options.kube_apiserver = value()?.into(),
            "--wrk" => options.wrk = value()?.into(),
            "--json" => options.json = Some(value()?.into()),
            "--quick" => {
                options.rounds = 1;
                (options.warm_seconds, options.load_seconds, options.idle_seconds) = (1, 3, 5);
                options.fleet = 5_000;
            }
            "--part" => match value()?.as_str() {
                "creates" => options.fleets = false,
                "fleet" => options.creates = false,
                other => bail!("no part is named {other}; there are creates and fleet"),
            },
            "--only" => options.targets = value()?.split(',').map(target).collect::<Result<_>>()?,
            other => {
                bail!("unknown argument {other}; there are --quick, --part creates|fleet, --only TARGET,…, --json FILE")
            }
        }
    }
    if !options.berth.exists() || [&options.etcd, &options.kube_apiserver, &options.wrk].iter().any(|p| !p.exists()) {
        bail!("a program that is measured or measures is missing; use bench/control");
    }
    Ok(options)
}

fn target(name: &str) -> Result<Target> {
    [(Target::Kube, "kube"), (Target::Sqlite, "sqlite"), (Target::Postgres, "postgres")]
        .into_iter()
        .find_map(|(target, known)| (name == known).then_some(target))
        .with_context(|| format!("no target is named {name}; there are kube, sqlite and postgres"))
}
