//! Queues: made, found, tagged.

use serde_json::{Value, json};

use super::attributes::{given, put, value};
use super::{Queue, arn, error, find, invalid, missing, no_queue, url};
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;
use crate::aws::paging;

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.text("QueueName").ok_or_else(|| missing("QueueName"))?.to_owned();
    let given = given(ask)?;
    let plain = name.strip_suffix(".fifo").unwrap_or(&name);
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if plain.is_empty() || name.len() > 80 || !plain.chars().all(fine) {
        return Err(invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"));
    }
    let fifo = given.get("FifoQueue").is_some_and(|value| value == "true");
    if fifo != name.ends_with(".fifo") {
        return Err(invalid(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length",
        ));
    }
    let (id, shown) = (arn(ask, &name), json!({"QueueUrl": url(ask, &name)}));
    if let Some(queue) = ask.state.store.sqs.queues.get(&id) {
        let differs = given.iter().find(|(name, wanted)| value(queue, name).unwrap_or_default() != **wanted);
        return match differs {
            None => Ok(shown),
            Some((attribute, _)) => Err(error(
                "QueueNameExists",
                "QueueAlreadyExists",
                format!("A queue already exists with the same name and a different value for attribute {attribute}"),
            )),
        };
    }
    let (now, region) = (ask.now(), ask.region.to_owned());
    let mut tags = ask.input.map("tags");
    tags.extend(ask.input.map("Tags"));
    let mut queue = Queue { id, name, region, attributes: Default::default(), tags, created: now, modified: now };
    put(&mut queue, given);
    ask.store().sqs.queues.insert(queue);
    Ok(shown)
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let id = find(ask)?.id.clone();
    super::messages::forget(ask, &id);
    ask.store().sqs.queues.remove(&id);
    Ok(json!({}))
}

pub fn get_url(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.text("QueueName").ok_or_else(|| missing("QueueName"))?;
    match ask.state.store.sqs.queues.get(&arn(ask, name)) {
        Some(_) => Ok(json!({"QueueUrl": url(ask, name)})),
        None => Err(no_queue()),
    }
}

/// A page of URLs. Without a number asked for there are at most a thousand, and no token.
fn page(ask: &Ask, name: &str, names: Vec<String>) -> Answer<Value> {
    let max = ask.input.int("MaxResults");
    let limit = max.unwrap_or(1000).clamp(1, 1000) as usize;
    let bad = || invalid("Invalid or expired next token.");
    let (names, next) = paging::slice(names, Clone::clone, ask.input.text("NextToken"), limit, bad)?;
    let urls: Vec<String> = names.iter().map(|name| url(ask, name)).collect();
    let mut answer = json!({name: urls});
    if let (Some(next), Some(_)) = (next, max) {
        answer["NextToken"] = next.into();
    }
    Ok(answer)
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let prefix = ask.input.text("QueueNamePrefix").unwrap_or_default();
    let rows = ask.rows(|store| &store.sqs.queues, &format!("region:{}", ask.region));
    let names: Vec<String> =
        rows.iter().filter(|queue| queue.name.starts_with(prefix)).map(|queue| queue.name.clone()).collect();
    match names.is_empty() {
        true => Ok(json!({})),
        false => page(ask, "QueueUrls", names),
    }
}

pub fn dead_letter_sources(ask: &mut Ask) -> Answer<Value> {
    let target = find(ask)?.id.clone();
    let rows = ask.rows(|store| &store.sqs.queues, &format!("region:{}", ask.region));
    let points_here = |queue: &&&Queue| {
        let policy = queue.attributes.get("RedrivePolicy").and_then(|text| serde_json::from_str::<Value>(text).ok());
        policy.is_some_and(|policy| policy["deadLetterTargetArn"] == target.as_str())
    };
    let names = rows.iter().filter(points_here).map(|queue| queue.name.clone()).collect();
    page(ask, "queueUrls", names)
}

pub fn tag(ask: &mut Ask) -> Answer<Value> {
    let (id, tags) = (find(ask)?.id.clone(), ask.input.map("Tags"));
    ask.store().sqs.queues.update(&id, |queue| queue.tags.extend(tags));
    Ok(json!({}))
}

pub fn untag(ask: &mut Ask) -> Answer<Value> {
    let id = find(ask)?.id.clone();
    let keys: Vec<String> = ask.input.texts("TagKeys").into_iter().map(str::to_owned).collect();
    ask.store().sqs.queues.update(&id, |queue| queue.tags.retain(|key, _| !keys.contains(key)));
    Ok(json!({}))
}

pub fn list_tags(ask: &mut Ask) -> Answer<Value> {
    let tags = &find(ask)?.tags;
    match tags.is_empty() {
        true => Ok(json!({})),
        false => Ok(json!({"Tags": tags})),
    }
}
