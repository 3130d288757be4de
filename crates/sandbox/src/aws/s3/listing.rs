//! Lists of objects and versions, in the order of their keys.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{NAMESPACE, Version, bucket, bucket_key, objects, owner};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};
use crate::aws::paging;

const MAX_KEYS: usize = 1000;
/// As clients that ask for it expect keys: slashes stay.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'*');

/// What every kind of list is asked with.
struct Query {
    prefix: String,
    delimiter: Option<String>,
    max: usize,
    encode: bool,
}

fn query(ask: &Ask, max: &str) -> Answer<Query> {
    let given = |name: &str| ask.call.query(name).map(str::to_owned);
    let max = match given(max).map(|text| text.parse::<i64>()) {
        None => MAX_KEYS,
        Some(Ok(max @ 0..)) => (max as usize).min(MAX_KEYS),
        Some(_) => return fail("InvalidArgument", "Argument maxKeys must be an integer between 0 and 2147483647"),
    };
    let encode = match given("encoding-type").as_deref() {
        None => false,
        Some("url") => true,
        Some(_) => return fail("InvalidArgument", "Invalid Encoding Method specified in Request"),
    };
    Ok(Query {
        prefix: given("prefix").unwrap_or_default(),
        delimiter: given("delimiter").filter(|d| !d.is_empty()),
        max,
        encode,
    })
}

impl Query {
    fn text(&self, key: &str) -> String {
        match self.encode {
            true => utf8_percent_encode(key, ENCODED).to_string(),
            false => key.to_owned(),
        }
    }

    /// The part of a key up to the first delimiter after the prefix.
    fn folder<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.as_ref()?;
        let at = key.get(self.prefix.len()..)?.find(delimiter.as_str())?;
        key.get(..self.prefix.len() + at + delimiter.len())
    }
}

/// A page of keys: rows, folders, and the last key or folder where there is more.
struct Page<T> {
    rows: Vec<T>,
    folders: Vec<String>,
    next: Option<String>,
}

/// Rows come in the order of their keys. `after` is a key, or a folder that was shown already.
fn cut<T>(rows: impl Iterator<Item = T>, key: impl Fn(&T) -> &str, query: &Query, after: &str) -> Page<T> {
    let mut page = Page { rows: Vec::new(), folders: Vec::new(), next: None };
    let mut last = String::new();
    for row in rows {
        let own = key(&row);
        if !own.starts_with(&query.prefix) || own <= after {
            continue;
        }
        let folder = query.folder(own).map(str::to_owned);
        if let Some(folder) = &folder
            && (page.folders.last() == Some(folder)
                || (!after.is_empty() && folder.as_str() <= after && after.starts_with(folder.as_str())))
        {
            continue;
        }
        if page.rows.len() + page.folders.len() >= query.max {
            page.next = (query.max > 0).then_some(last);
            return page;
        }
        last = folder.clone().unwrap_or_else(|| own.to_owned());
        match folder {
            Some(folder) => page.folders.push(folder),
            None => page.rows.push(row),
        }
    }
    page
}

/// The latest version of each key that is not deleted.
fn current<'t>(ask: &'t Ask<'_, '_>, bucket: &str) -> BTreeMap<&'t str, &'t Version> {
    let mut latest: BTreeMap<&str, &Version> = BTreeMap::new();
    for version in ask.rows(|store| &store.s3.versions, &bucket_key(bucket)) {
        latest.insert(&version.key, version);
    }
    latest.retain(|_, version| !version.delete_marker);
    latest
}

fn shown(version: &Version, query: &Query, owner: Option<&Value>) -> Value {
    let mut shown = json!({
        "Key": query.text(&version.key),
        "LastModified": objects::modified(version),
        "ETag": format!("\"{}\"", version.etag),
        "Size": version.size,
        "StorageClass": version.meta.storage_class.as_deref().unwrap_or("STANDARD"),
    });
    if let Some(owner) = owner {
        shown["Owner"] = owner.clone();
    }
    if let Some(checksum) = &version.checksum {
        shown["ChecksumAlgorithm"] = checksum.algorithm.clone().into();
        shown["ChecksumType"] = if checksum.composite { "COMPOSITE" } else { "FULL_OBJECT" }.into();
    }
    shown
}

fn folders(folders: &[String], query: &Query) -> Vec<Value> {
    folders.iter().map(|folder| json!({"Prefix": query.text(folder)})).collect()
}

/// What all lists answer with.
fn answer(bucket: &str, query: &Query, more: bool) -> Value {
    json!({
        "@xmlns": NAMESPACE,
        "Name": bucket,
        "Prefix": query.text(&query.prefix),
        "Delimiter": query.delimiter.as_ref().map(|delimiter| query.text(delimiter)),
        "MaxKeys": query.max,
        "EncodingType": query.encode.then_some("url"),
        "IsTruncated": more,
    })
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let bucket = &bucket(ask)?.name;
    let query = query(ask, "max-keys")?;
    let marker = ask.call.query("marker").unwrap_or_default();
    let page = cut(current(ask, bucket).into_values(), |version| &version.key, &query, marker);
    let owner = owner(ask);
    let mut answer = answer(bucket, &query, page.next.is_some());
    answer["Marker"] = query.text(marker).into();
    answer["Contents"] = page.rows.iter().map(|version| shown(version, &query, Some(&owner))).collect();
    answer["CommonPrefixes"] = folders(&page.folders, &query).into();
    if let Some(next) = page.next {
        answer["NextMarker"] = query.text(&next).into();
    }
    Ok(json!({"ListBucketResult": answer}))
}

