//! The server's word on a plan: the gate, with what it must know read from the store.

use super::account;
use crate::api::Shared;
use crate::environment::Environment;
use crate::fault::{Code, Fault};
use crate::gate::{Approval, Gate, GateInput, covers, digest, gate};
use crate::guards::{off_runtime, previous, shown};
use crate::policy::Verdict;
use berth_engine::unit::Identity;
use berth_engine::{Action, Plan};
use berth_store::{ControlMeta, PlanDecision, StoredResource, Task};

/// What follows when much of an account seems gone.
pub const HELD: &str = "making it again waits until it is applied with --allow-recreate, or somebody else approves it";

pub struct Decided {
    pub decision: PlanDecision,
    /// Names the plan.
    pub digest: String,
    /// The plan to keep; an approved one stays until all of it is carried out.
    pub plan: String,
    /// For the worker's log.
    pub message: String,
    pub warnings: Vec<Verdict>,
}

/// Decides about a plan that a worker hands in. Whatever cannot be decided is refused: a gate that fails stays shut.
pub async fn decide_plan(
    shared: &Shared,
    task: &Task,
    plan: &Plan,
    text: &str,
    who: Option<&Identity>,
) -> Result<Decided, Fault> {
    let gone = || Fault::new(Code::Refused, "the task is about nothing that is stored");
    let id = task.resource.as_ref().ok_or_else(gone)?;
    if let Some(other) = plan.resources.iter().find(|r| r.id != *id && r.action != Action::Unchanged) {
        return Err(Fault::new(Code::InvalidArgument, format!("the plan changes {}, the task is for {id}", other.id)));
    }
    let stored = shared.control.store().resource(id).await?.ok_or_else(gone)?;
    let metas = shared.control.meta(std::slice::from_ref(id)).await?;
    let meta = metas.into_iter().next().ok_or_else(gone)?;
    let is_deletion = plan.resources.iter().any(|r| r.id == *id && r.action == Action::Delete);
    if is_deletion != stored.deleting || task.generation != stored.generation {
        return Err(Fault::new(Code::Conflict, format!("{id} changed while it was planned")));
    }
    let gone = account::check(shared, task, plan, who).await?;
    let input = GateInput { old: previous(shared, &stored).await?, gone, ..input(&stored, &meta)? };
    let (recreates, allow_recreate) = (input.gone.is_some(), input.allow_recreate);
    let rules = shared.books.open(&shared.control, shared.alone).await?;
    let environment = Environment::for_resource(id, &rules.environments);
    let approved = input.approval.clone().filter(|approval| covers(approval, input.generation, plan));
    let (judged, now) = (plan.clone(), shared.now());
    let verdict = off_runtime(move || gate(&judged, &input, environment.as_ref(), &rules.policies, now)).await;
    // Asked again, it would be no other; and nobody may go through a gate that cannot be asked.
    let verdict = verdict.unwrap_or_else(|fault| Gate::Block { message: fault.message, verdicts: Vec::new() });
    let own = |decision, message, warnings| Decided {
        decision,
        digest: digest(plan),
        plan: text.to_owned(),
        message,
        warnings,
    };
    if recreates && matches!(verdict, Gate::Proceed { .. }) && (allow_recreate || approved.is_some()) {
        shared.control.forget_gone(vec![id.clone()]).await?;
    }
    Ok(match verdict {
        Gate::Proceed { warnings } => match approved {
            Some(approval) => Decided {
                decision: PlanDecision::Proceed,
                message: format!("approved by {}", approval.by),
                digest: approval.digest,
                plan: meta.plan,
                warnings,
            },
            None => own(PlanDecision::Proceed, String::new(), warnings),
        },
        Gate::AwaitApproval { warnings, held: Some(gone), .. } => {
            let message = format!("{gone}: {HELD}");
            own(PlanDecision::Hold(message.clone()), message, warnings)
        }
        Gate::AwaitApproval { warnings, .. } => {
            let message = format!("{id} is in a protected environment: its plan waits for approval");
            own(PlanDecision::AwaitApproval, message, warnings)
        }
        Gate::Block { message, verdicts } => {
            let warnings = verdicts.into_iter().filter(|v| v.effect == crate::policy::Effect::Warn).collect();
            own(PlanDecision::Block(message.clone()), message, warnings)
        }
    })
}

/// A resource that is Ready was carried out as it was allowed and approved: a repair of it is a change of its own.
fn input(stored: &StoredResource, meta: &ControlMeta) -> Result<GateInput, Fault> {
    let manifest = shown(&stored.sealed_manifest()?, &stored.id)?;
    let is_open = !stored.settled() || stored.deleting;
    // Without its digest, a plan is one that was carried out: nothing of it is left to be done.
    let is_approved = is_open && !meta.approved_id.is_empty() && !meta.plan_digest.is_empty();
    let approval = serde_json::from_str(&meta.plan).ok().filter(|_| is_approved);
    Ok(GateInput {
        generation: stored.generation,
        applied_by: meta.applied_by.clone(),
        allow_replace: is_open && meta.allow_replace,
        allow_data_loss: is_open && meta.allow_data_loss,
        allow_recreate: is_open && meta.allow_recreate,
        approval: approval.map(|plan| Approval {
            by: meta.approved_by.clone(),
            digest: meta.plan_digest.clone(),
            plan,
            generation: stored.generation,
        }),
        ..GateInput::new(stored.id.clone(), manifest)
    })
}
