//! `berth account move`: what is managed belongs to another cloud account from now on.

use crate::args::WorkspaceArgs;
use crate::backend::{Access, MoveJob, MovedUnit, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::confirm::proceed;
use crate::view::diagnostics::count;
use crate::view::output::{self, OutputArgs, Table};
use berth_engine::unit::Identity;
use clap::Subcommand;

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

pub fn run(args: Args) -> CommandResult {
    let Command::Move(args) = args.command;
    with_backend(&args.workspace, Access::Clouds, async |backend| {
        let ask = |who: &Identity, moved: &[MovedUnit]| show_and_ask(&args, who, moved);
        let job = MoveJob { account: &args.account, forget_missing: args.forget_missing, ask: &ask };
        match backend.move_account(&job).await? {
            Some((who, moved)) => told(&who, &moved),
            None => Ok(Exit::Done),
        }
    })
}

/// Shows what is to be done; `false` where there is nothing to do, or nothing is to be done.
fn show_and_ask(args: &MoveArgs, who: &Identity, moved: &[MovedUnit]) -> Result<bool, Failure> {
    let format = args.output.output;
    let people = format.is_for_people();
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

fn table(moved: &[MovedUnit]) -> String {
    let mut table = Table::new(["RESOURCE", "UNIT", "ID", "FROM", "BECOMES"]);
    for one in moved {
        let from = if one.from.is_empty() { "not known" } else { &one.from };
        table.row([one.resource.to_string(), one.unit.clone(), one.id.clone(), from.into(), one.becomes.clone()]);
    }
    table.render()
}

fn told(who: &Identity, moved: &[MovedUnit]) -> CommandResult {
    let forgotten = moved.iter().filter(|one| one.becomes == "forgotten").count();
    anstream::eprintln!("{} of {} moved to {who}", moved.len() - forgotten, count(moved.len(), "object"));
    if forgotten > 0 {
        anstream::eprintln!("{forgotten} forgotten: the next apply makes them there");
    }
    Ok(Exit::Done)
}