pub fn list_v2(ask: &mut Ask) -> Answer<Value> {
    let bucket = &bucket(ask)?.name;
    let query = query(ask, "max-keys")?;
    let token = ask.call.query("continuation-token");
    let start = ask.call.query("start-after");
    let after = match token {
        Some(token) => match paging::unmarked(token) {
            Some(after) => after,
            None => return fail("InvalidArgument", "The continuation token provided is incorrect"),
        },
        None => start.unwrap_or_default().to_owned(),
    };
    let page = cut(current(ask, bucket).into_values(), |version| &version.key, &query, &after);
    let owner = (ask.call.query("fetch-owner") == Some("true")).then(|| owner(ask));
    let mut answer = answer(bucket, &query, page.next.is_some());
    answer["KeyCount"] = (page.rows.len() + page.folders.len()).into();
    answer["StartAfter"] = start.map(|start| query.text(start)).into();
    answer["ContinuationToken"] = token.into();
    answer["NextContinuationToken"] = page.next.as_deref().map(paging::marked).into();
    answer["Contents"] = page.rows.iter().map(|version| shown(version, &query, owner.as_ref())).collect();
    answer["CommonPrefixes"] = folders(&page.folders, &query).into();
    Ok(json!({"ListBucketResult": answer}))
}

/// Versions and delete markers, for each key the newest first.
pub fn versions(ask: &mut Ask) -> Answer<Value> {
    let bucket = &bucket(ask)?.name;
    let query = query(ask, "max-keys")?;
    let mut by_key: BTreeMap<&str, Vec<&Version>> = BTreeMap::new();
    for version in ask.rows(|store| &store.s3.versions, &bucket_key(bucket)) {
        by_key.entry(&version.key).or_default().push(version);
    }
    let (marker, id) = (ask.call.query("key-marker").unwrap_or_default(), ask.call.query("version-id-marker"));
    // With an id, the rest of that key's versions come first.
    let mut rows: Vec<(&Version, bool)> = Vec::new();
    for (key, all) in &by_key {
        let newest = all.iter().rev().enumerate().map(|(at, version)| (*version, at == 0));
        match id.filter(|_| *key == marker) {
            Some(id) => rows.extend(newest.skip_while(|(version, _)| version.version != id).skip(1)),
            None if *key <= marker => {}
            None => rows.extend(newest),
        }
    }
    let (mut found, mut markers, mut names) = (Vec::new(), Vec::new(), Vec::<String>::new());
    let (mut last, mut more) = (None, false);
    let owner = owner(ask);
    for (version, latest) in rows.into_iter().filter(|(version, _)| version.key.starts_with(&query.prefix)) {
        let folder = query.folder(&version.key);
        if folder.is_some_and(|folder| {
            names.last().is_some_and(|name| name == folder) || (folder <= marker && marker.starts_with(folder))
        }) {
            continue;
        }
        if found.len() + markers.len() + names.len() >= query.max {
            more = true;
            break;
        }
        last = Some((folder.unwrap_or(&version.key), folder.is_none().then_some(&version.version)));
        if let Some(folder) = folder {
            names.push(folder.to_owned());
            continue;
        }
        let mut row = shown(version, &query, Some(&owner));
        row["VersionId"] = version.version.clone().into();
        row["IsLatest"] = latest.into();
        match (version.delete_marker, row.as_object_mut()) {
            (true, Some(map)) => {
                map.retain(|name, _| !["ETag", "Size", "StorageClass"].contains(&name.as_str()));
                markers.push(row);
            }
            _ => found.push(row),
        }
    }
    let mut answer = answer(bucket, &query, more);
    answer["KeyMarker"] = query.text(marker).into();
    answer["VersionIdMarker"] = id.unwrap_or_default().into();
    answer["Version"] = found.into();
    answer["DeleteMarker"] = markers.into();
    answer["CommonPrefixes"] = folders(&names, &query).into();
    if let (true, Some((key, id))) = (more, last) {
        answer["NextKeyMarker"] = query.text(key).into();
        answer["NextVersionIdMarker"] = id.cloned().into();
    }
    Ok(json!({"ListVersionsResult": answer}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another_without_a_gap() {
        let keys = ["a", "b/1", "b/2", "b/c/3", "d/x", "e"];
        let query =
            |prefix: &str, max| Query { prefix: prefix.into(), delimiter: Some("/".into()), max, encode: false };
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let page = cut(keys.iter(), |key| key, &query("", 1), &after);
            seen.extend(page.rows.iter().map(|key| (**key).to_owned()));
            seen.extend(page.folders);
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(seen, ["a", "b/", "d/", "e"]);
        let page = cut(keys.iter(), |key| key, &query("b/", 10), "");
        assert_eq!((page.rows, page.folders), (vec![&"b/1", &"b/2"], vec!["b/c/".to_owned()]));
    }
}
