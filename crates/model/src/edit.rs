//! Changes one value in a manifest's text and leaves everything else as it is: comments, order, quotes.

use crate::case;
use crate::path::{Found, Step, step, steps};
use crate::yaml::{Documents, Entry, Node, Plain, Quotes, Style, Value, resolve};
use serde_json::Value as Json;

/// Why a value was not written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text does not parse (any more).
    #[error("the file cannot be read as YAML: {0}")]
    Unreadable(String),
    #[error("the file has no document number {}", .0 + 1)]
    NoDocument(usize),
    #[error("`{0}` is not a path of a field")]
    NotAPath(String),
    #[error("the list has no entry for `{0}`")]
    NoEntry(String),
    #[error("`{0}` is a reference: change what it points at")]
    Reference(String),
    #[error("`{0}` is not a single value in the file")]
    NotScalar(String),
    #[error("only text, numbers and truth values can be written")]
    NotWritable,
    /// The result was read back and did not hold the value: the text is left alone.
    #[error("`{0}` cannot be changed safely; change it by hand")]
    Unsafe(String),
}

/// Writes a scalar at a path of a document. The path's names are taken in either spelling; entries of lists are found
/// by their `name`. A field that is absent is added beside its siblings.
pub fn set_scalar(text: &str, document: usize, path: &str, value: &Json) -> Result<String, EditError> {
    if !matches!(value, Json::String(_) | Json::Number(_) | Json::Bool(_)) {
        return Err(EditError::NotWritable);
    }
    let wanted = steps(path).ok_or_else(|| EditError::NotAPath(path.to_owned()))?;
    let root = root(text, document)?;
    let edit = Edit { text, path, value };
    let (at, end, new) = edit.find(&root, &wanted)?;
    let mut out = String::with_capacity(text.len() + new.len());
    out.push_str(text.get(..at).ok_or_else(|| EditError::Unsafe(path.to_owned()))?);
    out.push_str(&new);
    out.push_str(text.get(end..).ok_or_else(|| EditError::Unsafe(path.to_owned()))?);
    edit.verify(&out, document, &wanted)?;
    Ok(out)
}

fn root(text: &str, document: usize) -> Result<Node<'_>, EditError> {
    let documents = Documents::new("", text.as_bytes()).map_err(|problem| EditError::Unreadable(problem.message))?;
    for loaded in documents {
        if let Some(problem) = loaded.problems.into_iter().next() {
            return Err(EditError::Unreadable(problem.message));
        }
        if loaded.index == document {
            return loaded.root.ok_or(EditError::NoDocument(document));
        }
    }
    Err(EditError::NoDocument(document))
}

struct Edit<'e> {
    text: &'e str,
    path: &'e str,
    value: &'e Json,
}

/// Bytes to replace, and by what.
type Change = (usize, usize, String);

