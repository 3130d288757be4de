//! Messages: sent, received, hidden while they are worked on, deleted. Their times are real ones, as their readers' are.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Queue, error, find, invalid, missing};
use crate::aws::Store;
use crate::aws::ask::{Ask, Input};
use crate::aws::errors::{Answer, AwsError};
use crate::aws::tables::object;

const MAX_MESSAGES: usize = 100_000;
const DEDUPLICATION_MS: i64 = 5 * 60_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    id: String,
    /// The queue's ARN.
    queue: String,
    body: String,
    /// As they were sent.
    attributes: Value,
    group: Option<String>,
    deduplication: Option<String>,
    sent_ms: i64,
    visible_ms: i64,
    first_received_ms: Option<i64>,
    receives: u32,
    receipt: String,
    sequence: u64,
    /// Deleted ones of FIFO queues are remembered for a while, so that they are not taken twice.
    deleted: bool,
}

object!(Message, "aws.sqs_message", id, |this| vec![format!("queue:{}", this.queue)]);

pub struct Counts {
    pub visible: usize,
    pub in_flight: usize,
    pub delayed: usize,
}

fn wall_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

fn of<'t>(store: &'t Store, queue: &str) -> impl Iterator<Item = &'t Message> {
    store.sqs.messages.find(&format!("queue:{queue}")).filter(|message| !message.deleted)
}

pub fn counts(ask: &Ask, queue: &Queue) -> Counts {
    let now = wall_ms();
    let mut counts = Counts { visible: 0, in_flight: 0, delayed: 0 };
    for message in of(ask.state.store, &queue.id) {
        match (message.visible_ms <= now, message.receives) {
            (true, _) => counts.visible += 1,
            (false, 0) => counts.delayed += 1,
            (false, _) => counts.in_flight += 1,
        }
    }
    counts
}

/// Lets go of all messages of a queue.
pub fn forget(ask: &mut Ask, queue: &str) {
    let rows = ask.state.store.sqs.messages.find(&format!("queue:{queue}"));
    let ids: Vec<String> = rows.map(|message| message.id.clone()).collect();
    for id in ids {
        ask.store().sqs.messages.remove(&id);
    }
}

