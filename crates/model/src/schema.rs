//! JSON Schema, for editors: the YAML language server completes and checks from it.

use crate::annotations;
use crate::registry::{Kind, pool, registry};
use crate::shape::{Field, Holds, Many, Shape};
use crate::template::templates;
use crate::validate::rules::{Check, NumberRules, TextRules};
use serde_json::{Map, Value, json};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema of one kind.
pub fn schema(kind: &Kind) -> Value {
    let mut out = body(kind);
    if let Some(object) = out.as_object_mut() {
        object.insert("$schema".into(), json!(DIALECT));
        object.insert("title".into(), json!(kind.name));
    }
    out
}

/// One schema for all kinds: `kind` chooses.
pub fn schema_all() -> Value {
    let kinds: Vec<&Kind> = registry().kinds().collect();
    let one_of: Vec<Value> = kinds.iter().map(|kind| json!({ "$ref": format!("#/$defs/{}", kind.name) })).collect();
    let defs: Map<String, Value> = kinds.iter().map(|kind| (kind.name.clone(), body(kind))).collect();
    json!({ "$schema": DIALECT, "title": "Berth manifest", "type": "object", "oneOf": one_of, "$defs": defs })
}

fn body(kind: &Kind) -> Value {
    // What a template fills need not be written.
    let filled: Vec<String> = templates(kind).into_iter().map(|(_, filled)| filled.path).collect();
    let metadata = pool().get_message_by_name("berth.core.v1.Metadata");
    let mut metadata = metadata.map_or(json!({}), |desc| message(Shape::of(&desc), "metadata", &[]));
    if let Some(known) = metadata.pointer_mut("/properties/annotations").and_then(Value::as_object_mut) {
        known.insert(
            "properties".into(),
            json!({
                annotations::PROTECT: { "enum": ["true", "false"], "description": "Forbids replacing and deleting." },
                annotations::TIMEOUT: { "type": "string", "description": "How long an operation may take: 90s, 20m, 1h." },
                annotations::READY_GATE: { "enum": ["api", "cloud"], "description": "What must answer before it is Ready." },
            }),
        );
    }
    json!({
        "type": "object",
        "description": kind.doc(),
        "properties": {
            "apiVersion": { "enum": kind.api_versions().collect::<Vec<_>>(), "description": "API group and version." },
            "kind": { "const": kind.name, "description": kind.doc() },
            "metadata": metadata,
            "spec": message(kind.spec_shape(), "spec", &filled),
            "status": { "type": "object", "description": "What Berth reports; ignored when a manifest is read." },
        },
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": false,
    })
}

fn message(shape: &Shape, path: &str, filled: &[String]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in &shape.fields {
        let here = format!("{path}.{}", field.json);
        let given = filled.iter().any(|path| *path == here || path.starts_with(&format!("{here}.")));
        if field.required && !given {
            required.push(field.json.clone());
        }
        properties.insert(field.json.clone(), property(field, &here, filled));
    }
    let mut out = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        out["required"] = json!(required);
    }
    if let [members] = shape.required_oneofs.as_slice() {
        let one_of = members.iter().map(|index| json!({ "required": [shape.fields[*index].json] }));
        out["oneOf"] = one_of.collect();
    }
    out
}

fn property(field: &Field, path: &str, filled: &[String]) -> Value {
    let nothing = Check::Nothing;
    let (items, values) = match &field.rules.check {
        Check::List(rules) => (&rules.items, &nothing),
        Check::Map(rules) => (&nothing, &rules.values),
        _ => (&nothing, &nothing),
    };
    let mut out = match field.many {
        Many::One => single(field, &field.rules.check, path, filled),
        Many::List => json!({ "type": "array", "items": single(field, items, path, filled) }),
        Many::Map => json!({ "type": "object", "additionalProperties": single(field, values, path, filled) }),
    };
    let Some(object) = out.as_object_mut() else { return out };
    match &field.rules.check {
        Check::List(rules) => {
            object.extend(rules.min.map(|n| ("minItems".to_owned(), json!(n))));
            object.extend(rules.max.map(|n| ("maxItems".to_owned(), json!(n))));
            if rules.unique {
                object.insert("uniqueItems".into(), json!(true));
            }
        }
        Check::Map(rules) => {
            object.extend(rules.min.map(|n| ("minProperties".to_owned(), json!(n))));
            object.extend(rules.max.map(|n| ("maxProperties".to_owned(), json!(n))));
        }
        _ => {}
    }
    object.insert("description".into(), json!(field.doc()));
    if !field.example.is_empty() && field.many == Many::One && matches!(field.holds, Holds::Text) {
        object.insert("examples".into(), json!([field.example]));
    }
    out
}

