//! Who calls, whether the signature is theirs, and whether they may.

use super::errors::{Answer, AwsError};
pub use super::permission::{pass_role, permit};
use super::principal::{ANYBODY, Identity, Principal};
use super::sts::{Owner, Session};
use super::wire::Scope;
use super::{Aws, State};
use crate::http::Call;

/// Whose a key is, and what signs with it where that is known.
pub struct Known {
    pub principal: Principal,
    pub secret: Option<String>,
}

/// Whom a call is made by.
pub fn caller(aws: &Aws, state: &State, call: &Call, scope: &Scope, account: &str) -> Answer<Principal> {
    let known = known(aws, state, call, &scope.access_key, account)?;
    Ok(known.principal)
}

/// Keys of IAM and STS first, then those of the credentials file. Where there is none, any other key is an administrator's.
pub fn known(aws: &Aws, state: &State, call: &Call, access_key: &str, account: &str) -> Answer<Known> {
    if access_key.is_empty() {
        let identity = Identity::Nobody;
        let principal =
            Principal { arn: "anonymous".into(), user_id: "anonymous".into(), access_key: String::new(), identity };
        return Ok(Known { principal, secret: None });
    }
    if let Some(session) = state.store.sts.sessions.get(access_key) {
        return of_session(state, call, session, account);
    }
    if let Some(key) = state.store.iam.keys.get(access_key) {
        return match key.active {
            true => {
                Ok(Known { principal: user(state, &key.user, access_key, account), secret: Some(key.secret.clone()) })
            }
            false => Err(unknown_key()),
        };
    }
    match &aws.credentials {
        None => Ok(Known { principal: user(state, ANYBODY, access_key, account), secret: None }),
        Some(credentials) => {
            let profile = credentials.profile(access_key).ok_or_else(unknown_key)?;
            let secret = credentials.secret(access_key).map(str::to_owned);
            Ok(Known { principal: user(state, profile, access_key, account), secret })
        }
    }
}

fn unknown_key() -> Box<AwsError> {
    AwsError::new(403, "InvalidClientTokenId", "The security token included in the request is invalid.")
}

/// The user of IAM with that name; an administrator where there is none.
fn user(state: &State, name: &str, access_key: &str, account: &str) -> Principal {
    let access_key = access_key.to_owned();
    match state.store.iam.users.get(name) {
        Some(user) => Principal {
            arn: user.arn.clone(),
            user_id: user.unique_id.clone(),
            access_key,
            identity: Identity::User(name.to_owned()),
        },
        None => Principal {
            arn: format!("arn:aws:iam::{account}:user/{name}"),
            user_id: format!("AIDA{}", name.to_uppercase()),
            access_key,
            identity: Identity::Administrator(name.to_owned()),
        },
    }
}

fn of_session(state: &State, call: &Call, session: &Session, account: &str) -> Answer<Known> {
    let header = call.headers.get("x-amz-security-token").and_then(|value| value.to_str().ok());
    if header.or_else(|| call.query("X-Amz-Security-Token")) != Some(session.token.as_str()) {
        return Err(unknown_key());
    }
    if session.expired() {
        return Err(AwsError::new(403, "ExpiredToken", "The security token included in the request is expired"));
    }
    let principal = match &session.owner {
        Owner::User(name) => user(state, name, &session.id, account),
        Owner::Role { name, unique_id, session: session_name, policies } => Principal {
            arn: format!("arn:aws:sts::{account}:assumed-role/{name}/{session_name}"),
            user_id: format!("{unique_id}:{session_name}"),
            access_key: session.id.clone(),
            identity: Identity::Role { name: name.clone(), policies: policies.clone() },
        },
    };
    Ok(Known { principal, secret: Some(session.secret.clone()) })
}