fn md5(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest that clients compare: of each attribute's name, type and value in turn, with their lengths.
fn md5_of_attributes(attributes: &Value) -> Option<String> {
    let map = attributes.as_object().filter(|map| !map.is_empty())?;
    let sorted: BTreeMap<&String, &Value> = map.iter().collect();
    let mut bytes = Vec::new();
    fn add(bytes: &mut Vec<u8>, data: &[u8]) {
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
    }
    for (name, value) in sorted {
        let text = |member: &str| value.get(member).and_then(Value::as_str);
        add(&mut bytes, name.as_bytes());
        add(&mut bytes, text("DataType").unwrap_or_default().as_bytes());
        // Texts are kind 1, other values kind 2.
        match text("BinaryValue") {
            Some(data) => {
                bytes.push(2);
                add(&mut bytes, &STANDARD.decode(data).unwrap_or_default());
            }
            None => {
                bytes.push(1);
                add(&mut bytes, text("StringValue").unwrap_or_default().as_bytes());
            }
        }
    }
    Some(md5(&bytes))
}

fn check_body(queue: &Queue, body: &str) -> Answer<()> {
    let max = queue.seconds("MaximumMessageSize") as usize;
    match body.len() > max {
        true => Err(invalid(format!(
            "One or more parameters are invalid. Reason: Message must be shorter than {max} bytes."
        ))),
        false => Ok(()),
    }
}

fn send_one(ask: &mut Ask, queue: &Queue, input: &Input) -> Answer<Value> {
    let body = input.text("MessageBody").ok_or_else(|| missing("MessageBody"))?.to_owned();
    check_body(queue, &body)?;
    let attributes = input.at("MessageAttributes").cloned().unwrap_or_default();
    let group = input.text("MessageGroupId").map(str::to_owned);
    let mut deduplication = input.text("MessageDeduplicationId").map(str::to_owned);
    if queue.fifo() {
        if group.is_none() {
            return Err(missing("MessageGroupId"));
        }
        let by_content = super::attributes::value(queue, "ContentBasedDeduplication").as_deref() == Some("true");
        if deduplication.is_none() && by_content {
            deduplication = Some(md5(body.as_bytes()));
        }
        if deduplication.is_none() {
            return Err(invalid(
                "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
            ));
        }
    }
    let now = wall_ms();
    let digests = (md5(body.as_bytes()), md5_of_attributes(&attributes));
    let earlier = ask.state.store.sqs.messages.find(&format!("queue:{}", queue.id)).find(|message| {
        queue.fifo() && message.deduplication == deduplication && message.sent_ms > now - DEDUPLICATION_MS
    });
    let (id, sequence) = match earlier {
        Some(earlier) => (earlier.id.clone(), earlier.sequence),
        None => {
            let delay =
                input.int("DelaySeconds").filter(|_| !queue.fifo()).unwrap_or_else(|| queue.seconds("DelaySeconds"));
            add(ask, queue, (body, attributes), (group, deduplication), now + delay * 1000)?
        }
    };
    let mut shown = json!({"MessageId": id, "MD5OfMessageBody": digests.0});
    if let Some(digest) = digests.1 {
        shown["MD5OfMessageAttributes"] = digest.into();
    }
    if queue.fifo() {
        shown["SequenceNumber"] = format!("{sequence:020}").into();
    }
    Ok(shown)
}

type Groups = (Option<String>, Option<String>);

fn add(
    ask: &mut Ask,
    queue: &Queue,
    (body, attributes): (String, Value),
    (group, deduplication): Groups,
    visible_ms: i64,
) -> Answer<(String, u64)> {
    let messages = &mut ask.store().sqs.messages;
    if messages.len() >= MAX_MESSAGES {
        return Err(error("OverLimit", "OverLimit", format!("The sandbox keeps {MAX_MESSAGES} messages")));
    }
    let (id, sequence) = (uuid::Uuid::new_v4().to_string(), messages.len() as u64 + wall_ms() as u64 * 1000);
    messages.insert(Message {
        id: id.clone(),
        queue: queue.id.clone(),
        body,
        attributes,
        group,
        deduplication,
        sent_ms: wall_ms(),
        visible_ms,
        first_received_ms: None,
        receives: 0,
        receipt: String::new(),
        sequence,
        deleted: false,
    });
    Ok((id, sequence))
}

/// Puts a message into a queue for another service; `false` where there is no such queue.
pub fn deliver(ask: &mut Ask, arn: &str, body: String, group: Option<String>) -> bool {
    let Some(queue) = ask.state.store.sqs.queues.get(arn).cloned() else { return false };
    let deduplication = queue.fifo().then(|| uuid::Uuid::new_v4().to_string());
    add(ask, &queue, (body, Value::Null), (group, deduplication), wall_ms()).is_ok()
}

pub fn send(ask: &mut Ask) -> Answer<Value> {
    let (queue, input) = (find(ask)?.clone(), ask.input.clone());
    send_one(ask, &queue, &input)
}

/// Runs `work` on each entry: what succeeded, and what did not.
fn batch(ask: &mut Ask, work: fn(&mut Ask, &Queue, &Input) -> Answer<Value>) -> Answer<Value> {
    let (queue, entries) = (find(ask)?.clone(), ask.input.list("Entries"));
    if entries.is_empty() {
        return Err(error(
            "EmptyBatchRequest",
            "AWS.SimpleQueueService.EmptyBatchRequest",
            "There should be at least one entry in the request.",
        ));
    }
    if entries.len() > 10 {
        let text = "Maximum number of entries per request are 10.";
        return Err(error("TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", text));
    }
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for entry in &entries {
        let id = entry.text("Id").unwrap_or_default();
        match work(ask, &queue, entry) {
            Ok(mut shown) => {
                shown["Id"] = id.into();
                done.push(shown);
            }
            Err(error) => {
                let code = error.code.rsplit('#').next().unwrap_or_default().to_owned();
                failed.push(json!({"Id": id, "SenderFault": true, "Code": code, "Message": error.message}));
            }
        }
    }
    Ok(json!({"Successful": done, "Failed": failed}))
}

pub fn send_batch(ask: &mut Ask) -> Answer<Value> {
    batch(ask, send_one)
}

/// How often a message may be received before it goes to another queue.
pub fn max_receives(policy: &Value) -> Option<i64> {
    let count = policy.get("maxReceiveCount")?;
    count.as_i64().or_else(|| count.as_str()?.parse().ok())
}

/// Takes out what is too old, and moves what was received too often.
fn tidy(ask: &mut Ask, queue: &Queue) {
    let now = wall_ms();
    let oldest = now - queue.seconds("MessageRetentionPeriod") * 1000;
    let rows = ask.state.store.sqs.messages.find(&format!("queue:{}", queue.id));
    let too_old =
        |message: &Message| message.sent_ms < oldest || (message.deleted && message.sent_ms < now - DEDUPLICATION_MS);
    let ended: Vec<String> = rows.filter(|message| too_old(message)).map(|message| message.id.clone()).collect();
    for id in ended {
        ask.store().sqs.messages.remove(&id);
    }
    let policy = queue.attributes.get("RedrivePolicy").and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(policy) = policy else { return };
    let target = policy.get("deadLetterTargetArn").and_then(Value::as_str).unwrap_or_default().to_owned();
    let most = max_receives(&policy).unwrap_or(i64::MAX);
    let exhausted = |message: &&Message| message.visible_ms <= now && i64::from(message.receives) >= most;
    let moved: Vec<String> =
        of(ask.state.store, &queue.id).filter(exhausted).map(|message| message.id.clone()).collect();
    for id in moved {
        ask.store().sqs.messages.update(&id, |message| message.queue.clone_from(&target));
    }
}

/// Answers at once, also where the client would wait for messages.
pub fn receive(ask: &mut Ask) -> Answer<Value> {
    let queue = find(ask)?.clone();
    let max = match ask.input.int("MaxNumberOfMessages").unwrap_or(1) {
        max @ 1..=10 => max as usize,
        max => {
            return Err(invalid(format!(
                "Value {max} for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided."
            )));
        }
    };
    tidy(ask, &queue);
    let now = wall_ms();
    let hidden = ask.input.int("VisibilityTimeout").unwrap_or_else(|| queue.seconds("VisibilityTimeout")) * 1000;
    let all: Vec<&Message> = of(ask.state.store, &queue.id).collect();
    // Of a group, nothing is given out while something of it is worked on.
    let busy: Vec<&str> = all.iter().filter(|m| m.visible_ms > now).filter_map(|m| m.group.as_deref()).collect();
    let free = |message: &&&Message| {
        message.visible_ms <= now
            && !(queue.fifo() && message.group.as_deref().is_some_and(|group| busy.contains(&group)))
    };
    let ids: Vec<String> = all.iter().filter(free).take(max).map(|message| message.id.clone()).collect();
    let mut shown = Vec::new();
    for id in ids {
        let message = ask.store().sqs.messages.update(&id, |message| {
            message.receives += 1;
            message.first_received_ms.get_or_insert(now);
            message.visible_ms = now + hidden;
            message.receipt = format!("{}{}", STANDARD.encode(&message.id), crate::aws::ids::hex(32));
            message.clone()
        });
        shown.extend(message.map(|message| show(ask, &queue, &message)));
    }
    match shown.is_empty() {
        true => Ok(json!({})),
        false => Ok(json!({"Messages": shown})),
    }
}

fn show(ask: &Ask, queue: &Queue, message: &Message) -> Value {
    let mut shown = json!({
        "MessageId": message.id,
        "ReceiptHandle": message.receipt,
        "Body": message.body,
        "MD5OfBody": md5(message.body.as_bytes()),
    });
    let mut asked = ask.input.texts("MessageSystemAttributeNames");
    asked.extend(ask.input.texts("AttributeNames"));
    let mut system = BTreeMap::from([
        ("SenderId", ask.principal.user_id.clone()),
        ("SentTimestamp", message.sent_ms.to_string()),
        ("ApproximateReceiveCount", message.receives.to_string()),
        ("ApproximateFirstReceiveTimestamp", message.first_received_ms.unwrap_or_default().to_string()),
    ]);
    if let (true, Some(group)) = (queue.fifo(), &message.group) {
        system.insert("MessageGroupId", group.clone());
        system.insert("SequenceNumber", format!("{:020}", message.sequence));
        system.insert("MessageDeduplicationId", message.deduplication.clone().unwrap_or_default());
    }
    if !asked.contains(&"All") {
        system.retain(|name, _| asked.contains(name));
    }
    if !system.is_empty() {
        shown["Attributes"] = json!(system);
    }
    let wanted = ask.input.texts("MessageAttributeNames");
    let fits = |name: &str| {
        wanted.iter().any(|one| {
            *one == "All"
                || *one == ".*"
                || *one == name
                || one.strip_suffix(".*").is_some_and(|prefix| name.starts_with(prefix))
        })
    };
    let own = message.attributes.as_object().into_iter().flatten().filter(|(name, _)| fits(name));
    let own: Value = Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect());
    if let Some(digest) = md5_of_attributes(&own) {
        shown["MD5OfMessageAttributes"] = digest.into();
        shown["MessageAttributes"] = own;
    }
    shown
}

