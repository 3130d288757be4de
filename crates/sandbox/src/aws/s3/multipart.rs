//! Uploads in parts.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body::{self, Algorithm, hex};
use super::objects::{self, New};
use super::{
    Checksum, Meta, NAMESPACE, bucket, bucket_key, conditional, header, iso, key_name, malformed, owner, sent, tags,
    wall,
};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::aws::tables::object;
use crate::clock::SimTime;

/// All parts but the last are at least so large.
const MIN_PART_BYTES: u64 = 5 << 20;
const MAX_PARTS: usize = 10_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Upload {
    id: String,
    bucket: String,
    key: String,
    started: SimTime,
    meta: Meta,
    tags: Tags,
    /// The algorithm of its checksum, and whether it is of the whole object.
    checksum: Option<(String, bool)>,
    parts: BTreeMap<u32, Part>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub etag: String,
    pub modified: SimTime,
    size: u64,
    blobs: Vec<String>,
    checksum: Option<(String, String)>,
}

object!(
    Upload,
    "aws.s3_upload",
    id,
    |this| vec![bucket_key(&this.bucket)],
    json!({"name": this.key, "bucket": this.bucket})
);

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let (name, key) = (bucket(ask)?.name.clone(), key_name(ask));
    objects::check_key(&key)?;
    let meta = objects::meta(ask, bucket(ask)?)?;
    let tags = tags::of_header(ask)?;
    let algorithm = header(ask, "x-amz-checksum-algorithm").and_then(Algorithm::named);
    let kind = header(ask, "x-amz-checksum-type");
    let checksum = algorithm.map(|algorithm| {
        let whole = kind.map_or(algorithm == Algorithm::Crc64Nvme, |kind| kind == "FULL_OBJECT");
        (algorithm.name().to_owned(), whole)
    });
    let upload = Upload {
        id: format!("{}{}", ids::hex(32), ids::hex(32)),
        bucket: name.clone(),
        key: key.clone(),
        started: wall(),
        meta,
        tags,
        checksum: checksum.clone(),
        parts: BTreeMap::new(),
    };
    let id = upload.id.clone();
    ask.store().s3.uploads.insert(upload);
    if let Some((algorithm, whole)) = checksum {
        ask.extra.headers.push(("x-amz-checksum-algorithm".into(), algorithm));
        ask.extra.headers.push(("x-amz-checksum-type".into(), if whole { "FULL_OBJECT" } else { "COMPOSITE" }.into()));
    }
    Ok(json!({"InitiateMultipartUploadResult": {"@xmlns": NAMESPACE, "Bucket": name, "Key": key, "UploadId": id}}))
}

/// The upload that the request names.
fn find<'t>(ask: &'t Ask<'_, '_>) -> Answer<&'t Upload> {
    let bucket = &bucket(ask)?.name;
    let id = ask.call.query("uploadId").unwrap_or_default();
    let found = ask.state.store.s3.uploads.get(id);
    let found = found.filter(|upload| upload.bucket == *bucket && Some(upload.key.as_str()) == ask.input.text("Key"));
    found.ok_or_else(|| {
        AwsError::new(
            404,
            "NoSuchUpload",
            "The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.",
        )
        .details(json!({"UploadId": id}))
    })
}

pub fn add_part(ask: &mut Ask, data: Bytes, checksum: Option<(Algorithm, String)>) -> Answer<Part> {
    let (id, wanted) = {
        let upload = find(ask)?;
        (upload.id.clone(), upload.checksum.clone())
    };
    let number = match ask.call.query("partNumber").and_then(|number| number.parse::<u32>().ok()) {
        Some(number @ 1..=10_000) => number,
        _ => {
            return fail(
                "InvalidArgument",
                format!("Part number must be an integer between 1 and {MAX_PARTS}, inclusive"),
            );
        }
    };
    let made = wanted.and_then(|(name, _)| Algorithm::named(&name)).map(|algorithm| (algorithm, algorithm.of(&data)));
    let checksum = checksum.or(made).map(|(algorithm, value)| (algorithm.name().to_owned(), value));
    let (size, etag) = (data.len() as u64, hex(&body::md5(&data)));
    let blobs = objects::keep(ask, data)?;
    let part = Part { etag, modified: wall(), size, blobs, checksum };
    let replaced = ask.store().s3.uploads.update(&id, |upload| upload.parts.insert(number, part.clone())).flatten();
    if let Some(old) = replaced {
        objects::drop_blobs(ask, &old.blobs);
    }
    Ok(part)
}

