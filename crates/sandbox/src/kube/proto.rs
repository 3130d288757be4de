//! Bodies in Kubernetes' own protobuf form, which `kubectl create` sends for the types it knows. Only what that command
//! makes is read; anything else is refused, so that no field is ever lost unseen.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

const MAGIC: &[u8] = b"k8s\0";
const MAX_DEPTH: usize = 16;

/// How a field is written in JSON. Lists are fields that may come again and again.
enum Kind {
    Text,
    Number,
    Flag,
    Message(&'static [Field]),
    Texts,
    Messages(&'static [Field]),
    TextMap,
    /// Values are bytes, which JSON shows in base64.
    ByteMap,
}

type Field = (u64, &'static str, Kind);

const META: &[Field] = &[
    (1, "name", Kind::Text),
    (2, "generateName", Kind::Text),
    (3, "namespace", Kind::Text),
    (11, "labels", Kind::TextMap),
    (12, "annotations", Kind::TextMap),
    (14, "finalizers", Kind::Texts),
];
const NAMESPACE: &[Field] = &[(1, "metadata", Kind::Message(META))];
const CONFIG_MAP: &[Field] = &[
    (1, "metadata", Kind::Message(META)),
    (2, "data", Kind::TextMap),
    (3, "binaryData", Kind::ByteMap),
    (4, "immutable", Kind::Flag),
];
const SECRET: &[Field] = &[
    (1, "metadata", Kind::Message(META)),
    (2, "data", Kind::ByteMap),
    (3, "type", Kind::Text),
    (4, "stringData", Kind::TextMap),
    (5, "immutable", Kind::Flag),
];
const PORT: &[Field] = &[(1, "name", Kind::Text), (3, "containerPort", Kind::Number), (4, "protocol", Kind::Text)];
const VARIABLE: &[Field] = &[(1, "name", Kind::Text), (2, "value", Kind::Text)];
const CONTAINER: &[Field] = &[
    (1, "name", Kind::Text),
    (2, "image", Kind::Text),
    (3, "command", Kind::Texts),
    (4, "args", Kind::Texts),
    (6, "ports", Kind::Messages(PORT)),
    (7, "env", Kind::Messages(VARIABLE)),
    (14, "imagePullPolicy", Kind::Text),
];
const POD_SPEC: &[Field] = &[
    (2, "containers", Kind::Messages(CONTAINER)),
    (3, "restartPolicy", Kind::Text),
    (7, "nodeSelector", Kind::TextMap),
    (8, "serviceAccountName", Kind::Text),
];
const TEMPLATE: &[Field] = &[(1, "metadata", Kind::Message(META)), (2, "spec", Kind::Message(POD_SPEC))];
const SELECTOR: &[Field] = &[(1, "matchLabels", Kind::TextMap)];
const DEPLOYMENT_SPEC: &[Field] = &[
    (1, "replicas", Kind::Number),
    (2, "selector", Kind::Message(SELECTOR)),
    (3, "template", Kind::Message(TEMPLATE)),
];
const DEPLOYMENT: &[Field] = &[(1, "metadata", Kind::Message(META)), (2, "spec", Kind::Message(DEPLOYMENT_SPEC))];
const RULE: &[Field] = &[
    (1, "verbs", Kind::Texts),
    (2, "apiGroups", Kind::Texts),
    (3, "resources", Kind::Texts),
    (4, "resourceNames", Kind::Texts),
    (5, "nonResourceURLs", Kind::Texts),
];
const ROLE: &[Field] = &[(1, "metadata", Kind::Message(META)), (2, "rules", Kind::Messages(RULE))];
const SUBJECT: &[Field] =
    &[(1, "kind", Kind::Text), (2, "apiGroup", Kind::Text), (3, "name", Kind::Text), (4, "namespace", Kind::Text)];
const ROLE_REF: &[Field] = &[(1, "apiGroup", Kind::Text), (2, "kind", Kind::Text), (3, "name", Kind::Text)];
const BINDING: &[Field] = &[
    (1, "metadata", Kind::Message(META)),
    (2, "subjects", Kind::Messages(SUBJECT)),
    (3, "roleRef", Kind::Message(ROLE_REF)),
];
const RESOURCE: &[Field] = &[
    (1, "namespace", Kind::Text),
    (2, "verb", Kind::Text),
    (3, "group", Kind::Text),
    (4, "version", Kind::Text),
    (5, "resource", Kind::Text),
    (6, "subresource", Kind::Text),
    (7, "name", Kind::Text),
];
const OTHER_PATH: &[Field] = &[(1, "path", Kind::Text), (2, "verb", Kind::Text)];
const ACCESS: &[Field] =
    &[(1, "resourceAttributes", Kind::Message(RESOURCE)), (2, "nonResourceAttributes", Kind::Message(OTHER_PATH))];
const ACCESS_REVIEW: &[Field] = &[(1, "metadata", Kind::Message(META)), (2, "spec", Kind::Message(ACCESS))];

fn fields_of(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        ("v1", "Namespace" | "ServiceAccount") | ("authentication.k8s.io/v1", "SelfSubjectReview") => NAMESPACE,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => ACCESS_REVIEW,
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("apps/v1", "Deployment") => DEPLOYMENT,
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => ROLE,
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => BINDING,
        _ => return None,
    })
}

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
    let mut object = message(raw, fields_of(&api_version, &kind)?, MAX_DEPTH)?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Some(Value::Object(object))
}

