//! People's login: an identity provider says who someone is and which groups they are in; the groups' mapping says which
//! role that is here. The answer is a token of Berth's own, so that everything after the login is one mechanism.

use super::principal::{PERSON, Role};
use crate::fault::{Code, Fault};
use berth_store::UsedOnce;
use jsonwebtoken::jwk::{Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// What a provider's document or set of keys may have at most.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
const KEYS_MAX: usize = 100;
const ID_TOKEN_BYTES_MAX: usize = 64 << 10;
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The provider's keys are read anew at least this often, and for an unknown key at most this often.
const KEYS_FOR: Duration = Duration::from_secs(3600);
const KEYS_AGAIN: Duration = Duration::from_secs(10);
/// How far clocks may be apart.
const LEEWAY: Duration = Duration::from_secs(30);
/// An ID token is for a login now, not for one next week.
const ISSUED_WITHIN: Duration = Duration::from_secs(3600);
const NAME_CHARS_MAX: usize = 400;
const EMAIL: &str = "email";
/// Claims that users may choose for themselves: a rule on these would admit everyone.
const CHOSEN_CLAIMS: [&str; 4] = ["preferred_username", "name", "nickname", "given_name"];
/// Signatures by the provider's private key; never ones that a public text would suffice for.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// What the server is told about its identity provider.
#[derive(Clone, Debug)]
pub struct OidcConfig {
    pub issuer: String,
    pub client_id: String,
    /// Whom ID tokens are made for, where that is not the client.
    pub audience: Option<String>,
    /// Name of the claim, or a path of names: `realm_access.roles`.
    pub groups_claim: String,
    pub roles: Vec<GroupRole>,
    /// Scopes that clients ask for beside `openid`.
    pub scopes: Vec<String>,
    /// Certificates that vouch for the provider, where the system's do not.
    pub ca: Option<PathBuf>,
}

/// A group's members have this role there: `GROUP=ROLE[:ORG[/ENV]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRole {
    pub group: String,
    pub role: Role,
    pub org: String,
    pub env: String,
}

impl FromStr for GroupRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write it as GROUP=ROLE, GROUP=ROLE:ORG or GROUP=ROLE:ORG/ENV";
        // Groups may hold any character, `=` too; roles and scopes do not.
        let (group, rest) = text.rsplit_once('=').ok_or(form)?;
        let (role, scope) = match rest.split_once(':') {
            Some((role, scope)) => (role, Some(scope)),
            None => (rest, None),
        };
        let role = match Role::parse(role) {
            Some(Role::Worker) => return Err("people are not workers: viewer, operator or admin".into()),
            Some(role) => role,
            None => return Err(format!("`{role}` is no role: viewer, operator or admin")),
        };
        let (org, env) = match scope {
            None => ("", ""),
            Some(scope) => scope.split_once('/').unwrap_or((scope, "")),
        };
        // `shop/` is half a scope, and all of shop is not meant by it.
        let half = scope.is_some_and(|scope| org.is_empty() || scope.ends_with('/'));
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if group.is_empty() || half || env.contains('/') || scope.is_some_and(|scope| scope.chars().any(odd)) {
            return Err(form.into());
        }
        Ok(Self { group: group.into(), role, org: org.into(), env: env.into() })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("`{0}` is not the address of an identity provider")]
    Address(String),
    #[error("the identity provider {0} does not speak https")]
    Plain(String),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the certificates in {} cannot be used", path.display())]
    Certificates { path: PathBuf, source: reqwest::Error },
    #[error("cannot prepare calls to the identity provider")]
    Client(#[source] reqwest::Error),
    #[error("no group has a role, so that nobody could log in")]
    NoRoles,
    #[error("roles cannot be given by the claim `{0}`: people may choose it for themselves")]
    ChosenClaim(String),
}

/// A person who may come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// With the prefix of people.
    pub name: String,
    /// The provider's own, unchanging name for them.
    pub subject: String,
    /// The issuer, `#` and the subject: who they are, whatever name is shown.
    pub identity: String,
    /// The token that says so, which logs in once.
    pub login: UsedOnce,
    pub role: Role,
    pub org: String,
    pub env: String,
    /// The group that gave the role.
    pub group: String,
}

