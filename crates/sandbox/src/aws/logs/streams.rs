//! Streams of a group, and the events in them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{find, invalid};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::tables::object;
use crate::aws::{ids, paging};
use crate::clock::SimTime;
use crate::table::Object;

const MAX_EVENTS: usize = 10_000;
/// Of all events together: they are in memory.
const MAX_BYTES: u64 = 64 << 20;
/// What counts besides an event's text.
const EVENT_BYTES: usize = 26;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogStream {
    /// ARN.
    id: String,
    /// The group's ARN.
    group: String,
    name: String,
    created: SimTime,
}

object!(
    LogStream,
    "aws.log_stream",
    id,
    |this| vec![format!("group:{}", this.group)],
    json!({"name": this.name, "group": this.group})
);

/// The events of one call. Times are in milliseconds, as the client has them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Batch {
    id: String,
    group: String,
    stream: String,
    stream_name: String,
    ingested: i64,
    events: Vec<(i64, String)>,
}

impl Object for Batch {
    const TYPE: &'static str = "aws.log_events";
    const IN_LEDGER: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("group:{}", self.group), format!("stream:{}", self.stream)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        None
    }

    fn weight(&self) -> u64 {
        self.events.iter().map(|(_, text)| (text.len() + EVENT_BYTES) as u64).sum()
    }

    fn ledger(&self, _: SimTime) -> Value {
        json!({})
    }
}

/// An event with where it is from.
struct Event<'t> {
    at: i64,
    text: &'t str,
    ingested: i64,
    stream: &'t str,
    /// Its number in its batch, and the batch.
    id: String,
}

pub fn stored_bytes(ask: &Ask, group: &str) -> u64 {
    ask.state.store.logs.batches.find(&format!("group:{group}")).map(Object::weight).sum()
}

/// Lets go of everything in a group.
pub fn forget_group(ask: &mut Ask, group: &str) {
    let key = format!("group:{group}");
    let logs = &mut ask.store().logs;
    let streams: Vec<String> = logs.streams.find(&key).map(|stream| stream.id.clone()).collect();
    let batches: Vec<String> = logs.batches.find(&key).map(|batch| batch.id.clone()).collect();
    streams.iter().for_each(|id| _ = logs.streams.remove(id));
    batches.iter().for_each(|id| _ = logs.batches.remove(id));
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let group = find(ask)?.id.clone();
    let name = ask.input.text("logStreamName").unwrap_or_default().to_owned();
    if name.is_empty() || name.len() > 512 || name.contains([':', '*']) {
        return invalid(format!(
            "1 validation error detected: Value '{name}' at 'logStreamName' failed to satisfy constraint: Member must satisfy regular expression pattern: [^:*]*"
        ));
    }
    let id = format!("{group}:log-stream:{name}");
    if ask.state.store.logs.streams.get(&id).is_some() {
        return fail("ResourceAlreadyExistsException", "The specified log stream already exists");
    }
    let created = ask.now();
    ask.store().logs.streams.insert(LogStream { id, group, name, created });
    Ok(json!({}))
}

fn stream<'t>(ask: &'t Ask<'_, '_>) -> Answer<&'t LogStream> {
    let group = &find(ask)?.id;
    let name = ask.input.text("logStreamName").unwrap_or_default();
    let missing = || AwsError::new(400, "ResourceNotFoundException", "The specified log stream does not exist.");
    ask.state.store.logs.streams.get(&format!("{group}:log-stream:{name}")).ok_or_else(missing)
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let id = stream(ask)?.id.clone();
    let logs = &mut ask.store().logs;
    let batches: Vec<String> = logs.batches.find(&format!("stream:{id}")).map(|batch| batch.id.clone()).collect();
    batches.iter().for_each(|id| _ = logs.batches.remove(id));
    logs.streams.remove(&id);
    Ok(json!({}))
}

