//! Settings of buckets: kept as they were put, checked as far as clients rely on it.

use serde_json::{Value, json};

use super::route::{Setting, setting};
use super::{Bucket, NAMESPACE, body, bucket, bucket_name, header, malformed, owner, xml};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail, fail_with};
use crate::aws::iam::{Attached, parse_policy};

const MAX_POLICY_BYTES: usize = 20 * 1024;
/// The header that goes with lifecycles, and what it says by itself.
const MINIMUM_SIZE: (&str, &str) = ("x-amz-transition-default-minimum-object-size", "all_storage_classes_128K");

/// The root element of a setting.
fn root(query: &str) -> &'static str {
    match query {
        "cors" => "CORSConfiguration",
        "website" => "WebsiteConfiguration",
        "versioning" => "VersioningConfiguration",
        "accelerate" => "AccelerateConfiguration",
        "requestPayment" => "RequestPaymentConfiguration",
        "logging" => "BucketLoggingStatus",
        "lifecycle" => "LifecycleConfiguration",
        "replication" => "ReplicationConfiguration",
        "encryption" => "ServerSideEncryptionConfiguration",
        "object-lock" => "ObjectLockConfiguration",
        "publicAccessBlock" => "PublicAccessBlockConfiguration",
        "ownershipControls" => "OwnershipControls",
        "notification" => "NotificationConfiguration",
        "intelligent-tiering" => "IntelligentTieringConfiguration",
        "analytics" => "AnalyticsConfiguration",
        "inventory" => "InventoryConfiguration",
        "metrics" => "MetricsConfiguration",
        _ => "",
    }
}

/// What is said of a setting that was never put.
fn unset(query: &str, bucket: &Bucket) -> Answer<String> {
    let missing = |code: &'static str, message: &str| {
        Err(AwsError::new(404, code, message).details(json!({"BucketName": bucket.name})))
    };
    let inner = match query {
        "policy" => return missing("NoSuchBucketPolicy", "The bucket policy does not exist"),
        "cors" => return missing("NoSuchCORSConfiguration", "The CORS configuration does not exist"),
        "website" => {
            return missing("NoSuchWebsiteConfiguration", "The specified bucket does not have a website configuration");
        }
        "lifecycle" => return missing("NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist"),
        "replication" => {
            return missing("ReplicationConfigurationNotFoundError", "The replication configuration was not found");
        }
        "object-lock" => {
            return missing(
                "ObjectLockConfigurationNotFoundError",
                "Object Lock configuration does not exist for this bucket",
            );
        }
        "publicAccessBlock" => {
            return missing(
                "NoSuchPublicAccessBlockConfiguration",
                "The public access block configuration was not found",
            );
        }
        "ownershipControls" => {
            return missing("OwnershipControlsNotFoundError", "The bucket ownership controls were not found");
        }
        "intelligent-tiering" | "analytics" | "inventory" | "metrics" => {
            return missing("NoSuchConfiguration", "The specified configuration does not exist.");
        }
        "requestPayment" => "<Payer>BucketOwner</Payer>",
        "encryption" => {
            "<Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault><BucketKeyEnabled>false</BucketKeyEnabled></Rule>"
        }
        _ => "",
    };
    let root = root(query);
    Ok(format!("<{root} xmlns=\"{NAMESPACE}\">{inner}</{root}>"))
}

/// By what a setting is kept: its sub-resource, and its id where there can be several.
fn place(ask: &Ask, setting: &Setting) -> String {
    match (setting.has_ids(), ask.call.query("id")) {
        (true, Some(id)) => format!("{}/{id}", setting.query),
        _ => setting.query.to_owned(),
    }
}

fn asked(ask: &Ask) -> Answer<&'static Setting> {
    setting(ask.call).ok_or_else(malformed)
}

pub fn get(ask: &mut Ask) -> Answer<Value> {
    let setting = asked(ask)?;
    let place = place(ask, setting);
    let bucket = bucket(ask)?;
    let text = match bucket.settings.get(&place) {
        Some(text) => text.clone(),
        None => unset(setting.query, bucket)?,
    };
    let content_type = if setting.query == "policy" { "application/json" } else { "application/xml" };
    if setting.query == "lifecycle" {
        let size = bucket.settings.get("lifecycle-size").map_or(MINIMUM_SIZE.1, String::as_str).to_owned();
        ask.extra.headers.push((MINIMUM_SIZE.0.into(), size));
    }
    ask.extra.body = Some((content_type.into(), text.into()));
    Ok(json!({}))
}

