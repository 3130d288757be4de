//! Whether policies allow an action on a resource.

pub use super::conditions::Context;
use super::conditions::holds;
use super::document::{Attached, Patterns, Policy, Principals, Statement, matches, stored};
use super::model::Grants;
use super::{Tables, policies};

/// Everything that has a say in what a caller may do.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Inline and attached, of the caller and of its groups.
    pub identity: Vec<Policy>,
    pub boundary: Option<Policy>,
    /// Given when the session was made.
    pub session: Option<Vec<Policy>>,
    /// Of the bucket, key or queue that is asked for.
    pub resource: Option<Policy>,
}

/// Where a decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Identity,
    Boundary,
    Session,
    Resource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    /// A statement denies it.
    Denied(Origin),
    /// No statement allows it.
    NotAllowed(Origin),
}

/// What is asked for.
pub struct Question<'a> {
    /// Such as `ec2:CreateVpc`.
    pub action: &'a str,
    pub resource: &'a str,
    /// Whose policies are looked at, as principals of a resource's policy are compared with it.
    pub principal: &'a PrincipalNames,
    pub context: &'a Context,
}

/// The names by which a policy can mean a caller.
#[derive(Clone, Debug, Default)]
pub struct PrincipalNames {
    pub account: String,
    /// Of the user, or of the session and its role.
    pub arns: Vec<String>,
    /// Such as `arn:aws:iam::1:oidc-provider/…` or `eks.amazonaws.com`.
    pub federated: Option<String>,
    pub service: Option<String>,
}

impl Policies {
    /// Those of a role or user; groups are added by `join`.
    pub fn of(tables: &Tables, grants: &Grants) -> Policies {
        let mut all = Policies::default();
        all.join(tables, grants);
        let boundary = grants.boundary.as_ref().and_then(|arn| policies::document(tables, arn));
        all.boundary = boundary.map(|text| stored(text, Attached::Identity));
        all
    }

    pub fn join(&mut self, tables: &Tables, grants: &Grants) {
        let attached = grants.attached.iter().filter_map(|arn| policies::document(tables, arn));
        let texts = grants.inline.values().map(String::as_str).chain(attached);
        self.identity.extend(texts.map(|text| stored(text, Attached::Identity)));
    }

    pub fn decide(&self, question: &Question) -> Decision {
        let session: &[Policy] = self.session.as_deref().unwrap_or(&[]);
        let identity = verdict(self.identity.iter(), question, false);
        let boundary = verdict(self.boundary.iter(), question, false);
        let in_session = verdict(session.iter(), question, false);
        let resource = verdict(self.resource.iter(), question, true);
        for (found, origin) in [
            (identity, Origin::Identity),
            (resource, Origin::Resource),
            (boundary, Origin::Boundary),
            (in_session, Origin::Session),
        ] {
            if found == Verdict::Deny {
                return Decision::Denied(origin);
            }
        }
        // A resource's policy that names the caller is enough by itself.
        if resource == Verdict::Allow {
            return Decision::Allowed;
        }
        if self.boundary.is_some() && boundary != Verdict::Allow {
            return Decision::NotAllowed(Origin::Boundary);
        }
        if self.session.is_some() && in_session != Verdict::Allow {
            return Decision::NotAllowed(Origin::Session);
        }
        match identity {
            Verdict::Allow => Decision::Allowed,
            _ => Decision::NotAllowed(Origin::Identity),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// The caller's account is allowed, which leaves it to the caller's own policies.
    Delegated,
    Deny,
    Silent,
}

pub fn verdict<'p>(policies: impl Iterator<Item = &'p Policy>, question: &Question, principals: bool) -> Verdict {
    let mut found = Verdict::Silent;
    for statement in policies.flat_map(|policy| &policy.statements).filter(|statement| applies(statement, question)) {
        let meant = match &statement.principals {
            _ if !principals => Meant::Itself,
            None => Meant::No,
            Some(named) => meant(named, question.principal),
        };
        match (meant, statement.allow) {
            (Meant::No, _) => {}
            (_, false) => return Verdict::Deny,
            (Meant::Itself, true) => found = Verdict::Allow,
            (Meant::Account, true) if found == Verdict::Silent => found = Verdict::Delegated,
            (Meant::Account, true) => {}
        }
    }
    found
}

fn applies(statement: &Statement, question: &Question) -> bool {
    let fits =
        |patterns: &Patterns, fit: &dyn Fn(&str) -> bool| patterns.patterns.iter().any(|one| fit(one)) != patterns.not;
    let action = question.action.to_lowercase();
    if !fits(&statement.actions, &|pattern| matches(&pattern.to_lowercase(), &action)) {
        return false;
    }
    if let Some(resources) = &statement.resources
        && !fits(resources, &|pattern| resource_matches(&question.context.filled(pattern), question.resource))
    {
        return false;
    }
    statement.conditions.iter().all(|condition| holds(condition, question.context))
}

/// A group of logs is written with and without what stands for its streams.
fn resource_matches(pattern: &str, resource: &str) -> bool {
    matches(pattern, resource)
        || (resource.starts_with("arn:aws:logs:") && matches(pattern, &format!("{resource}:log-stream:")))
}

/// How a statement means a caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meant {
    No,
    Account,
    Itself,
}

