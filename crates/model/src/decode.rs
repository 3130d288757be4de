//! Trees into manifests. Every problem of a document is collected: nothing stops at the first one.

use crate::case;
use crate::diagnostic::{Diagnostic, Span};
use crate::id::ResourceId;
use crate::manifest::{Manifest, Source};
use crate::pb::berth::core::v1::Metadata;
use crate::phrasing;
use crate::registry::{Kind, pool, registry};
use crate::shape::{Field, Holds, Many, Shape};
use crate::validate::{Checker, Known, Path, singular};
use crate::yaml::{Entry, Node, Plain, Style, Value as Yaml, resolve, whole};
use crate::{metadata, template};
use prost_reflect::{DynamicMessage, MapKey, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Names at the top of a manifest, with their snake_case spelling.
const TOP: [(&str, &str); 5] =
    [("apiVersion", "api_version"), ("kind", "kind"), ("metadata", "metadata"), ("spec", "spec"), ("status", "status")];

/// Where a document comes from.
pub(crate) struct Origin<'o> {
    pub file: &'o Arc<str>,
    pub text: &'o Arc<str>,
    pub index: usize,
}

/// Decodes and checks one document; what is wrong is reported in the order of the file.
pub(crate) fn document(origin: &Origin<'_>, root: &Node<'_>, out: &mut Vec<Diagnostic>) -> Option<Manifest> {
    let found = out.len();
    let manifest = decode(origin, root, out);
    let kind = root.entry("kind", "kind").and_then(|entry| entry.node.text()).and_then(|name| registry().kind(name));
    crate::secrets::hide_lines(kind, origin.text, root, &mut out[found..]);
    out[found..].sort_by_key(|problem| problem.span.map(|span| span.start));
    manifest
}

/// A manifest comes back when it has a kind and a name, even when something is wrong
/// with the rest, so that other manifests' references to it are not reported as missing too.
fn decode(origin: &Origin<'_>, root: &Node<'_>, out: &mut Vec<Diagnostic>) -> Option<Manifest> {
    let found = out.len();
    let mut decoder = Decoder::new(origin.file, out);
    if !matches!(root.value, Yaml::Map { .. }) {
        decoder.report("a manifest must be a mapping with `apiVersion`, `kind`, `metadata` and `spec`", root.pointer());
        return None;
    }
    decoder.twice(root, TOP.into_iter());
    for entry in root.entries() {
        if !TOP.iter().any(|(json, snake)| entry.key == *json || entry.key == *snake) {
            decoder.unknown_field(root, entry, TOP.into_iter().map(|(json, _)| json), false);
        }
    }
    let kind = decoder.kind(root);
    let api_version = decoder.api_version(root, kind);
    let foreign = kind.zip(api_version.as_deref()).is_some_and(|(kind, version)| kind.is_alias(version));
    decoder.foreign = foreign;
    let metadata_shape = metadata_shape();
    let metadata = decoder.part(root, "metadata", metadata_shape);
    let spec = kind.and_then(|kind| decoder.part(root, "spec", Some(kind.spec_shape())));
    let mistyped = |name: &str| decoder.known.mistyped.contains(&(root.span.start, name.to_owned()));
    if kind.is_some() && spec.is_none() && root.entry("spec", "spec").is_none() && !mistyped("spec") {
        decoder.missing("spec", root, "spec is required".to_owned());
    }

    let Decoder { known, ref_spans, out, .. } = decoder;
    let mut checker =
        Checker { file: origin.file, text: origin.text, path: Path::default(), known: &known, lenient: false, out };
    if let (Some((message, entry)), Some(shape)) = (&metadata, metadata_shape) {
        checker.path.push("metadata");
        checker.message(shape, message, Some(&entry.node), entry.key_span);
        checker.path.0.clear();
        metadata::check(origin.file, entry, (kind, foreign), shape, checker.out);
    }
    let (kind, (mut spec, entry)) = (kind?, spec?);
    let filled = template::fill(kind, &mut spec, &entry.node);
    checker.path.push("spec");
    checker.lenient = foreign;
    checker.message(kind.spec_shape(), &spec, Some(&entry.node), entry.key_span);

    let metadata: Metadata = metadata?.0.transcode_to().ok()?;
    if metadata.name.is_empty() {
        return None;
    }
    let name_span = root
        .entry("metadata", "metadata")
        .and_then(|entry| entry.node.entry("name", "name"))
        .map_or(root.pointer(), |entry| entry.node.span);
    let mut manifest = Manifest {
        id: ResourceId {
            kind: kind.name.clone(),
            name: metadata.name.clone(),
            org: metadata.org.clone(),
            env: metadata.env.clone(),
        },
        api_version: api_version.unwrap_or_else(|| kind.api_version.clone()),
        kind,
        metadata,
        spec,
        filled,
        source: Some(Source {
            file: origin.file.clone(),
            text: origin.text.clone(),
            document: origin.index,
            span: Span { end: root.span.end, ..root.pointer() },
            name: name_span,
        }),
        faulty: false,
        ref_spans,
    };
    let before = out.len();
    crate::refs::check(&manifest, out);
    out[before..].iter_mut().for_each(|problem| problem.elsewhere = foreign);
    manifest.faulty = out.len() > found;
    Some(manifest)
}

