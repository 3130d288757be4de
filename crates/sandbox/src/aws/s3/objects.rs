//! Objects: put, got, deleted.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};

use super::body::{self, hex};
use super::{
    Blob, Bucket, Checksum, MAX_BLOB_BYTES, MAX_TOTAL_BYTES, Meta, NAMESPACE, Version, bucket, bucket_name,
    conditional, header, iso, key_name, no_key, object_key, sent, tags, wall, xml,
};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError, fail, fail_with};
use crate::aws::ids;

const MAX_KEY_BYTES: usize = 1024;
/// Headers that come back as they were sent.
const KEPT: [&str; 5] = ["cache-control", "content-disposition", "content-encoding", "content-language", "expires"];

/// The latest version of an object, which may be a mark that it was deleted.
pub fn latest<'t>(ask: &'t Ask<'_, '_>, bucket: &str, key: &str) -> Option<&'t Version> {
    ask.state.store.s3.versions.find(&object_key(bucket, key)).last()
}

/// A version by its id, or the latest.
pub fn version<'t>(ask: &'t Ask<'_, '_>, bucket: &str, key: &str, id: Option<&str>) -> Answer<&'t Version> {
    match id {
        None => latest(ask, bucket, key).filter(|version| !version.delete_marker).ok_or_else(|| no_key(key)),
        Some(id) => {
            let all = ask.state.store.s3.versions.find(&object_key(bucket, key));
            let missing = || {
                let error = AwsError::new(404, "NoSuchVersion", "The specified version does not exist.");
                error.details(json!({"Key": key, "VersionId": id}))
            };
            all.into_iter().find(|version| version.version == id).ok_or_else(missing)
        }
    }
}

/// The version that the request names.
pub fn find<'t>(ask: &'t Ask<'_, '_>) -> Answer<&'t Version> {
    let bucket = &bucket(ask)?.name;
    version(ask, bucket, ask.input.text("Key").unwrap_or_default(), ask.call.query("versionId"))
}

/// What a request says of the object that it makes.
pub fn meta(ask: &Ask, bucket: &Bucket) -> Answer<Meta> {
    let mut meta = Meta { content_type: header(ask, "content-type").map(str::to_owned), ..Meta::default() };
    for name in KEPT {
        let value = header(ask, name).map(|value| without_chunks(name, value)).filter(|value| !value.is_empty());
        meta.headers.extend(value.map(|value| (name.to_owned(), value)));
    }
    for (name, value) in &ask.call.headers {
        if let Some(name) = name.as_str().strip_prefix("x-amz-meta-") {
            meta.user.insert(name.to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned());
        }
    }
    meta.storage_class = header(ask, "x-amz-storage-class").filter(|class| *class != "STANDARD").map(str::to_owned);
    let own = header(ask, "x-amz-server-side-encryption").map(str::to_owned);
    let key = header(ask, "x-amz-server-side-encryption-aws-kms-key-id").map(str::to_owned);
    meta.encryption = Some(match own {
        Some(algorithm) if ["AES256", "aws:kms", "aws:kms:dsse"].contains(&algorithm.as_str()) => (algorithm, key),
        Some(_) => return fail("InvalidArgument", "The encryption method specified is not supported"),
        None => default_encryption(bucket),
    });
    Ok(meta)
}

/// `aws-chunked` tells how the body was sent, not what it is.
fn without_chunks(name: &str, value: &str) -> String {
    if name != "content-encoding" {
        return value.to_owned();
    }
    let parts: Vec<&str> =
        value.split(',').map(str::trim).filter(|part| *part != "aws-chunked" && !part.is_empty()).collect();
    parts.join(",")
}

fn default_encryption(bucket: &Bucket) -> (String, Option<String>) {
    let tree = bucket.settings.get("encryption").and_then(|text| xml::parse(text));
    let find = |name: &str| tree.as_ref().and_then(|tree| tree.find(name)).map(str::to_owned);
    (find("SSEAlgorithm").unwrap_or_else(|| "AES256".into()), find("KMSMasterKeyID"))
}

/// Keeps data in pieces that fit a line of the state file; their ids.
pub fn keep(ask: &mut Ask, mut data: Bytes) -> Answer<Vec<String>> {
    let blobs = &mut ask.store().s3.blobs;
    if blobs.weight() + data.len() as u64 > MAX_TOTAL_BYTES {
        return fail("EntityTooLarge", format!("The sandbox keeps {} MiB of objects in all", MAX_TOTAL_BYTES >> 20));
    }
    let mut names = Vec::new();
    while !data.is_empty() {
        let piece = data.split_to(data.len().min(MAX_BLOB_BYTES));
        let id = ids::hex(32);
        names.push(id.clone());
        blobs.insert(Blob { id, data: piece });
    }
    Ok(names)
}

