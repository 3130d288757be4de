//! Encryption of secrets at rest. Each sealed text has a data key of its own, used once, which is itself encrypted
//! ("wrapped") with a key of the ring: a new key means wrapping data keys anew and touching no secret. Both layers are
//! XChaCha20-Poly1305 with the row that a secret belongs to as associated data, so that a sealed value which was moved to
//! another row does not open. Where a row's secrets can be written again, the row's seal number is part of it too, so that
//! an earlier value of the same row does not open either.
//!
//! ```text
//! sealed:v3:KEY-ID:base64(nonce, wrapped data key):base64(nonce, encrypted text)   bound to row and seal number
//! sealed:v2:KEY-ID:base64(nonce, wrapped data key):base64(nonce, encrypted text)   bound to the row
//! sealed:v1:base64(nonce, encrypted text)          written before there were data keys; still read
//! ```

use crate::error::StoreError;
use crate::keyring::{KeyRing, Keys, RingKey};
use crate::sealed_place::SealedPlace;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
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
pub const PREFIX: &str = "sealed:v";
pub(crate) const PREFIX_V1: &str = "sealed:v1:";
pub(crate) const PREFIX_V2: &str = "sealed:v2:";
pub(crate) const PREFIX_V3: &str = "sealed:v3:";

pub(crate) const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// A key, as long as it is in memory.
pub(crate) type Key = Arc<SecretBox<[u8; KEY_BYTES]>>;

/// Seals with the first key of a ring and opens with all of them.
pub(crate) struct Sealer {
    keys: Keys,
    /// Begins each digest: a key of its own, so that the ciphers' keys have one use and digests outlive them.
    digest: Hmac<Sha256>,
    /// Begins the authentication code of each saved plan.
    plan: Hmac<Sha256>,
    /// Names the state and tells nothing about its secret.
    state_id: String,
}

/// Why a text did not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unopened {
    /// Sealed with a key that the ring does not have.
    Unknown(String),
    /// Not sealed text, not for this place, or damaged.
    Bad,
}

impl Unopened {
    pub fn of(self, of: &str) -> StoreError {
        match self {
            Self::Unknown(key) => StoreError::KeyUnknown { of: of.to_owned(), key },
            Self::Bad => StoreError::Sealed { of: of.to_owned() },
        }
    }
}

/// What a data key is wrapped for: what its text is bound to, and the key that it is wrapped with.
fn wrap(bound: &[u8], key: &str) -> Vec<u8> {
    let mut bytes = SealedPlace::new("wrapped data key", &[key]).bytes;
    bytes.extend_from_slice(bound);
    bytes
}

/// A text of the second or third version, taken apart.
struct Parts<'t> {
    numbered: bool,
    key: &'t str,
    wrapped: &'t str,
    body: &'t str,
}

impl<'t> Parts<'t> {
    fn of(sealed: &'t str) -> Option<Self> {
        let (numbered, rest) = match sealed.strip_prefix(PREFIX_V3) {
            Some(rest) => (true, rest),
            None => (false, sealed.strip_prefix(PREFIX_V2)?),
        };
        let (key, rest) = rest.split_once(':')?;
        let (wrapped, body) = rest.split_once(':')?;
        Some(Self { numbered, key, wrapped, body })
    }

    /// The data key.
    fn unwrap(&self, bound: &[u8], ring: &KeyRing) -> Result<Zeroizing<Vec<u8>>, Unopened> {
        let key = ring.find(self.key).ok_or_else(|| Unopened::Unknown(self.key.to_owned()))?;
        let clear = decrypt(key.cipher(), self.wrapped, &wrap(bound, self.key)).map(Zeroizing::new);
        clear.filter(|key| key.len() == KEY_BYTES).ok_or(Unopened::Bad)
    }
}

/// The id of the key that a text is sealed with; empty for the first version, which does not tell, and `None` for what is
/// not sealed.
pub(crate) fn key_of(sealed: &str) -> Option<&str> {
    match Parts::of(sealed) {
        Some(parts) => Some(parts.key),
        None => sealed.starts_with(PREFIX_V1).then_some(""),
    }
}

