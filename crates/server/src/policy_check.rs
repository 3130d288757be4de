//! Evaluates stored policies for a plan.

use crate::api::ServerState;
use crate::fault::{Code, Fault};
use crate::gate::{self, GateInput};
use crate::pb;
use crate::policy::Verdict;
use berth_engine::{Action, Plan};
use berth_model::{Manifest, ResourceId};
use berth_store::StoredResource;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;

/// Longest time for all policies of one plan together; a worker waits a little longer for its answer.
const JUDGING: Duration = Duration::from_secs(5);

/// A manifest of a stored resource as policies may see it.
pub fn without_secrets(stored: &StoredResource, json: &Value) -> Result<Value, Fault> {
    Ok(stored.manifest(json)?.redacted().to_json())
}

/// Runs off the runtime: evaluating rules is work for a processor. What does not end in time has no answer.
pub async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    let judged = tokio::time::timeout(JUDGING, tokio::task::spawn_blocking(work)).await;
    match judged {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Fault::new(Code::Internal, "the policies could not be evaluated")),
        Err(_) => Err(Fault::new(Code::TimedOut, "the policies took too long")),
    }
}

/// What policies say of a plan that somebody asked for or looks at. `manifests` are those that were given; what is not
/// among them is judged by what is stored.
pub async fn foresee(
    server: &ServerState,
    actor: &str,
    plan: &Plan,
    manifests: &HashMap<&ResourceId, &Manifest>,
) -> Result<Vec<pb::Verdict>, Fault> {
    let cached = server.policy_cache.get(&server.control, server.alone).await?;
    if cached.policies.is_empty() {
        return Ok(Vec::new());
    }
    let mut inputs = Vec::new();
    for resource in plan.resources.iter().filter(|r| r.action != Action::Unchanged) {
        let id = &resource.id;
        let stored = match server.control.store().resource(id).await? {
            Some(stored) => Some(without_secrets(&stored, &stored.sealed_manifest()?)?),
            None => None,
        };
        let given = manifests.get(id).map(|manifest| manifest.redacted().to_json());
        let manifest = given.or_else(|| stored.clone()).unwrap_or_default();
        let input = GateInput { old: stored, applied_by: actor.to_owned(), ..GateInput::new(id.clone(), manifest) };
        inputs.push((resource.clone(), input));
    }
    let now = server.now();
    off_runtime(move || {
        let judged = inputs.iter().flat_map(|(plan, input)| gate::verdicts(plan, input, &cached.policies, now));
        judged.map(pb::Verdict::from).collect()
    })
    .await
}

/// The manifest before the stored one, as policies may see it; nothing for the first generation.
pub async fn previous(server: &ServerState, stored: &StoredResource) -> Result<Option<Value>, Fault> {
    if stored.generation <= 1 {
        return Ok(None);
    }
    let Some(revision) = server.control.revision(&stored.id, stored.generation - 1).await? else { return Ok(None) };
    Ok(Some(without_secrets(stored, &server.control.store().unseal_revision(&revision)?)?))
}

impl From<Verdict> for pb::Verdict {
    fn from(verdict: Verdict) -> Self {
        Self {
            policy: verdict.policy,
            effect: verdict.effect.name().into(),
            message: verdict.message,
            id: Some((&verdict.id).into()),
        }
    }
}
