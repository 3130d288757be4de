//! Whether IAM's policies allow a call, where they decide.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::ask::{Ask, Tags};
use super::errors::{Answer, AwsError};
use super::iam::evaluate::{Context, Decision, Policies, PrincipalNames, Question, reason};
use super::iam::{Attached, parse_policy};
use super::principal::Identity;
use super::{iam, resource_names};

/// Calls that need no permission, or are decided by the role's trust as well.
const FREE: [&str; 5] = [
    "sts:GetCallerIdentity",
    "sts:AssumeRole",
    "sts:AssumeRoleWithWebIdentity",
    "sts:GetSessionToken",
    "sts:GetAccessKeyInfo",
];

pub fn permit(ask: &Ask) -> Answer<()> {
    if !ask.enforce || matches!(ask.principal.identity, Identity::Administrator(_)) {
        return Ok(());
    }
    let action = resource_names::action(ask);
    if FREE.contains(&action.as_str()) {
        return Ok(());
    }
    let context = context(ask);
    resource_names::resources(ask).iter().try_for_each(|resource| check(ask, &action, resource, &context))
}

/// Whether the caller may hand a role to a service. Any role where policies do not decide.
pub fn pass_role(ask: &Ask, role: &str, service: &str) -> Answer<()> {
    if !ask.enforce || matches!(ask.principal.identity, Identity::Administrator(_)) {
        return Ok(());
    }
    let mut context = context(ask);
    context.set("iam:PassedToService", service);
    check(ask, "iam:PassRole", role, &context)
}

/// Refuses what the caller's policies do not allow.
pub fn check(ask: &Ask, action: &str, resource: &str, context: &Context) -> Answer<()> {
    let Some(mut policies) = policies(ask) else { return Ok(()) };
    let text = resource_names::policy(ask, resource);
    policies.resource = text.and_then(|text| parse_policy(&text, Attached::Resource).ok());
    let names = names(ask);
    let context = &with_resource_tags(ask, resource, context);
    match policies.decide(&Question { action, resource, principal: &names, context }) {
        Decision::Allowed => Ok(()),
        decision => Err(refused(ask, action, resource, decision)),
    }
}

/// Everything that decides about a caller; nothing for administrators.
fn policies(ask: &Ask) -> Option<Policies> {
    let tables = &ask.state.store.iam;
    match &ask.principal.identity {
        Identity::Administrator(_) => None,
        Identity::User(name) => Some(tables.users.get(name).map(|user| iam::of_user(ask, user)).unwrap_or_default()),
        Identity::Role { name, policies: session } => {
            let mut all = tables.roles.get(name).map(|role| Policies::of(tables, &role.grants)).unwrap_or_default();
            if !session.is_empty() {
                all.session =
                    Some(session.iter().filter_map(|text| parse_policy(text, Attached::Identity).ok()).collect());
            }
            Some(all)
        }
        Identity::Nobody => Some(Policies::default()),
    }
}

/// By which names policies of resources mean the caller.
pub fn names(ask: &Ask) -> PrincipalNames {
    let mut arns = vec![ask.principal.arn.clone()];
    arns.extend(role(ask).map(|role| role.arn.clone()));
    PrincipalNames { account: ask.account.to_owned(), arns, ..PrincipalNames::default() }
}

fn role<'t>(ask: &'t Ask<'_, '_>) -> Option<&'t iam::model::Role> {
    match &ask.principal.identity {
        Identity::Role { name, .. } => ask.state.store.iam.roles.get(name),
        _ => None,
    }
}

