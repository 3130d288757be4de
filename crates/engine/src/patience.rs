//! How long to try and to wait. Every loop of a unit ends: by its count of failures, or by the resource's deadline.

use crate::handler::{Class, Trouble};
use crate::run::{Shared, Stop};
use crate::unit::UnitState;
use jiff::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// Failed calls in a row before a unit is given up.
const TRIES: u32 = 15;
/// A new object may take this long to show up in reads.
pub(crate) const SHOWS_UP_WITHIN: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_ASKED_PAUSE: Duration = Duration::from_secs(60);

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

    pub async fn after(&mut self, cx: &Shared<'_>, limit: Limit, trouble: Trouble) -> Result<(), Stop> {
        let Class::Retry { after } = trouble.class else { return Err(trouble.into()) };
        self.failures += 1;
        let given_up = if self.failures >= TRIES {
            Some(format!("gave up after {TRIES} tries: {}", trouble.message))
        } else if limit.is_over() {
            Some(format!("gave up after {}: {}", limit.text(), trouble.message))
        } else {
            None
        };
        if let Some(message) = given_up {
            return Err(Trouble { message, ..trouble }.help("run the same command again to go on").into());
        }
        let backoff =
            Duration::from_millis(100).saturating_mul(1 << self.failures.min(6)).mul_f64(rand::random_range(0.5..1.0));
        let pause = after.map_or(backoff, |asked| asked.min(LONGEST_ASKED_PAUSE));
        cx.pause(pause.min(limit.deadline.saturating_duration_since(Instant::now()))).await
    }
}

/// How long to wait before looking again: in proportion to how long it has taken already, so that short waits cost
/// little time and long ones few calls.
pub(crate) fn pause_after(waited: Duration) -> Duration {
    (waited / 12).clamp(FIRST_PAUSE, LONGEST_PAUSE)
}

/// Until when an object that an earlier run began may be there without being shown. The row tells how long ago that was.
pub(crate) fn shows_up_by(row: &UnitState) -> Option<Instant> {
    if row.ready {
        return None;
    }
    let age = Timestamp::now().duration_since(row.updated_at).unsigned_abs();
    SHOWS_UP_WITHIN.checked_sub(age).map(|left| Instant::now() + left)
}