fn message(bytes: &[u8], fields: &[Field], depth: usize) -> Option<Map<String, Value>> {
    let depth = depth.checked_sub(1)?;
    let mut made = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, part)) = reader.next()? {
        // Go writes empty fields too, of every name: only one that says something must be known.
        let Some((_, name, kind)) = fields.iter().find(|(known, _, _)| *known == number) else {
            if part.is_empty() {
                continue;
            }
            return None;
        };
        let name = (*name).to_owned();
        match (kind, part) {
            (Kind::Text, Part::Bytes(b"")) => {}
            (Kind::Text, Part::Bytes(text)) => drop(made.insert(name, json!(text_of(text)?))),
            (Kind::Number, Part::Number(number)) => drop(made.insert(name, json!(number as i64))),
            (Kind::Flag, Part::Number(flag)) => drop(made.insert(name, json!(flag != 0))),
            (Kind::Message(fields), Part::Bytes(bytes)) => {
                let inner = message(bytes, fields, depth)?;
                if !inner.is_empty() {
                    made.insert(name, Value::Object(inner));
                }
            }
            (Kind::Texts, Part::Bytes(text)) => push(&mut made, name, json!(text_of(text)?)),
            (Kind::Messages(fields), Part::Bytes(bytes)) => {
                push(&mut made, name, Value::Object(message(bytes, fields, depth)?));
            }
            (Kind::TextMap | Kind::ByteMap, Part::Bytes(bytes)) => {
                let (key, value) = entry(bytes)?;
                let value = if matches!(kind, Kind::ByteMap) { STANDARD.encode(value) } else { text_of(value)? };
                let map = made.entry(name).or_insert_with(|| json!({}));
                map.as_object_mut()?.insert(key, json!(value));
            }
            _ => return None,
        }
    }
    Some(made)
}

fn push(made: &mut Map<String, Value>, name: String, value: Value) {
    if let Value::Array(list) = made.entry(name).or_insert_with(|| json!([])) {
        list.push(value);
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
        assert_eq!(parse(&envelope("Pod", &meta)), None);
        let more = [meta.clone(), field(9, b"\x08\x01")].concat();
        assert_eq!(parse(&envelope("Namespace", &more)), None);
        assert_eq!(parse(b"{}"), None);
        let whole = envelope("Namespace", &meta);
        for cut in 0..whole.len() - 4 {
            // Cut anywhere, it is refused or lacks something, and never a panic.
            assert_ne!(parse(&whole[..cut]), parse(&whole), "{cut}");
        }
    }
}
