//! A manifest: what the user wrote, decoded and checked, with its place.

use crate::decode::{self, Origin};
use crate::diagnostic::{Diagnostic, Severity, Span};
use crate::id::ResourceId;
use crate::json;
use crate::path::{Found, Step, step, steps};
use crate::pb::berth::core::v1::Metadata;
use crate::registry::{Kind, registry};
use crate::shape::{Holds, Shape};
use crate::template;
use crate::yaml::{Documents, Entry, Node};
use prost_reflect::{DynamicMessage, Value};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::fmt;
use std::sync::Arc;

#[derive(Clone)]
pub struct Manifest {
    pub id: ResourceId,
    /// As written, so that an alias stays when the manifest is printed back.
    pub api_version: String,
    pub kind: &'static Kind,
    pub metadata: Metadata,
    pub spec: DynamicMessage,
    /// What a template filled in.
    pub filled: Vec<Filled>,
    pub source: Option<Source>,
    /// Something is wrong with it: it may be talked about, and must not be planned.
    pub faulty: bool,
    /// Where the names in references stand, by path.
    pub(crate) ref_spans: Vec<(String, Span)>,
}

/// A value that a template gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filled {
    /// Such as `spec.defaultNodePool.size`.
    pub path: String,
    pub value: String,
}

/// Where a manifest was read.
#[derive(Clone)]
pub struct Source {
    pub file: Arc<str>,
    /// The whole file, shared by all of its manifests.
    pub text: Arc<str>,
    /// Number of the document in the file, from 0.
    pub document: usize,
    /// The document.
    pub span: Span,
    /// The resource's name in it.
    pub name: Span,
}

/// Secrets are in the spec, so that only the identity is shown.
impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Manifest({}, env {:?}, {})", self.id, self.id.env, self.api_version)
    }
}

impl PartialEq for Manifest {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.api_version == other.api_version
            && self.metadata == other.metadata
            && self.spec == other.spec
    }
}

/// Why stored JSON is not a manifest.
#[derive(Debug, thiserror::Error)]
pub enum FromJsonError {
    #[error("a manifest without {0}")]
    Missing(&'static str),
    #[error("unknown kind `{0}`")]
    UnknownKind(String),
    #[error("{0}")]
    Field(String),
}

/// Reads all manifests of a file and reports all that is wrong with them. A manifest that has a kind and a name comes
/// back even when it is `faulty`: plan nothing while any diagnostic is an error.
pub fn parse(file: &str, bytes: &[u8]) -> (Vec<Manifest>, Vec<Diagnostic>) {
    let (mut manifests, mut problems) = (Vec::new(), Vec::new());
    let documents = match Documents::new(file, bytes) {
        Ok(documents) => documents,
        Err(problem) => return (manifests, vec![*problem]),
    };
    let name: Arc<str> = file.into();
    let text: Arc<str> = String::from_utf8_lossy(bytes).into();
    let mut empty = true;
    for mut document in documents {
        let broken = !document.problems.is_empty();
        crate::secrets::hide_unread(&text, &mut document.problems);
        problems.append(&mut document.problems);
        empty &= !broken;
        let Some(root) = document.root.filter(|root| !root.is_null()) else { continue };
        empty = false;
        let origin = Origin { file: &name, text: &text, index: document.index };
        if let Some(mut manifest) = decode::document(&origin, &root, &mut problems) {
            manifest.faulty |= broken;
            manifests.push(manifest);
        }
    }
    if empty {
        let mut problem = Diagnostic::error("the file holds no manifest").file(file);
        problem.severity = Severity::Warning;
        problems.push(problem);
    }
    (manifests, problems)
}

impl Manifest {
    /// Whether it was written for another tool.
    pub fn of_other_tool(&self) -> bool {
        self.kind.is_alias(&self.api_version)
    }

