//! STS: who calls.

use serde_json::{Value, json};

use super::ask::Ask;
use super::errors::Answer;
use super::wire::{Action, Protocol, Service};

pub static SERVICE: Service = Service {
    scope: "sts",
    protocol: Protocol::Query { namespace: "https://sts.amazonaws.com/doc/2011-06-15/" },
    actions: &[Action::read("GetCallerIdentity", get_caller_identity)],
};

fn get_caller_identity(ask: &mut Ask) -> Answer<Value> {
    Ok(json!({"Arn": ask.principal.arn, "UserId": ask.principal.user_id, "Account": ask.account}))
}
