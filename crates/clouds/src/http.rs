//! A small HTTP client that the clouds share: rate limit, bounded retries of reads, limits on everything, and errors that say
//! what was asked and what the cloud answered. Changes are sent once: whether to send one again is the engine's to decide,
//! after it has looked.

use crate::address::{self, NotLocal};
use crate::hold::Hold;
use crate::right::may_send;
use berth_engine::handler::{Class, Outcome, Trouble};
use berth_engine::{span, when};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use rand::Rng;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use tracing::Instrument;
use tracing::field::Empty;

/// Answers larger than this are given up on.
pub const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
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
/// No cloud's limit counts longer than this.
const LONGEST_ASKED_PAUSE: Duration = Duration::from_secs(24 * 3600);
/// How much of a cloud's error text is repeated.
const MAX_WORDS_CHARS: usize = 400;

const USER_AGENT: &str = concat!("berth/", env!("CARGO_PKG_VERSION"));

/// What a cloud said when it did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The cloud's own word for it, or empty.
    pub code: String,
    /// The cloud's own sentence, or empty.
    pub words: String,
    /// Whether a change was asked for.
    pub change: bool,
}

/// How one cloud words its errors.
pub trait Dialect: Send + Sync {
    /// The cloud's name, as users know it: `Civo`.
    fn cloud(&self) -> &'static str;

    /// Reads code and words from an error's body.
    fn read(&self, body: &[u8]) -> (String, String);

    /// What a refusal means, where the status alone does not tell. `None` leaves it to [`class_of_status`].
    fn class(&self, _refusal: &Refusal) -> Option<Class> {
        None
    }

    /// What to check and what to type, for refusals of this class.
    fn help(&self, _refusal: &Refusal, _class: &Class) -> Vec<String> {
        Vec::new()
    }
}

/// What an HTTP status means where a cloud says nothing more precise.
pub fn class_of_status(status: u16) -> Class {
    match status {
        401 | 403 => Class::Unauthorized,
        404 | 410 => Class::NotFound,
        402 => Class::Quota,
        408 | 425 | 429 | 500..=599 => Class::Retry { after: None },
        _ => Class::Refused,
    }
}