fn shown(ask: &Ask, stream: &LogStream) -> Value {
    let batches = ask.state.store.logs.batches.find(&format!("stream:{}", stream.id));
    let mut shown = json!({
        "logStreamName": stream.name,
        "creationTime": stream.created.0,
        "arn": stream.id,
        "storedBytes": 0,
        "uploadSequenceToken": "49590302938479238472938472938472938472938",
    });
    let times: Vec<(i64, i64)> =
        batches.flat_map(|batch| batch.events.iter().map(|(at, _)| (*at, batch.ingested))).collect();
    if let (Some(first), Some(last)) = (times.iter().map(|time| time.0).min(), times.iter().map(|time| time.0).max()) {
        shown["firstEventTimestamp"] = first.into();
        shown["lastEventTimestamp"] = last.into();
        shown["lastIngestionTime"] = times.iter().map(|time| time.1).max().into();
    }
    shown
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let group = find(ask)?.id.clone();
    let prefix = ask.input.text("logStreamNamePrefix").unwrap_or_default();
    let mut rows = ask.rows(|store| &store.logs.streams, &format!("group:{group}"));
    rows.retain(|stream| stream.name.starts_with(prefix));
    let limit = ask.input.int("limit").unwrap_or(50).clamp(1, 50) as usize;
    let by_time = ask.input.text("orderBy") == Some("LastEventTime");
    let descending = ask.input.flag("descending").unwrap_or(false);
    let mut rows: Vec<Value> = rows.into_iter().map(|stream| shown(ask, stream)).collect();
    rows.sort_by_key(|row| {
        let time = if by_time { row["lastEventTimestamp"].as_i64().unwrap_or(0) } else { 0 };
        (time, row["logStreamName"].as_str().unwrap_or_default().to_owned())
    });
    if descending {
        rows.reverse();
    }
    let numbered: Vec<(usize, Value)> = rows.into_iter().enumerate().collect();
    let bad = || AwsError::new(400, "InvalidParameterException", "The specified nextToken is invalid.");
    let (rows, next) = paging::slice(numbered, |(at, _)| format!("{at:08}"), ask.input.text("nextToken"), limit, bad)?;
    let mut answer = json!({"logStreams": rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>()});
    if let Some(next) = next {
        answer["nextToken"] = next.into();
    }
    Ok(answer)
}

pub fn put_events(ask: &mut Ask) -> Answer<Value> {
    let stream = stream(ask)?.clone();
    let mut events: Vec<(i64, String)> = Vec::new();
    for event in ask.input.list("logEvents") {
        match (event.int("timestamp"), event.text("message")) {
            (Some(at), Some(text)) if !text.is_empty() => events.push((at, text.to_owned())),
            _ => return invalid("1 validation error detected: a log event needs a timestamp and a message"),
        }
    }
    if events.is_empty() || events.len() > MAX_EVENTS {
        return invalid(
            "1 validation error detected: Value at 'logEvents' failed to satisfy constraint: Member must have length between 1 and 10000",
        );
    }
    if !events.is_sorted_by_key(|(at, _)| *at) {
        return invalid("Log events in a single PutLogEvents request must be in chronological order.");
    }
    let ingested = jiff::Timestamp::now().as_millisecond();
    let batch =
        Batch { id: ids::hex(32), group: stream.group, stream: stream.id, stream_name: stream.name, ingested, events };
    let batches = &mut ask.store().logs.batches;
    while batches.weight() + batch.weight() > MAX_BYTES {
        let Some(oldest) = batches.iter().next().map(|batch| batch.id.clone()) else { break };
        batches.remove(&oldest);
    }
    batches.insert(batch);
    Ok(json!({"nextSequenceToken": "49590302938479238472938472938472938472938"}))
}

/// Events between two times, in their order.
fn events<'t>(ask: &'t Ask<'_, '_>, key: &str) -> Vec<Event<'t>> {
    let from = ask.input.int("startTime").unwrap_or(i64::MIN);
    let to = ask.input.int("endTime").unwrap_or(i64::MAX);
    let batches = ask.state.store.logs.batches.find(key);
    let mut all: Vec<Event> = batches
        .flat_map(|batch| {
            batch.events.iter().enumerate().map(move |(number, (at, text))| Event {
                at: *at,
                text,
                ingested: batch.ingested,
                stream: &batch.stream_name,
                id: format!("{:020}{}{number:05}", at, &batch.id),
            })
        })
        .filter(|event| event.at >= from && event.at <= to)
        .collect();
    all.sort_by_key(|event| event.at);
    all
}

