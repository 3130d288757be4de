//! What a simulated cloud sees of a call and gives back; the same for all clouds.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::AUTHORIZATION;
use hyper::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::kube::access::Login;
use crate::registry::CloudName;

pub const MAX_BODY_BYTES: usize = 1 << 20;

/// A cloud's HTTP API. Handlers run to the end without waiting for anything.
pub trait Cloud: Send + Sync + 'static {
    fn name(&self) -> CloudName;

    fn handle(&self, call: &Call) -> Reply;

    /// The cloud's own error for something that the core refuses. `call` is missing where it could not be read to its end.
    fn refuse(&self, call: Option<&Call>, refusal: &Refusal) -> Reply;

    /// Method and path by which faults, counts and events know a call. An API that names its actions elsewhere says here
    /// what they are, and which of them only read.
    fn seen_as(&self, call: &Call) -> (Method, String) {
        (call.method.clone(), call.path.clone())
    }

    /// Whether a call may be served when `token` is the only one accepted. The scheme is `bearer` in any case.
    fn authorised(&self, call: &Call, token: &str) -> bool {
        let given = call.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        given
            .and_then(|text| text.split_once(' '))
            .is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case("bearer") && given.trim() == token)
    }

    fn max_body_bytes(&self) -> usize {
        MAX_BODY_BYTES
    }

    /// Whom a token of this cloud's own belongs to in one of its clusters; otherwise why it is refused.
    fn log_in(&self, _cluster: &str, _token: &str) -> Result<Login, String> {
        Err("the token is not known".into())
    }

    /// The cluster that a token is good for, where a request does not say which it means.
    fn cluster_of(&self, _token: &str) -> Option<String> {
        None
    }
}

/// A refusal that every cloud has, each in its own words.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// A status code asked for by a fault rule.
    #[error("sandbox fault: status {status}")]
    Injected { status: u16, retry_after: Option<f64> },
    #[error("quota exceeded")]
    Quota,
    #[error("region {region} is out of capacity")]
    NoCapacity { region: String },
    #[error("the token is missing or wrong")]
    BadToken,
    #[error("no such path")]
    UnknownPath,
    #[error("the body is larger than is taken here")]
    BodyTooLarge,
    #[error("the body is not the JSON expected: {0}")]
    BadBody(String),
    #[error("sandbox state file: {0}")]
    StateFile(String),
}

impl Refusal {
    pub fn status(&self) -> u16 {
        match self {
            Refusal::Injected { status, .. } => *status,
            Refusal::Quota => 403,
            Refusal::NoCapacity { .. } => 422,
            Refusal::BadToken => 401,
            Refusal::UnknownPath => 404,
            Refusal::BodyTooLarge => 413,
            Refusal::BadBody(_) => 400,
            Refusal::StateFile(_) => 500,
        }
    }

    pub fn retry_after(&self) -> Option<f64> {
        match self {
            Refusal::Injected { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Faults that only the handler of a call can carry out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// The cluster or pool being made never leaves its building phase.
    pub stuck: bool,
    /// Regions in which nothing with nodes can be made now.
    pub no_capacity: Vec<String>,
    /// Lists show what was so long ago, in real time.
    pub lag: Duration,
}

impl Effects {
    pub fn out_of_capacity(&self, region: &str) -> bool {
        self.no_capacity.iter().any(|r| r.eq_ignore_ascii_case(region))
    }
}

/// One request, read to its end.
#[derive(Debug)]
pub struct Call {
    pub method: Method,
    pub path: String,
    pub query: Vec<(String, String)>,
    /// As it came, for those who check signatures.
    pub raw_query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub effects: Effects,
}

impl Call {
    pub fn new(method: Method, uri: &hyper::Uri, headers: HeaderMap, body: Bytes) -> Call {
        let query = uri.query().map(parse_query).unwrap_or_default();
        let (path, raw_query) = (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned());
        Call { method, path, query, raw_query, headers, body, effects: Effects::default() }
    }

    /// The parts of the path between slashes, decoded: `/v2/networks/ID` is `["v2", "networks", "ID"]`.
    pub fn segments(&self) -> Vec<Cow<'_, str>> {
        let parts = self.path.split('/').filter(|part| !part.is_empty());
        parts.map(|part| percent_decode_str(part).decode_utf8_lossy()).collect()
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// A positive number from the query, or the default when absent or not a number, as the clouds do.
    pub fn number(&self, name: &str, default: usize) -> usize {
        self.query(name).and_then(|v| v.parse().ok()).filter(|n| *n > 0).unwrap_or(default)
    }

    /// The body as JSON, whatever Content-Encoding or Content-Type claim. An empty body reads as `{}`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        serde_json::from_slice(body).map_err(|e| Refusal::BadBody(e.to_string()))
    }
}

pub fn mutating(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}

pub fn parse_query(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(n, v)| (decode(n), decode(v))).collect()
}

/// An answer, always with a whole body.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub content_type: Cow<'static, str>,
    pub headers: Vec<(Cow<'static, str>, String)>,
    pub body: Bytes,
}

impl Reply {
    pub fn json(status: u16, value: &impl Serialize) -> Reply {
        match serde_json::to_vec(value) {
            Ok(body) => Reply::raw_json(status, body),
            Err(e) => Reply::text(500, format!("sandbox: answer cannot be written as JSON: {e}")),
        }
    }

    /// JSON that is already written, for lists that are serialised object by object.
    pub fn raw_json(status: u16, body: Vec<u8>) -> Reply {
        Reply { status, content_type: "application/json".into(), headers: vec![], body: body.into() }
    }

    pub fn text(status: u16, body: impl Into<String>) -> Reply {
        Reply { status, content_type: "text/plain; charset=utf-8".into(), headers: vec![], body: body.into().into() }
    }

    pub fn empty(status: u16) -> Reply {
        Reply { status, content_type: "application/json".into(), headers: vec![], body: Bytes::new() }
    }

    /// `name` in lower case.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn ok(&self) -> bool {
        self.status < 300
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_and_path_are_decoded() {
        let uri = "/v2/a%20b//c?region=fra1&tag=x%2Fy+z&flag".parse().unwrap();
        let call = Call::new(Method::GET, &uri, HeaderMap::new(), Bytes::new());
        assert_eq!(call.segments(), ["v2", "a b", "c"]);
        assert_eq!(call.query("tag"), Some("x/y z"));
        assert_eq!(call.query("flag"), Some(""));
        assert_eq!(call.number("page", 1), 1);
    }
}