fn meant(principals: &Principals, caller: &PrincipalNames) -> Meant {
    let root = format!("arn:aws:iam::{}:root", caller.account);
    let how = |(kind, value): &(String, String)| {
        let itself = match kind.as_str() {
            "*" => true,
            "AWS" => value == "*" || caller.arns.contains(value),
            "Federated" => caller.federated.as_ref() == Some(value),
            "Service" => caller.service.as_ref() == Some(value),
            _ => false,
        };
        match itself {
            true => Meant::Itself,
            false if kind == "AWS" && (*value == caller.account || *value == root) => Meant::Account,
            false => Meant::No,
        }
    };
    let found = principals.named.iter().map(how).max().unwrap_or(Meant::No);
    match (principals.not, found) {
        (false, found) => found,
        (true, Meant::No) => Meant::Itself,
        (true, _) => Meant::No,
    }
}

/// Whether a trust policy lets a caller assume its role. One that names the account leaves it to the caller's own policies.
pub fn trusts(trust: &str, question: &Question) -> Verdict {
    let policy = stored(trust, Attached::Trust);
    verdict(std::iter::once(&policy), question, true)
}

/// What AWS says of a refusal, after the caller, the action and the resource.
pub fn reason(decision: Decision, action: &str) -> String {
    let name = |origin| match origin {
        Origin::Identity => ("an", "identity-based policy"),
        Origin::Boundary => ("a", "permissions boundary"),
        Origin::Session => ("a", "session policy"),
        Origin::Resource => ("a", "resource-based policy"),
    };
    match decision {
        Decision::Allowed => String::new(),
        Decision::Denied(origin) => {
            let (article, policy) = name(origin);
            format!("with an explicit deny in {article} {policy}")
        }
        Decision::NotAllowed(origin) => format!("because no {} allows the {action} action", name(origin).1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(statements: Value) -> Policy {
        super::super::document::parse(
            &json!({"Version": "2012-10-17", "Statement": statements}).to_string(),
            Attached::Identity,
        )
        .unwrap()
    }

    fn resource_policy(statements: Value) -> Policy {
        super::super::document::parse(
            &json!({"Version": "2012-10-17", "Statement": statements}).to_string(),
            Attached::Resource,
        )
        .unwrap()
    }

    fn ask(policies: &Policies, action: &str, resource: &str) -> Decision {
        let mut context = Context::default();
        context.set("aws:username", "ann");
        context.set("aws:RequestTag/team", "shop");
        let arn = "arn:aws:iam::111122223333:user/ann".to_owned();
        let principal = PrincipalNames { account: "111122223333".into(), arns: vec![arn], ..PrincipalNames::default() };
        policies.decide(&Question { action, resource, principal: &principal, context: &context })
    }

    #[test]
    fn statements_allow_and_deny_case_by_case() {
        let (allowed, silent, denied) =
            (Decision::Allowed, Decision::NotAllowed(Origin::Identity), Decision::Denied(Origin::Identity));
        for (statements, action, resource, expected) in [
            (json!([]), "ec2:CreateVpc", "*", silent),
            (json!([{"Effect": "Allow", "Action": "*", "Resource": "*"}]), "ec2:CreateVpc", "*", allowed),
            (json!([{"Effect": "Allow", "Action": "EC2:createvpc", "Resource": "*"}]), "ec2:CreateVpc", "*", allowed),
            (
                json!([{"Effect": "Allow", "Action": ["ec2:Describe*", "s3:*"], "Resource": "*"}]),
                "ec2:CreateVpc",
                "*",
                silent,
            ),
            (
                json!([{"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": "ec2:Delete*", "Resource": "*"}]),
                "ec2:DeleteVpc",
                "*",
                denied,
            ),
            (json!([{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}]), "iam:CreateRole", "*", silent),
            (json!([{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}]), "ec2:CreateVpc", "*", allowed),
            (
                json!([{"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::b/*"}]),
                "s3:GetObject",
                "arn:aws:s3:::b/k",
                allowed,
            ),
            (
                json!([{"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::b/*"}]),
                "s3:ListBucket",
                "arn:aws:s3:::b",
                silent,
            ),
            (
                json!([{"Effect": "Allow", "Action": "s3:*", "NotResource": "arn:aws:s3:::b/*"}]),
                "s3:GetObject",
                "arn:aws:s3:::b/k",
                silent,
            ),
            (
                json!([{"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::b/${aws:username}/*"}]),
                "s3:GetObject",
                "arn:aws:s3:::b/ann/k",
                allowed,
            ),
            (
                json!([{"Effect": "Allow", "Action": "ec2:*", "Resource": "*", "Condition": {"StringEquals": {"aws:RequestTag/team": "shop"}}}]),
                "ec2:CreateVpc",
                "*",
                allowed,
            ),
            (
                json!([{"Effect": "Allow", "Action": "ec2:*", "Resource": "*", "Condition": {"StringEquals": {"aws:RequestTag/team": "bank"}}}]),
                "ec2:CreateVpc",
                "*",
                silent,
            ),
            (
                json!([{"Effect": "Allow", "Action": "logs:*", "Resource": "arn:aws:logs:*:*:log-group:/x:*"}]),
                "logs:PutRetentionPolicy",
                "arn:aws:logs:eu-central-1:111122223333:log-group:/x",
                allowed,
            ),
        ] {
            let policies = Policies { identity: vec![policy(statements.clone())], ..Policies::default() };
            assert_eq!(ask(&policies, action, resource), expected, "{statements} {action} {resource}");
        }
    }

    #[test]
    fn boundaries_and_sessions_only_take_away() {
        let all = || policy(json!([{"Effect": "Allow", "Action": "*", "Resource": "*"}]));
        let only_ec2 = || policy(json!([{"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}]));
        let bounded = Policies { identity: vec![all()], boundary: Some(only_ec2()), ..Policies::default() };
        assert_eq!(ask(&bounded, "ec2:CreateVpc", "*"), Decision::Allowed);
        assert_eq!(ask(&bounded, "s3:CreateBucket", "*"), Decision::NotAllowed(Origin::Boundary));
        let session = Policies { identity: vec![all()], session: Some(vec![only_ec2()]), ..Policies::default() };
        assert_eq!(ask(&session, "s3:CreateBucket", "*"), Decision::NotAllowed(Origin::Session));
        let nothing = Policies { boundary: Some(all()), session: Some(vec![all()]), ..Policies::default() };
        assert_eq!(ask(&nothing, "ec2:CreateVpc", "*"), Decision::NotAllowed(Origin::Identity));
    }

    #[test]
    fn a_resources_policy_can_allow_and_deny_by_itself() {
        let of = |principal: Value, effect: &str| {
            let statement = json!({"Effect": effect, "Principal": principal, "Action": "s3:*", "Resource": "*"});
            Policies { resource: Some(resource_policy(json!([statement]))), ..Policies::default() }
        };
        let ann = json!({"AWS": "arn:aws:iam::111122223333:user/ann"});
        let bob = json!({"AWS": "arn:aws:iam::111122223333:user/bob"});
        assert_eq!(ask(&of(ann.clone(), "Allow"), "s3:GetObject", "*"), Decision::Allowed);
        assert_eq!(ask(&of(json!("*"), "Allow"), "s3:GetObject", "*"), Decision::Allowed);
        assert_eq!(ask(&of(bob, "Allow"), "s3:GetObject", "*"), Decision::NotAllowed(Origin::Identity));
        assert_eq!(ask(&of(ann, "Deny"), "s3:GetObject", "*"), Decision::Denied(Origin::Resource));
    }

    #[test]
    fn refusals_are_worded_as_aws_words_them() {
        assert_eq!(
            reason(Decision::NotAllowed(Origin::Identity), "ec2:CreateVpc"),
            "because no identity-based policy allows the ec2:CreateVpc action"
        );
        assert_eq!(
            reason(Decision::Denied(Origin::Boundary), "x:Y"),
            "with an explicit deny in a permissions boundary"
        );
    }
}
