//! Apply: from manifests to desired state, all or nothing.

use super::check::{Checked, MANIFESTS_MAX, check, invalid};
use super::uses;
use crate::access::{Principal, Role, audit};
use crate::api::ServerState;
use crate::api::arguments::{invalid_argument, parse_id_message};
use crate::api::messages::applied;
use crate::drift_schedule;
use crate::fault::{Code, Fault};
use crate::merge::merge;
use crate::policy_cache;
use crate::saved_plan;
use crate::telemetry;
use crate::values::to_value;
use crate::{environment::Environment, pb};
use berth_clouds::accounts::{Accounts, account_id};
use berth_model::{Diagnostic, Manifest, ResourceId, Schedule};
use berth_store::{
    Applied, AppliedResult, Apply, AuditNote, ControlError, Desired, ManifestSource, NewResource, StoredResource,
};
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How often a merge is tried anew when someone writes in between.
const TRIES: usize = 5;

pub async fn apply(
    server: &ServerState,
    caller: &Principal,
    request: pb::ApplyRequest,
) -> Result<pb::ApplyResponse, Fault> {
    let pb::ApplyRequest { files, bases, dry_run, delete, retry, saved, .. } = request;
    let (bases, exact) = match saved {
        Some(saved) => {
            saved_plan::check(server.control.store(), &saved, &files, &delete)?;
            (saved.bases, true)
        }
        None => (bases, request.exact),
    };
    let allow = Allow {
        replace: request.allow_replace,
        data_loss: request.allow_data_loss,
        recreate: request.allow_recreate,
        exact,
    };
    for (field, count) in [("bases", bases.len()), ("delete", delete.len())] {
        if count > MANIFESTS_MAX {
            return Err(invalid_argument(field, &format!("there are at most {MANIFESTS_MAX}")));
        }
    }
    let delete = delete.into_iter().map(parse_id_message).collect::<Result<Vec<_>, _>>()?;
    if files.is_empty() && delete.is_empty() {
        return Err(invalid_argument("files", "there is nothing to apply"));
    }
    let known = read_bases(bases)?;
    let Checked { manifests, warnings } = match files.is_empty() {
        true => Checked { manifests: Vec::new(), warnings: Vec::new() },
        false => check(server, caller, files).await?,
    };
    if manifests.len() + delete.len() > MANIFESTS_MAX {
        return Err(invalid_argument("delete", &format!("a request changes at most {MANIFESTS_MAX} resources")));
    }
    for id in manifests.iter().map(|manifest| &manifest.id).chain(&delete) {
        caller.require(Role::Operator, id)?;
    }
    let both: HashSet<&ResourceId> = manifests.iter().map(|manifest| &manifest.id).collect();
    if let Some(id) = delete.iter().find(|id| both.contains(id)) {
        return Err(invalid_argument("delete", &format!("{id} is both declared and to be deleted")));
    }
    if allow.exact
        && let Some(missing) = manifests.iter().find(|manifest| !known.contains_key(&manifest.id))
    {
        return Err(invalid_argument("bases", &format!("{} has none, and `exact` needs one of each", missing.id)));
    }
    let mut tries = 0;
    let done = loop {
        tries += 1;
        let desired = desired(server, &manifests, &known, allow).await?;
        if dry_run {
            break rehearse(server, &desired, &delete).await?;
        }
        let touches = desired.iter().map(|one| &one.resource.id).chain(&delete).any(policy_cache::is_cached);
        let apply = Apply {
            audit: note(&desired, &delete),
            resources: desired,
            delete: delete.clone(),
            actor: caller.actor.clone(),
            retry,
            trace: telemetry::traceparent(),
        };
        let written = server.control.apply(apply, server.now()).await;
        if touches {
            server.policy_cache.clear();
        }
        match written {
            Ok(done) => {
                reschedule(server, &done).await?;
                break done;
            }
            // Someone wrote between the look and the write: look again.
            Err(ControlError::Conflict { .. }) if tries < TRIES && !known.is_empty() => {}
            Err(error) => return Err(caller.told(error)),
        }
    };
    Ok(pb::ApplyResponse { resources: done.iter().map(applied).collect(), warnings })
}

/// Environments say when drift is looked for: what is in one whose word is another now is compared soon, and then as it says.
pub async fn reschedule(server: &ServerState, done: &[Applied]) -> Result<(), Fault> {
    let changed = |one: &&Applied| one.id.kind == "Environment" && one.result != AppliedResult::Unchanged;
    for one in done.iter().filter(changed) {
        server.control.reschedule(&one.id.org, &one.id.name, server.now()).await?;
    }
    Ok(())
}

/// What is to be stored for resources that must not exist yet.
pub async fn desired_new(server: &ServerState, manifests: &[Manifest]) -> Result<Vec<Desired>, Fault> {
    let mut desired = desired(server, manifests, &HashMap::new(), Allow::default()).await?;
    desired.iter_mut().for_each(|one| one.expect = Some(0));
    Ok(desired)
}

