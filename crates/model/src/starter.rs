//! Starter manifests: what is required is there with an example, the rest is commented out.

use crate::case;
use crate::edit::plain_or_quoted;
use crate::phrasing;
use crate::registry::{Kind, pool, registry};
use crate::shape::{Field, Holds, Many, Shape};
use crate::template::{BESIDE, Row, fills, rows};
use std::fmt::Write;

/// Why there is no such starter.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StarterError {
    #[error("{kind} has no templates")]
    NoTemplates { kind: String },
    #[error("template must be {allowed}, not `{given}`")]
    UnknownTemplate { given: String, allowed: String },
}

/// A set of manifests that makes a whole cluster in a cloud; `None` where there is none for it.
pub fn starter_set(provider: &str, template: &str) -> Option<String> {
    let (_, manifests, _) =
        BESIDE.iter().find(|(package, manifests, _)| *package == provider && !manifests.is_empty())?;
    let mut text = manifests.replace("@template@", template);
    for kind in registry().kinds().filter(|kind| kind.provider == provider) {
        for row in rows(&kind.name).filter(|row| row.template == template) {
            text = text.replace(&format!("@{}@", row.path), &row.value);
        }
    }
    Some(text)
}

/// A commented manifest that is valid as it is.
pub fn starter(kind: &Kind, template: Option<&str>) -> Result<String, StarterError> {
    // A kind with a `template` field is filled by it; others have the values written out.
    let by_field = fills(kind);
    let row = |row: &'static Row| (row.template.as_str(), format!("spec.{}", row.path), row.value.clone(), by_field);
    let rows: Vec<(&str, String, String, bool)> = rows(&kind.name).map(row).collect();
    let mut names: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
    names.dedup();
    if let Some(template) = template {
        if names.is_empty() {
            return Err(StarterError::NoTemplates { kind: kind.name.clone() });
        }
        if !names.contains(&template) {
            return Err(StarterError::UnknownTemplate {
                given: template.to_owned(),
                allowed: phrasing::either(&names),
            });
        }
    }
    let values = rows.into_iter().filter(|(name, ..)| Some(*name) == template);
    let mut out = Starter {
        text: String::new(),
        template,
        values: values.map(|(_, path, value, by_template)| (path, value, by_template)).collect(),
    };
    out.comment(0, kind.doc());
    let _ = writeln!(out.text, "apiVersion: {}\nkind: {}\nmetadata:", kind.api_version, kind.name);
    if let Some(metadata) = pool().get_message_by_name("berth.core.v1.Metadata") {
        let metadata = Shape::of(&metadata);
        for field in metadata.fields.iter().filter(|field| ["name", "env", "labels"].contains(&field.json.as_str())) {
            out.field(metadata, field, "metadata", 2, false);
        }
    }
    out.text.push_str("spec:\n");
    out.message(kind.spec_shape(), "spec", 2, false);
    Ok(out.text)
}

struct Starter<'s> {
    text: String,
    template: Option<&'s str>,
    /// (path, value, whether the template field itself gives it).
    values: Vec<(String, String, bool)>,
}

