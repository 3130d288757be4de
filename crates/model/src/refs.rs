//! References: found by descriptors, in any field that takes one.

use crate::case;
use crate::diagnostic::{Diagnostic, Span};
use crate::id::ResourceId;
use crate::manifest::Manifest;
use crate::pb::berth::core::v1::{Metadata, ValueFromRef};
use crate::phrasing;
use crate::registry::{Kind, registry};
use crate::shape::{Field, Holds, Many};
use crate::validate::Path;
use crate::visit;
use prost::Message;
use prost_reflect::{DynamicMessage, Value};

/// A reference to another resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ref {
    /// The field that holds it, below the spec: `network`.
    pub field: String,
    pub to: ResourceId,
    /// What is read there, with snake_case names: `status.outputs.network_id`.
    pub field_path: String,
    /// Where the name stands.
    pub span: Option<Span>,
}

impl Manifest {
    /// Every `valueFrom`, in the order of the spec's fields. Incomplete ones are left out: they were reported.
    pub fn refs(&self) -> Vec<Ref> {
        let mut out = Vec::new();
        each_reference(self, &mut |path, field, message| {
            out.extend(self.reference(path, field, message));
        });
        out
    }

    /// Text that names a resource where a reference could stand: `account: prod`. Such a resource need not be known;
    /// where it is, it comes first.
    pub fn named(&self) -> Vec<Ref> {
        let mut out = Vec::new();
        let shape = self.kind.spec_shape();
        each_reference(self, &mut |path, field, message| {
            let Some((kind, target)) = &field.points_at else { return };
            let text = message.get_field_by_name("value").and_then(|value| value.as_str().map(str::to_owned));
            if let (Some(name), "metadata.name") = (text.filter(|text| !text.is_empty()), target.as_str()) {
                out.push(self.by_name(path, kind, &name));
            }
        });
        for (newer, name) in self.by_older_names() {
            if let Some((to, _)) = shape.field(newer).and_then(|field| field.points_at.as_ref()) {
                out.push(self.by_name(newer, to, &name));
            }
        }
        out
    }

    /// Plain texts where a reference to an object could stand, with the fields that hold them below the spec: `network: n-1`.
    /// Accounts are named, and are no objects.
    pub fn literals(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        each_reference(self, &mut |path, field, message| {
            let text = message.get_field_by_name("value").and_then(|value| value.as_str().map(str::to_owned));
            if let Some(text) = text.filter(|text| !text.is_empty() && value_from(message).is_none())
                && field.points_at.as_ref().is_none_or(|(kind, _)| kind != "Account")
            {
                out.push((path.to_owned(), text));
            }
        });
        out
    }

    /// Name of the account that the manifest asks for, by any of its spellings.
    pub fn account(&self) -> Option<String> {
        let asked = self.refs().into_iter().chain(self.named()).find(|to| to.field == "account");
        asked.map(|to| to.to.name)
    }

    /// Texts in fields of before there were references, with the names of the fields that took their places.
    fn by_older_names(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.kind.spec_shape().fields.iter().filter_map(|field| {
            let newer = field.older_name_of.as_deref()?;
            let text = self.spec.get_field_by_name(&field.name)?.as_str()?.to_owned();
            Some((newer, text)).filter(|(_, text)| !text.is_empty())
        })
    }

    /// Whether the account is named by another tool's id of credentials, which need not be an Account of that name here.
    pub fn account_of_other_tool(&self) -> bool {
        self.of_other_tool() && self.by_older_names().any(|(newer, _)| newer == "account")
    }