impl Edit<'_> {
    fn find(&self, root: &Node<'_>, wanted: &[Step]) -> Result<Change, EditError> {
        let mut node = root;
        let mut key: Option<&Entry<'_>> = None;
        for (depth, next) in wanted.iter().enumerate() {
            match step(node, next) {
                Some(found) => {
                    node = found.node();
                    key = match found {
                        Found::Entry(entry) => Some(entry),
                        Found::Item(_) => None,
                    };
                }
                None => return self.insert(node, key, &wanted[depth..]),
            }
        }
        match &node.value {
            Value::Scalar { style: Style::Quoted(Quotes::Block), .. } | Value::Seq { .. } => {
                Err(EditError::NotScalar(self.path.to_owned()))
            }
            Value::Scalar { style, .. } => Ok((node.span.start, node.span.end, self.scalar(Some(*style)))),
            Value::Null => match key {
                Some(entry) if node.span.start == node.span.end => self.after_colon(entry, &self.scalar(None)),
                _ => Ok((node.span.start, node.span.end, self.scalar(None))),
            },
            // `{value: …}` where a reference could stand.
            Value::Map { .. } => match (node.entry("value", "value"), node.entry("valueFrom", "value_from")) {
                (Some(entry), None) => match &entry.node.value {
                    Value::Scalar { style, .. } => {
                        Ok((entry.node.span.start, entry.node.span.end, self.scalar(Some(*style))))
                    }
                    _ => Err(EditError::NotScalar(self.path.to_owned())),
                },
                (_, Some(_)) => Err(EditError::Reference(self.path.to_owned())),
                _ => Err(EditError::NotScalar(self.path.to_owned())),
            },
        }
    }

    /// Adds the fields that are missing to a mapping.
    fn insert(&self, node: &Node<'_>, key: Option<&Entry<'_>>, missing: &[Step]) -> Result<Change, EditError> {
        let mut names = Vec::new();
        for step in missing {
            match step {
                Step::Name(name) => names.push(case::camel_case(name)),
                Step::Pick(pick) => return Err(EditError::NoEntry(pick.clone())),
            }
        }
        match (&node.value, key) {
            (Value::Map { entries, flow: true }, _) => Ok(self.insert_in_flow(node, entries, &names)),
            (Value::Map { entries, flow: false }, _) => self.insert_in_block(entries, &names),
            (Value::Null, Some(entry)) => self.after_colon(entry, &format!("{{{}}}", self.flow(&names, false))),
            _ => Err(EditError::NotScalar(self.path.to_owned())),
        }
    }

    fn insert_in_flow(&self, node: &Node<'_>, entries: &[Entry<'_>], names: &[String]) -> Change {
        let Some(last) = entries.last() else {
            let at = node.span.start + 1;
            return (at, at, self.flow(names, false));
        };
        let quoted = self.text.as_bytes().get(last.key_span.start) == Some(&b'"');
        let at = last.node.span.end.max(last.key_span.end);
        (at, at, format!(", {}", self.flow(names, quoted)))
    }

    fn insert_in_block(&self, entries: &[Entry<'_>], names: &[String]) -> Result<Change, EditError> {
        let first = entries.first().ok_or_else(|| EditError::NotScalar(self.path.to_owned()))?;
        let indent = first.key_span.column as usize - 1;
        let line_break = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut lines = String::new();
        for (depth, name) in names.iter().enumerate() {
            let last = depth + 1 == names.len();
            let value = if last { format!(" {}", self.scalar(None)) } else { String::new() };
            let spaces = " ".repeat(indent + 2 * depth);
            lines.push_str(&format!(
                "{}{name}:{value}{}",
                if depth == 0 { "" } else { &spaces },
                if last { "" } else { line_break }
            ));
        }
        // After the last sibling that ends in the line where it begins; else before the first one.
        let one_line = |entry: &&Entry<'_>| {
            let whole = self.text.get(entry.key_span.start..entry.node.span.end);
            matches!(
                entry.node.value,
                Value::Scalar { style: Style::Plain | Style::Quoted(Quotes::Single | Quotes::Double), .. }
            ) && whole.is_some_and(|whole| !whole.contains('\n'))
        };
        let spaces = " ".repeat(indent);
        Ok(match entries.iter().rev().find(one_line) {
            Some(entry) => {
                let rest = self.text.get(entry.node.span.end..).unwrap_or_default();
                let end = entry.node.span.end + rest.find(['\n', '\r']).unwrap_or(rest.len());
                (end, end, format!("{line_break}{spaces}{lines}"))
            }
            None => {
                let at = first.key_span.start;
                (at, at, format!("{lines}{line_break}{spaces}"))
            }
        })
    }

    /// `a: {b: 1}`, with names in quotes where the file is JSON.
    fn flow(&self, names: &[String], json: bool) -> String {
        let quote = |name: &String| if json { format!("\"{name}\"") } else { name.clone() };
        let value = if json { self.value.to_string() } else { self.scalar(None) };
        let mut out = String::new();
        for (depth, name) in names.iter().enumerate() {
            out.push_str(&quote(name));
            out.push_str(if depth + 1 == names.len() { ": " } else { ": {" });
        }
        out.push_str(&value);
        out.push_str(&"}".repeat(names.len().saturating_sub(1)));
        out
    }

    fn after_colon(&self, entry: &Entry<'_>, new: &str) -> Result<Change, EditError> {
        let rest = self.text.get(entry.key_span.end..).unwrap_or_default();
        let line = rest.lines().next().unwrap_or_default();
        let colon = line.find(':').ok_or_else(|| EditError::Unsafe(self.path.to_owned()))?;
        let at = entry.key_span.end + colon + 1;
        Ok((at, at, format!(" {new}")))
    }

    /// The value as YAML, in the quotes that it had.
    fn scalar(&self, style: Option<Style>) -> String {
        match (self.value, style) {
            (Json::String(text), Some(Style::Quoted(Quotes::Single))) if !text.chars().any(char::is_control) => {
                format!("'{}'", text.replace('\'', "''"))
            }
            (Json::String(_), Some(Style::Quoted(_))) => self.value.to_string(),
            (Json::String(text), _) => plain_or_quoted(text),
            (value, _) => value.to_string(),
        }
    }

    fn verify(&self, out: &str, document: usize, wanted: &[Step]) -> Result<(), EditError> {
        let refuse = || EditError::Unsafe(self.path.to_owned());
        let root = root(out, document).map_err(|_| refuse())?;
        let mut node = &root;
        for next in wanted {
            node = step(node, next).ok_or_else(refuse)?.node();
        }
        if let Some(entry) = node.entry("value", "value") {
            node = &entry.node;
        }
        let written = match (&node.value, self.value) {
            (Value::Scalar { text, style }, Json::String(value)) => {
                text == value && (*style != Style::Plain || resolve(text) == Plain::Text)
            }
            (Value::Scalar { text, style: Style::Plain }, value) => *text == value.to_string(),
            _ => false,
        };
        if written { Ok(()) } else { Err(refuse()) }
    }
}

