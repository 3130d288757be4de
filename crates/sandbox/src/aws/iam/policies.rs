//! Managed policies: the account's own with their versions, and AWS's.

use serde_json::{Value, json};

use super::document::{Attached, check};
use super::entity::*;
use super::managed::{self, AwsPolicy};
use super::model::{ManagedPolicy, PolicyVersion};
use super::{Tables, encoded};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail_with};
use crate::aws::ids;

const MAX_VERSIONS: usize = 5;
/// White space does not count.
const MAX_CHARACTERS: usize = 6144;
const MAX_POLICIES: usize = 1500;

/// The document of a policy's default version, of whomever it is.
pub fn document<'t>(tables: &'t Tables, arn: &str) -> Option<&'t str> {
    if let Some(policy) = managed::get(arn) {
        return Some(&policy.document);
    }
    let policy = tables.policies.get(arn)?;
    policy.versions.iter().find(|version| version.id == policy.default_version).map(|version| version.document.as_str())
}

pub fn must_exist(ask: &Ask, arn: &str) -> Answer<()> {
    match managed::get(arn).is_some() || ask.state.store.iam.policies.get(arn).is_some() {
        true => Ok(()),
        false => Err(no_such_entity(format!("Policy {arn} does not exist or is not attachable."))),
    }
}

pub fn check_document(ask: &Ask) -> Answer<String> {
    let text = ask.input.text("PolicyDocument").unwrap_or_default();
    check(text, Attached::Identity)?;
    match text.chars().filter(|c| !c.is_whitespace()).count() > MAX_CHARACTERS {
        true => limit(format!("Cannot exceed quota for PolicySize: {MAX_CHARACTERS}")),
        false => Ok(text.to_owned()),
    }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = new_name(ask, "PolicyName", 128)?;
    let path = path(ask)?;
    let document = check_document(ask)?;
    let tags = new_tags(ask)?;
    let arn = arn(ask, &format!("policy{path}{name}"));
    let tables = &ask.state.store.iam;
    if tables.policies.first(&super::model::name_key(&name)).is_some() {
        return exists(format!("A policy called {name} already exists. Duplicate names are not allowed."));
    }
    if tables.policies.len() >= MAX_POLICIES {
        return limit(format!("Cannot exceed quota for PoliciesPerAccount: {MAX_POLICIES}"));
    }
    let now = ask.now();
    let policy = ManagedPolicy {
        arn,
        name,
        unique_id: format!("ANPA{}", ids::upper(17)),
        path,
        description: ask.input.text("Description").map(str::to_owned),
        versions: vec![PolicyVersion { id: "v1".into(), document, created: now }],
        default_version: "v1".into(),
        next_version: 2,
        tags,
        created: now,
        updated: now,
    };
    let answer = json!({"Policy": shown(&ask.state.store.iam, &policy, true)});
    ask.store().iam.policies.insert(policy);
    Ok(answer)
}

/// How many roles, users and groups have it attached, and how many as a boundary.
fn uses(tables: &Tables, arn: &str) -> (usize, usize) {
    let count = |key: &str| tables.roles.count(key) + tables.users.count(key) + tables.groups.count(key);
    (count(&format!("attached:{arn}")), count(&format!("boundary:{arn}")))
}

fn shown(tables: &Tables, policy: &ManagedPolicy, whole: bool) -> Value {
    let (attached, bounds) = uses(tables, &policy.arn);
    let mut shown = json!({
        "PolicyName": policy.name,
        "PolicyId": policy.unique_id,
        "Arn": policy.arn,
        "Path": policy.path,
        "DefaultVersionId": policy.default_version,
        "AttachmentCount": attached,
        "PermissionsBoundaryUsageCount": bounds,
        "IsAttachable": true,
        "CreateDate": date(policy.created),
        "UpdateDate": date(policy.updated),
    });
    if whole {
        shown["Description"] = policy.description.clone().into();
        shown["Tags"] = shown_tags(&policy.tags);
    }
    shown
}

fn shown_managed(tables: &Tables, policy: &AwsPolicy, whole: bool) -> Value {
    let (attached, bounds) = uses(tables, &policy.arn);
    let mut shown = json!({
        "PolicyName": policy.name,
        "PolicyId": policy.unique_id,
        "Arn": policy.arn,
        "Path": policy.path,
        "DefaultVersionId": policy.version,
        "AttachmentCount": attached,
        "PermissionsBoundaryUsageCount": bounds,
        "IsAttachable": true,
        "CreateDate": policy.created,
        "UpdateDate": policy.updated,
    });
    if whole {
        shown["Tags"] = json!([]);
    }
    shown
}