fn bad_receipt(receipt: &str) -> Box<AwsError> {
    let text = format!("The input receipt handle \"{receipt}\" is not a valid receipt handle.");
    error("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", text)
}

/// The message of a receipt; none where it was received again since.
fn received(ask: &Ask, queue: &Queue, input: &Input) -> Answer<Option<String>> {
    let receipt = input.text("ReceiptHandle").ok_or_else(|| missing("ReceiptHandle"))?;
    if receipt.len() < 40 {
        return Err(bad_receipt(receipt));
    }
    Ok(of(ask.state.store, &queue.id).find(|message| message.receipt == receipt).map(|message| message.id.clone()))
}

fn delete_one(ask: &mut Ask, queue: &Queue, input: &Input) -> Answer<Value> {
    if let Some(id) = received(ask, queue, input)? {
        match queue.fifo() {
            true => _ = ask.store().sqs.messages.update(&id, |message| message.deleted = true),
            false => _ = ask.store().sqs.messages.remove(&id),
        }
    }
    Ok(json!({}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let (queue, input) = (find(ask)?.clone(), ask.input.clone());
    delete_one(ask, &queue, &input)
}

pub fn delete_batch(ask: &mut Ask) -> Answer<Value> {
    batch(ask, delete_one)
}

fn change_one(ask: &mut Ask, queue: &Queue, input: &Input) -> Answer<Value> {
    let seconds = match input.int("VisibilityTimeout") {
        Some(seconds @ 0..=43_200) => seconds,
        _ => return Err(invalid("VisibilityTimeout must be between 0 and 43200")),
    };
    let Some(id) = received(ask, queue, input)? else {
        let text = "The specified message isn't in flight.";
        return Err(error("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", text));
    };
    let until = wall_ms() + seconds * 1000;
    ask.store().sqs.messages.update(&id, |message| message.visible_ms = until);
    Ok(json!({}))
}

pub fn change_visibility(ask: &mut Ask) -> Answer<Value> {
    let (queue, input) = (find(ask)?.clone(), ask.input.clone());
    change_one(ask, &queue, &input)
}

pub fn change_visibility_batch(ask: &mut Ask) -> Answer<Value> {
    batch(ask, change_one)
}

pub fn purge(ask: &mut Ask) -> Answer<Value> {
    let id = find(ask)?.id.clone();
    forget(ask, &id);
    Ok(json!({}))
}
