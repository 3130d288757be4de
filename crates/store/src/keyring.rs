//! The key ring: one key or several, of which the first seals and all open. Servers read it again when it changes, so that
//! a new key needs no restart.

use crate::error::StoreError;
use crate::key::{Found, KeySource, Stamp};
use crate::seal::{KEY_BYTES, Key, derived, keyed, random};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretBox};
use sha2::Sha256;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use zeroize::{Zeroize, Zeroizing};

/// Keys in one ring.
pub const KEYS_MAX: usize = 64;
const ID_CHARS_MAX: usize = 64;
/// How often a ring's file is looked at, and how soon after a vain look for an unknown key the next one comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A command costs more than a look at a file.
const RUN_EVERY: Duration = Duration::from_secs(60);

/// One key of a ring.
pub(crate) struct RingKey {
    id: String,
    /// What the key is called when nobody named it: texts that were sealed before it got a name carry this one.
    print: String,
    secret: Key,
    cipher: XChaCha20Poly1305,
}

impl RingKey {
    fn new(id: Option<String>, secret: Key) -> Self {
        let print = fingerprint(secret.expose_secret());
        let cipher = XChaCha20Poly1305::new(secret.expose_secret().into());
        Self { id: id.unwrap_or_else(|| print.clone()), print, secret, cipher }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn cipher(&self) -> &XChaCha20Poly1305 {
        &self.cipher
    }

    pub fn secret(&self) -> &SecretBox<[u8; KEY_BYTES]> {
        &self.secret
    }

    /// Of everything in a backup, by its hash and the number of its rows.
    pub fn backup_mac(&self, sha256: &[u8], rows: u64) -> Hmac<Sha256> {
        let mut mac = keyed(&derived(self.secret.expose_secret(), "berth backup v2"));
        mac.update(sha256);
        mac.update(&rows.to_le_bytes());
        mac
    }

    pub fn is_called(&self, id: &str) -> bool {
        self.id == id || self.print == id
    }

    fn same(&self, other: &RingKey) -> bool {
        self.secret.expose_secret() == other.secret.expose_secret()
    }

    fn copy(&self) -> Self {
        Self {
            id: self.id.clone(),
            print: self.print.clone(),
            secret: self.secret.clone(),
            cipher: self.cipher.clone(),
        }
    }
}

/// A name that tells nothing about the key: eight digits of a keyed hash.
fn fingerprint(key: &[u8; KEY_BYTES]) -> String {
    let mut mac = keyed(key);
    mac.update(b"berth key id v1");
    let hash = mac.finalize().into_bytes();
    format!("k{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3])
}

/// At least one key. The first one seals, all of them open.
pub struct KeyRing {
    keys: Vec<RingKey>,
}

impl KeyRing {
    pub(crate) fn of(secret: Key) -> Self {
        Self { keys: vec![RingKey::new(None, secret)] }
    }

    /// A new random key alone.
    pub fn generate() -> Result<Self, StoreError> {
        use secrecy::ExposeSecretMut;
        let mut key = SecretBox::<[u8; KEY_BYTES]>::default();
        random(key.expose_secret_mut())?;
        Ok(Self::of(Arc::new(key)))
    }

    /// One key on each line: `ID BASE64`, or the key alone. Lines that are empty or begin with `#` are left out.
    pub fn parse(text: &[u8], place: &str) -> Result<Self, StoreError> {
        let bad = |cause: String| StoreError::Key { place: place.to_owned(), cause };
        let mut ring = Self { keys: Vec::new() };
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let at =
                || if text.trim_ascii().contains(&b'\n') { format!("line {}: ", number + 1) } else { String::new() };
            let (id, key) = match line.iter().position(u8::is_ascii_whitespace) {
                Some(end) => {
                    let id = std::str::from_utf8(&line[..end]).ok().filter(|id| good_id(id));
                    let id = id.ok_or_else(|| bad(format!("{}an id is letters, digits, `.`, `_` and `-`", at())))?;
                    (Some(id.to_owned()), line[end..].trim_ascii())
                }
                None => (None, line),
            };
            let secret = decode_key(key).ok_or_else(|| bad(format!("{}it is not 32 bytes in base64 or hex", at())))?;
            let key = RingKey::new(id, secret);
            if ring.keys.iter().any(|other| other.same(&key) || other.is_called(&key.id)) {
                return Err(bad(format!("{}the same key or id stands there twice", at())));
            }
            if ring.keys.len() == KEYS_MAX {
                return Err(bad(format!("it has more than {KEYS_MAX} keys")));
            }
            ring.keys.push(key);
        }
        match ring.keys.is_empty() {
            true => Err(bad("it is not 32 bytes in base64 or hex".into())),
            false => Ok(ring),
        }
    }

    /// As [`KeyRing::parse`] reads it.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(self.keys.len() * (ID_CHARS_MAX + 2 * KEY_BYTES)));
        for key in &self.keys {
            text.push_str(&key.id);
            text.push(' ');
            STANDARD.encode_string(key.secret.expose_secret(), &mut text);
            text.push('\n');
        }
        text
    }