/// What conditions can look at.
pub fn context(ask: &Ask) -> Context {
    let mut context = Context::default();
    let principal = ask.principal;
    let principal_arn = role(ask).map_or(principal.arn.clone(), |role| role.arn.clone());
    context.set("aws:PrincipalArn", principal_arn);
    context.set("aws:PrincipalAccount", ask.account);
    context.set("aws:userid", principal.user_id.clone());
    context.set("aws:RequestedRegion", ask.region);
    context.set("aws:SourceIp", "127.0.0.1");
    context.set("aws:SecureTransport", "false");
    context.set("aws:CurrentTime", ask.state.now.rfc3339());
    context.set("aws:EpochTime", (ask.state.now.0 / 1000).to_string());
    context.set("aws:PrincipalIsAWSService", "false");
    context.set("aws:ViaAWSService", "false");
    let tags = match &principal.identity {
        Identity::User(name) => {
            context.set("aws:username", name.clone());
            context.set("aws:PrincipalType", "User");
            ask.state.store.iam.users.get(name).map(|user| user.tags.clone())
        }
        Identity::Administrator(name) => {
            context.set("aws:username", name.clone());
            None
        }
        Identity::Role { .. } => {
            context.set("aws:PrincipalType", "AssumedRole");
            role(ask).map(|role| role.tags.clone())
        }
        Identity::Nobody => None,
    };
    set_tags(&mut context, "aws:PrincipalTag", &tags.unwrap_or_default());
    if let Some(agent) = ask.call.headers.get("user-agent").and_then(|value| value.to_str().ok()) {
        context.set("aws:UserAgent", agent);
    }
    let requested = resource_names::request_tags(ask);
    set_tags(&mut context, "aws:RequestTag", &requested);
    let mut keys: Vec<String> = requested.into_keys().collect();
    keys.extend(["TagKeys", "tagKeys"].iter().flat_map(|name| ask.input.texts(name)).map(str::to_owned));
    if !keys.is_empty() {
        context.set_all("aws:TagKeys", keys);
    }
    resource_names::own_keys(ask, &mut context);
    context
}

fn set_tags(context: &mut Context, prefix: &str, tags: &Tags) {
    for (key, value) in tags {
        context.set(&format!("{prefix}/{key}"), value.clone());
    }
}

fn with_resource_tags(ask: &Ask, resource: &str, context: &Context) -> Context {
    let mut context = context.clone();
    let tags = resource_names::tags(ask, resource);
    set_tags(&mut context, "aws:ResourceTag", &tags);
    let service = resource.split(':').nth(2).unwrap_or_default();
    set_tags(&mut context, &format!("{service}:ResourceTag"), &tags);
    context
}

/// As the service that was asked refuses it.
fn refused(ask: &Ask, action: &str, resource: &str, decision: Decision) -> Box<AwsError> {
    let (caller, why) = (&ask.principal.arn, reason(decision, action));
    let told = format!("User: {caller} is not authorized to perform: {action} on resource: {resource} {why}");
    match ask.service {
        "ec2" => {
            let message = encoded(ask, action, resource, decision);
            let text = "You are not authorized to perform this operation.";
            AwsError::new(
                403,
                "UnauthorizedOperation",
                format!("{text} {told}. Encoded authorization failure message: {message}"),
            )
        }
        "iam" | "sts" | "s3" => AwsError::new(403, "AccessDenied", told),
        "eks" => AwsError::new(403, "AccessDeniedException", told),
        _ => AwsError::new(400, "AccessDeniedException", told),
    }
}

fn encoded(ask: &Ask, action: &str, resource: &str, decision: Decision) -> String {
    let message = json!({
        "allowed": false,
        "explicitDeny": matches!(decision, Decision::Denied(_)),
        "matchedStatements": {"items": []},
        "failures": {"items": []},
        "context": {
            "principal": {"id": ask.principal.user_id, "arn": ask.principal.arn},
            "action": action,
            "resource": resource,
            "conditions": {"items": []},
        },
    });
    URL_SAFE_NO_PAD.encode(message.to_string())
}

/// What an encoded message says.
pub fn decoded(text: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let message: Value = serde_json::from_slice(&bytes).ok()?;
    message.get("allowed").map(|_| message.to_string())
}
