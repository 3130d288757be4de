//! YAML (and JSON, which is YAML) with positions: text in, a tree for each document out. Every limit has a name here.

mod load;
mod resolve;
mod scan;
mod write;

pub use load::{Documents, Loaded, too_large};
pub use resolve::{Plain, resolve, whole};
pub use write::to_yaml;

use crate::diagnostic::Span;
use serde_json::Value as Json;
use std::borrow::Cow;

/// Most bytes of one file. A folder may hold any number of files, so that a larger fleet is split over several.
pub const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
/// Most documents in one file.
pub const MAX_DOCUMENTS: usize = 20_000;
/// Most levels of nesting in a document.
pub const MAX_DEPTH: usize = 64;
/// Most values in a document, aliases written out.
pub const MAX_NODES: usize = 50_000;
/// Most values in a document that come from aliases.
pub const MAX_ALIAS_NODES: usize = 1_000;

/// A value with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<'a> {
    pub span: Span,
    pub value: Value<'a>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Scalar { text: Cow<'a, str>, style: Style },
    Seq { items: Vec<Node<'a>>, flow: bool },
    Map { entries: Vec<Entry<'a>>, flow: bool },
}

/// How a scalar is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Without quotes: numbers, booleans and plain words.
    Plain,
    /// In quotes, as a block, or with `!!str`: always text.
    Quoted(Quotes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quotes {
    Single,
    Double,
    Block,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry<'a> {
    pub key: Cow<'a, str>,
    pub key_span: Span,
    pub node: Node<'a>,
}

impl<'a> Node<'a> {
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    pub fn entries(&self) -> &[Entry<'a>] {
        match &self.value {
            Value::Map { entries, .. } => entries,
            _ => &[],
        }
    }

    pub fn items(&self) -> &[Node<'a>] {
        match &self.value {
            Value::Seq { items, .. } => items,
            _ => &[],
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The entry with one of two spellings of a name.
    pub fn entry(&self, json: &str, snake: &str) -> Option<&Entry<'a>> {
        self.entries().iter().find(|entry| entry.key == json || entry.key == snake)
    }

    /// As JSON. `plain` reads a scalar that stands without quotes, `name` spells a key.
    pub fn to_json(&self, plain: &dyn Fn(&str) -> Json, name: &dyn Fn(&str) -> String) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Scalar { text, style: Style::Plain } => plain(text),
            Value::Scalar { text, .. } => Json::from(text.as_ref()),
            Value::Seq { items, .. } => items.iter().map(|item| item.to_json(plain, name)).collect(),
            Value::Map { entries, .. } => {
                entries.iter().map(|entry| (name(&entry.key), entry.node.to_json(plain, name))).collect()
            }
        }
    }

    /// Where to point when the node as a whole is meant: at a scalar itself, at the beginning of anything larger.
    pub fn pointer(&self) -> Span {
        match &self.value {
            Value::Map { entries, .. } => entries.first().map_or(self.span, |entry| entry.key_span),
            Value::Seq { items, .. } => items.first().map_or(self.span, |item| item.pointer()),
            _ => self.span,
        }
    }
}

impl Entry<'_> {
    /// Where to point when the field is meant: at a scalar value itself, else at the key.
    pub fn pointer(&self) -> Span {
        match self.node.value {
            Value::Scalar { .. } => self.node.span,
            _ => self.key_span,
        }
    }
}
