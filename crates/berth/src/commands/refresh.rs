//! `berth refresh`: what the state remembers of outputs and facts becomes what the clouds show. Clouds are only read.

use crate::args::ResourceArgs;
use crate::args::repeated_flags;
use crate::backend::refreshed::{Refreshed, StateChange};
use crate::backend::{Access, Selection, with_backend};
use crate::failure::{CommandResult, Exit};
use crate::local::carry_out::trouble_failures;
use crate::view::diagnostics::count;
use crate::view::output::{self, OutputArgs};
use crate::view::plan_view::much_gone;
use crate::view::resource_view::value_text;
use crate::view::terminal::harmless_line;
use serde_json::json;
use std::time::Instant;

/// Read the clouds and bring the state's outputs up to date
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth refresh\n  berth refresh CivoKubernetesCluster/shop")]
pub struct Args {
    /// Kinds, or resources as Kind/name; everything when none is given
    #[arg(value_name = "KIND[/NAME]")]
    what: Vec<String>,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let selection = Selection::new(&args.what, args.resources.scope()?)?;
    with_backend(&args.resources.workspace, Access::Clouds, async |backend| {
        let started = Instant::now();
        let refreshed = backend.refresh(&selection).await?;
        show(&args, &refreshed, started)
    })
}

fn show(args: &Args, refreshed: &Refreshed, started: Instant) -> CommandResult {
    let Refreshed { changes, checked, calls, troubles, much_gone: gone } = refreshed;
    anstream::eprint!("{}", much_gone(gone));
    let format = args.output.output;
    let value = json!({"changed": changes, "checked": checked, "calls": calls});
    let mut names: Vec<String> = changes.iter().map(|one| one.resource.to_string()).collect();
    names.dedup();
    output::show(format, &value, |_| text(changes), || names)?;
    if format.is_for_people() {
        anstream::eprintln!(
            "{} changed in the state; {} read by {} in {:.1} s",
            count(changes.len(), "value"),
            count(*checked, "resource"),
            count(*calls as usize, "API call"),
            started.elapsed().as_secs_f64()
        );
        if let Some(gone) = changes.iter().find(|one| one.failed) {
            anstream::eprintln!("  make it again:   {}", repeated_flags::command("apply", &gone.resource));
        }
    }
    for failure in trouble_failures(troubles, &|_| None) {
        failure.note("it could not be read").print();
    }
    Ok(if troubles.is_empty() { Exit::Done } else { Exit::Failed })
}

fn text(changes: &[StateChange]) -> String {
    let width = changes.iter().map(|one| one.resource.to_string().chars().count()).max().unwrap_or(0);
    let names = changes.iter().map(|one| one.what.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for one in changes {
        let before = if one.before.is_null() { "-".into() } else { value_text(&one.before) };
        let change = format!("{before} -> {}", value_text(&one.now));
        let resource = one.resource.to_string();
        text.push_str(&format!("  {resource:<width$}  {:<names$}  {}\n", one.what, harmless_line(&change)));
    }
    text
}
