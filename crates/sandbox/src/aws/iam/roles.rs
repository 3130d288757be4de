//! Roles, and who may assume them.

use serde_json::{Value, json};

use super::document::{Attached, Policy, check};
use super::entity::*;
use super::model::{Grants, Role, name_key};
use super::{encoded, model::User};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};
use crate::aws::{Store, ids};

const MAX_TRUST_BYTES: usize = 2048;
const MAX_ROLES: usize = 1000;

/// The role of an ARN, whether or not the ARN holds its path.
pub fn by_arn<'s>(store: &'s Store, arn: &str) -> Option<&'s Role> {
    let name = arn.rsplit('/').next()?;
    store.iam.roles.get(name).filter(|role| role.arn == arn)
}

/// Whether a service such as `eks.amazonaws.com` may assume a role.
pub fn trusts_service(role: &Role, service: &str) -> bool {
    let policy = super::document::stored(&role.trust, Attached::Trust);
    policy.statements.iter().any(|statement| {
        let named = statement.principals.iter().filter(|principals| !principals.not).flat_map(|all| &all.named);
        statement.allow && named.into_iter().any(|(kind, value)| kind == "Service" && value == service)
    })
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = new_name(ask, "RoleName", 64)?;
    let path = path(ask)?;
    if path.starts_with("/aws-service-role/") {
        return invalid("Path names beginning with 'aws-service-role/' are reserved");
    }
    let trust = ask.input.text("AssumeRolePolicyDocument").unwrap_or_default().to_owned();
    check_trust(ask, &trust)?;
    let max_session_seconds = max_session(ask)?.unwrap_or(3600);
    let boundary = boundary(ask)?;
    let tags = new_tags(ask)?;
    let tables = &ask.state.store.iam;
    if tables.roles.first(&name_key(&name)).is_some() {
        return exists(format!("Role with name {name} already exists."));
    }
    if tables.roles.len() >= MAX_ROLES {
        return limit(format!("Cannot exceed quota for RolesPerAccount: {MAX_ROLES}"));
    }
    let role = Role {
        unique_id: format!("AROA{}", ids::upper(17)),
        arn: arn(ask, &format!("role{path}{name}")),
        name,
        path,
        trust,
        description: ask.input.text("Description").map(str::to_owned),
        max_session_seconds,
        grants: Grants { boundary, ..Grants::default() },
        tags,
        created: ask.now(),
    };
    let answer = json!({"Role": shown(&role, true)});
    ask.store().iam.roles.insert(role);
    Ok(answer)
}

fn max_session(ask: &Ask) -> Answer<Option<i64>> {
    let seconds = ask.input.int("MaxSessionDuration");
    let wrong = |bound: &str| {
        let seconds = seconds.unwrap_or_default();
        invalid(format!(
            "1 validation error detected: Value '{seconds}' at 'maxSessionDuration' failed to satisfy constraint: Member must have value {bound}"
        ))
    };
    match seconds {
        Some(..3600) => wrong("greater than or equal to 3600"),
        Some(43_201..) => wrong("less than or equal to 43200"),
        fine => Ok(fine),
    }
}

/// A trust policy may name only principals that there are.
fn check_trust(ask: &Ask, text: &str) -> Answer<Policy> {
    if text.len() > MAX_TRUST_BYTES {
        return limit(format!("Cannot exceed quota for ACLSizePerRole: {MAX_TRUST_BYTES}"));
    }
    let policy = check(text, Attached::Trust)?;
    let named =
        policy.statements.iter().filter_map(|statement| statement.principals.as_ref()).flat_map(|all| &all.named);
    for (kind, value) in named {
        let known = match kind.as_str() {
            "AWS" => known_principal(ask, value),
            "Service" => {
                value.ends_with(".amazonaws.com")
                    || value.ends_with(".amazonaws.com.cn")
                    || value.ends_with(".aws.internal")
            }
            "Federated" => value.contains('.') || value.starts_with("arn:"),
            _ => true,
        };
        if !known {
            let kind = kind.to_uppercase();
            return fail("MalformedPolicyDocument", format!("Invalid principal in policy: \"{kind}\":\"{value}\""));
        }
    }
    Ok(policy)
}