fn metadata_shape() -> Option<&'static Shape> {
    static SHAPE: std::sync::OnceLock<Option<&'static Shape>> = std::sync::OnceLock::new();
    *SHAPE.get_or_init(|| pool().get_message_by_name("berth.core.v1.Metadata").map(|desc| Shape::of(&desc)))
}

/// Metadata as its generated type, without rules and positions.
pub(crate) fn metadata_from(value: &serde_json::Value) -> Result<Metadata, String> {
    let shape = metadata_shape().ok_or("metadata is not described")?;
    let message = crate::json::message_from(shape, value, "metadata")?;
    message.transcode_to().map_err(|error| error.to_string())
}

/// Metadata as JSON.
pub(crate) fn metadata_json(metadata: &Metadata) -> serde_json::Value {
    let Some(shape) = metadata_shape() else { return serde_json::Value::Null };
    let mut message = DynamicMessage::new(shape.desc.clone());
    // Both sides are made from the same proto.
    match message.transcode_from(metadata) {
        Ok(()) => crate::json::message_json(shape, &message),
        Err(_) => serde_json::Value::Null,
    }
}

struct Decoder<'c> {
    file: &'c str,
    path: Path,
    known: Known,
    ref_spans: Vec<(String, Span)>,
    /// The manifest was written for another tool.
    foreign: bool,
    out: &'c mut Vec<Diagnostic>,
}

impl<'c> Decoder<'c> {
    fn new(file: &'c str, out: &'c mut Vec<Diagnostic>) -> Self {
        Self { file, path: Path::default(), known: Known::default(), ref_spans: Vec::new(), foreign: false, out }
    }

    fn report(&mut self, message: impl Into<String>, at: Span) -> &mut Diagnostic {
        let index = self.out.len();
        self.out.push(Diagnostic::error(message).file(self.file).at(at).path(self.path.0.clone()));
        &mut self.out[index]
    }

    fn missing(&mut self, name: &str, root: &Node<'_>, message: String) {
        let before = self.path.push(name);
        self.report(message, root.pointer());
        self.path.pop(before);
    }

