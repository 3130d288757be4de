//! Messages as JSON with camelCase names, and back. Fast and without rules: for what was checked before.

use crate::shape::{Field, Holds, Many, Shape};
use prost_reflect::{DynamicMessage, MapKey, Value};
use serde_json::{Map, Value as Json};

pub(crate) fn message_json(shape: &Shape, message: &DynamicMessage) -> Json {
    let mut out = Map::new();
    for field in shape.fields.iter().filter(|field| message.has_field(&field.desc)) {
        out.insert(field.json.clone(), value_json(field, &message.get_field(&field.desc)));
    }
    Json::Object(out)
}

fn value_json(field: &Field, value: &Value) -> Json {
    match value {
        Value::Bool(b) => Json::from(*b),
        Value::U32(n) => Json::from(*n),
        Value::I32(n) => Json::from(*n),
        Value::String(text) => Json::from(text.as_str()),
        Value::Message(message) => field.shape().map_or(Json::Null, |shape| message_json(shape, message)),
        Value::List(items) => items.iter().map(|item| value_json(field, item)).collect(),
        Value::Map(entries) => {
            let pairs = entries.iter().map(|(key, value)| (key_text(key), value_json(field, value)));
            Json::Object(pairs.collect())
        }
        // No kind has a field of another type: a test looks at all of them.
        _ => Json::Null,
    }
}

pub(crate) fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::String(text) => text.clone(),
        MapKey::Bool(b) => b.to_string(),
        MapKey::I32(n) => n.to_string(),
        MapKey::I64(n) => n.to_string(),
        MapKey::U32(n) => n.to_string(),
        MapKey::U64(n) => n.to_string(),
    }
}

/// Why JSON is not the message that it should be; the text names the field and never shows a value.
pub(crate) fn message_from(shape: &Shape, json: &Json, path: &str) -> Result<DynamicMessage, String> {
    let Json::Object(entries) = json else { return Err(format!("{path} is not an object")) };
    let mut message = DynamicMessage::new(shape.desc.clone());
    for (name, json) in entries {
        let Some(field) = shape.field(name) else { return Err(format!("{path} has no field `{name}`")) };
        if json.is_null() {
            continue;
        }
        let value = field_from(field, json, path)?;
        message.try_set_field(&field.desc, value).map_err(|_| format!("{path}.{name} has the wrong type"))?;
    }
    Ok(message)
}

fn field_from(field: &Field, json: &Json, path: &str) -> Result<Value, String> {
    let wrong = || format!("{path}.{} has the wrong type", field.json);
    match field.many {
        Many::One => value_from(field, json, path),
        Many::List => {
            let items = json.as_array().ok_or_else(wrong)?;
            Ok(Value::List(items.iter().map(|item| value_from(field, item, path)).collect::<Result<_, _>>()?))
        }
        Many::Map => {
            let entries = json.as_object().ok_or_else(wrong)?.iter();
            let entries =
                entries.map(|(key, value)| Ok((MapKey::String(key.clone()), value_from(field, value, path)?)));
            Ok(Value::Map(entries.collect::<Result<_, String>>()?))
        }
    }
}

fn value_from(field: &Field, json: &Json, path: &str) -> Result<Value, String> {
    let value = match (field.holds, json) {
        (Holds::Text, Json::String(text)) => Some(Value::String(text.clone())),
        (Holds::Bool, Json::Bool(b)) => Some(Value::Bool(*b)),
        (Holds::Unsigned, Json::Number(n)) => n.as_u64().and_then(|n| u32::try_from(n).ok()).map(Value::U32),
        (Holds::Signed, Json::Number(n)) => n.as_i64().and_then(|n| i32::try_from(n).ok()).map(Value::I32),
        (Holds::Message | Holds::Reference, Json::Object(_)) => match field.shape() {
            Some(shape) => Some(Value::Message(message_from(shape, json, &format!("{path}.{}", field.json))?)),
            None => None,
        },
        _ => None,
    };
    value.ok_or_else(|| format!("{path}.{} has the wrong type", field.json))
}
