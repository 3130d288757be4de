//! Requests that a worker answers while the caller waits: plans, imports, drift checks.

use super::check::{Checked, check};
use crate::access::principal::absent;
use crate::access::{Principal, Role};
use crate::api::ServerState;
use crate::api::arguments::{check_text, invalid_argument, parse_id_message};
use crate::context::{DriftAsk, PlanAsk};
use crate::controller::PRIORITY_WAITED;
use crate::fault::{Code, Fault};
use crate::gate;
use crate::limits::WORK_WITHIN;
use crate::pb;
use crate::policy_check::foresee;
use crate::results::{DriftResult, PlanResult, TroubleRow};
use crate::saved_plan;
use crate::tasks::run_and_wait;
use crate::telemetry;
use crate::values::{object_to_struct, to_value};
use berth_clouds::accounts::account_id;
use berth_engine::ResourceState;
use berth_engine::unit::Op;
use berth_engine::{Action, GoneCount, Plan, ResourcePlan, UnitPlan};
use berth_model::{Manifest, Prose, ResourceId};
use berth_store::{ListQuery, NewTask, StoredResource, TaskOp};
use futures::future::try_join_all;
use secrecy::SecretString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Resources that one request compares.
const COMPARED_MAX: usize = 20_000;
/// Resources in one task.
const BATCH: usize = 500;
/// What is left of the caller's time when a task is given up.
const MARGIN: Duration = Duration::from_secs(5);

pub(super) fn new_task(server: &ServerState, op: TaskOp, org: &str, ask: &impl Serialize) -> Result<NewTask, Fault> {
    let payload = serde_json::to_string(ask).map_err(|_| Fault::new(Code::Internal, "the task cannot be written"))?;
    Ok(NewTask {
        op,
        resource: None,
        resources: Vec::new(),
        org: org.to_owned(),
        service: String::new(),
        account: String::new(),
        account_limit: 0,
        priority: PRIORITY_WAITED,
        run_after: server.now(),
        generation: 0,
        refresh: false,
        payload: Some(SecretString::from(payload)),
        trace: telemetry::traceparent(),
    })
}

pub(super) async fn run<T: DeserializeOwned>(server: &ServerState, task: NewTask) -> Result<T, Fault> {
    let result = run_and_wait(server, task, WORK_WITHIN - MARGIN).await?;
    serde_json::from_value(result).map_err(|_| Fault::new(Code::Internal, "the task's result cannot be read"))
}

pub async fn plan(
    server: &ServerState,
    caller: &Principal,
    request: pb::PlanRequest,
) -> Result<pb::PlanResponse, Fault> {
    let pb::PlanRequest { files, delete, allow_recreate, saved } = request;
    if let Some(saved) = &saved {
        saved_plan::check(server.control.store(), saved, &files, &delete)?;
    }
    let asked = (files.clone(), delete.clone());
    let delete = delete.into_iter().map(parse_id_message).collect::<Result<Vec<_>, _>>()?;
    if files.is_empty() && delete.is_empty() {
        return Err(invalid_argument("files", "there is nothing to plan"));
    }
    let Checked { manifests, warnings } = match files.is_empty() {
        true => Checked { manifests: Vec::new(), warnings: Vec::new() },
        false => check(server, caller, files).await?,
    };
    for id in manifests.iter().map(|manifest| &manifest.id).chain(&delete) {
        caller.require(Role::Operator, id)?;
    }
    for id in &delete {
        server.control.store().resource(id).await?.ok_or_else(|| absent(id))?;
    }
    let ask = PlanAsk {
        manifests: manifests.iter().map(Manifest::to_json).collect(),
        delete: delete.clone(),
        units: Vec::new(),
        allow_recreate,
    };
    let org = one_org(manifests.iter().map(|manifest| &manifest.id).chain(&delete));
    let accounts = accounts_of(server, &manifests, &delete).await?;
    let org = for_workers_of(org, accounts.iter().map(String::as_str));
    let mut task = new_task(server, TaskOp::Plan, org, &ask)?;
    let kinds =
        manifests.iter().map(|manifest| manifest.id.kind.as_str()).chain(delete.iter().map(|id| id.kind.as_str()));
    task.service = common_service(kinds);
    let mut result: PlanResult = run(server, task).await?;
    own_already(server, caller, &mut result.troubles).await?;
    in_the_way(server, &mut result).await?;
    let by_id: HashMap<&ResourceId, &Manifest> = manifests.iter().map(|manifest| (&manifest.id, manifest)).collect();
    let mut problems: Vec<pb::Problem> =
        result.troubles.iter().map(|trouble| problem(trouble, by_id.get(&trouble.id).copied())).collect();
    problems.extend(warnings);
    let mut bases = Vec::with_capacity(result.plan.resources.len());
    for id in manifests.iter().map(|manifest| &manifest.id).chain(&delete) {
        let generation = server.control.store().resource(id).await?.map_or(0, |stored| stored.generation);
        bases.push(pb::Base { id: Some(id.into()), generation });
    }
    let mut answer = pb::PlanResponse {
        verdicts: foresee(server, &caller.actor.name, &result.plan, &by_id).await?,
        digest: gate::digest(&result.plan),
        plan: Some(object_to_struct(&result.plan.to_json())),
        problems,
        bases,
        calls: result.calls,
        sandbox: server.is_sandbox(),
        ..pb::PlanResponse::default()
    };
    let store = server.control.store();
    answer.state = store.state_id().to_owned();
    answer.code = saved_plan::code(store, &asked.0, &asked.1, &answer);
    Ok(answer)
}

