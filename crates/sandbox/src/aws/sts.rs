//! STS: who calls, and temporary keys for roles and users.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ask::Ask;
use super::errors::{Answer, AwsError, fail, fail_with};
use super::iam::evaluate::{Question, Verdict, trusts};
use super::iam::model::Role;
use super::iam::{self, roles};
use super::principal::Identity;
use super::tables::object;
use super::wire::{Action, Protocol, Service};
use super::{ids, permission};
use crate::clock::SimTime;

pub static SERVICE: Service = Service {
    scope: "sts",
    protocol: Protocol::Query { namespace: "https://sts.amazonaws.com/doc/2011-06-15/" },
    actions: &[
        Action::read("GetCallerIdentity", get_caller_identity),
        Action::change("AssumeRole", assume_role),
        Action::change("AssumeRoleWithWebIdentity", assume_with_web_identity),
        Action::change("GetSessionToken", get_session_token),
        Action::read("GetAccessKeyInfo", get_access_key_info),
        Action::read("DecodeAuthorizationMessage", decode_authorization_message),
    ],
};

/// Temporary keys. They end by the real clock, since clients renew theirs by it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// `ASIA…`
    pub id: String,
    pub secret: String,
    pub token: String,
    pub owner: Owner,
    /// In milliseconds since 1970.
    expires_ms: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Owner {
    /// By name; an administrator where IAM has none of that name.
    User(String),
    Role {
        name: String,
        unique_id: String,
        session: String,
        policies: Vec<String>,
    },
}

impl Session {
    pub fn expired(&self) -> bool {
        self.expires_ms <= wall_ms()
    }
}

object!(Session, "aws.sts_session", id, |this| vec![]);

super::tables::tables! { sessions: Session }

fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_millis() as i64).unwrap_or(0)
}

fn get_caller_identity(ask: &mut Ask) -> Answer<Value> {
    Ok(json!({"Arn": ask.principal.arn, "UserId": ask.principal.user_id, "Account": ask.account}))
}

/// Makes temporary keys and shows them.
fn begin(ask: &mut Ask, owner: Owner, seconds: i64) -> Value {
    let sessions = &mut ask.store().sts.sessions;
    let ended: Vec<String> =
        sessions.iter().filter(|session| session.expired()).map(|session| session.id.clone()).collect();
    for id in ended {
        sessions.remove(&id);
    }
    let expires_ms = wall_ms() + seconds * 1000;
    let session = Session {
        id: format!("ASIA{}", ids::upper(16)),
        secret: ids::secret(),
        token: format!("IQoJb3JpZ2luX2Vj{}", STANDARD.encode(ids::random::<160>())),
        owner,
        expires_ms,
    };
    let shown = json!({
        "AccessKeyId": session.id,
        "SecretAccessKey": session.secret,
        "SessionToken": session.token,
        "Expiration": SimTime(expires_ms).rfc3339(),
    });
    sessions.insert(session);
    shown
}

fn duration(ask: &Ask, default: i64, max: i64, too_long: &'static str) -> Answer<i64> {
    match ask.input.int("DurationSeconds").unwrap_or(default) {
        seconds if seconds < 900 => fail(
            "ValidationError",
            format!(
                "1 validation error detected: Value '{seconds}' at 'durationSeconds' failed to satisfy constraint: Member must have value greater than or equal to 900"
            ),
        ),
        seconds if seconds > max => fail("ValidationError", too_long),
        seconds => Ok(seconds),
    }
}

fn session_name(ask: &Ask) -> Answer<String> {
    let name = ask.input.text("RoleSessionName").unwrap_or_default();
    let fine = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
    match (2..=64).contains(&name.len()) && name.chars().all(fine) {
        true => Ok(name.to_owned()),
        false => fail(
            "ValidationError",
            format!(
                "1 validation error detected: Value '{name}' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]*"
            ),
        ),
    }
}

/// The documents that narrow a session: one in the call, and managed ones.
fn session_policies(ask: &Ask) -> Answer<Vec<String>> {
    let mut all = Vec::new();
    if let Some(text) = ask.input.text("Policy") {
        if let Err(reason) = iam::parse_policy(text, iam::Attached::Identity) {
            return fail("MalformedPolicyDocument", reason);
        }
        all.push(text.to_owned());
    }
    for arn in ask.input.list("PolicyArns").iter().filter_map(|one| one.text("arn")) {
        match iam::policy_document(&ask.state.store.iam, arn) {
            Some(text) => all.push(text.to_owned()),
            None => return fail("ValidationError", format!("Policy {arn} does not exist")),
        }
    }
    Ok(all)
}

const TOO_LONG: &str = "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.";

fn assume_role(ask: &mut Ask) -> Answer<Value> {
    let arn = ask.input.required("RoleArn")?.to_owned();
    let name = session_name(ask)?;
    let refused = || {
        let caller = &ask.principal.arn;
        AwsError::new(
            403,
            "AccessDenied",
            format!("User: {caller} is not authorized to perform: sts:AssumeRole on resource: {arn}"),
        )
    };
    let role = roles::by_arn(ask.state.store, &arn).ok_or_else(refused)?;
    if ask.enforce {
        let (names, context) = (permission::names(ask), permission::context(ask));
        let action = "sts:AssumeRole";
        let question = Question { action, resource: &arn, principal: &names, context: &context };
        match trusts(&role.trust, &question) {
            Verdict::Allow => {}
            Verdict::Delegated => permission::check(ask, action, &arn, &context).map_err(|_| refused())?,
            Verdict::Deny | Verdict::Silent => return Err(refused()),
        }
    }
    // A role that assumes another gets an hour at most.
    let max = match ask.principal.identity {
        Identity::Role { .. } => 3600,
        _ => role.max_session_seconds,
    };
    let seconds = duration(ask, 3600, max, TOO_LONG)?;
    let role = role.clone();
    assumed(ask, &role, name, seconds)
}

