//! Values that only apply will tell.
//!
//! In properties such a value is an object with one key, so that it cannot be taken for a text. Plans that are stored or sent
//! hold it as a marked text, which earlier versions write and read; this file alone knows that form.

use berth_model::ResourceId;
use berth_model::pb::berth::core::v1::StringValueOrRef;
use berth_model::pb::berth::core::v1::string_value_or_ref::LiteralOrRef;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

/// What people read in place of a value that only apply will tell.
pub const KNOWN_AFTER_APPLY: &str = "(known after apply)";
/// What programs read in its place, in plans as JSON and in the variables of policies. It is read back, so it stays as it is.
pub const UNKNOWN_IN_JSON: &str = "(known after apply)";
/// Begins such a value in plans that are stored or sent.
const WRITTEN: &str = "\u{1}known after apply: ";
/// The key of such a value in properties; its text says what the value will be.
const UNKNOWN: &str = "$unknown";
/// The key of another unit's output in what lowering returns.
const UNIT: &str = "$unit";

/// A property that only apply will tell. `what` it will be: `CivoVpc/net.status.outputs.network_id`.
pub fn unknown(what: impl Into<String>) -> Value {
    json!({ UNKNOWN: what.into() })
}

/// A property that is another unit's output, filled in when that unit is there: `output_of("cluster", "id")`.
pub fn output_of(key: &str, output: &str) -> Value {
    json!({ UNIT: key, "output": output })
}

/// The unit and the output that a property is, where it is one.
pub(crate) fn as_output(map: &Map<String, Value>) -> Option<(&str, &str)> {
    Some((map.get(UNIT)?.as_str()?, map.get("output")?.as_str()?))
}

/// An output of a resource.
pub(crate) fn unknown_output(id: &ResourceId, name: &str) -> Value {
    unknown(format!("{id}.status.outputs.{name}"))
}

/// A field that takes a text or a reference, as a property. Empty where nothing is given.
pub fn reference_property(field: Option<&StringValueOrRef>) -> Value {
    match field.and_then(|field| field.literal_or_ref.as_ref()) {
        Some(LiteralOrRef::Value(text)) => text.as_str().into(),
        Some(LiteralOrRef::ValueFrom(from)) => unknown(format!("{}/{}.{}", from.kind, from.name, from.field_path)),
        None => "".into(),
    }
}

/// Whether a value, or anything inside it, is known only after apply.
pub fn is_unknown(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(is_unknown),
        Value::Object(map) => is_marked(map) || map.contains_key(UNIT) || map.values().any(is_unknown),
        _ => false,
    }
}

/// Whether the value as a whole is known only after apply.
pub fn is_wholly_unknown(value: &Value) -> bool {
    value.as_object().is_some_and(is_marked)
}

fn is_marked(map: &Map<String, Value>) -> bool {
    map.len() == 1 && map.get(UNKNOWN).is_some_and(Value::is_string)
}

/// The value with each part of it replaced that `part` has something for.
fn replaced(value: &Value, part: &dyn Fn(&Value) -> Option<Value>) -> Value {
    if let Some(new) = part(value) {
        return new;
    }
    match value {
        Value::Array(items) => items.iter().map(|item| replaced(item, part)).collect(),
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), replaced(value, part))).collect(),
        other => other.clone(),
    }
}

/// As plans are stored and sent.
pub fn written(value: &Value) -> Value {
    replaced(value, &|part| {
        let what = part.as_object().filter(|map| is_marked(map))?.get(UNKNOWN)?.as_str()?;
        Some(format!("{WRITTEN}{what}").into())
    })
}

/// Reads what [`written`] wrote.
fn read(value: &Value) -> Value {
    replaced(value, &|part| Some(unknown(part.as_str()?.strip_prefix(WRITTEN)?)))
}

/// As programs read it.
pub(crate) fn in_json(value: &Value) -> Value {
    replaced(value, &|part| part.as_str()?.starts_with(WRITTEN).then(|| UNKNOWN_IN_JSON.into()))
}

/// Reads what [`in_json`] wrote.
pub(crate) fn from_json(value: &Value) -> Value {
    replaced(value, &|part| (part.as_str()? == UNKNOWN_IN_JSON).then(|| WRITTEN.into()))
}

/// For a field of a plan that holds a property.
pub(crate) mod property {
    use super::*;

    pub fn serialize<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
        if is_unknown(value) { written(value).serialize(serializer) } else { value.serialize(serializer) }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer).map(|value| read(&value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_written_as_earlier_versions_wrote_them() {
        let pools = json!([{"pool": unknown("node_pool_id of pool/gpu"), "min": 1}]);
        assert!(is_unknown(&pools) && !is_wholly_unknown(&pools) && is_wholly_unknown(&pools[0]["pool"]));
        let text = written(&pools);
        assert_eq!(text[0]["pool"], "\u{1}known after apply: node_pool_id of pool/gpu");
        assert_eq!(read(&text), pools);
        assert_eq!(in_json(&text)[0]["pool"], UNKNOWN_IN_JSON);
        assert_eq!(read(&from_json(&in_json(&text)))[0]["pool"], unknown(""));
    }

    #[test]
    fn no_text_of_a_user_is_taken_for_one() {
        for known in [
            json!("$unknown"),
            json!({"$unknown": "a", "b": "c"}),
            json!({"$unknown": 1}),
            json!("known after apply: "),
        ] {
            assert!(!is_unknown(&known), "{known}");
            assert_eq!(read(&written(&known)), known);
        }
    }
}
