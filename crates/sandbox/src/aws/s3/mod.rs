//! S3: buckets with their settings, and objects with their versions.

mod body;
mod buckets;
mod conditional;
mod copy;
mod listing;
mod multipart;
mod objects;
mod route;
mod settings;
mod tags;
mod xml;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Store;
use super::ask::{Ask, Tags};
use super::errors::{Answer, AwsError};
use super::tables::object;
use super::tagging::TaggedService;
use super::wire::{Action, Protocol, Service};
use crate::clock::SimTime;
use crate::table::Object;

/// All objects together: they are in memory, and in the state file.
const MAX_TOTAL_BYTES: u64 = 512 << 20;
/// A line of the state file has to hold one.
const MAX_BLOB_BYTES: usize = 8 << 20;

pub static SERVICE: Service =
    Service { scope: "s3", protocol: Protocol::RestXml { route: route::route }, actions: ACTIONS };

const ACTIONS: &[Action] = &[
    Action::read("ListBuckets", buckets::list),
    Action::change("CreateBucket", buckets::create),
    Action::read("HeadBucket", buckets::head),
    Action::change("DeleteBucket", buckets::delete),
    Action::read("GetBucketLocation", buckets::get_location),
    Action::read("GetBucketPolicy", settings::get),
    Action::change("PutBucketPolicy", settings::put),
    Action::change("DeleteBucketPolicy", settings::delete),
    Action::read("GetBucketCors", settings::get),
    Action::change("PutBucketCors", settings::put),
    Action::change("DeleteBucketCors", settings::delete),
    Action::read("GetBucketWebsite", settings::get),
    Action::change("PutBucketWebsite", settings::put),
    Action::change("DeleteBucketWebsite", settings::delete),
    Action::read("GetBucketVersioning", settings::get),
    Action::change("PutBucketVersioning", settings::put),
    Action::read("GetBucketAccelerateConfiguration", settings::get),
    Action::change("PutBucketAccelerateConfiguration", settings::put),
    Action::read("GetBucketRequestPayment", settings::get),
    Action::change("PutBucketRequestPayment", settings::put),
    Action::read("GetBucketLogging", settings::get),
    Action::change("PutBucketLogging", settings::put),
    Action::read("GetBucketLifecycleConfiguration", settings::get),
    Action::change("PutBucketLifecycleConfiguration", settings::put),
    Action::change("DeleteBucketLifecycle", settings::delete),
    Action::read("GetBucketReplication", settings::get),
    Action::change("PutBucketReplication", settings::put),
    Action::change("DeleteBucketReplication", settings::delete),
    Action::read("GetBucketEncryption", settings::get),
    Action::change("PutBucketEncryption", settings::put),
    Action::change("DeleteBucketEncryption", settings::delete),
    Action::read("GetObjectLockConfiguration", settings::get),
    Action::change("PutObjectLockConfiguration", settings::put),
    Action::read("GetPublicAccessBlock", settings::get),
    Action::change("PutPublicAccessBlock", settings::put),
    Action::change("DeletePublicAccessBlock", settings::delete),
    Action::read("GetBucketOwnershipControls", settings::get),
    Action::change("PutBucketOwnershipControls", settings::put),
    Action::change("DeleteBucketOwnershipControls", settings::delete),
    Action::read("GetBucketNotificationConfiguration", settings::get),
    Action::change("PutBucketNotificationConfiguration", settings::put),
    Action::read("GetBucketIntelligentTieringConfiguration", settings::get),
    Action::change("PutBucketIntelligentTieringConfiguration", settings::put),
    Action::change("DeleteBucketIntelligentTieringConfiguration", settings::delete),
    Action::read("ListBucketIntelligentTieringConfigurations", settings::list_named),
    Action::read("GetBucketAnalyticsConfiguration", settings::get),
    Action::change("PutBucketAnalyticsConfiguration", settings::put),
    Action::change("DeleteBucketAnalyticsConfiguration", settings::delete),
    Action::read("ListBucketAnalyticsConfigurations", settings::list_named),
    Action::read("GetBucketInventoryConfiguration", settings::get),
    Action::change("PutBucketInventoryConfiguration", settings::put),
    Action::change("DeleteBucketInventoryConfiguration", settings::delete),
    Action::read("ListBucketInventoryConfigurations", settings::list_named),
    Action::read("GetBucketMetricsConfiguration", settings::get),
    Action::change("PutBucketMetricsConfiguration", settings::put),
    Action::change("DeleteBucketMetricsConfiguration", settings::delete),
    Action::read("ListBucketMetricsConfigurations", settings::list_named),
    Action::read("GetBucketTagging", tags::get_bucket),
    Action::change("PutBucketTagging", tags::put_bucket),
    Action::change("DeleteBucketTagging", tags::delete_bucket),
    Action::read("GetBucketAcl", settings::get_acl),
    Action::change("PutBucketAcl", settings::put_acl),
    Action::read("GetBucketPolicyStatus", settings::policy_status),
    Action::read("ListObjects", listing::list),
    Action::read("ListObjectsV2", listing::list_v2),
    Action::read("ListObjectVersions", listing::versions),
    Action::read("ListMultipartUploads", multipart::list_uploads),
    Action::change("DeleteObjects", objects::delete_many),
    Action::change("PutObject", objects::put),
    Action::read("GetObject", objects::get),
    Action::read("HeadObject", objects::head),
    Action::change("DeleteObject", objects::delete),
    Action::change("CopyObject", copy::copy),
    Action::read("GetObjectTagging", tags::get_object),
    Action::change("PutObjectTagging", tags::put_object),
    Action::change("DeleteObjectTagging", tags::delete_object),
    Action::read("GetObjectAcl", settings::get_object_acl),
    Action::change("PutObjectAcl", settings::put_object_acl),
    Action::read("GetObjectAttributes", objects::attributes),
    Action::change("CreateMultipartUpload", multipart::create),
    Action::change("UploadPart", multipart::upload_part),
    Action::change("UploadPartCopy", copy::copy_part),
    Action::change("CompleteMultipartUpload", multipart::complete),
    Action::change("AbortMultipartUpload", multipart::abort),
    Action::read("ListParts", multipart::list_parts),
];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bucket {
    pub name: String,
    pub region: String,
    created: SimTime,
    tags: Tags,
    /// `Enabled` or `Suspended`, once it was either.
    versioning: Option<String>,
    /// What was put, by sub-resource such as `lifecycle`, or `inventory/NAME` where there are several.
    settings: BTreeMap<String, String>,
}