/// All data of these pieces.
pub fn data(ask: &Ask, blobs: &[String]) -> Bytes {
    let table = &ask.state.store.s3.blobs;
    let mut pieces = blobs.iter().filter_map(|id| table.get(id)).map(|blob| &blob.data);
    match (pieces.next(), blobs.len()) {
        (None, _) => Bytes::new(),
        (Some(only), 1) => only.clone(),
        (Some(first), _) => {
            let mut all = BytesMut::from(first.as_ref());
            pieces.for_each(|piece| all.extend_from_slice(piece));
            all.freeze()
        }
    }
}

pub fn drop_blobs(ask: &mut Ask, blobs: &[String]) {
    for id in blobs {
        ask.store().s3.blobs.remove(id);
    }
}

pub fn remove_version(ask: &mut Ask, id: &str) {
    if let Some(version) = ask.store().s3.versions.remove(id) {
        drop_blobs(ask, &version.blobs);
    }
}

/// What becomes a version.
pub struct New {
    pub size: u64,
    pub etag: String,
    pub blobs: Vec<String>,
    pub parts: Vec<u64>,
    pub checksum: Option<Checksum>,
    pub meta: Meta,
    pub tags: Tags,
}

/// Adds a version as the bucket's versioning has it, and tells its id where there are any.
pub fn add(ask: &mut Ask, bucket: &str, key: &str, new: Option<New>) -> Version {
    let versioning = ask.state.store.s3.buckets.get(bucket).and_then(|bucket| bucket.versioning.clone());
    let version = match versioning.as_deref() {
        Some("Enabled") => ids::hex(32),
        _ => "null".to_owned(),
    };
    if version == "null" {
        let all = ask.state.store.s3.versions.find(&object_key(bucket, key));
        let replaced = all.into_iter().find(|old| old.version == "null").map(|old| old.id.clone());
        replaced.into_iter().for_each(|id| remove_version(ask, &id));
    }
    let delete_marker = new.is_none();
    let new = new.unwrap_or(New {
        size: 0,
        etag: String::new(),
        blobs: Vec::new(),
        parts: Vec::new(),
        checksum: None,
        meta: Meta::default(),
        tags: Tags::new(),
    });
    let row = Version {
        id: ids::hex(32),
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        version,
        delete_marker,
        size: new.size,
        etag: new.etag,
        blobs: new.blobs,
        parts: new.parts,
        checksum: new.checksum,
        meta: new.meta,
        tags: new.tags,
        modified: wall(),
    };
    ask.store().s3.versions.insert(row.clone());
    if versioning.is_some() {
        ask.extra.headers.push(("x-amz-version-id".into(), row.version.clone()));
    }
    row
}

/// Headers about encryption and checksum that a write answers with, too.
pub fn tell_written(ask: &mut Ask, version: &Version) {
    ask.extra.headers.push(("etag".into(), format!("\"{}\"", version.etag)));
    tell_encryption(ask, version);
    tell_checksum(ask, version);
}

pub fn tell_encryption(ask: &mut Ask, version: &Version) {
    if let Some((algorithm, key)) = &version.meta.encryption {
        ask.extra.headers.push(("x-amz-server-side-encryption".into(), algorithm.clone()));
        if let Some(key) = key.as_ref().filter(|_| algorithm != "AES256") {
            ask.extra.headers.push(("x-amz-server-side-encryption-aws-kms-key-id".into(), key.clone()));
        }
    }
}

fn tell_checksum(ask: &mut Ask, version: &Version) {
    let Some(checksum) = &version.checksum else { return };
    let Some(algorithm) = body::Algorithm::named(&checksum.algorithm) else { return };
    let kind = if checksum.composite { "COMPOSITE" } else { "FULL_OBJECT" };
    ask.extra.headers.push((algorithm.header().into(), checksum.value.clone()));
    ask.extra.headers.push(("x-amz-checksum-type".into(), kind.into()));
}

pub fn check_key(key: &str) -> Answer<()> {
    match key.len() > MAX_KEY_BYTES {
        true => fail("KeyTooLongError", "Your key is too long"),
        false => Ok(()),
    }
}

pub fn put(ask: &mut Ask) -> Answer<Value> {
    let (bucket_name, key) = (bucket(ask)?.name.clone(), key_name(ask));
    check_key(&key)?;
    let meta = meta(ask, bucket(ask)?)?;
    let tags = tags::of_header(ask)?;
    conditional::may_write(ask, latest(ask, &bucket_name, &key), &key)?;
    let upload = body::read(ask.call)?;
    let (size, etag) = (upload.data.len() as u64, hex(&upload.md5));
    let checksum = upload.checksum.map(|(algorithm, value)| Checksum {
        algorithm: algorithm.name().into(),
        value,
        composite: false,
    });
    let blobs = keep(ask, upload.data)?;
    let new = New { size, etag, blobs, parts: Vec::new(), checksum, meta, tags };
    let version = add(ask, &bucket_name, &key, Some(new));
    tell_written(ask, &version);
    Ok(json!({}))
}

