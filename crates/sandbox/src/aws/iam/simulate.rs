//! What policies would decide, without doing anything.

use serde_json::{Value, json};

use super::document::{Attached, check};
use super::entity::*;
use super::evaluate::{Context, Decision, Policies, PrincipalNames, Question};
use super::model::User;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};

pub fn principal(ask: &mut Ask) -> Answer<Value> {
    let arn = ask.input.required("PolicySourceArn")?;
    let tables = &ask.state.store.iam;
    let name = arn.rsplit('/').next().unwrap_or_default();
    let mut policies = if let Some(user) = tables.users.get(name).filter(|user| user.arn == arn) {
        of_user(ask, user)
    } else if let Some(role) = super::roles::by_arn(ask.state.store, arn) {
        Policies::of(tables, &role.grants)
    } else if let Some(group) = tables.groups.get(name).filter(|group| group.arn == arn) {
        Policies::of(tables, &group.grants)
    } else {
        return Err(no_such_entity(format!("No such entity: {arn}")));
    };
    add_inputs(ask, &mut policies)?;
    let caller =
        PrincipalNames { account: ask.account.to_owned(), arns: vec![arn.to_owned()], ..PrincipalNames::default() };
    results(ask, &policies, &caller)
}

/// A user's own policies and those of its groups.
pub fn of_user(ask: &Ask, user: &User) -> Policies {
    let tables = &ask.state.store.iam;
    let mut policies = Policies::of(tables, &user.grants);
    for group in user.groups.iter().filter_map(|name| tables.groups.get(name)) {
        policies.join(tables, &group.grants);
    }
    policies
}

pub fn custom(ask: &mut Ask) -> Answer<Value> {
    let mut policies = Policies::default();
    add_inputs(ask, &mut policies)?;
    results(ask, &policies, &PrincipalNames { account: ask.account.to_owned(), ..PrincipalNames::default() })
}

/// The policies that the input itself holds.
fn add_inputs(ask: &Ask, policies: &mut Policies) -> Answer<()> {
    for text in ask.input.texts("PolicyInputList") {
        policies.identity.push(check(text, Attached::Identity)?);
    }
    if let Some(text) = ask.input.texts("PermissionsBoundaryPolicyInputList").first() {
        policies.boundary = Some(check(text, Attached::Identity)?);
    }
    if let Some(text) = ask.input.text("ResourcePolicy") {
        policies.resource = Some(check(text, Attached::Resource)?);
    }
    Ok(())
}

fn context(ask: &Ask) -> Context {
    let mut context = Context::default();
    for entry in ask.input.list("ContextEntries") {
        if let Some(key) = entry.text("ContextKeyName") {
            context.set_all(key, entry.texts("ContextKeyValues").into_iter().map(str::to_owned).collect());
        }
    }
    context
}

fn results(ask: &Ask, policies: &Policies, principal: &PrincipalNames) -> Answer<Value> {
    let actions = ask.input.texts("ActionNames");
    if actions.is_empty() {
        return fail("InvalidInput", "Invalid input: no action is named");
    }
    let mut resources = ask.input.texts("ResourceArns");
    if resources.is_empty() {
        resources.push("*");
    }
    let context = context(ask);
    let mut rows = Vec::new();
    for action in &actions {
        for resource in &resources {
            let decision = policies.decide(&Question { action, resource, principal, context: &context });
            let word = match decision {
                Decision::Allowed => "allowed",
                Decision::Denied(_) => "explicitDeny",
                Decision::NotAllowed(_) => "implicitDeny",
            };
            rows.push(json!({
                "EvalActionName": action,
                "EvalResourceName": resource,
                "EvalDecision": word,
                "MatchedStatements": [],
                "MissingContextValues": [],
            }));
        }
    }
    page(
        ask,
        "EvaluationResults",
        rows.into_iter().enumerate().collect(),
        |(at, _)| format!("{at:05}"),
        |(_, row)| row.clone(),
    )
}
