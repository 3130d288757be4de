//! The messages of the API as tables: descriptors are looked up once, at the start, and no request pays for it again.

use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};
use std::collections::HashMap;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    Text,
    Bool,
    U32,
    U64,
    I32,
    I64,
    /// Index in [`Shapes`].
    Message(usize),
    /// `google.protobuf.Struct`: any JSON object.
    Object,
    /// `google.protobuf.Value`: any JSON value.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Many {
    One,
    /// Absent and empty are two things.
    Optional,
    List,
}

pub struct Field {
    pub number: u32,
    /// camelCase.
    pub json: String,
    /// `"name":`, ready to be written.
    pub(super) key: Vec<u8>,
    pub holds: Holds,
    pub many: Many,
}

pub struct Shape {
    pub name: String,
    /// In the order of their numbers.
    pub fields: Vec<Field>,
    by_json: HashMap<String, usize>,
}

impl Shape {
    pub fn field(&self, json: &str) -> Option<(usize, &Field)> {
        self.by_json.get(json).map(|index| (*index, &self.fields[*index]))
    }
}

/// Every message that REST speaks.
#[derive(Default)]
pub struct Shapes {
    all: Vec<Shape>,
    by_name: HashMap<String, usize>,
}

/// A message that has no form in REST: a mistake in the API's files, found by a test.
#[derive(Debug, thiserror::Error)]
#[error("{0} has no form in JSON here")]
pub struct NoJsonForm(String);

impl Shapes {
    pub fn shape(&self, index: usize) -> &Shape {
        &self.all[index]
    }

    /// Adds a message with all that it holds.
    pub fn add(&mut self, message: &MessageDescriptor) -> Result<usize, NoJsonForm> {
        if let Some(index) = self.by_name.get(message.full_name()) {
            return Ok(*index);
        }
        let index = self.all.len();
        self.by_name.insert(message.full_name().to_owned(), index);
        self.all.push(Shape { name: message.full_name().to_owned(), fields: Vec::new(), by_json: HashMap::new() });
        let mut fields = message.fields().map(|field| self.field(&field)).collect::<Result<Vec<_>, _>>()?;
        fields.sort_by_key(|field| field.number);
        let by_json = fields.iter().enumerate().map(|(index, field)| (field.json.clone(), index)).collect();
        self.all[index].fields = fields;
        self.all[index].by_json = by_json;
        Ok(index)
    }

    fn field(&mut self, field: &FieldDescriptor) -> Result<Field, NoJsonForm> {
        let no_json_form = || NoJsonForm(field.full_name().to_owned());
        if field.is_map() || field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic()) {
            return Err(no_json_form());
        }
        let holds = match field.kind() {
            Kind::String => Holds::Text,
            Kind::Bool => Holds::Bool,
            Kind::Uint32 => Holds::U32,
            Kind::Uint64 => Holds::U64,
            Kind::Int32 => Holds::I32,
            Kind::Int64 => Holds::I64,
            Kind::Message(message) => match message.full_name() {
                "google.protobuf.Struct" => Holds::Object,
                "google.protobuf.Value" => Holds::Any,
                _ => Holds::Message(self.add(&message)?),
            },
            _ => return Err(no_json_form()),
        };
        let many = match field.cardinality() {
            Cardinality::Repeated => Many::List,
            _ if field.supports_presence() => Many::Optional,
            _ => Many::One,
        };
        let json = field.json_name().to_owned();
        Ok(Field { number: field.number(), key: format!("\"{json}\":").into_bytes(), json, holds, many })
    }
}