pub fn get_policy(ask: &mut Ask) -> Answer<Value> {
    let arn = named::<ManagedPolicy>(ask)?;
    let tables = &ask.state.store.iam;
    let shown = match managed::get(&arn) {
        Some(policy) => shown_managed(tables, policy, true),
        None => shown(tables, get::<ManagedPolicy>(ask, &arn)?, true),
    };
    Ok(json!({"Policy": shown}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let scope = ask.input.text("Scope").unwrap_or("All");
    let only_attached = ask.input.flag("OnlyAttached").unwrap_or(false);
    let boundaries = ask.input.text("PolicyUsageFilter") == Some("PermissionsBoundary");
    let tables = &ask.state.store.iam;
    let wanted = |arn: &str, path: &str| {
        let (attached, bounds) = uses(tables, arn);
        under_path(ask, path) && (!only_attached || attached + bounds > 0) && (!boundaries || bounds > 0)
    };
    let mut rows: Vec<(String, Value)> = Vec::new();
    if scope != "AWS" {
        let own = ask.rows(|store| &store.iam.policies, "").into_iter();
        rows.extend(own.filter(|p| wanted(&p.arn, &p.path)).map(|p| (p.arn.clone(), shown(tables, p, false))));
    }
    if scope != "Local" {
        let of_aws = managed::all().iter().filter(|p| wanted(&p.arn, &p.path));
        rows.extend(of_aws.map(|p| (p.arn.clone(), shown_managed(tables, p, false))));
    }
    page(ask, "Policies", rows, |(arn, _)| arn.clone(), |(_, shown)| shown.clone())
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let arn = own(ask)?;
    let policy = get::<ManagedPolicy>(ask, &arn)?;
    if uses(&ask.state.store.iam, &arn) != (0, 0) {
        return conflict("Cannot delete a policy attached to entities.");
    }
    if policy.versions.len() > 1 {
        return conflict(
            "This policy has more than one version. Before you delete a policy, you must delete the policy's versions. The default version is deleted with the policy.",
        );
    }
    ask.store().iam.policies.remove(&arn);
    Ok(json!({}))
}

/// The ARN that the input gives, which must not be one of AWS's own.
fn own(ask: &Ask) -> Answer<String> {
    let arn = named::<ManagedPolicy>(ask)?;
    match managed::get(&arn) {
        Some(_) => fail_with(403, "AccessDenied", format!("Policy {arn} is owned by AWS and cannot be changed.")),
        None => Ok(arn),
    }
}

fn shown_version(policy: &ManagedPolicy, version: &PolicyVersion, document: bool) -> Value {
    json!({
        "VersionId": version.id,
        "IsDefaultVersion": version.id == policy.default_version,
        "CreateDate": date(version.created),
        "Document": if document { encoded(&version.document) } else { Value::Null },
    })
}

pub fn get_version(ask: &mut Ask) -> Answer<Value> {
    let arn = named::<ManagedPolicy>(ask)?;
    let id = ask.input.text("VersionId").unwrap_or_default();
    if let Some(policy) = managed::get(&arn).filter(|policy| policy.version == id) {
        let document = encoded(&policy.document);
        let (version, created) = (&policy.version, &policy.updated);
        return Ok(json!({"PolicyVersion": {
            "VersionId": version, "IsDefaultVersion": true, "CreateDate": created, "Document": document,
        }}));
    }
    let policy = get::<ManagedPolicy>(ask, &arn)?;
    let version = policy.versions.iter().find(|version| version.id == id).ok_or_else(|| no_version(&arn, id))?;
    Ok(json!({"PolicyVersion": shown_version(policy, version, true)}))
}

fn no_version(arn: &str, id: &str) -> Box<crate::aws::errors::AwsError> {
    no_such_entity(format!("Policy {arn} version {id} does not exist or is not attachable."))
}

pub fn list_versions(ask: &mut Ask) -> Answer<Value> {
    let arn = named::<ManagedPolicy>(ask)?;
    if let Some(policy) = managed::get(&arn) {
        let shown = json!({"VersionId": policy.version, "IsDefaultVersion": true, "CreateDate": policy.updated});
        return Ok(json!({"IsTruncated": false, "Versions": [shown]}));
    }
    let policy = get::<ManagedPolicy>(ask, &arn)?;
    // The newest first.
    let rows: Vec<(usize, &PolicyVersion)> = policy.versions.iter().rev().enumerate().collect();
    page(ask, "Versions", rows, |(at, _)| format!("{at:03}"), |(_, version)| shown_version(policy, version, false))
}

pub fn create_version(ask: &mut Ask) -> Answer<Value> {
    let arn = own(ask)?;
    let document = check_document(ask)?;
    let policy = get::<ManagedPolicy>(ask, &arn)?;
    if policy.versions.len() >= MAX_VERSIONS {
        return limit(format!(
            "A managed policy can have up to {MAX_VERSIONS} versions. Before you create a new version, you must delete an existing version."
        ));
    }
    let (now, default) = (ask.now(), ask.input.flag("SetAsDefault").unwrap_or(false));
    let shown = change::<ManagedPolicy, _>(ask, |policy| {
        let version = PolicyVersion { id: format!("v{}", policy.next_version), document, created: now };
        policy.next_version += 1;
        policy.updated = now;
        if default {
            policy.default_version.clone_from(&version.id);
        }
        let shown = shown_version(policy, &version, false);
        policy.versions.push(version);
        shown
    })?;
    Ok(json!({"PolicyVersion": shown}))
}

pub fn delete_version(ask: &mut Ask) -> Answer<Value> {
    let arn = own(ask)?;
    let id = ask.input.text("VersionId").unwrap_or_default().to_owned();
    let policy = get::<ManagedPolicy>(ask, &arn)?;
    if !policy.versions.iter().any(|version| version.id == id) {
        return Err(no_version(&arn, &id));
    }
    if policy.default_version == id {
        return conflict("Cannot delete the default version of a policy.");
    }
    change::<ManagedPolicy, _>(ask, |policy| policy.versions.retain(|version| version.id != id))?;
    Ok(json!({}))
}

pub fn set_default_version(ask: &mut Ask) -> Answer<Value> {
    let arn = own(ask)?;
    let (id, now) = (ask.input.text("VersionId").unwrap_or_default().to_owned(), ask.now());
    if !get::<ManagedPolicy>(ask, &arn)?.versions.iter().any(|version| version.id == id) {
        return Err(no_version(&arn, &id));
    }
    change::<ManagedPolicy, _>(ask, |policy| {
        policy.default_version = id;
        policy.updated = now;
    })?;
    Ok(json!({}))
}

/// Who has a policy attached.
pub fn entities(ask: &mut Ask) -> Answer<Value> {
    let arn = named::<ManagedPolicy>(ask)?;
    if managed::get(&arn).is_none() {
        get::<ManagedPolicy>(ask, &arn)?;
    }
    let usage = match ask.input.text("PolicyUsageFilter") {
        Some("PermissionsBoundary") => vec!["boundary"],
        Some("PermissionsPolicy") => vec!["attached"],
        _ => vec!["attached", "boundary"],
    };
    let filter = ask.input.text("EntityFilter");
    let wanted = |kind: &str| filter.is_none_or(|filter| filter == kind);
    fn of<E: Grantee>(ask: &Ask, usage: &[&str], arn: &str) -> Vec<Value> {
        let table = E::table(&ask.state.store.iam);
        let rows = usage.iter().flat_map(|usage| table.find(&format!("{usage}:{arn}")));
        let name = E::MEMBER;
        let id = format!("{}Id", E::NOUN);
        let rows = rows.filter(|row| under_path(ask, row.path()));
        let mut shown: Vec<Value> = rows.map(|row| json!({name: row.id(), &id: row.unique_id()})).collect();
        shown.dedup();
        shown
    }
    let roles = if wanted("Role") { of::<super::model::Role>(ask, &usage, &arn) } else { Vec::new() };
    let users = if wanted("User") { of::<super::model::User>(ask, &usage, &arn) } else { Vec::new() };
    let groups = if wanted("Group") { of::<super::model::Group>(ask, &usage, &arn) } else { Vec::new() };
    Ok(json!({"PolicyRoles": roles, "PolicyUsers": users, "PolicyGroups": groups, "IsTruncated": false}))
}
