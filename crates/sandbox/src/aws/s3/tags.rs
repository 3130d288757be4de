//! Tags of buckets and objects, always as a whole set.

use serde_json::{Value, json};

use super::{NAMESPACE, bucket, bucket_name, header, malformed, objects, sent};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::http::parse_query;

const MAX_OF_BUCKET: usize = 50;
const MAX_OF_OBJECT: usize = 10;

fn checked(tags: Tags, max: usize) -> Answer<Tags> {
    if tags.len() > max {
        return fail("BadRequest", format!("Object tags cannot be greater than {max}"));
    }
    if tags.iter().any(|(key, value)| key.is_empty() || key.len() > 128 || value.len() > 256) {
        return fail("InvalidTag", "The TagKey you have provided is invalid");
    }
    match tags.keys().any(|key| key.starts_with("aws:")) {
        true => fail("InvalidTag", "System tags cannot be added/updated by requester"),
        false => Ok(tags),
    }
}

/// `x-amz-tagging: a=b&c=d`
pub fn of_header(ask: &Ask) -> Answer<Tags> {
    let sent = header(ask, "x-amz-tagging").unwrap_or_default();
    checked(parse_query(sent).into_iter().collect(), MAX_OF_OBJECT)
}

fn of_body(ask: &Ask, max: usize) -> Answer<Tags> {
    let tree = sent(ask, "Tagging")?;
    let set = tree.child("TagSet").ok_or_else(malformed)?;
    let mut tags = Tags::new();
    for tag in set.all("Tag") {
        let text = |name: &str| tag.child(name).map(|child| child.text.clone());
        let (Some(key), value) = (text("Key"), text("Value").unwrap_or_default()) else { return Err(malformed()) };
        if tags.insert(key, value).is_some() {
            return fail("InvalidTag", "Cannot provide multiple Tags with the same key");
        }
    }
    checked(tags, max)
}

fn shown(tags: &Tags) -> Value {
    let tags: Vec<Value> = tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
    json!({"Tagging": {"@xmlns": NAMESPACE, "TagSet": {"Tag": tags}}})
}

pub fn get_bucket(ask: &mut Ask) -> Answer<Value> {
    let bucket = bucket(ask)?;
    match bucket.tags.is_empty() {
        true => {
            let error = AwsError::new(404, "NoSuchTagSet", "The TagSet does not exist");
            Err(error.details(json!({"BucketName": bucket.name})))
        }
        false => Ok(shown(&bucket.tags)),
    }
}

fn set_bucket(ask: &mut Ask, tags: Tags) -> Answer<Value> {
    bucket(ask)?;
    let name = bucket_name(ask);
    ask.store().s3.buckets.update(&name, |bucket| bucket.tags = tags);
    ask.extra.status = Some(204);
    Ok(json!({}))
}

pub fn put_bucket(ask: &mut Ask) -> Answer<Value> {
    bucket(ask)?;
    let tags = of_body(ask, MAX_OF_BUCKET)?;
    set_bucket(ask, tags)
}

pub fn delete_bucket(ask: &mut Ask) -> Answer<Value> {
    set_bucket(ask, Tags::new())
}

pub fn get_object(ask: &mut Ask) -> Answer<Value> {
    Ok(shown(&objects::find(ask)?.tags))
}

fn set_object(ask: &mut Ask, tags: Tags) -> Answer<Value> {
    let id = objects::find(ask)?.id.clone();
    ask.store().s3.versions.update(&id, |version| version.tags = tags);
    Ok(json!({}))
}

pub fn put_object(ask: &mut Ask) -> Answer<Value> {
    let tags = of_body(ask, MAX_OF_OBJECT)?;
    set_object(ask, tags)
}

pub fn delete_object(ask: &mut Ask) -> Answer<Value> {
    ask.extra.status = Some(204);
    set_object(ask, Tags::new())
}