pub struct Settings {
    /// Scheme and host, such as `https://api.civo.com`; a path in it is kept.
    pub base_url: String,
    /// Someone else chose that address: nothing local is called by it.
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
        let change = method != Method::GET;
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
        // Neither query nor headers nor bodies: those may hold what is nobody's business.
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
        Err(self.refusal(&method, path, status, after, &body, change))
    }

    fn refusal(
        &self,
        method: &Method,
        path: &str,
        status: StatusCode,
        after: Option<Duration>,
        body: &[u8],
        change: bool,
    ) -> Trouble {
        let (code, words) = self.dialect.read(body);
        let refusal = Refusal { status: status.as_u16(), code: clip(&code), words: clip(&words), change };
        let class = match self.dialect.class(&refusal) {
            Some(class) => class,
            // From somebody on the way who does not know, or from a cloud that failed half way.
            None if matches!(refusal.status, 408 | 500 | 502 | 504) => lost_class(method),
            None => class_of_status(refusal.status),
        };
        let class = if let Class::Retry { after: None } = class { Class::Retry { after } } else { class };
        let mut said = refusal.status.to_string();
        if let Some(reason) = status.canonical_reason()
            && refusal.code.is_empty()
        {
            said = format!("{said} {reason}");
        }
        if !refusal.code.is_empty() {
            said = format!("{said} {}", refusal.code);
        }
        if !refusal.words.is_empty() {
            said = format!("{said}: {}", refusal.words);
        }
        let help = self.dialect.help(&refusal, &class);
        let trouble = Trouble::new(class, format!("{} answered {said}", self.dialect.cloud()));
        help.into_iter().fold(trouble.call(format!("{method} {path}")), Trouble::help)
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

/// What every client of Berth's has in common.
pub(crate) fn client_builder(base: &Url) -> reqwest::ClientBuilder {
    let mut builder = reqwest::Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .retry(reqwest::retry::never())
        // A redirect would carry the token to another host.
        .redirect(reqwest::redirect::Policy::none());
    // The environment's proxy is for the world outside: never for this machine, and never for plain text.
    if base.scheme() == "http" || is_loopback(base) {
        builder = builder.no_proxy();
    }
    builder
}

/// For plain-text endpoints: TLS that trusts nobody costs nothing to set up.
fn tls_without_roots() -> Outcome<rustls::ClientConfig> {
    Ok(tls_builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

pub(crate) fn tls_builder() -> Outcome<rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>> {
    rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| Trouble::refused(format!("cannot set up TLS: {e}")))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The limit to keep to: what the account says, else the cloud's own. A sandbox on this machine has none.
pub fn limit(base_url: &str, asked_per_second: u32, usual_per_second: f64, usual_burst: u32) -> (f64, u32) {
    const UNLIMITED: (f64, u32) = (100_000.0, 100_000);
    match asked_per_second {
        0 if Url::parse(base_url).is_ok_and(|url| is_loopback(&url)) => UNLIMITED,
        0 => (usual_per_second, usual_burst),
        asked => (f64::from(asked), asked),
    }
}

fn quota(per_second: f64, burst: u32) -> Quota {
    let per_second = if per_second.is_finite() && per_second > 0.0 { per_second } else { 1.0 };
    let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
    Quota::with_period(Duration::from_secs_f64(1.0 / per_second.min(1_000_000.0)))
        .unwrap_or(Quota::per_second(NonZeroU32::MIN))
        .allow_burst(burst)
}

/// What no answer means: making something twice does harm, and nothing else does.
fn lost_class(method: &Method) -> Class {
    if *method == Method::POST { Class::Unanswered } else { Class::Retry { after: None } }
}

fn lost(cloud: &str, method: &Method, path: &str, error: &reqwest::Error) -> Trouble {
    // Without a connection, nothing was sent.
    let class = if error.is_connect() { Class::Retry { after: None } } else { lost_class(method) };
    let trouble =
        Trouble::new(class, format!("no answer from {cloud}: {}", causes(error))).call(format!("{method} {path}"));
    if error.is_connect() {
        trouble.help(format!("check that this machine reaches {cloud}'s API, and the API's address in the account"))
    } else {
        trouble
    }
}

/// The chain of causes without the URL, which reqwest puts in front.
pub(crate) fn causes(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut last = String::new();
    let mut text = String::new();
    while let Some(next) = cause.source() {
        cause = next;
        let words = cause.to_string();
        if words != last && !text.contains(&words) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        last = words;
    }
    if !text.is_empty() {
        return text;
    }
    match error {
        e if e.is_timeout() => "timed out".into(),
        e if e.is_connect() => "cannot connect".into(),
        _ => "the connection broke".into(),
    }
}

pub(crate) enum ReadError {
    Lost(reqwest::Error),
    TooLarge,
}

pub(crate) async fn read_limited(mut response: reqwest::Response, limit: usize) -> Result<Vec<u8>, ReadError> {
    let announced = response.content_length().unwrap_or(0);
    if announced > limit as u64 {
        return Err(ReadError::TooLarge);
    }
    let mut body = Vec::with_capacity(announced as usize);
    while let Some(chunk) = response.chunk().await.map_err(ReadError::Lost)? {
        if body.len() + chunk.len() > limit {
            return Err(ReadError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The pause that a cloud asks for: `Retry-After` in seconds or as a date, else the time at which its rate limit is reset.
/// And whether that limit is spent, which a call that went well may say too.
fn asked_pause(headers: &HeaderMap, now: jiff::Timestamp) -> (Option<Duration>, bool) {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim);
    // Only once the limit is spent: clouds send the reset with every answer.
    let spent = text("ratelimit-remaining").and_then(|v| v.parse::<u64>().ok()) == Some(0);
    if let Some(asked) = text(RETRY_AFTER.as_str()) {
        let longest = LONGEST_ASKED_PAUSE.as_secs_f64();
        if let Some(seconds) = asked.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0) {
            return (Some(Duration::from_secs_f64(seconds.min(longest))), spent);
        }
        if let Ok(date) = jiff::fmt::rfc2822::parse(asked) {
            return (Some(until(date.timestamp(), now)), spent);
        }
    }
    let reset =
        text("ratelimit-reset").and_then(|v| v.parse::<i64>().ok()).and_then(|s| jiff::Timestamp::from_second(s).ok());
    (reset.filter(|_| spent).map(|reset| until(reset, now)), spent)
}

fn until(then: jiff::Timestamp, now: jiff::Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO).min(LONGEST_ASKED_PAUSE)
}

fn clip(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= MAX_WORDS_CHARS {
        return text.to_owned();
    }
    let mut clipped: String = text.chars().take(MAX_WORDS_CHARS).collect();
    clipped.push('…');
    clipped
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
        // A dot segment would be taken away by whoever normalises the path.
        "." => "%2E".into(),
        ".." => "%2E%2E".into(),
        _ => utf8_percent_encode(text, KEPT).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::extract::State;
    use axum::http::HeaderMap as Headers;
    use axum::response::IntoResponse;
    use std::sync::Arc;

    struct Plain;

    impl Dialect for Plain {
        fn cloud(&self) -> &'static str {
            "Cloud"
        }
        fn read(&self, body: &[u8]) -> (String, String) {
            ("some_code".into(), String::from_utf8_lossy(body).into_owned())
        }
    }

    type Answer = (u16, &'static [(&'static str, &'static str)], Vec<u8>);

    /// Answers with these, one after the other, and then with the last again.
    async fn serve(answers: Vec<Answer>) -> (Http, Arc<AtomicU64>) {
        let seen = Arc::new(AtomicU64::new(0));
        let answer = |State((seen, answers)): State<(Arc<AtomicU64>, Arc<Vec<_>>)>, sent: Headers| async move {
            assert_eq!(sent["authorization"], "bearer tok-secret");
            assert!(sent["user-agent"].to_str().unwrap().starts_with("berth/"));
            let index = (seen.fetch_add(1, Ordering::SeqCst) as usize).min(answers.len() - 1);
            let (status, extra, body): &Answer = &answers[index];
            let mut headers = Headers::new();
            for (name, value) in *extra {
                headers.insert(*name, value.parse().unwrap());
            }
            (axum::http::StatusCode::from_u16(*status).unwrap(), headers, body.clone()).into_response()
        };
        let app = Router::new().fallback(answer).with_state((seen.clone(), Arc::new(answers)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let settings = Settings {
            base_url,
            foreign: false,
            authorization: SecretString::from("bearer tok-secret".to_owned()),
            requests_per_second: 1000.0,
            burst: 100,
            timeout: Duration::from_secs(5),
            dialect: &Plain,
        };
        (Http::new(settings).unwrap(), seen)
    }

    #[tokio::test]
    async fn reads_are_tried_again_and_changes_are_not() {
        let (http, seen) = serve(vec![
            (503, &[], b"busy".to_vec()),
            (429, &[("retry-after", "0")], vec![]),
            (200, &[], b"[1]".to_vec()),
        ])
        .await;
        assert_eq!(http.get::<Vec<u32>>("/v2/x", &[("a", "b c")]).await.unwrap(), [1]);
        assert_eq!((http.calls(), seen.load(Ordering::SeqCst)), (3, 3));

        let (http, seen) = serve(vec![(503, &[("retry-after", "7")], b"busy".to_vec())]).await;
        let trouble = http.change(Method::POST, "/v2/x", &[], Some(&vec![1])).await.unwrap_err();
        assert_eq!(trouble.class, Class::Retry { after: Some(Duration::from_secs(7)) });
        assert_eq!(trouble.to_string(), "POST /v2/x: Cloud answered 503 some_code: busy");
        assert_eq!(seen.load(Ordering::SeqCst), 1);

        // A pause that long is not waited for, and whoever asks is told when to come back.
        let (http, seen) = serve(vec![(429, &[("retry-after", "3600")], vec![])]).await;
        let trouble = http.get_bytes("/v2/x", &[]).await.unwrap_err();
        assert_eq!(trouble.class, Class::Retry { after: Some(Duration::from_secs(3600)) });
        assert!(
            trouble.help.len() == 1 && trouble.help_lines()[0].starts_with("Cloud takes calls again in 1h00m, at "),
            "{trouble:?}"
        );
        assert_eq!(seen.load(Ordering::SeqCst), 1);

        // Nor does any other call of the account go out.
        for trouble in [
            http.get_bytes("/v2/y", &[]).await.unwrap_err(),
            http.change(Method::DELETE, "/v2/y", &[], None).await.unwrap_err(),
        ] {
            assert!(
                trouble.is_retry() && trouble.to_string().contains("/v2/y: not sent: Cloud asked for a pause of "),
                "{trouble}"
            );
        }
        assert_eq!(seen.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn all_calls_of_an_account_keep_a_pause_that_one_was_asked_for() {
        let ok = || (200, &[] as &[_], b"1".to_vec());
        let refused: [Answer; 3] = [
            (429, &[("retry-after", "2")], vec![]),
            (503, &[("retry-after", "2")], vec![]),
            (200, &[("ratelimit-remaining", "0"), ("retry-after", "2")], b"1".to_vec()),
        ];
        for first in refused {
            let what = first.0;
            let (http, seen) = serve(vec![first, ok()]).await;
            let start = std::time::Instant::now();
            let retried = http.get::<u32>("/v2/x", &[]);
            let other = async {
                while seen.load(Ordering::SeqCst) == 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                // The answer has gone out by now.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let change = http.change(Method::POST, "/v2/y", &[], None).await;
                assert!(matches!(change.unwrap_err().class, Class::Retry { after: Some(_) }), "{what}");
                assert_eq!(seen.load(Ordering::SeqCst), 1, "{what}: sent in the pause");
                let answer = http.get::<u32>("/v2/y", &[]).await;
                (answer, start.elapsed())
            };
            let (retried, (other, took)) = tokio::join!(retried, other);
            assert_eq!((retried.unwrap(), other.unwrap()), (1, 1));
            assert!(start.elapsed() >= Duration::from_secs(2) && took >= Duration::from_secs(2), "{what}: {took:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_read_counts_as_lost() {
        let (http, _) = serve(vec![(200, &[], b"<html>".to_vec())]).await;
        let trouble = http.send::<u32>(Method::POST, "/v2/x", &[], None).await.unwrap_err();
        assert_eq!(trouble.class, Class::Unanswered);
        let trouble = http.send::<u32>(Method::PUT, "/v2/x", &[], None).await.unwrap_err();
        assert!(
            trouble.class == Class::Retry { after: None }
                && trouble.to_string().starts_with("PUT /v2/x: Cloud's answer could not be understood"),
            "{trouble}"
        );
    }

    #[tokio::test]
    async fn a_create_that_may_have_taken_effect_is_told_from_one_that_surely_did_not() {
        for (status, class) in [
            (429, Class::Retry { after: None }),
            (503, Class::Retry { after: None }),
            (500, Class::Unanswered),
            (502, Class::Unanswered),
            (504, Class::Unanswered),
        ] {
            let (http, _) = serve(vec![(status, &[], vec![])]).await;
            assert_eq!(http.change(Method::POST, "/v2/x", &[], None).await.unwrap_err().class, class, "{status}");
            let (http, _) = serve(vec![(status, &[], vec![])]).await;
            let change = http.change(Method::PUT, "/v2/x", &[], None).await.unwrap_err();
            assert_eq!(change.class, Class::Retry { after: None }, "{status}");
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = Settings {
            base_url: format!("http://{}", listener.local_addr().unwrap()),
            foreign: false,
            authorization: SecretString::from("bearer tok-secret".to_owned()),
            requests_per_second: 1000.0,
            burst: 100,
            timeout: Duration::from_secs(5),
            dialect: &Plain,
        };
        drop(listener);
        let never_sent = Http::new(settings).unwrap().change(Method::POST, "/v2/x", &[], None).await.unwrap_err();
        assert_eq!(never_sent.class, Class::Retry { after: None }, "{never_sent}");
    }

    #[tokio::test]
    async fn an_answer_without_end_is_given_up_on() {
        let (http, _) = serve(vec![(200, &[], vec![b' '; MAX_BODY_BYTES + 1])]).await;
        let trouble = http.get_bytes("/v2/x", &[]).await.unwrap_err();
        assert_eq!(trouble.to_string(), "GET /v2/x: Cloud's answer is larger than 64 MiB");
    }

    #[tokio::test]
    async fn long_words_are_cut_and_redirects_are_not_followed() {
        let (http, _) = serve(vec![(302, &[("location", "http://127.0.0.1:1/")], vec![b'x'; 10_000])]).await;
        let trouble = http.get_bytes("/v2/x", &[]).await.unwrap_err();
        assert!(trouble.class == Class::Refused && trouble.to_string().chars().count() < 500, "{trouble}");
        assert!(!format!("{trouble:?}").contains("tok-secret"));
    }

    #[test]
    fn pauses_are_read_in_every_form() {
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let pause = |pairs: &[(&'static str, &str)]| {
            let headers: HeaderMap = pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
            asked_pause(&headers, now).0.map(|pause| pause.as_secs())
        };
        assert_eq!(pause(&[("retry-after", "12")]), Some(12));
        assert_eq!(pause(&[("retry-after", "Thu, 01 Jan 2026 00:01:00 GMT")]), Some(60));
        assert_eq!(pause(&[("retry-after", "Wed, 31 Dec 2025 00:00:00 GMT")]), Some(0));
        assert_eq!(pause(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "1767225630")]), Some(30));
        assert_eq!(pause(&[("ratelimit-remaining", "99"), ("ratelimit-reset", "1767225630")]), None);
        assert_eq!(pause(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "4102444800")]), Some(24 * 3600));
        assert_eq!(pause(&[("retry-after", "1e30")]), Some(24 * 3600));
        for odd in ["soon", "-1", "NaN", ""] {
            assert_eq!(pause(&[("retry-after", odd)]), None, "{odd}");
        }
    }

    #[test]
    fn segments_cannot_leave_their_place() {
        assert_eq!(segment("a/../b?c#d"), "a%2F..%2Fb%3Fc%23d");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("batch-1_x.y"), "batch-1_x.y");
    }

    #[test]
    fn bad_addresses_and_tokens_are_told_without_the_token() {
        let settings = |base_url: &str, token: &str| Settings {
            base_url: base_url.into(),
            foreign: false,
            authorization: SecretString::from(token.to_owned()),
            requests_per_second: 0.0,
            burst: 0,
            timeout: CALL_TIMEOUT,
            dialect: &Plain,
        };
        assert!(Http::new(settings("ftp://x", "t")).is_err());
        assert!(Http::new(settings("not an address", "t")).is_err());
        let trouble = Http::new(settings("https://x", "tok\nsecret")).err().unwrap();
        assert!(trouble.class == Class::Unauthorized && !format!("{trouble:?}").contains("secret"), "{trouble:?}");
        assert_eq!(limit("http://127.0.0.1:7070", 0, 20.0, 100).0, 100_000.0);
        assert_eq!(limit("https://api.civo.com", 0, 20.0, 100), (20.0, 100));
        assert_eq!(limit("http://127.0.0.1:7070", 5, 20.0, 100), (5.0, 5));
    }
}
