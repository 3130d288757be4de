//! Tokens of service accounts: signed by one key of the sandbox, with an issuer of its own for each cluster, whose documents
//! anybody may read.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::identity;

/// Whom tokens are for where nothing else is asked.
pub const API_AUDIENCE: &str = "https://kubernetes.default.svc";
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Makes and checks tokens. The key is made when it is first needed, as that takes a moment.
pub struct Issuer {
    /// Host and port of the clusters' server.
    address: String,
    folder: Option<PathBuf>,
    key: OnceLock<Option<Key>>,
}

struct Key {
    pair: KeyPair,
    id: String,
}

/// Whom a token was made for.
pub struct TokenFor<'a> {
    pub cluster: &'a str,
    pub namespace: &'a str,
    pub account: &'a str,
    pub uid: &'a str,
    pub audiences: Vec<String>,
    pub seconds: i64,
}

impl Issuer {
    pub fn new(address: String, folder: Option<PathBuf>) -> Issuer {
        Issuer { address, folder, key: OnceLock::new() }
    }

    /// `https://127.0.0.1:PORT/id/CLUSTER`
    pub fn url(&self, cluster: &str) -> String {
        format!("https://{}/id/{cluster}", self.address)
    }

    fn key(&self) -> Option<&Key> {
        let made = self.key.get_or_init(|| match Key::load_or_make(self.folder.as_deref()) {
            Ok(key) => Some(key),
            Err(reason) => {
                tracing::error!(reason, "the sandbox has no key for service accounts' tokens");
                None
            }
        });
        made.as_ref()
    }

    /// `/.well-known/openid-configuration`
    pub fn configuration(&self, cluster: &str) -> Value {
        let url = self.url(cluster);
        json!({
            "issuer": url, "jwks_uri": format!("{url}/keys"), "authorization_endpoint": "urn:kubernetes:programmatic_authorization",
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"], "claims_supported": ["sub", "iss"],
        })
    }

    /// The key that tokens are checked with, as a JSON Web Key Set.
    pub fn keys(&self) -> Value {
        let Some(key) = self.key() else { return json!({"keys": []}) };
        let (modulus, exponent) = numbers(key.pair.public_key().as_ref()).unwrap_or_default();
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": key.id, "n": text(modulus), "e": text(exponent)}]})
    }

    /// The key that signs tokens and the one that checks them, in PEM, for a real API server to do so.
    pub fn key_pem(&self) -> Result<(String, String), String> {
        let pair = &self.key().ok_or("the sandbox has no key for tokens")?.pair;
        let private: Pkcs8V1Der<'_> = pair.as_der().map_err(|error| error.to_string())?;
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(|error| error.to_string())?;
        Ok((pem("PRIVATE KEY", private.as_ref()), pem("PUBLIC KEY", public.as_ref())))
    }

    /// A token and the second at which it expires. Tokens live by the wall clock: clients look at it.
    pub fn sign(&self, wanted: &TokenFor) -> Option<(String, i64)> {
        let (key, now) = (self.key()?, wall_seconds());
        let expires = now + wanted.seconds;
        let header = json!({"alg": "RS256", "kid": key.id});
        let claims = json!({
            "iss": self.url(wanted.cluster), "aud": wanted.audiences, "iat": now, "nbf": now, "exp": expires,
            "jti": crate::world::new_id(), "sub": format!("system:serviceaccount:{}:{}", wanted.namespace, wanted.account),
            "kubernetes.io": {"namespace": wanted.namespace, "serviceaccount": {"name": wanted.account, "uid": wanted.uid}},
        });
        let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", text(&header), text(&claims));
        let mut signature = vec![0; key.pair.public_modulus_len()];
        key.pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).ok()?;
        Some((format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)), expires))
    }

    /// The claims of a token that this sandbox signed and that has not expired; what is wrong with it otherwise.
    pub fn check(&self, token: &str) -> Result<Value, String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err("the token is too long".into());
        }
        let (signed, signature) = token.rsplit_once('.').ok_or("the token has no signature")?;
        let (header, claims) = signed.split_once('.').ok_or("the token has no claims")?;
        let decode = |text: &str| -> Result<Value, String> {
            let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| "the token is not base64url")?;
            serde_json::from_slice(&bytes).map_err(|_| "the token does not hold JSON".to_owned())
        };
        if decode(header)?["alg"] != "RS256" {
            return Err("the token is not signed with RS256".into());
        }
        let key = self.key().ok_or("the sandbox has no key for tokens")?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "the signature is not base64url")?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.pair.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| "the token's signature is wrong")?;
        let claims = decode(claims)?;
        match claims["exp"].as_i64().is_some_and(|expires| wall_seconds() < expires) {
            true => Ok(claims),
            false => Err("the token has expired".into()),
        }
    }
}

