//! What the fields of a type are: from Kubernetes' own OpenAPI documents for built-in types, from its definition for a
//! custom one. Validation, pruning, defaults, merging, ownership and `kubectl explain` all read the same schemas.

pub mod check;
pub mod fields;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, OnceLock};

use serde_json::{Map, Value, json};

use super::types::ResourceType;

const LINES: &str = include_str!("kubernetes.jsonl");
const REFERENCE: &str = "#/components/schemas/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    #[default]
    Any,
    Object,
    List,
    Text,
    Integer,
    Number,
    Flag,
    IntOrText,
    /// Written as text, read from text or number.
    Quantity,
}

/// How items of a list are told apart when two parties write to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub kind: Kind,
    /// The name of a definition of Kubernetes' own types, which has the fields.
    reference: Option<String>,
    /// The name of the definition that this is, and its last part.
    pub name: String,
    pub go_name: String,
    pub format: String,
    pub fields: BTreeMap<String, Schema>,
    /// Values of a map.
    pub entries: Option<Box<Schema>>,
    pub items: Option<Box<Schema>>,
    pub list: ListType,
    pub keys: Vec<String>,
    /// Strategic merge patch merges the list item by item.
    pub merge_key: Option<String>,
    pub merges: bool,
    pub atomic: bool,
    /// Fields that are not described are kept.
    pub open: bool,
    pub nullable: bool,
    pub default: Option<Value>,
    pub required: Vec<String>,
    /// Limits on values, as they were written.
    pub limits: Map<String, Value>,
}

const LIMITS: &[&str] = &[
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
];

impl Schema {
    pub fn parse(value: &Value) -> Schema {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let flag = |field: &str| value.get(field) == Some(&json!(true));
        let child = |field: &str| {
            value.get(field).filter(|child| child.is_object()).map(|child| Box::new(Schema::parse(child)))
        };
        let texts = |field: &str| -> Vec<String> {
            let list = value.get(field).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let reference = value.get("$ref").or_else(|| value.pointer("/allOf/0/$ref")).and_then(Value::as_str);
        let reference = reference.and_then(|name| name.strip_prefix(REFERENCE)).map(str::to_owned);
        let int_or_text = flag("x-kubernetes-int-or-string") || text("format") == "int-or-string";
        let kind = match text("type") {
            _ if int_or_text => Kind::IntOrText,
            "object" => Kind::Object,
            "array" => Kind::List,
            "string" => Kind::Text,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Flag,
            _ if value.get("properties").is_some() => Kind::Object,
            _ => Kind::Any,
        };
        let fields = value.get("properties").and_then(Value::as_object).into_iter().flatten();
        let limits = value.as_object().into_iter().flatten();
        let strategy = text("x-kubernetes-patch-strategy");
        let mut fields: BTreeMap<String, Schema> =
            fields.map(|(name, field)| (name.clone(), Schema::parse(field))).collect();
        if flag("x-kubernetes-embedded-resource") {
            Schema::add_object_fields(&mut fields);
        }
        Schema {
            kind,
            format: text("format").to_owned(),
            fields,
            entries: child("additionalProperties"),
            items: child("items"),
            list: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map,
                _ => ListType::Atomic,
            },
            keys: texts("x-kubernetes-list-map-keys"),
            merge_key: value.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).map(str::to_owned),
            merges: strategy.split(',').any(|one| one == "merge"),
            atomic: text("x-kubernetes-map-type") == "atomic",
            open: flag("x-kubernetes-preserve-unknown-fields")
                || value.get("additionalProperties") == Some(&json!(true)),
            nullable: flag("nullable"),
            default: value.get("default").cloned(),
            required: texts("required"),
            limits: limits
                .filter(|(name, _)| LIMITS.contains(&name.as_str()) && reference.is_none())
                .map(|(name, limit)| (name.clone(), limit.clone()))
                .collect(),
            reference,
            name: String::new(),
            go_name: String::new(),
        }
    }

    /// The schema that describes the value: the definition that is referred to, or this one.
    pub fn target(&self) -> &Schema {
        self.reference.as_deref().and_then(definition).unwrap_or(self)
    }

    pub fn is_atomic(&self) -> bool {
        self.atomic || self.target().atomic
    }

    /// The schema of a field or map entry.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        let target = self.target();
        target.fields.get(name).or(target.entries.as_deref())
    }

    /// Of a custom type: what every object has, besides what its definition says.
    pub fn custom(value: &Value) -> Schema {
        let mut schema = Schema::parse(value);
        schema.kind = Kind::Object;
        Schema::add_object_fields(&mut schema.fields);
        schema
    }

    fn add_object_fields(fields: &mut BTreeMap<String, Schema>) {
        let text = || Schema { kind: Kind::Text, ..Schema::default() };
        fields.insert("apiVersion".into(), text());
        fields.insert("kind".into(), text());
        let meta = Schema { reference: Some(OBJECT_META.into()), kind: Kind::Object, ..Schema::default() };
        fields.insert("metadata".into(), meta);
    }
}

pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Definition names, and their lines.
fn lines() -> &'static HashMap<&'static str, &'static str> {
    static INDEX: OnceLock<HashMap<&'static str, &'static str>> = OnceLock::new();
    INDEX.get_or_init(|| {
        let named = |line: &'static str| Some((line.strip_prefix("[\"")?.split_once('"')?.0, line));
        LINES.lines().filter_map(named).collect()
    })
}

/// A definition as it was published: its OpenAPI schema and its field numbers in protobuf.
pub fn published(name: &str) -> Option<(Value, Value)> {
    let line: Value = serde_json::from_str(lines().get(name)?).ok()?;
    let Value::Array(parts) = line else { return None };
    let mut parts = parts.into_iter().skip(1);
    Some((parts.next()?, parts.next()?))
}

/// Parsed once, when first asked for, and kept: there are a few hundred of them.
pub fn definition(name: &str) -> Option<&'static Schema> {
    static PARSED: OnceLock<Mutex<HashMap<String, &'static Schema>>> = OnceLock::new();
    let mut parsed = PARSED.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = parsed.get(name) {
        return Some(known);
    }
    let mut schema = Schema::parse(&published(name)?.0);
    schema.name = name.to_owned();
    schema.go_name = name.rsplit('.').next().unwrap_or(name).to_owned();
    if name.ends_with(".api.resource.Quantity") {
        schema.kind = Kind::Quantity;
    }
    let kept: &'static Schema = Box::leak(Box::new(schema));
    parsed.insert(name.to_owned(), kept);
    Some(kept)
}

/// The name of a built-in type's definition.
pub fn definition_name(group: &str, version: &str, kind: &str) -> String {
    match group {
        "" => format!("io.k8s.api.core.{version}.{kind}"),
        "apiextensions.k8s.io" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}"),
        "apiregistration.k8s.io" => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}.{kind}"),
        _ => format!("io.k8s.api.{}.{version}.{kind}", group.split('.').next().unwrap_or(group)),
    }
}

pub fn of_built_in(resource: &ResourceType) -> Option<&'static Schema> {
    definition(&definition_name(resource.group, resource.version, resource.kind))
}

/// All definitions that the given ones need, themselves included, for an OpenAPI document.
pub fn closure(names: impl IntoIterator<Item = String>) -> Map<String, Value> {
    let mut found = Map::new();
    let mut open: Vec<String> = names.into_iter().collect();
    while let Some(name) = open.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let Some((schema, _)) = published(&name) else { continue };
        references(&schema, &mut open);
        found.insert(name, schema);
    }
    found
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix(REFERENCE)) {
                found.push(name.to_owned());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::types::TYPES;

    #[test]
    fn every_built_in_type_has_a_schema() {
        for resource in TYPES.iter().filter(|resource| resource.group != "metrics.k8s.io") {
            let schema = of_built_in(resource).unwrap_or_else(|| panic!("{}", resource.qualified()));
            assert!(schema.fields.contains_key("metadata"), "{}", resource.qualified());
        }
    }

    #[test]
    fn references_are_followed_and_lists_know_their_keys() {
        let pod = definition("io.k8s.api.core.v1.PodSpec").unwrap();
        let containers = pod.field("containers").unwrap();
        assert_eq!((containers.list, containers.merge_key.as_deref()), (ListType::Map, Some("name")));
        let limits = containers.items.as_ref().unwrap().field("resources").unwrap().field("limits").unwrap();
        assert_eq!(limits.field("cpu").unwrap().target().kind, Kind::Quantity);
        assert!(definition("io.k8s.api.apps.v1.DeploymentSpec").unwrap().field("selector").unwrap().is_atomic());
        let all = closure(["io.k8s.api.apps.v1.Deployment".to_owned()]);
        assert!(all.contains_key("io.k8s.api.core.v1.Container") && !all.contains_key("io.k8s.api.core.v1.Node"));
    }
}
