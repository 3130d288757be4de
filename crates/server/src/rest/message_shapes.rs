//! The messages of the API as tables, made from the descriptors once, at the start.

use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};
use std::collections::HashMap;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    Text,
    Bool,
    U32,
    U64,
    I32,
    I64,
    /// Index in [`MessageShapes`].
    Message(usize),
    /// `google.protobuf.Struct`: any JSON object.
    Object,
    /// `google.protobuf.Value`: any JSON value.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
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
    pub field_type: FieldType,
    pub arity: Arity,
}

pub struct MessageShape {
    pub name: String,
    /// In the order of their numbers.
    pub fields: Vec<Field>,
    by_json: HashMap<String, usize>,
}

impl MessageShape {
    pub fn field(&self, json: &str) -> Option<(usize, &Field)> {
        self.by_json.get(json).map(|index| (*index, &self.fields[*index]))
    }
}

/// Every message that REST speaks.
#[derive(Default)]
pub struct MessageShapes {
    all: Vec<MessageShape>,
    by_name: HashMap<String, usize>,
}

/// A message that has no form in REST: a mistake in the API's files, found by a test.
#[derive(Debug, thiserror::Error)]
#[error("{0} has no form in JSON here")]
pub struct NoJsonForm(String);

impl MessageShapes {
    pub fn shape(&self, index: usize) -> &MessageShape {
        &self.all[index]
    }

    /// Adds a message with all that it holds.
    pub fn add(&mut self, message: &MessageDescriptor) -> Result<usize, NoJsonForm> {
        if let Some(index) = self.by_name.get(message.full_name()) {
            return Ok(*index);
        }
        let index = self.all.len();
        self.by_name.insert(message.full_name().to_owned(), index);
        self.all.push(MessageShape {
            name: message.full_name().to_owned(),
            fields: Vec::new(),
            by_json: HashMap::new(),
        });
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
        let field_type = match field.kind() {
            Kind::String => FieldType::Text,
            Kind::Bool => FieldType::Bool,
            Kind::Uint32 => FieldType::U32,
            Kind::Uint64 => FieldType::U64,
            Kind::Int32 => FieldType::I32,
            Kind::Int64 => FieldType::I64,
            Kind::Message(message) => match message.full_name() {
                "google.protobuf.Struct" => FieldType::Object,
                "google.protobuf.Value" => FieldType::Any,
                _ => FieldType::Message(self.add(&message)?),
            },
            _ => return Err(no_json_form()),
        };
        let arity = match field.cardinality() {
            Cardinality::Repeated => Arity::List,
            _ if field.supports_presence() => Arity::Optional,
            _ => Arity::One,
        };
        let json = field.json_name().to_owned();
        Ok(Field { number: field.number(), key: format!("\"{json}\":").into_bytes(), json, field_type, arity })
    }
}
