//! DigitalOcean's way to say no: a status code and `{"id", "message", "request_id"}`.

use serde_json::json;

use crate::http::{Refusal, Reply};

/// Why a call is turned down.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub status: u16,
    pub message: String,
}

pub type Answer<T> = Result<T, ApiError>;

impl ApiError {
    pub fn reply(&self) -> Reply {
        // The id of the request is known only where headers are added; see `stamp`.
        Reply::json(self.status, &json!({"id": error_id(self.status), "message": self.message}))
    }
}

pub fn not_found() -> ApiError {
    ApiError { status: 404, message: "The resource you were accessing could not be found.".into() }
}

pub fn invalid(message: impl Into<String>) -> ApiError {
    ApiError { status: 422, message: message.into() }
}

/// The wording of Kubernetes' part of the API.
pub fn invalid_spec(message: impl AsRef<str>) -> ApiError {
    invalid(format!("validation error: {}", message.as_ref()))
}

pub fn forbidden(message: impl Into<String>) -> ApiError {
    ApiError { status: 403, message: message.into() }
}

pub fn not_yet(message: impl Into<String>) -> ApiError {
    ApiError { status: 412, message: message.into() }
}

pub fn limit_reached(what: &str) -> ApiError {
    invalid_spec(format!("this would exceed your account's {what} limit"))
}

pub fn no_capacity(region: &str) -> ApiError {
    invalid_spec(format!("region {region} has no capacity for the requested nodes at this time"))
}

/// What the core refuses, in DigitalOcean's words.
pub fn of(refusal: &Refusal) -> ApiError {
    match refusal {
        Refusal::Quota => limit_reached("Droplet"),
        Refusal::NoCapacity { region } => no_capacity(region),
        Refusal::BadToken => ApiError { status: 401, message: "Unable to authenticate you".into() },
        Refusal::UnknownPath => not_found(),
        Refusal::BadBody(why) => {
            ApiError { status: 400, message: format!("the request body could not be parsed: {why}") }
        }
        Refusal::BodyTooLarge | Refusal::StateFile(_) => {
            ApiError { status: refusal.status(), message: refusal.to_string() }
        }
        Refusal::Injected { status, .. } => ApiError { status: *status, message: usual_message(*status).into() },
    }
}

fn error_id(status: u16) -> &'static str {
    match status {
        400 => "bad_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        409 => "conflict",
        412 => "precondition_failed",
        413 => "request_entity_too_large",
        422 => "unprocessable_entity",
        429 => "too_many_requests",
        502 => "bad_gateway",
        503 => "service_unavailable",
        504 => "gateway_timeout",
        _ => "server_error",
    }
}

fn usual_message(status: u16) -> &'static str {
    match status {
        400 => "The request is not valid.",
        401 => "Unable to authenticate you",
        403 => "You do not have access for the attempted action.",
        404 => "The resource you were accessing could not be found.",
        409 => "The resource is in a state that does not allow the attempted action.",
        422 => "The request could not be processed.",
        429 => "API Rate limit exceeded.",
        503 => "Service temporarily unavailable.",
        _ => "Server Error",
    }
}
