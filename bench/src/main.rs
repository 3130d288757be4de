//! Runs the real binary against a sandbox in this process and measures each command: wall time, CPU seconds, API calls,
//! peak memory. Prints a table for people and JSON for programs; the figures are facts, not tests.

mod fleet;
mod machine;
mod measure;

use anyhow::{Context, Result};
use berth_sandbox::{Config, Sandbox, Speed};
use measure::{Bench, Figure};
use std::path::PathBuf;

fn main() -> Result<()> {
    let mut quick = false;
    let mut json = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => quick = true,
            "--json" => json = Some(PathBuf::from(args.next().context("--json needs a file")?)),
            other => anyhow::bail!("unknown argument {other}; there are --quick and --json FILE"),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let figures = runtime.block_on(run(quick))?;
    let machine = machine::machine();
    print!("{}", measure::table(&figures, &machine));
    let report = serde_json::to_string_pretty(&serde_json::json!({"machine": machine, "figures": figures}))?;
    match json {
        Some(path) => std::fs::write(&path, report).with_context(|| format!("cannot write {}", path.display()))?,
        None => println!("\n{report}"),
    }
    Ok(())
}

async fn run(quick: bool) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let bench = Bench::new(sandbox(Speed::Instant).await?)?;
    figures.push(bench.best_of(20, "version", 1, &["--version"]).await?);

    // Four objects: a network, a firewall, a cluster and a pool.
    bench.write("four.yaml", &fleet::four())?;
    figures.push(bench.once("apply, 4 objects", 4, &["apply", "-f", "four.yaml", "--yes"]).await?);
    figures.push(
        bench
            .best_of(10, "plan, nothing to do, 4 objects", 4, &["plan", "-f", "four.yaml", "--detailed-exitcode"])
            .await?,
    );
    drop(bench);

    // The same with provisioning time, sixty times faster than real: what the waiting costs on top.
    let bench = Bench::new(sandbox(Speed::Times(60.0)).await?)?;
    bench.write("four.yaml", &fleet::four())?;
    figures
        .push(bench.provisioning("apply, 4 objects, clouds at 60x", 4, &["apply", "-f", "four.yaml", "--yes"]).await?);
    drop(bench);

    let sizes: &[usize] = if quick { &[100, 1_000] } else { &[1_000, 10_000] };
    for size in sizes {
        let bench = Bench::new(sandbox(Speed::Instant).await?)?;
        fleet::write(&bench, *size)?;
        let of = |what: &str| format!("{what}, {size} clusters with a pool each");
        figures.push(bench.once(&of("apply"), *size, &["apply", "-f", "fleet", "--yes"]).await?);
        figures.push(
            bench.once(&of("plan, nothing to do"), *size, &["plan", "-f", "fleet", "--detailed-exitcode"]).await?,
        );
        figures.push(bench.once(&of("drift"), *size, &["drift"]).await?);
    }
    Ok(figures)
}

async fn sandbox(speed: Speed) -> Result<Sandbox> {
    let config = Config { speed, ..Config::default() };
    Sandbox::start(config).await.map_err(|error| anyhow::anyhow!("the sandbox does not start: {error}"))
}
