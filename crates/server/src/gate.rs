//! Whether a plan may be carried out: protection, policies, permissions, approvals. The single gate, and pure: what it
//! decides follows from what it is given.

use crate::environment::Environment;
use crate::policy::{Effect, Facts, Policy, Verdict};

use berth_engine::unit::Op;
use berth_engine::{
    Action, ChangeEffect, FieldChange, GoneCount, Plan, PlanReason, ResourcePlan, UnitPlan, is_unknown, written,
};
use berth_model::ResourceId;
use berth_model::annotations::PROTECT;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What the gate must know of a resource beside its plan. Secrets are masked before it comes here.
#[derive(Clone, Debug)]
pub struct GateInput {
    pub id: ResourceId,
    /// The manifest as JSON; for a deletion, the stored one.
    pub manifest: Value,
    /// The manifest before this change; nothing for what is new.
    pub old: Option<Value>,
    pub generation: i64,
    /// Who applied this generation, or asked for the deletion.
    pub applied_by: String,
    /// Objects may be replaced, or deleted where they are no longer declared.
    pub allow_replace: bool,
    /// Objects with data in them may be.
    pub allow_data_loss: bool,
    /// What is not found may be made again, also when much of its account seems gone at once.
    pub allow_recreate: bool,
    /// How much of the account seems gone, where the plan makes something again that was there.
    pub gone: Option<GoneCount>,
    pub approval: Option<Approval>,
}

/// What someone approved.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    pub by: String,
    pub digest: String,
    pub plan: Plan,
    /// The resource's generation when the plan was made.
    pub generation: i64,
}

/// What becomes of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    Proceed {
        warnings: Vec<Verdict>,
    },
    AwaitApproval {
        digest: String,
        warnings: Vec<Verdict>,
        /// Why, where it is not for the environment.
        held: Option<GoneCount>,
    },
    /// Nothing of it is carried out.
    Block {
        message: String,
        verdicts: Vec<Verdict>,
    },
}

/// Decides about one resource. A plan without it does nothing and may proceed.
pub fn gate(
    plan: &Plan,
    input: &GateInput,
    environment: Option<&Environment>,
    policies: &[Policy],
    now: Timestamp,
) -> Gate {
    let Some(resource) = plan.resources.iter().find(|r| r.id == input.id && does_something(r)) else {
        return Gate::Proceed { warnings: Vec::new() };
    };
    let verdicts = verdicts(resource, input, policies, now);
    if let Some(message) = standing_in_the_way(resource, input, &verdicts) {
        return Gate::Block { message, verdicts };
    }
    let is_protected = environment.is_some_and(|environment| environment.protected);
    let held = input.gone.clone().filter(|gone| gone.is_much() && !input.allow_recreate);
    let waits = is_protected || held.is_some();
    if !waits || input.approval.as_ref().is_some_and(|approval| covers(approval, input.generation, plan)) {
        return Gate::Proceed { warnings: verdicts };
    }
    Gate::AwaitApproval { digest: digest(plan), warnings: verdicts, held }
}

/// What the policies say of one resource's plan, denials first.
pub fn verdicts(resource: &ResourcePlan, input: &GateInput, policies: &[Policy], now: Timestamp) -> Vec<Verdict> {
    let concerned: Vec<&Policy> = policies.iter().filter(|policy| policy.concerns(&resource.id)).collect();
    if concerned.is_empty() || !does_something(resource) {
        return Vec::new();
    }
    let facts = Facts::new(resource, input, now);
    let mut verdicts: Vec<Verdict> = concerned.into_iter().filter_map(|policy| policy.judge(&facts)).collect();
    verdicts.sort_by_key(|verdict| verdict.effect != Effect::Deny);
    verdicts
}

fn does_something(resource: &ResourcePlan) -> bool {
    resource.action != Action::Unchanged
}

fn standing_in_the_way(resource: &ResourcePlan, input: &GateInput, verdicts: &[Verdict]) -> Option<String> {
    let id = &resource.id;
    if resource.takes_away() && input.is_protected() {
        return Some(format!(
            "{id} is protected by its annotation {PROTECT}: it may not be {}",
            match resource.action {
                Action::Delete => "deleted",
                _ => "replaced, or objects of it removed",
            }
        ));
    }
    let denials: Vec<String> = verdicts.iter().filter(|v| v.effect == Effect::Deny).map(ToString::to_string).collect();
    if !denials.is_empty() {
        return Some(denials.join("; "));
    }
    // Asking for the deletion of a whole resource is the permission for it.
    if resource.action == Action::Delete {
        return None;
    }
    if resource.takes_away() && !input.allow_replace {
        let what = if resource.action == Action::Replace { "replaced" } else { "partly replaced or removed" };
        return Some(format!("{id} would be {what}, which was not allowed: apply it with --allow-replace"));
    }
    let loses_data = resource.units.iter().any(|unit| unit.loses_data);
    (loses_data && !input.allow_data_loss).then(|| {
        format!("{id} would lose data, which was not allowed: look at its plan, then apply it with --allow-replace")
    })
}

