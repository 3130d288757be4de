//! Tokens for a cluster's API: a presigned `sts:GetCallerIdentity`, whose signature covers the cluster's name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hyper::header::{HOST, HeaderValue};
use hyper::{HeaderMap, Method, Uri};

use crate::http::Call;

const PREFIX: &str = "k8s-aws-v1.";
const MAX_BYTES: usize = 4096;
const CLUSTER_HEADER: &str = "x-k8s-aws-id";
/// Whatever a token says itself.
const LIFETIME_S: i64 = 15 * 60;
const PARAMETERS: [&str; 9] = [
    "action",
    "version",
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
];

/// The request that a token stands for, as STS would get it: with the name of the cluster that the token was shown to.
pub fn request(token: &str, cluster: &str, wall_s: i64) -> Result<Call, String> {
    if token.len() > MAX_BYTES {
        return Err("token is too large".into());
    }
    let encoded = token.strip_prefix(PREFIX).ok_or_else(|| format!("token is missing expected \"{PREFIX}\" prefix"))?;
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|error| format!("token is not base64url: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "token does not hold a URL")?;
    let uri: Uri = text.parse().map_err(|error| format!("token does not hold a URL: {error}"))?;
    let host = check_address(&text, &uri)?;
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(&host).map_err(|_| "unexpected hostname in pre-signed URL")?);
    let cluster = HeaderValue::from_str(cluster).map_err(|_| "the cluster's name is not a header value")?;
    headers.insert(CLUSTER_HEADER, cluster);
    let call = Call::new(Method::GET, &uri, headers, Bytes::new());
    check_parameters(&call)?;
    check_time(&call, wall_s)?;
    Ok(call)
}

/// STS itself over TLS, or this sandbox.
fn check_address(text: &str, uri: &Uri) -> Result<String, String> {
    let authority = uri.authority().ok_or("pre-signed URL has no host")?;
    if text.contains('#') || authority.as_str().contains('@') {
        return Err("unexpected parts in pre-signed URL".into());
    }
    let name = authority.host();
    let real = uri.scheme_str() == Some("https") && authority.port().is_none() && is_sts(name);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let local = name == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let own = local && matches!(uri.scheme_str(), Some("http" | "https"));
    if !real && !own {
        return Err(format!("unexpected hostname \"{name}\" in pre-signed URL"));
    }
    if uri.path() != "/" {
        return Err("unexpected path in pre-signed URL".into());
    }
    Ok(authority.as_str().to_owned())
}

/// `sts.amazonaws.com`, `sts.eu-central-1.amazonaws.com`, `sts.cn-north-1.amazonaws.com.cn`
fn is_sts(host: &str) -> bool {
    let Some(rest) = host.strip_prefix("sts.") else { return false };
    let rest = rest.strip_suffix(".cn").unwrap_or(rest);
    let plain =
        |region: &str| region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    match rest.strip_suffix("amazonaws.com") {
        Some("") => true,
        Some(region) => region.strip_suffix('.').is_some_and(|region| !region.is_empty() && plain(region)),
        None => false,
    }
}

fn check_parameters(call: &Call) -> Result<(), String> {
    let mut seen = Vec::new();
    for (name, _) in &call.query {
        let lower = name.to_lowercase();
        if !PARAMETERS.contains(&lower.as_str()) {
            return Err(format!("non-whitelisted query parameter \"{name}\""));
        }
        if seen.contains(&lower) {
            return Err(format!("query parameter with multiple values not supported: \"{name}\""));
        }
        seen.push(lower);
    }
    if parameter(call, "action") != Some("GetCallerIdentity") {
        return Err("unexpected action parameter in pre-signed URL".into());
    }
    let signed = parameter(call, "x-amz-signedheaders").unwrap_or_default();
    if !signed.split(';').any(|name| name.eq_ignore_ascii_case(CLUSTER_HEADER)) {
        return Err(format!("client did not sign the {CLUSTER_HEADER} header in the pre-signed URL"));
    }
    for needed in ["x-amz-algorithm", "x-amz-credential", "x-amz-signature"] {
        if parameter(call, needed).is_none_or(str::is_empty) {
            return Err(format!("{needed} is missing in pre-signed URL"));
        }
    }
    Ok(())
}

fn parameter<'a>(call: &'a Call, name: &str) -> Option<&'a str> {
    call.query.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

