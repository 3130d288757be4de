//! The account as a whole: what it holds, in numbers and in full.

use serde_json::{Value, json};

use super::entity::*;
use super::model::{Grants, Group, ManagedPolicy, Role, User};
use super::{encoded, users};
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;

pub fn summary(ask: &mut Ask) -> Answer<Value> {
    let iam = &ask.state.store.iam;
    let numbers = [
        ("Users", iam.users.len()),
        ("UsersQuota", 5000),
        ("Groups", iam.groups.len()),
        ("GroupsQuota", 300),
        ("Roles", iam.roles.len()),
        ("RolesQuota", 1000),
        ("Policies", iam.policies.len()),
        ("PoliciesQuota", 1500),
        ("PolicyVersionsInUse", iam.policies.iter().map(|policy| policy.versions.len()).sum()),
        ("PolicyVersionsInUseQuota", 10_000),
        ("InstanceProfiles", iam.profiles.len()),
        ("InstanceProfilesQuota", 1000),
        ("Providers", iam.oidc.len()),
        ("ServerCertificates", 0),
        ("ServerCertificatesQuota", 20),
        ("SigningCertificatesPerUserQuota", 2),
        ("AccessKeysPerUserQuota", 2),
        ("GroupsPerUserQuota", 10),
        ("AttachedPoliciesPerGroupQuota", 10),
        ("AttachedPoliciesPerRoleQuota", 10),
        ("AttachedPoliciesPerUserQuota", 10),
        ("AssumeRolePolicySizeQuota", 2048),
        ("GroupPolicySizeQuota", 5120),
        ("RolePolicySizeQuota", 10_240),
        ("UserPolicySizeQuota", 2048),
        ("PolicySizeQuota", 6144),
        ("VersionsPerPolicyQuota", 5),
        ("GlobalEndpointTokenVersion", 1),
        ("MFADevices", 0),
        ("MFADevicesInUse", 0),
        ("AccountMFAEnabled", 0),
        ("AccountAccessKeysPresent", 0),
        ("AccountPasswordPresent", 1),
        ("AccountSigningCertificatesPresent", 0),
    ];
    let entries: Vec<Value> = numbers.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    // A map: its entries are elements of their own, not members of a list.
    Ok(json!({"SummaryMap": {"#entry": entries}}))
}

fn inline(grants: &Grants) -> Value {
    let shown = |(name, document): (&String, &String)| json!({"PolicyName": name, "PolicyDocument": encoded(document)});
    grants.inline.iter().map(shown).collect()
}

fn attached(grants: &Grants) -> Value {
    grants.attached.iter().map(|arn| json!({"PolicyName": arn.rsplit('/').next(), "PolicyArn": arn})).collect()
}

fn role_details(ask: &Ask, role: &Role) -> Value {
    let mut shown = super::roles::shown(role, true);
    if let Some(map) = shown.as_object_mut() {
        map.retain(|name, _| !["Description", "MaxSessionDuration"].contains(&name.as_str()));
    }
    shown["RolePolicyList"] = inline(&role.grants);
    shown["AttachedManagedPolicies"] = attached(&role.grants);
    let profiles = ask.state.store.iam.profiles.find(&format!("role:{}", role.name));
    shown["InstanceProfileList"] = profiles.map(|profile| super::profiles::shown(ask, profile)).collect();
    shown
}

fn user_details(user: &User) -> Value {
    let mut shown = users::shown(user, true);
    shown["UserPolicyList"] = inline(&user.grants);
    shown["AttachedManagedPolicies"] = attached(&user.grants);
    shown["GroupList"] = json!(user.groups);
    shown
}

fn group_details(group: &Group) -> Value {
    let mut shown = users::shown_group(group);
    shown["GroupPolicyList"] = inline(&group.grants);
    shown["AttachedManagedPolicies"] = attached(&group.grants);
    shown
}

