//! Templates: what `spec.template` fills in where the user wrote nothing. The values stand beside the protos, in
//! `templates.txt`; what the user wrote wins.

use crate::case::snake_case;
use crate::manifest::Filled;
use crate::registry::Kind;
use crate::yaml::{Node, Value as Yaml};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind as Type, ReflectMessage, Value};
use std::sync::OnceLock;

/// What stands beside the protos of each package: (package, starter, templates).
pub(crate) const BESIDE: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/beside.rs"));

/// A value that a template gives.
pub(crate) struct Row {
    kind: String,
    pub template: String,
    /// In the spec: `defaultNodePool.size`.
    pub path: String,
    pub value: String,
}

/// The rows of a kind, in the order of its file.
pub(crate) fn rows(kind: &str) -> impl Iterator<Item = &'static Row> {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    let rows = ROWS.get_or_init(|| {
        let lines = BESIDE.iter().flat_map(|(.., templates)| templates.lines()).filter(|line| !line.starts_with('#'));
        // From this crate's own build; a test reads every line.
        lines.filter_map(read).collect()
    });
    rows.iter().filter(move |row| row.kind == kind)
}

fn read(line: &str) -> Option<Row> {
    let mut words = line.splitn(4, ' ').map(str::to_owned);
    Some(Row { kind: words.next()?, template: words.next()?, path: words.next()?, value: words.next()? })
}

/// Whether the kind has a field that chooses a template.
pub(crate) fn fills(kind: &Kind) -> bool {
    kind.spec.get_field_by_name("template").is_some()
}

impl Row {
    fn names(&self) -> Vec<String> {
        self.path.split('.').map(snake_case).collect()
    }

    fn filled(&self) -> Filled {
        Filled { path: format!("spec.{}", self.path), value: self.value.clone() }
    }
}

/// What the `template` field of a kind fills: (template, what).
pub fn templates(kind: &Kind) -> Vec<(&'static str, Filled)> {
    rows(&kind.name).filter(|_| fills(kind)).map(|row| (row.template.as_str(), row.filled())).collect()
}

/// Fills what the tree does not have, and says what it filled.
pub(crate) fn fill(kind: &Kind, spec: &mut DynamicMessage, node: &Node<'_>) -> Vec<Filled> {
    chosen(kind, spec)
        .into_iter()
        .filter(|row| !written(node, &row.names()))
        .filter(|row| set(spec, &row.names(), &row.value))
        .map(Row::filled)
        .collect()
}

/// What a template gives in a stored manifest: the values that stand there as the template has them.
pub(crate) fn recall(kind: &Kind, spec: &DynamicMessage) -> Vec<Filled> {
    chosen(kind, spec).into_iter().filter(|row| stands(spec, &row.names(), &row.value)).map(Row::filled).collect()
}

fn chosen(kind: &Kind, spec: &DynamicMessage) -> Vec<&'static Row> {
    let chosen = spec.get_field_by_name("template").and_then(|value| value.as_str().map(str::to_owned));
    rows(&kind.name).filter(|row| Some(&row.template) == chosen.as_ref()).collect()
}

/// Whether the user wrote the field, or something else where it would stand.
fn written(node: &Node<'_>, path: &[String]) -> bool {
    let Some((name, rest)) = path.split_first() else { return true };
    match node.entry(&crate::case::camel_case(name), name) {
        None => false,
        Some(entry) if entry.node.is_null() => false,
        Some(entry) if rest.is_empty() || !matches!(entry.node.value, Yaml::Map { .. }) => true,
        Some(entry) => written(&entry.node, rest),
    }
}

/// A template's value as the field takes it.
fn value_for(field: &FieldDescriptor, text: &str) -> Option<Value> {
    match field.kind() {
        Type::String => Some(Value::String(text.to_owned())),
        Type::Uint32 => text.parse().ok().map(Value::U32),
        Type::Bool => text.parse().ok().map(Value::Bool),
        _ => None,
    }
}

fn set(message: &mut DynamicMessage, path: &[String], text: &str) -> bool {
    let Some((name, rest)) = path.split_first() else { return false };
    let Some(field) = message.descriptor().get_field_by_name(name) else { return false };
    match (rest.is_empty(), value_for(&field, text)) {
        (true, Some(value)) => message.try_set_field(&field, value).is_ok(),
        (true, None) => false,
        (false, _) => message.get_field_mut(&field).as_message_mut().is_some_and(|inner| set(inner, rest, text)),
    }
}

fn stands(message: &DynamicMessage, path: &[String], text: &str) -> bool {
    let Some((name, rest)) = path.split_first() else { return false };
    let Some(field) = message.descriptor().get_field_by_name(name) else { return false };
    let value = message.get_field(&field);
    match rest.is_empty() {
        true => value_for(&field, text).is_some_and(|given| *value == given),
        false => value.as_message().is_some_and(|inner| stands(inner, rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::registry;

    #[test]
    fn every_template_gives_a_field_that_there_is_a_value_that_it_takes() {
        let lines = BESIDE.iter().flat_map(|(.., templates)| templates.lines()).filter(|line| !line.starts_with('#'));
        let mut seen = 0;
        for line in lines {
            let row = read(line).expect(line);
            let kind = registry().kind(&row.kind).expect(line);
            assert!(set(&mut DynamicMessage::new(kind.spec.clone()), &row.names(), &row.value), "{line}");
            seen += 1;
        }
        assert!(seen > 10);
    }
}
