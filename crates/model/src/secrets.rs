//! Secrets in a manifest, found by the `(berth.secret)` option.

use crate::diagnostic::Diagnostic;
use crate::manifest::Manifest;
use crate::registry::{Kind, registry};
use crate::shape::{Many, Shape};
use crate::validate::Path;
use crate::visit;
use crate::yaml::{Node, Value as Yaml};
use prost_reflect::Value;
use std::collections::BTreeSet;

/// What stands in place of a secret that is shown.
pub const REDACTED: &str = "(secret)";

impl Manifest {
    /// Replaces every secret that is set, given its path (`spec.civo.token.value`) and value.
    pub fn map_secrets(&mut self, mut replace: impl FnMut(&str, &str) -> String) {
        let mut path = Path("spec".to_owned());
        visit::each_mut(self.kind.spec_shape(), &mut self.spec, &mut path, &mut |path, field, value| {
            if let (true, Value::String(text)) = (field.secret, value) {
                *text = replace(path, text);
            }
            true
        });
    }

    /// A copy to show: secrets are replaced by a word.
    pub fn redacted(&self) -> Self {
        let mut copy = self.clone();
        copy.map_secrets(|_, _| REDACTED.to_owned());
        copy
    }
}

/// A problem on a line that holds a secret, or something misspelt that may be one, is shown without the line.
pub(crate) fn hide_lines(kind: Option<&Kind>, text: &str, root: &Node<'_>, problems: &mut [Diagnostic]) {
    let spec = kind.map(Kind::spec_shape);
    if problems.is_empty() || spec.is_some_and(|shape| !holds_secrets(shape)) {
        return;
    }
    let mut lines = SecretLines { text, found: BTreeSet::new() };
    for entry in root.entries() {
        match (entry.key.as_ref(), spec) {
            ("apiVersion" | "api_version" | "kind" | "metadata" | "status", _) => {}
            ("spec", Some(shape)) => lines.of(shape, &entry.node),
            _ => lines.all(&entry.node),
        }
    }
    for problem in problems {
        problem.secret |= problem.span.is_some_and(|span| lines.found.contains(&span.line));
    }
}

/// Text that could not be read may hold a secret anywhere, if its document is of a kind that has secrets.
pub(crate) fn hide_unread(text: &str, problems: &mut [Diagnostic]) {
    for problem in problems {
        let Some(at) = problem.span.map(|span| span.start.min(text.len())) else { continue };
        let start = text.get(..at).and_then(|before| before.rfind("\n---")).unwrap_or(0);
        let end = text.get(at..).and_then(|after| after.find("\n---")).map_or(text.len(), |end| at + end);
        let document = text.get(start..end).unwrap_or(text);
        problem.secret |=
            registry().kinds().any(|kind| document.contains(&kind.name) && holds_secrets(kind.spec_shape()));
    }
}

fn holds_secrets(shape: &Shape) -> bool {
    shape.fields.iter().any(|field| field.secret || field.shape().is_some_and(holds_secrets))
}

struct SecretLines<'t> {
    text: &'t str,
    found: BTreeSet<u32>,
}

impl SecretLines<'_> {
    /// Lines of secrets, and of what stands where a secret may be meant: under a name that is not known, or in place of a
    /// block with secrets.
    fn of(&mut self, shape: &Shape, node: &Node<'_>) {
        if !matches!(node.value, Yaml::Map { .. }) {
            return self.all(node);
        }
        for entry in node.entries() {
            let Some(field) = shape.field(&entry.key).filter(|field| !field.secret) else {
                self.all(&entry.node);
                continue;
            };
            let Some(inner) = field.shape().filter(|inner| holds_secrets(inner)) else { continue };
            match field.many {
                Many::One => self.of(inner, &entry.node),
                Many::List => entry.node.items().iter().for_each(|item| self.of(inner, item)),
                Many::Map => entry.node.entries().iter().for_each(|entry| self.of(inner, &entry.node)),
            }
        }
    }

    fn all(&mut self, node: &Node<'_>) {
        match &node.value {
            Yaml::Null => {}
            Yaml::Scalar { .. } => {
                let written = self.text.get(node.span.start..node.span.end).unwrap_or_default();
                self.found.extend(node.span.line..=node.span.line + written.matches('\n').count() as u32);
            }
            Yaml::Seq { items, .. } => items.iter().for_each(|item| self.all(item)),
            Yaml::Map { entries, .. } => entries.iter().for_each(|entry| self.all(&entry.node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;

    /// Every problem whose line shows the secret must say so.
    #[test]
    fn a_line_with_a_secret_is_never_shown_for_a_mistake_beside_it() {
        let start = "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {name: a}\n";
        for spec in [
            "spec: {provider: civo, civo: {tokn: {value: hunter2}}}",
            "spec: {provider: civo, civo: {token: {valu: hunter2}}}",
            "spec: {provider: cvio, civo: {token: {value: hunter2}}}",
            "spec: {provider: civo, civo: {token: {value: hunter2}, region: nowhere}}",
            "spec: {provider: civo, cviio: {token: {value: hunter2}}}",
            "spec: {provider: civo, civo: {token: hunter2}}",
            "spec: {provider: civo, civo: hunter2}",
            "spce: {provider: civo, civo: {token: {value: hunter2}}}",
            "spec: {provider: civo, civo: {token: {value: hunter2}",
            "spec: {provider: civo, civo: {token: {value: hunter2]}}",
            "spec:\n  provider: civo\n  civo:\n    tokn: hunter2",
            "spec:\n  provider: civo\n  civo:\n    token: {value: [hunter2]}",
        ] {
            let text = format!("{start}{spec}\n");
            let (_, problems) = parse("account.yaml", text.as_bytes());
            assert!(!problems.is_empty(), "{spec}");
            for problem in &problems {
                let line = problem.span.and_then(|span| text.lines().nth(span.line as usize - 1)).unwrap_or_default();
                assert!(problem.secret || !line.contains("hunter2"), "{spec}: {}", problem.message);
                assert!(!problem.message.contains("hunter2"), "{spec}: {}", problem.message);
            }
        }
        let (_, problems) = parse(
            "net.yaml",
            b"apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: a}\nspec: {regin: fra1}\n",
        );
        assert!(problems.iter().any(|problem| !problem.secret), "lines without secrets are shown");
    }
}