fn encrypt(cipher: &XChaCha20Poly1305, clear: &[u8], aad: &[u8], into: &mut String) -> Result<(), StoreError> {
    let mut bytes = vec![0u8; NONCE_BYTES];
    random(&mut bytes)?;
    let nonce: [u8; NONCE_BYTES] = bytes.as_slice().try_into().unwrap_or([0; NONCE_BYTES]);
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), Payload { msg: clear, aad })
        .map_err(|_| StoreError::Database("a secret is too long to encrypt".into()))?;
    bytes.extend_from_slice(&sealed);
    STANDARD_NO_PAD.encode_string(&bytes, into);
    Ok(())
}

fn decrypt(cipher: &XChaCha20Poly1305, text: &str, aad: &[u8]) -> Option<Vec<u8>> {
    let bytes = STANDARD_NO_PAD.decode(text).ok()?;
    let (nonce, sealed) = bytes.split_at_checked(NONCE_BYTES)?;
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
    cipher.decrypt(&XNonce::from(nonce), Payload { msg: sealed, aad }).ok()
}

fn data_cipher(key: &[u8]) -> Result<XChaCha20Poly1305, Unopened> {
    XChaCha20Poly1305::new_from_slice(key).map_err(|_| Unopened::Bad)
}

/// Everything of a text but its body.
fn envelope(
    numbered: bool,
    bound: &[u8],
    key: &RingKey,
    data_key: &[u8],
    body_bytes: usize,
) -> Result<String, StoreError> {
    let mut text = String::with_capacity(PREFIX_V2.len() + key.id().len() + 100 + body_bytes);
    text.push_str(if numbered { PREFIX_V3 } else { PREFIX_V2 });
    text.push_str(key.id());
    text.push(':');
    encrypt(key.cipher(), data_key, &wrap(bound, key.id()), &mut text)?;
    text.push(':');
    Ok(text)
}

pub(crate) fn seal_with(key: &RingKey, place: &SealedPlace, clear: &str) -> Result<String, StoreError> {
    let mut data_key = Zeroizing::new([0u8; KEY_BYTES]);
    random(&mut *data_key)?;
    let body_bytes = (NONCE_BYTES + clear.len() + 16) * 4 / 3 + 4;
    let numbered = place.is_numbered();
    // A place has the form that it says it has.
    let bound = place.bound(numbered).unwrap_or_default();
    let mut text = envelope(numbered, &bound, key, &*data_key, body_bytes)?;
    encrypt(&XChaCha20Poly1305::new((&*data_key).into()), clear.as_bytes(), &bound, &mut text)?;
    Ok(text)
}

pub(crate) fn open_with(ring: &KeyRing, place: &SealedPlace, sealed: &str) -> Result<SecretString, Unopened> {
    open_and_tell(ring, place, sealed).map(|(clear, _)| clear)
}

/// The clear text, and the key that opened it.
pub(crate) fn open_and_tell<'r>(
    ring: &'r KeyRing,
    place: &SealedPlace,
    sealed: &str,
) -> Result<(SecretString, &'r RingKey), Unopened> {
    let (clear, key) = if let Some(parts) = Parts::of(sealed) {
        let bound = place.bound(parts.numbered).ok_or(Unopened::Bad)?;
        let data_key = parts.unwrap(&bound, ring)?;
        let clear = decrypt(&data_cipher(&data_key)?, parts.body, &bound).ok_or(Unopened::Bad)?;
        (clear, ring.find(parts.key).ok_or(Unopened::Bad)?)
    } else {
        let text = sealed.strip_prefix(PREFIX_V1).ok_or(Unopened::Bad)?;
        let bound = place.bound(false).ok_or(Unopened::Bad)?;
        ring.keys().find_map(|key| Some((decrypt(key.cipher(), text, &bound)?, key))).ok_or(Unopened::Bad)?
    };
    match String::from_utf8(clear) {
        Ok(text) => Ok((SecretString::from(text), key)),
        Err(error) => {
            drop(Zeroizing::new(error.into_bytes()));
            Err(Unopened::Bad)
        }
    }
}