pub fn put(ask: &mut Ask) -> Answer<Value> {
    let setting = asked(ask)?;
    let place = place(ask, setting);
    let name = bucket(ask)?.name.clone();
    let upload = body::read(ask.call)?;
    let text = String::from_utf8(upload.data.to_vec()).map_err(|_| malformed())?;
    let mut versioning = None;
    match setting.query {
        "policy" => {
            check_policy(ask, &text)?;
            ask.extra.status = Some(204);
        }
        query => {
            let tree = xml::parse(&text).filter(|tree| tree.name == root(query)).ok_or_else(malformed)?;
            check(ask, query, &tree)?;
            if query == "versioning" {
                versioning = tree.text_of("Status").map(str::to_owned);
            }
        }
    }
    let size = (setting.query == "lifecycle").then(|| header(ask, MINIMUM_SIZE.0).unwrap_or(MINIMUM_SIZE.1).to_owned());
    if let Some(size) = &size {
        ask.extra.headers.push((MINIMUM_SIZE.0.into(), size.clone()));
    }
    let text = if setting.query == "lifecycle" { with_ids(&text) } else { text };
    ask.store().s3.buckets.update(&name, |bucket| {
        bucket.settings.insert(place, text);
        bucket.versioning = versioning.or(bucket.versioning.take());
        if let Some(size) = size {
            bucket.settings.insert("lifecycle-size".into(), size);
        }
    });
    Ok(json!({}))
}

/// Rules without an id get one.
fn with_ids(text: &str) -> String {
    let rules: Vec<&str> = text.split("<Rule>").collect();
    let mut out = rules.first().copied().unwrap_or_default().to_owned();
    for rule in rules.iter().skip(1) {
        out.push_str("<Rule>");
        let own = rule.split("</Rule>").next().unwrap_or_default();
        if !own.contains("<ID>") || own.contains("<ID></ID>") {
            out.push_str(&format!("<ID>{}</ID>", crate::aws::ids::hex(32)));
        }
        out.push_str(&rule.replace("<ID></ID>", "").replace("<ID/>", ""));
    }
    out
}

fn invalid<T>(message: impl Into<String>) -> Answer<T> {
    fail("InvalidArgument", message)
}

fn check(ask: &Ask, query: &str, tree: &xml::Element) -> Answer<()> {
    let bucket = bucket(ask)?;
    match query {
        "versioning" => match tree.text_of("Status") {
            Some("Enabled") | None => Ok(()),
            Some("Suspended") if bucket.settings.contains_key("object-lock") => fail_with(
                409,
                "InvalidBucketState",
                "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.",
            ),
            Some("Suspended") => Ok(()),
            Some(_) => Err(malformed()),
        },
        "encryption" => match tree.find("SSEAlgorithm") {
            Some("AES256" | "aws:kms" | "aws:kms:dsse") => Ok(()),
            _ => Err(malformed()),
        },
        "ownershipControls" => match tree.find("ObjectOwnership") {
            Some("BucketOwnerEnforced" | "BucketOwnerPreferred" | "ObjectWriter") => Ok(()),
            _ => Err(malformed()),
        },
        "requestPayment" => match tree.text_of("Payer") {
            Some("BucketOwner" | "Requester") => Ok(()),
            _ => Err(malformed()),
        },
        "lifecycle" => check_lifecycle(tree),
        "object-lock" if bucket.versioning.as_deref() != Some("Enabled") => fail_with(
            409,
            "InvalidBucketState",
            "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration",
        ),
        "replication" if bucket.versioning.as_deref() != Some("Enabled") => {
            fail("InvalidRequest", "Versioning must be 'Enabled' on the bucket to apply a replication configuration")
        }
        "logging" => match tree.find("TargetBucket") {
            Some(target) if ask.state.store.s3.buckets.get(target).is_none() => {
                fail("InvalidTargetBucketForLogging", "The target bucket for logging does not exist")
            }
            _ => Ok(()),
        },
        "website" => {
            let some = tree.child("IndexDocument").is_some() || tree.child("RedirectAllRequestsTo").is_some();
            if some {
                Ok(())
            } else {
                invalid("A value for IndexDocument Suffix must be provided if RedirectAllRequestsTo is empty")
            }
        }
        "cors" if tree.all("CORSRule").next().is_none() => Err(malformed()),
        _ => Ok(()),
    }
}

