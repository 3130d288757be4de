//! Simulated time: every phase of every object is derived from it, so no background task ever runs.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A moment on the simulated clock, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SimTime(pub i64);

impl SimTime {
    pub const NEVER: SimTime = SimTime(i64::MAX);

    pub fn plus_ms(self, ms: i64) -> SimTime {
        SimTime(self.0.saturating_add(ms))
    }

    /// RFC 3339 in UTC with whole seconds, the form that the clouds answer with.
    pub fn rfc3339(self) -> String {
        self.to_string()
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.0.div_euclid(1000)) {
            Ok(t) => write!(f, "{t}"),
            Err(_) => f.write_str("9999-12-31T23:59:59Z"),
        }
    }
}

/// How much faster than real time the simulated clock runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// Simulated seconds for each real second.
    Times(f64),
    /// Provisioning takes no time at all; the clock itself runs at wall speed.
    Instant,
}

impl Speed {
    /// Beyond this, milliseconds on the clock lose their meaning.
    pub const MAX: f64 = 1_000_000.0;

    fn rate(self) -> f64 {
        match self {
            Speed::Times(n) => n,
            Speed::Instant => 1.0,
        }
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        if text.eq_ignore_ascii_case("instant") {
            return Ok(Speed::Instant);
        }
        let number = text.strip_suffix(['x', 'X']).unwrap_or(text);
        match number.parse::<f64>() {
            Ok(n) if n.is_finite() && n > 0.0 && n <= Speed::MAX => Ok(Speed::Times(n)),
            _ => Err(format!(
                "`{text}` is not a speed: give a number above 0 and up to {} such as `60`, or `instant`",
                Speed::MAX
            )),
        }
    }
}

/// Where the clock stood at a wall time and how fast it ran: enough to go on after a restart.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Anchor {
    pub wall_ms: i64,
    pub sim: SimTime,
    pub rate: f64,
}

#[derive(Debug)]
pub struct Clock {
    anchor: Anchor,
    started: Instant,
    speed: Speed,
}

impl Clock {
    /// Goes on from `earlier` as if the sandbox had never stopped; without it starts at wall time.
    pub fn start(speed: Speed, earlier: Option<Anchor>) -> Clock {
        let wall_ms = wall_ms();
        let sim = match earlier {
            // A wall clock set back must not make simulated time run backwards.
            Some(a) => a.sim.plus_ms((wall_ms.saturating_sub(a.wall_ms).max(0) as f64 * a.rate) as i64),
            None => SimTime(wall_ms),
        };
        Clock { anchor: Anchor { wall_ms, sim, rate: speed.rate() }, started: Instant::now(), speed }
    }

    pub fn now(&self) -> SimTime {
        let elapsed = self.started.elapsed().as_secs_f64() * 1000.0 * self.anchor.rate;
        self.anchor.sim.plus_ms(elapsed as i64)
    }

    pub fn speed(&self) -> Speed {
        self.speed
    }

    pub fn anchor(&self) -> Anchor {
        self.anchor
    }

    /// The real time that a simulated span takes.
    pub fn real(&self, sim_ms: i64) -> Duration {
        Duration::from_secs_f64((sim_ms.max(0) as f64 / 1000.0 / self.anchor.rate).min(1e9))
    }
}

fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|d| d.as_millis() as i64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_read_from_text() {
        assert_eq!("60".parse(), Ok(Speed::Times(60.0)));
        assert_eq!("2.5x".parse(), Ok(Speed::Times(2.5)));
        assert_eq!("instant".parse(), Ok(Speed::Instant));
        for bad in ["0", "-1", "fast", "", "NaN", "inf", "1e9"] {
            assert!(bad.parse::<Speed>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_restarted_clock_counts_the_time_it_was_down() {
        let before = Anchor { wall_ms: wall_ms() - 10_000, sim: SimTime(1_000_000), rate: 100.0 };
        let now = Clock::start(Speed::Instant, Some(before)).now();
        assert!(now >= SimTime(2_000_000) && now < SimTime(2_100_000), "{now:?}");
    }

    #[test]
    fn a_wall_clock_set_back_does_not_turn_time_back() {
        let before = Anchor { wall_ms: wall_ms() + 60_000, sim: SimTime(5_000), rate: 10.0 };
        assert!(Clock::start(Speed::Times(1.0), Some(before)).now() >= SimTime(5_000));
    }

    #[test]
    fn times_print_as_rfc3339_with_whole_seconds() {
        assert_eq!(SimTime(1_700_000_000_123).to_string(), "2023-11-14T22:13:20Z");
        assert_eq!(SimTime::NEVER.to_string(), "9999-12-31T23:59:59Z");
    }
}