#[derive(Clone, Copy, Default)]
struct Allow {
    replace: bool,
    data_loss: bool,
    recreate: bool,
    /// Nothing but what was seen: others' changes are not kept beside it.
    exact: bool,
}

fn read_bases(bases: Vec<pb::Base>) -> Result<HashMap<ResourceId, i64>, Fault> {
    let mut known = HashMap::with_capacity(bases.len());
    for (at, base) in bases.into_iter().enumerate() {
        let id = base.id.ok_or_else(|| invalid_argument(&format!("bases[{at}].id"), "it is needed"))?;
        if base.generation < 0 {
            return Err(invalid_argument(&format!("bases[{at}].generation"), "it is 0 or more"));
        }
        known.insert(parse_id_message(id)?, base.generation);
    }
    Ok(known)
}

/// What is to be stored, merged with what others changed where the caller said what they started from.
async fn desired(
    server: &ServerState,
    manifests: &[Manifest],
    bases: &HashMap<ResourceId, i64>,
    allow: Allow,
) -> Result<Vec<Desired>, Fault> {
    let cached = server.policy_cache.get(&server.control, server.alone).await?;
    let mut merged: HashMap<usize, (Manifest, i64)> = HashMap::new();
    let mut conflicts = Vec::new();
    if !bases.is_empty() {
        for (index, manifest) in manifests.iter().enumerate() {
            if let Some(base) = bases.get(&manifest.id) {
                match merge_one(server, manifest, *base, allow.exact).await? {
                    Ok(one) => {
                        merged.insert(index, one);
                    }
                    Err(mut some) => conflicts.append(&mut some),
                }
            }
        }
    }
    if !conflicts.is_empty() {
        let message = match conflicts.as_slice() {
            [only] if only.field.is_empty() => match &only.id {
                Some(id) => format!("{}/{} is not as it was when this change was begun", id.kind, id.name),
                None => "it is not as it was when this change was begun".into(),
            },
            _ => format!("{} fields were changed by someone else as well", conflicts.len()),
        };
        let mut fault = Fault::new(Code::Conflict, message).help("read it again, then make the change anew");
        fault.conflicts = conflicts;
        return Err(fault);
    }
    let now = server.now();
    let all = manifests.iter().enumerate().map(|(index, manifest)| merged.get(&index).map_or(manifest, |(one, _)| one));
    let uses = uses::uses(server, all).await?;
    cached.with_accounts(manifests, |accounts| {
        let mut problems = Vec::new();
        let mut desired = Vec::with_capacity(manifests.len());
        for (index, manifest) in manifests.iter().enumerate() {
            let (manifest, expect) = match merged.get(&index) {
                Some((merged, generation)) => (merged, Some(*generation)),
                None => (manifest, None),
            };
            match one(manifest, accounts, &cached.environments, now)? {
                Ok(mut one) => {
                    // As good as a reference: it stays while it is used, and its scope and approval count.
                    one.parents.extend(uses.get(&manifest.id).into_iter().flatten().map(|(_, owner)| owner.clone()));
                    one.parents.sort();
                    one.parents.dedup();
                    one.expect = expect;
                    (one.allow_replace, one.allow_data_loss) = (allow.replace, allow.data_loss);
                    one.allow_recreate = allow.recreate;
                    desired.push(one);
                }
                Err(problem) => problems.push(*problem),
            }
        }
        if problems.is_empty() { Ok(desired) } else { Err(invalid(&problems)) }
    })
}

/// Kinds that are facts for others and have no objects in a cloud.
fn is_fact(manifest: &Manifest) -> bool {
    matches!(manifest.id.kind.as_str(), "Environment" | "Policy")
}

fn one(
    manifest: &Manifest,
    accounts: &Accounts,
    environments: &[Environment],
    now: Timestamp,
) -> Result<Result<Desired, Box<Diagnostic>>, Fault> {
    let mut parents = berth_engine::parents(manifest);
    let fact = is_fact(manifest);
    let mut account = String::new();
    if !fact {
        match accounts.choose(manifest) {
            Ok(choice) => account = choice.name,
            Err(trouble) => {
                let mut problem = manifest.problem("spec.account", trouble.to_string());
                problem.help = trouble.help_lines();
                return Ok(Err(Box::new(problem)));
            }
        }
        // Whatever lives in an account waits for it, and keeps it from being deleted.
        parents.extend(account_id(&account).filter(|id| *id != manifest.id));
        parents.sort();
        parents.dedup();
    }
    let drift_every = if fact { None } else { drift_every(manifest, environments, now) };
    Ok(Ok(Desired {
        labels: manifest.metadata.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        resource: NewResource::of(manifest)?,
        parents,
        account,
        service: manifest.kind.service.clone(),
        expect: None,
        allow_replace: false,
        allow_data_loss: false,
        allow_recreate: false,
        ready: fact,
        units: Vec::new(),
        drift_every,
    }))
}

