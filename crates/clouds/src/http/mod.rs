//! A small HTTP client that the clouds share: rate limit, bounded retries of reads, limits on everything, and errors that say
//! what was asked and what the cloud answered. Changes are sent once: whether to send one again is the engine's to decide,
//! after it has looked.

mod hold;
mod pause;
mod rate_limit;
mod refusal;
#[cfg(test)]
mod tests;
mod transport;

pub use rate_limit::limit;
pub use refusal::{Dialect, Refusal, class_of_status};
pub(crate) use transport::{causes, client_builder, read_limited, tls_builder};

use crate::address::{self, NotLocal};
use crate::call_permit::may_send;
use berth_engine::handler::{Class, Outcome, Trouble};
use berth_engine::{span, when};
use governor::{DefaultDirectRateLimiter, RateLimiter};
use hold::Hold;
use pause::asked_pause;
use rand::Rng;
use rate_limit::quota;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use tracing::Instrument;
use tracing::field::Empty;
use transport::{ReadError, lost, lost_class, tls_without_roots};

/// Answers larger than this are given up on.
pub const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// How long a whole call may take where nothing else is set.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A read is tried this often in all.
const READ_TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long one read waits in all for a cloud that asks for pauses.
const READ_WAITS: Duration = Duration::from_secs(5 * 60);
/// How long a change waits. A longer pause is the engine's to take: it shows it, and can be interrupted before the change.
const CHANGE_WAITS: Duration = Duration::from_secs(1);
/// The pause after "too many requests" where the cloud does not say how long.
const UNSAID_PAUSE: Duration = Duration::from_millis(500);
pub struct Settings {
    /// Scheme and host, such as `https://api.civo.com`; a path in it is kept.
    pub base_url: String,
    /// The address was chosen by a user of a server: local addresses are refused.
    pub foreign: bool,
    /// Value of the `Authorization` header.
    pub authorization: SecretString,
    pub requests_per_second: f64,
    /// How many requests may go out at once before the limit begins to count.
    pub burst: u32,
    pub timeout: Duration,
    pub dialect: &'static dyn Dialect,
}

/// A connection to one API with one set of credentials.
pub struct Http {
    base: Url,
    foreign: bool,
    authorization: HeaderValue,
    timeout: Duration,
    dialect: &'static dyn Dialect,
    limiter: DefaultDirectRateLimiter,
    hold: Hold,
    calls: AtomicU64,
    /// Built at the first call: reading the machine's root certificates takes longer than a whole no-op plan.
    client: OnceLock<reqwest::Client>,
}