fn policy_details(ask: &Ask, policy: &ManagedPolicy) -> Value {
    let iam = &ask.state.store.iam;
    let key = format!("attached:{}", policy.arn);
    let version = |version: &super::model::PolicyVersion| {
        json!({
            "VersionId": version.id,
            "IsDefaultVersion": version.id == policy.default_version,
            "CreateDate": date(version.created),
            "Document": encoded(&version.document),
        })
    };
    json!({
        "PolicyName": policy.name,
        "PolicyId": policy.unique_id,
        "Arn": policy.arn,
        "Path": policy.path,
        "DefaultVersionId": policy.default_version,
        "AttachmentCount": iam.roles.count(&key) + iam.users.count(&key) + iam.groups.count(&key),
        "IsAttachable": true,
        "Description": policy.description,
        "CreateDate": date(policy.created),
        "UpdateDate": date(policy.updated),
        "PolicyVersionList": policy.versions.iter().map(version).collect::<Vec<_>>(),
    })
}

/// All of it in one answer.
pub fn authorization_details(ask: &mut Ask) -> Answer<Value> {
    let filters = ask.input.texts("Filter");
    let wanted = |name: &str| filters.is_empty() || filters.contains(&name);
    let iam = &ask.state.store.iam;
    let roles: Vec<Value> = iam.roles.iter().filter(|_| wanted("Role")).map(|role| role_details(ask, role)).collect();
    let users: Vec<Value> = iam.users.iter().filter(|_| wanted("User")).map(user_details).collect();
    let groups: Vec<Value> = iam.groups.iter().filter(|_| wanted("Group")).map(group_details).collect();
    let own = iam.policies.iter().filter(|_| wanted("LocalManagedPolicy"));
    let policies: Vec<Value> = own.map(|policy| policy_details(ask, policy)).collect();
    Ok(json!({
        "UserDetailList": users,
        "GroupDetailList": groups,
        "RoleDetailList": roles,
        "Policies": policies,
        "IsTruncated": false,
    }))
}

pub fn aliases(ask: &mut Ask) -> Answer<Value> {
    let aliases: Vec<&str> = ask.state.store.iam.aliases.iter().map(|alias| alias.name.as_str()).collect();
    Ok(json!({"AccountAliases": aliases, "IsTruncated": false}))
}

pub fn create_alias(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.required("AccountAlias")?.to_owned();
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !(3..=63).contains(&name.len()) || !name.chars().all(fine) || name.starts_with('-') || name.ends_with('-') {
        return invalid(
            "1 validation error detected: Value at 'accountAlias' failed to satisfy constraint: Member must satisfy regular expression pattern: ^[a-z0-9]([a-z0-9]|-(?!-)){1,61}[a-z0-9]$",
        );
    }
    // An account has one.
    let earlier: Vec<String> = ask.state.store.iam.aliases.iter().map(|alias| alias.name.clone()).collect();
    for name in earlier {
        ask.store().iam.aliases.remove(&name);
    }
    ask.store().iam.aliases.insert(super::model::AccountAlias { name });
    Ok(json!({}))
}

pub fn delete_alias(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.required("AccountAlias")?.to_owned();
    match ask.store().iam.aliases.remove(&name) {
        Some(_) => Ok(json!({})),
        None => Err(no_such_entity(format!("The account alias {name} cannot be found."))),
    }
}

pub fn no_password_policy(ask: &mut Ask) -> Answer<Value> {
    let account = ask.account;
    Err(no_such_entity(format!("The Password Policy with domain name {account} cannot be found.")))
}

pub fn no_saml_providers(_: &mut Ask) -> Answer<Value> {
    Ok(json!({"SAMLProviderList": []}))
}

pub fn no_server_certificates(_: &mut Ask) -> Answer<Value> {
    Ok(json!({"ServerCertificateMetadataList": [], "IsTruncated": false}))
}

pub fn no_virtual_mfa_devices(_: &mut Ask) -> Answer<Value> {
    Ok(json!({"VirtualMFADevices": [], "IsTruncated": false}))
}