/// Writes a list of mappings or single values at a path of names, in the style that the list or its mapping has: each item on
/// a line of its own, or all within brackets. Comments inside the old list go with it.
pub fn set_list(text: &str, document: usize, path: &str, items: &[Json]) -> Result<String, EditError> {
    let refuse = || EditError::Unsafe(path.to_owned());
    let wanted = steps(path).ok_or_else(|| EditError::NotAPath(path.to_owned()))?;
    let (Some(Step::Name(name)), parents) = (wanted.last(), &wanted[..wanted.len().saturating_sub(1)]) else {
        return Err(EditError::NotAPath(path.to_owned()));
    };
    let root_node = root(text, document)?;
    let mut parent = &root_node;
    for next in parents {
        parent = step(parent, next).ok_or_else(refuse)?.node();
    }
    let Value::Map { entries, flow } = &parent.value else { return Err(EditError::NotScalar(path.to_owned())) };
    let list = List { text, items, key: case::camel_case(name) };
    let entry = entries.iter().find(|entry| case::camel_case(&entry.key) == list.key);
    let (at, end, new) = match (entry, entries.last(), entries.first()) {
        (None, ..) if items.is_empty() => return Ok(text.to_owned()),
        (Some(entry), ..) if *flow || matches!(entry.node.value, Value::Seq { flow: true, .. }) => {
            (entry.node.span.start, entry.node.span.end, list.in_brackets())
        }
        (Some(entry), ..) => {
            let indent = entry.key_span.column as usize - 1;
            (entry.key_span.start, list.end_of_block(entry, indent), list.on_lines(indent))
        }
        (None, Some(last), _) if *flow => {
            let at = last.node.span.end.max(last.key_span.end);
            (at, at, format!(", {}: {}", list.key, list.in_brackets()))
        }
        (None, _, Some(first)) => {
            let indent = first.key_span.column as usize - 1;
            let lines = format!("{}\n{}", list.on_lines(indent), " ".repeat(indent));
            (first.key_span.start, first.key_span.start, lines)
        }
        (None, ..) => return Err(refuse()),
    };
    let (before, after) = (text.get(..at).ok_or_else(refuse)?, text.get(end..).ok_or_else(refuse)?);
    let out = format!("{before}{new}{after}");
    list.verify(&root_node, &root(&out, document).map_err(|_| refuse())?, &wanted).then_some(out).ok_or_else(refuse)
}

