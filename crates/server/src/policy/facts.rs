//! What rules read: a resource's plan as CEL values.

use crate::gate::GateInput;
use berth_engine::{Action, ResourcePlan, UNKNOWN_IN_JSON, is_wholly_unknown};
use berth_model::{ResourceId, rule_env};
use cel::objects::{Key, Map, Value};
use cel::{Context, Env};
use jiff::Timestamp;
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// The variables of a rule. Made once for all policies that a plan is held against.
pub struct Facts {
    id: ResourceId,
    variables: Vec<(&'static str, Value)>,
}

impl Facts {
    pub fn new(plan: &ResourcePlan, input: &GateInput, now: Timestamp) -> Self {
        let units: Vec<Json> = plan
            .units
            .iter()
            .filter_map(|unit| {
                let changes: Vec<Json> =
                    unit.changes.iter().map(|c| json!({"field": c.field, "from": c.from, "to": c.to})).collect();
                Some(json!({"key": unit.key, "type": unit.unit_type, "op": unit.op?.as_str(), "changes": changes,
                        "losesData": unit.loses_data}))
            })
            .collect();
        Self::of(&plan.id, input, action_name(plan.action), Json::from(units), now)
    }

    /// From values that somebody wrote down, as tests of policies do.
    pub fn of(id: &ResourceId, input: &GateInput, action: &str, units: Json, now: Timestamp) -> Self {
        let part = |pointer: &str| input.manifest.pointer(pointer).cloned().unwrap_or_else(|| json!({}));
        let old = input.old.as_ref().and_then(|old| old.get("spec")).cloned().unwrap_or_default();
        let resource = json!({
            "id": id.to_string(),
            "kind": id.kind,
            "name": id.name,
            "org": id.org,
            "env": id.env,
            "labels": part("/metadata/labels"),
            "annotations": part("/metadata/annotations"),
        });
        let variables = vec![
            ("resource", value(&resource)),
            ("spec", value(&part("/spec"))),
            ("old", value(&old)),
            ("action", value(&json!(action))),
            ("units", value(&units)),
            ("now", timestamp(now)),
            ("actor", value(&json!(input.applied_by))),
        ];
        Self { id: id.clone(), variables }
    }

    pub fn id(&self) -> &ResourceId {
        &self.id
    }

    pub(super) fn variables(&self) -> &[(&'static str, Value)] {
        &self.variables
    }
}

fn action_name(action: Action) -> &'static str {
    match action {
        Action::Unchanged => "unchanged",
        Action::Create => "create",
        Action::Update => "update",
        Action::Replace => "replace",
        Action::Resume => "resume",
        Action::Delete => "delete",
    }
}

/// Whole numbers are ints, so that rules need not tell signed from unsigned.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => n.as_i64().map_or_else(|| Value::Float(n.as_f64().unwrap_or(f64::NAN)), Value::Int),
        Json::String(text) => Value::String(Arc::new(text.clone())),
        Json::Array(items) => Value::List(Arc::new(items.iter().map(value).collect())),
        unknown if is_wholly_unknown(unknown) => Value::String(Arc::new(UNKNOWN_IN_JSON.into())),
        Json::Object(map) => {
            let map = map.iter().map(|(key, inner)| (Key::String(Arc::new(key.clone())), value(inner))).collect();
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// The language's own reading of a time, so that its functions work on it.
fn timestamp(now: Timestamp) -> Value {
    let env: Arc<Env> = rule_env();
    let mut context = Context::with_env(env.clone());
    context.add_variable_from_value("text", now.to_string());
    let read = env.compile("timestamp(text)").ok().and_then(|program| program.execute(&context).ok());
    read.unwrap_or(Value::Null)
}