impl Key {
    fn load_or_make(folder: Option<&Path>) -> Result<Key, String> {
        let file = folder.map(|folder| folder.join("service-account-key.der"));
        if let Some(kept) = file.as_deref().and_then(|file| std::fs::read(file).ok()) {
            let pair = KeyPair::from_pkcs8(&kept).map_err(|error| error.to_string())?;
            return Ok(Key::of(pair));
        }
        let pair = KeyPair::generate(KeySize::Rsa2048).map_err(|error| error.to_string())?;
        if let Some(file) = &file {
            let der = pair.as_der().map_err(|error| error.to_string())?;
            identity::write_private(file, der.as_ref()).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(Key::of(pair))
    }

    fn of(pair: KeyPair) -> Key {
        // As kube-apiserver names it, so that the tokens of both are found in the same document.
        let der: Result<PublicKeyX509Der<'_>, _> = pair.public_key().as_der();
        let id = der.map(|der| URL_SAFE_NO_PAD.encode(Sha256::digest(der.as_ref()))).unwrap_or_default();
        Key { pair, id }
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).filter_map(|at| text.get(at..text.len().min(at + 64))).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn wall_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Modulus and exponent of an RSA public key in DER: a sequence of two integers.
fn numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sequence, _) = element(der, 0x30)?;
    let (modulus, rest) = element(sequence, 0x02)?;
    let (exponent, _) = element(rest, 0x02)?;
    // A zero in front only says that the number is positive.
    Some((modulus.strip_prefix(&[0]).unwrap_or(modulus), exponent.strip_prefix(&[0]).unwrap_or(exponent)))
}

/// The content of a DER element, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short if short < 0x80 => (usize::from(short), rest),
        long => {
            let count = usize::from(long & 0x7f);
            let bytes = rest.get(..count).filter(|_| count <= 4)?;
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest.get(count..)?)
        }
    };
    (*first == tag).then_some((rest.get(..length)?, rest.get(length..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_taken_as_they_were_made_and_in_no_other_form() {
        let issuer = Issuer::new("127.0.0.1:1".into(), None);
        let wanted = TokenFor {
            cluster: "c",
            namespace: "shop",
            account: "bot",
            uid: "u",
            audiences: vec!["some.service".into()],
            seconds: 600,
        };
        let (token, _) = issuer.sign(&wanted).unwrap();
        let claims = issuer.check(&token).unwrap();
        assert_eq!(claims["sub"], "system:serviceaccount:shop:bot");
        assert_eq!(claims["iss"], "https://127.0.0.1:1/id/c");
        let (expired, _) = issuer.sign(&TokenFor { seconds: -1, ..wanted }).unwrap();
        let (head, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = head.split_once('.').unwrap();
        let forged = URL_SAFE_NO_PAD
            .encode(json!({"sub": "system:serviceaccount:kube-system:admin", "exp": i64::MAX}).to_string());
        let unsigned = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        let other = Issuer::new("127.0.0.1:1".into(), None);
        for (bad, why) in [
            (expired, "expired"),
            (format!("{header}.{forged}.{signature}"), "signature is wrong"),
            (format!("{unsigned}.{forged}."), "RS256"),
            (head.to_owned(), ""),
            ("x".repeat(MAX_TOKEN_BYTES + 1), "too long"),
            (String::new(), "no signature"),
        ] {
            let error = issuer.check(&bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
        assert!(other.check(&token).is_err(), "signed with another sandbox's key");
        let keys = issuer.keys();
        assert_eq!(keys["keys"][0]["e"], "AQAB");
        assert_eq!(URL_SAFE_NO_PAD.decode(keys["keys"][0]["n"].as_str().unwrap()).unwrap().len(), 256);
    }
}