object!(
    Bucket,
    "aws.s3_bucket",
    name,
    |this| vec![format!("region:{}", this.region)],
    json!({"name": this.name, "region": this.region})
);

/// What is sent with an object and comes back with it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Meta {
    content_type: Option<String>,
    /// Other headers that HTTP knows, such as `cache-control`.
    headers: BTreeMap<String, String>,
    /// `x-amz-meta-*`, without the prefix.
    user: BTreeMap<String, String>,
    storage_class: Option<String>,
    /// Algorithm and key.
    encryption: Option<(String, Option<String>)>,
}

/// The checksum of an object: its algorithm, value, and whether it is of the parts' checksums.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Checksum {
    algorithm: String,
    value: String,
    composite: bool,
}

/// One version of an object, or a mark that it was deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    id: String,
    bucket: String,
    key: String,
    /// `null` where the bucket has no versions.
    version: String,
    delete_marker: bool,
    size: u64,
    etag: String,
    blobs: Vec<String>,
    /// Sizes of the parts that it was uploaded in.
    parts: Vec<u64>,
    checksum: Option<Checksum>,
    meta: Meta,
    tags: Tags,
    modified: SimTime,
}

object!(
    Version,
    "aws.s3_object",
    id,
    |this| vec![bucket_key(&this.bucket), object_key(&this.bucket, &this.key)],
    json!({"name": this.key, "bucket": this.bucket, "version": this.version, "bytes": this.size})
);

fn bucket_key(bucket: &str) -> String {
    format!("bucket:{bucket}")
}