    fn kind(&mut self, root: &Node<'_>) -> Option<&'static Kind> {
        let names: Vec<&str> = registry().kinds().map(|kind| kind.name.as_str()).collect();
        let entry = match root.entry("kind", "kind") {
            Some(entry) if !entry.node.is_null() => entry,
            other => {
                let before = self.path.push("kind");
                let at = other.map_or(root.pointer(), |entry| entry.key_span);
                self.report(format!("kind is required: {}", phrasing::either(&names)), at);
                self.path.pop(before);
                return None;
            }
        };
        let before = self.path.push("kind");
        let known = entry.node.text().and_then(|text| registry().find(text));
        match (entry.node.text(), known) {
            (Some(text), Some(kind)) if kind.name == text => {}
            (Some(text), Some(kind)) => {
                let message = format!("kind must be `{}`, not {}", kind.name, phrasing::shown(text));
                self.report(message, entry.node.span).label = Some(format!("write `{}`", kind.name));
            }
            (Some(text), None) => {
                let near = phrasing::did_you_mean(text, names.iter().copied());
                let problem = self.report(format!("unknown kind {}", phrasing::shown(text)), entry.node.span);
                if near.is_none() {
                    problem.help.push(format!("kinds are {}", phrasing::either(&names)));
                }
                problem.label = near;
            }
            (None, _) => {
                self.report("kind must be text, such as `CivoVpc`", entry.pointer());
            }
        }
        self.path.pop(before);
        known
    }

    fn api_version(&mut self, root: &Node<'_>, kind: Option<&'static Kind>) -> Option<String> {
        let before = self.path.push("apiVersion");
        let entry = root.entry("apiVersion", "api_version").filter(|entry| !entry.node.is_null());
        let version = match (entry, kind) {
            (None, Some(kind)) => {
                self.report(
                    format!("apiVersion is required: `{}` for {}", kind.api_version, kind.name),
                    root.pointer(),
                );
                None
            }
            (None, None) => {
                self.report("apiVersion is required", root.pointer());
                None
            }
            (Some(entry), kind) => {
                let text = entry.node.text();
                match (text, kind) {
                    (None, _) => {
                        self.report("apiVersion must be text, such as `civo.berth.dev/v1`", entry.pointer());
                    }
                    (Some(text), Some(kind)) if !kind.accepts(text) => {
                        let versions: Vec<&str> = kind.api_versions().collect();
                        let near = phrasing::did_you_mean(text, versions.iter().copied());
                        let message = format!(
                            "apiVersion of {} must be {}, not {}",
                            kind.name,
                            phrasing::either(&versions),
                            phrasing::shown(text)
                        );
                        self.report(message, entry.node.span).label = near;
                    }
                    _ => {}
                }
                text.map(str::to_owned)
            }
        };
        self.path.pop(before);
        version
    }

    /// Decodes `metadata` or `spec`.
    fn part<'n, 'a>(
        &mut self,
        root: &'n Node<'a>,
        name: &str,
        shape: Option<&'static Shape>,
    ) -> Option<(DynamicMessage, &'n Entry<'a>)> {
        let shape = shape?;
        let Some(entry) = root.entry(name, name) else {
            if name == "metadata" && !self.known.mistyped.contains(&(root.span.start, name.to_owned())) {
                self.missing("metadata", root, "metadata is required, with at least a `name`".to_owned());
            }
            return None;
        };
        let before = self.path.push(name);
        let message = match &entry.node.value {
            Yaml::Map { .. } => Some(self.message(shape, &entry.node)),
            Yaml::Null => {
                self.report(format!("{name} must not be empty"), entry.key_span);
                None
            }
            _ => {
                self.report(format!("{name} must be a mapping"), entry.pointer());
                None
            }
        };
        self.path.pop(before);
        message.map(|message| (message, entry))
    }

    /// Reports a name that is given in both spellings.
    fn twice<'s>(&mut self, node: &Node<'_>, names: impl Iterator<Item = (&'s str, &'s str)>) {
        for (json, snake) in names.filter(|(json, snake)| json != snake) {
            let mut both = node.entries().iter().filter(|entry| entry.key == json || entry.key == snake);
            if let (Some(first), Some(second)) = (both.next(), both.next()) {
                let before = self.path.push(json);
                let message = format!("`{}` and `{}` are the same field: give one of them", first.key, second.key);
                self.report(message, second.key_span);
                self.known.bad.insert(first.key_span.start);
                self.path.pop(before);
            }
        }
    }

