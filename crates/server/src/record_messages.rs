//! The engine's records as messages, and back.

use crate::fault::{Code, Fault};
use crate::pb;
use berth_engine::ResourceState;
use berth_engine::record::{Closing, EntryId, Intent, Status};
use berth_engine::unit::{Identity, Op, Props, UnitState};
use berth_model::ResourceId;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;

impl From<&ResourceId> for pb::ResourceId {
    fn from(id: &ResourceId) -> Self {
        Self { kind: id.kind.clone(), name: id.name.clone(), org: id.org.clone(), env: id.env.clone() }
    }
}

impl From<pb::ResourceId> for ResourceId {
    fn from(id: pb::ResourceId) -> Self {
        Self { kind: id.kind, name: id.name, org: id.org, env: id.env }
    }
}

fn op(name: &str) -> Result<Op, Fault> {
    Op::parse(name).ok_or_else(|| invalid(format!("`{name}` is not an operation")))
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

fn props(text: &str) -> Result<Props, Fault> {
    if text.is_empty() {
        return Ok(Props::new());
    }
    serde_json::from_str(text).map_err(|_| invalid("properties that are not a JSON object"))
}

fn text(props: &Props) -> String {
    serde_json::to_string(props).unwrap_or_default()
}

fn clear(secrets: &BTreeMap<String, SecretString>) -> BTreeMap<String, String> {
    secrets.iter().map(|(name, secret)| (name.clone(), secret.expose_secret().to_owned())).collect()
}

fn closed(secrets: BTreeMap<String, String>) -> BTreeMap<String, SecretString> {
    secrets.into_iter().map(|(name, secret)| (name, SecretString::from(secret))).collect()
}

pub fn unit_row(unit: &UnitState) -> pb::UnitRow {
    pb::UnitRow {
        key: unit.key.clone(),
        token: unit.token.clone(),
        unit_type: unit.unit_type.clone(),
        scope: unit.scope.clone(),
        account: unit.account.clone(),
        object_id: unit.id.clone(),
        props: text(&unit.props),
        outputs: text(&unit.outputs),
        secrets: clear(&unit.secrets),
        deposed: unit.deposed,
        ready: unit.ready,
        identity: unit.identity.as_ref().map(|identity| identity.text().to_owned()).unwrap_or_default(),
    }
}

pub fn unit_state(resource: &ResourceId, row: pb::UnitRow) -> Result<UnitState, Fault> {
    if row.key.is_empty() || row.token.is_empty() || row.unit_type.is_empty() {
        return Err(invalid("a unit without key, token or type"));
    }
    Ok(UnitState {
        resource: resource.clone(),
        props: props(&row.props)?,
        outputs: props(&row.outputs)?,
        key: row.key,
        token: row.token,
        unit_type: row.unit_type,
        scope: row.scope,
        account: row.account,
        identity: Identity::from_text(row.identity),
        id: row.object_id,
        secrets: closed(row.secrets),
        deposed: row.deposed,
        ready: row.ready,
        updated_at: Timestamp::now(),
    })
}

pub fn intent_row(intent: &Intent) -> pb::Intent {
    pb::Intent { op: intent.op.as_str().into(), what: intent.what.clone(), unit: Some(unit_row(&intent.unit)) }
}

pub fn intent(resource: &ResourceId, row: pb::Intent) -> Result<Intent, Fault> {
    let unit = row.unit.ok_or_else(|| invalid("an intent without unit"))?;
    Ok(Intent { op: op(&row.op)?, what: row.what, unit: unit_state(resource, unit)? })
}

pub fn close_row(entry: EntryId, closing: &Closing) -> pb::Close {
    let (outcome, detail, unit) = match closing {
        Closing::Done(unit) => ("done", String::new(), unit.as_deref().map(unit_row)),
        Closing::Failed(detail) => ("failed", detail.clone(), None),
        Closing::Refused(detail) => ("refused", detail.clone(), None),
    };
    pb::Close { entry: entry.0, outcome: outcome.into(), detail, unit }
}

pub fn closing(resource: &ResourceId, row: pb::Close) -> Result<(EntryId, Closing), Fault> {
    let closing = match row.outcome.as_str() {
        "done" => Closing::Done(row.unit.map(|unit| unit_state(resource, unit).map(Box::new)).transpose()?),
        "failed" => Closing::Failed(row.detail),
        "refused" => Closing::Refused(row.detail),
        other => return Err(invalid(format!("`{other}` is not how a change ends"))),
    };
    Ok((EntryId(row.entry), closing))
}

pub fn status_row(status: &Status) -> pb::StatusRow {
    pb::StatusRow {
        state: status.state.to_string(),
        message: status.message.clone(),
        outputs: text(&status.outputs),
        facts: text(&status.facts),
        secrets: clear(&status.secrets),
        observed_generation: status.observed_generation,
    }
}

pub fn status(row: pb::StatusRow) -> Result<Status, Fault> {
    let unknown = || invalid(format!("`{}` is not a state of a resource", row.state));
    Ok(Status {
        state: ResourceState::parse(&row.state).ok_or_else(unknown)?,
        outputs: props(&row.outputs)?,
        facts: props(&row.facts)?,
        message: row.message,
        secrets: closed(row.secrets),
        observed_generation: row.observed_generation,
    })
}
