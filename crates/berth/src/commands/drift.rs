//! `berth drift`: what differs between what was applied and what the clouds show. Reads clouds by lists, changes nothing.

use crate::args::ResourceArgs;
use crate::backend::accept::accept;
use crate::backend::{Access, Backend, DriftCheck, Selection, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::trouble_failures;
use crate::view::drift_view;
use crate::view::output::{self, Format, OutputArgs};
use crate::view::plan_view::much_gone;
use berth_engine::Drifted;
use std::collections::BTreeMap;
use std::time::Instant;

/// Show what was changed outside of Berth
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth drift\n  berth drift --accept CivoKubernetesCluster/shop",
    after_help = "Exit codes: 0 no drift, 1 failed, 2 drift was found"
)]
pub struct Args {
    /// Kinds, or resources as Kind/name; everything when none is given
    #[arg(value_name = "KIND[/NAME]")]
    what: Vec<String>,
    /// Keep what was found: write it into the manifests' files and the state
    #[arg(long)]
    accept: bool,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let selection = Selection::new(&args.what, args.resources.scope()?)?;
    with_backend(&args.resources.workspace, Access::Clouds, async |backend| check(&args, backend, &selection).await)
}

async fn check(args: &Args, backend: &dyn Backend, selection: &Selection) -> CommandResult {
    let started = Instant::now();
    let Some(found) = backend.drift(selection, !args.accept).await? else { return nothing(args) };
    show(args, &found, started)?;
    let DriftCheck { findings, seen, .. } = found;
    let left = match args.accept && !findings.is_empty() {
        true => accept(backend, &findings, args.output.output).await?,
        false => !findings.is_empty(),
    };
    Ok(ended(!seen.troubles.is_empty(), left))
}

fn nothing(args: &Args) -> CommandResult {
    anstream::eprintln!("nothing is applied here");
    let none = Drifted::default();
    let value = drift_view::as_json(&BTreeMap::new(), &none, 0, 0.0);
    output::show(args.output.output, &value, |_| String::new(), Vec::new)?;
    Ok(Exit::Done)
}

fn show(args: &Args, found: &DriftCheck, started: Instant) -> Result<(), Failure> {
    let DriftCheck { findings, seen, asked, calls } = found;
    let seconds = started.elapsed().as_secs_f64();
    let format = args.output.output;
    let value = drift_view::as_json(findings, seen, *calls, seconds);
    let names = || findings.keys().map(ToString::to_string).collect();
    let mut text = String::new();
    if format.is_for_people() {
        text = much_gone(&seen.much_gone());
        text.push_str(&drift_view::text(findings, format == Format::Wide));
        text.push_str(&format!(
            "{} of {} drifted; {} checked by {} in {seconds:.1} s\n",
            findings.len(),
            drift_view::count(*asked, "resource"),
            seen.checked - seen.troubles.len().min(seen.checked),
            drift_view::count(*calls as usize, "API call"),
        ));
        if !args.accept {
            text.push_str(&drift_view::commands(findings));
        }
    }
    output::show(format, &value, |_| text, names)?;
    for failure in trouble_failures(&seen.troubles, &|_| None) {
        failure.note("it could not be checked").print();
    }
    Ok(())
}

fn ended(failed: bool, drifted: bool) -> Exit {
    match (failed, drifted) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::Pending,
        (false, false) => Exit::Done,
    }
}
