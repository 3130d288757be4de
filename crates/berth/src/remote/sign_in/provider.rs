//! Calls to an identity provider. Answers are bounded, addresses are https or this machine's own, redirects are not followed.

use crate::failure::Failure;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use berth_server::access::oidc::is_loopback;
use rand::TryRngCore;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

const ANSWER_BYTES_MAX: usize = 1 << 20;
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A provider that was found.
pub struct Provider {
    pub issuer: String,
    pub client_id: String,
    pub scopes: Vec<String>,
    pub authorization_endpoint: Url,
    token_endpoint: Url,
    pub device_endpoint: Option<Url>,
    http: reqwest::Client,
}

impl Provider {
    /// Reads where a provider's pages are.
    pub async fn find(issuer: &str, client_id: &str, scopes: &[String], ca: Option<&Path>) -> Result<Self, Failure> {
        let mut builder = reqwest::Client::builder()
            .timeout(ANSWER_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("berth/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = ca {
            let pem = crate::remote::contexts::read_ca(path)?;
            let certificates = reqwest::Certificate::from_pem_bundle(pem.as_bytes()).map_err(|error| {
                Failure::caused(format!("cannot use the certificates in {}", path.display()), &error)
            })?;
            builder = builder.tls_certs_merge(certificates);
        }
        let http = builder.build().map_err(|error| Failure::caused("cannot prepare calls to the provider", &error))?;
        let start = endpoint(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')))?;
        let found = answer(http.get(start).send().await, issuer).await?.1;
        if found["issuer"].as_str() != Some(issuer) {
            return Err(Failure::new(format!("the identity provider at {issuer} says that it is another")));
        }
        let place = |name: &str| match found[name].as_str() {
            Some(text) => endpoint(text).map(Some),
            None => Ok(None),
        };
        let missing =
            |what: &str| Failure::new(format!("the identity provider {issuer} does not say where its {what} is"));
        Ok(Self {
            issuer: issuer.to_owned(),
            client_id: client_id.to_owned(),
            scopes: scopes.to_vec(),
            authorization_endpoint: place("authorization_endpoint")?.ok_or_else(|| missing("login page"))?,
            token_endpoint: place("token_endpoint")?.ok_or_else(|| missing("token endpoint"))?,
            device_endpoint: place("device_authorization_endpoint")?,
            http,
        })
    }

    /// The token endpoint's answer, whether it is a token or an error.
    pub async fn token(&self, form: &[(&str, &str)]) -> Result<Answered, Failure> {
        let answer = self.post(&self.token_endpoint, form).await?;
        match answer["error"].as_str() {
            None => {}
            Some(code) => {
                let about = answer["error_description"].as_str().unwrap_or_default();
                return Ok(Answered::Refused { code: code.to_owned(), about: about.to_owned() });
            }
        }
        let token = answer["id_token"].as_str().map(|text| SecretString::from(text.to_owned()));
        token.map(Answered::Token).ok_or_else(|| {
            Failure::new(format!("the identity provider {} gave no ID token", self.issuer))
                .help("the client there needs the scope `openid`")
        })
    }

    pub async fn post(&self, url: &Url, form: &[(&str, &str)]) -> Result<Value, Failure> {
        let mut encoded = url.clone();
        encoded.set_query(None);
        encoded.query_pairs_mut().extend_pairs(form);
        let request = self
            .http
            .post(url.clone())
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(encoded.query().unwrap_or_default().to_owned());
        let (fine, answer) = answer(request.send().await, &self.issuer).await?;
        if !fine && answer["error"].as_str().is_none() {
            return Err(Failure::new(format!("the identity provider {} did not answer as it should", self.issuer)));
        }
        Ok(answer)
    }
}

pub enum Answered {
    Token(SecretString),
    Refused { code: String, about: String },
}

/// Whether it went well, and the JSON. Errors of the provider's own are JSON too.
async fn answer(sent: Result<reqwest::Response, reqwest::Error>, issuer: &str) -> Result<(bool, Value), Failure> {
    let failed = |error: reqwest::Error| {
        Failure::caused(format!("cannot ask the identity provider {issuer}"), &error.without_url())
            .help("its certificate's authority, where this machine does not know it:   --oidc-ca FILE")
    };
    let mut response = sent.map_err(failed)?;
    let fine = response.status().is_success();
    let status = response.status();
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(Failure::new(format!("the identity provider {issuer} answered with too much")));
        }
        bytes.extend_from_slice(&chunk);
    }
    let value = serde_json::from_slice(&bytes).map_err(|_| {
        Failure::new(format!("the identity provider {issuer} answered with {status} and no JSON"))
            .help("check the server's --oidc-issuer")
    })?;
    Ok((fine, value))
}

fn endpoint(text: &str) -> Result<Url, Failure> {
    let bad = |why: &str| Failure::new(format!("`{text}` is not an address of an identity provider: {why}"));
    let url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => Err(bad("it is not https")),
    }
}

/// Random bytes as text: for a state, a nonce, a verifier.
pub fn random() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    rand::rngs::OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| Failure::caused("the system gives no random bytes", &error))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The code challenge of a verifier (RFC 7636, S256).
pub fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

/// The nonce in an ID token. The server checks everything; this only reads.
pub fn nonce_in(id_token: &SecretString) -> Option<String> {
    let payload = id_token.expose_secret().split('.').nth(1)?;
    let bytes = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Value = serde_json::from_slice(&bytes).ok()?;
    claims["nonce"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_the_standards_own_example() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert!(random().unwrap().len() == 43 && random().unwrap() != random().unwrap());
    }

    #[test]
    fn providers_are_asked_over_https_or_on_this_machine() {
        for good in ["https://login.example.com/realm", "http://127.0.0.1:8080/x", "http://[::1]/x", "http://localhost"]
        {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for bad in ["http://login.example.com", "http://127.0.0.1.example.com", "ftp://127.0.0.1", "login.example.com"]
        {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }
}
