//! Decodes JSON directly into protobuf's wire format. JSON that does not fit the message is refused with its path and position.

use super::message_shapes::{Arity, Field, FieldType, MessageShape, MessageShapes};
use crate::api::arguments::shown;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use std::cell::RefCell;
use std::fmt;

/// Values in one list; a list call's pages are bounded as well.
const ITEMS_MAX: usize = 100_000;

/// Why JSON is not the message.
#[derive(Debug, PartialEq, Eq)]
pub struct JsonMismatch {
    /// camelCase path, such as `files[0].text`; empty for the whole body.
    pub path: String,
    pub message: String,
    /// From 1; 0 when not known.
    pub line: u32,
    pub column: u32,
}

#[derive(Clone)]
enum Step {
    Field(String),
    Item(usize),
}

/// Where the reader stands; it stays where an error happened.
#[derive(Default)]
struct Trail(RefCell<Vec<Step>>);

impl Trail {
    fn text(&self) -> String {
        let mut text = String::new();
        for step in self.0.borrow().iter() {
            match step {
                Step::Field(name) if text.is_empty() => text.push_str(name),
                Step::Field(name) => text.push_str(&format!(".{name}")),
                Step::Item(index) => text.push_str(&format!("[{index}]")),
            }
        }
        text
    }
}

/// Appends a JSON object to `out` as the message `shape`. `given` are fields (by position) that were given elsewhere.
pub fn message(
    shapes: &MessageShapes,
    shape: usize,
    json: &[u8],
    given: &[usize],
    out: &mut Vec<u8>,
) -> Result<(), JsonMismatch> {
    let trail = Trail::default();
    let mut reader = serde_json::Deserializer::from_slice(json);
    let seed = MessageSeed { shapes, shape: shapes.shape(shape), trail: &trail, out, given };
    let read = seed.deserialize(&mut reader).and_then(|()| {
        trail.0.borrow_mut().clear();
        reader.end()
    });
    read.map_err(|error| {
        // serde_json puts its place behind the text.
        let text = error.to_string();
        let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        JsonMismatch { path: trail.text(), message, line: number(error.line()), column: number(error.column()) }
    })
}

/// Appends a field whose text stands in the path or the query.
pub fn text(field: &Field, text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let wrong = |what: &str| format!("`{}` is not {what}", shown(text));
    match field.field_type {
        FieldType::Text => string(field.number, text, out),
        FieldType::Bool => match text {
            "true" => varint(field.number, 1, out),
            "false" => {}
            _ => return Err(wrong("`true` or `false`")),
        },
        FieldType::U32 => varint(field.number, plain::<u32>(text).ok_or_else(|| wrong(U32))?.into(), out),
        FieldType::U64 => varint(field.number, plain::<u64>(text).ok_or_else(|| wrong(U64))?, out),
        FieldType::I32 => varint(field.number, plain::<i32>(text).ok_or_else(|| wrong(I32))? as i64 as u64, out),
        FieldType::I64 => varint(field.number, plain::<i64>(text).ok_or_else(|| wrong(I64))? as u64, out),
        FieldType::Message(_) | FieldType::Object | FieldType::Any => return Err("it cannot be given here".into()),
    }
    Ok(())
}

const U32: &str = "a whole number from 0 to 4294967295";
const U64: &str = "a whole number from 0";
const I32: &str = "a whole number of 32 bits";
const I64: &str = "a whole number of 64 bits";

/// As JSON writes it: `+1` and `007` are not numbers there.
fn plain<T: std::str::FromStr + fmt::Display>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number: &T| number.to_string() == text)
}

fn varint(number: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        encode_key(number, WireType::Varint, out);
        encode_varint(value, out);
    }
}

fn string(number: u32, text: &str, out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

struct MessageSeed<'a> {
    shapes: &'a MessageShapes,
    shape: &'a MessageShape,
    trail: &'a Trail,
    out: &'a mut Vec<u8>,
    given: &'a [usize],
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = vec![false; self.shape.fields.len()];
        while let Some(name) = map.next_key_seed(NameSeed)? {
            let Some((index, field)) = self.shape.field(&name) else {
                self.trail.0.borrow_mut().push(Step::Field(shown(&name)));
                return Err(A::Error::custom(self.unknown(&name)));
            };
            self.trail.0.borrow_mut().push(Step::Field(field.json.clone()));
            if self.given.contains(&index) {
                return Err(A::Error::custom("it is given in the path, and cannot be given again"));
            }
            if std::mem::replace(&mut seen[index], true) {
                return Err(A::Error::custom("it is given twice"));
            }
            map.next_value_seed(FieldSeed { shapes: self.shapes, field, trail: self.trail, out: self.out })?;
            self.trail.0.borrow_mut().pop();
        }
        Ok(())
    }
}

