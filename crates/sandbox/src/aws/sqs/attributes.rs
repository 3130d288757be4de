//! Attributes of queues: all are texts.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Queue, error, find, invalid};
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;
use crate::aws::iam::{Attached, parse_policy};

/// Those that are numbers: name, lowest, highest, usual.
const NUMBERS: [(&str, i64, i64, &str); 6] = [
    ("DelaySeconds", 0, 900, "0"),
    ("MaximumMessageSize", 1024, 1_048_576, "262144"),
    ("MessageRetentionPeriod", 60, 1_209_600, "345600"),
    ("ReceiveMessageWaitTimeSeconds", 0, 20, "0"),
    ("VisibilityTimeout", 0, 43_200, "30"),
    ("KmsDataKeyReusePeriodSeconds", 60, 86_400, "300"),
];
const TEXTS: [&str; 9] = [
    "Policy",
    "RedrivePolicy",
    "RedriveAllowPolicy",
    "KmsMasterKeyId",
    "SqsManagedSseEnabled",
    "FifoQueue",
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "FifoThroughputLimit",
];

/// What an attribute is, whether or not it was set.
pub fn value(queue: &Queue, name: &str) -> Option<String> {
    if let Some(value) = queue.attributes.get(name) {
        return Some(value.clone());
    }
    let fifo = |value: &str| queue.fifo().then(|| value.to_owned());
    match name {
        "KmsDataKeyReusePeriodSeconds" => queue.attributes.contains_key("KmsMasterKeyId").then(|| "300".to_owned()),
        "SqsManagedSseEnabled" => Some((!queue.attributes.contains_key("KmsMasterKeyId")).to_string()),
        "ContentBasedDeduplication" => fifo("false"),
        "DeduplicationScope" => fifo("queue"),
        "FifoThroughputLimit" => fifo("perQueue"),
        name => NUMBERS.iter().find(|(own, ..)| *own == name).map(|(_, _, _, usual)| (*usual).to_owned()),
    }
}

pub fn get(ask: &mut Ask) -> Answer<Value> {
    let queue = find(ask)?;
    let asked = ask.input.texts("AttributeNames");
    let mut all = BTreeMap::new();
    for name in NUMBERS.iter().map(|(name, ..)| *name).chain(TEXTS) {
        if let Some(value) = value(queue, name) {
            all.insert(name, value);
        }
    }
    let counts = super::messages::counts(ask, queue);
    all.insert("QueueArn", queue.id.clone());
    all.insert("CreatedTimestamp", (queue.created.0 / 1000).to_string());
    all.insert("LastModifiedTimestamp", (queue.modified.0 / 1000).to_string());
    all.insert("ApproximateNumberOfMessages", counts.visible.to_string());
    all.insert("ApproximateNumberOfMessagesNotVisible", counts.in_flight.to_string());
    all.insert("ApproximateNumberOfMessagesDelayed", counts.delayed.to_string());
    if let Some(unknown) = asked.iter().find(|name| {
        **name != "All"
            && !all.contains_key(*name)
            && !TEXTS.contains(name)
            && !NUMBERS.iter().any(|(own, ..)| own == *name)
    }) {
        return Err(error("InvalidAttributeName", "InvalidAttributeName", format!("Unknown Attribute {unknown}.")));
    }
    if !asked.contains(&"All") {
        all.retain(|name, _| asked.contains(name));
    }
    match all.is_empty() {
        true => Ok(json!({})),
        false => Ok(json!({"Attributes": all})),
    }
}

/// The attributes that a call gives, once each is known to be fine.
pub fn given(ask: &Ask) -> Answer<BTreeMap<String, String>> {
    let none = Map::new();
    let sent = ask.input.at("Attributes").and_then(Value::as_object).unwrap_or(&none);
    let mut all = BTreeMap::new();
    for (name, value) in sent {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        check(ask, name, &value)?;
        all.insert(name.clone(), value);
    }
    Ok(all)
}

fn check(ask: &Ask, name: &str, value: &str) -> Answer<()> {
    let wrong = || {
        let text = format!("Invalid value for the parameter {name}.");
        Err(error("InvalidAttributeValue", "InvalidAttributeValue", text))
    };
    if let Some((_, lowest, highest, _)) = NUMBERS.iter().find(|(own, ..)| *own == name) {
        return match value.parse::<i64>() {
            Ok(number) if (*lowest..=*highest).contains(&number) => Ok(()),
            _ => wrong(),
        };
    }
    if !TEXTS.contains(&name) {
        return Err(error("InvalidAttributeName", "InvalidAttributeName", format!("Unknown Attribute {name}.")));
    }
    match name {
        "Policy" if !value.is_empty() && parse_policy(value, Attached::Resource).is_err() => wrong(),
        "RedrivePolicy" if !value.is_empty() => check_redrive(ask, value),
        "RedriveAllowPolicy" if !value.is_empty() && serde_json::from_str::<Value>(value).is_err() => wrong(),
        "FifoQueue" | "ContentBasedDeduplication" | "SqsManagedSseEnabled" if !["true", "false"].contains(&value) => {
            wrong()
        }
        _ => Ok(()),
    }
}

fn check_redrive(ask: &Ask, value: &str) -> Answer<()> {
    let policy: Value = serde_json::from_str(value).unwrap_or_default();
    let target = policy.get("deadLetterTargetArn").and_then(Value::as_str);
    let count = super::messages::max_receives(&policy);
    match (target, count) {
        (Some(target), Some(1..=1000)) if ask.state.store.sqs.queues.get(target).is_some() => Ok(()),
        (Some(_), Some(1..=1000)) => Err(invalid(format!(
            "Value {value} for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist."
        ))),
        _ => Err(invalid(format!("Value {value} for parameter RedrivePolicy is invalid."))),
    }
}

/// An empty policy is none.
pub fn put(queue: &mut Queue, given: BTreeMap<String, String>) {
    for (name, value) in given {
        if name == "KmsMasterKeyId" && !value.is_empty() {
            queue.attributes.remove("SqsManagedSseEnabled");
        }
        if name == "SqsManagedSseEnabled" && value == "true" {
            queue.attributes.remove("KmsMasterKeyId");
        }
        match value.is_empty() {
            true => _ = queue.attributes.remove(&name),
            false => _ = queue.attributes.insert(name, value),
        }
    }
}

pub fn set(ask: &mut Ask) -> Answer<Value> {
    let (id, now) = (find(ask)?.id.clone(), ask.now());
    let given = given(ask)?;
    if given.contains_key("FifoQueue") {
        return Err(error("InvalidAttributeName", "InvalidAttributeName", "Unknown Attribute FifoQueue."));
    }
    ask.store().sqs.queues.update(&id, |queue| {
        put(queue, given);
        queue.modified = now;
    });
    Ok(json!({}))
}
