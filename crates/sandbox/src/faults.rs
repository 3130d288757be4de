//! Faults on demand: which rules there are, and what they make of the call at hand.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::Method;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::http::{Effects, Refusal, mutating};
use crate::registry::CloudName;
use crate::rule::{Action, Methods, Rule, When};

/// Where the clusters' Kubernetes APIs are.
pub const CLUSTERS: &str = "/clusters/";

/// What is to become of one call.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    pub delay: Duration,
    pub outcome: FaultEffect,
    pub effects: Effects,
}

#[derive(Debug, Default, PartialEq)]
pub enum FaultEffect {
    #[default]
    Pass,
    Refuse(Refusal),
    DropBefore,
    DropAfter,
    HoldBefore,
    HoldAfter,
    /// Refused now, acted on so long after.
    Late(Duration),
}

/// The rules in force, with how often each has matched and struck.
pub struct Faults {
    seed: u64,
    calls: AtomicU64,
    rules: Mutex<Vec<Live>>,
}

struct Live {
    rule: Rule,
    matched: u64,
    struck: u64,
}

impl Faults {
    pub fn new(rules: Vec<Rule>, seed: u64) -> Faults {
        let faults = Faults { seed, calls: AtomicU64::new(0), rules: Mutex::default() };
        faults.replace(rules);
        faults
    }

    /// New rules start counting from nothing.
    pub fn replace(&self, rules: Vec<Rule>) {
        let fresh = rules.into_iter().map(|rule| Live { rule, matched: 0, struck: 0 }).collect();
        *self.lock() = fresh;
    }

    /// The longest time that a list may be behind by these rules.
    pub fn longest_lag(&self) -> Duration {
        let lag = |live: &Live| if let Action::Lag(lag) = live.rule.action { lag } else { Duration::ZERO };
        self.lock().iter().map(lag).max().unwrap_or_default()
    }

    /// Each rule as text, with how many calls matched it and how many it struck.
    pub fn list(&self) -> Vec<(String, u64, u64)> {
        self.lock().iter().map(|live| (live.rule.to_string(), live.matched, live.struck)).collect()
    }

    /// Decides one call. The first rule that ends a call wins; delays and effects of the others add up.
    pub fn judge(&self, cloud: CloudName, method: &Method, path: &str) -> Verdict {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut verdict = Verdict::default();
        for (at, live) in self.lock().iter_mut().enumerate() {
            if !matches(&live.rule, cloud, method, path) {
                continue;
            }
            live.matched += 1;
            let mut rng = self.rng(number, at as u64);
            let strikes = match live.rule.when {
                When::Always => true,
                When::Nth(n) => live.matched == n,
                When::Times(n) => live.struck < n,
                When::Rate(p) => rng.random_bool(p),
            };
            if !strikes {
                continue;
            }
            let outcome = match &live.rule.action {
                Action::Status { status, retry_after } => {
                    FaultEffect::Refuse(Refusal::Injected { status: *status, retry_after: *retry_after })
                }
                Action::Delay(delay) => {
                    verdict.delay += *delay;
                    FaultEffect::Pass
                }
                Action::Late(after) => FaultEffect::Late(*after),
                Action::Lag(lag) => {
                    verdict.effects.lag = verdict.effects.lag.max(*lag);
                    FaultEffect::Pass
                }
                Action::DropBefore => FaultEffect::DropBefore,
                Action::DropAfter => FaultEffect::DropAfter,
                Action::HoldBefore => FaultEffect::HoldBefore,
                Action::HoldAfter => FaultEffect::HoldAfter,
                Action::Quota => FaultEffect::Refuse(Refusal::Quota),
                Action::NoCapacity(region) => {
                    verdict.effects.no_capacity.push(region.clone());
                    FaultEffect::Pass
                }
                Action::Stuck => {
                    verdict.effects.stuck = true;
                    FaultEffect::Pass
                }
                Action::Random(p) if rng.random_bool(*p) => any_failure(&mut rng),
                Action::Random(_) => continue,
            };
            live.struck += 1;
            if outcome != FaultEffect::Pass {
                verdict.outcome = outcome;
                break;
            }
        }
        verdict
    }

