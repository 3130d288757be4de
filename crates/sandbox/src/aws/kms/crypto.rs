//! What keys do: encrypt, decrypt, make keys for data.
//!
//! A ciphertext is a version, the id of its key and a nonce, then AES-256-GCM's output. The encryption context is authenticated
//! with it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Found, Key, asked, find, missing};
use crate::aws::ask::{Ask, Input};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 12;
const MAX_PLAINTEXT: usize = 4096;

fn bytes(input: &Input, member: &str, shown: &str) -> Answer<Vec<u8>> {
    let text = input.text(member).ok_or_else(|| missing(shown))?;
    STANDARD.decode(text).map_err(|_| AwsError::new(400, "SerializationException", format!("{member} is not Base64")))
}

/// Whether a key can be used now.
fn ready(key: &Key) -> Answer<()> {
    match key.state() {
        "Enabled" => Ok(()),
        "Disabled" => fail("DisabledException", format!("{} is disabled.", key.arn)),
        _ => fail("KMSInvalidStateException", format!("{} is pending deletion.", key.arn)),
    }
}

fn context(input: &Input, member: &str) -> Vec<u8> {
    // Keys are in order, so that the same context gives the same bytes.
    serde_json::to_vec(&input.map(member)).unwrap_or_default()
}

fn cipher(key: &Key) -> Option<LessSafeKey> {
    let digits = key.material.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> =
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    UnboundKey::new(&AES_256_GCM, &bytes?).ok().map(LessSafeKey::new)
}

fn internal() -> Box<AwsError> {
    AwsError::new(400, "KMSInvalidStateException", "The key's material cannot be used")
}

fn sealed(key: &Key, plain: &[u8], context: &[u8]) -> Answer<Vec<u8>> {
    let nonce = ids::random::<NONCE_BYTES>();
    let mut data = plain.to_vec();
    cipher(key)
        .and_then(|cipher| {
            cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut data).ok()
        })
        .ok_or_else(internal)?;
    let id = key.id.as_bytes();
    let mut blob = vec![VERSION, id.len() as u8];
    blob.extend_from_slice(id);
    blob.extend_from_slice(&nonce);
    blob.extend_from_slice(&data);
    Ok(blob)
}

/// The key and the plaintext of a ciphertext.
fn opened(ask: &Ask, blob: &[u8], context: &[u8]) -> Answer<(Key, Vec<u8>)> {
    let invalid = || AwsError::new(400, "InvalidCiphertextException", "");
    let [VERSION, len, rest @ ..] = blob else { return Err(invalid()) };
    let (id, rest) = rest.split_at_checked(usize::from(*len)).ok_or_else(invalid)?;
    let (nonce, data) = rest.split_at_checked(NONCE_BYTES).ok_or_else(invalid)?;
    let id = std::str::from_utf8(id).map_err(|_| invalid())?;
    let Found { key, .. } = find(ask, id).map_err(|_| invalid())?;
    ready(&key)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| invalid())?;
    let mut data = data.to_vec();
    let cipher = cipher(&key).ok_or_else(internal)?;
    let len = cipher.open_in_place(nonce, Aad::from(context), &mut data).map_err(|_| invalid())?.len();
    data.truncate(len);
    Ok((key, data))
}

pub fn encrypt(ask: &mut Ask) -> Answer<Value> {
    let key = asked(ask)?.key;
    ready(&key)?;
    let plain = bytes(&ask.input, "Plaintext", "plaintext")?;
    if plain.is_empty() || plain.len() > MAX_PLAINTEXT {
        return fail(
            "ValidationException",
            format!(
                "1 validation error detected: Value at 'plaintext' failed to satisfy constraint: Member must have length between 1 and {MAX_PLAINTEXT}"
            ),
        );
    }
    let blob = sealed(&key, &plain, &context(&ask.input, "EncryptionContext"))?;
    Ok(json!({"CiphertextBlob": STANDARD.encode(blob), "KeyId": key.arn, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT"}))
}

pub fn decrypt(ask: &mut Ask) -> Answer<Value> {
    let blob = bytes(&ask.input, "CiphertextBlob", "ciphertextBlob")?;
    let (key, plain) = opened(ask, &blob, &context(&ask.input, "EncryptionContext"))?;
    if let Some(id) = ask.input.text("KeyId")
        && find(ask, id)?.key.id != key.id
    {
        return fail(
            "IncorrectKeyException",
            "The key ID in the request does not identify a CMK that can perform this operation.",
        );
    }
    Ok(json!({"Plaintext": STANDARD.encode(plain), "KeyId": key.arn, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT"}))
}

pub fn re_encrypt(ask: &mut Ask) -> Answer<Value> {
    let blob = bytes(&ask.input, "CiphertextBlob", "ciphertextBlob")?;
    let (from, plain) = opened(ask, &blob, &context(&ask.input, "SourceEncryptionContext"))?;
    let to = find(ask, ask.input.text("DestinationKeyId").ok_or_else(|| missing("destinationKeyId"))?)?.key;
    ready(&to)?;
    let blob = sealed(&to, &plain, &context(&ask.input, "DestinationEncryptionContext"))?;
    Ok(json!({
        "CiphertextBlob": STANDARD.encode(blob),
        "SourceKeyId": from.arn,
        "KeyId": to.arn,
        "SourceEncryptionAlgorithm": "SYMMETRIC_DEFAULT",
        "DestinationEncryptionAlgorithm": "SYMMETRIC_DEFAULT",
    }))
}

fn random(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rand::Rng::fill(&mut rand::rng(), bytes.as_mut_slice());
    bytes
}

pub fn generate_data_key(ask: &mut Ask) -> Answer<Value> {
    let key = asked(ask)?.key;
    ready(&key)?;
    let len = match (ask.input.text("KeySpec"), ask.input.int("NumberOfBytes")) {
        (Some("AES_256"), None) => 32,
        (Some("AES_128"), None) => 16,
        (None, Some(len @ 1..=1024)) => len as usize,
        _ => return fail("ValidationException", "Please specify either number of bytes or key spec."),
    };
    let plain = random(len);
    let blob = sealed(&key, &plain, &context(&ask.input, "EncryptionContext"))?;
    Ok(json!({"CiphertextBlob": STANDARD.encode(blob), "Plaintext": STANDARD.encode(plain), "KeyId": key.arn}))
}

pub fn generate_hidden_data_key(ask: &mut Ask) -> Answer<Value> {
    let mut answer = generate_data_key(ask)?;
    if let Some(map) = answer.as_object_mut() {
        map.remove("Plaintext");
    }
    Ok(answer)
}

pub fn generate_random(ask: &mut Ask) -> Answer<Value> {
    match ask.input.int("NumberOfBytes") {
        Some(len @ 1..=1024) => Ok(json!({"Plaintext": STANDARD.encode(random(len as usize))})),
        _ => fail(
            "ValidationException",
            "1 validation error detected: Value at 'numberOfBytes' failed to satisfy constraint: Member must have value between 1 and 1024",
        ),
    }
}