impl GateInput {
    /// Nothing is allowed and nothing approved.
    pub fn new(id: ResourceId, manifest: Value) -> Self {
        Self {
            id,
            manifest,
            old: None,
            generation: 0,
            applied_by: String::new(),
            allow_replace: false,
            allow_data_loss: false,
            allow_recreate: false,
            gone: None,
            approval: None,
        }
    }

    /// Either is enough: taking the protection off is a change of its own, applied before the one it allows.
    fn is_protected(&self) -> bool {
        let protects = |manifest: &Value| {
            manifest.pointer("/metadata/annotations").and_then(|all| all.get(PROTECT)) == Some(&Value::from("true"))
        };
        protects(&self.manifest) || self.old.as_ref().is_some_and(protects)
    }
}

/// Whether an approval is for what is to be done now: the same generation, and no step that the approved plan did not
/// show. After a crash the rest of an approved plan is planned anew and looks different (made objects are taken up,
/// a replacement's old object is only deleted), so that comparing digests alone would ask a second time.
pub fn covers(approval: &Approval, generation: i64, plan: &Plan) -> bool {
    if approval.generation != generation {
        return false;
    }
    if approval.digest == digest(plan) {
        return true;
    }
    plan.resources.iter().filter(|resource| does_something(resource)).all(|resource| {
        let approved = approval.plan.resources.iter().find(|approved| approved.id == resource.id);
        approved.is_some_and(|approved| {
            (approved.action == Action::Delete) == (resource.action == Action::Delete)
                && resource.units.iter().all(|unit| shown(approved, unit))
        })
    })
}

/// Whether the approved plan showed this step, or one that it is the rest of.
fn shown(approved: &ResourcePlan, unit: &UnitPlan) -> bool {
    let Some(op) = unit.op else { return true };
    let steps = approved.units.iter().filter(|step| step.key == unit.key && step.unit_type == unit.unit_type);
    steps.filter_map(|step| Some((step, step.op?))).any(|(step, shown)| {
        let keeps_data = step.loses_data || !unit.loses_data;
        match (shown, op) {
            // Nothing is changed by taking up what an earlier run began.
            (_, Op::Adopt) => true,
            // What was half made is finished; the new object of a replacement is a new one.
            (Op::Create, Op::Create) => step.delete_first || !unit.delete_first,
            (Op::Create | Op::Replace, Op::Update) => unit.changes.iter().all(|c| c.effect != ChangeEffect::Roll),
            (Op::Replace, Op::Create) => true,
            (Op::Replace, Op::Replace | Op::Delete) | (Op::Delete, Op::Delete) => keeps_data,
            (Op::Update, Op::Update) => {
                unit.changes.iter().all(|change| step.changes.iter().any(|shown| is_rest_of(change, shown)))
            }
            _ => false,
        }
    })
}

/// Whether a change leads where an approved one was to lead, and takes no more. Where it starts from may have moved.
fn is_rest_of(change: &FieldChange, approved: &FieldChange) -> bool {
    change.field == approved.field
        && (change.to == approved.to || is_unknown(&approved.to))
        && (change.effect == approved.effect || change.effect == ChangeEffect::InPlace)
}

/// Names what a plan does, not when or how long: an approval is for one digest.
pub fn digest(plan: &Plan) -> String {
    let mut hash = Sha256::new();
    let mut resources: Vec<&ResourcePlan> = plan.resources.iter().filter(|r| does_something(r)).collect();
    resources.sort_by(|a, b| a.id.cmp(&b.id));
    for resource in resources {
        let ResourceId { kind, name, org, env } = &resource.id;
        put(&mut hash, "resource");
        for part in [kind, name, org, env] {
            put(&mut hash, part);
        }
        put(&mut hash, &format!("{:?}", resource.action));
        let mut units: Vec<&UnitPlan> = resource.units.iter().filter(|unit| unit.op.is_some()).collect();
        // By the written text: versions before the codes sorted by it, and their digests are kept with approvals.
        let reason = |unit: &UnitPlan| unit.reason.map_or("", PlanReason::written);
        units.sort_by(|a, b| (&a.key, &a.unit_type, reason(a)).cmp(&(&b.key, &b.unit_type, reason(b))));
        for unit in units {
            put(&mut hash, "unit");
            put(&mut hash, &unit.key);
            put(&mut hash, &unit.unit_type);
            put(&mut hash, &format!("{:?} {} {}", unit.op, unit.delete_first, unit.loses_data));
            for change in &unit.changes {
                put(&mut hash, "change");
                put(&mut hash, &change.field);
                put(&mut hash, &canonical(&written(&change.from)));
                put(&mut hash, &canonical(&written(&change.to)));
                put(&mut hash, &format!("{:?}", change.effect));
            }
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// With its length, so that no two plans have the same bytes.
fn put(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}

/// JSON in which the order of keys says nothing.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, String> = map.iter().map(|(key, inner)| (key, canonical(inner))).collect();
            let parts: Vec<String> = sorted.iter().map(|(key, inner)| format!("{key:?}:{inner}")).collect();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