    /// Decides one call to a cluster's Kubernetes API, `/clusters/ID/…`. Calls that no rule is for are not counted: they must
    /// not move the dice of those that are.
    pub fn judge_cluster(&self, cloud: CloudName, method: &Method, path: &str) -> Verdict {
        let any = self.lock().iter().any(|live| is_for_clusters(&live.rule));
        if any { self.judge(cloud, method, path) } else { Verdict::default() }
    }

    /// The same seed and call number always give the same dice, whatever came before.
    fn rng(&self, call: u64, rule: u64) -> SmallRng {
        SmallRng::seed_from_u64(self.seed ^ call.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (rule << 56))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Live>> {
        self.rules.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn any_failure(rng: &mut SmallRng) -> FaultEffect {
    match rng.random_range(0..4) {
        0 => FaultEffect::Refuse(Refusal::Injected {
            status: [500, 502, 503][rng.random_range(0..3)],
            retry_after: None,
        }),
        // Clients must take both forms: whole seconds and fractions.
        1 => {
            let wait = if rng.random_bool(0.25) { 1.0 } else { 0.05 };
            FaultEffect::Refuse(Refusal::Injected { status: 429, retry_after: Some(wait) })
        }
        2 => FaultEffect::DropBefore,
        _ => FaultEffect::DropAfter,
    }
}

/// Only a rule that says so is for the clusters' own APIs: all others are for the clouds'.
fn is_for_clusters(rule: &Rule) -> bool {
    rule.path.as_deref().is_some_and(|path| path.starts_with(CLUSTERS))
}

fn matches(rule: &Rule, cloud: CloudName, method: &Method, path: &str) -> bool {
    if path.starts_with(CLUSTERS) != is_for_clusters(rule) {
        return false;
    }
    let method_fits = match &rule.methods {
        Methods::Any => true,
        Methods::Mutating => mutating(method),
        Methods::One(only) => only == method,
    };
    method_fits
        && rule.cloud.is_none_or(|c| c == cloud)
        && rule.path.as_deref().is_none_or(|glob| glob_matches(glob, path))
}

/// `*` stands for anything inside one part of a path, `**` for anything at all.
fn glob_matches(glob: &str, path: &str) -> bool {
    fn rest(glob: &[u8], path: &[u8]) -> bool {
        match glob {
            [] => path.is_empty(),
            [b'*', b'*', tail @ ..] => (0..=path.len()).any(|at| rest(tail, &path[at..])),
            [b'*', tail @ ..] => {
                let end = path.iter().position(|b| *b == b'/').unwrap_or(path.len());
                (0..=end).any(|at| rest(tail, &path[at..]))
            }
            [first, tail @ ..] => path.first() == Some(first) && rest(tail, &path[1..]),
        }
    }
    rest(glob.as_bytes(), path.trim_end_matches('/').as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(rules: &[&str]) -> Faults {
        Faults::new(rules.iter().map(|r| r.parse().unwrap()).collect(), 7)
    }

    fn outcome(faults: &Faults, method: Method, path: &str) -> FaultEffect {
        faults.judge(crate::civo::NAME, &method, path).outcome
    }

    #[test]
    fn globs_know_one_part_from_many() {
        assert!(glob_matches("/v2/networks/*", "/v2/networks/1"));
        assert!(!glob_matches("/v2/networks/*", "/v2/networks/1/x"));
        assert!(glob_matches("/v2/**/pools", "/v2/kubernetes/clusters/1/pools"));
        assert!(glob_matches("/**", "/anything/at/all"));
        assert!(!glob_matches("/v2/networks", "/v2/networks/1"));
    }

    #[test]
    fn nth_and_times_count_only_matching_calls() {
        let f = faults(&["POST /v2/networks 503 nth=2"]);
        assert_eq!(outcome(&f, Method::POST, "/v2/networks"), FaultEffect::Pass);
        assert_eq!(outcome(&f, Method::GET, "/v2/networks"), FaultEffect::Pass);
        assert!(matches!(outcome(&f, Method::POST, "/v2/networks"), FaultEffect::Refuse(_)));
        assert_eq!(outcome(&f, Method::POST, "/v2/networks"), FaultEffect::Pass);

        let f = faults(&["mutating drop-after times=2"]);
        let seen: Vec<_> = (0..4).map(|_| outcome(&f, Method::PUT, "/x")).collect();
        assert_eq!(seen, [FaultEffect::DropAfter, FaultEffect::DropAfter, FaultEffect::Pass, FaultEffect::Pass]);
        assert_eq!(f.list(), [("mutating drop-after times=2".to_owned(), 4, 2)]);
    }

    #[test]
    fn random_is_the_same_for_the_same_seed_and_near_its_rate() {
        let run = || {
            let f = faults(&["random=0.3"]);
            (0..2000).map(|_| outcome(&f, Method::GET, "/")).collect::<Vec<_>>()
        };
        let (one, two) = (run(), run());
        assert_eq!(one, two);
        let failed = one.iter().filter(|o| **o != FaultEffect::Pass).count();
        assert!((500..700).contains(&failed), "{failed} of 2000");
        for kind in [FaultEffect::DropBefore, FaultEffect::DropAfter] {
            assert!(one.contains(&kind), "{kind:?} never happened");
        }
    }

    #[test]
    fn delays_and_effects_add_up_and_let_the_call_pass() {
        let f = faults(&["delay=10ms", "delay=20ms", "no-capacity=fra1", "stuck"]);
        let verdict = f.judge(crate::civo::NAME, &Method::POST, "/v2/kubernetes/clusters");
        assert_eq!((verdict.delay, &verdict.outcome), (Duration::from_millis(30), &FaultEffect::Pass));
        assert!(verdict.effects.stuck && verdict.effects.out_of_capacity("FRA1"));
    }

    #[test]
    fn late_is_for_changes_and_lag_for_reads_beside_any_other_rule() {
        let f = faults(&["lag=2s", "random=0", "late=300ms nth=2"]);
        let read = f.judge(crate::civo::NAME, &Method::GET, "/v2/networks");
        assert_eq!((read.outcome, read.effects.lag), (FaultEffect::Pass, Duration::from_secs(2)));
        let change = f.judge(crate::civo::NAME, &Method::POST, "/v2/networks");
        assert_eq!((change.outcome, change.effects.lag), (FaultEffect::Pass, Duration::ZERO));
        assert_eq!(outcome(&f, Method::PUT, "/v2/networks/1"), FaultEffect::Late(Duration::from_millis(300)));
        assert_eq!(f.longest_lag(), Duration::from_secs(2));
    }

    #[test]
    fn a_rule_for_one_cloud_leaves_the_other_alone() {
        let f = faults(&["digitalocean 500"]);
        assert_eq!(f.judge(crate::civo::NAME, &Method::GET, "/").outcome, FaultEffect::Pass);
        assert_ne!(f.judge(crate::digitalocean::NAME, &Method::GET, "/").outcome, FaultEffect::Pass);
    }

    #[test]
    fn only_rules_with_their_path_are_for_clusters() {
        let faults = faults(&["mutating 503", "mutating /clusters/** hold-before nth=2"]);
        let outcome =
            |method: Method| faults.judge_cluster(crate::civo::NAME, &method, "/clusters/x/api/v1/pods").outcome;
        assert_eq!(outcome(Method::GET), FaultEffect::Pass);
        assert_eq!(outcome(Method::PATCH), FaultEffect::Pass);
        assert_eq!(outcome(Method::PATCH), FaultEffect::HoldBefore);
        let cloud = faults.judge(crate::civo::NAME, &Method::POST, "/v2/networks").outcome;
        assert_eq!(cloud, FaultEffect::Refuse(Refusal::Injected { status: 503, retry_after: None }));
    }
}
