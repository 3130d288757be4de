//! `berth wait`: goes on with what was begun, until it is ready or gone.

use crate::args::change_args::duration;
use crate::args::{Address, RunArgs, ScopeArgs, Which, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::{carry_out, make_plan, print_result, took_text};
use crate::local::stored;
use crate::local::workspace::Workspace;
use crate::remote::Remote;
use crate::remote::carry_out::tell;
use crate::remote::contexts::Target;
use crate::remote::follow::{Goal, Watch, follow};
use crate::source::Source;
use crate::view::diagnostics::count;
use crate::view::output::{Format, OutputArgs};
use berth_engine::{Action, Plan, ResourcePlan, parents};
use berth_model::{Manifest, ResourceId};
use berth_store::{Run, StoreError, StoredResource};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the state is looked at while another command is at work on it.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    scope: ScopeArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let which = args.workspace.which()?;
    let scope = which.scope(&args.scope);
    let addresses = stored::addresses(&args.what, &scope)?;
    if let Which::Server(target) = which {
        return block_on(Threads::One, on_server(&args, target, &addresses, &scope));
    }
    block_on(Threads::beside(&args.workspace.sandbox), async {
        let workspace = Workspace::open_existing(&args.workspace).await?;
        let result = match args.until {
            For::Ready => ready(&args, &workspace, &addresses).await,
            For::Deleted => deleted(&args, &workspace, &addresses).await,
        };
        workspace.close().await;
        result
    })
}

