//! How long to try and to wait. Every loop of a unit ends: by its count of failures, or by the resource's deadline.

use crate::handler::{Class, Trouble};
use crate::run::Stop;
use crate::unit::UnitState;
use crate::unit_calls::UnitCalls;
use jiff::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// Failed calls in a row before a unit is given up.
const TRIES: u32 = 15;
/// A new object may take this long to show up in reads.
pub(crate) const SHOWS_UP_WITHIN: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pauses that a cloud asks for and that are shorter than this are not worth a word, and count as failures.
const SHORT_PAUSE: Duration = Duration::from_secs(1);

/// How long one resource may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub time: Duration,
    pub deadline: Instant,
}

impl Limit {
    pub fn from_now(time: Duration) -> Self {
        let now = Instant::now();
        // A time too long for the clock is as good as a year.
        let deadline = now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600));
        Self { time, deadline }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    pub fn text(&self) -> String {
        let seconds = self.time.as_secs();
        if seconds >= 60 { format!("{}m{:02}s", seconds / 60, seconds % 60) } else { format!("{seconds}s") }
    }
}

/// Counts failures in a row of one sort of call, and waits in between. Reads and changes are counted apart: a read that
/// works says nothing about a change that does not.
#[derive(Default)]
pub(crate) struct Patience {
    failures: u32,
}

impl Patience {
    pub fn worked(&mut self) {
        self.failures = 0;
    }

    pub async fn after(&mut self, calls: &UnitCalls<'_>, trouble: Trouble) -> Result<(), Stop> {
        let after = match trouble.class {
            Class::Retry { after } => after,
            Class::Unanswered => None,
            _ => return Err(trouble.into()),
        };
        let (cx, limit) = (calls.cx, calls.limit);
        let left = limit.deadline.saturating_duration_since(Instant::now());
        // A cloud that says when to come back has not failed: the deadline alone ends that.
        if let Some(asked) = after.filter(|asked| *asked >= SHORT_PAUSE) {
            if asked >= left {
                let message = format!(
                    "the cloud takes calls again {}, which is beyond the {} that the resource may take: {}",
                    when(asked),
                    limit.text(),
                    trouble
                );
                return Err(trouble
                    .reworded(message)
                    .help("run the same command again then; `berth.dev/timeout` or --timeout sets how long it may take")
                    .into());
            }
            calls.doing(&format!("the cloud asked to wait {}", span(asked)));
            return cx.pause(asked).await;
        }
        self.failures += 1;
        let given_up = if self.failures >= TRIES {
            Some(format!("gave up after {TRIES} tries: {trouble}"))
        } else if limit.is_over() {
            Some(format!("gave up after {}: {trouble}", limit.text()))
        } else {
            None
        };
        if let Some(message) = given_up {
            return Err(trouble.reworded(message).help("run the same command again to go on").into());
        }
        let backoff =
            Duration::from_millis(100).saturating_mul(1 << self.failures.min(6)).mul_f64(rand::random_range(0.5..1.0));
        cx.pause(backoff.max(after.unwrap_or_default()).min(left)).await
    }
}

/// A length of time as people say it: `75 s`, `5m00s`, `1h15m`. Rounded up, so that it is never too short.
pub fn span(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1000);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds.div_ceil(60) / 60, seconds.div_ceil(60) % 60),
    }
}

/// From now: `in 75 s, at 14:03:05 UTC`.
pub fn when(after: Duration) -> String {
    let now = Timestamp::now();
    let at = now.checked_add(after).unwrap_or(now);
    format!("in {}, at {} UTC", span(after), at.strftime("%H:%M:%S"))
}

/// How long to wait before looking again: in proportion to how long it has taken already, so that short waits cost
/// little time and long ones few calls.
pub(crate) fn pause_after(waited: Duration) -> Duration {
    (waited / 12).clamp(FIRST_PAUSE, LONGEST_PAUSE)
}

/// Until when an object that an earlier run began may be there without being shown. The row tells how long ago that was.
/// `limit` is the cloud's, for a create without an answer.
pub(crate) fn shows_up_by(row: &UnitState, limit: Duration) -> Option<Instant> {
    match (row.ready, &row.id) {
        (true, _) => None,
        (false, Some(_)) => left_of(SHOWS_UP_WITHIN, row.updated_at),
        (false, None) => left_of(limit.max(SHOWS_UP_WITHIN), row.updated_at),
    }
}

/// Until when a create that is recorded without an answer may still take effect.
pub(crate) fn unanswered_until(row: &UnitState, limit: Duration) -> Option<Instant> {
    if row.id.is_some() { None } else { left_of(limit, row.updated_at) }
}

/// A time in the future is that of a clock that was set back, or of another machine's: it counts as now.
pub(crate) fn left_of(time: Duration, since: Timestamp) -> Option<Instant> {
    let age = Duration::try_from(Timestamp::now().duration_since(since)).unwrap_or_default();
    time.checked_sub(age).map(|left| Instant::now() + left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_never_too_short() {
        let spans = [0, 1, 75_000, 74_001, 300_000, 3_600_000, 7_199_001].map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(spans, ["0 s", "1 s", "75 s", "75 s", "5m00s", "1h00m", "2h00m"]);
    }
}
