//! Tokens: 256 random bits. Only a hash is stored, so that read access to the database gives no access to the API.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRngCore;
use secrecy::SecretString;
use sha2::{Digest, Sha256};

/// What every token begins with, so that scanners for secrets know one when they see it.
pub const PREFIX: &str = "berth_";
const RANDOM_BYTES: usize = 32;
/// Of base64url without padding.
const TEXT_BYTES: usize = 43;

/// A new token, and the hash to keep.
pub fn make() -> Result<(SecretString, [u8; 32]), rand::rand_core::OsError> {
    let mut random = zeroize::Zeroizing::new([0; RANDOM_BYTES]);
    rand::rngs::OsRng.try_fill_bytes(random.as_mut_slice())?;
    let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random.as_slice()));
    let hash = digest(&text);
    Ok((SecretString::from(text), hash))
}

/// The hash that a token is looked up by; `None` for what cannot be one. That tokens are found by their hash leaves a
/// clock nothing to tell: whoever varies a token varies all of its hash.
pub fn hash(text: &str) -> Option<[u8; 32]> {
    let random = text.strip_prefix(PREFIX)?;
    let fits =
        random.len() == TEXT_BYTES && random.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    fits.then(|| digest(text))
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    #[test]
    fn a_token_is_found_by_its_hash_alone() {
        let (token, kept) = make().unwrap();
        let (other, _) = make().unwrap();
        let text = token.expose_secret();
        assert_eq!(text.len(), PREFIX.len() + TEXT_BYTES);
        assert_eq!(hash(text), Some(kept));
        assert_ne!(hash(other.expose_secret()), Some(kept));
        assert!(!format!("{token:?}").contains(&text[8..]));
    }

    #[test]
    fn what_cannot_be_a_token_is_not_looked_up() {
        let (token, _) = make().unwrap();
        let text = token.expose_secret();
        for bad in [
            "",
            "berth_",
            "admin",
            &text[..48],
            &format!("{text}A"),
            &text.replace("berth_", "Berth_"),
            &format!("{}!", &text[..48]),
        ] {
            assert_eq!(hash(bad), None, "{bad}");
        }
    }
}
