//! Signature Version 4: whether a request was signed with a secret, in its header or in its query.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};

use super::wire::Scope;
use crate::http::Call;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// How far the clocks of client and server may be apart.
const MAX_SKEW_SECONDS: i64 = 900;
const MAX_EXPIRY_SECONDS: i64 = 604_800;
/// AWS encodes everything but these.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why a signature is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A part of the signature is missing or cannot be read.
    Incomplete(String),
    /// Made by another secret, or for another request.
    Mismatch,
    /// Too old or too new: when it was made, as the request says it.
    Skewed(String),
    /// A presigned request whose time is over.
    Expired,
    /// The body is not the one whose digest was signed.
    Body,
}

/// The parts of a signature.
struct Signature<'a> {
    headers: Vec<&'a str>,
    signature: &'a str,
    /// `20150830T123600Z`
    time: &'a str,
    /// Seconds from then on, for a presigned request.
    expires: Option<i64>,
}

/// Whether the secret signed this request, at the time it is now.
pub fn verify(call: &Call, scope: &Scope, secret: &str) -> Result<(), Problem> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    verify_at(call, scope, secret, now)
}

fn verify_at(call: &Call, scope: &Scope, secret: &str, now: i64) -> Result<(), Problem> {
    let signature = match call.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) {
        Some(header) => in_header(call, header)?,
        None => in_query(call)?,
    };
    let payload = payload(call, scope, signature.expires.is_some())?;
    let canonical = canonical_request(call, scope, &signature.headers, &payload);
    let expected = sign(secret, scope, signature.time, &canonical);
    if !same(expected.as_bytes(), signature.signature.as_bytes()) {
        return Err(Problem::Mismatch);
    }
    check_time(&signature, scope, now)
}

/// In a time that does not tell how much of both is equal.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

fn in_header<'a>(call: &'a Call, header: &'a str) -> Result<Signature<'a>, Problem> {
    let rest = header.strip_prefix(ALGORITHM).ok_or_else(|| incomplete("Authorization", ALGORITHM))?;
    let part = |name: &str| {
        let mut parts = rest.split(',').map(str::trim);
        parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
    };
    let signed = part("SignedHeaders").ok_or_else(|| incomplete("Authorization", "SignedHeaders"))?;
    let signature = part("Signature").ok_or_else(|| incomplete("Authorization", "Signature"))?;
    let time = text(&call.headers, "x-amz-date").ok_or_else(|| incomplete("request", "X-Amz-Date"))?;
    Ok(Signature { headers: signed.split(';').collect(), signature, time, expires: None })
}

fn in_query(call: &Call) -> Result<Signature<'_>, Problem> {
    let part = |name: &str| call.query(name).ok_or_else(|| incomplete("query", name));
    if part("X-Amz-Algorithm")? != ALGORITHM {
        return Err(incomplete("X-Amz-Algorithm", ALGORITHM));
    }
    let expires = part("X-Amz-Expires")?.parse().map_err(|_| incomplete("query", "X-Amz-Expires"))?;
    Ok(Signature {
        headers: part("X-Amz-SignedHeaders")?.split(';').collect(),
        signature: part("X-Amz-Signature")?,
        time: part("X-Amz-Date")?,
        expires: Some(expires),
    })
}