impl Http {
    pub fn new(settings: Settings) -> Outcome<Self> {
        let cloud = settings.dialect.cloud();
        let mut base = Url::parse(&settings.base_url).map_err(|e| {
            Trouble::refused(format!("`{}` is not an address of {cloud}'s API: {e}", settings.base_url))
        })?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(Trouble::refused(format!("`{}` is not an address of {cloud}'s API", settings.base_url)).help(
                format!("give scheme and host, such as https://{}", base.host_str().unwrap_or("api.example.com")),
            ));
        }
        base.set_query(None);
        base.set_fragment(None);
        if settings.foreign {
            address::check(base.as_str())?;
        }
        let mut authorization = HeaderValue::from_str(settings.authorization.expose_secret()).map_err(|_| {
            Trouble::new(Class::Unauthorized, format!("the token for {cloud} has characters that no token has"))
                .help("look for a line break or a space that was copied along with it")
        })?;
        authorization.set_sensitive(true);
        Ok(Self {
            base,
            foreign: settings.foreign,
            authorization,
            timeout: settings.timeout,
            dialect: settings.dialect,
            limiter: RateLimiter::direct(quota(settings.requests_per_second, settings.burst)),
            hold: Hold::default(),
            calls: AtomicU64::new(0),
            client: OnceLock::new(),
        })
    }

    /// How many requests were sent so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Reads something; tries again where that can help.
    pub async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Outcome<T> {
        let body = self.get_bytes(path, query).await?;
        self.parse(&Method::GET, path, &body)
    }

    /// Reads something as it is.
    pub async fn get_bytes(&self, path: &str, query: &[(&str, &str)]) -> Outcome<Vec<u8>> {
        let latest = Instant::now() + READ_WAITS;
        let mut pause = FIRST_PAUSE;
        for tried in 1.. {
            let trouble = match self.once(Method::GET, path, query, None, latest).await {
                Ok(body) => return Ok(body),
                Err(trouble) => trouble,
            };
            let Class::Retry { after } = trouble.class else { return Err(trouble) };
            let left = latest.saturating_duration_since(Instant::now());
            if tried >= READ_TRIES || after.is_some_and(|after| after > left) {
                let cloud = self.dialect.cloud();
                return Err(match after {
                    Some(after) => trouble.help(format!("{cloud} takes calls again {}: try again then", when(after))),
                    None => trouble,
                });
            }
            let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
            tokio::time::sleep(after.unwrap_or(jittered)).await;
            pause = (pause * 3).min(LONGEST_PAUSE);
        }
        unreachable!("the loop ends by its own count")
    }

    /// Changes something, once, and reads the answer. A lost answer may have taken effect: that is `Class::Unanswered` where it
    /// would have made something, and `Class::Retry` where repeating it does no harm.
    pub async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&(dyn erased::Body + '_)>,
    ) -> Outcome<T> {
        let answer = self.change(method.clone(), path, query, body).await?;
        self.parse(&method, path, &answer)
    }

    /// Changes something, once; what the answer says does not matter.
    pub async fn change(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&(dyn erased::Body + '_)>,
    ) -> Outcome<Vec<u8>> {
        let encoded = match body {
            None => None,
            Some(body) => Some(body.to_json().map_err(|e| {
                Trouble::refused(format!("cannot encode the request: {e}")).call(format!("{method} {path}"))
            })?),
        };
        self.once(method, path, query, encoded, Instant::now() + CHANGE_WAITS).await
    }

    fn parse<T: DeserializeOwned>(&self, method: &Method, path: &str, body: &[u8]) -> Outcome<T> {
        serde_json::from_slice(body).map_err(|e| {
            // An answer that cannot be read is an answer that was lost: a change may well have taken effect.
            Trouble::new(lost_class(method), format!("{}'s answer could not be understood: {e}", self.dialect.cloud()))
                .call(format!("{method} {path}"))
        })
    }

    /// Waits until the account may call: no pause that was asked for, and room in the rate limit.
    async fn may_call(&self, method: &Method, path: &str, latest: Instant) -> Outcome<()> {
        loop {
            if let Err(left) = self.hold.over(latest).await {
                let cloud = self.dialect.cloud();
                let message = format!("not sent: {cloud} asked for a pause of {}", span(left));
                let trouble = Trouble::new(Class::Retry { after: Some(left) }, message);
                return Err(trouble.call(format!("{method} {path}")));
            }
            self.limiter.until_ready().await;
            // Others called while this one stood in line: the cloud may have asked for a pause since.
            if self.hold.left().is_none() {
                return Ok(());
            }
        }
    }

    /// One request, one answer. `latest` bounds how long it may be held back before it is sent.
    async fn once(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<Vec<u8>>,
        latest: Instant,
    ) -> Outcome<Vec<u8>> {
        let cloud = self.dialect.cloud();
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.may_call(&method, path, latest).await?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut request = self
            .client()?
            .request(method.clone(), url)
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, "application/json");
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let started = Instant::now();
        may_send(|| format!("{method} {path}"))?;
        let exchange = async {
            let response = request.send().await.map_err(|e| lost(cloud, &method, path, &e))?;
            let status = response.status();
            let (after, spent) = asked_pause(response.headers(), jiff::Timestamp::now());
            match status.as_u16() {
                429 => self.hold.ask(after.unwrap_or(UNSAID_PAUSE)),
                503 => self.hold.ask(after.unwrap_or_default()),
                _ if spent => self.hold.ask(after.unwrap_or_default()),
                _ => {}
            }
            let body = read_limited(response, MAX_BODY_BYTES).await.map_err(|e| match e {
                ReadError::Lost(e) => lost(cloud, &method, path, &e),
                ReadError::TooLarge => {
                    let message = format!("{cloud}'s answer is larger than {} MiB", MAX_BODY_BYTES / 1024 / 1024);
                    Trouble::refused(message).call(format!("{method} {path}"))
                }
            })?;
            Ok::<_, Trouble>((status, after, body))
        };
        // Query, headers and bodies are left out: they may hold secrets.
        let span = tracing::info_span!("call", otel.kind = "client", cloud, %method, path, status = Empty);
        let answer = tokio::time::timeout(self.timeout, exchange).instrument(span.clone()).await;
        if let Ok(Ok((status, ..))) = &answer {
            span.record("status", status.as_u16());
        }
        drop(span);
        let took = started.elapsed().as_millis();
        match &answer {
            Ok(Ok((status, ..))) => tracing::debug!("{method} {path}: {} in {took} ms", status.as_u16()),
            Ok(Err(trouble)) if trouble.is_retry() => tracing::debug!("{method} {path}: no answer in {took} ms"),
            Ok(Err(_)) => tracing::debug!("{method} {path}: answer given up on after {took} ms"),
            Err(_) => tracing::debug!("{method} {path}: timed out after {took} ms"),
        }
        let (status, after, body) = match answer {
            Ok(answer) => answer?,
            Err(_) => {
                let message = format!("{cloud} did not answer within {} s", self.timeout.as_secs());
                return Err(Trouble::new(lost_class(&method), message).call(format!("{method} {path}")));
            }
        };
        if status.is_success() {
            return Ok(body);
        }
        Err(refusal::trouble(self.dialect, &method, path, (status, after, &body)))
    }

    fn client(&self) -> Outcome<&reqwest::Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let mut builder = client_builder(&self.base);
        if self.foreign {
            // A proxy would look the name up by itself.
            builder = builder.no_proxy().dns_resolver(Arc::new(NotLocal));
        }
        if self.base.scheme() == "http" {
            builder = builder.tls_backend_preconfigured(tls_without_roots()?);
        }
        let client = builder.build().map_err(|e| Trouble::refused(format!("cannot set up HTTP: {}", causes(&e))))?;
        Ok(self.client.get_or_init(|| client))
    }
}

/// What was asked for, or nothing where the cloud does not have it any more.
pub fn gone_is_none<T>(answer: Outcome<T>) -> Outcome<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(trouble) if trouble.is_not_found() => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// Lets any serializable value be a request's body without making every caller generic.
pub mod erased {
    use super::Serialize;

    pub trait Body: Send + Sync {
        fn to_json(&self) -> serde_json::Result<Vec<u8>>;
    }

    impl<T: Serialize + Send + Sync> Body for T {
        fn to_json(&self) -> serde_json::Result<Vec<u8>> {
            serde_json::to_vec(self)
        }
    }
}

/// Makes a string safe as one segment of a path.
pub fn segment(text: &str) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    match text {
        // Servers and proxies remove dot segments when they normalise a path.
        "." => "%2E".into(),
        ".." => "%2E%2E".into(),
        _ => utf8_percent_encode(text, KEPT).to_string(),
    }
}