/// An identity provider.
pub struct Oidc {
    config: OidcConfig,
    http: reqwest::Client,
    keys: Mutex<Option<Keys>>,
}

impl fmt::Debug for Oidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oidc").field("issuer", &self.config.issuer).finish_non_exhaustive()
    }
}

struct Keys {
    set: Vec<Jwk>,
    at: Instant,
}

#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct Listed {
    keys: Vec<Value>,
}

impl Oidc {
    /// Asks nothing yet: a server starts while its provider is away.
    pub fn new(config: OidcConfig) -> Result<Self, OidcError> {
        check_address(&config.issuer)?;
        if config.roles.is_empty() {
            return Err(OidcError::NoRoles);
        }
        if CHOSEN_CLAIMS.contains(&config.groups_claim.as_str()) {
            return Err(OidcError::ChosenClaim(config.groups_claim));
        }
        let mut builder = reqwest::Client::builder()
            .timeout(ANSWER_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("berth/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &config.ca {
            let pem = std::fs::read(path).map_err(|source| OidcError::Read { path: path.clone(), source })?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|source| OidcError::Certificates { path: path.clone(), source })?;
            builder = builder.tls_certs_merge(certificates);
        }
        let http = builder.build().map_err(OidcError::Client)?;
        Ok(Self { config, http, keys: Mutex::new(None) })
    }

    pub fn config(&self) -> &OidcConfig {
        &self.config
    }

    /// Who an ID token is about. `nonce` is the value that the caller says the token was made for.
    pub async fn person(&self, id_token: &str, nonce: &str) -> Result<Person, Fault> {
        let claims = self.claims(id_token).await?;
        if text(&claims, "nonce") != nonce {
            return Err(invalid("it was made for another login"));
        }
        self.known(&claims, used_once(id_token, &claims))
    }

    async fn claims(&self, id_token: &str) -> Result<Map<String, Value>, Fault> {
        if id_token.len() > ID_TOKEN_BYTES_MAX {
            return Err(invalid("it is too long"));
        }
        let header = jsonwebtoken::decode_header(id_token).map_err(|_| invalid("it is no JSON web token"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(invalid("its signature is of a kind that is not accepted"));
        }
        let key = self.key(header.kid.as_deref(), header.alg).await?;
        let decoding = DecodingKey::from_jwk(&key).map_err(|_| invalid("its key cannot be used"))?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY.as_secs();
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&[self.audience()]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let decoded = jsonwebtoken::decode::<Map<String, Value>>(id_token, &decoding, &validation);
        let claims = decoded.map_err(|error| {
            use jsonwebtoken::errors::ErrorKind;
            invalid(match error.kind() {
                ErrorKind::ExpiredSignature => "it has expired",
                ErrorKind::ImmatureSignature => "it is not valid yet",
                ErrorKind::InvalidAudience => "it was made for another application",
                ErrorKind::InvalidIssuer => "another provider made it",
                ErrorKind::InvalidSignature => "its signature is not the provider's",
                ErrorKind::MissingRequiredClaim(_) => "something is missing in it",
                _ => "it cannot be read",
            })
        })?;
        self.check_party(&claims.claims)?;
        check_issued(&claims.claims, jiff::Timestamp::now().as_second())?;
        Ok(claims.claims)
    }

    fn audience(&self) -> &str {
        self.config.audience.as_deref().unwrap_or(&self.config.client_id)
    }

    /// For whom the token was issued: with several audiences it must say so, and it must be our client.
    fn check_party(&self, claims: &Map<String, Value>) -> Result<(), Fault> {
        let several = claims.get("aud").and_then(Value::as_array).is_some_and(|all| all.len() > 1);
        match claims.get("azp") {
            None if several => Err(invalid("it does not say which application it was made for")),
            None => Ok(()),
            Some(party) if party.as_str() == Some(&self.config.client_id) => Ok(()),
            Some(_) => Err(invalid("it was made for another application")),
        }
    }

    /// The key that signed; read anew from the provider where it is not known, and not more often than it needs.
    async fn key(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Jwk, Fault> {
        // One caller at a time asks the provider; the others find what it got.
        let mut keys = self.keys.lock().await;
        let age = keys.as_ref().map(|keys| keys.at.elapsed());
        let found = keys.as_ref().and_then(|keys| pick(&keys.set, kid, algorithm));
        let again = match age {
            None => true,
            Some(age) if found.is_none() => age > KEYS_AGAIN,
            Some(age) => age > KEYS_FOR,
        };
        if !again {
            return found.ok_or_else(|| invalid("its signature is not the provider's"));
        }
        match self.read_keys().await {
            Ok(set) => {
                let found = pick(&set, kid, algorithm);
                *keys = Some(Keys { set, at: Instant::now() });
                found.ok_or_else(|| invalid("its signature is not the provider's"))
            }
            // Keys that were good an hour ago are better than nobody coming in.
            Err(error) => found.ok_or(error),
        }
    }

    async fn read_keys(&self) -> Result<Vec<Jwk>, Fault> {
        let address = format!("{}/.well-known/openid-configuration", self.config.issuer.trim_end_matches('/'));
        let discovered: Discovered = self.document(&address).await?;
        if discovered.issuer != self.config.issuer {
            tracing::error!(
                said = discovered.issuer,
                expected = self.config.issuer,
                "the identity provider is another"
            );
            return Err(away());
        }
        if check_address(&discovered.jwks_uri).is_err() {
            tracing::error!(address = discovered.jwks_uri, "the identity provider's keys are not at a safe address");
            return Err(away());
        }
        let listed: Listed = self.document(&discovered.jwks_uri).await?;
        let signs = |key: &Jwk| !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption));
        // A key of a kind that is not known here is no reason to do without the others.
        let keys = listed.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        Ok(keys.filter(signs).take(KEYS_MAX).collect())
    }