/// Everything of a version but its data goes into headers.
fn tell(ask: &mut Ask, version: &Version, versioned: bool) {
    let mut headers: BTreeMap<String, String> = version.meta.headers.clone();
    headers.extend(version.meta.user.iter().map(|(name, value)| (format!("x-amz-meta-{name}"), value.clone())));
    headers.insert("last-modified".into(), conditional::last_modified(version));
    headers.insert("accept-ranges".into(), "bytes".into());
    headers.insert("etag".into(), format!("\"{}\"", version.etag));
    if versioned {
        headers.insert("x-amz-version-id".into(), version.version.clone());
    }
    if let Some(class) = &version.meta.storage_class {
        headers.insert("x-amz-storage-class".into(), class.clone());
    }
    if !version.tags.is_empty() {
        headers.insert("x-amz-tagging-count".into(), version.tags.len().to_string());
    }
    if !version.parts.is_empty() && ask.call.query("partNumber").is_some() {
        headers.insert("x-amz-mp-parts-count".into(), version.parts.len().to_string());
    }
    for name in KEPT {
        if let Some(value) = ask.call.query(&format!("response-{name}")) {
            headers.insert(name.to_owned(), value.to_owned());
        }
    }
    ask.extra.headers.extend(headers.into_iter().map(|(name, value)| (name.into(), value)));
    tell_encryption(ask, version);
    // It is the whole object's, and no use for a piece of it.
    let whole = header(ask, "range").is_none() && ask.call.query("partNumber").is_none();
    if whole && header(ask, "x-amz-checksum-mode").is_some_and(|mode| mode.eq_ignore_ascii_case("enabled")) {
        tell_checksum(ask, version);
    }
}

/// Finds the version, minds conditions, and answers with headers. Nothing where the client has it already.
fn opened(ask: &mut Ask) -> Answer<Option<Version>> {
    let versioned = bucket(ask)?.versioning.is_some();
    let found = match find(ask) {
        Ok(version) if version.delete_marker => {
            ask.extra.headers.push(("x-amz-delete-marker".into(), "true".into()));
            return fail_with(405, "MethodNotAllowed", "The specified method is not allowed against this resource.");
        }
        found => found?.clone(),
    };
    let unchanged = conditional::unchanged(ask, &found)?;
    tell(ask, &found, versioned);
    if unchanged {
        ask.extra.status = Some(304);
        ask.extra.body = Some(("application/xml".into(), Bytes::new()));
        return Ok(None);
    }
    Ok(Some(found))
}

fn content_type(ask: &Ask, version: &Version) -> String {
    let asked = ask.call.query("response-content-type").map(str::to_owned);
    asked.or_else(|| version.meta.content_type.clone()).unwrap_or_else(|| "binary/octet-stream".into())
}

/// First byte and length of what is asked for: a range, or a part.
fn wanted(ask: &Ask, version: &Version) -> Answer<Option<(u64, u64)>> {
    if let Some(part) = ask.call.query("partNumber").and_then(|part| part.parse::<usize>().ok()) {
        let sizes =
            if version.parts.is_empty() { std::slice::from_ref(&version.size) } else { version.parts.as_slice() };
        let Some(size) = part.checked_sub(1).and_then(|at| sizes.get(at)) else {
            return fail_with(416, "InvalidPartNumber", "The requested partnumber is not satisfiable");
        };
        return Ok(Some((sizes.iter().take(part - 1).sum(), *size)));
    }
    match header(ask, "range") {
        Some(range) => conditional::range(range, version.size),
        None => Ok(None),
    }
}

fn tell_range(ask: &mut Ask, version: &Version) -> Answer<(u64, u64)> {
    let wanted = wanted(ask, version)?;
    if let Some((first, length)) = wanted {
        ask.extra.status = Some(206);
        let last = (first + length).saturating_sub(1);
        ask.extra.headers.push(("content-range".into(), format!("bytes {first}-{last}/{}", version.size)));
    }
    Ok(wanted.unwrap_or((0, version.size)))
}

pub fn get(ask: &mut Ask) -> Answer<Value> {
    let Some(version) = opened(ask)? else { return Ok(json!({})) };
    let (first, length) = tell_range(ask, &version)?;
    let all = data(ask, &version.blobs);
    let slice = all.slice(first as usize..(first + length) as usize);
    ask.extra.body = Some((content_type(ask, &version), slice));
    Ok(json!({}))
}