pub fn upload_part(ask: &mut Ask) -> Answer<Value> {
    find(ask)?;
    let upload = body::read(ask.call)?;
    let part = add_part(ask, upload.data, upload.checksum)?;
    ask.extra.headers.push(("etag".into(), format!("\"{}\"", part.etag)));
    if let Some((name, value)) = part.checksum
        && let Some(algorithm) = Algorithm::named(&name)
    {
        ask.extra.headers.push((algorithm.header().into(), value));
    }
    Ok(json!({}))
}

/// The parts that a request to complete names, in order, and as they were uploaded.
fn chosen(ask: &Ask, upload: &Upload) -> Answer<Vec<Part>> {
    let request = sent(ask, "CompleteMultipartUpload")?;
    let mut parts: Vec<(u32, Part)> = Vec::new();
    for named in request.all("Part") {
        let number: u32 = named.text_of("PartNumber").and_then(|number| number.parse().ok()).ok_or_else(malformed)?;
        let etag = named.text_of("ETag").unwrap_or_default().trim_matches('"');
        let Some(part) = upload.parts.get(&number).filter(|part| part.etag == etag) else {
            return fail(
                "InvalidPart",
                "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag.",
            );
        };
        if parts.last().is_some_and(|(last, _)| *last >= number) {
            return fail(
                "InvalidPartOrder",
                "The list of parts was not in ascending order. Parts must be ordered by part number.",
            );
        }
        parts.push((number, part.clone()));
    }
    if parts.is_empty() {
        return Err(malformed());
    }
    let small = parts.iter().take(parts.len() - 1).any(|(_, part)| part.size < MIN_PART_BYTES);
    match small {
        true => fail("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size"),
        false => Ok(parts.into_iter().map(|(_, part)| part).collect()),
    }
}

/// Of the whole object, or of the checksums of its parts.
fn checksum(ask: &Ask, upload: &Upload, parts: &[Part], blobs: &[String]) -> Option<Checksum> {
    let (name, whole) = upload.checksum.as_ref()?;
    let algorithm = Algorithm::named(name)?;
    if *whole {
        let value = algorithm.of(&objects::data(ask, blobs));
        return Some(Checksum { algorithm: name.clone(), value, composite: false });
    }
    let each = parts.iter().filter_map(|part| STANDARD.decode(&part.checksum.as_ref()?.1).ok());
    let all: Vec<u8> = each.flatten().collect();
    Some(Checksum {
        algorithm: name.clone(),
        value: format!("{}-{}", algorithm.of(&all), parts.len()),
        composite: true,
    })
}