    /// The spec, encoded, with every reference replaced by its value; one without a value yet stays, written out in full.
    pub fn resolve(&self, value_of: &dyn Fn(&Ref) -> Option<String>) -> Vec<u8> {
        let mut spec = self.spec.clone();
        visit::each_mut(self.kind.spec_shape(), &mut spec, &mut Path::default(), &mut |path, field, value| {
            let (Value::Message(message), Holds::Reference) = (value, field.holds) else { return true };
            if let Some(reference) = self.reference(path, field, message) {
                // Setting one field of a oneof clears the other.
                let (name, value) = match (value_of(&reference), whole(message, &reference)) {
                    (Some(value), _) => ("value", Value::String(value)),
                    (None, Some(from)) => ("value_from", Value::Message(from)),
                    (None, None) => return false,
                };
                let set = message.try_set_field_by_name(name, value);
                debug_assert!(set.is_ok(), "a field takes a text or a reference");
            }
            false
        });
        spec.encode_to_vec()
    }

    fn by_name(&self, field: &str, kind: &str, name: &str) -> Ref {
        let to = ResourceId { kind: kind.to_owned(), name: name.to_owned(), ..self.id.clone() };
        Ref { field: field.to_owned(), to, field_path: "metadata.name".to_owned(), span: None }
    }

    fn reference(&self, path: &str, field: &Field, message: &DynamicMessage) -> Option<Ref> {
        let from = value_from(message)?;
        let (usual_kind, usual_path) = field.points_at.clone().unwrap_or_default();
        let kind = if from.kind.is_empty() { usual_kind.clone() } else { from.kind };
        // The usual path belongs to the usual kind.
        let field_path = match from.field_path.is_empty() {
            true if kind == usual_kind => usual_path,
            _ => case::snake_case(&from.field_path),
        };
        if kind.is_empty() || from.name.is_empty() || field_path.is_empty() {
            return None;
        }
        let full = format!("spec.{path}");
        let span = self.ref_spans.iter().find(|(at, _)| *at == full).map(|(_, span)| *span);
        let env = if from.env.is_empty() { self.id.env.clone() } else { from.env };
        let to = ResourceId { kind, name: from.name, org: self.id.org.clone(), env };
        Some(Ref { field: path.to_owned(), to, field_path, span })
    }
}

fn value_from(message: &DynamicMessage) -> Option<ValueFromRef> {
    if !message.has_field_by_name("value_from") {
        return None;
    }
    message.get_field_by_name("value_from")?.as_message()?.transcode_to().ok()
}

/// The reference in a field with what is usually left out.
fn whole(message: &DynamicMessage, reference: &Ref) -> Option<DynamicMessage> {
    let from = ValueFromRef {
        kind: reference.to.kind.clone(),
        field_path: reference.field_path.clone(),
        ..value_from(message)?
    };
    let mut whole = message.get_field_by_name("value_from")?.as_message()?.clone();
    whole.transcode_from(&from).ok().map(|()| whole)
}

/// Calls for each value that may be a reference, with its path below the spec.
fn each_reference(manifest: &Manifest, see: &mut dyn FnMut(&str, &Field, &DynamicMessage)) {
    let mut path = Path::default();
    visit::each(manifest.kind.spec_shape(), &manifest.spec, &mut path, &mut |path, field, value| {
        match (value, field.holds) {
            (Value::Message(message), Holds::Reference) => see(path, field, message),
            _ => return true,
        }
        false
    });
}

/// Checks each reference by itself: that its kind exists and has what is asked of it.
pub(crate) fn check(manifest: &Manifest, out: &mut Vec<Diagnostic>) {
    each_reference(manifest, &mut |path, field, message| {
        let Some(from) = value_from(message) else { return };
        let (usual_kind, usual_path) = field.points_at.clone().unwrap_or_default();
        let at = |part: &str| format!("spec.{path}.valueFrom.{part}");
        let kind_name = if from.kind.is_empty() { &usual_kind } else { &from.kind };
        let Some(kind) = registry().kind(kind_name) else {
            out.push(unknown_kind(manifest, &at("kind"), kind_name));
            return;
        };
        let target =
            if from.field_path.is_empty() && *kind_name == usual_kind { &usual_path } else { &from.field_path };
        if target.is_empty() {
            let help = match kind.outputs_shape().fields.first() {
                Some(output) => format!("such as `fieldPath: status.outputs.{}`", output.name),
                None => "such as `fieldPath: metadata.name`".to_owned(),
            };
            let message = format!(
                "{} usually reads from kind {usual_kind}: say with `fieldPath` what to read of kind {}",
                field.human, kind.name
            );
            out.push(manifest.problem(&at("kind"), message).help(help));
            return;
        }
        if let Err((message, label)) = look_up(kind, target, field.secret) {
            let place = if from.field_path.is_empty() { at("name") } else { at("fieldPath") };
            out.push(manifest.problem(&place, message).label(label));
        }
    });
}