fn single(field: &Field, check: &Check, path: &str, filled: &[String]) -> Value {
    match (field.holds, field.shape()) {
        (Holds::Bool, _) => json!({ "type": "boolean" }),
        (Holds::Unsigned, _) => number(check, Some(0)),
        (Holds::Signed, _) => number(check, None),
        (Holds::Message, Some(shape)) => message(shape, path, filled),
        (Holds::Reference, Some(shape)) => reference(field, shape),
        _ => text(field, check),
    }
}

fn text(field: &Field, check: &Check) -> Value {
    let mut out = Map::from_iter([("type".to_owned(), json!("string"))]);
    if let Check::Text(TextRules { exactly, min_len, max_len, pattern, prefix, one_of, none_of }) = check {
        out.extend(exactly.as_ref().map(|text| ("const".to_owned(), json!(text))));
        out.extend(min_len.map(|n| ("minLength".to_owned(), json!(n))));
        out.extend(max_len.map(|n| ("maxLength".to_owned(), json!(n))));
        out.extend(pattern.as_ref().map(|pattern| ("pattern".to_owned(), json!(pattern.source))));
        out.extend(prefix.as_ref().map(|prefix| ("pattern".to_owned(), json!(format!("^{}", regex::escape(prefix))))));
        if !one_of.is_empty() {
            let mut allowed = one_of.clone();
            if field.any_case {
                allowed.extend(one_of.iter().map(|text| text.to_ascii_uppercase()));
            }
            if field.rules.ignore_zero {
                allowed.push(String::new());
            }
            out.insert("enum".into(), json!(allowed));
        }
        if !none_of.is_empty() {
            out.insert("not".into(), json!({ "enum": none_of }));
        }
    }
    if field.required && field.many == Many::One && !out.contains_key("enum") {
        out.entry("minLength").or_insert(json!(1));
    }
    Value::Object(out)
}

fn number(check: &Check, least: Option<i64>) -> Value {
    let mut out = Map::from_iter([("type".to_owned(), json!("integer"))]);
    out.extend(least.map(|n| ("minimum".to_owned(), json!(n))));
    if let Check::Number(NumberRules { exactly, lt, lte, gt, gte }) = check {
        out.extend(exactly.map(|n| ("const".to_owned(), json!(n))));
        out.extend(gte.map(|n| ("minimum".to_owned(), json!(n))));
        out.extend(lte.map(|n| ("maximum".to_owned(), json!(n))));
        out.extend(gt.map(|n| ("exclusiveMinimum".to_owned(), json!(n))));
        out.extend(lt.map(|n| ("exclusiveMaximum".to_owned(), json!(n))));
    }
    Value::Object(out)
}

/// Text, `{value}` or `{valueFrom}`.
fn reference(field: &Field, shape: &Shape) -> Value {
    let inner = shape.field("valueFrom").and_then(Field::shape);
    let mut from = inner.map_or(json!({}), |shape| message(shape, "", &[]));
    if let (Some((kind, path)), Some(properties)) =
        (&field.points_at, from.pointer_mut("/properties").and_then(Value::as_object_mut))
    {
        if let Some(property) = properties.get_mut("kind") {
            property["default"] = json!(kind);
        }
        if let Some(property) = properties.get_mut("fieldPath") {
            property["default"] = json!(path);
        }
    }
    let one = |name: &str, value: Value| json!({ "type": "object", "properties": { name: value }, "required": [name], "additionalProperties": false });
    json!({ "anyOf": [
        { "type": "string", "minLength": 1 },
        one("value", json!({ "type": "string", "minLength": 1, "description": "The text itself." })),
        one("valueFrom", from),
    ] })
}
