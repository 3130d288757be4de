//! `berth plan`: what apply would do. Changes nothing.

use crate::carry_out::make_plan;
use crate::cli::{Threads, block_on};
use crate::failure::{Exit, Outcome};
use crate::files::FileArgs;
use crate::output::{self, OutputArgs};
use crate::saved_plan::SavedPlan;
use crate::workspace::{Workspace, WorkspaceArgs};
use crate::{manifests, plan_view};
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
    /// Exit with 2 when there are changes
    #[arg(long)]
    detailed_exitcode: bool,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> Outcome {
    let loaded = manifests::load(&args.files.file, &args.workspace.as_state()?)?;
    if loaded.has_errors() {
        return loaded.refuse(args.output.output);
    }
    loaded.print();
    let manifests: Vec<Arc<Manifest>> = loaded.manifests.into_iter().map(Arc::new).collect();
    block_on(Threads::beside(&args.workspace.sandbox), async {
        let workspace = Workspace::open(&args.workspace).await?;
        let result = plan(&args, &workspace, &manifests).await;
        workspace.close().await;
        result
    })
}

async fn plan(args: &Args, workspace: &Workspace, manifests: &[Arc<Manifest>]) -> Outcome {
    let place = |id: &ResourceId| manifests.iter().find(|m| m.id == *id).and_then(|m| m.place());
    let (request, clouds) = workspace.request(manifests, Vec::new()).await?;
    let planned = make_plan(&clouds, &request, &args.workspace, &place).await?;
    let plan = planned.plan;
    if let Some(path) = &args.out {
        SavedPlan::new(&workspace.store, manifests, &[], &plan)?.write(path)?;
    }
    let names = || plan.resources.iter().map(|r| r.id.to_string()).collect();
    output::show(args.output.output, &plan.to_json(), |wide| plan_view::text(&plan, wide), names)?;
    if let Some(path) = args.out.as_ref().filter(|_| !plan.is_empty()) {
        let flag = if args.workspace.sandbox.sandbox { " --sandbox" } else { "" };
        anstream::eprintln!("to carry out exactly this:   berth apply {}{flag}", path.display());
    }
    Ok(if args.detailed_exitcode && !plan.is_empty() { Exit::Pending } else { Exit::Done })
}