struct List<'l> {
    text: &'l str,
    items: &'l [Json],
    key: String,
}

impl List<'_> {
    fn in_brackets(&self) -> String {
        format!("[{}]", self.items.iter().map(in_line).collect::<Vec<_>>().join(", "))
    }

    fn on_lines(&self, indent: usize) -> String {
        if self.items.is_empty() {
            return format!("{}: []", self.key);
        }
        let dash = format!("\n{}- ", " ".repeat(indent + 2));
        format!("{}:{}", self.key, self.items.iter().map(|item| dash.clone() + &in_line(item)).collect::<String>())
    }

    /// The byte after the last line that belongs to the entry: those that are indented further, and dashes below its key.
    fn end_of_block(&self, entry: &Entry<'_>, indent: usize) -> usize {
        let rest = &self.text[entry.key_span.start..];
        let mut end = entry.key_span.start + rest.find('\n').unwrap_or(rest.len());
        let mut at = end + 1;
        for line in self.text.get(at..).unwrap_or_default().split_inclusive('\n') {
            let content = line.trim();
            let depth = line.len() - line.trim_start_matches(' ').len();
            let within = depth > indent || (depth == indent && (content == "-" || content.starts_with("- ")));
            if !content.is_empty() && !content.starts_with('#') {
                if !within {
                    break;
                }
                end = at + line.trim_end().len();
            }
            at += line.len();
        }
        end
    }

    /// The list is what was to be written, and everything else is what it was.
    fn verify(&self, before: &Node<'_>, after: &Node<'_>, wanted: &[Step]) -> bool {
        let (mut old, mut new) = (as_json(before), as_json(after));
        let pointer: String = wanted
            .iter()
            .map(|step| match step {
                Step::Name(name) => format!("/{}", case::camel_case(name)),
                Step::Pick(pick) => format!("/{pick}"),
            })
            .collect();
        let written = new.pointer_mut(&pointer).map(Json::take);
        if let Some(slot) = old.pointer_mut(&pointer) {
            slot.take();
        } else if let Some((parent, key)) = pointer.rsplit_once('/')
            && let Some(Json::Object(map)) = old.pointer_mut(parent)
        {
            map.insert(key.to_owned(), Json::Null);
        }
        written == Some(Json::Array(self.items.to_vec())) && old == new
    }
}

/// Names in one spelling, plain words as YAML reads them.
fn as_json(node: &Node<'_>) -> Json {
    let scalar = |text: &str| match resolve(text) {
        Plain::Text => Json::from(text),
        _ => serde_json::from_str(text).unwrap_or_else(|_| Json::from(text)),
    };
    node.to_json(&scalar, &case::camel_case)
}

/// A value within one line.
fn in_line(value: &Json) -> String {
    match value {
        Json::String(text) => plain_or_quoted(text),
        Json::Array(items) => format!("[{}]", items.iter().map(in_line).collect::<Vec<_>>().join(", ")),
        Json::Object(map) => {
            let parts: Vec<String> = map.iter().map(|(key, value)| format!("{key}: {}", in_line(value))).collect();
            format!("{{{}}}", parts.join(", "))
        }
        other => other.to_string(),
    }
}

/// Text without quotes where YAML reads it as the same text, else in double quotes.
pub(crate) fn plain_or_quoted(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./+=@".contains(c);
    let plain = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && text.chars().all(safe)
        && resolve(text) == Plain::Text;
    if plain { text.to_owned() } else { Json::from(text).to_string() }
}
