//! Method and path name the action; bodies are JSON or XML.

use serde_json::{Map, Value};

use super::xml::{self, Lists};
use crate::aws::ask::Extra;
use crate::aws::errors::AwsError;
use crate::http::Reply;

/// An output may be an object with `#status`; everything else is the body.
pub fn write_json(mut output: Value, request_id: &str) -> Reply {
    let status = output.as_object_mut().and_then(|map| map.remove("#status")).and_then(|status| status.as_u64());
    Reply::json(status.map_or(200, |status| status as u16), &output).header("x-amzn-requestid", request_id)
}

pub fn write_json_error(error: &AwsError, request_id: &str) -> Reply {
    let mut body = error.details.as_object().cloned().unwrap_or_else(Map::new);
    body.insert("message".into(), error.message.clone().into());
    Reply::json(error.status, &body)
        .header("x-amzn-requestid", request_id)
        .header("x-amzn-errortype", error.code.clone().into_owned())
}

/// An output is an object with one member, the root element; `{}` is an empty body.
pub fn write_xml(output: Value, extra: Extra, request_id: &str) -> Reply {
    let (content_type, body) = match extra.body {
        Some((content_type, body)) => (content_type.into(), body),
        None => {
            let mut text = String::new();
            if let Some((name, value)) = output.as_object().and_then(|map| map.iter().next()) {
                text.push_str(xml::HEAD);
                xml::element(&mut text, name, value, Lists::Flat);
            }
            ("application/xml".into(), text.into())
        }
    };
    let mut reply = Reply { status: extra.status.unwrap_or(200), content_type, headers: extra.headers, body };
    reply.headers.push(("x-amz-id-2".into(), "sandbox".into()));
    reply.header("x-amz-request-id", request_id)
}

pub fn write_xml_error(error: &AwsError, request_id: &str) -> Reply {
    let mut shown = error.details.as_object().cloned().unwrap_or_else(Map::new);
    shown.insert("Code".into(), error.code.clone().into());
    shown.insert("Message".into(), error.message.clone().into());
    shown.insert("RequestId".into(), request_id.into());
    shown.insert("HostId".into(), "sandbox".into());
    let mut body = String::from(xml::HEAD);
    xml::element(&mut body, "Error", &Value::Object(shown), Lists::Flat);
    Reply { status: error.status, content_type: "application/xml".into(), headers: vec![], body: body.into() }
        .header("x-amz-request-id", request_id)
}
