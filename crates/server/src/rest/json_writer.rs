//! Encodes protobuf's wire format directly as JSON. Every field is written, also when it is empty, so that readers need not guess;
//! only messages and optional fields that are not set are left out.

use super::message_shapes::{Arity, Field, FieldType, MessageShapes};
use crate::values::whole;
use bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};

/// Messages inside messages; `Struct` values nest as deep as manifests do.
const DEPTH_MAX: usize = 200;

/// The bytes are not the message: they come from this very process, so that this is a mistake in it.
#[derive(Debug, thiserror::Error)]
#[error("an answer could not be read")]
pub struct Unreadable;

#[derive(Clone, Copy)]
enum Raw<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

pub fn message(shapes: &MessageShapes, shape: usize, wire: &[u8], out: &mut Vec<u8>) -> Result<(), Unreadable> {
    write_message(shapes, shape, wire, out, 0)
}

/// A top-level whole number, such as an event's `id`.
pub fn number(field: u32, wire: &[u8]) -> Option<i64> {
    entries(wire).ok()?.into_iter().find_map(|(number, raw)| match raw {
        Raw::Varint(value) if number == field => Some(value as i64),
        _ => None,
    })
}

fn write_message(
    shapes: &MessageShapes,
    shape: usize,
    wire: &[u8],
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Unreadable> {
    if depth > DEPTH_MAX {
        return Err(Unreadable);
    }
    let entries = entries(wire)?;
    let mut rest = entries.as_slice();
    out.push(b'{');
    let mut first = true;
    for field in &shapes.shape(shape).fields {
        // Fields that this program does not know are passed over.
        while rest.first().is_some_and(|(number, _)| *number < field.number) {
            rest = &rest[1..];
        }
        let count = rest.iter().take_while(|(number, _)| *number == field.number).count();
        let (mine, after) = rest.split_at(count);
        rest = after;
        let absent = match field.field_type {
            FieldType::Message(_) | FieldType::Object | FieldType::Any => field.arity != Arity::List,
            _ => field.arity == Arity::Optional,
        };
        if mine.is_empty() && absent {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.extend_from_slice(&field.key);
        match (field.arity, mine.last()) {
            (Arity::List, _) => {
                out.push(b'[');
                let mut begun = false;
                for (_, raw) in mine {
                    // Numbers of a list are packed into one run of bytes.
                    match (raw, field.field_type) {
                        (
                            Raw::Bytes(packed),
                            FieldType::Bool | FieldType::U32 | FieldType::U64 | FieldType::I32 | FieldType::I64,
                        ) => {
                            let mut packed: &[u8] = packed;
                            while packed.has_remaining() {
                                comma(&mut begun, out);
                                scalar(field, decode_varint(&mut packed).map_err(|_| Unreadable)?, out);
                            }
                        }
                        (raw, _) => {
                            comma(&mut begun, out);
                            value(shapes, field, *raw, out, depth)?;
                        }
                    }
                }
                out.push(b']');
            }
            (_, Some((_, raw))) => value(shapes, field, *raw, out, depth)?,
            (_, None) => match field.field_type {
                FieldType::Text => out.extend_from_slice(b"\"\""),
                FieldType::Bool => out.extend_from_slice(b"false"),
                _ => out.push(b'0'),
            },
        }
    }
    out.push(b'}');
    Ok(())
}

fn comma(begun: &mut bool, out: &mut Vec<u8>) {
    if std::mem::replace(begun, true) {
        out.push(b',');
    }
}

fn value(
    shapes: &MessageShapes,
    field: &Field,
    raw: Raw<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Unreadable> {
    match (field.field_type, raw) {
        (FieldType::Message(shape), Raw::Bytes(bytes)) => write_message(shapes, shape, bytes, out, depth + 1),
        (FieldType::Object, Raw::Bytes(bytes)) => object(bytes, out, depth + 1),
        (FieldType::Any, Raw::Bytes(bytes)) => any(bytes, out, depth + 1),
        (FieldType::Text, Raw::Bytes(bytes)) => text(bytes, out),
        (_, Raw::Varint(number)) => {
            scalar(field, number, out);
            Ok(())
        }
        _ => Err(Unreadable),
    }
}

fn scalar(field: &Field, number: u64, out: &mut Vec<u8>) {
    let text = match field.field_type {
        FieldType::Bool if number != 0 => "true".to_owned(),
        FieldType::Bool => "false".to_owned(),
        FieldType::I32 | FieldType::I64 => (number as i64).to_string(),
        _ => number.to_string(),
    };
    out.extend_from_slice(text.as_bytes());
}

fn text(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Unreadable> {
    let text = std::str::from_utf8(bytes).map_err(|_| Unreadable)?;
    serde_json::to_writer(out, text).map_err(|_| Unreadable)
}

/// `Struct`: a map from text (1) to values (2).
fn object(wire: &[u8], out: &mut Vec<u8>, depth: usize) -> Result<(), Unreadable> {
    if depth > DEPTH_MAX {
        return Err(Unreadable);
    }
    out.push(b'{');
    let mut begun = false;
    for (number, raw) in entries(wire)? {
        let (1, Raw::Bytes(entry)) = (number, raw) else { continue };
        comma(&mut begun, out);
        let (mut name, mut held) = (&[][..], &[][..]);
        for (number, raw) in entries(entry)? {
            match (number, raw) {
                (1, Raw::Bytes(bytes)) => name = bytes,
                (2, Raw::Bytes(bytes)) => held = bytes,
                _ => {}
            }
        }
        text(name, out)?;
        out.push(b':');
        any(held, out, depth + 1)?;
    }
    out.push(b'}');
    Ok(())
}

/// `Value`: one of null (1), number (2), text (3), bool (4), object (5), list (6).
fn any(wire: &[u8], out: &mut Vec<u8>, depth: usize) -> Result<(), Unreadable> {
    if depth > DEPTH_MAX {
        return Err(Unreadable);
    }
    match entries(wire)?.last() {
        Some((2, Raw::Fixed(bits))) => number_text(f64::from_bits(*bits), out),
        Some((3, Raw::Bytes(bytes))) => text(bytes, out)?,
        Some((4, Raw::Varint(value))) => out.extend_from_slice(if *value != 0 { b"true" } else { b"false" }),
        Some((5, Raw::Bytes(bytes))) => object(bytes, out, depth + 1)?,
        Some((6, Raw::Bytes(bytes))) => {
            out.push(b'[');
            let mut begun = false;
            for (number, raw) in entries(bytes)? {
                let (1, Raw::Bytes(item)) = (number, raw) else { continue };
                comma(&mut begun, out);
                any(item, out, depth + 1)?;
            }
            out.push(b']');
        }
        _ => out.extend_from_slice(b"null"),
    }
    Ok(())
}

fn number_text(number: f64, out: &mut Vec<u8>) {
    let text = match whole(number) {
        Some(whole) => whole.to_string(),
        None => serde_json::Number::from_f64(number).map_or("null".to_owned(), |number| number.to_string()),
    };
    out.extend_from_slice(text.as_bytes());
}

/// The fields of a message in the order of their numbers, each number's in their own order.
fn entries(mut wire: &[u8]) -> Result<Vec<(u32, Raw<'_>)>, Unreadable> {
    let mut found = Vec::with_capacity(16);
    let mut sorted = true;
    while wire.has_remaining() {
        let (number, kind) = decode_key(&mut wire).map_err(|_| Unreadable)?;
        let raw = match kind {
            WireType::Varint => Raw::Varint(decode_varint(&mut wire).map_err(|_| Unreadable)?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut wire).map_err(|_| Unreadable)?;
                let length = usize::try_from(length).ok().filter(|length| *length <= wire.len()).ok_or(Unreadable)?;
                let (bytes, after) = wire.split_at(length);
                wire = after;
                Raw::Bytes(bytes)
            }
            WireType::SixtyFourBit if wire.len() >= 8 => Raw::Fixed(wire.get_u64_le()),
            _ => return Err(Unreadable),
        };
        sorted &= found.last().is_none_or(|(last, _)| *last <= number);
        found.push((number, raw));
    }
    if !sorted {
        found.sort_by_key(|(number, _)| *number);
    }
    Ok(found)
}
