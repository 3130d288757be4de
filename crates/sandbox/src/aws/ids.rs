//! Ids and numbers as AWS's look.

use base64::Engine;
use sha2::{Digest, Sha256};

/// `PREFIX-0` and 16 hexadecimal digits.
pub fn new(prefix: &str) -> String {
    format!("{prefix}-0{}", hex(16))
}

/// So many random hexadecimal digits, at most 32.
pub fn hex(digits: usize) -> String {
    let all = uuid::Uuid::new_v4().simple().to_string();
    all.chars().rev().take(digits).collect()
}

/// So many hexadecimal digits that are always the same for the same text, at most 64.
pub fn stable(text: &str, digits: usize) -> String {
    let mut all: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    all.truncate(digits);
    all
}

/// So many letters and digits as access keys and unique ids have them, at most 32.
pub fn upper(len: usize) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bytes = Sha256::digest(uuid::Uuid::new_v4().as_bytes());
    bytes.iter().take(len).map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
}

/// So many random bytes.
pub fn random<const N: usize>() -> [u8; N] {
    rand::random()
}

/// The forty characters of a secret access key.
pub fn secret() -> String {
    base64::engine::general_purpose::STANDARD.encode(random::<30>())
}

/// The twelve digits of an account, always the same for the same world.
pub fn account_number(account: &str) -> String {
    let digest = Sha256::digest(account.as_bytes());
    let number = digest.iter().take(8).fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
    // The first digit is never 0: tools that read it as a number would lose it.
    format!("{}{:011}", 1 + number % 9, (number / 9) % 100_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_look_like_those_of_aws() {
        let id = new("vpc");
        assert!(id.starts_with("vpc-0") && id.len() == "vpc-0123456789abcdef0".len(), "{id}");
        let number = account_number("some world");
        assert!(number.len() == 12 && number.bytes().all(|byte| byte.is_ascii_digit()), "{number}");
        assert_eq!(number, account_number("some world"));
        assert_ne!(number, account_number("another"));
        assert_eq!(upper(16).len(), 16);
    }
}