/// Names that are taken by objects of other resources: there is nothing to adopt. Whose they are is for those who may see it.
async fn own_already(server: &ServerState, caller: &Principal, troubles: &mut [TroubleRow]) -> Result<(), Fault> {
    for row in troubles {
        let Some(object) = &row.taken_by else { continue };
        let units = server.control.store().units_by_object(object).await?;
        let Some(unit) = units.first() else { continue };
        match caller.may_see(&unit.resource) {
            true => {
                let trouble = berth_engine::managed_already(&row.id, object, &unit.resource);
                (row.message, row.help) = (trouble.to_string(), trouble.help_lines());
            }
            // A worker of an earlier version does not say which of its lines name the object.
            false => row.help = row.open_help.take().unwrap_or_default(),
        }
    }
    Ok(())
}

/// On a server a task is of one resource: what has to be deleted before its successor is made cannot go while another
/// resource's objects use it, and their task cannot begin before it is there again. A cluster takes what is in it along.
async fn in_the_way(server: &ServerState, result: &mut PlanResult) -> Result<(), Fault> {
    let goes_first = |resource: &&ResourcePlan| {
        let replaced = |unit: &UnitPlan| unit.op == Some(Op::Replace) && unit.delete_first && !unit.loses_data;
        resource.units.iter().any(replaced)
    };
    for resource in result.plan.resources.iter().filter(goes_first) {
        for child in server.control.children(&resource.id).await? {
            let leaves = result.plan.resources.iter().any(|r| r.id == child && r.action == Action::Delete);
            if leaves || server.control.store().units_of(&child).await?.is_empty() {
                continue;
            }
            let id = resource.id.clone();
            let message =
                format!("{id} cannot be replaced while {child} uses it: a server changes one resource at a time");
            let help = vec![
                "to keep it, leave it as it is and declare a second one beside it".into(),
                format!(
                    "to delete it and everything that refers to it, before all of it is applied again:   berth delete {id}{} --cascade",
                    id.flags()
                ),
            ];
            result.troubles.push(TroubleRow { id, message, help, taken_by: None, open_help: None });
            break;
        }
    }
    Ok(())
}

/// The org that all of them are in. What is about several is for workers that serve all: one of an org alone would be
/// given the credentials of others.
fn one_org<'i>(mut ids: impl Iterator<Item = &'i ResourceId>) -> &'i str {
    let first = ids.next().map_or("", |id| id.org.as_str());
    if ids.all(|id| id.org == first) { first } else { "" }
}

/// Whose workers may have a task: an account that serves several orgs is for workers of all.
pub(super) fn for_workers_of<'o, 'a>(org: &'o str, accounts: impl IntoIterator<Item = &'a str>) -> &'o str {
    let is_foreign = |name: &str| account_id(name).is_some_and(|account| account.org != org);
    if accounts.into_iter().any(is_foreign) { "" } else { org }
}