    /// With camelCase names and the API version as written. Secrets are in the clear: seal them before storing.
    pub fn to_json(&self) -> Json {
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind.name,
            "metadata": decode::metadata_json(&self.metadata),
            "spec": json::message_json(self.kind.spec_shape(), &self.spec),
        })
    }

    /// Reads back what `to_json` gave. Rules are not checked again.
    pub fn from_json(json: &Json) -> Result<Self, FromJsonError> {
        let text = |name: &'static str| json.get(name).and_then(Json::as_str).ok_or(FromJsonError::Missing(name));
        let kind_name = text("kind")?;
        let kind = registry().kind(kind_name).ok_or_else(|| FromJsonError::UnknownKind(kind_name.to_owned()))?;
        let part = |name: &'static str| json.get(name).ok_or(FromJsonError::Missing(name));
        let metadata = decode::metadata_from(part("metadata")?).map_err(FromJsonError::Field)?;
        if metadata.name.is_empty() {
            return Err(FromJsonError::Missing("metadata.name"));
        }
        let spec = json::message_from(kind.spec_shape(), part("spec")?, "spec").map_err(FromJsonError::Field)?;
        Ok(Self {
            id: ResourceId {
                kind: kind.name.clone(),
                name: metadata.name.clone(),
                org: metadata.org.clone(),
                env: metadata.env.clone(),
            },
            api_version: text("apiVersion")?.to_owned(),
            kind,
            metadata,
            filled: template::recall(kind, &spec),
            spec,
            source: None,
            faulty: false,
            ref_spans: Vec::new(),
        })
    }

    /// The spec as JSON with camelCase names; secrets in the clear.
    pub fn spec_json(&self) -> Json {
        json::message_json(self.kind.spec_shape(), &self.spec)
    }

    /// `file:line` of the manifest, or nothing when it was not read from a file.
    pub fn place(&self) -> Option<String> {
        self.source.as_ref().map(|source| format!("{}:{}", source.file, source.span.line))
    }

    /// The text of a field, found by a path such as `spec.region`, `metadata.name` or
    /// `spec.additionalNodePools[gpu].size`. `None` when it is not set, not a scalar, or a reference.
    pub fn field_value(&self, path: &str) -> Option<String> {
        let steps = steps(path)?;
        match steps.split_first()? {
            (Step::Name(top), rest) if top == "spec" => scalar_at(self.kind.spec_shape(), &self.spec, rest),
            (Step::Name(top), rest) if top == "metadata" => scalar_in(&decode::metadata_json(&self.metadata), rest),
            (Step::Name(top), []) if top == "kind" => Some(self.kind.name.clone()),
            (Step::Name(top), []) if top == "apiVersion" || top == "api_version" => Some(self.api_version.clone()),
            _ => None,
        }
    }

    /// Where a field stands in the file, for messages: its value, or its key where the value is larger.
    pub fn span_of(&self, path: &str) -> Option<Span> {
        let source = self.source.as_ref()?;
        let steps = steps(path)?;
        source.with_root(|root| {
            let mut node = root;
            let mut at = None;
            for next in &steps {
                let found = step(node, next)?;
                at = Some(match &found {
                    Found::Entry(entry) => entry.pointer(),
                    Found::Item(item) => item.pointer(),
                });
                node = found.node();
            }
            at
        })?
    }

    /// A diagnostic about a field of this manifest, at its place.
    pub fn problem(&self, path: &str, message: impl Into<String>) -> Diagnostic {
        let mut problem = Diagnostic::error(message).path(path);
        if let Some(source) = &self.source {
            problem.file = source.file.to_string();
            problem.span = self.span_of(path).or(Some(source.name));
        }
        problem
    }
}

impl Source {
    /// Reads the document again. Only messages need it, so that no tree is kept for the many manifests without any.
    fn with_root<T>(&self, look: impl FnOnce(&Node<'_>) -> T) -> Option<T> {
        let start = self.text.get(..self.span.start)?.rfind('\n').map_or(0, |at| at + 1);
        let slice = self.text.get(start..self.span.end)?;
        let mut root = Documents::new(&self.file, slice.as_bytes()).ok()?.next()?.root?;
        shift(&mut root, start, self.span.line.saturating_sub(1));
        Some(look(&root))
    }
}

/// Moves the places of a tree that was read from the middle of a file.
fn shift(node: &mut Node<'_>, bytes: usize, lines: u32) {
    let moved = |span: &mut Span| {
        span.start += bytes;
        span.end += bytes;
        span.line += lines;
    };
    moved(&mut node.span);
    match &mut node.value {
        crate::yaml::Value::Seq { items, .. } => items.iter_mut().for_each(|item| shift(item, bytes, lines)),
        crate::yaml::Value::Map { entries, .. } => {
            for Entry { key_span, node, .. } in entries {
                moved(key_span);
                shift(node, bytes, lines);
            }
        }
        _ => {}
    }
}

fn scalar_at(shape: &Shape, message: &DynamicMessage, path: &[Step]) -> Option<String> {
    let (Step::Name(name), rest) = path.split_first()? else { return None };
    let field = shape.field(name)?;
    if !message.has_field(&field.desc) {
        return None;
    }
    let value = message.get_field(&field.desc);
    match (value.as_ref(), rest) {
        (Value::Message(inner), []) if field.holds == Holds::Reference => {
            Some(inner.get_field_by_name("value")?.as_str()?.to_owned()).filter(|text| !text.is_empty())
        }
        (Value::Message(inner), rest) => scalar_at(field.shape()?, inner, rest),
        (Value::List(items), [Step::Pick(pick), rest @ ..]) => {
            let named = |item: &&Value| {
                item.as_message().and_then(|item| item.get_field_by_name("name")?.as_str().map(|name| name == pick))
            };
            let item = items.iter().find(|item| named(item) == Some(true));
            let item = item.or_else(|| items.get(pick.parse::<usize>().ok()?))?;
            match (item, rest) {
                (Value::Message(inner), rest) => scalar_at(field.shape()?, inner, rest),
                (value, []) => scalar_text(value),
                _ => None,
            }
        }
        (Value::Map(entries), [Step::Pick(key) | Step::Name(key)]) => {
            scalar_text(entries.get(&prost_reflect::MapKey::String(key.clone()))?)
        }
        (value, []) => scalar_text(value),
        _ => None,
    }
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::U32(n) => Some(n.to_string()),
        Value::I32(n) => Some(n.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

fn scalar_in(json: &Json, path: &[Step]) -> Option<String> {
    let mut at = json;
    for step in path {
        let (Step::Name(name) | Step::Pick(name)) = step;
        at = at
            .get(name)
            .or_else(|| at.get(crate::case::camel_case(name)))
            .or_else(|| at.get(name.parse::<usize>().ok()?))?;
    }
    match at {
        Json::String(text) => Some(text.clone()),
        Json::Bool(_) | Json::Number(_) => Some(at.to_string()),
        _ => None,
    }
}
