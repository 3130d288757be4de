//! When a resource is next compared with its cloud. Pure: the same question has the same answer on every server.

use crate::environment::{DriftPolicy, DriftRule, Environment};
use berth_model::Schedule;
use berth_model::annotations::{DRIFT_POLICY, DRIFT_SCHEDULE};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often where nobody said it.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(30 * 60);
/// By how much a check may come later than its cron pattern says, so that thousands do not come at once.
const MAX_CRON_JITTER: Duration = Duration::from_secs(5 * 60);
/// Part of the time between two occurrences that jitter may take.
const JITTER_PART: u64 = 10;

/// When to look for drift, and what to do about it.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftSettings {
    pub schedule: Schedule,
    pub policy: DriftPolicy,
}

/// The resource's own annotations, then its Environment's word on its kind, then the Environment's, then the default.
pub fn drift_settings(
    annotations: &BTreeMap<String, String>,
    kind: &str,
    environment: Option<&Environment>,
) -> DriftSettings {
    let own = DriftRule {
        schedule: annotations.get(DRIFT_SCHEDULE).and_then(|text| Schedule::parse(text).ok()),
        policy: annotations.get(DRIFT_POLICY).and_then(|text| match text.as_str() {
            "observe" => Some(DriftPolicy::Observe),
            "repair" => Some(DriftPolicy::Repair),
            _ => None,
        }),
    };
    let rule = match environment {
        Some(environment) => match environment.kinds.get(kind) {
            Some(of_kind) => own.or(of_kind).or(&environment.drift),
            None => own.or(&environment.drift),
        },
        None => own,
    };
    DriftSettings {
        schedule: rule.schedule.unwrap_or(Schedule::Every(DEFAULT_INTERVAL)),
        policy: rule.policy.unwrap_or_default(),
    }
}

/// The next check strictly after a time, or none where it is off. `seed` spreads resources over time: each has its own
/// place in the interval, and keeps it.
pub fn next_check(schedule: &Schedule, after: Timestamp, seed: &str) -> Option<Timestamp> {
    let share = share(seed);
    match schedule {
        Schedule::Off => None,
        Schedule::Every(interval) => {
            let interval = i64::try_from(interval.as_millis()).ok().filter(|millis| *millis > 0)?;
            let phase = (share * interval as f64) as i64;
            let now = after.as_millisecond();
            let since = (now - phase).rem_euclid(interval);
            Timestamp::from_millisecond(now.checked_add(interval - since)?).ok()
        }
        Schedule::Cron(cron) => {
            // An occurrence that has just been may still be waiting for its share of jitter.
            let most = SignedDuration::try_from(MAX_CRON_JITTER).ok()?;
            let mut from = after.checked_sub(most).ok()?.to_zoned(TimeZone::UTC);
            loop {
                let at = cron.find_next_occurrence(&from, false).ok()?;
                let following = cron.find_next_occurrence(&at, false).ok();
                let gap = following.map_or(u64::MAX, |next| {
                    u64::try_from(next.timestamp().duration_since(at.timestamp()).as_secs()).unwrap_or(0)
                });
                let room = (gap / JITTER_PART).min(MAX_CRON_JITTER.as_secs());
                let late = SignedDuration::from_secs((share * room as f64) as i64);
                let due = at.timestamp().checked_add(late).ok()?;
                if due > after {
                    return Some(due);
                }
                from = at;
            }
        }
    }
}