/// The accounts that a plan of these looks into.
async fn accounts_of(
    server: &ServerState,
    manifests: &[Manifest],
    delete: &[ResourceId],
) -> Result<Vec<String>, Fault> {
    let cached = server.policy_cache.get(&server.control, server.alone).await?;
    let mut names: Vec<String> = cached.with_accounts(manifests, |accounts| {
        // What is wrong with a choice is told at its place, by the plan.
        Ok(manifests.iter().filter_map(|manifest| Some(accounts.choose(manifest).ok()?.name)).collect())
    })?;
    let stored: Vec<ResourceId> = manifests.iter().map(|manifest| &manifest.id).chain(delete).cloned().collect();
    names.extend(server.control.meta(&stored).await?.into_iter().map(|meta| meta.account));
    Ok(names)
}

/// The service of all these kinds; none where they are of several: then any worker will do.
pub(super) fn common_service<'a>(kinds: impl Iterator<Item = &'a str>) -> String {
    let service = |kind: &str| berth_model::registry().kind(kind).map(|kind| kind.service.as_str()).unwrap_or_default();
    let services: std::collections::BTreeSet<&str> = kinds.map(service).filter(|service| !service.is_empty()).collect();
    match services.len() {
        1 => services.first().map(|service| (*service).to_owned()).unwrap_or_default(),
        _ => String::new(),
    }
}

/// What stands in the way of one resource, at the place where it is declared.
fn problem(trouble: &TroubleRow, manifest: Option<&Manifest>) -> pb::Problem {
    let message = Prose::from(trouble.message.as_str()).about(&trouble.id.to_string());
    let mut problem = match manifest.map(|manifest| manifest.problem("metadata.name", message.clone())) {
        Some(diagnostic) => pb::Problem::from(&diagnostic),
        None => pb::Problem { severity: "error".into(), message, ..Default::default() },
    };
    problem.resource = Some((&trouble.id).into());
    problem.path = String::new();
    problem.help = trouble.help.clone();
    problem
}

/// The plan that waits for approval, or was last carried out.
pub async fn last_plan(server: &ServerState, stored: &StoredResource) -> Result<pb::PlanResponse, Fault> {
    let meta = server.control.meta(std::slice::from_ref(&stored.id)).await?.into_iter().next();
    let Some(meta) = meta.filter(|meta| !meta.plan.is_empty()) else {
        return Err(Fault::new(Code::NotFound, format!("{} has not been planned yet", stored.id)));
    };
    let unreadable = |_| Fault::new(Code::Internal, format!("the plan of {} cannot be read", stored.id));
    let plan: Plan = serde_json::from_str(&meta.plan).map_err(unreadable)?;
    let awaiting = stored.status.state == ResourceState::AwaitingApproval;
    // Who approves sees what policies warn about.
    let verdicts = match awaiting {
        true => foresee(server, &meta.applied_by, &plan, &HashMap::new()).await?,
        false => Vec::new(),
    };
    Ok(pb::PlanResponse {
        verdicts,
        plan: Some(object_to_struct(&plan.to_json())),
        digest: if meta.plan_digest.is_empty() { gate::digest(&plan) } else { meta.plan_digest },
        awaiting,
        approved_by: meta.approved_by,
        sandbox: server.is_sandbox(),
        bases: vec![pb::Base { id: Some((&stored.id).into()), generation: stored.generation }],
        ..pb::PlanResponse::default()
    })
}

pub async fn drift(
    server: &ServerState,
    caller: &Principal,
    request: pb::DriftRequest,
) -> Result<pb::DriftResponse, Fault> {
    let pb::DriftRequest { ids, org, env, kind, refresh } = request;
    if ids.len() > COMPARED_MAX {
        return Err(invalid_argument("ids", &format!("there are at most {COMPARED_MAX}")));
    }
    let chosen = match ids.is_empty() {
        false => {
            let ids = ids.into_iter().map(parse_id_message).collect::<Result<Vec<_>, _>>()?;
            for id in &ids {
                caller.see(id)?;
            }
            named(server, ids).await?
        }
        true => listed(server, caller, org, env, kind).await?,
    };
    for id in chosen.values().flatten() {
        // Comparing changes nothing; writing down what was found does.
        match refresh {
            true => caller.require(Role::Operator, id)?,
            false => caller.see(id)?,
        }
    }
    let mut tasks = Vec::new();
    for ((account, service, org), ids) in chosen {
        for batch in ids.chunks(BATCH) {
            let mut task = new_task(server, TaskOp::Drift, &org, &DriftAsk { refresh, ..DriftAsk::default() })?;
            (task.account, task.service, task.resources) = (account.clone(), service.clone(), batch.to_vec());
            task.refresh = refresh;
            tasks.push(task);
        }
    }
    let results: Vec<DriftResult> = try_join_all(tasks.into_iter().map(|task| run(server, task))).await?;
    let mut answer = pb::DriftResponse::default();
    // An account's resources are compared in several tasks.
    let mut counts: BTreeMap<String, GoneCount> = BTreeMap::new();
    for result in results {
        for GoneCount { account, gone, of } in result.counts {
            let none = GoneCount { account: account.clone(), gone: 0, of: 0 };
            let count = counts.entry(account).or_insert(none);
            (count.gone, count.of) = (count.gone + gone, count.of + of);
        }
        answer.checked += u32::try_from(result.checked.len()).unwrap_or(u32::MAX);
        answer.calls += result.calls;
        answer.problems.extend(result.troubles.iter().map(|trouble| problem(trouble, None)));
        answer.drifted.extend(result.drifted.iter().map(|one| pb::Drifted {
            id: Some((&one.id).into()),
            differences: one.differences.iter().map(difference).collect(),
        }));
    }
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    answer.much_gone = counts
        .into_values()
        .filter(GoneCount::is_much)
        .map(|much| pb::MuchGone { account: much.account, gone: number(much.gone), of: number(much.of) })
        .collect();
    answer.drifted.sort_by(|a, b| key(&a.id).cmp(&key(&b.id)));
    Ok(answer)
}

