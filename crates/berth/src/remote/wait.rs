//! Waits for a server, which completes unfinished work by itself.

use super::Remote;
use super::carry_out::tell;
use super::follow::{Goal, Watch, follow};
use crate::failure::CommandResult;
use crate::local::carry_out::print_result;
use crate::view::output::Format;
use berth_engine::{Action, Plan, ResourcePlan, parents};
use berth_store::StoredResource;
use std::time::{Duration, Instant};

pub async fn wait(
    remote: &Remote,
    pending: Vec<StoredResource>,
    gone: bool,
    timeout: Duration,
    format: Format,
) -> CommandResult {
    let started = Instant::now();
    let since = remote.last_event().await?;
    let mut plan = Plan::default();
    for one in &pending {
        let manifest = one.manifest(&one.sealed_manifest()?)?;
        plan.resources.push(ResourcePlan {
            id: one.id.clone(),
            action: if gone { Action::Delete } else { Action::Resume },
            units: Vec::new(),
            after: if gone { Vec::new() } else { parents(&manifest) },
            typical_seconds: None,
            strays: Vec::new(),
        });
    }
    let goal = |one: StoredResource| Goal { id: one.id, gone, generation: one.generation, before: None };
    let goals = pending.into_iter().map(goal).collect();
    let watch = Watch { since, timeout, approvals: true };
    let followed = follow(remote, goals, &plan, watch).await?;
    print_result(&plan, &followed.report, started.elapsed(), 0, format)?;
    Ok(tell(&followed, gone, started))
}
