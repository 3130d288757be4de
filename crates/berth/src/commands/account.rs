//! `berth account move`: what is managed belongs to another cloud account from now on.

use crate::args::{Which, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::workspace::Workspace;
use crate::remote::contexts::Target;
use crate::remote::{CLOUDS_WITHIN, Remote, messages};
use crate::view::confirm::proceed;
use crate::view::diagnostics::count;
use crate::view::output::{self, Format, OutputArgs, Table};
use berth_engine::ResourceState;
use berth_engine::handler::Catalog;
use berth_engine::observe;
use berth_engine::record::{RecordError, Recorder, Status};
use berth_engine::unit::{Identity, UnitState};
use berth_model::ResourceId;
use berth_server::pb;
use clap::Subcommand;
use serde::Serialize;
use std::collections::BTreeSet;

/// Move what an account manages to another account of the cloud
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth account move env:civo --dry-run\n  berth account move civo-main --yes")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Move(MoveArgs),
}

/// Say that objects belong to the account of the credentials in use
///
/// Each object is looked for by its id with the credentials in use. What is found belongs to their account from now on.
/// Nothing is changed in a cloud.
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth account move env:civo --dry-run\n  berth account move env:civo --yes\n  berth account move acme/prod/main --forget-missing"
)]
struct MoveArgs {
    /// The account as `berth describe` shows it: `env:civo`, the name of an Account, or its org/env/name
    #[arg(value_name = "ACCOUNT")]
    account: String,
    /// Forget the objects that are not found: the next apply makes them again, in the account of the credentials in use
    #[arg(long)]
    forget_missing: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What becomes of one object.
#[derive(Debug, Serialize)]
pub struct Moved {
    pub resource: ResourceId,
    pub unit: String,
    pub id: String,
    /// The account that it belonged to; empty where that is not known.
    pub from: String,
    /// `moved`, `forgotten`, or `missing`: then nothing is done at all.
    pub becomes: String,
}

pub fn run(args: Args) -> CommandResult {
    let Command::Move(args) = args.command;
    if let Which::Server(target) = args.workspace.which()? {
        return block_on(Threads::One, on_server(&args, target));
    }
    block_on(Threads::beside(&args.workspace.sandbox), async {
        let workspace = Workspace::open_existing(&args.workspace).await?;
        let result = move_here(&args, &workspace).await;
        workspace.close().await;
        result
    })
}

async fn move_here(args: &MoveArgs, workspace: &Workspace) -> CommandResult {
    let run = workspace.store.begin_run("account move").await?;
    let known = workspace.known_units(None).await?;
    let all: Vec<UnitState> = known.units.into_values().flatten().filter(|unit| unit.account == args.account).collect();
    if all.is_empty() {
        return Err(no_such(&args.account, workspace).await?);
    }
    let clouds = workspace.clouds().await?;
    let who = clouds.provider(&args.account).await?.identity().await?;
    let mut units: Vec<UnitState> = all.into_iter().filter(|unit| unit.identity.as_ref() != Some(&who)).collect();
    units.sort_by(|a, b| (&a.resource, &a.key, &a.token).cmp(&(&b.resource, &b.key, &b.token)));
    // They are looked at with these credentials on purpose: as if nobody knew where they are.
    let asked: Vec<UnitState> = units.iter().map(|unit| UnitState { identity: None, ..unit.clone() }).collect();
    let looked = observe(&clouds, &asked.iter().collect::<Vec<_>>(), true).await;
    let mut moved = Vec::with_capacity(units.len());
    for (unit, seen) in units.iter().zip(looked.seen) {
        let becomes = match seen?.is_some() {
            true => "moved",
            false if args.forget_missing => "forgotten",
            false => "missing",
        };
        moved.push(Moved {
            resource: unit.resource.clone(),
            unit: unit.key.clone(),
            id: unit.id.clone().unwrap_or_default(),
            from: unit.identity.as_ref().map(|identity| identity.id().to_owned()).unwrap_or_default(),
            becomes: becomes.into(),
        });
    }
    if !show_and_ask(args, &who, &moved)? {
        return Ok(Exit::Done);
    }
    let failed = |error: RecordError| Failure::new(error.to_string());
    let mut forgotten = BTreeSet::new();
    for (unit, moved) in units.iter().zip(&moved) {
        if moved.becomes == "moved" {
            run.move_unit(unit, &who).await?;
        } else {
            run.forget_unit(&unit.resource, &unit.key, &unit.token).await.map_err(failed)?;
            forgotten.insert(&unit.resource);
        }
    }
    for id in forgotten {
        // Its outputs name objects of another account.
        let status = Status { state: ResourceState::Pending, message: NOT_APPLIED.into(), ..Status::default() };
        run.status(id, status).await.map_err(failed)?;
    }
    for id in moved.iter().map(|one| &one.resource).collect::<BTreeSet<_>>() {
        run.event(id, "moved", &format!("to {who}")).await.map_err(failed)?;
    }
    run.finish().await;
    told(&who, &moved)
}

/// What a resource says whose objects were forgotten.
const NOT_APPLIED: &str = "moved to another account, and not applied there yet";

/// The same by a server, whose workers look for the objects.
async fn on_server(args: &MoveArgs, target: Target) -> CommandResult {
    let remote = Remote::open(target).await?;
    let ask = |dry_run| {
        let (account, forget_missing) = (args.account.clone(), args.forget_missing);
        let mut request = tonic::Request::new(pb::MoveAccountRequest { account, forget_missing, dry_run });
        request.set_timeout(CLOUDS_WITHIN);
        let mut resources = remote.client.resources();
        let remote = &remote;
        async move {
            let answer = remote.by_worker(resources.move_account(request)).await;
            Ok::<_, Failure>(answer.map_err(|status| remote.fail(&status))?.into_inner())
        }
    };
    let read = |answer: &pb::MoveAccountResponse| {
        let who = Identity::from_text(answer.identity.clone());
        let who = who.ok_or_else(|| Failure::new("the server does not say which account the credentials belong to"))?;
        Ok::<_, Failure>((who, answer.units.iter().map(moved).collect::<Vec<_>>()))
    };
    let (who, would) = read(&ask(true).await?)?;
    if !show_and_ask(args, &who, &would)? {
        return Ok(Exit::Done);
    }
    let answer = ask(false).await?;
    let (who, did) = read(&answer)?;
    if !answer.done {
        return Err(
            Failure::new("what is managed changed meanwhile; nothing was moved").help("run the same command again")
        );
    }
    told(&who, &did)
}

fn moved(unit: &pb::MovedUnit) -> Moved {
    Moved {
        resource: messages::id_of(unit.resource.as_ref()),
        unit: unit.unit.clone(),
        id: unit.object_id.clone(),
        from: unit.from.clone(),
        becomes: unit.becomes.clone(),
    }
}

/// Shows what is to be done; `false` where there is nothing to do, or nothing is to be done.
fn show_and_ask(args: &MoveArgs, who: &Identity, moved: &[Moved]) -> Result<bool, Failure> {
    let format = args.output.output;
    let people = matches!(format, Format::Table | Format::Wide);
    let missing = moved.iter().filter(|one| one.becomes == "missing").count();
    if moved.is_empty() && people {
        anstream::eprintln!("nothing to move: all of account {} is in {who} already", args.account);
        return Ok(false);
    }
    let names = || moved.iter().map(|one| one.resource.to_string()).collect();
    output::show(format, &moved, |_| table(moved), names)?;
    if missing > 0 {
        return Err(Failure::new(format!(
            "{} of {} not found in {who}; nothing was changed",
            missing,
            count(moved.len(), "object")
        ))
        .help("check that the token and the API address are those of the account to move to")
        .help("to forget what is not found, so that the next apply makes it there, add --forget-missing"));
    }
    if moved.is_empty() || args.dry_run {
        return Ok(false);
    }
    let forgotten = moved.iter().filter(|one| one.becomes == "forgotten").count();
    let forget = match forgotten {
        0 => String::new(),
        some => format!(", {some} of them forgotten: what they are in another account stays there, and is not deleted"),
    };
    proceed(&format!("{} will belong to {who}{forget}", count(moved.len(), "object")), args.yes)?;
    Ok(true)
}

fn table(moved: &[Moved]) -> String {
    let mut table = Table::new(["RESOURCE", "UNIT", "ID", "FROM", "BECOMES"]);
    for one in moved {
        let from = if one.from.is_empty() { "not known" } else { &one.from };
        table.row([one.resource.to_string(), one.unit.clone(), one.id.clone(), from.into(), one.becomes.clone()]);
    }
    table.render()
}

fn told(who: &Identity, moved: &[Moved]) -> CommandResult {
    let forgotten = moved.iter().filter(|one| one.becomes == "forgotten").count();
    anstream::eprintln!("{} of {} moved to {who}", moved.len() - forgotten, count(moved.len(), "object"));
    if forgotten > 0 {
        anstream::eprintln!("{forgotten} forgotten: the next apply makes them there");
    }
    Ok(Exit::Done)
}

async fn no_such(account: &str, workspace: &Workspace) -> Result<Failure, Failure> {
    let units = workspace.known_units(None).await?.units;
    let accounts: BTreeSet<String> = units.into_values().flatten().map(|unit| unit.account).collect();
    let failure = Failure::new(format!("nothing is managed in an account named `{account}`"));
    Ok(match accounts.is_empty() {
        true => failure.help("nothing is applied here"),
        false => failure.help(format!("there are: {}", accounts.into_iter().collect::<Vec<_>>().join(", "))),
    })
}
