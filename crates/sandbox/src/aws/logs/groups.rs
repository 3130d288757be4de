//! Groups of logs: how long they are kept, and what they are tagged with.

use serde_json::{Value, json};

use super::{LogGroup, arn, find, invalid};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::paging;

const RETENTION_DAYS: [i64; 22] =
    [1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653];

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.text("logGroupName").unwrap_or_default().to_owned();
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_/.#".contains(c);
    if name.is_empty() || name.len() > 512 || !name.chars().all(fine) {
        return invalid(format!(
            "1 validation error detected: Value '{name}' at 'logGroupName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\.\\-_/#A-Za-z0-9]+"
        ));
    }
    let id = arn(ask, &name);
    if ask.state.store.logs.groups.get(&id).is_some() {
        return fail("ResourceAlreadyExistsException", "The specified log group already exists");
    }
    let group = LogGroup {
        id,
        name,
        region: ask.region.to_owned(),
        retention_days: None,
        key: ask.input.text("kmsKeyId").map(str::to_owned),
        class: ask.input.text("logGroupClass").unwrap_or("STANDARD").to_owned(),
        tags: ask.input.map("tags"),
        created: ask.now(),
    };
    ask.store().logs.groups.insert(group);
    Ok(json!({}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let id = find(ask)?.id.clone();
    super::streams::forget_group(ask, &id);
    ask.store().logs.groups.remove(&id);
    Ok(json!({}))
}

fn shown(ask: &Ask, group: &LogGroup) -> Value {
    let mut shown = json!({
        "logGroupName": group.name,
        "creationTime": group.created.0,
        "metricFilterCount": 0,
        "arn": format!("{}:*", group.id),
        "logGroupArn": group.id,
        "storedBytes": super::streams::stored_bytes(ask, &group.id),
        "logGroupClass": group.class,
    });
    if let Some(days) = group.retention_days {
        shown["retentionInDays"] = days.into();
    }
    if let Some(key) = &group.key {
        shown["kmsKeyId"] = key.clone().into();
    }
    shown
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let rows = ask.rows(|store| &store.logs.groups, &format!("region:{}", ask.region));
    let (prefix, pattern) = (ask.input.text("logGroupNamePrefix"), ask.input.text("logGroupNamePattern"));
    if prefix.is_some() && pattern.is_some() {
        return invalid("LogGroup name prefix and LogGroup name pattern are mutually exclusive parameters.");
    }
    let fits = |group: &&LogGroup| {
        let of_class = ask.input.text("logGroupClass").is_none_or(|class| class == group.class);
        let by_pattern = pattern.is_none_or(|part| group.name.to_lowercase().contains(&part.to_lowercase()));
        prefix.is_none_or(|prefix| group.name.starts_with(prefix)) && by_pattern && of_class
    };
    let rows: Vec<&LogGroup> = rows.into_iter().filter(fits).collect();
    let limit = match ask.input.int("limit").unwrap_or(50) {
        limit @ 1..=50 => limit as usize,
        limit => {
            return invalid(format!(
                "1 validation error detected: Value '{limit}' at 'limit' failed to satisfy constraint: Member must have value less than or equal to 50"
            ));
        }
    };
    let bad = || AwsError::new(400, "InvalidParameterException", "The specified nextToken is invalid.");
    let (rows, next) = paging::slice(rows, |group| group.name.clone(), ask.input.text("nextToken"), limit, bad)?;
    let mut answer = json!({"logGroups": rows.iter().map(|group| shown(ask, group)).collect::<Vec<_>>()});
    if let Some(next) = next {
        answer["nextToken"] = next.into();
    }
    Ok(answer)
}

fn change(ask: &mut Ask, work: impl FnOnce(&mut LogGroup)) -> Answer<Value> {
    let id = find(ask)?.id.clone();
    ask.store().logs.groups.update(&id, work);
    Ok(json!({}))
}

pub fn put_retention(ask: &mut Ask) -> Answer<Value> {
    match ask.input.int("retentionInDays") {
        Some(days) if RETENTION_DAYS.contains(&days) => change(ask, |group| group.retention_days = Some(days)),
        days => {
            let allowed: Vec<String> = RETENTION_DAYS.iter().map(i64::to_string).collect();
            let (days, allowed) = (days.unwrap_or_default(), allowed.join(", "));
            invalid(format!(
                "1 validation error detected: Value '{days}' at 'retentionInDays' failed to satisfy constraint: Member must satisfy enum value set: [{allowed}]"
            ))
        }
    }
}

pub fn delete_retention(ask: &mut Ask) -> Answer<Value> {
    change(ask, |group| group.retention_days = None)
}

pub fn associate_key(ask: &mut Ask) -> Answer<Value> {
    let key = ask.input.required("kmsKeyId")?.to_owned();
    change(ask, |group| group.key = Some(key))
}

pub fn disassociate_key(ask: &mut Ask) -> Answer<Value> {
    change(ask, |group| group.key = None)
}

pub fn tag(ask: &mut Ask) -> Answer<Value> {
    let tags = ask.input.map("tags");
    if tags.keys().any(|key| key.starts_with("aws:")) {
        return invalid("Tag keys must not begin with aws:");
    }
    let all = find(ask)?.tags.keys().chain(tags.keys()).collect::<std::collections::BTreeSet<_>>().len();
    if all > 50 {
        return fail("TooManyTagsException", "A resource can have no more than 50 tags.");
    }
    change(ask, |group| group.tags.extend(tags))
}

pub fn untag(ask: &mut Ask) -> Answer<Value> {
    let mut keys: Vec<String> = ask.input.texts("tagKeys").into_iter().map(str::to_owned).collect();
    keys.extend(ask.input.texts("tags").into_iter().map(str::to_owned));
    change(ask, |group| group.tags.retain(|key, _| !keys.contains(key)))
}

pub fn list_tags(ask: &mut Ask) -> Answer<Value> {
    Ok(json!({"tags": find(ask)?.tags}))
}
