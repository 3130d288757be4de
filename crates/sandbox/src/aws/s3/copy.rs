//! Copies: of whole objects, and of ranges as parts of an upload.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::objects::{self, New};
use super::{Checksum, NAMESPACE, Version, body, bucket, conditional, header, key_name, multipart, tags};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};

/// The object that `x-amz-copy-source` names: `/BUCKET/KEY?versionId=ID`.
fn source(ask: &Ask) -> Answer<Version> {
    let sent = header(ask, "x-amz-copy-source").unwrap_or_default();
    let (path, id) = match sent.split_once("?versionId=") {
        Some((path, id)) => (path, Some(id)),
        None => (sent, None),
    };
    let path = percent_decode_str(path).decode_utf8_lossy().into_owned();
    let Some((bucket, key)) = path.trim_start_matches('/').split_once('/') else {
        return fail("InvalidArgument", "Invalid copy source object key");
    };
    if ask.state.store.s3.buckets.get(bucket).is_none() {
        return Err(super::no_bucket(bucket));
    }
    let version = objects::version(ask, bucket, key, id)?;
    conditional::may_copy(ask, version)?;
    Ok(version.clone())
}

pub fn copy(ask: &mut Ask) -> Answer<Value> {
    let (name, key) = (bucket(ask)?.name.clone(), key_name(ask));
    objects::check_key(&key)?;
    let source = source(ask)?;
    let replaces = |name: &str| header(ask, name).is_some_and(|directive| directive == "REPLACE");
    let (new_meta, new_tags) = (replaces("x-amz-metadata-directive"), replaces("x-amz-tagging-directive"));
    let changed = new_meta
        || header(ask, "x-amz-storage-class").is_some()
        || header(ask, "x-amz-server-side-encryption").is_some();
    let latest = objects::latest(ask, &name, &key).map(|version| version.id.clone());
    if latest.as_ref() == Some(&source.id) && !changed {
        return fail(
            "InvalidRequest",
            "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.",
        );
    }
    conditional::may_write(ask, objects::latest(ask, &name, &key), &key)?;
    let sent = objects::meta(ask, bucket(ask)?)?;
    let mut meta = if new_meta { sent.clone() } else { source.meta.clone() };
    meta.encryption = sent.encryption;
    meta.storage_class = sent.storage_class;
    let tags = if new_tags { tags::of_header(ask)? } else { source.tags.clone() };
    let data = objects::data(ask, &source.blobs);
    // Asked for anew, or as the source has it.
    let algorithm = header(ask, "x-amz-checksum-algorithm").and_then(body::Algorithm::named);
    let checksum = match algorithm {
        Some(algorithm) => {
            Some(Checksum { algorithm: algorithm.name().into(), value: algorithm.of(&data), composite: false })
        }
        None => source.checksum.clone().filter(|checksum| !checksum.composite),
    };
    let etag = match source.parts.is_empty() {
        true => source.etag.clone(),
        false => body::hex(&body::md5(&data)),
    };
    let blobs = objects::keep(ask, data)?;
    let new = New { size: source.size, etag, blobs, parts: Vec::new(), checksum, meta, tags };
    let version = objects::add(ask, &name, &key, Some(new));
    objects::tell_encryption(ask, &version);
    ask.extra.headers.push(("x-amz-copy-source-version-id".into(), source.version));
    let mut shown = json!({
        "@xmlns": NAMESPACE,
        "ETag": format!("\"{}\"", version.etag),
        "LastModified": objects::modified(&version),
    });
    if let Some(checksum) = &version.checksum {
        shown[format!("Checksum{}", checksum.algorithm)] = checksum.value.clone().into();
    }
    Ok(json!({"CopyObjectResult": shown}))
}

pub fn copy_part(ask: &mut Ask) -> Answer<Value> {
    let source = source(ask)?;
    let all = objects::data(ask, &source.blobs);
    let data = match header(ask, "x-amz-copy-source-range") {
        Some(range) => match conditional::range(range, source.size)? {
            Some((first, length)) => all.slice(first as usize..(first + length) as usize),
            None => {
                return fail(
                    "InvalidArgument",
                    "The x-amz-copy-source-range value must be of the form bytes=first-last",
                );
            }
        },
        None => all,
    };
    let part = multipart::add_part(ask, data, None)?;
    Ok(json!({"CopyPartResult": {
        "@xmlns": NAMESPACE,
        "ETag": format!("\"{}\"", part.etag),
        "LastModified": super::iso(part.modified),
    }}))
}
