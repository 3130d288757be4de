//! Refusals in the shape every Kubernetes client reads: a `Status` object.

use serde_json::{Value, json};

use super::access::Wish;
use super::types::ResourceType;
use crate::http::Refusal;

/// A request that the API server turns down.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    pub code: u16,
    pub body: Value,
}

pub type Answer<T> = Result<T, Refused>;

fn refused(code: u16, reason: &str, message: String, details: Value) -> Refused {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if !details.is_null() {
        body["details"] = details;
    }
    Refused { code, body }
}

fn about(resource: &ResourceType, name: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.plural});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    details
}

pub fn unauthorized() -> Refused {
    refused(401, "Unauthorized", "Unauthorized".into(), Value::Null)
}

/// A token that is not good here, and why.
pub fn bad_token(why: &str) -> Refused {
    refused(401, "Unauthorized", format!("Unauthorized: {why}"), Value::Null)
}

/// What a user may not do, in Kubernetes' own words.
pub fn forbidden(wish: &Wish, user: &str) -> Refused {
    let details = match wish.path.is_empty() {
        true => json!({"name": wish.name, "group": wish.group, "kind": wish.resource}),
        false => json!({}),
    };
    refused(403, "Forbidden", wish.refusal(user), details)
}

/// What a fault rule asked for.
pub fn fault(refusal: &Refusal) -> Refused {
    refused(refusal.status(), "InternalError", refusal.to_string(), Value::Null)
}

/// What a control plane that is still being built, or going away, answers.
pub fn unavailable() -> Refused {
    refused(503, "ServiceUnavailable", "the control plane of this cluster is not up".into(), Value::Null)
}

/// A real control plane that does not serve, and why.
pub fn control_plane_down(reason: &dyn std::fmt::Display) -> Refused {
    let message = format!("the control plane of this cluster is not up: {reason}");
    refused(503, "ServiceUnavailable", message, Value::Null)
}

/// What the sandbox itself cannot do for a cluster with a real control plane.
pub fn beyond_limits(reason: &dyn std::fmt::Display) -> Refused {
    refused(403, "Forbidden", reason.to_string(), Value::Null)
}

pub fn no_such_path() -> Refused {
    refused(404, "NotFound", "the server could not find the requested resource".into(), json!({}))
}

pub fn no_such_cluster(id: &str) -> Refused {
    refused(404, "NotFound", format!("cluster \"{id}\" not found"), json!({"name": id, "kind": "clusters"}))
}

pub fn not_found(resource: &ResourceType, name: &str) -> Refused {
    refused(404, "NotFound", format!("{} \"{name}\" not found", resource.qualified()), about(resource, name))
}

pub fn already_exists(resource: &ResourceType, name: &str) -> Refused {
    refused(409, "AlreadyExists", format!("{} \"{name}\" already exists", resource.qualified()), about(resource, name))
}

pub fn conflict(resource: &ResourceType, name: &str, why: &str) -> Refused {
    let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
    refused(409, "Conflict", message, about(resource, name))
}

/// Server-side apply found fields that another manager set to something else.
pub fn apply_conflict(resource: &ResourceType, name: &str, fields: &[(String, String)]) -> Refused {
    let causes: Vec<Value> = fields
        .iter()
        .map(|(manager, field)| {
            json!({"reason": "FieldManagerConflict", "message": format!("conflict with \"{manager}\""), "field": field})
        })
        .collect();
    let list: Vec<String> =
        fields.iter().map(|(manager, field)| format!("conflict with \"{manager}\": {field}")).collect();
    let message = format!("Apply failed with {} conflict(s): {}", fields.len(), list.join(", "));
    let mut details = about(resource, name);
    details["causes"] = json!(causes);
    refused(409, "Conflict", message, details)
}

pub fn invalid(resource: &ResourceType, name: &str, field: &str, why: &str) -> Refused {
    let message = format!("{} \"{name}\" is invalid: {field}: {why}", resource.kind);
    let mut details = json!({
        "name": name, "kind": resource.kind,
        "causes": [{"reason": "FieldValueInvalid", "message": why, "field": field}],
    });
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    refused(422, "Invalid", message, details)
}

pub fn bad_request(message: impl Into<String>) -> Refused {
    refused(400, "BadRequest", message.into(), Value::Null)
}

pub fn method_not_allowed() -> Refused {
    refused(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource".into(),
        json!({}),
    )
}

pub fn not_acceptable_media(content_type: &str) -> Refused {
    let message = format!("the body of the request was in an unknown format: {content_type}");
    refused(415, "UnsupportedMediaType", message, Value::Null)
}

pub fn too_large() -> Refused {
    refused(413, "RequestEntityTooLarge", "the request body is too large".into(), Value::Null)
}

/// The body of a deletion that took effect at once.
pub fn deleted(resource: &ResourceType, name: &str, uid: &str) -> Value {
    let mut details = about(resource, name);
    details["uid"] = json!(uid);
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}
