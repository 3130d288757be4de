//! The pauses that a cloud asks for in its answers.

use reqwest::header::{HeaderMap, RETRY_AFTER};
use std::time::Duration;

/// No cloud's limit counts longer than this.
const LONGEST_ASKED_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// The pause that a cloud asks for: `Retry-After` in seconds or as a date, else the time at which its rate limit is reset.
/// And whether that limit is spent, which a call that went well may say too.
pub fn asked_pause(headers: &HeaderMap, now: jiff::Timestamp) -> (Option<Duration>, bool) {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim);
    // Only once the limit is spent: clouds send the reset with every answer.
    let spent = text("ratelimit-remaining").and_then(|v| v.parse::<u64>().ok()) == Some(0);
    if let Some(asked) = text(RETRY_AFTER.as_str()) {
        let longest = LONGEST_ASKED_PAUSE.as_secs_f64();
        if let Some(seconds) = asked.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0) {
            return (Some(Duration::from_secs_f64(seconds.min(longest))), spent);
        }
        if let Ok(date) = jiff::fmt::rfc2822::parse(asked) {
            return (Some(until(date.timestamp(), now)), spent);
        }
    }
    let reset =
        text("ratelimit-reset").and_then(|v| v.parse::<i64>().ok()).and_then(|s| jiff::Timestamp::from_second(s).ok());
    (reset.filter(|_| spent).map(|reset| until(reset, now)), spent)
}

fn until(then: jiff::Timestamp, now: jiff::Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO).min(LONGEST_ASKED_PAUSE)
}
