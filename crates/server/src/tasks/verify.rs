//! Compares what workers send with what they were asked for. A worker may send anything: the server uses its own data wherever it
//! has them.

use crate::access::principal::ADMIN_KINDS;
use crate::api::ServerState;
use crate::context::{ImportAsk, PlanAsk};
use crate::fault::{Code, Fault};
use crate::pb;
use crate::results::{DriftResult, ImportResult, PlanResult, RaisedRow, TroubleRow};
use berth_clouds::Clouds;
use berth_engine::unit::Op;
use berth_engine::{Action, Known, Plan, Request, ResourcePlan, UnitPlan, Wanted, lower_now, parents};
use berth_model::{ResourceId, registry};
use berth_store::{PlanStep, StoredResource, Task, TaskOp};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Facts of a status, and secrets of a unit or a status.
const FEW: usize = 32;
const FACTS_BYTES_MAX: usize = 64 << 10;
/// Outputs of one status: they are part of every list.
const OUTPUTS_BYTES_MAX: usize = 256 << 10;
/// How deep JSON of a worker's goes. Clients of gRPC stop at a hundred messages in one another, and three of them are one step.
const DEPTH_MAX: usize = 24;
/// Objects that one import raises.
const RAISED_MAX: usize = 20_000;
/// Only keys and types of units are compared, and they do not depend on where a worker's own account is.
const ANY_REGION: &str = "any";

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

/// What the worker may record when it carries this plan out. Refused where the plan is not one for the task's resource alone,
/// or has units that the resource does not lower to.
pub async fn steps(
    server: &ServerState,
    task: &Task,
    stored: &StoredResource,
    plan: &Plan,
) -> Result<Vec<PlanStep>, Fault> {
    let id = &stored.id;
    let own = match plan.resources.as_slice() {
        [one] if one.id == *id => one,
        _ => return Err(invalid(format!("the plan is not one of {id} alone"))),
    };
    let rows = server.control.store().units_of(id).await?;
    let rows: HashSet<(&str, &str)> = rows.iter().map(|row| (row.key.as_str(), row.unit_type.as_str())).collect();
    let declared = match own.action {
        Action::Delete => Vec::new(),
        _ => lowered(server, task, stored).await?,
    };
    let declared: HashSet<(&str, &str)> = declared.iter().map(|(key, kind)| (key.as_str(), kind.as_str())).collect();
    for unit in &own.units {
        let name = (unit.key.as_str(), unit.unit_type.as_str());
        let fits = match unit.op {
            Some(Op::Delete) => rows.contains(&name),
            Some(Op::Update | Op::Replace | Op::Adopt) => declared.contains(&name) && rows.contains(&name),
            Some(Op::Create) | None => declared.contains(&name),
        };
        if !fits {
            let (key, kind): (String, String) = (short(name.0), short(name.1));
            return Err(invalid(format!("{id} has no unit {key} of type {kind} that this plan could be about")));
        }
    }
    let planned: HashSet<&str> = own.units.iter().map(|unit| unit.key.as_str()).collect();
    if let Some((missing, _)) = declared.iter().find(|(key, _)| !planned.contains(key)) {
        return Err(invalid(format!("the plan of {id} leaves {missing} out")));
    }
    says_what_it_does(own)?;
    Ok(own.units.iter().map(step).collect())
}

/// The gate decides by the action: one that hides what the units do would pass it unseen.
fn says_what_it_does(plan: &ResourcePlan) -> Result<(), Fault> {
    let all = |fits: fn(&UnitPlan) -> bool| plan.units.iter().all(fits);
    let honest = match plan.action {
        Action::Unchanged => all(|unit| unit.op.is_none()),
        Action::Delete => all(|unit| unit.op == Some(Op::Delete)),
        Action::Resume => all(|unit| matches!(unit.op, None | Some(Op::Adopt))),
        Action::Create | Action::Update | Action::Replace => true,
    };
    if honest { Ok(()) } else { Err(invalid(format!("the plan of {} does more than it says", plan.id))) }
}

fn step(unit: &UnitPlan) -> PlanStep {
    let mut ops = match unit.op {
        None => Vec::new(),
        // A new object may need a change before it is as declared.
        Some(Op::Create) => vec![Op::Create, Op::Update],
        Some(Op::Update) => vec![Op::Update],
        Some(Op::Adopt) => vec![Op::Adopt, Op::Update],
        Some(Op::Replace) => vec![Op::Create, Op::Update, Op::Replace, Op::Delete],
        Some(Op::Delete) => vec![Op::Delete],
    };
    if unit.delete_first && !ops.contains(&Op::Delete) {
        ops.push(Op::Delete);
    }
    PlanStep { key: unit.key.clone(), unit_type: unit.unit_type.clone(), ops }
}

