//! Connections: how clients are set up, how bodies are read within a limit, what a connection that broke means.

use berth_engine::handler::{Class, Outcome, Trouble};
use reqwest::{Method, Url};
use std::time::Duration;

const USER_AGENT: &str = concat!("berth/", env!("CARGO_PKG_VERSION"));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
pub fn tls_without_roots() -> Outcome<rustls::ClientConfig> {
    Ok(tls_builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

pub(crate) fn tls_builder() -> Outcome<rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>> {
    rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| Trouble::refused(format!("cannot set up TLS: {e}")))
}

pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// What no answer means: making something twice does harm, and nothing else does.
pub fn lost_class(method: &Method) -> Class {
    if *method == Method::POST { Class::Unanswered } else { Class::Retry { after: None } }
}

pub fn lost(cloud: &str, method: &Method, path: &str, error: &reqwest::Error) -> Trouble {
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
