//! When to compare a resource with its cloud: `30m`, a cron pattern, or `off`.

use crate::validate::format::duration;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use std::fmt;
use std::time::Duration;

/// Clouds are not asked more often than this.
pub const SHORTEST_INTERVAL: Duration = Duration::from_secs(60);
/// Most bytes of a schedule.
const MAX_SCHEDULE_BYTES: usize = 128;

#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    Every(Duration),
    /// In UTC.
    Cron(Box<Cron>),
    Off,
}

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error("is not an interval such as 30m, a cron pattern such as `0 */6 * * *`, or `off`")]
    Unreadable,
    #[error("is too often: once a minute is the most")]
    TooOften,
}

impl Schedule {
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Some(interval) = duration(text) {
            return if interval < SHORTEST_INTERVAL { Err(ScheduleError::TooOften) } else { Ok(Self::Every(interval)) };
        }
        if text.len() > MAX_SCHEDULE_BYTES || !text.contains(' ') {
            return Err(ScheduleError::Unreadable);
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        parser.parse(text).map(|cron| Self::Cron(Box::new(cron))).map_err(|_| ScheduleError::Unreadable)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(interval) => write!(f, "every {} s", interval.as_secs()),
            Self::Cron(cron) => write!(f, "{}", cron.as_str()),
            Self::Off => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_intervals_cron_or_off() {
        assert_eq!(Schedule::parse("10m"), Ok(Schedule::Every(Duration::from_secs(600))));
        assert_eq!(Schedule::parse("1h30m"), Ok(Schedule::Every(Duration::from_secs(5400))));
        assert_eq!(Schedule::parse("off"), Ok(Schedule::Off));
        for cron in ["0 */6 * * *", "*/5 * * * *", "30 2 * * MON-FRI", "0 0 1 * *"] {
            assert!(matches!(Schedule::parse(cron), Ok(Schedule::Cron(_))), "{cron}");
        }
        for bad in ["", "often", "10", "61 * * * *", "* * * *", "* * * * * *", "0 0 31 * * 2030 *", "Off", "1d"] {
            assert_eq!(Schedule::parse(bad), Err(ScheduleError::Unreadable), "{bad}");
        }
        assert_eq!(Schedule::parse("5s"), Err(ScheduleError::TooOften));
    }
}