/// The right to write, as soon as whoever has it is done.
async fn take_turn(workspace: &Workspace, until: Instant) -> Result<Run, Failure> {
    let mut said = false;
    loop {
        match workspace.store.begin_run("wait").await {
            Err(error @ StoreError::Locked { .. }) => {
                if Instant::now() >= until {
                    return Err(error.into());
                }
                if !said {
                    anstream::eprintln!("{error}; waiting for it");
                    said = true;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            other => return Ok(other?),
        }
    }
}

async fn ready(args: &Args, workspace: &Workspace, addresses: &[Address]) -> CommandResult {
    let started = Instant::now();
    // A name that is not there is said before anything is waited for.
    stored::find(&workspace.source(), addresses, &args.scope).await?;
    let run = take_turn(workspace, started + args.timeout).await?;
    let found = stored::find(&workspace.source(), addresses, &args.scope).await?;
    if let Some(going) = found.iter().find(|stored| stored.deleting && !args.all) {
        return Err(going_away(going, args));
    }
    let waiting: Vec<&StoredResource> = found.iter().filter(|stored| !stored.settled() && !stored.deleting).collect();
    if waiting.is_empty() {
        run.finish().await;
        say(args, &format!("nothing to wait for: {} ready", are(found.len())));
        return Ok(Exit::Done);
    }
    let mut manifests: Vec<Arc<Manifest>> = Vec::with_capacity(waiting.len());
    for stored in waiting {
        manifests.push(Arc::new(stored.manifest(&workspace.store.unseal(stored)?)?));
    }
    let (request, clouds) = workspace.request(&manifests, Vec::new()).await?;
    let planned = make_plan(&clouds, &request, &workspace.store, &|_| None).await?;
    let more = planned.plan.resources.iter().find(|r| !matches!(r.action, Action::Resume | Action::Unchanged));
    if let Some(more) = more {
        let mut failure = Failure::new(format!("waiting is not enough for {}: something has to be changed", more.id));
        if let Some(reason) = more.units.iter().find_map(|unit| unit.reason) {
            failure = failure.note(reason.to_string());
        }
        return Err(failure
            .help(format!("to look:   {}", stored::command("drift", &more.id, &args.workspace)))
            .help(format!("to carry it out:   {}", stored::command("apply", &more.id, &args.workspace))));
    }
    let count = manifests.len();
    let run_args = RunArgs { parallelism: None, timeout: args.timeout, no_wait: false, wait: false };
    let exit = carry_out(&clouds, &run, &request, planned, &run_args, args.output.output).await?;
    if exit == Exit::Done {
        say(args, &format!("{} ready in {}", are(count), took_text(started.elapsed())));
    }
    Ok(exit)
}

/// A server goes on by itself: this only watches.
async fn on_server(args: &Args, target: Target, addresses: &[Address], scope: &ScopeArgs) -> CommandResult {
    let started = Instant::now();
    let remote = Remote::open(target).await?;
    let since = remote.last_event().await?;
    let source = Source::Server(remote.clone());
    let gone = args.until == For::Deleted;
    let mut found = match gone {
        false => stored::find(&source, addresses, scope).await?,
        true => source.resources(&Default::default()).await?,
    };
    if gone {
        found.retain(|one| (args.all && one.deleting) || addresses.iter().any(|address| address.matches(&one.id)));
        if let Some(staying) = found.iter().find(|one| !one.deleting) {
            return Err(not_deleting(staying, args));
        }
    } else if let Some(going) = found.iter().find(|one| one.deleting && !args.all) {
        return Err(going_away(going, args));
    }
    let all = found.len();
    found.retain(|one| gone || (!one.settled() && !one.deleting));
    if found.is_empty() {
        let line = if gone { "it is gone".to_owned() } else { format!("{} ready", are(all)) };
        say(args, &format!("nothing to wait for: {line}"));
        return Ok(Exit::Done);
    }
    let count_all = found.len();
    let mut plan = Plan::default();
    for one in &found {
        let action = if gone { Action::Delete } else { Action::Resume };
        let manifest = one.manifest(&one.sealed_manifest()?)?;
        let after = if gone { Vec::new() } else { parents(&manifest) };
        plan.resources.push(ResourcePlan {
            id: one.id.clone(),
            action,
            units: Vec::new(),
            after,
            typical_seconds: None,
            strays: Vec::new(),
        });
    }
    let goal = |one: StoredResource| Goal { id: one.id, gone, generation: one.generation, before: None };
    let goals = found.into_iter().map(goal).collect();
    let watch = Watch { since, timeout: args.timeout, approvals: true };
    let followed = follow(&remote, goals, &plan, watch).await?;
    print_result(&plan, &followed.report, started.elapsed(), 0, args.output.output)?;
    let exit = tell(&followed, gone, started, &args.workspace);
    if exit == Exit::Done {
        let line = match gone {
            true => format!("{} deleted", count(count_all, "resource")),
            false => format!("{} ready", are(count_all)),
        };
        say(args, &format!("{line} in {}", took_text(started.elapsed())));
    }
    Ok(exit)
}

fn going_away(going: &StoredResource, args: &Args) -> Failure {
    Failure::new(format!("{} is being deleted: it will not become ready", going.id)).help(stored::command(
        "wait --for deleted",
        &going.id,
        &args.workspace,
    ))
}

fn not_deleting(staying: &StoredResource, args: &Args) -> Failure {
    Failure::new(format!("{} is not being deleted", staying.id))
        .help(format!("to delete it:   {}", stored::command("delete", &staying.id, &args.workspace)))
}

fn are(number: usize) -> String {
    format!("{} {}", count(number, "resource"), if number == 1 { "is" } else { "are" })
}

fn say(args: &Args, line: &str) {
    if matches!(args.output.output, Format::Table | Format::Wide) {
        anstream::eprintln!("{line}");
    }
}

async fn deleted(args: &Args, workspace: &Workspace, addresses: &[Address]) -> CommandResult {
    let started = Instant::now();
    let run = take_turn(workspace, started + args.timeout).await?;
    let mut found = Vec::new();
    let everything = workspace.store.resources(&Default::default()).await?;
    for stored in everything {
        // What is not there any more needs no waiting, so that nothing is said about a name that is not found.
        let named = addresses.iter().any(|address| address.matches(&stored.id));
        if named || (args.all && stored.deleting) {
            found.push(stored);
        }
    }
    if let Some(staying) = found.iter().find(|stored| !stored.deleting) {
        return Err(not_deleting(staying, args));
    }
    if found.is_empty() {
        run.finish().await;
        say(args, "nothing to wait for: it is gone");
        return Ok(Exit::Done);
    }
    // The deletion was allowed when it was begun; this only brings it to its end.
    let unwanted: Vec<ResourceId> = found.into_iter().map(|stored| stored.id).collect();
    let number = unwanted.len();
    let (request, clouds) = workspace.request(&[], unwanted).await?;
    let planned = make_plan(&clouds, &request, &workspace.store, &|_| None).await?;
    let run_args = RunArgs { parallelism: None, timeout: args.timeout, no_wait: false, wait: false };
    let exit = carry_out(&clouds, &run, &request, planned, &run_args, args.output.output).await?;
    if exit == Exit::Done {
        say(args, &format!("{} deleted in {}", count(number, "resource"), took_text(started.elapsed())));
    }
    Ok(exit)
}