fn key(id: &Option<pb::ResourceId>) -> (&str, &str, &str, &str) {
    id.as_ref().map_or(("", "", "", ""), |id| (&id.kind, &id.name, &id.org, &id.env))
}

fn difference(row: &berth_engine::Finding) -> pb::Difference {
    let shown = |json: &serde_json::Value| Some(json).filter(|json| !json.is_null()).map(to_value);
    pb::Difference {
        unit: row.unit.clone(),
        field: row.field.clone(),
        declared: shown(&row.declared),
        found: shown(&row.found),
        unit_type: row.unit_type.clone(),
        apply: row.apply.clone(),
        refused: row.refused,
        stray: row.stray.clone(),
        property: row.property.clone(),
        besides: row.besides,
        declares: (!row.declares.is_empty()).then(|| object_to_struct(&json!(row.declares))),
    }
}

/// Resources by what can be compared together: account, service, org.
type Groups = BTreeMap<(String, String, String), Vec<ResourceId>>;

fn put(groups: &mut Groups, stored: &StoredResource, meta: &berth_store::ControlMeta) {
    // Facts for others have nothing in a cloud.
    if !matches!(stored.id.kind.as_str(), "Environment" | "Policy") {
        let key = (meta.account.clone(), meta.service.clone(), stored.id.org.clone());
        groups.entry(key).or_default().push(stored.id.clone());
    }
}

async fn named(server: &ServerState, ids: Vec<ResourceId>) -> Result<Groups, Fault> {
    let mut groups = Groups::new();
    let meta = server.control.meta(&ids).await?;
    let meta: HashMap<&ResourceId, &berth_store::ControlMeta> = meta.iter().map(|meta| (&meta.id, meta)).collect();
    for id in &ids {
        let stored = server.control.store().resource(id).await?.ok_or_else(|| absent(id))?;
        if let Some(meta) = meta.get(id) {
            put(&mut groups, &stored, meta);
        }
    }
    groups.values_mut().for_each(|ids| ids.dedup());
    Ok(groups)
}

async fn listed(
    server: &ServerState,
    caller: &Principal,
    org: String,
    env: String,
    kind: String,
) -> Result<Groups, Fault> {
    for (field, text) in [("kind", &kind), ("org", &org), ("env", &env)] {
        check_text(field, text)?;
    }
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let mut query = ListQuery {
        kind: given(kind).map(|kind| berth_model::registry().find(&kind).map_or(kind, |found| found.name.clone())),
        org: given(org),
        env: given(env),
        scope_org: caller.scope_org(),
        scope_env: caller.scope_env(),
        limit: berth_store::LIST_MAX,
        ..ListQuery::default()
    };
    let mut groups = Groups::new();
    let mut count = 0;
    loop {
        let page = server.control.list(&query).await?;
        count += page.resources.len();
        if count > COMPARED_MAX {
            return Err(Fault::new(Code::Refused, format!("one request compares at most {COMPARED_MAX} resources"))
                .help("ask for one kind, org or env at a time"));
        }
        page.resources.iter().for_each(|listed| put(&mut groups, &listed.resource, &listed.meta));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(groups),
        }
    }
}
