//! Templates: what `spec.template` fills in where the user wrote nothing. A table; what the user wrote wins.

use crate::manifest::Filled;
use crate::registry::Kind;
use crate::yaml::{Node, Value as Yaml};
use prost_reflect::{DynamicMessage, Value};

/// A value that a template gives.
#[derive(Clone, Copy, Debug)]
enum Given {
    Text(&'static str),
    Number(u32),
    Yes,
}

/// (kind, template, path in the spec, value).
type Row = (&'static str, &'static str, &'static [&'static str], Given);

const CLUSTER: &str = "CivoKubernetesCluster";

const TABLE: &[Row] = &[
    (CLUSTER, "dev", &["default_node_pool", "size"], Given::Text("g4s.kube.small")),
    (CLUSTER, "dev", &["default_node_pool", "node_count"], Given::Number(1)),
    (CLUSTER, "staging", &["default_node_pool", "size"], Given::Text("g4s.kube.medium")),
    (CLUSTER, "staging", &["default_node_pool", "node_count"], Given::Number(3)),
    (CLUSTER, "prod", &["default_node_pool", "size"], Given::Text("g4s.kube.large")),
    (CLUSTER, "prod", &["default_node_pool", "node_count"], Given::Number(3)),
    (CLUSTER, "prod", &["highly_available"], Given::Yes),
];

impl Given {
    fn value(self) -> Value {
        match self {
            Given::Text(text) => Value::String(text.to_owned()),
            Given::Number(number) => Value::U32(number),
            Given::Yes => Value::Bool(true),
        }
    }

    fn text(self) -> String {
        match self {
            Given::Text(text) => text.to_owned(),
            Given::Number(number) => number.to_string(),
            Given::Yes => "true".to_owned(),
        }
    }
}

fn path_of(path: &[&str]) -> String {
    let names: Vec<String> = path.iter().map(|name| crate::words::camel_case(name)).collect();
    format!("spec.{}", names.join("."))
}

/// What the templates of a kind fill: (template, what).
pub fn templates(kind: &str) -> Vec<(&'static str, Filled)> {
    let rows = TABLE.iter().filter(|(of, ..)| *of == kind);
    rows.map(|(_, template, path, given)| (*template, Filled { path: path_of(path), value: given.text() })).collect()
}

/// Fills what the tree does not have, and says what it filled.
pub(crate) fn fill(kind: &Kind, spec: &mut DynamicMessage, node: &Node<'_>) -> Vec<Filled> {
    rows_of(kind, spec)
        .filter(|(path, _)| !written(node, path))
        .filter(|(path, given)| set(spec, path, given.value()))
        .map(|(path, given)| Filled { path: path_of(path), value: given.text() })
        .collect()
}

/// What a template gives in a stored manifest: the values that stand there as the template has them.
pub(crate) fn recall(kind: &Kind, spec: &DynamicMessage) -> Vec<Filled> {
    rows_of(kind, spec)
        .filter(|(path, given)| get(spec, path).is_some_and(|value| value == given.value()))
        .map(|(path, given)| Filled { path: path_of(path), value: given.text() })
        .collect()
}

fn rows_of(kind: &Kind, spec: &DynamicMessage) -> impl Iterator<Item = (&'static [&'static str], Given)> + use<> {
    let chosen = spec.get_field_by_name("template").and_then(|value| value.as_str().map(str::to_owned));
    let name = kind.name.clone();
    TABLE.iter().filter_map(move |(of, template, path, given)| {
        (*of == name && Some(*template) == chosen.as_deref()).then_some((*path, *given))
    })
}

/// Whether the user wrote the field, or something else where it would stand.
fn written(node: &Node<'_>, path: &[&str]) -> bool {
    let Some((name, rest)) = path.split_first() else { return true };
    match node.entry(&crate::words::camel_case(name), name) {
        None => false,
        Some(entry) if entry.node.is_null() => false,
        Some(entry) if rest.is_empty() || !matches!(entry.node.value, Yaml::Map { .. }) => true,
        Some(entry) => written(&entry.node, rest),
    }
}

fn set(message: &mut DynamicMessage, path: &[&str], value: Value) -> bool {
    match path {
        [name] => message.try_set_field_by_name(name, value).is_ok(),
        [name, rest @ ..] => {
            let inner = message.get_field_by_name_mut(name).and_then(Value::as_message_mut);
            inner.is_some_and(|inner| set(inner, rest, value))
        }
        [] => false,
    }
}

fn get(message: &DynamicMessage, path: &[&str]) -> Option<Value> {
    match path {
        [name] => message.get_field_by_name(name).map(|value| value.into_owned()),
        [name, rest @ ..] => get(message.get_field_by_name(name)?.as_message()?, rest),
        [] => None,
    }
}