    async fn document<T: for<'d> Deserialize<'d>>(&self, address: &str) -> Result<T, Fault> {
        let failed = |error: &dyn fmt::Display| {
            tracing::warn!(%error, address, "the identity provider did not answer as it should");
            away()
        };
        let response = self.http.get(address).send().await.map_err(|error| failed(&error.without_url()))?;
        let mut response = response.error_for_status().map_err(|error| failed(&error.without_url()))?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error.without_url()))? {
            if bytes.len() + chunk.len() > DOCUMENT_BYTES_MAX {
                return Err(failed(&"the answer is too long"));
            }
            bytes.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&bytes).map_err(|error| failed(&error))
    }

    /// Name and role. With several groups that have a role, the highest role holds, and of these the widest.
    fn known(&self, claims: &Map<String, Value>, login: UsedOnce) -> Result<Person, Fault> {
        let subject = text(claims, "sub").to_owned();
        let name = &shown_name(claims, &subject);
        let harmless = |c: char| !c.is_control() && !c.is_whitespace();
        let known = !subject.is_empty() && !subject.chars().any(char::is_control);
        if !known || name.chars().count() > NAME_CHARS_MAX || !name.chars().all(harmless) {
            return Err(invalid("it names nobody"));
        }
        let claim = &self.config.groups_claim;
        // An address that nobody checked is nobody's, and gives no role.
        let groups = if claim == EMAIL && !is_verified(claims) { Vec::new() } else { groups(claims, claim) };
        let rank = |given: &&GroupRole| {
            let role = Role::ALL.iter().position(|role| *role == given.role);
            (role, given.org.is_empty(), given.env.is_empty())
        };
        let mut given: Vec<&GroupRole> =
            self.config.roles.iter().filter(|given| groups.contains(&given.group.as_str())).collect();
        // Stable: of equals the one that was named first.
        given.sort_by_key(|given| std::cmp::Reverse(rank(given)));
        let Some(best) = given.first() else {
            return Err(Fault::new(Code::Denied, format!("{name} is in no group that has a role here"))
                .help("whoever runs the server gives roles to groups with --oidc-role GROUP=ROLE"));
        };
        Ok(Person {
            name: format!("{PERSON}{name}"),
            identity: format!("{}#{subject}", self.config.issuer),
            subject,
            login,
            role: best.role,
            org: best.org.clone(),
            env: best.env.clone(),
            group: best.group.clone(),
        })
    }
}