/// The time between two checks; for a pattern of days and hours, the time to the next one.
fn drift_every(manifest: &Manifest, environments: &[Environment], now: Timestamp) -> Option<Duration> {
    const SHORTEST: Duration = Duration::from_secs(60);
    let environment = Environment::for_resource(&manifest.id, environments);
    let annotations = manifest.metadata.annotations.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let drift = drift_schedule::drift_settings(&annotations, &manifest.id.kind, environment.as_ref());
    match &drift.schedule {
        Schedule::Off => None,
        Schedule::Every(interval) => Some(*interval),
        cron => {
            let next = drift_schedule::next_check(cron, now, &manifest.id.to_string())?;
            Duration::try_from(next.duration_since(now)).ok().map(|wait| wait.max(SHORTEST))
        }
    }
}

type Merged = Result<(Manifest, i64), Vec<pb::Conflict>>;

/// The manifest to store for one that was changed from generation `base` on, and the generation that it replaces.
async fn merge_one(server: &ServerState, manifest: &Manifest, base: i64, exact: bool) -> Result<Merged, Fault> {
    let stored = server.control.store().resource(&manifest.id).await?;
    let conflict = |generation: i64, by: &str| pb::Conflict {
        id: Some((&manifest.id).into()),
        base_generation: base,
        generation,
        by: by.to_owned(),
        ..pb::Conflict::default()
    };
    let Some(stored) = stored else {
        return Ok(if base == 0 { Ok((manifest.clone(), 0)) } else { Err(vec![conflict(0, "")]) });
    };
    if stored.generation == base {
        return Ok(Ok((manifest.clone(), base)));
    }
    let by = applied_by(server, &stored).await?;
    let revision = if base == 0 || exact { None } else { server.control.revision(&manifest.id, base).await? };
    let Some(revision) = revision else { return Ok(Err(vec![conflict(stored.generation, &by)])) };
    let store = server.control.store();
    let (old, theirs) = (store.unseal_revision(&revision)?, store.unseal(&stored)?);
    match merge(&old, &theirs, &manifest.to_json()) {
        Err(fields) => Ok(Err(fields
            .into_iter()
            .map(|field| pb::Conflict {
                field: field.path,
                yours: Some(to_value(&field.yours)),
                stored: Some(to_value(&field.stored)),
                ..conflict(stored.generation, &by)
            })
            .collect())),
        Ok(json) => {
            // Two changes that are fine by themselves may not be so together: all rules are asked again.
            let text = json.to_string();
            let file = manifest.source.as_ref().map_or("merged", |source| source.file.as_ref());
            let (merged, problems) = berth_model::parse(file, text.as_bytes());
            let mut problems: Vec<Diagnostic> = problems.into_iter().filter(Diagnostic::is_error).collect();
            let Some(mut merged) = merged.into_iter().next().filter(|_| problems.is_empty()) else {
                // The places are those of the merged text, which nobody has.
                problems.iter_mut().for_each(|problem| problem.span = None);
                let mut fault = invalid(&problems);
                fault.message = format!("{} with others' changes is not valid: {}", manifest.id, fault.message);
                return Err(fault);
            };
            merged.source = manifest.source.clone();
            Ok(Ok((merged, stored.generation)))
        }
    }
}

async fn applied_by(server: &ServerState, stored: &StoredResource) -> Result<String, Fault> {
    let meta = server.control.meta(std::slice::from_ref(&stored.id)).await?;
    Ok(meta.into_iter().next().map(|meta| meta.applied_by).unwrap_or_default())
}

/// What an apply would say, without anything being stored.
async fn rehearse(server: &ServerState, desired: &[Desired], delete: &[ResourceId]) -> Result<Vec<Applied>, Fault> {
    let store = server.control.store();
    let mut said = Vec::with_capacity(desired.len() + delete.len());
    for one in desired {
        let NewResource { id, manifest, source: ManifestSource { .. }, .. } = &one.resource;
        let (generation, result) = match store.resource(id).await? {
            None => (1, AppliedResult::Created),
            Some(stored) if store.unseal(&stored)? == *manifest => (stored.generation, AppliedResult::Unchanged),
            Some(stored) => (stored.generation + 1, AppliedResult::Updated),
        };
        said.push(Applied { id: id.clone(), generation, result });
    }
    for id in delete {
        let stored = store.resource(id).await?;
        let stored = stored.ok_or_else(|| crate::access::principal::absent(id))?;
        said.push(Applied { id: id.clone(), generation: stored.generation, result: AppliedResult::Deleting });
    }
    Ok(said)
}

/// What the audit log keeps of it.
fn note(desired: &[Desired], delete: &[ResourceId]) -> AuditNote {
    let detail = match delete {
        [] => String::new(),
        delete => format!("deletes {}", audit::targets(delete)),
    };
    audit::note("apply", audit::targets(desired.iter().map(|one| &one.resource.id)), detail)
}
