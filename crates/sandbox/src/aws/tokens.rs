//! Client tokens: the same token with the same input gives the first answer again. One whose call failed is free.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::State;
use super::ask::Input;
use super::errors::{Answer, AwsError};
use crate::clock::SimTime;
use crate::table::Object;

/// How long tokens are remembered, as EC2 does.
const KEPT_MS: i64 = 24 * 3_600_000;
const FIELDS: [&str; 3] = ["ClientToken", "clientRequestToken", "clientToken"];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Token {
    id: String,
    input: String,
    output: Value,
    forgotten_at: SimTime,
}

impl Object for Token {
    const TYPE: &'static str = "aws.client_token";
    const IN_LEDGER: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![]
    }

    fn gone_at(&self) -> Option<SimTime> {
        Some(self.forgotten_at)
    }

    /// Not an object of the account.
    fn ledger(&self, _: SimTime) -> Value {
        Value::Null
    }
}

super::tables::tables! { given: Token }

/// What a token is remembered by.
pub struct Key {
    id: String,
    input: String,
}

pub fn key(region: &str, service: &str, action: &str, input: &Input) -> Option<Key> {
    let token = FIELDS.iter().find_map(|field| input.text(field)).filter(|token| !token.is_empty())?;
    let digest = Sha256::digest(input.0.to_string().as_bytes());
    let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Key { id: format!("{region}/{service}/{action}/{token}"), input: digest })
}

/// The answer to the first call with this token.
pub fn earlier(state: &State, key: &Key) -> Answer<Option<Value>> {
    match state.store.tokens.given.get(&key.id) {
        None => Ok(None),
        Some(token) if token.input == key.input => Ok(Some(token.output.clone())),
        Some(_) => Err(AwsError::new(
            400,
            "IdempotentParameterMismatch",
            "The request uses the same client token as a previous, but non-identical request.",
        )),
    }
}

pub fn remember(state: &mut State, key: Key, output: &Value) {
    let forgotten_at = state.now.plus_ms(KEPT_MS);
    state.store.tokens.given.insert(Token { id: key.id, input: key.input, output: output.clone(), forgotten_at });
}