fn object_key(bucket: &str, key: &str) -> String {
    format!("object:{bucket}/{key}")
}

/// A piece of an object's data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Blob {
    id: String,
    #[serde(with = "base64_text")]
    data: Bytes,
}

mod base64_text {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(data: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(data))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Bytes::from).map_err(serde::de::Error::custom)
    }
}

impl Object for Blob {
    const TYPE: &'static str = "aws.s3_blob";
    const IN_LEDGER: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![]
    }

    fn gone_at(&self) -> Option<SimTime> {
        None
    }

    fn weight(&self) -> u64 {
        self.data.len() as u64
    }

    fn ledger(&self, _: SimTime) -> Value {
        json!({})
    }
}

super::tables::tables! {
    buckets: Bucket,
    versions: Version,
    blobs: Blob,
    uploads: multipart::Upload,
}

fn no_bucket(name: &str) -> Box<AwsError> {
    AwsError::new(404, "NoSuchBucket", "The specified bucket does not exist").details(json!({"BucketName": name}))
}

fn no_key(key: &str) -> Box<AwsError> {
    AwsError::new(404, "NoSuchKey", "The specified key does not exist.").details(json!({"Key": key}))
}

fn malformed() -> Box<AwsError> {
    AwsError::new(
        400,
        "MalformedXML",
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}

/// The names of bucket and object, as the request has them.
fn bucket_name(ask: &Ask) -> String {
    ask.input.text("Bucket").unwrap_or_default().to_owned()
}

fn key_name(ask: &Ask) -> String {
    ask.input.text("Key").unwrap_or_default().to_owned()
}

fn bucket<'t>(ask: &'t Ask<'_, '_>) -> Answer<&'t Bucket> {
    let name = ask.input.text("Bucket").unwrap_or_default();
    ask.state.store.s3.buckets.get(name).ok_or_else(|| no_bucket(name))
}

/// The body as XML with a certain root.
fn sent(ask: &Ask, root: &str) -> Answer<xml::Element> {
    let upload = body::read(ask.call)?;
    let text = std::str::from_utf8(&upload.data).map_err(|_| malformed())?;
    xml::parse(text).filter(|element| element.name == root).ok_or_else(malformed)
}

fn header<'c>(ask: &Ask<'c, '_>, name: &str) -> Option<&'c str> {
    ask.call.headers.get(name).and_then(|value| value.to_str().ok())
}

/// Times of objects are real ones: clients compare them with those of their files.
fn wall() -> SimTime {
    SimTime(jiff::Timestamp::now().as_millisecond())
}

/// `2026-01-31T12:00:00.000Z`
fn iso(time: SimTime) -> String {
    let whole = time.rfc3339();
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), time.0.rem_euclid(1000))
}

/// `Sat, 31 Jan 2026 12:00:00 GMT`
fn http_date(time: SimTime) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(time) => time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
        Err(_) => String::new(),
    }
}

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// One that every account has another of.
fn owner(ask: &Ask) -> Value {
    use sha2::{Digest, Sha256};
    let id = body::hex(&Sha256::digest(ask.account.as_bytes()));
    json!({"ID": id, "DisplayName": "sandbox"})
}

pub fn policy_of(store: &Store, bucket: &str) -> Option<String> {
    store.s3.buckets.get(bucket)?.settings.get("policy").cloned()
}

pub struct S3Tags;

impl TaggedService for S3Tags {
    fn list(&self, store: &Store, region: &str, _: &str) -> Vec<(String, Tags)> {
        let buckets = store.s3.buckets.find(&format!("region:{region}"));
        buckets.map(|bucket| (format!("arn:aws:s3:::{}", bucket.name), bucket.tags.clone())).collect()
    }

    fn change(&self, store: &mut Store, arn: &str, change: &dyn Fn(&mut Tags)) -> bool {
        let Some(name) = arn.strip_prefix("arn:aws:s3:::") else { return false };
        store.s3.buckets.update(name, |bucket| change(&mut bucket.tags)).is_some()
    }
}
