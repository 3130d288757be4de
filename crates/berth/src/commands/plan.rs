//! `berth plan`: what apply would do. Changes nothing.

use crate::args::repeated_flags::complete;
use crate::args::{RecreateArgs, WorkspaceArgs};
use crate::backend::{Access, PlanOptions, Proposal, with_backend};
use crate::failure::{CommandResult, Exit};
use crate::local::files::FileArgs;
use crate::local::manifests;
use crate::view::output::{self, OutputArgs};
use crate::view::plan_view;
use berth_model::phrasing::shell_word;
use std::path::PathBuf;

/// Show what apply would do
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth plan -f shop/\n  berth plan -f shop/ --out shop.plan && berth apply shop.plan"
)]
pub struct Args {
    #[command(flatten)]
    files: FileArgs,
    /// Write the plan to a file that `berth apply` carries out, or refuses when the world has moved
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Exit with 2 when there are changes; 1 says that apply would refuse them, with and without this
    #[arg(long)]
    detailed_exitcode: bool,
    #[command(flatten)]
    recreate: RecreateArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let format = args.output.output;
    let loaded = manifests::load(&args.files.file, &args.workspace.which()?)?;
    if loaded.has_errors() {
        return loaded.refuse(format);
    }
    loaded.print();
    with_backend(&args.workspace, Access::Create, async |backend| {
        let options = PlanOptions { recreate: args.recreate, out: args.out.as_deref(), format };
        let proposal = match backend.plan(loaded, &options).await? {
            Ok(proposal) => proposal,
            Err(exit) => return Ok(exit),
        };
        let plan = &proposal.plan;
        let names = || plan.resources.iter().map(|r| r.id.to_string()).collect();
        output::show(format, &plan.as_json(), |wide| plan_view::text(plan, wide, false), names)?;
        Ok(ended(&args, proposal))
    })
}

/// What is said after the plan, and what it ends with: what apply would refuse is no plan to go on with.
fn ended(args: &Args, proposal: Proposal) -> Exit {
    let Proposal { plan, judgement, protected } = proposal;
    judgement.print();
    if let Some(failure) = &protected {
        failure.print();
    }
    if judgement.denied || protected.is_some() {
        anstream::eprintln!("apply would refuse this");
        return Exit::Failed;
    }
    if let Some(path) = args.out.as_ref().filter(|_| !plan.is_empty()) {
        let path = shell_word(&path.display().to_string());
        anstream::eprintln!("{}", complete(&format!("to carry out exactly this:   berth apply {path}")));
    }
    if args.detailed_exitcode && !plan.is_empty() { Exit::Pending } else { Exit::Done }
}