    /// The names of the keys, the one that seals first.
    pub fn ids(&self) -> Vec<String> {
        self.keys.iter().map(|key| key.id.clone()).collect()
    }

    pub(crate) fn first(&self) -> &RingKey {
        // A ring is never empty: every way to make one sees to it.
        &self.keys[0]
    }

    pub(crate) fn find(&self, id: &str) -> Option<&RingKey> {
        self.keys.iter().find(|key| key.is_called(id))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &RingKey> {
        self.keys.iter()
    }

    /// The name by which the ring knows a key that a text names.
    pub fn name_of(&self, id: &str) -> Option<&str> {
        self.find(id).map(RingKey::id)
    }

    /// This ring with the keys of another before it.
    pub fn after(&self, first: &KeyRing) -> Self {
        let mut keys: Vec<RingKey> = first.keys.iter().map(RingKey::copy).collect();
        for key in &self.keys {
            if !keys.iter().any(|other| other.same(key)) {
                keys.push(key.copy());
            }
        }
        Self { keys }
    }

    /// Without one of its keys; `None` when there is no such key, or no other.
    pub fn without(&self, id: &str) -> Option<Self> {
        let keys: Vec<RingKey> = self.keys.iter().filter(|key| !key.is_called(id)).map(RingKey::copy).collect();
        (!keys.is_empty() && keys.len() < self.keys.len()).then_some(Self { keys })
    }

    /// With one of its keys first; `None` when there is no such key.
    pub fn with_first(&self, id: &str) -> Option<Self> {
        let first = Self { keys: vec![self.find(id)?.copy()] };
        Some(self.after(&first))
    }

    fn shares_a_key(&self, other: &KeyRing) -> bool {
        self.keys.iter().any(|key| other.keys.iter().any(|one| one.same(key)))
    }

    /// Whether every key of the other is in this one.
    pub fn covers(&self, other: &KeyRing) -> bool {
        other.keys.iter().all(|key| self.keys.iter().any(|one| one.same(key)))
    }
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.id)).finish()
    }
}

fn good_id(id: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !id.is_empty() && id.len() <= ID_CHARS_MAX && id.chars().all(good)
}

fn decode_key(text: &[u8]) -> Option<Key> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_BYTES));
    let ok = if text.len() == KEY_BYTES * 2 { hex(text, &mut bytes) } else { base64(text, &mut bytes) };
    let mut array: [u8; KEY_BYTES] = bytes.as_slice().try_into().ok().filter(|_| ok)?;
    let key = SecretBox::init_with_mut(|key: &mut [u8; KEY_BYTES]| key.copy_from_slice(&array));
    array.zeroize();
    Some(Arc::new(key))
}

fn base64(text: &[u8], into: &mut Vec<u8>) -> bool {
    if text.len() > KEY_BYTES * 2 {
        return false;
    }
    let engine = if text.ends_with(b"=") { &STANDARD } else { &STANDARD_NO_PAD };
    engine.decode_vec(text, into).is_ok()
}

fn hex(text: &[u8], into: &mut Vec<u8>) -> bool {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for pair in text.chunks_exact(2) {
        match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => into.push((high * 16 + low) as u8),
            _ => return false,
        }
    }
    true
}

/// The ring in use, and where it comes from.
pub(crate) struct Keys(Arc<Live>);

struct Live {
    source: KeySource,
    ring: RwLock<Arc<KeyRing>>,
    looked: Mutex<Looked>,
    /// A command runs beside.
    running: AtomicBool,
}

struct Looked {
    at: Instant,
    stamp: Option<Stamp>,
}

impl Keys {
    /// `stamp` was taken before the ring was read, so that a change in between is seen.
    pub fn new(source: KeySource, ring: KeyRing, stamp: Option<Stamp>) -> Self {
        let looked = Mutex::new(Looked { at: Instant::now(), stamp });
        Self(Arc::new(Live { source, ring: RwLock::new(Arc::new(ring)), looked, running: AtomicBool::new(false) }))
    }

    pub fn ring(&self) -> Arc<KeyRing> {
        self.0.ring()
    }

    /// The ring to seal with. A file that changed is seen within a second; a command is asked each minute, beside.
    pub fn sealing(&self) -> Arc<KeyRing> {
        let command = self.0.source.is_command();
        let every = if command { RUN_EVERY } else { LOOK_EVERY };
        if self.0.is_due(every) {
            if !command {
                self.0.look();
            } else if !self.0.running.swap(true, Ordering::AcqRel) {
                let live = self.0.clone();
                std::thread::spawn(move || {
                    live.read();
                    live.running.store(false, Ordering::Release);
                });
            }
        }
        self.ring()
    }

