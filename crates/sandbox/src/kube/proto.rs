//! Bodies in Kubernetes' own protobuf form, which typed clients send for the types they know. Fields are numbered as published
//! with the types; a body with a field that is not known is refused, so that no field is ever lost unseen.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::schema::{self, Kind, Schema};

const MAGIC: &[u8] = b"k8s\0";
const MAX_DEPTH: usize = 40;

/// The object in JSON form; `None` for a type, field or encoding that is not read here.
pub fn parse(body: &[u8]) -> Option<Value> {
    let mut unknown = Reader(body.strip_prefix(MAGIC)?);
    let (mut api_version, mut kind, mut raw): (String, String, &[u8]) = Default::default();
    while let Some((number, part)) = unknown.next()? {
        match (number, part) {
            (1, Part::Bytes(bytes)) => {
                let mut type_meta = Reader(bytes);
                while let Some((number, part)) = type_meta.next()? {
                    match (number, part) {
                        (1, Part::Bytes(text)) => api_version = text_of(text)?,
                        (2, Part::Bytes(text)) => kind = text_of(text)?,
                        _ => return None,
                    }
                }
            }
            (2, Part::Bytes(bytes)) => raw = bytes,
            (_, part) if part.is_empty() => {}
            _ => return None,
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let name = match kind.as_str() {
        "DeleteOptions" => "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned(),
        _ => schema::definition_name(group, version, &kind),
    };
    let mut object = message(raw, schema::definition(&name)?, MAX_DEPTH)?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Some(Value::Object(object))
}

fn message(bytes: &[u8], schema: &Schema, depth: usize) -> Option<Map<String, Value>> {
    let (_, numbers) = schema::published(&schema.name)?;
    let mut made = Map::new();
    read(bytes, schema, &numbers, depth, &mut made)?;
    Some(made)
}

fn read(bytes: &[u8], schema: &Schema, numbers: &Value, depth: usize, made: &mut Map<String, Value>) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let mut reader = Reader(bytes);
    while let Some((number, part)) = reader.next()? {
        // Fields of an embedded message stand beside the others.
        if let (Some(inner), Part::Bytes(bytes)) = (numbers.get(format!("@{number}")), &part) {
            read(bytes, schema, inner, depth, made)?;
            continue;
        }
        let name = numbers.as_object()?.iter().find(|(_, known)| known.as_u64() == Some(number)).map(|(name, _)| name);
        // Go writes empty fields too, of every name: only one that says something must be known.
        let Some((name, field)) = name.and_then(|name| Some((name, schema.fields.get(name)?))) else {
            if part.is_empty() {
                continue;
            }
            return None;
        };
        let target = field.target();
        if let (Kind::Object, Some(entry_schema), Part::Bytes(bytes)) = (target.kind, target.entries.as_deref(), &part)
        {
            let (key, value) = entry(bytes)?;
            let value = scalar_or_message(&Part::Bytes(value), entry_schema, depth)?;
            made.entry(name.clone()).or_insert_with(|| json!({})).as_object_mut()?.insert(key, value);
        } else if let (Kind::List, Some(item)) = (target.kind, target.items.as_deref()) {
            let value = scalar_or_message(&part, item, depth)?;
            made.entry(name.clone()).or_insert_with(|| json!([])).as_array_mut()?.push(value);
        } else {
            let value = scalar_or_message(&part, field, depth)?;
            let says_nothing = match &value {
                Value::String(text) => text.is_empty(),
                Value::Object(map) => map.is_empty() && part.is_empty() && !target.go_name.ends_with("VolumeSource"),
                Value::Null => true,
                _ => false,
            };
            if !says_nothing {
                made.insert(name.clone(), value);
            }
        }
    }
    Some(())
}

fn scalar_or_message(part: &Part, schema: &Schema, depth: usize) -> Option<Value> {
    let target = schema.target();
    let inner = |wanted: u64| {
        let Part::Bytes(bytes) = part else { return None };
        let mut reader = Reader(bytes);
        while let Some((number, part)) = reader.next()? {
            if number == wanted {
                return Some(part);
            }
        }
        None
    };
    match (target.go_name.as_str(), target.kind, part) {
        ("Time" | "MicroTime", _, _) => match inner(1) {
            Some(Part::Number(seconds)) => {
                Some(json!(crate::clock::SimTime((seconds as i64).saturating_mul(1000)).rfc3339()))
            }
            _ => Some(Value::Null),
        },
        (_, Kind::Quantity, _) => match inner(1) {
            Some(Part::Bytes(text)) => Some(json!(text_of(text)?)),
            _ => Some(json!("0")),
        },
        (_, Kind::IntOrText, _) => match (inner(1), inner(2), inner(3)) {
            (Some(Part::Number(1)), _, Some(Part::Bytes(text))) => Some(json!(text_of(text)?)),
            (_, Some(Part::Number(number)), _) => Some(json!(number as i64 as i32)),
            _ => Some(json!(0)),
        },
        ("RawExtension" | "FieldsV1", _, _) => match inner(1) {
            Some(Part::Bytes(raw)) => serde_json::from_slice(raw).ok(),
            _ => Some(Value::Null),
        },
        (_, Kind::Text, Part::Bytes(bytes)) if schema.format == "byte" => Some(json!(STANDARD.encode(bytes))),
        (_, Kind::Text, Part::Bytes(bytes)) => Some(json!(text_of(bytes)?)),
        (_, Kind::Integer, Part::Number(number)) => Some(json!(*number as i64)),
        (_, Kind::Flag, Part::Number(number)) => Some(json!(*number != 0)),
        (_, Kind::Object, Part::Bytes(bytes)) if !target.name.is_empty() => {
            Some(Value::Object(message(bytes, target, depth)?))
        }
        _ => None,
    }
}

fn entry(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (mut key, mut value): (String, &[u8]) = Default::default();
    let mut reader = Reader(bytes);
    while let Some((number, part)) = reader.next()? {
        match (number, part) {
            (1, Part::Bytes(text)) => key = text_of(text)?,
            (2, Part::Bytes(bytes)) => value = bytes,
            _ => return None,
        }
    }
    Some((key, value))
}

fn text_of(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

enum Part<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Part<'_> {
    /// Whether it says nothing: zero, or a message of nothing but such parts.
    fn is_empty(&self) -> bool {
        match self {
            Part::Number(number) => *number == 0,
            Part::Bytes(bytes) => {
                let mut reader = Reader(bytes);
                loop {
                    match reader.next() {
                        Some(None) => return true,
                        Some(Some((_, part))) if part.is_empty() => {}
                        _ => return false,
                    }
                }
            }
        }
    }
}

/// Takes a message apart, field by field. `None` anywhere means that the bytes are no protobuf.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[allow(clippy::should_implement_trait)]
    fn next(&mut self) -> Option<Option<(u64, Part<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let part = match tag & 7 {
            0 => Part::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Part::Bytes(bytes)
            }
            _ => return None,
        };
        Some(Some((tag >> 3, part)))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &type_meta), &field(2, raw), &field(3, b""), &field(4, b"")].concat()
    }

    #[test]
    fn what_kubectl_creates_is_read() {
        let label = [field(1, b"a"), field(2, b"b")].concat();
        let meta = [field(1, b"shop"), field(2, b""), field(8, b""), field(11, &label)].concat();
        let data = [field(1, b"key"), field(2, b"\xff\x00")].concat();
        let secret = [field(1, &meta), field(2, &data), field(3, b"Opaque")].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"key": "/wA="},
            "metadata": {"name": "shop", "labels": {"a": "b"}},
        });
        assert_eq!(parse(&envelope("Secret", &secret)), Some(expected));
    }

    #[test]
    fn what_is_not_known_is_refused_and_never_lost() {
        let meta = field(1, &field(1, b"shop"));
        assert!(parse(&envelope("Namespace", &meta)).is_some());
        assert_eq!(parse(&envelope("Ship", &meta)), None);
        let more = [meta.clone(), field(15, b"\x08\x01")].concat();
        assert_eq!(parse(&envelope("Namespace", &more)), None);
        assert_eq!(parse(b"{}"), None);
        let whole = envelope("Namespace", &meta);
        for cut in 0..whole.len() - 4 {
            // Cut anywhere, it is refused or lacks something, and never a panic.
            assert_ne!(parse(&whole[..cut]), parse(&whole), "{cut}");
        }
    }
}