/// Tokens hold a direction and the number of the event to go on from.
pub fn get_events(ask: &mut Ask) -> Answer<Value> {
    let id = stream(ask)?.id.clone();
    let mut all = events(ask, &format!("stream:{id}"));
    // Here the end is not part of the range.
    if let Some(end) = ask.input.int("endTime") {
        all.retain(|event| event.at < end);
    }
    let limit = ask.input.int("limit").unwrap_or(MAX_EVENTS as i64).clamp(1, MAX_EVENTS as i64) as usize;
    let number = |token: &str| token.get(2..).and_then(|rest| rest.parse::<usize>().ok());
    let (from, to) = match ask.input.text("nextToken") {
        None if ask.input.flag("startFromHead").unwrap_or(false) => (0, limit.min(all.len())),
        None => (all.len().saturating_sub(limit), all.len()),
        Some(token) => match (token.starts_with("f/"), number(token)) {
            (true, Some(from)) => (from.min(all.len()), from.saturating_add(limit).min(all.len())),
            (false, Some(to)) => (to.min(all.len()).saturating_sub(limit), to.min(all.len())),
            _ => return invalid("The specified nextToken is invalid."),
        },
    };
    let shown = all[from..to].iter();
    let shown =
        shown.map(|event| json!({"timestamp": event.at, "message": event.text, "ingestionTime": event.ingested}));
    Ok(json!({
        "events": shown.collect::<Vec<_>>(),
        "nextForwardToken": format!("f/{to}"),
        "nextBackwardToken": format!("b/{from}"),
    }))
}

/// Words that a text must hold; with `-` must not, with `?` one of them at least. Patterns for JSON are refused.
fn pattern(text: &str) -> Answer<impl Fn(&str) -> bool> {
    let text = text.trim();
    if text.starts_with(['{', '[', '%']) {
        return invalid("The sandbox evaluates filter patterns of words only");
    }
    let mut words: Vec<(char, String)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let sign = rest.chars().next().filter(|c| ['-', '?'].contains(c)).unwrap_or('+');
        let body = if sign == '+' { rest } else { &rest[1..] };
        let (word, after) = match body.strip_prefix('"').and_then(|body| body.split_once('"')) {
            Some((word, after)) => (word, after),
            None => body.split_once(' ').unwrap_or((body, "")),
        };
        words.push((sign, word.to_owned()));
        rest = after.trim_start();
    }
    Ok(move |text: &str| {
        let has = |word: &String| text.contains(word.as_str());
        let any: Vec<bool> = words.iter().filter(|(sign, _)| *sign == '?').map(|(_, word)| has(word)).collect();
        let all = words.iter().filter(|(sign, _)| *sign == '+').all(|(_, word)| has(word));
        let none = !words.iter().filter(|(sign, _)| *sign == '-').any(|(_, word)| has(word));
        all && none && (any.is_empty() || any.contains(&true))
    })
}

pub fn filter_events(ask: &mut Ask) -> Answer<Value> {
    let group = find(ask)?.id.clone();
    let fits = pattern(ask.input.text("filterPattern").unwrap_or_default())?;
    let (streams, prefix) = (ask.input.texts("logStreamNames"), ask.input.text("logStreamNamePrefix"));
    let mut all = events(ask, &format!("group:{group}"));
    all.retain(|event| {
        let named = streams.is_empty() || streams.contains(&event.stream);
        named && prefix.is_none_or(|prefix| event.stream.starts_with(prefix)) && fits(event.text)
    });
    let limit = ask.input.int("limit").unwrap_or(MAX_EVENTS as i64).clamp(1, MAX_EVENTS as i64) as usize;
    let bad = || AwsError::new(400, "InvalidParameterException", "The specified nextToken is invalid.");
    let numbered: Vec<(usize, Event)> = all.into_iter().enumerate().collect();
    let (rows, next) = paging::slice(numbered, |(at, _)| format!("{at:08}"), ask.input.text("nextToken"), limit, bad)?;
    let shown = rows.iter().map(|(_, event)| {
        json!({
            "logStreamName": event.stream,
            "timestamp": event.at,
            "message": event.text,
            "ingestionTime": event.ingested,
            "eventId": event.id,
        })
    });
    let mut answer = json!({"events": shown.collect::<Vec<_>>(), "searchedLogStreams": []});
    if let Some(next) = next {
        answer["nextToken"] = next.into();
    }
    Ok(answer)
}
