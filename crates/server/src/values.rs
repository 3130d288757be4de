//! JSON between serde's types and protobuf's.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct};
use serde_json::{Map, Number, Value};

/// Whole numbers up to here are the same as text and as a double.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

pub fn to_struct(map: &Map<String, Value>) -> Struct {
    Struct { fields: map.iter().map(|(name, value)| (name.clone(), to_value(value))).collect() }
}

/// An object's fields; none for anything else.
pub fn object_to_struct(value: &Value) -> Struct {
    value.as_object().map(to_struct).unwrap_or_default()
}

pub fn to_value(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => Kind::ListValue(ListValue { values: items.iter().map(to_value).collect() }),
        Value::Object(map) => Kind::StructValue(to_struct(map)),
    };
    prost_types::Value { kind: Some(kind) }
}

pub fn from_struct(fields: &Struct) -> Map<String, Value> {
    fields.fields.iter().map(|(name, value)| (name.clone(), from_value(value))).collect()
}

/// A double as the whole number that it was written as; `None` for a fraction. Protobuf's JSON knows doubles alone.
pub fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= WHOLE_MAX).then_some(number as i64)
}

pub fn from_value(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(*value),
        Some(Kind::NumberValue(number)) => match whole(*number) {
            Some(whole) => Value::Number(whole.into()),
            None => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        },
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::ListValue(list)) => Value::Array(list.values.iter().map(from_value).collect()),
        Some(Kind::StructValue(fields)) => Value::Object(from_struct(fields)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_comes_back_as_it_was() {
        let value = json!({"a": [1, -2, 1.5, "x", true, null, {"b": {}}], "n": 9_007_199_254_740_992_i64});
        assert_eq!(from_value(&to_value(&value)), value);
        assert_eq!(Value::Object(from_struct(&object_to_struct(&value))), value);
        assert_eq!(object_to_struct(&json!(1)).fields.len(), 0);
    }
}
