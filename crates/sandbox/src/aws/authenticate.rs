//! Who calls, whether the signature is theirs, and whether they may.

use super::errors::{Answer, AwsError};
pub use super::permission::{pass_role, permit};
use super::principal::{ANYBODY, Identity, Principal};
use super::sigv4::{self, Problem};
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
    let known = known(aws, state, call, &scope.access_key, account).map_err(|error| told(&scope.service, error))?;
    if aws.credentials.is_some()
        && let Some(secret) = &known.secret
    {
        sigv4::verify(call, scope, secret).map_err(|problem| told(&scope.service, refused(&scope.service, problem)))?;
    }
    Ok(known.principal)
}

fn refused(service: &str, problem: Problem) -> Box<AwsError> {
    let error = |code: &'static str, message: &str| AwsError::new(403, code, message);
    match problem {
        Problem::Mismatch => error(
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
        ),
        Problem::Incomplete(message) => AwsError::new(400, "IncompleteSignature", message),
        Problem::Body => AwsError::new(
            400,
            "XAmzContentSHA256Mismatch",
            "The provided 'x-amz-content-sha256' header does not match what was computed.",
        ),
        Problem::Skewed(_) if service == "s3" => {
            error("RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
        }
        Problem::Expired if service == "s3" => error("AccessDenied", "Request has expired"),
        Problem::Skewed(_) | Problem::Expired if service == "ec2" => {
            AwsError::new(400, "RequestExpired", "Request has expired.")
        }
        Problem::Skewed(made) => {
            error("SignatureDoesNotMatch", &format!("Signature not current: {made} is more than 15 min. away"))
        }
        Problem::Expired => error("SignatureDoesNotMatch", "Signature expired"),
    }
}

/// The same problem has another code in each service.
fn told(service: &str, error: Box<AwsError>) -> Box<AwsError> {
    const NOT_VALID: &str = "AWS was not able to validate the provided access credentials";
    let (status, code) = match (service, error.code.as_ref()) {
        ("ec2", "InvalidClientTokenId" | "SignatureDoesNotMatch") => {
            return AwsError::new(401, "AuthFailure", NOT_VALID);
        }
        ("ec2", "ExpiredToken") => (400, "RequestExpired"),
        ("s3", "InvalidClientTokenId") => {
            let message = "The AWS Access Key Id you provided does not exist in our records.";
            return AwsError::new(403, "InvalidAccessKeyId", message);
        }
        ("s3", "ExpiredToken") => (400, "ExpiredToken"),
        ("s3" | "iam" | "sts", _) => return error,
        ("eks", "InvalidClientTokenId") => (403, "UnrecognizedClientException"),
        ("eks", "SignatureDoesNotMatch") => (403, "InvalidSignatureException"),
        ("eks", "ExpiredToken") => (403, "ExpiredTokenException"),
        (_, "InvalidClientTokenId") => (400, "UnrecognizedClientException"),
        (_, "SignatureDoesNotMatch") => (400, "InvalidSignatureException"),
        (_, "ExpiredToken") => (400, "ExpiredTokenException"),
        _ => return error,
    };
    AwsError::new(status, code, error.message)
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