/// A number from 0 to below 1 that follows from the seed alone.
fn share(seed: &str) -> f64 {
    let hash = Sha256::digest(seed.as_bytes());
    let bits = hash.iter().take(4).fold(0u32, |bits, byte| (bits << 8) | u32::from(*byte));
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_model::ResourceId;
    use proptest::prelude::*;
    use serde_json::json;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn schedule(text: &str) -> Schedule {
        Schedule::parse(text).unwrap()
    }

    #[test]
    fn the_nearest_word_counts() {
        let id = ResourceId::new("Environment", "prod");
        let environment = Environment::of(
            &id,
            &json!({"spec": {"drift": {"schedule": "1h", "policy": "repair"},
                             "kinds": [{"kind": "CivoVpc", "schedule": "off"}]}}),
        );
        let own = BTreeMap::from([(DRIFT_SCHEDULE.to_owned(), "10m".to_owned())]);
        let none = BTreeMap::new();
        let expect = |schedule: &str, policy| DriftSettings { schedule: Schedule::parse(schedule).unwrap(), policy };
        assert_eq!(drift_settings(&own, "CivoVpc", Some(&environment)), expect("10m", DriftPolicy::Repair));
        assert_eq!(drift_settings(&none, "CivoVpc", Some(&environment)), expect("off", DriftPolicy::Repair));
        assert_eq!(drift_settings(&none, "CivoFirewall", Some(&environment)), expect("1h", DriftPolicy::Repair));
        assert_eq!(drift_settings(&none, "CivoVpc", None), expect("30m", DriftPolicy::Observe));
        let own = BTreeMap::from([(DRIFT_POLICY.to_owned(), "observe".to_owned())]);
        assert_eq!(drift_settings(&own, "CivoFirewall", Some(&environment)), expect("1h", DriftPolicy::Observe));
    }

    #[test]
    fn an_interval_is_kept_and_seeds_are_spread() {
        let start = at("2026-11-15T08:00:00Z");
        let first = next_check(&schedule("10m"), start, "a").unwrap();
        let second = next_check(&schedule("10m"), first, "a").unwrap();
        assert_eq!(second.duration_since(first).as_secs(), 600);
        // A check that ran late does not move the next one.
        let late = first.checked_add(SignedDuration::from_secs(17)).unwrap();
        assert_eq!(next_check(&schedule("10m"), late, "a"), Some(second));
        let times: std::collections::BTreeSet<i64> =
            (0..1000).map(|n| next_check(&schedule("10m"), start, &n.to_string()).unwrap().as_second() / 60).collect();
        assert!(times.len() >= 10, "{times:?}");
    }

    #[test]
    fn cron_is_utc_with_a_little_jitter() {
        let six = schedule("0 */6 * * *");
        for seed in ["a", "b", "c", "d"] {
            let next = next_check(&six, at("2026-11-15T08:00:00Z"), seed).unwrap();
            assert!((at("2026-11-15T12:00:00Z")..at("2026-11-15T12:05:00Z")).contains(&next), "{next}");
            // Asked between the occurrence and its jittered check: the check is not lost.
            if next > at("2026-11-15T12:00:01Z") {
                assert_eq!(next_check(&six, at("2026-11-15T12:00:01Z"), seed), Some(next));
            }
            let after = next_check(&six, next, seed).unwrap();
            assert_eq!(after.duration_since(next).as_hours(), 6);
        }
        assert_eq!(next_check(&schedule("off"), at("2026-11-15T08:00:00Z"), "a"), None);
        // 30 February never comes.
        assert_eq!(next_check(&schedule("0 0 30 2 *"), at("2026-11-15T08:00:00Z"), "a"), None);
    }

    proptest! {
        #[test]
        fn the_next_check_is_never_in_the_past(
            second in 0i64..4_000_000_000, seed in "[a-z]{0,12}", interval in 60u64..604_800, cron in 0usize..4
        ) {
            let after = Timestamp::from_second(second).unwrap();
            let every = Schedule::Every(Duration::from_secs(interval));
            let next = next_check(&every, after, &seed).unwrap();
            prop_assert!(next > after);
            prop_assert!(next.duration_since(after).as_secs() <= interval as i64);
            let cron = schedule(["* * * * *", "*/5 * * * *", "0 3 * * MON", "30 2 1 * *"][cron]);
            let next = next_check(&cron, after, &seed).unwrap();
            prop_assert!(next > after);
            prop_assert_eq!(next_check(&cron, after, &seed), Some(next));
        }
    }
}