fn unknown_kind(manifest: &Manifest, path: &str, name: &str) -> Diagnostic {
    let near = registry().find(name).or_else(|| registry().nearest(name));
    let label = near.map(|kind| format!("did you mean `{}`?", kind.name));
    let mut problem = manifest.problem(path, format!("unknown kind {}", phrasing::shown(name)));
    if label.is_none() {
        let names: Vec<&str> = registry().kinds().map(|kind| kind.name.as_str()).collect();
        problem.help.push(format!("kinds are {}", phrasing::either(&names)));
    }
    problem.label(label)
}

/// Whether a kind has what a path names; else what to say and what was probably meant.
fn look_up(kind: &Kind, path: &str, secret_allowed: bool) -> Result<(), (String, Option<String>)> {
    let snake = case::snake_case(path);
    let nothing = |label| Err((format!("{} has no {}", kind.name, phrasing::shown(path)), label));
    let (shape, prefix, rest) = if let Some(rest) = snake.strip_prefix("status.outputs.") {
        (kind.outputs_shape(), "status.outputs", rest)
    } else if let Some(rest) = snake.strip_prefix("spec.") {
        (kind.spec_shape(), "spec", rest)
    } else if let Some(rest) = snake.strip_prefix("metadata.") {
        let known = ["name", "id", "org", "env", "group"];
        return match known.contains(&rest) || rest.starts_with("labels.") || rest.starts_with("annotations.") {
            true => Ok(()),
            false => nothing(phrasing::nearest(rest, known).map(|near| format!("did you mean `metadata.{near}`?"))),
        };
    } else {
        // The pattern of the field has complained already.
        return Ok(());
    };
    let mut shape = shape;
    let mut walked = prefix.to_owned();
    let mut names = rest.split('.').peekable();
    while let Some(name) = names.next() {
        let Some(field) = shape.field(name) else {
            let near = phrasing::nearest(name, shape.fields.iter().map(|field| field.name.as_str()));
            return nothing(near.map(|near| format!("did you mean `{walked}.{near}`?")));
        };
        if field.secret && !secret_allowed {
            return Err((
                format!(
                    "{} of {} is secret: it cannot be put where it would be shown",
                    phrasing::shown(path),
                    kind.name
                ),
                None,
            ));
        }
        walked = format!("{walked}.{name}");
        match (names.peek(), field.holds) {
            (None, _) if field.many != Many::One => {
                return Err((
                    format!("{} of {} is a list: a reference reads one value", phrasing::shown(path), kind.name),
                    None,
                ));
            }
            (None, Holds::Message) => {
                return Err((format!("{} of {} is not a single value", phrasing::shown(path), kind.name), None));
            }
            (None, _) => return Ok(()),
            (Some(_), Holds::Message) if field.many == Many::One => match field.shape() {
                Some(inner) => shape = inner,
                None => return nothing(None),
            },
            (Some(_), _) => return nothing(Some(format!("did you mean `{walked}`?"))),
        }
    }
    nothing(None)
}

/// What a reference reads from metadata.
pub fn metadata_value(metadata: &Metadata, path: &str) -> Option<String> {
    let name = path.strip_prefix("metadata.")?;
    let text = match name {
        "name" => &metadata.name,
        "id" => &metadata.id,
        "org" => &metadata.org,
        "env" => &metadata.env,
        "group" => &metadata.group,
        _ => match name.split_once('.')? {
            ("labels", key) => metadata.labels.get(key)?,
            ("annotations", key) => metadata.annotations.get(key)?,
            _ => return None,
        },
    };
    Some(text.clone())
}
