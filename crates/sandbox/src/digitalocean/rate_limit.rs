//! DigitalOcean's two rate limits, by the hour and by the minute, on the simulated clock.

use crate::clock::SimTime;

const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;

#[derive(Default)]
struct Window {
    ends: Option<SimTime>,
    used: u32,
}

impl Window {
    fn take(&mut self, now: SimTime, length_ms: i64, limit: u32) -> bool {
        if self.ends.is_none_or(|ends| now >= ends) {
            *self = Window { ends: Some(now.plus_ms(length_ms)), used: 0 };
        }
        if self.used >= limit {
            return false;
        }
        self.used += 1;
        true
    }

    fn left_ms(&self, now: SimTime) -> i64 {
        self.ends.map_or(0, |ends| (ends.0 - now.0).max(0))
    }
}

#[derive(Default)]
pub struct Rate {
    hour: Window,
    minute: Window,
}

/// What the headers of an answer say about the limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meter {
    pub limit: u32,
    pub remaining: u32,
    /// Simulated time until the next hour begins.
    pub resets_in_ms: i64,
    /// Simulated time until the next call is worth a try, when this one was refused.
    pub refused_for_ms: Option<i64>,
}

impl Rate {
    pub fn count(&mut self, now: SimTime, per_hour: u32, per_minute: u32) -> Meter {
        let minute = self.minute.take(now, MINUTE_MS, per_minute);
        let hour = minute && self.hour.take(now, HOUR_MS, per_hour);
        let refused_for_ms = match (minute, hour) {
            (false, _) => Some(self.minute.left_ms(now)),
            (true, false) => Some(self.hour.left_ms(now)),
            (true, true) => None,
        };
        let remaining = if refused_for_ms.is_some() { 0 } else { per_hour.saturating_sub(self.hour.used) };
        Meter { limit: per_hour, remaining, resets_in_ms: self.hour.left_ms(now), refused_for_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_windows_count_and_begin_anew() {
        let mut rate = Rate::default();
        let mut at = |ms: i64| rate.count(SimTime(ms), 4, 3);
        assert_eq!((at(0).remaining, at(1).remaining, at(2).remaining), (3, 2, 1));
        assert_eq!(at(10_000).refused_for_ms, Some(50_000));
        assert_eq!(at(60_000).remaining, 0);
        assert_eq!(at(61_000).refused_for_ms, Some(HOUR_MS - 61_000));
        let anew = at(HOUR_MS + 1);
        assert_eq!((anew.remaining, anew.refused_for_ms), (3, None));
    }
}
