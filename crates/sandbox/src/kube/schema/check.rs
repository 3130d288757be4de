//! Values against their schema: fields that do not exist, values of the wrong type, limits, and defaults.

use serde_json::{Map, Value};

use super::{Kind, Schema};

/// Takes away fields that the schema does not have and tells their paths.
pub fn prune(value: &mut Value, schema: &Schema, path: &str, gone: &mut Vec<String>) {
    let schema = schema.target();
    match value {
        Value::Object(map) => {
            let described = !schema.fields.is_empty() || schema.entries.is_some();
            // Nothing is said of what is inside: built-in types keep it, custom types only if they say so.
            let custom = schema.kind == Kind::Object && schema.go_name.is_empty();
            if !described && (schema.open || !custom) {
                return;
            }
            map.retain(|name, child| {
                let at = join(path, name);
                match schema.fields.get(name).or(schema.entries.as_deref()) {
                    Some(field) => {
                        prune(child, field, &at, gone);
                        true
                    }
                    None if schema.open => true,
                    None => {
                        gone.push(at);
                        false
                    }
                }
            });
        }
        Value::Array(items) => {
            if let Some(item_schema) = &schema.items {
                for (at, item) in items.iter_mut().enumerate() {
                    prune(item, item_schema, &format!("{path}[{at}]"), gone);
                }
            }
        }
        _ => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The first value that a built-in type cannot hold, in the words of Go's decoder.
pub fn undecodable(value: &Value, schema: &Schema, path: &str, owner: &str) -> Option<String> {
    let target = schema.target();
    let owner = if target.go_name.is_empty() { owner } else { target.go_name.as_str() };
    let wrong = |go_type: &str| {
        let given = match value {
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            Value::Array(_) => "array",
            _ => "object",
        };
        Some(format!("json: cannot unmarshal {given} into Go struct field {owner}.{path} of type {go_type}"))
    };
    match (target.kind, value) {
        (_, Value::Null) => None,
        (Kind::Object, Value::Object(map)) => map.iter().find_map(|(name, child)| {
            let field = target.fields.get(name).or(target.entries.as_deref())?;
            undecodable(child, field, &join(path, name), owner)
        }),
        (Kind::List, Value::Array(items)) => {
            let item = target.items.as_deref()?;
            items.iter().find_map(|child| undecodable(child, item, path, owner))
        }
        (Kind::Object, _) if target.entries.is_some() => {
            let text = target.entries.as_deref().is_some_and(|entry| entry.target().kind == Kind::Text);
            wrong(if text { "map[string]string" } else { "map[string]interface {}" })
        }
        (Kind::Object, _) => wrong(&format!("v1.{}", if target.go_name.is_empty() { "Object" } else { &target.go_name })),
        (Kind::List, _) => wrong("[]string"),
        (Kind::Text, Value::String(_)) | (Kind::Flag, Value::Bool(_)) | (Kind::Number, Value::Number(_)) => None,
        (Kind::Text, _) => wrong("string"),
        (Kind::Flag, _) => wrong("bool"),
        (Kind::Integer, Value::Number(number)) if number.is_i64() || number.is_u64() => None,
        (Kind::Integer, _) => wrong(if target.format == "int64" { "int64" } else { "int32" }),
        (Kind::Number, _) => wrong("float64"),
        (Kind::Quantity | Kind::IntOrText, Value::String(_) | Value::Number(_)) | (Kind::Any, _) => None,
        (Kind::Quantity, _) => Some("unmarshalerDecoder: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into()),
        (Kind::IntOrText, _) => wrong("intstr.IntOrString"),
    }
}

/// One value that a custom type does not allow.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    pub field: String,
    pub reason: &'static str,
    pub message: String,
}

/// Everything that is wrong with a custom object, in the words of the API server.
pub fn violations(value: &Value, schema: &Schema, path: &str, found: &mut Vec<Violation>) {
    let schema = schema.target();
    let mut add = |reason, message: String| found.push(Violation { field: path.to_owned(), reason, message });
    if value.is_null() {
        if !schema.nullable && schema.kind != Kind::Any {
            add(
                "FieldValueTypeInvalid",
                format!("Invalid value: \"null\": {path} in body must be of type {}: \"null\"", word(schema)),
            );
        }
        return;
    }
    let fits = match schema.kind {
        Kind::Any => true,
        Kind::Object => value.is_object(),
        Kind::List => value.is_array(),
        Kind::Text => value.is_string(),
        Kind::Integer => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Kind::Number => value.is_number(),
        Kind::Flag => value.is_boolean(),
        Kind::IntOrText | Kind::Quantity => value.is_string() || value.is_i64() || value.is_u64(),
    };
    if !fits {
        let (given, wanted) = (json_type(value), word(schema));
        add(
            "FieldValueTypeInvalid",
            format!("Invalid value: \"{given}\": {path} in body must be of type {wanted}: \"{given}\""),
        );
        return;
    }
    limits(value, schema, path, found);
    match value {
        Value::Object(map) => {
            for name in schema.required.iter().filter(|name| !map.contains_key(*name)) {
                found.push(Violation {
                    field: join(path, name),
                    reason: "FieldValueRequired",
                    message: "Required value".into(),
                });
            }
            for (name, child) in map {
                if let Some(field) = schema.fields.get(name).or(schema.entries.as_deref()) {
                    // What every object has is checked by other means.
                    if !(path.is_empty() && name == "metadata") {
                        violations(child, field, &join(path, name), found);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(item) = &schema.items {
                for (at, child) in items.iter().enumerate() {
                    violations(child, item, &format!("{path}[{at}]"), found);
                }
            }
        }
        _ => {}
    }
}

fn word(schema: &Schema) -> &'static str {
    match schema.kind {
        Kind::Any => "any",
        Kind::Object => "object",
        Kind::List => "array",
        Kind::Text => "string",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Flag => "boolean",
        Kind::IntOrText | Kind::Quantity => "integer,string",
    }
}

/// The name of a value's type in JSON Schema.
fn json_type(value: &Value) -> &'static str {
    if value.is_i64() || value.is_u64() {
        return "integer";
    }
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
    }
}

fn limits(value: &Value, schema: &Schema, path: &str, found: &mut Vec<Violation>) {
    for (name, limit) in &schema.limits {
        let Some((reason, message)) = broken(name, limit, value, path, schema) else { continue };
        found.push(Violation { field: path.to_owned(), reason, message });
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{text}\""),
        other => other.to_string(),
    }
}

fn broken(name: &str, limit: &Value, value: &Value, path: &str, schema: &Schema) -> Option<(&'static str, String)> {
    let number = (value.as_f64(), limit.as_f64());
    let most = limit.as_u64().unwrap_or(u64::MAX) as usize;
    let least = limit.as_u64().unwrap_or(0) as usize;
    let bad =
        |why: String| Some(("FieldValueInvalid", format!("Invalid value: {}: {path} in body {why}", shown(value))));
    let exclusive = |field: &str| schema.limits.get(field) == Some(&Value::Bool(true));
    match (name, value, number) {
        ("enum", _, _) => {
            let allowed = limit.as_array().filter(|allowed| !allowed.contains(value))?;
            let list: Vec<String> = allowed.iter().map(shown).collect();
            Some((
                "FieldValueNotSupported",
                format!("Unsupported value: {}: supported values: {}", shown(value), list.join(", ")),
            ))
        }
        ("minimum", _, (Some(given), Some(least)))
            if given < least || (exclusive("exclusiveMinimum") && given <= least) =>
        {
            bad(format!(
                "should be greater than {}{limit}",
                if exclusive("exclusiveMinimum") { "" } else { "or equal to " }
            ))
        }
        ("maximum", _, (Some(given), Some(most)))
            if given > most || (exclusive("exclusiveMaximum") && given >= most) =>
        {
            bad(format!(
                "should be less than {}{limit}",
                if exclusive("exclusiveMaximum") { "" } else { "or equal to " }
            ))
        }
        ("multipleOf", _, (Some(given), Some(step))) if step != 0.0 && (given / step).fract() != 0.0 => {
            bad(format!("should be a multiple of {limit}"))
        }
        ("minLength", Value::String(text), _) if text.chars().count() < least => {
            bad(format!("should be at least {least} chars long"))
        }
        ("maxLength", Value::String(text), _) if text.chars().count() > most => {
            Some(("FieldValueTooLong", format!("Too long: may not be more than {most} bytes")))
        }
        ("pattern", Value::String(text), _) => {
            let pattern = limit.as_str()?;
            let fits = regex::Regex::new(pattern).map_or(true, |regex| regex.is_match(text));
            if fits { None } else { bad(format!("should match '{pattern}'")) }
        }
        ("minItems", Value::Array(items), _) if items.len() < least => {
            bad(format!("should have at least {least} items"))
        }
        ("maxItems", Value::Array(items), _) if items.len() > most => {
            Some(("FieldValueTooMany", format!("Too many: {}: must have at most {most} items", items.len())))
        }
        ("minProperties", Value::Object(map), _) if map.len() < least => {
            bad(format!("should have at least {least} properties"))
        }
        ("maxProperties", Value::Object(map), _) if map.len() > most => {
            Some(("FieldValueTooMany", format!("Too many: {}: must have at most {most} items", map.len())))
        }
        ("oneOf" | "anyOf" | "allOf" | "not", _, _) => combined(name, limit, value, path),
        _ => None,
    }
}

/// `oneOf` and its relatives add conditions on what the structural part describes.
fn combined(name: &str, limit: &Value, value: &Value, path: &str) -> Option<(&'static str, String)> {
    let fits = |one: &Value| {
        let mut found = Vec::new();
        violations(value, &Schema::parse(one), path, &mut found);
        found.is_empty()
    };
    let count = limit.as_array().map_or(0, |list| list.iter().filter(|one| fits(one)).count());
    let all = limit.as_array().map_or(0, Vec::len);
    let why = match name {
        "oneOf" if count != 1 => "must validate one and only one schema (oneOf)",
        "anyOf" if count == 0 => "must validate at least one schema (anyOf)",
        "allOf" if count != all => "must validate all the schemas (allOf)",
        "not" if fits(limit) => "must not validate the schema (not)",
        _ => return None,
    };
    Some(("FieldValueInvalid", format!("Invalid value: {}: {path} in body {why}", shown(value))))
}

/// Fills in the defaults of a custom type.
pub fn fill(value: &mut Value, schema: &Schema) {
    let schema = schema.target();
    match value {
        Value::Object(map) => {
            fill_fields(map, schema);
            for (name, child) in map.iter_mut() {
                if let Some(field) = schema.fields.get(name).or(schema.entries.as_deref()) {
                    fill(child, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item) = &schema.items {
                items.iter_mut().for_each(|child| fill(child, item));
            }
        }
        _ => {}
    }
}

fn fill_fields(map: &mut Map<String, Value>, schema: &Schema) {
    for (name, field) in &schema.fields {
        let Some(default) = &field.default else { continue };
        match map.get(name) {
            None => drop(map.insert(name.clone(), default.clone())),
            Some(Value::Null) if !field.nullable => drop(map.insert(name.clone(), default.clone())),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::schema::definition;
    use serde_json::json;

    fn found(schema: &Value, value: &Value) -> Vec<String> {
        let mut list = Vec::new();
        violations(value, &Schema::custom(schema), "", &mut list);
        list.into_iter().map(|one| format!("{}: {}", one.field, one.message)).collect()
    }

    #[test]
    fn unknown_fields_are_found_wherever_they_are() {
        let mut pod = json!({"metadata": {"name": "a", "labels": {"any": "thing"}, "nmae": 1},
            "spec": {"containers": [{"name": "a", "imagee": "b"}]}});
        let mut gone = Vec::new();
        prune(&mut pod, definition("io.k8s.api.core.v1.Pod").unwrap(), "", &mut gone);
        assert_eq!(gone, ["metadata.nmae", "spec.containers[0].imagee"]);
        assert_eq!(pod["spec"]["containers"][0], json!({"name": "a"}));
    }

    #[test]
    fn wrong_types_are_told_as_the_decoder_does() {
        let deployment = definition("io.k8s.api.apps.v1.Deployment").unwrap();
        let why = undecodable(&json!({"spec": {"replicas": "two"}}), deployment, "", "");
        assert_eq!(
            why.as_deref(),
            Some("json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32")
        );
        assert_eq!(undecodable(&json!({"spec": {"replicas": 2}}), deployment, "", ""), None);
    }

    #[test]
    fn custom_objects_are_held_against_their_schema() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 5}, "color": {"type": "string", "enum": ["red", "blue"]},
            "name": {"type": "string", "pattern": "^[a-z]+$"}, "mode": {"type": "string", "default": "fast"}}}}});
        assert_eq!(found(&schema, &json!({"spec": {"size": 3, "color": "red"}})), Vec::<String>::new());
        assert_eq!(found(&schema, &json!({"spec": {}})), ["spec.size: Required value"]);
        assert_eq!(
            found(&schema, &json!({"spec": {"size": "x"}})),
            ["spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\""]
        );
        assert_eq!(
            found(&schema, &json!({"spec": {"size": 9, "color": "green", "name": "A"}})),
            [
                "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
                "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'",
                "spec.size: Invalid value: 9: spec.size in body should be less than or equal to 5",
            ]
        );
        let mut made = json!({"spec": {"size": 1}});
        fill(&mut made, &Schema::custom(&schema));
        assert_eq!(made["spec"]["mode"], "fast");
    }
}
