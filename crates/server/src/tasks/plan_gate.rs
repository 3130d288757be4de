//! Decides whether a worker may carry out its plan: reads from the store what the gate needs, and asks the gate.

use super::{account, verify};
use crate::api::ServerState;
use crate::environment::Environment;
use crate::fault::{Code, Fault};
use crate::gate::{Approval, Gate, GateInput, covers, digest, gate};
use crate::policy::Verdict;
use crate::policy_check::{off_runtime, previous, without_secrets};
use berth_clouds::one_form;
use berth_engine::unit::Identity;
use berth_engine::{Action, Plan};
use berth_model::ResourceId;
use berth_store::{ControlMeta, PlanDecision, PlanStep, StoredResource, Task};
use serde_json::Value;
use std::collections::BTreeSet;

/// Bytes of an object's id.
const MIN_ID: usize = 2;
const MAX_ID: usize = 1024;

/// What follows when much of an account seems gone.
pub const HELD: &str = "making it again waits until it is applied with --allow-recreate, or somebody else approves it";

pub struct PlanVerdict {
    pub decision: PlanDecision,
    /// Names the plan.
    pub digest: String,
    /// The plan to keep; an approved one stays until all of it is carried out.
    pub plan: String,
    /// For the worker's log.
    pub message: String,
    pub warnings: Vec<Verdict>,
    /// What the worker may record when it carries the plan out.
    pub steps: Vec<PlanStep>,
}

/// Decides about a plan that a worker hands in. Whatever cannot be decided is refused: a gate that fails stays shut.
pub async fn decide_plan(
    server: &ServerState,
    task: &Task,
    plan: &Plan,
    text: &str,
    who: Option<&Identity>,
) -> Result<PlanVerdict, Fault> {
    let gone = || Fault::new(Code::Refused, "the task is about nothing that is stored");
    let id = task.resource.as_ref().ok_or_else(gone)?;
    let stored = server.control.store().resource(id).await?.ok_or_else(gone)?;
    let metas = server.control.meta(std::slice::from_ref(id)).await?;
    let meta = metas.into_iter().next().ok_or_else(gone)?;
    let is_deletion = plan.resources.iter().any(|r| r.id == *id && r.action == Action::Delete);
    if is_deletion != stored.deleting || task.generation != stored.generation {
        return Err(Fault::new(Code::Conflict, format!("{id} changed while it was planned")));
    }
    let steps = verify::steps(server, task, &stored, plan).await?;
    let gone = account::check(server, task, plan, who).await?;
    let input = GateInput { old: previous(server, &stored).await?, gone, ..input(&stored, &meta)? };
    let (recreates, allow_recreate) = (input.gone.is_some(), input.allow_recreate);
    let rules = server.policy_cache.get(&server.control, server.alone).await?;
    let environment = Environment::for_resource(id, &rules.environments);
    let used = used(server, id, plan).await?;
    let is_shielded =
        |other: &ResourceId| Environment::for_resource(other, &rules.environments).is_some_and(|e| e.protected);
    let through = used.known.iter().any(is_shielded);
    let environment = match through {
        true => Some(Environment { protected: true, ..environment.unwrap_or_default() }),
        false => environment,
    };
    let approved = input.approval.clone().filter(|approval| covers(approval, input.generation, plan));
    let (judged, now) = (plan.clone(), server.now());
    let verdict = off_runtime(move || gate(&judged, &input, environment.as_ref(), &rules.policies, now)).await;
    // Asked again, it would be no other; and nobody may go through a gate that cannot be asked.
    let verdict = verdict.unwrap_or_else(|fault| Gate::Block { message: fault.message, verdicts: Vec::new() });
    let own = |decision, message, warnings| PlanVerdict {
        steps: steps.clone(),
        decision,
        digest: digest(plan),
        plan: text.to_owned(),
        message,
        warnings,
    };
    if used.elsewhere {
        let message = format!("{id} would use an object of a resource in another org or env that it does not refer to");
        return Ok(own(PlanDecision::Block(message.clone()), message, Vec::new()));
    }
    if recreates && matches!(verdict, Gate::Proceed { .. }) && (allow_recreate || approved.is_some()) {
        server.control.forget_gone(vec![id.clone()]).await?;
    }
    Ok(match verdict {
        Gate::Proceed { warnings } => match approved {
            Some(approval) => PlanVerdict {
                decision: PlanDecision::Proceed,
                message: format!("approved by {}", approval.by),
                digest: approval.digest,
                plan: meta.plan,
                warnings,
                steps,
            },
            None => own(PlanDecision::Proceed, String::new(), warnings),
        },
        Gate::AwaitApproval { warnings, held: Some(gone), .. } => {
            let message = format!("{gone}: {HELD}");
            own(PlanDecision::Hold(message.clone()), message, warnings)
        }
        Gate::AwaitApproval { warnings, .. } => {
            let how = if through { "uses what is" } else { "is" };
            let message = format!("{id} {how} in a protected environment: its plan waits for approval");
            own(PlanDecision::AwaitApproval, message, warnings)
        }
        Gate::Block { message, verdicts } => {
            let warnings = verdicts.into_iter().filter(|v| v.effect == crate::policy::Effect::Warn).collect();
            own(PlanDecision::Block(message.clone()), message, warnings)
        }
    })
}

/// The resources whose objects a plan would use.
struct Used {
    /// Those that the resource refers to, by name or by id: the caller who applied it may change them, too.
    known: Vec<ResourceId>,
    /// There are others, in another org or env.
    elsewhere: bool,
}

async fn used(server: &ServerState, id: &ResourceId, plan: &Plan) -> Result<Used, Fault> {
    let mut known = server.control.parents(id).await?;
    known.retain(|parent| parent.kind != "Account");
    let mut objects = BTreeSet::new();
    let changes = plan.resources.iter().flat_map(|resource| &resource.units).flat_map(|unit| &unit.changes);
    changes.for_each(|change| texts(&change.to, &mut objects));
    let objects: Vec<String> = objects.into_iter().collect();
    let mut elsewhere = false;
    for (_, owner) in server.control.store().managers(&objects).await? {
        let near = owner.org == id.org && owner.env == id.env;
        elsewhere |= !near && !known.contains(&owner);
    }
    Ok(Used { known, elsewhere })
}

/// Every text that could be an object's id.
fn texts(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if (MIN_ID..=MAX_ID).contains(&text.len()) => {
            into.insert(one_form(text));
            into.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(map) => map.values().for_each(|item| texts(item, into)),
        _ => {}
    }
}

/// A resource that is Ready was carried out as it was allowed and approved: a repair of it is a change of its own.
fn input(stored: &StoredResource, meta: &ControlMeta) -> Result<GateInput, Fault> {
    let manifest = without_secrets(stored, &stored.sealed_manifest()?)?;
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