fn incomplete(place: &str, part: &str) -> Problem {
    Problem::Incomplete(format!("The {place} requires '{part}'"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// What stands for the body. Chunks of S3 are signed one by one; what counts here is the request that announces them.
fn payload(call: &Call, scope: &Scope, presigned: bool) -> Result<String, Problem> {
    let own = || hex(&Sha256::digest(&call.body));
    match text(&call.headers, "x-amz-content-sha256") {
        Some(UNSIGNED) => Ok(UNSIGNED.to_owned()),
        Some(streaming) if streaming.starts_with("STREAMING-") => Ok(streaming.to_owned()),
        Some(given) if given == own() => Ok(given.to_owned()),
        Some(_) => Err(Problem::Body),
        None if presigned && scope.service == "s3" => Ok(UNSIGNED.to_owned()),
        None => Ok(own()),
    }
}

fn canonical_request(call: &Call, scope: &Scope, signed: &[&str], payload: &str) -> String {
    let mut headers = String::new();
    for name in signed {
        let values = call.headers.get_all(*name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let values: Vec<String> = values.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        headers.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    let (method, path, query) = (&call.method, canonical_path(&call.path, &scope.service), canonical_query(call));
    format!("{method}\n{path}\n{query}\n{headers}\n{}\n{payload}", signed.join(";"))
}

/// Paths are encoded once more than they were sent, but for S3, where a path is what it is.
fn canonical_path(path: &str, service: &str) -> String {
    let encode = |part: &str| utf8_percent_encode(part, ENCODED).to_string();
    if service == "s3" {
        let parts = path.split('/').map(|part| encode(&percent_decode_str(part).decode_utf8_lossy()));
        return parts.collect::<Vec<_>>().join("/");
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    let tail = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{tail}", parts.into_iter().map(encode).collect::<Vec<_>>().join("/"))
}

fn canonical_query(call: &Call) -> String {
    // A plus is a plus here, not a blank as in forms.
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let encode = |text: &str| utf8_percent_encode(&decode(text), ENCODED).to_string();
    let pairs = call.raw_query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut pairs: Vec<(String, String)> = pairs.map(|(name, value)| (encode(name), encode(value))).collect();
    pairs.retain(|(name, _)| name != "X-Amz-Signature");
    pairs.sort();
    pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn sign(secret: &str, scope: &Scope, time: &str, canonical: &str) -> String {
    let Scope { date, region, service, .. } = scope;
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    let text = format!("{ALGORITHM}\n{time}\n{date}/{region}/{service}/aws4_request\n{digest}");
    hex(&mac(&signing_key(secret, scope), &text))
}

fn signing_key(secret: &str, scope: &Scope) -> Vec<u8> {
    let parts = [&scope.date, &scope.region, &scope.service, "aws4_request"];
    parts.iter().fold(format!("AWS4{secret}").into_bytes(), |key, part| mac(&key, part))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // A key of any length is taken.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_time(signature: &Signature, scope: &Scope, now: i64) -> Result<(), Problem> {
    let made = seconds(signature.time).ok_or_else(|| incomplete("request", "X-Amz-Date"))?;
    if !signature.time.starts_with(&scope.date) {
        return Err(Problem::Mismatch);
    }
    match signature.expires {
        None if (made - now).abs() > MAX_SKEW_SECONDS => Err(Problem::Skewed(signature.time.to_owned())),
        None => Ok(()),
        Some(_) if made - now > MAX_SKEW_SECONDS => Err(Problem::Skewed(signature.time.to_owned())),
        Some(expires) if !(0..=MAX_EXPIRY_SECONDS).contains(&expires) => Err(incomplete("query", "X-Amz-Expires")),
        // STS takes what it presigns for a quarter of an hour, whatever it says: so tokens of clusters live on.
        Some(_) if scope.service == "sts" && now - made <= MAX_SKEW_SECONDS => Ok(()),
        Some(expires) if now - made > expires => Err(Problem::Expired),
        Some(_) => Ok(()),
    }
}

/// `20150830T123600Z` in seconds since 1970.
fn seconds(time: &str) -> Option<i64> {
    let parsed = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok()?;
    Some(parsed.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

/// The signature of a presigned request, for tests that make one.
#[cfg(test)]
pub fn presigned(call: &Call, scope: &Scope, secret: &str) -> String {
    let signed: Vec<&str> = call.query("X-Amz-SignedHeaders").unwrap_or_default().split(';').collect();
    let canonical = canonical_request(call, scope, &signed, &hex(&Sha256::digest(b"")));
    sign(secret, scope, call.query("X-Amz-Date").unwrap_or_default(), &canonical)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use hyper::Method;
    use hyper::header::{HeaderName, HeaderValue};

    /// The secrets of AWS's test suite, and of its documentation of S3.
    const SUITE: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const S3: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn scope(date: &str, service: &str) -> Scope {
        Scope {
            access_key: "AKIDEXAMPLE".into(),
            date: date.into(),
            region: "us-east-1".into(),
            service: service.into(),
        }
    }

    fn call(method: Method, uri: &str, headers: &[(&str, &str)], body: &'static str) -> Call {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
        }
        Call::new(method, &uri.parse().unwrap(), map, Bytes::from_static(body.as_bytes()))
    }

    /// A call whose signed headers are all it has, with the signature in its header.
    fn signed(method: Method, uri: &str, headers: &[(&str, &str)], body: &'static str, signature: &str) -> Call {
        let mut names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        names.dedup();
        let header =
            format!("{ALGORITHM} Credential=AKIDEXAMPLE/x, SignedHeaders={}, Signature={signature}", names.join(";"));
        let mut call = call(method, uri, headers, body);
        call.headers.insert(AUTHORIZATION, HeaderValue::try_from(header).unwrap());
        call
    }

    #[test]
    fn a_signing_key_is_as_aws_derives_it() {
        let key = signing_key(SUITE, &scope("20150830", "iam"));
        assert_eq!(hex(&key), "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
    }

    #[test]
    fn signatures_of_the_published_test_suite_are_taken() {
        let (host, date) = (("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z"));
        let form = ("content-type", "application/x-www-form-urlencoded");
        let iam =
            [("content-type", "application/x-www-form-urlencoded; charset=utf-8"), ("host", "iam.amazonaws.com"), date];
        for (service, call) in [
            (
                "service",
                signed(
                    Method::GET,
                    "/",
                    &[host, date],
                    "",
                    "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
                ),
            ),
            (
                "service",
                signed(
                    Method::GET,
                    "/?Param2=value2&Param1=value1",
                    &[host, date],
                    "",
                    "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
                ),
            ),
            (
                "service",
                signed(
                    Method::POST,
                    "/",
                    &[form, host, date],
                    "Param1=value1",
                    "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
                ),
            ),
            (
                "iam",
                signed(
                    Method::GET,
                    "/?Action=ListUsers&Version=2010-05-08",
                    &iam,
                    "",
                    "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
                ),
            ),
        ] {
            let now = seconds("20150830T123600Z").unwrap();
            assert_eq!(verify_at(&call, &scope("20150830", service), SUITE, now), Ok(()), "{call:?}");
            assert_eq!(verify_at(&call, &scope("20150830", service), S3, now), Err(Problem::Mismatch));
            let late = verify_at(&call, &scope("20150830", service), SUITE, now + 901);
            assert_eq!(late, Err(Problem::Skewed("20150830T123600Z".into())));
        }
    }

    #[test]
    fn signatures_of_the_documentation_of_s3_are_taken() {
        let (host, date) = (("host", "examplebucket.s3.amazonaws.com"), ("x-amz-date", "20130524T000000Z"));
        let empty = ("x-amz-content-sha256", EMPTY);
        let welcome = ("x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
        let put = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            host,
            welcome,
            date,
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let now = seconds("20130524T000000Z").unwrap();
        for call in [
            signed(
                Method::GET,
                "/test.txt",
                &[host, ("range", "bytes=0-9"), empty, date],
                "",
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            signed(
                Method::PUT,
                "/test%24file.text",
                &put,
                "Welcome to Amazon S3.",
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            signed(
                Method::GET,
                "/?lifecycle",
                &[host, empty, date],
                "",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
        ] {
            assert_eq!(verify_at(&call, &scope("20130524", "s3"), S3, now), Ok(()), "{call:?}");
        }
        let other = call(Method::PUT, "/test%24file.text", &put, "Welcome to Amazon S4.");
        let mut other_body = signed(Method::PUT, "/", &put, "", "");
        other_body.body = other.body;
        assert_eq!(verify_at(&other_body, &scope("20130524", "s3"), S3, now), Err(Problem::Body));
    }

    #[test]
    fn a_presigned_request_is_taken_until_it_expires() {
        let uri = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
                   &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
                   &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        let call = call(Method::GET, uri, &[("host", "examplebucket.s3.amazonaws.com")], "");
        let (scope, made) = (scope("20130524", "s3"), seconds("20130524T000000Z").unwrap());
        assert_eq!(verify_at(&call, &scope, S3, made + 86_400), Ok(()));
        assert_eq!(verify_at(&call, &scope, S3, made + 86_401), Err(Problem::Expired));
        assert_eq!(verify_at(&call, &scope, SUITE, made), Err(Problem::Mismatch));
    }

    #[test]
    fn what_is_missing_is_named() {
        let bare = call(Method::GET, "/", &[("authorization", "AWS4-HMAC-SHA256 Credential=a/b")], "");
        let problem = verify_at(&bare, &scope("20150830", "iam"), SUITE, 0);
        assert_eq!(problem, Err(Problem::Incomplete("The Authorization requires 'SignedHeaders'".into())));
    }
}
