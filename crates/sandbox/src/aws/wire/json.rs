//! JSON both ways, with the action in a header.

use serde_json::{Value, json};

use crate::aws::ask::Input;
use crate::aws::errors::{Answer, AwsError};
use crate::http::{Call, Reply};

pub fn read(call: &Call, target: &str) -> Answer<(String, Input)> {
    let named = call.headers.get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let action = named.strip_prefix(target).and_then(|rest| rest.strip_prefix('.'));
    let Some(action) = action else {
        return Err(AwsError::new(400, "UnknownOperationException", format!("X-Amz-Target is `{named}`")));
    };
    let body: &[u8] = if call.body.is_empty() { b"{}" } else { &call.body };
    match serde_json::from_slice(body) {
        Ok(input) => Ok((action.to_owned(), Input(input))),
        Err(error) => Err(AwsError::new(400, "SerializationException", error.to_string())),
    }
}

pub fn write(output: Value, content_type: &'static str, request_id: &str) -> Reply {
    let mut reply = Reply::json(200, &output).header("x-amzn-requestid", request_id);
    reply.content_type = content_type.into();
    reply
}

/// `details` may hold `query_error`: the code that clients of the older protocol know, which goes into a header.
pub fn write_error(error: &AwsError, content_type: &'static str, request_id: &str) -> Reply {
    let mut reply = Reply::json(error.status, &json!({"__type": error.code, "message": error.message}))
        .header("x-amzn-requestid", request_id);
    if let Some(code) = error.details.get("query_error").and_then(Value::as_str) {
        reply = reply.header("x-amzn-query-error", format!("{code};Sender"));
    }
    reply.content_type = content_type.into();
    reply
}
