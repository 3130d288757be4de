//! Encryption of secrets at rest: XChaCha20-Poly1305, with the row that a secret belongs to as associated data, so that
//! a sealed value which was moved to another row does not open.

use crate::error::StoreError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use berth_model::ResourceId;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use rand::TryRngCore;
use secrecy::{ExposeSecret, SecretBox, SecretString};
use serde_json::Value;
use sha2::Sha256;
use std::collections::BTreeMap;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Every sealed text starts with this.
pub const PREFIX: &str = "sealed:v1:";

pub(crate) const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// The key, as long as it is in memory.
pub(crate) type Key = Arc<SecretBox<[u8; KEY_BYTES]>>;

/// Seals and opens with one key.
pub(crate) struct Sealer {
    cipher: XChaCha20Poly1305,
    /// Begins each digest: a key of its own, so that the cipher's key has one use.
    digest: Hmac<Sha256>,
}

/// Where a secret stands. Parts are written with their lengths, so that no two places look alike.
pub(crate) struct Place(Vec<u8>);

impl Place {
    fn new(table: &str, parts: &[&str]) -> Self {
        let mut bytes = Vec::with_capacity(128);
        for part in std::iter::once(&table).chain(parts) {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        Self(bytes)
    }

    pub fn key_check() -> Self {
        Self::new("meta", &["key_check"])
    }

    /// A secret in a manifest, by its JSON pointer.
    pub fn manifest(id: &ResourceId, pointer: &str) -> Self {
        Self::new("resources.manifest", &[&id.kind, &id.name, &id.org, &id.env, pointer])
    }

    /// In a file outside the state.
    pub fn file(pointer: &str) -> Self {
        Self::new("file.manifest", &[pointer])
    }

    pub fn status(id: &ResourceId, output: &str) -> Self {
        Self::new("resources.secrets", &[&id.kind, &id.name, &id.org, &id.env, output])
    }

    pub fn unit(id: &ResourceId, key: &str, token: &str, output: &str) -> Self {
        Self::new("units.secrets", &[&id.kind, &id.name, &id.org, &id.env, key, token, output])
    }
}

impl Sealer {
    pub fn new(key: &SecretBox<[u8; KEY_BYTES]>) -> Self {
        let cipher = XChaCha20Poly1305::new(key.expose_secret().into());
        let mut mac = keyed(key.expose_secret());
        mac.update(b"berth manifest digest v1");
        let derived: Zeroizing<[u8; KEY_BYTES]> = Zeroizing::new(mac.finalize().into_bytes().into());
        Self { cipher, digest: keyed(&derived) }
    }

    pub fn seal(&self, place: &Place, clear: &str) -> Result<String, StoreError> {
        let mut nonce = [0u8; NONCE_BYTES];
        random(&mut nonce)?;
        let sealed = self
            .cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: clear.as_bytes(), aad: &place.0 })
            .map_err(|_| StoreError::Database("a secret is too long to encrypt".into()))?;
        let mut bytes = Vec::with_capacity(NONCE_BYTES + sealed.len());
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&sealed);
        let mut text = String::with_capacity(PREFIX.len() + bytes.len() * 4 / 3 + 4);
        text.push_str(PREFIX);
        STANDARD_NO_PAD.encode_string(&bytes, &mut text);
        Ok(text)
    }

    /// `None` when the text is not sealed, not with this key, or not for this place.
    pub fn open(&self, place: &Place, sealed: &str) -> Option<SecretString> {
        let bytes = STANDARD_NO_PAD.decode(sealed.strip_prefix(PREFIX)?).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_BYTES)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
        let clear = self.cipher.decrypt(&XNonce::from(nonce), Payload { msg: sealed, aad: &place.0 }).ok()?;
        match String::from_utf8(clear) {
            Ok(text) => Some(SecretString::from(text)),
            Err(error) => {
                drop(Zeroizing::new(error.into_bytes()));
                None
            }
        }
    }

    /// Named secrets as the JSON text that a `secrets` column holds; empty for none.
    pub fn seal_all(
        &self,
        secrets: &BTreeMap<String, SecretString>,
        place: impl Fn(&str) -> Place,
    ) -> Result<String, StoreError> {
        if secrets.is_empty() {
            return Ok(String::new());
        }
        let mut sealed = BTreeMap::new();
        for (name, secret) in secrets {
            sealed.insert(name, self.seal(&place(name), secret.expose_secret())?);
        }
        serde_json::to_string(&sealed).map_err(|error| StoreError::Database(error.to_string()))
    }

    pub fn open_all(
        &self,
        column: &str,
        of: &str,
        place: impl Fn(&str) -> Place,
    ) -> Result<BTreeMap<String, SecretString>, StoreError> {
        if column.is_empty() {
            return Ok(BTreeMap::new());
        }
        let sealed: BTreeMap<String, String> = serde_json::from_str(column)
            .map_err(|error| StoreError::Corrupt { of: format!("the secrets of {of}"), cause: error.to_string() })?;
        let mut clear = BTreeMap::new();
        for (name, text) in sealed {
            let secret = self.open(&place(&name), &text).ok_or_else(|| StoreError::Sealed { of: of.to_owned() })?;
            clear.insert(name, secret);
        }
        Ok(clear)
    }

    /// Tells whether a manifest changed without opening the stored one. Keyed, because a plain hash of a manifest would let
    /// whoever has the file try out short secrets.
    pub fn digest(&self, clear: &Value) -> String {
        let mut mac = self.digest.clone();
        feed(&mut mac, clear);
        let mut text = String::with_capacity(64);
        for byte in mac.finalize().into_bytes() {
            text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
        text
    }
}