pub fn complete(ask: &mut Ask) -> Answer<Value> {
    let upload = find(ask)?.clone();
    let parts = chosen(ask, &upload)?;
    conditional::may_write(ask, objects::latest(ask, &upload.bucket, &upload.key), &upload.key)?;
    let digests: Vec<u8> = parts.iter().flat_map(|part| unhex(&part.etag)).collect();
    let etag = format!("{}-{}", hex(&body::md5(&digests)), parts.len());
    let blobs: Vec<String> = parts.iter().flat_map(|part| part.blobs.clone()).collect();
    let checksum = checksum(ask, &upload, &parts, &blobs);
    let left: Vec<String> =
        upload.parts.values().flat_map(|part| part.blobs.clone()).filter(|id| !blobs.contains(id)).collect();
    objects::drop_blobs(ask, &left);
    ask.store().s3.uploads.remove(&upload.id);
    let sizes: Vec<u64> = parts.iter().map(|part| part.size).collect();
    let new =
        New { size: sizes.iter().sum(), etag, blobs, parts: sizes, checksum, meta: upload.meta, tags: upload.tags };
    let version = objects::add(ask, &upload.bucket, &upload.key, Some(new));
    objects::tell_encryption(ask, &version);
    let mut shown = json!({
        "@xmlns": NAMESPACE,
        "Location": format!("{}/{}/{}", ask.base_url(), upload.bucket, upload.key),
        "Bucket": upload.bucket,
        "Key": upload.key,
        "ETag": format!("\"{}\"", version.etag),
    });
    if let Some(checksum) = &version.checksum {
        shown[format!("Checksum{}", checksum.algorithm)] = checksum.value.clone().into();
        shown["ChecksumType"] = if checksum.composite { "COMPOSITE" } else { "FULL_OBJECT" }.into();
    }
    Ok(json!({"CompleteMultipartUploadResult": shown}))
}

fn unhex(text: &str) -> Vec<u8> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).filter_map(pair).collect()
}

/// Lets go of an upload and its parts.
pub fn forget(ask: &mut Ask, id: &str) {
    if let Some(upload) = ask.store().s3.uploads.remove(id) {
        upload.parts.values().for_each(|part| objects::drop_blobs(ask, &part.blobs));
    }
}

pub fn abort(ask: &mut Ask) -> Answer<Value> {
    let id = find(ask)?.id.clone();
    forget(ask, &id);
    ask.extra.status = Some(204);
    Ok(json!({}))
}

pub fn list_parts(ask: &mut Ask) -> Answer<Value> {
    let upload = find(ask)?;
    let after = ask.call.query("part-number-marker").and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
    let max = ask.call.number("max-parts", 1000).min(1000);
    let mut rows = upload.parts.range(after + 1..);
    let page: Vec<(&u32, &Part)> = rows.by_ref().take(max).collect();
    let shown: Vec<Value> = page
        .iter()
        .map(|(number, part)| {
            json!({
                "PartNumber": number,
                "LastModified": iso(part.modified),
                "ETag": format!("\"{}\"", part.etag),
                "Size": part.size,
            })
        })
        .collect();
    let owner = owner(ask);
    Ok(json!({"ListPartsResult": {
        "@xmlns": NAMESPACE,
        "Bucket": upload.bucket,
        "Key": upload.key,
        "UploadId": upload.id,
        "Initiator": owner.clone(),
        "Owner": owner,
        "StorageClass": upload.meta.storage_class.as_deref().unwrap_or("STANDARD"),
        "PartNumberMarker": after,
        "NextPartNumberMarker": page.last().map(|(number, _)| **number),
        "MaxParts": max,
        "IsTruncated": rows.next().is_some(),
        "Part": shown,
    }}))
}

pub fn list_uploads(ask: &mut Ask) -> Answer<Value> {
    let bucket = &bucket(ask)?.name;
    let prefix = ask.call.query("prefix").unwrap_or_default();
    let mut rows = ask.rows(|store| &store.s3.uploads, &bucket_key(bucket));
    rows.retain(|upload| upload.key.starts_with(prefix));
    rows.sort_by(|one, other| (&one.key, &one.started.0).cmp(&(&other.key, &other.started.0)));
    let owner = owner(ask);
    let shown: Vec<Value> = rows
        .iter()
        .map(|upload| {
            json!({
                "Key": upload.key,
                "UploadId": upload.id,
                "Initiator": owner.clone(),
                "Owner": owner.clone(),
                "StorageClass": "STANDARD",
                "Initiated": iso(upload.started),
            })
        })
        .collect();
    Ok(json!({"ListMultipartUploadsResult": {
        "@xmlns": NAMESPACE,
        "Bucket": bucket,
        "Prefix": prefix,
        "KeyMarker": "",
        "UploadIdMarker": "",
        "MaxUploads": 1000,
        "IsTruncated": false,
        "Upload": shown,
    }}))
}