/// Principals of other accounts cannot be looked up, and are taken as they are.
pub fn known_principal(ask: &Ask, value: &str) -> bool {
    let digits = |text: &str| text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    if value == "*" || digits(value) {
        return true;
    }
    let parts: Vec<&str> = value.splitn(6, ':').collect();
    let [_, _, service, _, account, resource] = parts.as_slice() else { return by_unique_id(ask, value) };
    if !["iam", "sts"].contains(service) || !digits(account) {
        return false;
    }
    if *account != ask.account || *resource == "root" {
        return true;
    }
    let tables = &ask.state.store.iam;
    let name = resource.rsplit('/').next().unwrap_or_default();
    match resource.split('/').next() {
        Some("role") => tables.roles.get(name).is_some_and(|role| role.arn == value),
        // The user that unknown keys belong to is not kept in the table.
        Some("user") => {
            name == crate::aws::principal::ANYBODY || tables.users.get(name).is_some_and(|user| user.arn == value)
        }
        Some("assumed-role") => resource.split('/').nth(1).is_some_and(|role| tables.roles.get(role).is_some()),
        Some("federated-user") => true,
        _ => false,
    }
}

fn by_unique_id(ask: &Ask, value: &str) -> bool {
    let tables = &ask.state.store.iam;
    let is_role = |role: &Role| role.unique_id == value;
    let is_user = |user: &User| user.unique_id == value;
    tables.roles.iter().any(is_role) || tables.users.iter().any(is_user)
}

/// Lists leave out what costs AWS a second look.
pub fn shown(role: &Role, whole: bool) -> Value {
    let mut shown = json!({
        "Path": role.path,
        "RoleName": role.name,
        "RoleId": role.unique_id,
        "Arn": role.arn,
        "CreateDate": date(role.created),
        "AssumeRolePolicyDocument": encoded(&role.trust),
        "Description": role.description,
        "MaxSessionDuration": role.max_session_seconds,
    });
    if whole {
        shown["PermissionsBoundary"] = shown_boundary(&role.grants);
        shown["Tags"] = if role.tags.is_empty() { Value::Null } else { shown_tags(&role.tags) };
        // AWS fills this in hours after a use.
        shown["RoleLastUsed"] = json!({});
    }
    shown
}

pub fn get_role(ask: &mut Ask) -> Answer<Value> {
    Ok(json!({"Role": shown(find::<Role>(ask)?, true)}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let rows = ask.rows(|store| &store.iam.roles, "");
    let rows: Vec<&Role> = rows.into_iter().filter(|role| under_path(ask, &role.path)).collect();
    page(ask, "Roles", rows, |role| role.name.clone(), |role| shown(role, false))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let role = find::<Role>(ask)?;
    let name = role.name.clone();
    if role.path.starts_with("/aws-service-role/") {
        return super::service_linked::unmodifiable(&name);
    }
    if !role.grants.attached.is_empty() {
        return conflict("Cannot delete entity, must detach all policies first.");
    }
    if !role.grants.inline.is_empty() {
        return conflict("Cannot delete entity, must delete policies first.");
    }
    if ask.state.store.iam.profiles.first(&format!("role:{name}")).is_some() {
        return conflict("Cannot delete entity, must remove roles from instance profile first.");
    }
    ask.store().iam.roles.remove(&name);
    Ok(json!({}))
}

fn modifiable(ask: &Ask) -> Answer<()> {
    let role = find::<Role>(ask)?;
    match role.path.starts_with("/aws-service-role/") {
        true => super::service_linked::unmodifiable(&role.name),
        false => Ok(()),
    }
}

pub fn update_trust(ask: &mut Ask) -> Answer<Value> {
    modifiable(ask)?;
    let trust = ask.input.text("PolicyDocument").unwrap_or_default().to_owned();
    check_trust(ask, &trust)?;
    change::<Role, _>(ask, |role| role.trust = trust)?;
    Ok(json!({}))
}

/// Changes what is given, and nothing else.
pub fn update(ask: &mut Ask) -> Answer<Value> {
    find::<Role>(ask)?;
    let (description, seconds) = (ask.input.text("Description").map(str::to_owned), max_session(ask)?);
    change::<Role, _>(ask, |role| {
        if let Some(description) = description {
            role.description = Some(description);
        }
        role.max_session_seconds = seconds.unwrap_or(role.max_session_seconds);
    })?;
    Ok(json!({}))
}

pub fn update_description(ask: &mut Ask) -> Answer<Value> {
    let description = ask.input.text("Description").map(str::to_owned);
    let role = change::<Role, _>(ask, |role| {
        role.description = description;
        shown(role, true)
    })?;
    Ok(json!({"Role": role}))
}
