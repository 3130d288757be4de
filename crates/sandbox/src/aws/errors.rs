//! AWS's errors. Clients decide by the code; each protocol writes them in its own form.

use std::borrow::Cow;

use serde_json::Value;

use crate::http::Refusal;

pub type Answer<T> = Result<T, Box<AwsError>>;

#[derive(Clone, Debug)]
pub struct AwsError {
    pub status: u16,
    pub code: Cow<'static, str>,
    pub message: String,
    /// Further members of the error, as a JSON object: EKS says which cluster it is about, S3 which bucket.
    pub details: Value,
}

/// With status 400, as most are.
pub fn fail<T>(code: &'static str, message: impl Into<String>) -> Answer<T> {
    Err(AwsError::new(400, code, message))
}

pub fn fail_with<T>(status: u16, code: &'static str, message: impl Into<String>) -> Answer<T> {
    Err(AwsError::new(status, code, message))
}

impl AwsError {
    pub fn new(status: u16, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Box<AwsError> {
        Box::new(AwsError { status, code: code.into(), message: message.into(), details: Value::Null })
    }

    pub fn missing(member: &str) -> Box<AwsError> {
        AwsError::new(400, "MissingParameter", format!("The request must contain the parameter {member}"))
    }

    pub fn details(mut self: Box<Self>, details: Value) -> Box<AwsError> {
        self.details = details;
        self
    }
}

/// What the core refuses, as a code that AWS's clients know. Which code a throttled call gets depends on the service.
pub fn of_refusal(refusal: &Refusal, throttled: (u16, &'static str)) -> AwsError {
    let (status, code) = match refusal {
        Refusal::Injected { status: 429, .. } => throttled,
        Refusal::Injected { status: 503, .. } => (503, "ServiceUnavailable"),
        Refusal::Injected { status: status @ 500.., .. } => (*status, "InternalFailure"),
        Refusal::Injected { status: 401, .. } => (401, "AuthFailure"),
        Refusal::Injected { status: 403, .. } => (403, "AccessDenied"),
        Refusal::Injected { status, .. } => (*status, "SandboxFault"),
        Refusal::Quota => (400, "LimitExceeded"),
        Refusal::NoCapacity { .. } => (400, "InsufficientCapacity"),
        Refusal::BadToken => (403, "InvalidClientTokenId"),
        Refusal::UnknownPath => (404, "UnknownOperationException"),
        Refusal::BodyTooLarge => (413, "RequestEntityTooLarge"),
        Refusal::BadBody(_) => (400, "MalformedInput"),
        Refusal::StateFile(_) => (500, "InternalFailure"),
    };
    AwsError { status, code: code.into(), message: refusal.to_string(), details: Value::Null }
}
