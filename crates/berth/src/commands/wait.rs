//! `berth wait`: goes on with what was begun, until it is ready or gone.

use crate::args::change_args::duration;
use crate::args::repeated_flags;
use crate::args::{Address, ResourceArgs, ScopeArgs};
use crate::backend::{Access, Backend, lookup, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::took_text;
use crate::view::diagnostics::count;
use crate::view::output::OutputArgs;
use berth_store::{Filter, StoredResource};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum For {
    Ready,
    Deleted,
}

/// Wait for what was begun
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth wait --all\n  berth wait CivoKubernetesCluster/shop --timeout 20m")]
pub struct Args {
    /// Resources, as Kind/name
    #[arg(value_name = "KIND/NAME", required_unless_present = "all", conflicts_with = "all")]
    what: Vec<String>,
    /// Everything that was begun and is not at its end
    #[arg(long)]
    all: bool,
    /// What to wait for: ready or deleted
    #[arg(long = "for", value_enum, default_value_t = For::Ready, value_name = "END", hide_possible_values = true)]
    until: For,
    /// How long one resource may take, such as 90s, 20m or 1h
    #[arg(long, value_name = "TIME", default_value = "45m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let scope = args.resources.scope()?;
    let addresses = lookup::addresses(&args.what, &scope)?;
    with_backend(&args.resources.workspace, Access::Clouds, async |backend| {
        wait(&args, backend, &addresses, &scope).await
    })
}

async fn wait(args: &Args, backend: &dyn Backend, addresses: &[Address], scope: &ScopeArgs) -> CommandResult {
    let started = Instant::now();
    let gone = args.until == For::Deleted;
    if !gone {
        // A name that does not exist is reported before anything is waited for.
        lookup::find(backend, addresses, scope).await?;
    }
    backend.begin_when_free("wait", started + args.timeout).await?;
    let mut found = match gone {
        false => lookup::find(backend, addresses, scope).await?,
        true => backend.resources(&Filter::default()).await?,
    };
    if gone {
        // A name that is not found needs no waiting: it is gone.
        found.retain(|one| (args.all && one.deleting) || addresses.iter().any(|address| address.matches(&one.id)));
        if let Some(staying) = found.iter().find(|one| !one.deleting) {
            return Err(not_deleting(staying));
        }
    } else if let Some(going) = found.iter().find(|one| one.deleting && !args.all) {
        return Err(going_away(going));
    }
    let all = found.len();
    found.retain(|one| gone || (!one.settled() && !one.deleting));
    if found.is_empty() {
        let line = if gone { "it is gone".to_owned() } else { format!("{} ready", are(all)) };
        say(args, &format!("nothing to wait for: {line}"));
        return Ok(Exit::Done);
    }
    let number = found.len();
    let exit = backend.wait(found, gone, args.timeout, args.output.output).await?;
    if exit == Exit::Done {
        let line = match gone {
            true => format!("{} deleted", count(number, "resource")),
            false => format!("{} ready", are(number)),
        };
        say(args, &format!("{line} in {}", took_text(started.elapsed())));
    }
    Ok(exit)
}

fn going_away(going: &StoredResource) -> Failure {
    Failure::new(format!("{} is being deleted: it will not become ready", going.id))
        .help(repeated_flags::command("wait --for deleted", &going.id))
}

fn not_deleting(staying: &StoredResource) -> Failure {
    Failure::new(format!("{} is not being deleted", staying.id))
        .help(format!("to delete it:   {}", repeated_flags::command("delete", &staying.id)))
}

fn are(number: usize) -> String {
    format!("{} {}", count(number, "resource"), if number == 1 { "is" } else { "are" })
}

fn say(args: &Args, line: &str) {
    if args.output.output.is_for_people() {
        anstream::eprintln!("{line}");
    }
}
