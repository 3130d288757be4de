//! What metadata says beyond the rules of its fields.

use crate::annotations;
use crate::diagnostic::Diagnostic;
use crate::phrasing;
use crate::registry::Kind;
use crate::shape::Shape;
use crate::yaml::{Entry, Node};

/// Longest name in Berth's own groups: a DNS label.
const OWN_NAME_CHARS: usize = 63;

/// Checks annotations and names; `foreign` manifests were written for another tool.
pub(crate) fn check(
    file: &str,
    metadata: &Entry<'_>,
    (kind, foreign): (Option<&Kind>, bool),
    shape: &Shape,
    out: &mut Vec<Diagnostic>,
) {
    if let Some(annotations) = metadata.node.entry("annotations", "annotations") {
        annotations::check(file, annotations, out);
    }
    if kind.is_some_and(|kind| kind.names_env) {
        names_env(file, &metadata.node, out);
    }
    if !foreign {
        own_name(file, &metadata.node, shape, out);
    }
}

/// What names an env belongs to it, or to none.
fn names_env(file: &str, metadata: &Node<'_>, out: &mut Vec<Diagnostic>) {
    let text = |name| Some(metadata.entry(name, name)?.node.text()?.to_owned());
    let (Some(name), Some(entry)) = (text("name"), metadata.entry("env", "env")) else { return };
    if entry.node.text().is_none_or(|env| env.is_empty() || env == name) {
        return;
    }
    let message = format!("env must be {}, as the name is, or left out", phrasing::shown(&name));
    out.push(Diagnostic::error(message).file(file).at(entry.pointer()).path("metadata.env"));
}

/// In Berth's own groups a name is a DNS label; the rule of the field is what other tools' groups may have.
fn own_name(file: &str, metadata: &Node<'_>, shape: &Shape, out: &mut Vec<Diagnostic>) {
    let (Some(entry), Some(field)) = (metadata.entry("name", "name"), shape.field("name")) else { return };
    let Some(name) = entry.node.text() else { return };
    let foreign = |c: char| c.is_ascii_uppercase() || matches!(c, '.' | '_');
    let length = name.chars().count();
    let message = match name.contains(foreign) {
        _ if length > OWN_NAME_CHARS => format!("name must have at most {OWN_NAME_CHARS} characters, and has {length}"),
        true => format!("name {} is not valid: {}", phrasing::shown(name), field.hint),
        false => return,
    };
    if !out.iter().any(|problem| problem.path == "metadata.name") {
        out.push(Diagnostic::error(message).file(file).at(entry.node.span).path("metadata.name"));
    }
}
