//! Passes a call on to a cluster's real API server, saying who is calling, and its answer back as it comes.

use std::collections::BTreeMap;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{Request, Response};

use super::client::{Api, Connect, REMOTE_GROUP, REMOTE_USER};
use super::error::RealError;
use crate::kube::access::{self, Rbac, User};
use crate::kube::api::Ask;
use crate::kube::listen::Wire;

/// Who is calling, as far as the sandbox knows.
pub enum Caller {
    /// Someone whom the sandbox has authenticated.
    Known { user: String, groups: Vec<String>, extra: BTreeMap<String, Vec<String>> },
    /// Someone with a token that may be one of the cluster's own, such as a service account's.
    Bearer,
}

impl Caller {
    /// Who makes a request that the sandbox has let in. What the cloud grants besides the cluster's own rules is done as one who
    /// may do everything: the API server does not know of it.
    pub fn new(ask: &Ask<'_>, token: &str) -> Caller {
        // Every JSON Web Token begins like this. The API server looks at more of them than their signature.
        if token.starts_with("eyJ") {
            return Caller::Bearer;
        }
        let mut groups = ask.user.groups.clone();
        let granted = User { groups: Vec::new(), ..ask.user.clone() };
        if access::allowed(&granted, &ask.wish(), Rbac::default) {
            groups.push(access::MASTERS.into());
        }
        Caller::Known { user: ask.user.name.clone(), groups, extra: ask.user.extra.clone() }
    }
}

const HOP_BY_HOP: [HeaderName; 8] =
    [CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];

/// Whether the call wants more than an answer: exec, attach and port-forward do.
pub fn wants_upgrade(head: &Parts) -> bool {
    head.headers.contains_key(UPGRADE)
}

pub async fn forward(api: &Api, head: &Parts, target: &str, caller: &Caller, body: Bytes) -> Result<Wire, RealError> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = target.parse().map_err(|error| RealError::NoAnswer(format!("{target}: {error}")))?;
    copy_headers(&head.headers, request.headers_mut());
    let connect = introduce(request.headers_mut(), caller)?;
    let (answer, body) = api.send(connect, request).await?.into_parts();
    let mut wire = Response::new(body.map_err(std::io::Error::other).boxed_unsync());
    *wire.status_mut() = answer.status;
    copy_headers(&answer.headers, wire.headers_mut());
    Ok(wire)
}

fn copy_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from.iter().filter(|(name, _)| !HOP_BY_HOP.contains(name)) {
        to.append(name.clone(), value.clone());
    }
}

/// Nobody but the sandbox says who is calling.
fn introduce(headers: &mut HeaderMap, caller: &Caller) -> Result<Connect, RealError> {
    let claimed: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    for name in claimed {
        headers.remove(name);
    }
    let Caller::Known { user, groups, extra } = caller else { return Ok(Connect::Anonymous) };
    headers.remove(AUTHORIZATION);
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| RealError::NoAnswer(error.to_string()));
    headers.insert(REMOTE_USER, value(user)?);
    for group in groups {
        headers.append(REMOTE_GROUP, value(group)?);
    }
    for (name, values) in extra {
        let name =
            percent_encoding::utf8_percent_encode(&name.to_lowercase(), percent_encoding::NON_ALPHANUMERIC).to_string();
        let name = HeaderName::try_from(format!("x-remote-extra-{name}"))
            .map_err(|error| RealError::NoAnswer(error.to_string()))?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(Connect::FrontProxy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_cannot_say_to_be_another() {
        let mut headers = HeaderMap::new();
        headers.insert(REMOTE_USER, HeaderValue::from_static("root"));
        headers.insert("x-remote-extra-scopes", HeaderValue::from_static("all"));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer abc"));
        let known = Caller::Known {
            user: "dev".into(),
            groups: vec!["one".into(), "two".into()],
            extra: [("arn".to_owned(), vec!["arn:x".to_owned()])].into(),
        };
        assert_eq!(introduce(&mut headers, &known).unwrap(), Connect::FrontProxy);
        assert_eq!(headers.get_all(REMOTE_USER).iter().collect::<Vec<_>>(), ["dev"]);
        assert_eq!(headers.get_all(REMOTE_GROUP).iter().collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(headers["x-remote-extra-arn"], "arn:x");
        assert_eq!(headers.len(), 4);

        let mut headers = HeaderMap::new();
        headers.insert(REMOTE_USER, HeaderValue::from_static("root"));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer abc"));
        assert_eq!(introduce(&mut headers, &Caller::Bearer).unwrap(), Connect::Anonymous);
        assert_eq!(headers.keys().collect::<Vec<_>>(), [AUTHORIZATION]);
    }
}