fn check_lifecycle(tree: &xml::Element) -> Answer<()> {
    let rules: Vec<&xml::Element> = tree.all("Rule").collect();
    if rules.is_empty() || rules.len() > 1000 {
        return Err(malformed());
    }
    let mut ids: Vec<&str> = rules.iter().filter_map(|rule| rule.text_of("ID")).filter(|id| !id.is_empty()).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return invalid("RuleId must be unique. Found same ID for more than one rule");
    }
    for rule in rules {
        if !matches!(rule.text_of("Status"), Some("Enabled" | "Disabled")) {
            return Err(malformed());
        }
        const DO: [&str; 5] = [
            "Expiration",
            "Transition",
            "NoncurrentVersionExpiration",
            "NoncurrentVersionTransition",
            "AbortIncompleteMultipartUpload",
        ];
        if !DO.iter().any(|name| rule.child(name).is_some()) {
            return fail("InvalidRequest", "At least one action needs to be specified in a rule");
        }
    }
    Ok(())
}

fn check_policy(ask: &Ask, text: &str) -> Answer<()> {
    if text.len() > MAX_POLICY_BYTES {
        return fail("PolicyTooLarge", "Policy exceeds the maximum allowed document size.");
    }
    let policy = match parse_policy(text, Attached::Resource) {
        Ok(policy) => policy,
        Err(reason) => return fail("MalformedPolicy", reason),
    };
    let bucket = bucket(ask)?;
    let (arn, under) = (format!("arn:aws:s3:::{}", bucket.name), format!("arn:aws:s3:::{}/", bucket.name));
    for statement in &policy.statements {
        let resources = statement.resources.iter().flat_map(|resources| &resources.patterns);
        let own = |resource: &&String| **resource == arn || resource.starts_with(&under) || resource.contains('*');
        if resources.clone().any(|resource| !own(&resource)) {
            return fail("MalformedPolicy", "Policy has invalid resource");
        }
        let named = statement.principals.iter().flat_map(|principals| &principals.named);
        for (kind, value) in named.clone() {
            if kind == "AWS" && !crate::aws::iam::roles::known_principal(ask, value) {
                return fail("MalformedPolicy", "Invalid principal in policy").map_err(|error: Box<AwsError>| {
                    error.details(json!({"Detail": format!("\"{kind}\" : \"{value}\"")}))
                });
            }
        }
        let public =
            statement.allow && statement.conditions.is_empty() && named.into_iter().any(|(_, value)| value == "*");
        if public && blocks_public_policy(bucket) {
            let caller = &ask.principal.arn;
            return fail_with(
                403,
                "AccessDenied",
                format!(
                    "User: {caller} is not authorized to perform: s3:PutBucketPolicy on resource: \"{arn}\" because public policies are blocked by the BlockPublicPolicy block public access setting."
                ),
            );
        }
    }
    Ok(())
}

fn blocks_public_policy(bucket: &Bucket) -> bool {
    let tree = bucket.settings.get("publicAccessBlock").and_then(|text| xml::parse(text));
    tree.is_some_and(|tree| tree.text_of("BlockPublicPolicy") == Some("true"))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let setting = asked(ask)?;
    let place = place(ask, setting);
    let bucket = bucket(ask)?;
    if setting.has_ids() && !bucket.settings.contains_key(&place) {
        unset(setting.query, bucket)?;
    }
    let name = bucket.name.clone();
    ask.store().s3.buckets.update(&name, |bucket| bucket.settings.remove(&place));
    ask.extra.status = Some(204);
    Ok(json!({}))
}

/// All settings of a kind of which there can be several.
pub fn list_named(ask: &mut Ask) -> Answer<Value> {
    let setting = asked(ask)?;
    let prefix = format!("{}/", setting.query);
    let bucket = bucket(ask)?;
    let texts = bucket.settings.iter().filter(|(place, _)| place.starts_with(&prefix)).map(|(_, text)| text.as_str());
    let list = match setting.query {
        "intelligent-tiering" => "ListBucketIntelligentTieringConfigurationsOutput",
        "analytics" => "ListBucketAnalyticsConfigurationResult",
        "inventory" => "ListInventoryConfigurationsResult",
        _ => "ListMetricsConfigurationsResult",
    };
    let without_head = |text: &str| match text.trim_start().strip_prefix("<?") {
        Some(rest) => rest.split_once("?>").map(|(_, rest)| rest.to_owned()).unwrap_or_default(),
        None => text.to_owned(),
    };
    let all: String = texts.map(without_head).collect();
    let text = format!("<{list} xmlns=\"{NAMESPACE}\"><IsTruncated>false</IsTruncated>{all}</{list}>");
    ask.extra.body = Some(("application/xml".into(), text.into()));
    Ok(json!({}))
}

fn private_acl(ask: &Ask) -> Value {
    let owner = owner(ask);
    let mut grantee = owner.clone();
    grantee["@xmlns:xsi"] = "http://www.w3.org/2001/XMLSchema-instance".into();
    grantee["@xsi:type"] = "CanonicalUser".into();
    let grant = json!({"Grantee": grantee, "Permission": "FULL_CONTROL"});
    json!({"AccessControlPolicy": {"@xmlns": NAMESPACE, "Owner": owner, "AccessControlList": {"Grant": [grant]}}})
}

