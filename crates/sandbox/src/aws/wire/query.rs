//! Forms in, XML out: EC2's protocol and the one of STS and IAM.

use serde_json::{Value, json};

use super::form;
use super::xml::{self, Lists};
use crate::aws::ask::Input;
use crate::aws::errors::{Answer, AwsError};
use crate::http::{Call, Reply, parse_query};

const EC2: &str = "http://ec2.amazonaws.com/doc/2016-11-15/";
const MAX_PAIRS: usize = 20_000;

/// The action and its input from the form, or from the query of a presigned URL.
pub fn read(call: &Call, members: bool) -> Answer<(String, Input)> {
    let mut pairs = call.query.clone();
    if let Ok(body) = std::str::from_utf8(&call.body) {
        pairs.extend(parse_query(body));
    }
    pairs.retain(|(name, _)| !name.starts_with("X-Amz-") && name != "Version");
    if pairs.len() > MAX_PAIRS {
        return Err(AwsError::new(400, "MalformedQueryString", "too many parameters"));
    }
    let action = pairs.iter().position(|(name, _)| name == "Action").map(|at| pairs.remove(at).1);
    match action {
        Some(action) => Ok((action, Input(form::tree(&pairs, members)))),
        None => Err(AwsError::new(400, "MissingAction", "The request must contain the parameter Action")),
    }
}

fn reply(status: u16, body: String, request_id: &str) -> Reply {
    let content_type = "text/xml;charset=UTF-8".into();
    Reply { status, content_type, headers: vec![], body: body.into() }.header("x-amzn-requestid", request_id)
}

pub fn write_ec2(action: &str, output: &Value, request_id: &str) -> Reply {
    let mut body = format!("{}<{action}Response xmlns=\"{EC2}\"><requestId>{request_id}</requestId>", xml::HEAD);
    xml::members(&mut body, output, Lists::Item);
    body.push_str(&format!("</{action}Response>"));
    reply(200, body, request_id)
}

pub fn write_ec2_error(error: &AwsError, request_id: &str) -> Reply {
    let mut body = String::from(xml::HEAD);
    let shown = json!({"Errors": {"Error": {"Code": error.code, "Message": error.message}}, "RequestID": request_id});
    xml::element(&mut body, "Response", &shown, Lists::Item);
    reply(error.status, body, request_id)
}

pub fn write(action: &str, namespace: &str, output: &Value, request_id: &str) -> Reply {
    let mut body = format!("<{action}Response xmlns=\"{namespace}\"><{action}Result>");
    xml::members(&mut body, output, Lists::Member);
    body.push_str(&format!(
        "</{action}Result><ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
    ));
    reply(200, body, request_id)
}

/// STS answers in JSON where it is asked to; those who check tokens of EKS ask for it.
pub fn wants_json(call: &Call) -> bool {
    let accept = call.headers.get("accept").and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("application/json"))
}

pub fn write_json(action: &str, output: Value, request_id: &str) -> Reply {
    let shown = json!({format!("{action}Response"): {
        format!("{action}Result"): output,
        "ResponseMetadata": {"RequestId": request_id},
    }});
    Reply::json(200, &shown).header("x-amzn-requestid", request_id)
}

pub fn write_error(error: &AwsError, namespace: &str, request_id: &str) -> Reply {
    let kind = if error.status >= 500 { "Receiver" } else { "Sender" };
    let mut body = String::new();
    let shown = json!({
        "@xmlns": namespace,
        "Error": {"Type": kind, "Code": error.code, "Message": error.message},
        "RequestId": request_id,
    });
    xml::element(&mut body, "ErrorResponse", &shown, Lists::Member);
    reply(error.status, body, request_id)
}