/// HMAC fills short keys up with zeros; doing that here leaves no length to be wrong about.
fn keyed(key: &[u8; KEY_BYTES]) -> Hmac<Sha256> {
    let mut block = Zeroizing::new([0u8; 64]);
    block[..KEY_BYTES].copy_from_slice(key);
    <Hmac<Sha256> as KeyInit>::new((&*block).into())
}

/// Feeds a value in a form that does not depend on the order of an object's fields. No copy of a secret is made.
fn feed(mac: &mut Hmac<Sha256>, value: &Value) {
    let text = |mac: &mut Hmac<Sha256>, tag: u8, text: &str| {
        mac.update(&[tag]);
        mac.update(&(text.len() as u64).to_le_bytes());
        mac.update(text.as_bytes());
    };
    match value {
        Value::Null => mac.update(b"n"),
        Value::Bool(true) => mac.update(b"t"),
        Value::Bool(false) => mac.update(b"f"),
        Value::Number(number) => text(mac, b'd', &number.to_string()),
        Value::String(string) => text(mac, b's', string),
        Value::Array(items) => {
            mac.update(b"a");
            mac.update(&(items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| feed(mac, item));
        }
        Value::Object(fields) => {
            mac.update(b"o");
            mac.update(&(fields.len() as u64).to_le_bytes());
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in sorted {
                text(mac, b'k', name);
                feed(mac, value);
            }
        }
    }
}

/// Fills with randomness of the operating system.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), StoreError> {
    rand::rngs::OsRng
        .try_fill_bytes(bytes)
        .map_err(|error| StoreError::Database(format!("the operating system gives no randomness: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sealer(byte: u8) -> Sealer {
        Sealer::new(&SecretBox::new(Box::new([byte; KEY_BYTES])))
    }

    #[test]
    fn opens_only_with_its_key_and_in_its_place() {
        let id = ResourceId::new("Account", "main");
        let here = Place::unit(&id, "cluster", "t1", "kubeconfig");
        let sealed = sealer(1).seal(&here, "hush").unwrap();
        assert!(sealed.starts_with(PREFIX) && !sealed.contains("hush"));
        assert_eq!(sealer(1).open(&here, &sealed).unwrap().expose_secret(), "hush");
        assert!(sealer(2).open(&here, &sealed).is_none());
        assert!(sealer(1).open(&Place::unit(&id, "cluster", "t2", "kubeconfig"), &sealed).is_none());
        assert!(sealer(1).open(&Place::unit(&id, "clustert", "1", "kubeconfig"), &sealed).is_none());
        let mut damaged = sealed.clone().into_bytes();
        let at = damaged.len() - 3;
        damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
        assert!(sealer(1).open(&here, &String::from_utf8(damaged).unwrap()).is_none());
        assert!(sealer(1).open(&here, "sealed:v1:AAAA").is_none());
        assert_ne!(sealed, sealer(1).seal(&here, "hush").unwrap(), "a nonce is never used twice");
    }

    #[test]
    fn digest_knows_values_not_order() {
        let one: Value = serde_json::from_str(r#"{"a":1,"b":["x",null]}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b":["x",null],"a":1}"#).unwrap();
        assert_eq!(sealer(1).digest(&one), sealer(1).digest(&two));
        assert_ne!(sealer(1).digest(&one), sealer(1).digest(&json!({"a": 1, "b": [null, "x"]})));
        assert_ne!(sealer(1).digest(&one), sealer(2).digest(&one));
        assert_eq!(sealer(1).digest(&one).len(), 64);
    }
}