impl MessageSeed<'_> {
    fn unknown(&self, name: &str) -> String {
        let known = self.shape.fields.iter().map(|field| field.json.as_str());
        match berth_model::phrasing::nearest(name, known) {
            Some(near) => format!("unknown field; did you mean `{near}`?"),
            None => "unknown field".to_owned(),
        }
    }
}

/// A name without a copy where it is written plainly.
struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = std::borrow::Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = std::borrow::Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(text.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.to_owned().into())
    }
}

struct FieldSeed<'a> {
    shapes: &'a MessageShapes,
    field: &'a Field,
    trail: &'a Trail,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.field.arity {
            Arity::List => deserializer.deserialize_any(ListVisitor(self)),
            Arity::One | Arity::Optional => {
                ValueSeed { shapes: self.shapes, field: self.field, trail: self.trail, out: self.out, in_list: false }
                    .deserialize(deserializer)
            }
        }
    }
}

struct ListVisitor<'a>(FieldSeed<'a>);

impl<'de> Visitor<'de> for ListVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let FieldSeed { shapes, field, trail, out } = self.0;
        for index in 0.. {
            trail.0.borrow_mut().push(Step::Item(index));
            if index >= ITEMS_MAX {
                return Err(A::Error::custom(format!("a list has at most {ITEMS_MAX} values")));
            }
            let seed = ValueSeed { shapes, field, trail, out: &mut *out, in_list: true };
            if items.next_element_seed(seed)?.is_none() {
                break;
            }
            trail.0.borrow_mut().pop();
        }
        trail.0.borrow_mut().pop();
        Ok(())
    }
}

struct ValueSeed<'a> {
    shapes: &'a MessageShapes,
    field: &'a Field,
    trail: &'a Trail,
    out: &'a mut Vec<u8>,
    /// Empty values count there.
    in_list: bool,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.field.field_type {
            FieldType::Message(shape) => {
                let mut inner = Vec::with_capacity(64);
                let shape = self.shapes.shape(shape);
                MessageSeed { shapes: self.shapes, shape, trail: self.trail, out: &mut inner, given: &[] }
                    .deserialize(deserializer)?;
                encode_key(self.field.number, WireType::LengthDelimited, self.out);
                encode_varint(inner.len() as u64, self.out);
                self.out.extend_from_slice(&inner);
                Ok(())
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl ValueSeed<'_> {
    fn number(self, value: u64) {
        if self.in_list {
            encode_key(self.field.number, WireType::Varint, self.out);
            encode_varint(value, self.out);
        } else {
            varint(self.field.number, value, self.out);
        }
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.field.field_type {
            FieldType::Text => "a string",
            FieldType::Bool => "true or false",
            FieldType::U32 => U32,
            FieldType::U64 => U64,
            FieldType::I32 => I32,
            FieldType::I64 => I64,
            FieldType::Message(_) | FieldType::Object | FieldType::Any => "an object",
        })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if self.field.field_type != FieldType::Text {
            return Err(E::invalid_type(Unexpected::Other("a string"), &self));
        }
        if !text.is_empty() || self.in_list {
            string(self.field.number, text, self.out);
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        if self.field.field_type != FieldType::Bool {
            return Err(E::invalid_type(Unexpected::Bool(value), &self));
        }
        self.number(value.into());
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        let fits = match self.field.field_type {
            FieldType::U32 => u32::try_from(value).is_ok(),
            FieldType::U64 => true,
            FieldType::I32 => i32::try_from(value).is_ok(),
            FieldType::I64 => i64::try_from(value).is_ok(),
            _ => return Err(E::invalid_type(Unexpected::Other("a number"), &self)),
        };
        if !fits {
            return Err(E::invalid_value(Unexpected::Unsigned(value), &self));
        }
        self.number(value);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        let fits = match self.field.field_type {
            FieldType::I32 => i32::try_from(value).is_ok(),
            FieldType::I64 => true,
            FieldType::U32 | FieldType::U64 => value >= 0,
            _ => return Err(E::invalid_type(Unexpected::Other("a number"), &self)),
        };
        if !fits {
            return Err(E::invalid_value(Unexpected::Signed(value), &self));
        }
        self.number(value as u64);
        Ok(())
    }
}
