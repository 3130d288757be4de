//! What differs between desired and observed, and what it takes. Pure.

use crate::handler::Handler;
use crate::unit::{Change, Observed, Op, Props};
use crate::unknown::{self, as_output, is_unknown, unknown};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One property that would change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    pub field: String,
    #[serde(default, with = "unknown::property")]
    pub from: Value,
    #[serde(default, with = "unknown::property")]
    pub to: Value,
    /// What this change alone does to the object.
    #[serde(rename = "takes")]
    pub effect: ChangeEffect,
}

/// What a change does to the object it is made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeEffect {
    InPlace,
    /// The object stays, and its parts (such as nodes) are replaced step by step.
    Roll,
    Replace,
}

/// Compares only what is desired: an absent property is not managed. Values that are known only after apply count as
/// changes of a field that forces replacement only where the old value is sure to go (its owner is replaced).
pub fn diff(handler: &dyn Handler, desired: &Props, observed: &Observed) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    for field in handler.fields() {
        let effect = match field.change {
            Change::CreateOnly => continue,
            Change::InPlace => ChangeEffect::InPlace,
            Change::Roll => ChangeEffect::Roll,
            Change::Replace => ChangeEffect::Replace,
        };
        let Some(to) = desired.get(field.name) else { continue };
        let from = observed.props.get(field.name).unwrap_or(&Value::Null);
        if is_unknown(to) || !handler.same(field.name, to, from) {
            changes.push(FieldChange { field: field.name.into(), from: from.clone(), to: to.clone(), effect });
        }
    }
    changes
}

/// The operation that a set of changes amounts to.
pub fn op_for(changes: &[FieldChange]) -> Option<Op> {
    if changes.is_empty() {
        None
    } else if changes.iter().any(|c| c.effect == ChangeEffect::Replace) {
        Some(Op::Replace)
    } else {
        Some(Op::Update)
    }
}

/// Fills in the outputs of other units; what is not there yet becomes unknown.
pub fn fill(props: &Props, output: &dyn Fn(&str, &str) -> Option<Value>) -> Props {
    props.iter().map(|(name, value)| (name.clone(), fill_value(value, output))).collect()
}

fn fill_value(value: &Value, output: &dyn Fn(&str, &str) -> Option<Value>) -> Value {
    match value {
        Value::Object(map) => match as_output(map) {
            Some((unit, name)) => output(unit, name).unwrap_or_else(|| unknown(format!("{name} of {unit}"))),
            None => Value::Object(fill(map, output)),
        },
        Value::Array(items) => Value::Array(items.iter().map(|item| fill_value(item, output)).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn outputs_of_other_units_are_filled_or_marked_unknown() {
        let props = json!({"cluster_id": {"$unit": "cluster", "output": "id"}, "list": [{"$unit": "x", "output": "y"}], "n": 1});
        let filled =
            fill(props.as_object().unwrap(), &|unit, name| (unit == "cluster" && name == "id").then(|| json!("c-1")));
        assert_eq!(filled["cluster_id"], json!("c-1"));
        assert!(is_unknown(&filled["list"]));
        assert!(!is_unknown(&filled["n"]));
    }
}