    fn unknown_field<'s>(
        &mut self,
        node: &Node<'_>,
        entry: &Entry<'_>,
        names: impl Iterator<Item = &'s str>,
        secret: bool,
    ) {
        let names: Vec<&str> = names.collect();
        let near = phrasing::nearest(&case::camel_case(&entry.key), names.iter().copied());
        if let Some(near) = near.filter(|near| node.entry(near, &case::snake_case(near)).is_none()) {
            self.known.mistyped.insert((node.span.start, near.to_owned()));
        }
        let near = near.map(|near| format!("did you mean `{near}`?"));
        let before = self.path.push_key(&entry.key);
        let problem = self.report(format!("unknown field {}", phrasing::shown(&entry.key)), entry.key_span);
        problem.secret = secret;
        if near.is_none() {
            problem.help.push(format!("fields here are {}", names.join(", ")));
        }
        problem.label = near;
        self.path.pop(before);
    }

    fn message(&mut self, shape: &'static Shape, node: &Node<'_>) -> DynamicMessage {
        let mut message = DynamicMessage::new(shape.desc.clone());
        let secret = shape.is_secret_value();
        self.twice(node, shape.fields.iter().map(|field| (field.json.as_str(), field.name.as_str())));
        for entry in node.entries() {
            let Some(field) = shape.field(&entry.key) else {
                self.unknown_field(node, entry, shape.fields.iter().map(|field| field.json.as_str()), secret);
                continue;
            };
            // An empty value means that the field is not given.
            if entry.node.is_null() {
                continue;
            }
            let before = self.path.push(&field.json);
            match self.field(field, entry) {
                Some(value) => message.set_field(&field.desc, value),
                None => {
                    self.known.bad.insert(entry.key_span.start);
                }
            }
            self.path.pop(before);
        }
        for members in shape.oneofs.iter().chain(&shape.required_oneofs) {
            let mut given: Vec<&Entry<'_>> = members
                .iter()
                .filter_map(|index| node.entry(&shape.fields[*index].json, &shape.fields[*index].name))
                .filter(|entry| !entry.node.is_null())
                .collect();
            given.sort_by_key(|entry| entry.key_span.start);
            if let [first, second, ..] = given.as_slice() {
                let message = format!("give `{}` or `{}`, not both", first.key, second.key);
                self.report(message, second.key_span).secret = secret;
                self.known.bad.extend(given.iter().map(|entry| entry.key_span.start));
            }
        }
        message
    }

    fn field(&mut self, field: &'static Field, entry: &Entry<'_>) -> Option<Value> {
        match field.many {
            Many::One => self.value(field, &field.human, &entry.node, entry.pointer()),
            Many::List => self.list(field, entry),
            Many::Map => self.map(field, entry),
        }
    }

    fn list(&mut self, field: &'static Field, entry: &Entry<'_>) -> Option<Value> {
        let Yaml::Seq { items, .. } = &entry.node.value else {
            let example = match field.holds {
                Holds::Text if !field.example.is_empty() => format!("[{}]", field.example),
                Holds::Text => "[a, b]".to_owned(),
                _ => "entries that begin with `- `".to_owned(),
            };
            self.report(format!("{} must be a list: {example}", field.human), entry.pointer());
            return None;
        };
        let one = singular(&field.human);
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let before = self.path.push_index(index);
            let value = match item.value {
                Yaml::Null => {
                    self.report(format!("{one} must not be empty"), item.span);
                    None
                }
                _ => self.value(field, &one, item, item.pointer()),
            };
            // A place holder keeps positions in the list and in the file in step.
            values.push(value.unwrap_or_else(|| {
                self.known.bad.insert(item.span.start);
                default_of(field)
            }));
            self.path.pop(before);
        }
        Some(Value::List(values))
    }

    fn map(&mut self, field: &'static Field, entry: &Entry<'_>) -> Option<Value> {
        let Yaml::Map { entries, .. } = &entry.node.value else {
            self.report(format!("{} must be a mapping of names to values", field.human), entry.pointer());
            return None;
        };
        let one = singular(&field.human);
        let mut values = HashMap::new();
        for entry in entries {
            let before = self.path.push_key(&entry.key);
            let human = format!("value of {one} {}", phrasing::shown(&entry.key));
            let value = match entry.node.value {
                Yaml::Null => {
                    self.report(format!("{human} is missing: write \"\" for an empty one"), entry.key_span);
                    None
                }
                _ => self.value(field, &human, &entry.node, entry.pointer()),
            };
            if let Some(value) = value {
                values.insert(MapKey::String(entry.key.to_string()), value);
            }
            self.path.pop(before);
        }
        Some(Value::Map(values))
    }

    /// One value: of a field, of an entry in a list, or of a key in a map.
    fn value(&mut self, field: &'static Field, human: &str, node: &Node<'_>, at: Span) -> Option<Value> {
        match (field.holds, &node.value) {
            (Holds::Reference, Yaml::Map { .. }) => {
                self.reference_place(node);
                let message = self.message(field.shape()?, node);
                Some(Value::Message(message))
            }
            (Holds::Message, Yaml::Map { .. }) => Some(Value::Message(self.message(field.shape()?, node))),
            (Holds::Message, _) => {
                let shape = field.shape()?;
                let secret = shape.is_secret_value();
                let text = match secret {
                    true => format!(
                        "{human} must be a mapping: {{value: …}}, {{fromEnv: NAME}}, {{fromFile: PATH}} or {{workerLocal: true}}"
                    ),
                    false => {
                        let names: Vec<String> =
                            shape.fields.iter().take(4).map(|field| format!("`{}`", field.json)).collect();
                        format!("{human} must be a mapping with fields such as {}", phrasing::all(&names))
                    }
                };
                self.report(text, at).secret = secret;
                None
            }
            (Holds::Reference, Yaml::Scalar { text, style }) => {
                let text = self.text(field, human, text, *style, at)?;
                let mut message = DynamicMessage::new(field.shape()?.desc.clone());
                message.try_set_field_by_name("value", text).ok()?;
                Some(Value::Message(message))
            }
            (holds, Yaml::Scalar { text, style }) => match holds {
                Holds::Bool => self.boolean(field, human, text, *style, at),
                Holds::Unsigned | Holds::Signed => self.number(field, human, text, *style, at),
                _ => self.text(field, human, text, *style, at),
            },
            (holds, _) => {
                let wanted = match holds {
                    Holds::Reference => "must be text, {value: …} or {valueFrom: {name: …}}",
                    Holds::Bool => "must be true or false",
                    Holds::Unsigned | Holds::Signed => "must be a number",
                    _ => "must be text",
                };
                let secret = field.secret;
                self.report(format!("{human} {wanted}"), at).secret = secret;
                None
            }
        }
    }

    /// Remembers where the name in a reference stands, for messages about what it points at.
    fn reference_place(&mut self, node: &Node<'_>) {
        let Some(from) = node.entry("valueFrom", "value_from") else { return };
        let at = from.node.entry("name", "name").map_or(from.key_span, Entry::pointer);
        self.ref_spans.push((self.path.0.clone(), at));
    }

    fn text(&mut self, field: &Field, human: &str, text: &str, style: Style, at: Span) -> Option<Value> {
        if style != Style::Plain {
            return Some(Value::String(field.kept(text).to_owned()));
        }
        let is = match resolve(text) {
            Plain::Int(number) if self.foreign && field.numbered(number).is_some() => {
                return field.numbered(number).map(|text| Value::String(text.to_owned()));
            }
            Plain::Text => return Some(Value::String(field.kept(text).to_owned())),
            Plain::Bool(_) => "a truth value",
            _ => "a number",
        };
        let message = match field.secret {
            true => format!("{human} must be text, and without quotes this is {is}: put it in quotes"),
            false => format!("{human} must be text, and {text} without quotes is {is}: write \"{text}\""),
        };
        self.report(message, at).secret = field.secret;
        None
    }

    fn boolean(&mut self, field: &Field, human: &str, text: &str, style: Style, at: Span) -> Option<Value> {
        match (style, resolve(text)) {
            (Style::Plain, Plain::Bool(value)) => return Some(Value::Bool(value)),
            (Style::Quoted(_), Plain::Bool(value)) => {
                self.report(format!("{human} must be true or false without quotes: write {value}"), at);
            }
            _ => {
                let meant = match text.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "y" => Some(true),
                    "no" | "off" | "n" => Some(false),
                    _ => None,
                };
                // YAML 1.1, which other tools read, has more words for the two.
                if let Some(value) = meant.filter(|_| self.foreign && style == Style::Plain) {
                    return Some(Value::Bool(value));
                }
                let meant = meant.map(|value| format!("write {value}"));
                let message = format!("{human} must be true or false, not {}", phrasing::shown(text));
                let problem = self.report(message, at);
                problem.label = meant;
                problem.secret = field.secret;
            }
        }
        None
    }

    fn number(&mut self, field: &Field, human: &str, text: &str, style: Style, at: Span) -> Option<Value> {
        let number = match (style, resolve(text)) {
            // Protobuf's JSON takes numbers as text, too, and so do the tools that manifests of other groups were written for.
            (Style::Plain | Style::Quoted(_), Plain::Int(number)) => number,
            (Style::Plain | Style::Quoted(_), Plain::Number) if whole(text).is_some() => whole(text)?,
            (Style::Plain, Plain::Number) => {
                self.report(format!("{human} must be a whole number, not {}", phrasing::shown(text)), at);
                return None;
            }
            _ => {
                self.report(format!("{human} must be a number, not {}", phrasing::shown(text)), at);
                return None;
            }
        };
        let value = match field.holds {
            Holds::Signed => i32::try_from(number).map(Value::I32).ok(),
            _ => u32::try_from(number).map(Value::U32).ok(),
        };
        if value.is_none() {
            // What the rules say about the number is better than what the type says.
            let subject = crate::validate::rules::Subject { human, of: "", hint: "", secret: false };
            let message = match field.rules.check.number(&subject, number) {
                Some(violation) => violation.message,
                None if number < 0 => format!("{human} must not be negative"),
                None => format!("{human} is too large"),
            };
            self.report(message, at);
        }
        value
    }
}

fn default_of(field: &Field) -> Value {
    match field.shape() {
        Some(shape) => Value::Message(DynamicMessage::new(shape.desc.clone())),
        None => match field.holds {
            Holds::Bool => Value::Bool(false),
            Holds::Unsigned => Value::U32(0),
            Holds::Signed => Value::I32(0),
            _ => Value::String(String::new()),
        },
    }
}
