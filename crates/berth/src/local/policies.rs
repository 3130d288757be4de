//! Policies without a server: the same rules over the same plan, read from the state and from what is applied with it.

use crate::backend::Judgement;
use crate::failure::Failure;
use crate::view::terminal::harmless_line;
use berth_engine::{Plan, Request};
use berth_model::{Manifest, ResourceId};
use berth_server::gate::{GateInput, verdicts};
use berth_server::policy::{Effect, Policy, Verdict};
use berth_store::{Filter, Store};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// What policies say of a plan, denials first for each resource.
async fn judge(store: &Store, request: &Request, plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut policies: BTreeMap<ResourceId, Policy> = BTreeMap::new();
    for stored in store.resources(&Filter { kind: Some("Policy".into()), ..Filter::default() }).await? {
        let policy = Policy::of(&stored.id, &stored.sealed_manifest()?);
        policies.insert(stored.id, policy);
    }
    // A policy that is applied in the same command is already in force.
    for manifest in request.wanted.iter().map(|w| &w.manifest).filter(|m| m.id.kind == "Policy") {
        policies.insert(manifest.id.clone(), Policy::of(&manifest.id, &manifest.to_json()));
    }
    if policies.is_empty() {
        return Ok(Vec::new());
    }
    let policies: Vec<Policy> = policies.into_values().collect();
    let wanted: BTreeMap<&ResourceId, &Manifest> =
        request.wanted.iter().map(|w| (&w.manifest.id, &*w.manifest)).collect();
    let now = Timestamp::now();
    let judged = plan.resources.iter().flat_map(|resource| {
        let shown = |manifest: &Manifest| manifest.redacted().to_json();
        let old = request.known.resources.get(&resource.id).map(|known| shown(&known.manifest));
        let manifest = wanted.get(&resource.id).map(|manifest| shown(manifest)).or_else(|| old.clone());
        let input = GateInput {
            old,
            applied_by: "local".into(),
            ..GateInput::new(resource.id.clone(), manifest.unwrap_or_default())
        };
        verdicts(resource, &input, &policies, now)
    });
    Ok(judged.collect())
}

/// Says what policies warn about, and refuses what they deny: nothing was changed yet.
pub async fn check(store: &Store, request: &Request, plan: &Plan) -> Result<(), Failure> {
    for manifest in request.wanted.iter().map(|w| &w.manifest).filter(|m| m.id.kind == "Environment") {
        if manifest.field_value("spec.protected").as_deref() == Some("true") {
            let id = manifest.id.to_string();
            anstream::eprintln!(
                "note: {} is protected: on a server its plans wait for an approval; here nothing waits",
                harmless_line(&id)
            );
        }
    }
    let verdicts = judge(store, request, plan).await?;
    for warning in verdicts.iter().filter(|verdict| verdict.effect == Effect::Warn) {
        anstream::eprintln!("warning: {}", harmless_line(&format!("{}: {warning}", warning.id)));
    }
    let mut denials = verdicts.iter().filter(|verdict| verdict.effect == Effect::Deny);
    let Some(first) = denials.next() else { return Ok(()) };
    let mut failure = Failure::new(format!("{}: {first}; nothing was changed", first.id));
    for other in denials.take(20) {
        failure = failure.note(format!("{}: {other}", other.id));
    }
    Err(failure)
}

/// What policies say of a plan that is only looked at.
pub async fn judgement(store: &Store, request: &Request, plan: &Plan) -> Result<Judgement, Failure> {
    let mut judgement = Judgement::default();
    for verdict in judge(store, request, plan).await? {
        let word = if verdict.effect == Effect::Deny { "denied" } else { "warning" };
        judgement.lines.push(format!("{word}: {}", harmless_line(&format!("{}: {verdict}", verdict.id))));
        judgement.denied |= verdict.effect == Effect::Deny;
    }
    Ok(judgement)
}
