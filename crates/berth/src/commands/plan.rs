//! `berth plan`: what apply would do. Changes nothing.

use crate::args::repeated_flags::complete;
use crate::args::{RecreateArgs, Which, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::{is_protected as is_protected_here, make_plan};
use crate::local::files::FileArgs;
use crate::local::manifests::{self, Loaded};
use crate::local::policies;
use crate::local::saved_plan::{self, SavedPlan};
use crate::local::workspace::Workspace;
use crate::remote::Remote;
use crate::remote::carry_out::{is_protected, known_before, make_plan as make_server_plan, print_verdicts};
use crate::remote::contexts::Target;
use crate::remote::saved_plan::SavedServerPlan;
use crate::view::confirm::protected;
use crate::view::output::{self, OutputArgs};
use crate::view::plan_view;
use berth_engine::Plan;
use berth_model::phrasing::shell_word;
use berth_model::{Manifest, ResourceId};
use std::path::PathBuf;
use std::sync::Arc;

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
    let loaded = manifests::load(&args.files.file, &args.workspace.which()?)?;
    if loaded.has_errors() {
        return loaded.refuse(args.output.output);
    }
    loaded.print();
    if let Which::Server(target) = args.workspace.which()? {
        return on_server(&args, target, loaded);
    }
    let manifests: Vec<Arc<Manifest>> = loaded.manifests.into_iter().map(Arc::new).collect();
    block_on(Threads::beside(&args.workspace.sandbox), async {
        let workspace = Workspace::open(&args.workspace).await?;
        let result = plan(&args, &workspace, &manifests).await;
        workspace.close().await;
        result
    })
}

/// The same by a server.
fn on_server(args: &Args, target: Target, mut loaded: Loaded) -> CommandResult {
    block_on(Threads::One, async {
        let remote = Remote::open(target).await?;
        let files = loaded.files();
        let format = args.output.output;
        let planned =
            match make_server_plan(&remote, &files, &[], None, Some(&mut loaded), format, args.recreate).await? {
                Ok(planned) => planned,
                Err(exit) => return Ok(exit),
            };
        if let Some(path) = &args.out {
            saved_plan::write(&SavedServerPlan::new(remote.url(), &loaded, &planned)?, path)?;
        }
        let plan = planned.plan;
        let names = || plan.resources.iter().map(|r| r.id.to_string()).collect();
        output::show(format, &plan.to_json(), |wide| plan_view::text(&plan, wide, false), names)?;
        let denied = print_verdicts(&planned.verdicts);
        let ids: Vec<ResourceId> = plan.resources.iter().map(|r| r.id.clone()).collect();
        let there = known_before(&remote, &ids).await?;
        let refused = protected(&plan, |id| is_protected(&there, &loaded.manifests, id));
        Ok(ended(args, &plan, denied, refused))
    })
}

/// What is said after the plan, and what it ends with: what apply would refuse is no plan to go on with.
fn ended(args: &Args, plan: &Plan, denied: bool, refused: Option<Failure>) -> Exit {
    let is_protected = refused.is_some();
    if let Some(failure) = refused {
        failure.print();
    }
    if denied || is_protected {
        anstream::eprintln!("apply would refuse this");
        return Exit::Failed;
    }
    if let Some(path) = args.out.as_ref().filter(|_| !plan.is_empty()) {
        let path = shell_word(&path.display().to_string());
        anstream::eprintln!("{}", complete(&format!("to carry out exactly this:   berth apply {path}")));
    }
    if args.detailed_exitcode && !plan.is_empty() { Exit::Pending } else { Exit::Done }
}

async fn plan(args: &Args, workspace: &Workspace, manifests: &[Arc<Manifest>]) -> CommandResult {
    let place = |id: &ResourceId| manifests.iter().find(|m| m.id == *id).and_then(|m| m.place());
    let (mut request, clouds) = workspace.request(manifests, Vec::new()).await?;
    request.allow_recreate = args.recreate.allow_recreate;
    let planned = make_plan(&clouds, &request, &workspace.store, &place).await?;
    let plan = planned.plan;
    if let Some(path) = &args.out {
        SavedPlan::save(&workspace.store, manifests, &[], &plan, path)?;
    }
    let names = || plan.resources.iter().map(|r| r.id.to_string()).collect();
    output::show(args.output.output, &plan.to_json(), |wide| plan_view::text(&plan, wide, false), names)?;
    let denied = policies::tell(&workspace.store, &request, &plan).await?;
    let refused = protected(&plan, |id| is_protected_here(&request, id));
    Ok(ended(args, &plan, denied, refused))
}
