//! Import: objects that are already in a cloud become resources. Nothing in the cloud is changed, and nothing is stored
//! unless the plan of what would be stored is empty.

use super::work::{common_service, for_workers_of, new_task, run};
use super::{apply, uses};
use crate::access::{Principal, Role, audit};
use crate::api::ServerState;
use crate::api::arguments::{check_text, invalid_argument};
use crate::context::{ImportAsk, PlanAsk, UnitRow};
use crate::fault::{Code, Fault};
use crate::pb;
use crate::policy_cache;
use crate::results::{ImportResult, PlanResult};
use crate::telemetry;
use berth_clouds::import::{LeftOut, Taken, describable, manifest_text, name_all, own_links, read_back, rows};
use berth_clouds::{Clouds, one_form, registry as clouds};
use berth_engine::unit::{Identity, UnitState};
use berth_engine::{Action, Known, Request, Wanted};
use berth_model::{Manifest, ResourceId, registry};
use berth_store::{Apply, Filter, TaskOp};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Objects that one import takes over.
const TAKEN_MAX: usize = 2000;

pub async fn import(
    server: &ServerState,
    caller: &Principal,
    request: pb::ImportRequest,
) -> Result<pb::ImportResponse, Fault> {
    let ask = read(request)?;
    // The import of a whole account is an act in its org and env.
    let place = ResourceId {
        kind: if ask.kind.is_empty() { "Import".into() } else { ask.kind.clone() },
        name: if ask.name.is_empty() { "all".into() } else { ask.name.clone() },
        org: ask.org.clone(),
        env: ask.env.clone(),
    };
    caller.require(Role::Operator, &place)?;
    let cached = server.policy_cache.get(&server.control, server.alone).await?;
    let name = Some(ask.account.as_str()).filter(|name| !name.is_empty());
    let choice =
        cached.with_accounts(&[], |accounts| Ok(accounts.choose_for(&ask.provider, name, &ask.org, &ask.env)?))?;
    let store = server.control.store();
    if !ask.object_id.is_empty() {
        if store.resource(&place).await?.is_some() {
            return Err(Fault::new(Code::Refused, format!("{place} is applied already"))
                .help("choose another name for what is imported"));
        }
        if let Some(owner) = store.units_by_object(&ask.object_id).await?.first() {
            let who = if caller.may_see(&owner.resource) { format!(", as {}", owner.resource) } else { String::new() };
            return Err(Fault::new(Code::Refused, format!("the object is managed already{who}")));
        }
    }
    let region = if ask.region.is_empty() { choice.region.clone().unwrap_or_default() } else { ask.region.clone() };
    let wire = ImportAsk {
        provider: ask.provider.clone(),
        account: choice.name.clone(),
        kind: ask.kind.clone(),
        object_id: ask.object_id.clone(),
        region,
        owners: server.control.store().owners(&choice.name, &ask.org, &ask.env).await?,
        org: ask.org.clone(),
        env: ask.env.clone(),
    };
    let org = for_workers_of(&ask.org, [choice.name.as_str()]);
    let mut task = new_task(server, TaskOp::Import, org, &wire)?;
    task.service = common_service(std::iter::once(ask.kind.as_str()));
    task.account = choice.name.clone();
    let found: ImportResult = run(server, task).await?;
    let identity = found.identity.clone();
    let taken = name_them(server, &ask, place, found).await?;
    // One that is asked for by its id is refused below, with the reason; of all, the others are taken.
    let account = Some(ask.account.as_str()).filter(|account| !account.is_empty());
    let (taken, mut left_out) = match ask.object_id.is_empty() {
        true => describable(taken, account),
        false => (taken, Vec::new()),
    };
    let taken = match ask.object_id.is_empty() {
        true => usable(server, caller, &ask, taken, &mut left_out).await?,
        false => taken,
    };
    let left_out = left_out.into_iter().map(told).collect();
    if taken.is_empty() {
        return Ok(pb::ImportResponse { left_out, ..pb::ImportResponse::default() });
    }
    let (manifests, texts) = describe(server, caller, &ask, &taken).await?;
    uses::check(server, caller, &manifests).await?;
    let units = bind(server, &taken, &manifests, &choice.name, identity.as_ref()).await?;
    prove(server, &ask, &manifests, &units).await?;
    store_them(server, caller, &manifests, units).await?;
    let resources =
        taken.iter().zip(texts).map(|(one, text)| pb::Imported { id: Some((&one.id).into()), text }).collect();
    Ok(pb::ImportResponse { resources, left_out })
}

