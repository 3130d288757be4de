//! Resources deleted by the embedded engine.

use super::carry_out::{allowed, carry_out, make_plan};
use super::policies;
use super::workspace::Workspace;
use crate::args::{Address, ConfirmArgs};
use crate::backend::{ChangeOptions, Ended};
use crate::failure::Failure;
use crate::view::output::Format;
use crate::view::plan_view;
use berth_engine::Known;
use berth_model::ResourceId;
use berth_store::Entries;
use std::time::Instant;

/// How many changes are looked through for a resource that is not there.
const JOURNAL_MAX: u32 = 10_000;

pub async fn delete(
    workspace: &Workspace,
    known: Known,
    ids: Vec<ResourceId>,
    options: &ChangeOptions<'_>,
) -> Result<Ended, Failure> {
    let run = workspace.begin("delete").await?;
    let (mut request, clouds) = workspace.request(&[], ids).await?;
    request.known = known;
    let planned = make_plan(&clouds, &request, &workspace.store, &|_| None).await?;
    if options.for_people() {
        let allowed = options.confirm.allow_replace;
        anstream::eprint!("{}", plan_view::text(&planned.plan, options.format == Format::Wide, allowed));
    }
    policies::check(&workspace.store, &request, &planned.plan).await?;
    let confirm = ConfirmArgs { sandbox: workspace.args.sandbox.sandbox, ..options.confirm };
    allowed(&planned.plan, confirm, &request)?;
    let began = Instant::now();
    for id in &request.unwanted {
        run.set_deleting(id).await?;
    }
    let (count, calls) = (request.unwanted.len(), clouds.calls());
    let exit = carry_out(&clouds, run, &request, planned, options.run, options.format).await?;
    Ok(Ended { exit, count, cluster: None, idle: false, began, calls })
}

pub async fn was_deleted(workspace: &Workspace, address: &Address) -> Result<bool, Failure> {
    let changes = workspace.store.journal(Entries::All, JOURNAL_MAX).await?;
    Ok(changes.iter().any(|change| change.op == "delete" && address.matches(&change.resource)))
}