fn assumed(ask: &mut Ask, role: &Role, session: String, seconds: i64) -> Answer<Value> {
    let policies = session_policies(ask)?;
    let user = json!({
        "AssumedRoleId": format!("{}:{session}", role.unique_id),
        "Arn": format!("arn:aws:sts::{}:assumed-role/{}/{session}", ask.account, role.name),
    });
    let owner = Owner::Role { name: role.name.clone(), unique_id: role.unique_id.clone(), session, policies };
    let credentials = begin(ask, owner, seconds);
    Ok(json!({"Credentials": credentials, "AssumedRoleUser": user, "SourceIdentity": ask.input.text("SourceIdentity")}))
}

fn invalid_token<T>(message: impl Into<String>) -> Answer<T> {
    fail("InvalidIdentityToken", message)
}

/// The claims of a token, unchecked.
fn claims(token: &str) -> Option<Value> {
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

fn assume_with_web_identity(ask: &mut Ask) -> Answer<Value> {
    let arn = ask.input.required("RoleArn")?.to_owned();
    let name = session_name(ask)?;
    let token = ask.input.required("WebIdentityToken")?.to_owned();
    let Some(claims) = claims(&token) else {
        return invalid_token(
            "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)",
        );
    };
    let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let issuer = text("iss");
    // Tokens of the sandbox's own clusters are checked by the key that signed them. Other issuers cannot be asked for theirs.
    if issuer.starts_with(&ask.kube.issuer(""))
        && let Err(reason) = ask.kube.check_token(&token)
    {
        return invalid_token(format!("Couldn't verify the token: {reason}"));
    }
    let url = issuer.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let provider_arn = format!("arn:aws:iam::{}:oidc-provider/{url}", ask.account);
    let Some(provider) = ask.state.store.iam.oidc.get(&provider_arn) else {
        return invalid_token(format!("No OpenIDConnect provider found in your account for {issuer}"));
    };
    let audiences: Vec<String> = match claims.get("aud") {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec![text("aud")],
    };
    if !audiences.iter().any(|audience| provider.client_ids.contains(audience)) {
        return invalid_token("Incorrect token audience");
    }
    let expires = claims.get("exp").and_then(Value::as_i64).unwrap_or(0);
    if expires * 1000 <= wall_ms() {
        let now = wall_ms() / 1000;
        return fail(
            "ExpiredTokenException",
            format!("Token expired: current date/time {now} must be before the expiration date/time{expires}"),
        );
    }
    let not_allowed = || AwsError::new(403, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity");
    let role = roles::by_arn(ask.state.store, &arn).ok_or_else(not_allowed)?.clone();
    let mut context = permission::context(ask);
    context.set(&format!("{url}:sub"), text("sub"));
    context.set_all(&format!("{url}:aud"), audiences.clone());
    context.set(&format!("{url}:iss"), issuer.clone());
    let mut names = permission::names(ask);
    names.federated = Some(provider_arn.clone());
    let question =
        Question { action: "sts:AssumeRoleWithWebIdentity", resource: &arn, principal: &names, context: &context };
    if trusts(&role.trust, &question) != Verdict::Allow {
        return Err(not_allowed());
    }
    let seconds = duration(ask, 3600, role.max_session_seconds, TOO_LONG)?;
    let mut answer = assumed(ask, &role, name, seconds)?;
    answer["SubjectFromWebIdentityToken"] = text("sub").into();
    answer["Audience"] = audiences.first().cloned().into();
    answer["Provider"] = provider_arn.into();
    Ok(answer)
}

fn get_session_token(ask: &mut Ask) -> Answer<Value> {
    let owner = match &ask.principal.identity {
        Identity::Administrator(name) | Identity::User(name) => Owner::User(name.clone()),
        Identity::Role { .. } | Identity::Nobody => {
            return fail_with(403, "AccessDenied", "Cannot call GetSessionToken with session credentials");
        }
    };
    let seconds = duration(ask, 43_200, 129_600, "DurationSeconds must have value less than or equal to 129600")?;
    Ok(json!({"Credentials": begin(ask, owner, seconds)}))
}

fn get_access_key_info(ask: &mut Ask) -> Answer<Value> {
    let key = ask.input.required("AccessKeyId")?;
    match (16..=128).contains(&key.len()) && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        true => Ok(json!({"Account": ask.account})),
        false => fail("ValidationError", "Request is missing a valid AccessKeyId"),
    }
}

fn decode_authorization_message(ask: &mut Ask) -> Answer<Value> {
    let text = ask.input.required("EncodedMessage")?;
    match permission::decoded(text) {
        Some(message) => Ok(json!({"DecodedMessage": message})),
        None => fail("InvalidAuthorizationMessageException", "The error message is invalid."),
    }
}