/// The same secret with its data key wrapped by the ring's first key; `None` when it is already. `to` is where it will
/// stand: the same place, which may have got a number.
pub(crate) fn rewrap(
    ring: &KeyRing,
    from: &SealedPlace,
    to: &SealedPlace,
    sealed: &str,
) -> Result<Option<String>, Unopened> {
    let first = ring.first();
    let parts = match Parts::of(sealed) {
        Some(parts) if from.number == to.number => parts,
        _ => {
            let clear = open_with(ring, from, sealed)?;
            return seal_with(first, to, clear.expose_secret()).map(Some).map_err(|_| Unopened::Bad);
        }
    };
    if parts.key == first.id() {
        return Ok(None);
    }
    let bound = from.bound(parts.numbered).ok_or(Unopened::Bad)?;
    let data_key = parts.unwrap(&bound, ring)?;
    let text = envelope(parts.numbered, &bound, first, &data_key, parts.body.len());
    let mut text = text.map_err(|_| Unopened::Bad)?;
    text.push_str(parts.body);
    Ok(Some(text))
}

/// What digests were made with before they had a secret of their own.
pub(crate) fn first_digest_key(key: &SecretBox<[u8; KEY_BYTES]>) -> Zeroizing<[u8; KEY_BYTES]> {
    derived(key.expose_secret(), "berth manifest digest v1")
}

/// A key for one purpose, from one that has several.
pub(crate) fn derived(key: &[u8; KEY_BYTES], purpose: &str) -> Zeroizing<[u8; KEY_BYTES]> {
    let mut mac = keyed(key);
    mac.update(purpose.as_bytes());
    Zeroizing::new(mac.finalize().into_bytes().into())
}

impl Sealer {
    pub fn new(keys: Keys, digest_key: &[u8; KEY_BYTES], state_key: &[u8; KEY_BYTES]) -> Self {
        let plan = keyed(&derived(state_key, "berth saved plan v1"));
        let state_id = crate::hex(&derived(state_key, "berth state id v1")[..8]);
        Self { keys, digest: keyed(digest_key), plan, state_id }
    }

    pub fn state_id(&self) -> &str {
        &self.state_id
    }

    pub fn plan_code(&self, plan: &Value) -> String {
        crate::hex(&self.plan_mac(plan).finalize().into_bytes())
    }

    /// Takes the same time wherever the two differ.
    pub fn is_plan_code(&self, plan: &Value, code: &str) -> bool {
        crate::from_hex(code).is_some_and(|code| self.plan_mac(plan).verify_slice(&code).is_ok())
    }