/// Keys and types of the units that the stored manifest lowers to.
async fn lowered(server: &ServerState, task: &Task, stored: &StoredResource) -> Result<Vec<(String, String)>, Fault> {
    let manifest = stored.known()?.manifest;
    let mut known = Known::default();
    for parent in parents(&manifest) {
        if let Some(stored) = server.control.store().resource(&parent).await? {
            known.resources.insert(parent, stored.known()?);
        }
    }
    let wanted = Wanted { manifest, account: task.account.clone(), default_region: Some(ANY_REGION.into()) };
    let label_prefix = server.config.label_prefix.clone();
    let request = Request {
        wanted: Vec::new(),
        unwanted: Vec::new(),
        known,
        label_prefix,
        allow_recreate: false,
        owners: HashMap::new(),
    };
    let lowered = lower_now(&Clouds::new(), &request, &wanted, &HashMap::new())?;
    Ok(lowered.units.into_iter().map(|unit| (unit.key, unit.unit_type)).collect())
}

/// JSON that every client can show: what is deeper would keep whole lists from those who read them.
pub fn shallow(json: &str) -> Result<(), Fault> {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(invalid(format!("the JSON is more than {DEPTH_MAX} levels deep")));
        }
    }
    Ok(())
}

/// A name or id that a worker made up may hold anything; a database and a terminal take no controls.
pub fn plain(what: &str, text: &str) -> Result<(), Fault> {
    match text.chars().any(char::is_control) {
        true => Err(invalid(format!("{what} holds a control character"))),
        false => Ok(()),
    }
}

/// A message that others are shown is one line: a second one could pass for somebody else's.
pub fn one_line(message: String) -> String {
    let breaks = |c: char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
    if message.contains(breaks) { message.split(breaks).collect::<Vec<_>>().join(" ") } else { message }
}

/// A status names the outputs that its kind has, the secret ones as secrets.
pub fn status(id: &ResourceId, row: &pb::StatusRow) -> Result<(), Fault> {
    let kind = registry().kind(&id.kind).ok_or_else(|| invalid("there is no such kind"))?;
    if row.outputs.len() > OUTPUTS_BYTES_MAX {
        return Err(Fault::new(Code::TooLarge, "the outputs of a status are too large"));
    }
    shallow(&row.outputs)?;
    shallow(&row.facts)?;
    let outputs: serde_json::Map<String, Value> = match row.outputs.as_str() {
        "" => serde_json::Map::new(),
        text => serde_json::from_str(text).map_err(|_| invalid("outputs that are not a JSON object"))?,
    };
    let has = |name: &str, secret: bool| {
        kind.outputs_shape().fields.iter().any(|field| field.name == name && (secret || !field.secret))
    };
    let unknown = outputs.keys().find(|name| !has(name, false)).or(row.secrets.keys().find(|name| !has(name, true)));
    if let Some(name) = unknown {
        return Err(invalid(format!("a {} has no output `{}`", kind.name, short(name))));
    }
    // All outputs are texts, or lists of them.
    let is_text = |value: &Value| matches!(value, Value::String(_) | Value::Null);
    let fits = |value: &Value| is_text(value) || value.as_array().is_some_and(|all| all.iter().all(is_text));
    if let Some((name, _)) = outputs.iter().find(|(_, value)| !fits(value)) {
        return Err(invalid(format!("the output `{}` is neither a text nor a list of them", short(name))));
    }
    if row.facts.len() > FACTS_BYTES_MAX {
        return Err(Fault::new(Code::TooLarge, "the facts of a status are too large"));
    }
    Ok(())
}

/// The secrets of a unit are few, and its names are names.
pub fn unit(row: &pb::UnitRow) -> Result<(), Fault> {
    let names = [&row.key, &row.token, &row.unit_type, &row.scope, &row.account, &row.identity];
    for name in names.into_iter().chain(&row.object_id) {
        plain("a name or id of a unit", name)?;
    }
    shallow(&row.props)?;
    shallow(&row.outputs)?;
    if row.secrets.len() > FEW {
        return Err(Fault::new(Code::TooLarge, format!("a unit has at most {FEW} secrets")));
    }
    Ok(())
}