fn is_verified(claims: &Map<String, Value>) -> bool {
    claims.get("email_verified").and_then(Value::as_bool) == Some(true)
}

/// An address that the provider checked is a person's own. Any other name is one that they may have chosen: the subject
/// stands beside it, so that nobody looks like another.
fn shown_name(claims: &Map<String, Value>, subject: &str) -> String {
    let (email, preferred) = (text(claims, EMAIL), text(claims, "preferred_username"));
    match (is_verified(claims) && !email.is_empty() && !email.contains('#'), preferred) {
        (true, _) => email.to_owned(),
        (false, "") => subject.to_owned(),
        (false, preferred) if preferred == subject => subject.to_owned(),
        (false, preferred) => format!("{preferred}#{subject}"),
    }
}

/// What of an ID token is the same however it is written, and until when it would be taken. A signature may have more than
/// one form; what it signs has not.
fn used_once(id_token: &str, claims: &Map<String, Value>) -> UsedOnce {
    let signed = id_token.rsplit_once('.').map_or(id_token, |(signed, _)| signed);
    let seconds = |name: &str| claims.get(name).and_then(Value::as_f64).unwrap_or(0.0) as i64;
    let last = seconds("exp").min(seconds("iat").saturating_add(ISSUED_WITHIN.as_secs().cast_signed()));
    let until = jiff::Timestamp::from_second(last.saturating_add(2 * LEEWAY.as_secs().cast_signed()));
    UsedOnce { hash: Sha256::digest(signed).into(), expires_at: until.unwrap_or(jiff::Timestamp::MAX) }
}

/// https, or this machine itself.
fn check_address(text: &str) -> Result<(), OidcError> {
    let url = Url::parse(text).map_err(|_| OidcError::Address(text.into()))?;
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err(OidcError::Address(text.into()));
    }
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(&url) => Ok(()),
        "http" => Err(OidcError::Plain(text.into())),
        _ => Err(OidcError::Address(text.into())),
    }
}

/// Whether an address is of this machine itself.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn pick(set: &[Jwk], kid: Option<&str>, algorithm: Algorithm) -> Option<Jwk> {
    let fits = |key: &&Jwk| {
        let named = kid.is_none_or(|kid| key.common.key_id.as_deref() == Some(kid));
        named && key.common.key_algorithm.is_none_or(|said| said == KeyAlgorithm::from(algorithm))
    };
    let mut fitting = set.iter().filter(fits);
    let first = fitting.next()?;
    // Without a name there must be no choice.
    (kid.is_some() || fitting.next().is_none()).then(|| first.clone())
}

fn check_issued(claims: &Map<String, Value>, now: i64) -> Result<(), Fault> {
    let leeway = LEEWAY.as_secs().cast_signed();
    match claims.get("iat").map(|at| at.as_f64().unwrap_or(f64::NAN) as i64) {
        None => Err(invalid("something is missing in it")),
        Some(at) if at > now + leeway => Err(invalid("it is not valid yet")),
        Some(at) if at < now - leeway - ISSUED_WITHIN.as_secs().cast_signed() => Err(invalid("it has expired")),
        Some(_) => Ok(()),
    }
}

/// The values of a claim that may lie deeper: a list of texts, or one.
fn groups<'c>(claims: &'c Map<String, Value>, path: &str) -> Vec<&'c str> {
    // A claim of just that name goes first: names with dots in them are usual where they are addresses.
    let found = claims.get(path).or_else(|| {
        let mut names = path.split('.');
        let first = claims.get(names.next()?)?;
        names.try_fold(first, |value, name| value.get(name))
    });
    match found {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one],
        _ => Vec::new(),
    }
}

fn text<'c>(claims: &'c Map<String, Value>, name: &str) -> &'c str {
    claims.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn invalid(why: &str) -> Fault {
    Fault::new(Code::Unauthenticated, format!("the identity provider's token is not accepted: {why}"))
        .help("log in again:   berth login")
}

fn away() -> Fault {
    Fault::new(Code::Unavailable, "the identity provider cannot be asked just now")
        .help("try again in a moment; the server's log says more")
}

#[cfg(test)]
#[path = "oidc_tests.rs"]
mod tests;