    /// The ring after another look at its source, for a key that is not in it. At most one look each second.
    pub fn again(&self) -> Arc<KeyRing> {
        if self.0.is_due(LOOK_EVERY) {
            waiting(|| self.0.read());
        }
        self.ring()
    }

    /// The ring as it is at its source now.
    pub fn fresh(&self) -> Result<Arc<KeyRing>, StoreError> {
        waiting(|| self.0.read_now())
    }
}

/// Tells the runtime that this thread waits, where it has others to go on with.
fn waiting<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

impl Live {
    fn ring(&self) -> Arc<KeyRing> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is time to read the ring again; a caller who gets `true` must do so.
    fn is_due(&self, every: Duration) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = looked.at.elapsed() >= every;
        if due {
            looked.at = Instant::now();
        }
        due
    }

    fn look(&self) {
        let stamp = self.source.stamp();
        let changed = {
            let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
            stamp.is_some() && looked.stamp.replace_if_other(stamp)
        };
        if changed {
            self.read();
        }
    }

    fn read(&self) {
        if let Err(error) = self.read_now() {
            tracing::warn!(%error, "the key ring cannot be read again; the one in use stays");
        }
    }

    fn read_now(&self) -> Result<Arc<KeyRing>, StoreError> {
        let stamp = self.source.stamp();
        let (ring, place) = match self.source.find()? {
            Found::Keys { ring, place } => (ring, place),
            Found::Absent { path } => {
                let place = path.display().to_string();
                return Err(StoreError::Key { place, cause: "there is no such file".into() });
            }
        };
        let now = self.ring();
        // A ring that has nothing in common with the one in use is not its successor but a mistake.
        if !ring.shares_a_key(&now) {
            return Err(StoreError::Key { place, cause: "it holds none of the keys in use".into() });
        }
        let before = now.ids();
        let ring = Arc::new(ring);
        if before != ring.ids() {
            tracing::info!(place, keys = ?ring.ids(), "the key ring changed");
        }
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring.clone();
        self.looked.lock().unwrap_or_else(PoisonError::into_inner).stamp = stamp;
        Ok(ring)
    }
}

trait ReplaceIfOther {
    fn replace_if_other(&mut self, other: Self) -> bool;
}

impl ReplaceIfOther for Option<Stamp> {
    fn replace_if_other(&mut self, other: Self) -> bool {
        let differs = *self != other;
        *self = other;
        differs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(text: &str) -> KeyRing {
        KeyRing::parse(text.as_bytes(), "the test").unwrap()
    }

    #[test]
    fn a_ring_is_one_key_or_a_line_for_each() {
        let plain = ring(&"ab".repeat(32));
        assert_eq!(plain.ids().len(), 1);
        let two = ring(&format!("# mine\n\nnew {}\r\n{}\n", STANDARD.encode([7u8; 32]), "ab".repeat(32)));
        assert_eq!(two.ids(), ["new".to_owned(), plain.ids()[0].clone()]);
        assert_eq!(ring(&two.text()).ids(), two.ids());
        // A key that got a name later still opens what was sealed before.
        let named = ring(&format!("old {}", "ab".repeat(32)));
        assert_eq!(named.name_of(&plain.ids()[0]), Some("old"));
        assert!(two.covers(&named) && !named.covers(&two));
        assert_eq!(named.after(&two).ids(), two.ids());
        assert_eq!(two.without("new").unwrap().ids(), plain.ids());
        assert!(plain.without(&plain.ids()[0]).is_none() && two.without("other").is_none());
        assert_eq!(two.with_first(&plain.ids()[0]).unwrap().ids()[1], "new");
    }

    #[test]
    fn bad_rings_are_refused_without_being_shown() {
        let key = "ab".repeat(32);
        for bad in [
            "",
            "# only a remark",
            "short",
            "!!!!",
            &"zz".repeat(32),
            &"ab".repeat(33),
            &STANDARD.encode([1u8; 31]),
            &format!("a {key}\nb {key}"),
            &format!("a {key}\na {}", "cd".repeat(32)),
            &format!("a b {key}"),
            &format!("a: {key}"),
        ] {
            let error = KeyRing::parse(bad.as_bytes(), "the test").unwrap_err();
            assert!(matches!(&error, StoreError::Key { place, .. } if place == "the test"), "{bad}");
            assert!(bad.is_empty() || !error.to_string().contains(bad) && !error.to_string().contains(&key));
        }
        let many: String = (0..=KEYS_MAX).map(|n| format!("k{n} {}\n", STANDARD.encode([n as u8; 32]))).collect();
        assert!(KeyRing::parse(many.as_bytes(), "the test").unwrap_err().to_string().contains("64"));
        assert!(!format!("{:?}", ring(&key)).contains(&key));
    }
}