pub fn get_acl(ask: &mut Ask) -> Answer<Value> {
    let kept = bucket(ask)?.settings.get("acl").cloned();
    match kept {
        Some(text) => {
            ask.extra.body = Some(("application/xml".into(), text.into()));
            Ok(json!({}))
        }
        None => Ok(private_acl(ask)),
    }
}

/// ACLs are off in buckets whose owner owns every object, but for the one that changes nothing.
fn check_acl(ask: &Ask) -> Answer<()> {
    let bucket = bucket(ask)?;
    let enforced = bucket.settings.get("ownershipControls").is_some_and(|text| text.contains("BucketOwnerEnforced"));
    let canned = header(ask, "x-amz-acl").unwrap_or(if ask.call.body.is_empty() { "private" } else { "" });
    match enforced && !["private", "bucket-owner-full-control"].contains(&canned) {
        true => fail("AccessControlListNotSupported", "The bucket does not allow ACLs"),
        false => Ok(()),
    }
}

pub fn put_acl(ask: &mut Ask) -> Answer<Value> {
    check_acl(ask)?;
    let name = bucket_name(ask);
    let text = acl_text(ask)?;
    ask.store().s3.buckets.update(&name, |bucket| match text {
        Some(text) => _ = bucket.settings.insert("acl".into(), text),
        None => _ = bucket.settings.remove("acl"),
    });
    Ok(json!({}))
}

/// The grants that an ACL stands for: written out, or by one of the names that S3 knows. None for `private`.
fn acl_text(ask: &Ask) -> Answer<Option<String>> {
    let groups: &[(&str, &str)] = match header(ask, "x-amz-acl") {
        None if ask.call.body.is_empty() => &[],
        None => {
            let upload = body::read(ask.call)?;
            let text = String::from_utf8(upload.data.to_vec()).map_err(|_| malformed())?;
            xml::parse(&text).filter(|tree| tree.name == "AccessControlPolicy").ok_or_else(malformed)?;
            return Ok(Some(text));
        }
        Some("private" | "bucket-owner-full-control" | "bucket-owner-read") => &[],
        Some("public-read") => &[("global/AllUsers", "READ")],
        Some("public-read-write") => &[("global/AllUsers", "READ"), ("global/AllUsers", "WRITE")],
        Some("authenticated-read") => &[("global/AuthenticatedUsers", "READ")],
        Some("log-delivery-write") => &[("s3/LogDelivery", "WRITE"), ("s3/LogDelivery", "READ_ACP")],
        Some(other) => return invalid(format!("{other} is not a canned ACL")),
    };
    if groups.is_empty() {
        return Ok(None);
    }
    let mut acl = private_acl(ask);
    let grants = acl["AccessControlPolicy"]["AccessControlList"]["Grant"].as_array_mut();
    let group = |(name, permission): &(&str, &str)| {
        json!({
            "Grantee": {
                "@xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
                "@xsi:type": "Group",
                "URI": format!("http://acs.amazonaws.com/groups/{name}"),
            },
            "Permission": permission,
        })
    };
    grants.into_iter().for_each(|grants| grants.extend(groups.iter().map(group)));
    Ok(Some(crate::aws::wire::xml_text(&acl)))
}

pub fn policy_status(ask: &mut Ask) -> Answer<Value> {
    let bucket = bucket(ask)?;
    let Some(text) = bucket.settings.get("policy") else { return unset("policy", bucket).map(Value::from) };
    let policy = parse_policy(text, Attached::Resource).unwrap_or_default();
    let public = policy.statements.iter().any(|statement| {
        let mut named = statement.principals.iter().flat_map(|principals| &principals.named);
        statement.allow && statement.conditions.is_empty() && named.any(|(_, value)| value == "*")
    });
    Ok(json!({"PolicyStatus": {"@xmlns": NAMESPACE, "IsPublic": public}}))
}

pub fn get_object_acl(ask: &mut Ask) -> Answer<Value> {
    super::objects::find(ask)?;
    Ok(private_acl(ask))
}

/// Objects have their bucket's ACL: other ones are refused rather than taken and forgotten.
pub fn put_object_acl(ask: &mut Ask) -> Answer<Value> {
    check_acl(ask)?;
    super::objects::find(ask)?;
    match header(ask, "x-amz-acl") {
        Some("private" | "bucket-owner-full-control" | "bucket-owner-read") => Ok(json!({})),
        _ => fail("AccessControlListNotSupported", "The sandbox keeps no ACLs of objects"),
    }
}
