//! A resource as it is shown: its state in a word, its age, its manifest without secrets.

use crate::failure::Failure;
use berth_engine::ResourceState;
use berth_model::REDACTED;
use berth_store::StoredResource;
use jiff::Timestamp;
use serde_json::Value;

/// Columns that a message may take in a table.
const MESSAGE_WIDTH: usize = 60;
/// Name of the fact in which a drift check stores what it found.
pub const DRIFT: &str = "drift";

/// The manifest as applied, with secrets replaced by a word.
pub fn shown_manifest(stored: &StoredResource) -> Result<Value, Failure> {
    let mut manifest = stored.sealed_manifest()?;
    for pointer in stored.sealed_paths()? {
        if let Some(slot) = manifest.pointer_mut(&pointer) {
            *slot = Value::String(REDACTED.into());
        }
    }
    Ok(manifest)
}

/// `yes`, `no` or `failed`.
pub fn readiness(stored: &StoredResource) -> &'static str {
    match stored.status.state {
        ResourceState::Failed => "failed",
        _ if stored.settled() && !stored.deleting => "yes",
        _ => "no",
    }
}

/// Its state, by the same rule as [`readiness`]: a resource that was changed since it was Ready is Pending.
pub fn state(stored: &StoredResource) -> ResourceState {
    match stored.status.state {
        ResourceState::Ready if !stored.settled() => ResourceState::Pending,
        state => state,
    }
}

/// What keeps it from being ready, in a few words; empty when nothing does.
pub fn phase(stored: &StoredResource) -> String {
    let state = stored.status.state;
    match readiness(stored) {
        "yes" => String::new(),
        _ if stored.deleting => "deleting".into(),
        _ if !stored.status.message.is_empty() => stored.status.message.clone(),
        _ if state == ResourceState::Ready => "changed, and not applied to its end".into(),
        _ => state.as_str().to_lowercase(),
    }
}

/// A fact of the status as text; `-` when it is not known.
pub fn fact(stored: &StoredResource, name: &str) -> String {
    stored.status.facts.get(name).map_or_else(|| "-".into(), value_text)
}

/// The first line of a message, cut for a table; `describe` and JSON have it whole.
pub fn short_message(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= MESSAGE_WIDTH {
        return line.to_owned();
    }
    line.chars().take(MESSAGE_WIDTH - 1).chain(['…']).collect()
}

pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.to_owned() }
}

/// A value without quotes, as a shell wants it.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `12s`, `3m`, `5h`, `41d`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Times as people and programs read them.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let before = |seconds: i64| Timestamp::from_second(1_000_000 - seconds).unwrap();
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (41 * 86_400 + 5, "41d"), (-5, "0s")]
        {
            assert_eq!(age(before(seconds), now), text);
        }
    }
}
