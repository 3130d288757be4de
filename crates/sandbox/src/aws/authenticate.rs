//! Who calls, whether the signature is theirs, and whether they may.

use super::ask::Ask;
use super::errors::{Answer, AwsError};
use super::principal::{ANYBODY, Principal};
use super::wire::Scope;
use super::{Aws, State};
use crate::http::Call;

/// Whom a call is made by.
pub fn caller(aws: &Aws, _state: &State, _call: &Call, scope: &Scope, account: &str) -> Answer<Principal> {
    let user = match &aws.credentials {
        None => ANYBODY,
        Some(credentials) => credentials.profile(&scope.access_key).ok_or_else(|| {
            AwsError::new(403, "InvalidClientTokenId", "The security token included in the request is invalid.")
        })?,
    };
    Ok(Principal {
        arn: format!("arn:aws:iam::{account}:user/{user}"),
        user_id: format!("AIDA{}", user.to_uppercase()),
        access_key: scope.access_key.clone(),
    })
}

/// Whether the caller's policies allow the action, where they decide.
pub fn permit(_aws: &Aws, _ask: &Ask, _service: &str) -> Answer<()> {
    Ok(())
}
