//! Buckets themselves.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Bucket, NAMESPACE, body, bucket, bucket_key, bucket_name, header, iso, malformed, no_bucket, owner, xml};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail, fail_with};
use crate::aws::paging;
use crate::table::Object;

const MAX_BUCKETS: usize = 10_000;

/// What new buckets have, unless they are made with something else.
const PRIVATE: &str = "<PublicAccessBlockConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls><BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>";

fn ownership(rule: &str) -> String {
    format!(
        "<OwnershipControls xmlns=\"{NAMESPACE}\"><Rule><ObjectOwnership>{rule}</ObjectOwnership></Rule></OwnershipControls>"
    )
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let rows = ask.rows(|store| &store.s3.buckets, "");
    let (prefix, region) = (ask.call.query("prefix").unwrap_or_default(), ask.call.query("bucket-region"));
    let wanted =
        |bucket: &&Bucket| bucket.name.starts_with(prefix) && region.is_none_or(|region| region == bucket.region);
    let rows: Vec<&Bucket> = rows.into_iter().filter(wanted).collect();
    let max = ask.call.number("max-buckets", MAX_BUCKETS).min(MAX_BUCKETS);
    let bad = || AwsError::new(400, "InvalidArgument", "The continuation token provided is incorrect");
    let mark = ask.call.query("continuation-token");
    let (rows, next) = paging::slice(rows, |bucket| bucket.name.clone(), mark, max, bad)?;
    let shown = rows
        .iter()
        .map(|bucket| json!({"Name": bucket.name, "CreationDate": iso(bucket.created), "BucketRegion": bucket.region}));
    let buckets: Vec<Value> = shown.collect();
    Ok(json!({"ListAllMyBucketsResult": {
        "@xmlns": NAMESPACE,
        "Owner": owner(ask),
        "Buckets": {"Bucket": buckets},
        "ContinuationToken": next,
        "Prefix": ask.call.query("prefix"),
    }}))
}

fn valid_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    (3..=63).contains(&name.len())
        && name.chars().all(fine)
        && edge(name.chars().next())
        && edge(name.chars().last())
        && !name.contains("..")
        && name.parse::<std::net::Ipv4Addr>().is_err()
}

/// Where the bucket is to be: what the body says, which must fit the region that is spoken to.
fn location(ask: &Ask) -> Answer<String> {
    let upload = body::read(ask.call)?;
    let wanted = match upload.data.is_empty() {
        true => None,
        false => {
            let text = std::str::from_utf8(&upload.data).map_err(|_| malformed())?;
            let root =
                xml::parse(text).filter(|root| root.name == "CreateBucketConfiguration").ok_or_else(malformed)?;
            root.text_of("LocationConstraint").filter(|text| !text.is_empty()).map(str::to_owned)
        }
    };
    let incompatible = |what: &str| {
        fail(
            "IllegalLocationConstraintException",
            format!(
                "The {what} location constraint is incompatible for the region specific endpoint this request was sent to."
            ),
        )
    };
    match (ask.region, wanted) {
        ("us-east-1" | "aws-global", None) => Ok("us-east-1".into()),
        ("us-east-1" | "aws-global", Some(wanted)) if wanted == "us-east-1" => {
            fail("InvalidLocationConstraint", "The specified location-constraint is not valid")
        }
        ("us-east-1" | "aws-global", Some(wanted)) => Ok(wanted),
        (_, None) => incompatible("unspecified"),
        (region, Some(wanted)) if wanted == region || (wanted == "EU" && region == "eu-west-1") => Ok(region.into()),
        (_, Some(wanted)) => incompatible(&wanted),
    }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = bucket_name(ask);
    if !valid_name(&name) {
        let error = AwsError::new(400, "InvalidBucketName", "The specified bucket is not valid.");
        return Err(error.details(json!({"BucketName": name})));
    }
    let region = location(ask)?;
    if let Some(earlier) = ask.state.store.s3.buckets.get(&name) {
        if earlier.region == "us-east-1" && region == "us-east-1" {
            ask.extra.headers.push(("location".into(), format!("/{name}")));
            return Ok(json!({}));
        }
        let text = "Your previous request to create the named bucket succeeded and you already own it.";
        return Err(AwsError::new(409, "BucketAlreadyOwnedByYou", text).details(json!({"BucketName": name})));
    }
    if ask.state.store.s3.buckets.len() >= MAX_BUCKETS {
        return fail("TooManyBuckets", "You have attempted to create more buckets than allowed");
    }
    let rule = header(ask, "x-amz-object-ownership").unwrap_or("BucketOwnerEnforced");
    let acl = header(ask, "x-amz-acl").unwrap_or("private");
    if rule == "BucketOwnerEnforced" && acl != "private" {
        return fail(
            "InvalidBucketAclWithObjectOwnership",
            "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        );
    }
    let mut settings = BTreeMap::from([
        ("publicAccessBlock".to_owned(), PRIVATE.to_owned()),
        ("ownershipControls".to_owned(), ownership(rule)),
    ]);
    let locked =
        header(ask, "x-amz-bucket-object-lock-enabled").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if locked {
        let text = format!(
            "<ObjectLockConfiguration xmlns=\"{NAMESPACE}\"><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>"
        );
        settings.insert("object-lock".into(), text);
    }
    let created = ask.now();
    let versioning = locked.then(|| "Enabled".to_owned());
    ask.extra.headers.push(("location".into(), format!("/{name}")));
    ask.store().s3.buckets.insert(Bucket { name, region, created, tags: Default::default(), versioning, settings });
    Ok(json!({}))
}

/// The header tells clients which region to speak to.
pub fn head(ask: &mut Ask) -> Answer<Value> {
    let region = bucket(ask)?.region.clone();
    ask.extra.headers.push(("x-amz-bucket-region".into(), region));
    ask.extra.headers.push(("x-amz-access-point-alias".into(), "false".into()));
    Ok(json!({}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let name = bucket(ask)?.name.clone();
    let s3 = &ask.state.store.s3;
    if s3.versions.count(&bucket_key(&name)) > 0 {
        let text = match s3.versions.find(&bucket_key(&name)).any(|version| version.version != "null") {
            true => "The bucket you tried to delete is not empty. You must delete all versions in the bucket.",
            false => "The bucket you tried to delete is not empty",
        };
        return fail_with(409, "BucketNotEmpty", text)
            .map_err(|error: Box<AwsError>| error.details(json!({"BucketName": name})));
    }
    let uploads: Vec<String> = s3.uploads.find(&bucket_key(&name)).map(|upload| upload.id().to_owned()).collect();
    for upload in uploads {
        super::multipart::forget(ask, &upload);
    }
    ask.store().s3.buckets.remove(&name).ok_or_else(|| no_bucket(&name))?;
    ask.extra.status = Some(204);
    Ok(json!({}))
}

pub fn get_location(ask: &mut Ask) -> Answer<Value> {
    let region = &bucket(ask)?.region;
    let text = if region == "us-east-1" { "" } else { region };
    Ok(json!({"LocationConstraint": {"@xmlns": NAMESPACE, "#text": text}}))
}
