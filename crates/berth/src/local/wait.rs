//! Unfinished work, completed by the embedded engine.

use super::carry_out::{carry_out, make_plan};
use super::workspace::Workspace;
use crate::args::RunArgs;
use crate::args::repeated_flags;
use crate::failure::{CommandResult, Failure};
use crate::view::output::Format;
use berth_engine::{Action, ResourcePlan};
use berth_model::Manifest;
use berth_store::{StoreError, StoredResource};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the state is looked at while another command is at work on it.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Waits for another command that has the right to write, until a time.
pub async fn begin_when_free(workspace: &Workspace, command: &str, until: Instant) -> Result<(), Failure> {
    let mut said = false;
    loop {
        match workspace.begin(command).await {
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
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

pub async fn wait(
    workspace: &Workspace,
    pending: Vec<StoredResource>,
    gone: bool,
    timeout: Duration,
    format: Format,
) -> CommandResult {
    let run = workspace.begin("wait").await?;
    let mut manifests: Vec<Arc<Manifest>> = Vec::new();
    let mut unwanted = Vec::new();
    for stored in pending {
        match gone {
            true => unwanted.push(stored.id),
            false => manifests.push(Arc::new(stored.manifest(&workspace.store.unseal(&stored)?)?)),
        }
    }
    let (request, clouds) = workspace.request(&manifests, unwanted).await?;
    let planned = make_plan(&clouds, &request, &workspace.store, &|_| None).await?;
    // A deletion was allowed when it was begun; other changes are not made here.
    let more = planned.plan.resources.iter().find(|r| !gone && !matches!(r.action, Action::Resume | Action::Unchanged));
    if let Some(more) = more {
        return Err(not_enough(more));
    }
    let run_args = RunArgs { parallelism: None, timeout, no_wait: false, wait: false };
    carry_out(&clouds, run, &request, planned, &run_args, format).await
}

fn not_enough(more: &ResourcePlan) -> Failure {
    let mut failure = Failure::new(format!("waiting is not enough for {}: something has to be changed", more.id));
    if let Some(reason) = more.units.iter().find_map(|unit| unit.reason) {
        failure = failure.note(reason.to_string());
    }
    failure
        .help(format!("to look:   {}", repeated_flags::command("drift", &more.id)))
        .help(format!("to carry it out:   {}", repeated_flags::command("apply", &more.id)))
}
