//! Civo's errors: `{"code", "reason", "details"}`. Clients decide by the code.

use serde_json::json;

use crate::http::{Refusal, Reply};

#[derive(Debug)]
pub struct ApiError {
    pub status: u16,
    pub code: &'static str,
    pub reason: String,
}

pub type Answer<T> = Result<T, ApiError>;

pub fn fail<T>(status: u16, code: &'static str, reason: impl Into<String>) -> Answer<T> {
    Err(ApiError { status, code, reason: reason.into() })
}

impl ApiError {
    pub fn reply(&self) -> Reply {
        Reply::json(self.status, &json!({"code": self.code, "reason": self.reason, "details": ""}))
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        let code = match &refusal {
            Refusal::Injected { status, .. } => injected_code(*status),
            Refusal::Quota => "quota_limit_reached",
            Refusal::NoCapacity { .. } => "out_of_capacity",
            Refusal::BadToken => "database_account_not_found",
            Refusal::UnknownPath => "not_found",
            Refusal::BodyTooLarge => "parameter_too_large",
            Refusal::BadBody(_) => "json_parse_error",
            Refusal::StateFile(_) => "internal_server_error",
        };
        let reason = match &refusal {
            Refusal::Quota => "The requested resources would take you over your quota".to_owned(),
            Refusal::BadToken => "Failed to find the account within the internal database".to_owned(),
            Refusal::NoCapacity { region } => format!("The region {region} is currently out of capacity"),
            other => other.to_string(),
        };
        ApiError { status: refusal.status(), code, reason }
    }
}

fn injected_code(status: u16) -> &'static str {
    match status {
        401 => "authentication_failed",
        403 => "authentication_access_denied",
        404 => "not_found",
        409 => "conflict",
        429 => "too_many_requests",
        500 => "internal_server_error",
        502 => "bad_gateway",
        503 => "service_unavailable",
        504 => "gateway_timeout",
        _ => "sandbox_fault",
    }
}

/// What the core refuses. A body with `status: 500` is what Civo's own client takes for an internal error.
pub fn refuse(refusal: &Refusal) -> Reply {
    let ApiError { status, code, reason } = ApiError::from(refusal.clone());
    match status {
        500.. => Reply::json(status, &json!({"status": status, "code": code, "reason": reason, "details": ""})),
        401 => Reply::json(
            status,
            &json!({"code": code, "reason": reason, "details": "", "result": "requires_authentication"}),
        ),
        _ => ApiError { status, code, reason }.reply(),
    }
}