    fn plan_mac(&self, plan: &Value) -> Hmac<Sha256> {
        let mut mac = self.plan.clone();
        feed(&mut mac, plan);
        mac
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub fn seal(&self, place: &SealedPlace, clear: &str) -> Result<String, StoreError> {
        seal_with(self.keys.sealing().first(), place, clear)
    }

    /// `of` is named in the error.
    pub fn open(&self, place: &SealedPlace, sealed: &str, of: &str) -> Result<SecretString, StoreError> {
        match open_with(&self.keys.ring(), place, sealed) {
            // Another server may have a newer ring.
            Err(Unopened::Unknown(_)) => open_with(&self.keys.again(), place, sealed),
            other => other,
        }
        .map_err(|unopened| unopened.of(of))
    }

    /// `None` for what was not sealed for this place with a key that is known.
    pub fn open_if_genuine(&self, place: &SealedPlace, sealed: &str) -> Result<Option<SecretString>, StoreError> {
        match self.open(place, sealed, "the state itself") {
            Ok(clear) => Ok(Some(clear)),
            Err(StoreError::Sealed { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Named secrets as the JSON text that a `secrets` column holds; empty for none.
    pub fn seal_all(
        &self,
        secrets: &BTreeMap<String, SecretString>,
        place: impl Fn(&str) -> SealedPlace,
    ) -> Result<String, StoreError> {
        if secrets.is_empty() {
            return Ok(String::new());
        }
        let mut sealed = BTreeMap::new();
        let ring = self.keys.sealing();
        for (name, secret) in secrets {
            sealed.insert(name, seal_with(ring.first(), &place(name), secret.expose_secret())?);
        }
        serde_json::to_string(&sealed).map_err(|error| StoreError::Database(error.to_string()))
    }

    pub fn open_all(
        &self,
        column: &str,
        of: &str,
        place: impl Fn(&str) -> SealedPlace,
    ) -> Result<BTreeMap<String, SecretString>, StoreError> {
        if column.is_empty() {
            return Ok(BTreeMap::new());
        }
        let sealed: BTreeMap<String, String> = serde_json::from_str(column)
            .map_err(|error| StoreError::Corrupt { of: format!("the secrets of {of}"), cause: error.to_string() })?;
        let mut clear = BTreeMap::new();
        for (name, text) in sealed {
            let secret = self.open(&place(&name), &text, of)?;
            clear.insert(name, secret);
        }
        Ok(clear)
    }

    /// Tells whether a manifest changed without opening the stored one. Keyed, because a plain hash of a manifest would let
    /// whoever has the file try out short secrets.
    pub fn digest(&self, clear: &Value) -> String {
        let mut mac = self.digest.clone();
        feed(&mut mac, clear);
        crate::hex(&mac.finalize().into_bytes())
    }
}

/// HMAC fills short keys up with zeros; doing that here leaves no length to be wrong about.
pub(crate) fn keyed(key: &[u8; KEY_BYTES]) -> Hmac<Sha256> {
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
    use crate::key::KeySource;
    use crate::sealed_place::SealNumber;
    use berth_model::ResourceId;
    use serde_json::json;

    fn ring(bytes: &[u8]) -> KeyRing {
        let key = |byte: &u8| KeyRing::of(Arc::new(SecretBox::new(Box::new([*byte; KEY_BYTES]))));
        bytes.iter().rev().map(key).reduce(|ring, first| ring.after(&first)).unwrap()
    }

    fn sealer(byte: u8) -> Sealer {
        let source = KeySource::Given(Arc::new(SecretBox::new(Box::new([byte; KEY_BYTES]))));
        Sealer::new(Keys::new(source, ring(&[byte]), None), &[byte; KEY_BYTES], &[byte; KEY_BYTES])
    }

    /// As the first version did it.
    fn seal_v1(byte: u8, place: &SealedPlace, clear: &str) -> String {
        let mut text = PREFIX_V1.to_owned();
        encrypt(ring(&[byte]).first().cipher(), clear.as_bytes(), &place.bytes, &mut text).unwrap();
        text
    }

    fn place(token: &str) -> SealedPlace {
        numbered(token, 0)
    }

    fn numbered(token: &str, number: i64) -> SealedPlace {
        SealedPlace::unit(&ResourceId::new("Account", "main"), "cluster", token, "kubeconfig", SealNumber(number))
    }

    #[test]
    fn opens_only_with_its_key_and_in_its_place() {
        let here = place("t1");
        for sealed in [sealer(1).seal(&here, "hush").unwrap(), seal_v1(1, &here, "hush")] {
            let open = |byte: u8, place: &SealedPlace, text: &str| open_with(&ring(&[byte]), place, text).ok();
            assert!(sealed.starts_with(PREFIX) && !sealed.contains("hush"));
            assert_eq!(open(1, &here, &sealed).unwrap().expose_secret(), "hush");
            assert!(open(2, &here, &sealed).is_none());
            assert!(open(1, &place("t2"), &sealed).is_none());
            let id = ResourceId::new("Account", "main");
            assert!(
                open(1, &SealedPlace::unit(&id, "clustert", "1", "kubeconfig", SealNumber::NONE), &sealed).is_none()
            );
            // Whichever part of it is changed.
            for at in PREFIX.len() + 2..sealed.len() {
                let mut damaged = sealed.clone().into_bytes();
                damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
                let damaged = String::from_utf8(damaged).unwrap();
                // The last character of a base64 text has bits that count for nothing.
                let counts = open(1, &here, &damaged).is_none() || at + 1 == sealed.len();
                assert!(counts, "{at} of {sealed}");
            }
        }
        assert!(matches!(open_with(&ring(&[1]), &here, "sealed:v1:AAAA"), Err(Unopened::Bad)));
        assert!(matches!(open_with(&ring(&[1]), &here, "sealed:v2:k:AAAA:AAAA"), Err(Unopened::Unknown(_))));
        assert!(matches!(open_with(&ring(&[1]), &here, "hush"), Err(Unopened::Bad)));
        let again = || sealer(1).seal(&here, "hush").unwrap();
        assert_ne!(again(), again(), "neither a data key nor a nonce is used twice");
    }

    #[test]
    fn a_text_names_its_key_and_is_wrapped_anew_without_its_secret_being_touched() {
        let here = place("t1");
        let (old, both, new) = (ring(&[1]), ring(&[2, 1]), ring(&[2]));
        let sealed = seal_with(old.first(), &here, "hush").unwrap();
        assert_eq!(key_of(&sealed), Some(old.first().id()));
        let rewrap = |ring: &KeyRing, place: &SealedPlace, sealed: &str| super::rewrap(ring, place, place, sealed);
        assert_eq!(rewrap(&old, &here, &sealed).unwrap(), None);
        let unknown = Unopened::Unknown(old.first().id().to_owned());
        assert_eq!(open_with(&new, &here, &sealed).err(), Some(unknown));

        let wrapped = rewrap(&both, &here, &sealed).unwrap().unwrap();
        assert_eq!(key_of(&wrapped), Some(new.first().id()));
        assert_eq!(Parts::of(&wrapped).unwrap().body, Parts::of(&sealed).unwrap().body);
        assert_eq!(open_with(&new, &here, &wrapped).unwrap().expose_secret(), "hush");
        assert!(open_with(&old, &here, &wrapped).is_err());
        assert_eq!(rewrap(&both, &place("t2"), &sealed), Err(Unopened::Bad), "not for another place");

        let first = seal_v1(1, &here, "hush");
        assert_eq!((key_of(&first), key_of("hush")), (Some(""), None));
        let wrapped = rewrap(&both, &here, &first).unwrap().unwrap();
        assert_eq!(open_with(&new, &here, &wrapped).unwrap().expose_secret(), "hush");
    }

    #[test]
    fn an_earlier_text_of_the_same_row_does_not_open() {
        let (ring, both) = (ring(&[1]), ring(&[2, 1]));
        let (first, second) = (numbered("t1", 7), numbered("t1", 8));
        let sealed = seal_with(ring.first(), &first, "hush").unwrap();
        assert!(sealed.starts_with(PREFIX_V3));
        assert_eq!(open_with(&ring, &first, &sealed).unwrap().expose_secret(), "hush");
        let before = seal_with(ring.first(), &place("t1"), "old").unwrap();
        let oldest = seal_v1(1, &place("t1"), "oldest");
        assert!(before.starts_with(PREFIX_V2));
        for (place, text) in [(&second, &sealed), (&place("t1"), &sealed), (&first, &before), (&first, &oldest)] {
            assert_eq!(open_with(&ring, place, text).err(), Some(Unopened::Bad));
            // Nor may a rotation take it for the current one.
            assert_eq!(rewrap(&both, place, place, text).err(), Some(Unopened::Bad));
        }
        // Neither does a text whose form was changed to fit.
        let disguised = before.replace(PREFIX_V2, PREFIX_V3);
        assert_eq!(open_with(&ring, &first, &disguised).err(), Some(Unopened::Bad));
        for text in [&before, &oldest] {
            let bound = rewrap(&ring, &place("t1"), &first, text).unwrap().expect("a number is a reason to seal again");
            assert!(open_with(&ring, &first, &bound).is_ok() && open_with(&ring, &place("t1"), &bound).is_err());
        }
        assert!(SealNumber::draw().unwrap().0 > 0);
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

    #[test]
    fn a_plan_has_a_code_of_its_state_alone() {
        let plan = json!({"action": "unchanged", "port": 443});
        let code = sealer(1).plan_code(&plan);
        assert!(sealer(1).is_plan_code(&plan, &code));
        assert!(!sealer(2).is_plan_code(&plan, &code), "another state's");
        assert_ne!(code, sealer(1).digest(&plan), "a digest in the database is no code");
        assert_ne!(sealer(1).state_id(), sealer(2).state_id());
        for (changed, code) in [
            (json!({"action": "delete", "port": 443}), code.as_str()),
            (json!({"action": "unchanged", "port": "443"}), &code),
            (json!({"action": "unchanged", "port": 443, "more": null}), &code),
            (plan.clone(), ""),
            (plan.clone(), &code[..62]),
            (plan.clone(), "zz"),
        ] {
            assert!(!sealer(1).is_plan_code(&changed, code), "{changed} {code}");
        }
    }
}