pub fn head(ask: &mut Ask) -> Answer<Value> {
    let Some(version) = opened(ask)? else { return Ok(json!({})) };
    let (_, length) = tell_range(ask, &version)?;
    ask.extra.headers.push(("content-length".into(), length.to_string()));
    ask.extra.body = Some((content_type(ask, &version), Bytes::new()));
    Ok(json!({}))
}

/// What a delete did.
struct Deleted {
    /// The version that is gone, or the mark that was set.
    version: Option<String>,
    marker: bool,
}

fn delete_one(ask: &mut Ask, bucket: &str, key: &str, id: Option<&str>) -> Deleted {
    let versioning = ask.state.store.s3.buckets.get(bucket).and_then(|bucket| bucket.versioning.clone());
    if id.is_some() || versioning.is_none() {
        let id = id.unwrap_or("null");
        let all = ask.state.store.s3.versions.find(&object_key(bucket, key));
        let found =
            all.into_iter().find(|version| version.version == id).map(|row| (row.id.clone(), row.delete_marker));
        let marker = found.as_ref().is_some_and(|(_, marker)| *marker);
        found.into_iter().for_each(|(row, _)| remove_version(ask, &row));
        return Deleted { version: versioning.map(|_| id.to_owned()), marker };
    }
    let headers = ask.extra.headers.len();
    let marker = add(ask, bucket, key, None);
    ask.extra.headers.truncate(headers);
    Deleted { version: Some(marker.version), marker: true }
}

/// Deleting what is not there is no error.
pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let (bucket, key) = (bucket(ask)?.name.clone(), key_name(ask));
    if header(ask, "if-match").is_some() {
        conditional::may_write(ask, latest(ask, &bucket, &key), &key)?;
    }
    let id = ask.call.query("versionId").map(str::to_owned);
    let deleted = delete_one(ask, &bucket, &key, id.as_deref());
    if let Some(version) = deleted.version {
        ask.extra.headers.push(("x-amz-version-id".into(), version));
    }
    if deleted.marker {
        ask.extra.headers.push(("x-amz-delete-marker".into(), "true".into()));
    }
    ask.extra.status = Some(204);
    Ok(json!({}))
}

pub fn delete_many(ask: &mut Ask) -> Answer<Value> {
    bucket(ask)?;
    let bucket = bucket_name(ask);
    let request = sent(ask, "Delete")?;
    let quiet = request.text_of("Quiet") == Some("true");
    let mut rows = Vec::new();
    for object in request.all("Object") {
        let key = object.child("Key").map(|key| key.text.clone()).ok_or_else(super::malformed)?;
        let id = object.text_of("VersionId").filter(|id| !id.is_empty());
        let deleted = delete_one(ask, &bucket, &key, id);
        let marker = deleted.marker.then_some(true);
        rows.push(json!({
            "Key": key,
            "VersionId": id,
            "DeleteMarker": marker,
            "DeleteMarkerVersionId": marker.and(deleted.version),
        }));
    }
    let shown = if quiet { Vec::new() } else { rows };
    Ok(json!({"DeleteResult": {"@xmlns": NAMESPACE, "Deleted": shown}}))
}

pub fn attributes(ask: &mut Ask) -> Answer<Value> {
    let versioned = bucket(ask)?.versioning.is_some();
    let version = find(ask)?.clone();
    let asked = header(ask, "x-amz-object-attributes").unwrap_or_default().to_owned();
    let wanted = |name: &str| asked.split(',').any(|one| one.trim() == name);
    let mut shown = json!({"@xmlns": NAMESPACE});
    if wanted("ETag") {
        shown["ETag"] = version.etag.clone().into();
    }
    if wanted("ObjectSize") {
        shown["ObjectSize"] = version.size.into();
    }
    if wanted("StorageClass") {
        shown["StorageClass"] = version.meta.storage_class.as_deref().unwrap_or("STANDARD").into();
    }
    if let (true, Some(checksum)) = (wanted("Checksum"), &version.checksum) {
        shown["Checksum"] = json!({format!("Checksum{}", checksum.algorithm): checksum.value});
    }
    if wanted("ObjectParts") && !version.parts.is_empty() {
        shown["ObjectParts"] = json!({"PartsCount": version.parts.len()});
    }
    ask.extra.headers.push(("last-modified".into(), conditional::last_modified(&version)));
    if versioned {
        ask.extra.headers.push(("x-amz-version-id".into(), version.version));
    }
    Ok(json!({"GetObjectAttributesResponse": shown}))
}

/// `2026-01-31T12:00:00.000Z`, for answers that hold a time.
pub fn modified(version: &Version) -> String {
    iso(version.modified)
}