fn check_time(call: &Call, wall_s: i64) -> Result<(), String> {
    let expires = parameter(call, "x-amz-expires").and_then(|text| text.parse::<i64>().ok());
    if !expires.is_some_and(|seconds| (0..=900).contains(&seconds)) {
        return Err("invalid X-Amz-Expires parameter in pre-signed URL".into());
    }
    let date = parameter(call, "x-amz-date").unwrap_or_default();
    let signed_s = seconds(date).ok_or_else(|| format!("error parsing X-Amz-Date parameter {date}"))?;
    if wall_s > signed_s + LIFETIME_S {
        return Err(format!("X-Amz-Date parameter is expired (15m0s expiration) {date}"));
    }
    if signed_s > wall_s + LIFETIME_S {
        return Err(format!("X-Amz-Date parameter {date} is not yet current"));
    }
    Ok(())
}

/// `20261116T071500Z` as seconds since 1970.
fn seconds(date: &str) -> Option<i64> {
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", date).ok().filter(|_| date.len() == 16)?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000; // 20231114T221320Z
    const GOOD: &str = "https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256\
        &X-Amz-Credential=AKIA%2F20231114%2Feu-central-1%2Fsts%2Faws4_request&X-Amz-Date=20231114T221320Z&X-Amz-Expires=60\
        &X-Amz-SignedHeaders=host%3Bx-k8s-aws-id&X-Amz-Signature=abc";

    fn token(url: &str) -> String {
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(url))
    }

    #[test]
    fn what_clients_presign_is_taken() {
        for url in [
            GOOD.to_owned(),
            GOOD.replace("sts.eu-central-1.", "sts."),
            GOOD.replace("https://sts.eu-central-1.amazonaws.com", "http://127.0.0.1:7073"),
            GOOD.replace("https://sts.eu-central-1.amazonaws.com", "http://localhost:7073"),
            GOOD.replace("Expires=60", "Expires=0"),
            GOOD.replace("&X-Amz-Signature", "&X-Amz-Security-Token=t&X-Amz-Signature"),
            GOOD.replace("X-Amz-Date=20231114T221320Z", "x-amz-date=20231114T220000Z"),
        ] {
            let call = request(&token(&url), "shop", NOW).unwrap_or_else(|why| panic!("{url}: {why}"));
            assert_eq!(call.headers["x-k8s-aws-id"], "shop");
        }
    }

    #[test]
    fn everything_else_is_refused_and_named() {
        for (token, why) in [
            (String::new(), "prefix"),
            (format!("{PREFIX}{}", "a".repeat(MAX_BYTES)), "too large"),
            (format!("{PREFIX}!!!"), "base64url"),
            (format!("{PREFIX}{}=", URL_SAFE_NO_PAD.encode(GOOD)), "base64url"),
            (token("no url"), "URL"),
            (token(&GOOD.replace("https:", "http:")), "unexpected hostname"),
            (token(&GOOD.replace("sts.eu-central-1.amazonaws.com", "sts.evil.example")), "unexpected hostname"),
            (
                token(&GOOD.replace("sts.eu-central-1.amazonaws.com", "sts.amazonaws.com.evil.example")),
                "unexpected hostname",
            ),
            (token(&GOOD.replace("sts.eu-central-1.amazonaws.com", "sts.a/b.amazonaws.com")), "unexpected hostname"),
            (token(&GOOD.replace("https://", "https://user@")), "unexpected parts"),
            (token(&GOOD.replace(".com/?", ".com/path?")), "unexpected path"),
            (token(&GOOD.replace("GetCallerIdentity", "AssumeRole")), "unexpected action"),
            (token(&GOOD.replace("Action=GetCallerIdentity&", "")), "unexpected action"),
            (token(&format!("{GOOD}&Extra=1")), "non-whitelisted query parameter \"Extra\""),
            (token(&format!("{GOOD}&action=GetCallerIdentity")), "multiple values"),
            (token(&GOOD.replace("host%3Bx-k8s-aws-id", "host")), "did not sign the x-k8s-aws-id header"),
            (token(&GOOD.replace("Expires=60", "Expires=901")), "X-Amz-Expires"),
            (token(&GOOD.replace("Expires=60", "Expires=-1")), "X-Amz-Expires"),
            (token(&GOOD.replace("&X-Amz-Expires=60", "")), "X-Amz-Expires"),
            (token(&GOOD.replace("20231114T221320Z", "20231114T215819Z")), "expired"),
            (token(&GOOD.replace("20231114T221320Z", "20231115T221320Z")), "not yet current"),
            (token(&GOOD.replace("20231114T221320Z", "yesterday")), "error parsing X-Amz-Date"),
            (token(&GOOD.replace("&X-Amz-Signature=abc", "")), "x-amz-signature is missing"),
        ] {
            let error = request(&token, "shop", NOW).err().unwrap_or_else(|| panic!("taken: {token}"));
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