/// The result of a task is about what was asked for, and about nothing else.
pub async fn result(server: &ServerState, task: &Task, text: &str) -> Result<(), Fault> {
    shallow(text)?;
    match task.op {
        TaskOp::Apply | TaskOp::Delete => Err(invalid(format!("a task to {} has no result", task.op.as_str()))),
        TaskOp::Drift => {
            let result: DriftResult = read(text)?;
            let own: HashSet<&ResourceId> = task.resources.iter().collect();
            let told = result.checked.iter().map(|row| &row.id).chain(result.drifted.iter().map(|row| &row.id));
            about(&own, told.chain(result.troubles.iter().map(|row| &row.id)))
        }
        TaskOp::Plan => {
            let result: PlanResult = read(text)?;
            let ask: PlanAsk = asked(server, task).await?;
            let mut own: HashSet<ResourceId> = ask.delete.into_iter().collect();
            own.extend(ask.manifests.iter().filter_map(|json| Some(berth_model::Manifest::from_json(json).ok()?.id)));
            let own: HashSet<&ResourceId> = own.iter().collect();
            let PlanResult { plan, troubles, .. } = &result;
            let told = plan.resources.iter().flat_map(|one| std::iter::once(&one.id).chain(&one.after));
            about(&own, told.chain(troubles.iter().map(|row: &TroubleRow| &row.id)))
        }
        TaskOp::Import => {
            let result: ImportResult = read(text)?;
            raised(&asked(server, task).await?, &result)
        }
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|_| invalid("the result cannot be read"))
}

async fn asked<T: DeserializeOwned>(server: &ServerState, task: &Task) -> Result<T, Fault> {
    let payload = server.control.payload(&task.id).await?;
    let unreadable = || Fault::new(Code::Internal, format!("what task {} is asked cannot be read", task.id));
    serde_json::from_str(payload.ok_or_else(unreadable)?.expose_secret()).map_err(|_| unreadable())
}

fn about<'i>(own: &HashSet<&ResourceId>, mut told: impl Iterator<Item = &'i ResourceId>) -> Result<(), Fault> {
    match told.find(|id| !own.contains(id)) {
        None => Ok(()),
        Some(other) => {
            Err(invalid(format!("the result is about {}, which was not asked for", short(&other.to_string()))))
        }
    }
}

/// An import brings objects of the cloud that was asked, described as kinds of that cloud: never what decides about others,
/// never another kind than the one asked for, and one object where one was asked for.
fn raised(ask: &ImportAsk, result: &ImportResult) -> Result<(), Fault> {
    let one = !ask.kind.is_empty();
    if result.raised.len() > if one { 1 } else { RAISED_MAX } {
        return Err(invalid("the import brings more than was asked for"));
    }
    for row in &result.raised {
        let kind = registry().kind(&row.kind).filter(|kind| kind.provider == ask.provider);
        let fits =
            kind.is_some_and(|kind| !ADMIN_KINDS.contains(&kind.name.as_str())) && (!one || row.kind == ask.kind);
        if !fits {
            return Err(invalid(format!("the import brings a {}, which was not asked for", short(&row.kind))));
        }
        if one && !row.units.values().any(|object| *object == ask.object_id) {
            return Err(invalid("the import brings another object than was asked for"));
        }
        described(row)?;
    }
    Ok(())
}

/// What is raised names objects by id: references are made of it here, and the account is the one that was asked.
fn described(row: &RaisedRow) -> Result<(), Fault> {
    let Some(spec) = row.spec.as_object() else { return Err(invalid("an imported spec is an object")) };
    let fields = registry().kind(&row.kind).map(|kind| kind.spec_shape().fields.as_slice()).unwrap_or_default();
    let older = |name: &str| {
        let of_account = fields.iter().filter(|field| field.older_name_of.as_deref() == Some("account"));
        of_account.into_iter().any(|field| is_called(name, &field.json))
    };
    let names_account = |name: &String| is_called(name, "account") || older(name);
    if spec.keys().any(names_account) || refers(&row.spec) {
        return Err(invalid(format!("an imported {} refers to nothing and names no account", short(&row.kind))));
    }
    Ok(())
}

/// Whether a key is this field in any spelling that manifests may have.
fn is_called(key: &str, field: &str) -> bool {
    let letters = key.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase());
    letters.eq(field.chars().map(|c| c.to_ascii_lowercase()))
}

fn refers(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| is_called(key, "valueFrom") || refers(value)),
        Value::Array(items) => items.iter().any(refers),
        _ => false,
    }
}

/// For a message: what was sent may be of any length.
fn short(text: &str) -> String {
    text.chars().take(64).collect()
}
