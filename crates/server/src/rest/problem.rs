//! Errors as RFC 9457 problem documents, with the same positions and hints as the command line shows.

use super::json_writer;
use super::message_shapes::MessageShapes;
use crate::fault::{Code, Fault};
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use prost::Message;
use serde_json::{Map, Value, json};

pub const MEDIA_TYPE: &str = "application/problem+json";
/// `type` is this and the code.
pub const TYPES: &str = "https://berth.dev/problems/";

/// What only HTTP knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpOnly {
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
}

impl HttpOnly {
    pub fn row(self) -> (&'static str, u16, &'static str) {
        match self {
            HttpOnly::MethodNotAllowed => ("method-not-allowed", 405, "The path does not take this method"),
            HttpOnly::NotAcceptable => ("not-acceptable", 406, "There is no answer in the form asked for"),
            HttpOnly::UnsupportedMediaType => ("unsupported-media-type", 415, "The body has to be JSON"),
        }
    }
}

pub fn title(code: Code) -> &'static str {
    match code {
        Code::InvalidManifest => "The manifests are not valid",
        Code::InvalidArgument => "The request is not valid",
        Code::Unauthenticated => "A valid token is needed",
        Code::Denied => "This token may not do that",
        Code::NotFound => "It does not exist",
        Code::Conflict => "Someone else changed it meanwhile",
        Code::Refused => "It cannot be done as things are",
        Code::TooLarge => "The request is too large",
        Code::TooMany => "Too many requests",
        Code::TimedOut => "It took too long",
        Code::Unavailable => "Not available just now",
        Code::Internal => "Something is wrong inside the server",
    }
}

/// The document alone.
pub fn document(shapes: &MessageShapes, detail_shape: usize, fault: &Fault, instance: &str) -> Map<String, Value> {
    let mut document = head(fault.code.name(), title(fault.code), fault.code.http(), &fault.message, instance);
    let mut text = Vec::new();
    if json_writer::message(shapes, detail_shape, &fault.detail().encode_to_vec(), &mut text).is_ok()
        && let Ok(Value::Object(mut detail)) = serde_json::from_slice(&text)
    {
        for name in ["help", "problems", "conflicts"] {
            if let Some(list) = detail.remove(name).filter(|list| list.as_array().is_some_and(|list| !list.is_empty()))
            {
                document.insert(name.into(), list);
            }
        }
    }
    document
}

pub fn response(shapes: &MessageShapes, detail_shape: usize, fault: &Fault, instance: &str) -> Response<Body> {
    let mut response = respond(fault.code.http(), document(shapes, detail_shape, fault, instance));
    let headers = response.headers_mut();
    match fault.code {
        Code::Unauthenticated => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"berth\""));
        }
        Code::TooMany | Code::Unavailable => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    response
}

pub fn http_only(what: HttpOnly, detail: &str, instance: &str) -> Response<Body> {
    let (code, status, title) = what.row();
    respond(status, head(code, title, status, detail, instance))
}

fn head(code: &str, title: &str, status: u16, detail: &str, instance: &str) -> Map<String, Value> {
    let head = json!({
        "type": format!("{TYPES}{code}"),
        "title": title,
        "status": status,
        "detail": detail,
        "instance": instance,
    });
    match head {
        Value::Object(head) => head,
        _ => Map::new(),
    }
}

fn respond(status: u16, document: Map<String, Value>) -> Response<Body> {
    let mut response = Response::new(Body::from(Value::Object(document).to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