/// Of a whole account, what lies in others' objects is theirs to take: it is left out, and told.
async fn usable(
    server: &ServerState,
    caller: &Principal,
    ask: &pb::ImportRequest,
    taken: Vec<Taken>,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Taken>, Fault> {
    let (manifests, _) = describe(server, caller, ask, &taken).await?;
    let uses = uses::uses(server, &manifests).await?;
    let denied = |id: &ResourceId| {
        let mut used = uses.get(id).into_iter().flatten();
        used.find(|(_, owner)| caller.require(Role::Operator, owner).is_err()).map(|(field, _)| field)
    };
    let mut usable = Vec::with_capacity(taken.len());
    for one in taken {
        let Some(field) = denied(&one.id) else {
            usable.push(one);
            continue;
        };
        let reason = format!("spec.{field}: an object of a resource that {} may not change", caller.actor.name);
        let object = one.raised.units.into_values().next().unwrap_or_default();
        left_out.push(LeftOut { kind: one.id.kind, name: one.raised.object_name, object, reason });
    }
    Ok(usable)
}

fn told(one: LeftOut) -> pb::LeftOut {
    let LeftOut { kind, name, object, reason } = one;
    pb::LeftOut { kind, name, object_id: object, reason }
}

/// The request with what follows from it.
fn read(request: pb::ImportRequest) -> Result<pb::ImportRequest, Fault> {
    let mut ask = request;
    for (field, text) in [
        ("provider", &ask.provider),
        ("kind", &ask.kind),
        ("name", &ask.name),
        ("org", &ask.org),
        ("env", &ask.env),
        ("objectId", &ask.object_id),
        ("account", &ask.account),
        ("region", &ask.region),
    ] {
        check_text(field, text)?;
    }
    for (field, text) in [("org", &ask.org), ("env", &ask.env)] {
        if !berth_model::is_scope_name(text) {
            return Err(invalid_argument(field, "use lower-case letters, digits and hyphens"));
        }
    }
    // Ids of pools have two parts.
    ask.object_id = ask.object_id.split('/').map(one_form).collect::<Vec<_>>().join("/");
    if !ask.kind.is_empty() {
        let kind = registry().find(&ask.kind).ok_or_else(|| invalid_argument("kind", "there is no such kind"))?;
        ask.kind.clone_from(&kind.name);
        if ask.provider.is_empty() {
            ask.provider.clone_from(&kind.provider);
        }
        if ask.provider != kind.provider {
            return Err(invalid_argument("provider", &format!("a {} is of {}", kind.name, kind.provider)));
        }
    }
    if clouds::find(&ask.provider).is_err() {
        return Err(invalid_argument("provider", &format!("it is one of {}", clouds::names().join(", "))));
    }
    let one = [("kind", &ask.kind), ("name", &ask.name), ("objectId", &ask.object_id)];
    if one.iter().any(|(_, text)| !text.is_empty())
        && let Some((missing, _)) = one.iter().find(|(_, text)| text.is_empty())
    {
        return Err(invalid_argument(
            missing,
            "kind, name and objectId belong together: give all of them, or none for all",
        ));
    }
    Ok(ask)
}

async fn name_them(
    server: &ServerState,
    ask: &pb::ImportRequest,
    place: ResourceId,
    found: ImportResult,
) -> Result<Vec<Taken>, Fault> {
    let mut raised = found.raised.into_iter();
    if !ask.object_id.is_empty() {
        let raised = raised.next().ok_or_else(|| Fault::new(Code::NotFound, "the cloud has no such object"))?;
        return Ok(vec![Taken { id: place, raised: raised.into() }]);
    }
    let store = server.control.store();
    let managed: HashSet<String> = store.all_units().await?.into_iter().filter_map(|unit| unit.id).collect();
    let filter = Filter { org: Some(ask.org.clone()), env: Some(ask.env.clone()), ..Filter::default() };
    let mut used: HashSet<ResourceId> = store.resources(&filter).await?.into_iter().map(|one| one.id).collect();
    let raised = raised.map(berth_engine::handler::Raised::from);
    let wanted = |one: &berth_engine::handler::Raised| {
        let is_there =
            |region: &serde_json::Value| region.as_str().is_some_and(|r| r.eq_ignore_ascii_case(&ask.region));
        ask.region.is_empty() || one.spec.get("region").is_none_or(is_there)
    };
    let taken = name_all(raised.filter(wanted).collect(), &managed, &mut used, &ask.org, &ask.env);
    if taken.len() > TAKEN_MAX {
        return Err(Fault::new(Code::Refused, format!("there are more than {TAKEN_MAX} objects to take over"))
            .help("import one region at a time"));
    }
    Ok(taken)
}

/// Manifests, with references where what they name by id is managed, too.
async fn describe(
    server: &ServerState,
    caller: &Principal,
    ask: &pb::ImportRequest,
    taken: &[Taken],
) -> Result<(Vec<Manifest>, Vec<String>), Fault> {
    let mut links = own_links(taken);
    for (_, _, object) in taken.iter().flat_map(|one| &one.raised.links) {
        if !links.contains_key(object)
            && let Some(unit) = server.control.store().units_by_object(object).await?.into_iter().next()
            && unit.resource.org == ask.org
            && caller.may_see(&unit.resource)
        {
            links.insert(object.clone(), unit.resource);
        }
    }
    let account = Some(ask.account.as_str()).filter(|account| !account.is_empty());
    let (mut manifests, mut texts) = (Vec::with_capacity(taken.len()), Vec::with_capacity(taken.len()));
    for one in taken {
        let text = manifest_text(one, &links, account);
        let file = format!("{}-{}.yaml", one.id.kind.to_ascii_lowercase(), one.id.name);
        manifests.push(read_back(one, &file, &text)?);
        texts.push(text);
    }
    Ok((manifests, texts))
}

/// The rows that bind objects to units. Lowering is pure: no cloud is asked.
async fn bind(
    server: &ServerState,
    taken: &[Taken],
    manifests: &[Manifest],
    account: &str,
    identity: Option<&Identity>,
) -> Result<Vec<UnitState>, Fault> {
    let mut known = Known::default();
    for parent in manifests.iter().flat_map(berth_engine::parents) {
        if let Some(stored) = server.control.store().resource(&parent).await? {
            known.resources.insert(parent, stored.known()?);
        }
    }
    let wanted = manifests
        .iter()
        .map(|manifest| Wanted {
            manifest: Arc::new(manifest.clone()),
            account: account.to_owned(),
            default_region: None,
        })
        .collect();
    let label_prefix = server.config.label_prefix.clone();
    let request =
        Request { wanted, unwanted: Vec::new(), known, label_prefix, allow_recreate: false, owners: HashMap::new() };
    Ok(rows(&Clouds::new(), &request, taken, identity)?)
}

/// What would be stored must be what there is.
async fn prove(
    server: &ServerState,
    ask: &pb::ImportRequest,
    manifests: &[Manifest],
    units: &[UnitState],
) -> Result<(), Fault> {
    let ask_plan = PlanAsk {
        manifests: manifests.iter().map(Manifest::to_json).collect(),
        delete: Vec::new(),
        units: units.iter().map(UnitRow::from).collect(),
        allow_recreate: false,
    };
    let org = for_workers_of(&ask.org, units.iter().map(|unit| unit.account.as_str()));
    let mut task = new_task(server, TaskOp::Plan, org, &ask_plan)?;
    task.service = common_service(manifests.iter().map(|manifest| manifest.id.kind.as_str()));
    let planned: PlanResult = run(server, task).await?;
    if let Some(trouble) = planned.troubles.first() {
        let fault = Fault::new(Code::Refused, format!("{}: {}", trouble.id, trouble.message));
        return Err(Fault { help: trouble.help.clone(), ..fault });
    }
    let changed = planned.plan.resources.iter().find(|one| !matches!(one.action, Action::Unchanged | Action::Resume));
    match changed {
        None => Ok(()),
        Some(one) => Err(Fault::new(
            Code::Refused,
            format!("{} would be changed by the manifest made from it; nothing was imported", one.id),
        )
        .help("this is a mistake of Berth's: please report it")),
    }
}

async fn store_them(
    server: &ServerState,
    caller: &Principal,
    manifests: &[Manifest],
    units: Vec<UnitState>,
) -> Result<(), Fault> {
    let mut by_resource: HashMap<ResourceId, Vec<UnitState>> = HashMap::new();
    for unit in units {
        by_resource.entry(unit.resource.clone()).or_default().push(unit);
    }
    let mut desired = apply::desired_new(server, manifests).await?;
    for one in &mut desired {
        one.units = by_resource.remove(&one.resource.id).unwrap_or_default();
    }
    let apply = Apply {
        audit: audit::note("import", audit::targets(manifests.iter().map(|manifest| &manifest.id)), ""),
        resources: desired,
        delete: Vec::new(),
        actor: caller.actor.clone(),
        retry: false,
        trace: telemetry::traceparent(),
    };
    server.control.apply(apply, server.now()).await?;
    if manifests.iter().any(|manifest| policy_cache::is_cached(&manifest.id)) {
        server.policy_cache.clear();
    }
    Ok(())
}