impl Starter<'_> {
    fn comment(&mut self, indent: usize, text: &str) {
        if !text.is_empty() {
            let _ = writeln!(self.text, "{}# {text}", " ".repeat(indent));
        }
    }

    fn message(&mut self, shape: &Shape, path: &str, indent: usize, off: bool) {
        // What must be set comes first.
        let (on, rest): (Vec<&Field>, Vec<&Field>) =
            shape.fields.iter().partition(|field| self.is_on(shape, field, path));
        // An older name is read, and not taught.
        let taught = |field: &&Field| field.older_name_of.is_none();
        for field in on.into_iter().chain(rest).filter(taught) {
            self.field(shape, field, path, indent, off);
        }
    }

    /// Required, the first of those of which one is required, or chosen by a template.
    fn is_on(&self, shape: &Shape, field: &Field, path: &str) -> bool {
        let here = format!("{path}.{}", field.json);
        let by_template =
            self.values.iter().any(|(path, ..)| path.starts_with(&here) && !by_own_template(&self.values, &here));
        let chosen = field.name == "template" && self.template.is_some();
        let first_of = |members: &&Vec<usize>| members.first().is_some_and(|at| shape.fields[*at].name == field.name);
        let one_required = shape.required_oneofs.iter().any(|members| first_of(&members));
        // A spec must not be empty: where nothing is required, its first field stands for the others.
        let first =
            path == "spec" && shape.required_oneofs.is_empty() && !shape.fields.iter().any(|other| other.required);
        let first = first && shape.fields.first().is_some_and(|other| other.name == field.name);
        field.required || by_template || chosen || one_required || first
    }

    fn field(&mut self, shape: &Shape, field: &Field, path: &str, indent: usize, off: bool) {
        let here = format!("{path}.{}", field.json);
        let filled = by_own_template(&self.values, &here);
        let off = off || filled || !self.is_on(shape, field, path);
        let mut doc = field.doc();
        if filled {
            doc.push_str(" Filled by the template.");
        }
        self.comment(indent, doc.trim());
        let value = self.values.iter().find(|(path, ..)| *path == here).map(|(_, value, _)| value.clone());
        match (field.holds, field.many, field.shape()) {
            (Holds::Message, Many::One, Some(inner)) if inner.is_secret_value() => {
                let owner = path.rsplit('.').next().unwrap_or_default();
                let variable = match field.example.as_str() {
                    "" => format!("{}_{}", case::snake_case(owner), field.name).to_uppercase(),
                    name => name.to_owned(),
                };
                self.line(indent, off, &format!("{}:", field.json));
                self.line(indent + 2, off, &format!("fromEnv: {variable}"));
            }
            (Holds::Message, Many::One, Some(inner)) => {
                self.line(indent, off, &format!("{}:", field.json));
                self.message_lines(inner, &here, indent + 2, off);
            }
            (Holds::Message, _, Some(inner)) => {
                self.line(indent, off, &format!("{}:", field.json));
                self.entry(inner, indent + 2, off);
            }
            (Holds::Reference, ..) => {
                let (kind, _) = field.points_at.clone().unwrap_or_default();
                self.line(indent, off, &format!("{}:", field.json));
                self.line(indent + 2, off, "valueFrom:");
                self.line(indent + 4, off, &format!("kind: {kind}"));
                self.line(indent + 4, off, "name: shop");
            }
            (_, Many::List, _) => {
                let example = if field.example.is_empty() { "example" } else { &field.example };
                self.line(indent, off, &format!("{}: [{}]", field.json, plain_or_quoted(example)));
            }
            (_, Many::Map, _) => self.line(indent, off, &format!("{}: {{team: shop}}", field.json)),
            (holds, ..) => {
                let value = match (value, field.name.as_str(), self.template) {
                    (Some(value), ..) => value,
                    (None, "template", Some(template)) => template.to_owned(),
                    _ => example(field),
                };
                let value = if holds == Holds::Text { plain_or_quoted(&value) } else { value };
                self.line(indent, off, &format!("{}: {value}", field.json));
            }
        }
    }

    /// Fields of a nested message; one that is off as a whole has no comments of its own in the way.
    fn message_lines(&mut self, shape: &Shape, path: &str, indent: usize, off: bool) {
        let filled: Vec<&Field> = shape
            .fields
            .iter()
            .filter(|field| by_own_template(&self.values, &format!("{path}.{}", field.json)))
            .collect();
        if off || filled.len() == shape.fields.len() {
            for field in
                shape.fields.iter().filter(|field| field.required || filled.iter().any(|f| f.name == field.name))
            {
                self.field(shape, field, path, indent, true);
            }
            let none_required = !shape.fields.iter().any(|field| field.required);
            if let Some(first) = shape.fields.first().filter(|_| none_required) {
                self.field(shape, first, path, indent, true);
            }
            return;
        }
        self.message(shape, path, indent, off);
    }

    /// One entry of a list of messages, with what an entry needs.
    fn entry(&mut self, shape: &Shape, indent: usize, off: bool) {
        for (n, field) in shape.fields.iter().filter(|field| field.required).enumerate() {
            let value = example(field);
            let value = if field.holds == Holds::Text { plain_or_quoted(&value) } else { value };
            let bullet = if n == 0 { "- " } else { "  " };
            self.line(indent, off, &format!("{bullet}{}: {value}", field.json));
        }
    }

    fn line(&mut self, indent: usize, off: bool, text: &str) {
        let _ = match off {
            // The mark stands at the block's own column, so that removing it leaves the right indentation.
            true => writeln!(self.text, "{}# {text}", " ".repeat(indent)),
            false => writeln!(self.text, "{}{text}", " ".repeat(indent)),
        };
    }
}

/// Whether the template field gives everything at a path.
fn by_own_template(values: &[(String, String, bool)], here: &str) -> bool {
    let nested = format!("{here}.");
    values.iter().any(|(path, _, own)| *own && (path == here || path.starts_with(&nested)))
}

fn example(field: &Field) -> String {
    match (field.example.as_str(), field.holds) {
        ("", Holds::Bool) => "true".to_owned(),
        ("", Holds::Unsigned | Holds::Signed) => "1".to_owned(),
        ("", _) => match &field.rules.check {
            crate::validate::rules::Check::Text(rules) if !rules.one_of.is_empty() => rules.one_of[0].clone(),
            _ => field.human.clone(),
        },
        (example, _) => example.to_owned(),
    }
}
