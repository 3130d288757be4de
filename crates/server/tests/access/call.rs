//! One call, by gRPC or by REST, from the same JSON.

use crate::setup::Server;
use berth_server::Fault;
use berth_server::api::methods::{Segment, methods};
use prost::Message;
use prost_reflect::DynamicMessage;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, TE};
use serde::de::DeserializeSeed;
use serde_json::{Value, json};
use std::time::Duration;

/// Whoever waits this long was let in.
const LET_IN_AFTER: Duration = Duration::from_millis(800);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    Rest,
}

#[derive(Debug)]
pub struct Answer {
    /// The problem's code; `ok`; `waits` for an answer that does not come.
    pub code: String,
    pub message: String,
    pub body: String,
}

impl Server {
    /// `None` where a method cannot be called this way.
    pub async fn call(&self, protocol: Protocol, method: &str, request: &Value, token: Option<&str>) -> Option<Answer> {
        let known = methods().all().iter().find(|known| known.label == method).expect("a method");
        let request = match protocol {
            Protocol::Grpc => {
                let input = known.descriptor.input();
                let message: DynamicMessage = input.deserialize(request.clone()).expect("a request");
                let bytes = message.encode_to_vec();
                let mut frame = vec![0];
                frame.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
                frame.extend(bytes);
                self.http
                    .post(format!("{}{}", self.running.url(), known.path))
                    .header(CONTENT_TYPE, "application/grpc")
                    .header(TE, "trailers")
                    .body(frame)
            }
            Protocol::Rest => {
                let rest = known.rest.as_ref()?;
                let mut left = request.as_object().expect("an object").clone();
                let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let parts = rest.segments.iter().map(|segment| match segment {
                    Segment::Literal(text) => text.clone(),
                    Segment::Field(name) => text(left.remove(name).expect("a field of the path")),
                });
                let path = parts.collect::<Vec<_>>().join("/");
                let url = format!("{}/{path}", self.running.url());
                if rest.has_body() {
                    self.http.post(url).json(&left)
                } else {
                    let mut query = Vec::new();
                    for (name, value) in left {
                        match value {
                            Value::Array(all) => query.extend(all.into_iter().map(|one| (name.clone(), text(one)))),
                            one => query.push((name, text(one))),
                        }
                    }
                    let verb = if rest.verb == "DELETE" { reqwest::Method::DELETE } else { reqwest::Method::GET };
                    self.http.request(verb, url).query(&query)
                }
            }
        };
        let request = match token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        };
        let Ok(sent) = tokio::time::timeout(LET_IN_AFTER.max(patience(method)), request.send()).await else {
            return Some(Answer { code: "waits".into(), message: String::new(), body: String::new() });
        };
        Some(read(protocol, known.streams, sent.unwrap()).await)
    }
}

/// Only what waits for a worker is given up early.
fn patience(method: &str) -> Duration {
    let waits = ["Resources.Plan", "Resources.Drift", "Resources.Import"].contains(&method);
    if waits { LET_IN_AFTER } else { Duration::from_secs(30) }
}

async fn read(protocol: Protocol, streams: bool, response: reqwest::Response) -> Answer {
    let headers = response.headers().clone();
    let status = response.status();
    if streams && status.is_success() && !headers.contains_key("grpc-status") {
        return Answer { code: "ok".into(), message: String::new(), body: String::new() };
    }
    let bytes = response.bytes().await.unwrap();
    let body = String::from_utf8_lossy(&bytes).into_owned();
    match protocol {
        Protocol::Grpc => {
            match tonic::Status::from_header_map(&headers).filter(|status| status.code() != tonic::Code::Ok) {
                None => Answer { code: "ok".into(), message: String::new(), body },
                Some(status) => {
                    let fault = Fault::from_status(&status);
                    Answer { code: fault.code.name().into(), message: fault.message, body }
                }
            }
        }
        Protocol::Rest if status.is_success() => Answer { code: "ok".into(), message: String::new(), body },
        Protocol::Rest => {
            let problem: Value = serde_json::from_slice(&bytes).unwrap_or(json!({}));
            let kind = problem["type"].as_str().unwrap_or_default();
            let code = kind.rsplit(['/', ':', '#']).next().unwrap_or_default().to_owned();
            let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
            Answer { code, message: format!("{} {}", text("title"), text("detail")), body }
        }
    }
}
