//! Refusals in the shape every Kubernetes client reads: a `Status` object.

use serde_json::{Value, json};

use super::access::Wish;
use super::schema::check::Violation;
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

/// Server-side apply found fields that another manager set to something else: managers as messages show them, and paths.
pub fn apply_conflict(fields: &[(String, String)]) -> Refused {
    let causes: Vec<Value> = fields
        .iter()
        .map(|(manager, field)| {
            json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": field})
        })
        .collect();
    let message = if let [(manager, field)] = fields {
        format!("Apply failed with 1 conflict: conflict with {manager}: {field}")
    } else {
        let mut managers: Vec<&str> = fields.iter().map(|(manager, _)| manager.as_str()).collect();
        managers.sort_unstable();
        managers.dedup();
        let one = |manager: &&str| {
            let paths = fields.iter().filter(|(by, _)| by == manager).map(|(_, field)| format!("\n- {field}"));
            format!("conflicts with {manager}:{}", paths.collect::<String>())
        };
        let list: Vec<String> = managers.iter().map(one).collect();
        format!("Apply failed with {} conflicts: {}", fields.len(), list.join("\n"))
    };
    refused(409, "Conflict", message, json!({"causes": causes}))
}

/// Everything that is wrong with a custom object.
pub fn invalid_fields(resource: &ResourceType, name: &str, found: &[Violation]) -> Refused {
    let causes: Vec<Value> =
        found.iter().map(|one| json!({"reason": one.reason, "message": one.message, "field": one.field})).collect();
    let list: Vec<String> = found.iter().map(|one| format!("{}: {}", one.field, one.message)).collect();
    let list = if let [one] = list.as_slice() { one.clone() } else { format!("[{}]", list.join(", ")) };
    let mut details = json!({"name": name, "kind": resource.kind, "causes": causes});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    refused(422, "Invalid", format!("{} \"{name}\" is invalid: {list}", shown_kind(resource)), details)
}

/// Kinds of named groups are told with their group.
fn shown_kind(resource: &ResourceType) -> String {
    if resource.group.is_empty() { resource.kind.to_owned() } else { format!("{}.{}", resource.kind, resource.group) }
}

pub fn not_admitted(resource: &ResourceType, name: &str, why: &str) -> Refused {
    refused(403, "Forbidden", format!("{} \"{name}\" is forbidden: {why}", resource.qualified()), about(resource, name))
}

pub fn not_admitted_name(plural: &str, name: &str, why: &str) -> Refused {
    refused(403, "Forbidden", format!("{plural} \"{name}\" is forbidden: {why}"), json!({"name": name, "kind": plural}))
}

pub fn namespace_not_found(name: &str) -> Refused {
    refused(404, "NotFound", format!("namespaces \"{name}\" not found"), json!({"name": name, "kind": "namespaces"}))
}

pub fn terminating(resource: &ResourceType, name: &str, namespace: &str) -> Refused {
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut refused = not_admitted(resource, name, &why);
    let message = format!("namespace {namespace} is being terminated");
    refused.body["details"]["causes"] =
        json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
    refused
}

pub fn internal(why: &str) -> Refused {
    let details = json!({"causes": [{"message": why}]});
    refused(500, "InternalError", format!("Internal error occurred: {why}"), details)
}

/// An eviction that a disruption budget does not allow now.
pub fn too_disruptive(budget: &str, desired: i64, healthy: i64) -> Refused {
    let why = format!("The disruption budget {budget} needs {desired} healthy pods and has {healthy} currently");
    let details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
    refused(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.".into(), details)
}

/// A watch from a version whose successors are no longer known.
pub fn expired(version: u64, oldest: u64) -> Refused {
    refused(410, "Expired", format!("too old resource version: {version} ({oldest})"), Value::Null)
}

/// What cannot be had because nothing runs in these containers.
pub fn not_simulated(what: &str) -> Refused {
    let why =
        format!("{what} is not possible: the containers of a sandbox cluster are simulated, and nothing runs in them");
    refused(501, "NotImplemented", why, Value::Null)
}

/// A service that somebody registered and nobody answers for.
pub fn service_unavailable() -> Refused {
    refused(503, "ServiceUnavailable", "the server is currently unable to handle the request".into(), Value::Null)
}

pub fn invalid(resource: &ResourceType, name: &str, field: &str, why: &str) -> Refused {
    let message = format!("{} \"{name}\" is invalid: {field}: {why}", shown_kind(resource));
    let reason = match why.split(':').next() {
        Some("Required value") => "FieldValueRequired",
        Some("Unsupported value") => "FieldValueNotSupported",
        Some("Forbidden") => "FieldValueForbidden",
        _ => "FieldValueInvalid",
    };
    let mut details = json!({
        "name": name, "kind": resource.kind, "causes": [{"reason": reason, "message": why, "field": field}],
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
