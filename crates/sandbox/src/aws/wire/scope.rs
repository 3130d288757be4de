//! Which service and region a request is for: the scope of its signature says it.

use crate::http::Call;
use hyper::header::AUTHORIZATION;

/// `KEY/DATE/REGION/SERVICE/aws4_request`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub access_key: String,
    pub date: String,
    pub region: String,
    pub service: String,
}

pub fn of(call: &Call) -> Option<Scope> {
    let header = call.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let in_header = header.and_then(|text| {
        let (_, rest) = text.split_once("Credential=")?;
        rest.split([',', ' ']).next()
    });
    match in_header.or_else(|| call.query("X-Amz-Credential")) {
        Some(text) => parse(text),
        None => unsigned(call),
    }
}

fn parse(text: &str) -> Option<Scope> {
    let mut parts = text.rsplitn(5, '/');
    let (terminator, service, region, date) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let access_key = parts.next()?;
    let own = |text: &str| text.to_owned();
    (terminator == "aws4_request").then(|| Scope {
        access_key: own(access_key),
        date: own(date),
        region: own(region),
        service: own(service),
    })
}

/// A web identity's token takes the place of a signature.
fn unsigned(call: &Call) -> Option<Scope> {
    let body = std::str::from_utf8(&call.body).ok()?;
    let web_identity =
        body.contains("Action=AssumeRoleWithWebIdentity") || call.query("Action") == Some("AssumeRoleWithWebIdentity");
    web_identity.then(|| Scope {
        access_key: String::new(),
        date: String::new(),
        region: "us-east-1".into(),
        service: "sts".into(),
    })
}
