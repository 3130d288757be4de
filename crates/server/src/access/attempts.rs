//! Calls without a valid token, counted for each address and token: so that they fill neither the log nor the audit log. They
//! never keep a valid token out.

use crate::address::network;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Each failure is forgiven after a while.
const FORGIVEN_AFTER: Duration = Duration::from_millis(500);
/// The same token from the same address is one failure for this long, however often it is tried.
const SAME_FOR: Duration = Duration::from_secs(60);
/// Addresses, and tokens, that are counted; with more, those without recent failures are forgotten.
const COUNTED_MAX: usize = 65_536;

pub struct Attempts {
    /// Failures that one address may have at once.
    burst: u32,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    /// When everything so far will be forgiven.
    until: HashMap<IpAddr, Instant>,
    tokens: HashMap<(IpAddr, [u8; 32]), Instant>,
}

/// What a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The address had few: it is told of in the log.
    Counted,
    /// The same token from the same address, again.
    Again,
    /// The address had too many.
    TooMany,
}

impl Attempts {
    pub fn new(burst: u32) -> Self {
        Self { burst, counted: Mutex::default() }
    }

    /// Whether an address has failed too often. Asking counts for nothing.
    pub fn spent(&self, peer: IpAddr, now: Instant) -> bool {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.spent(network(peer), self.burst, now)
    }

    /// Counts a failure.
    pub fn count(&self, peer: IpAddr, token: Option<[u8; 32]>, now: Instant) -> Failed {
        let network = network(peer);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = token {
            bound(&mut counted.tokens, |until| *until > now);
            let until = counted.tokens.entry((network, token)).or_insert(now);
            if *until > now {
                return Failed::Again;
            }
            *until = now + SAME_FOR;
        }
        if counted.spent(network, self.burst, now) {
            return Failed::TooMany;
        }
        bound(&mut counted.until, |until| *until > now);
        let until = counted.until.entry(network).or_insert(now);
        *until = (*until).max(now) + FORGIVEN_AFTER;
        Failed::Counted
    }
}

impl Counted {
    fn spent(&self, network: IpAddr, burst: u32, now: Instant) -> bool {
        let until = self.until.get(&network);
        until.is_some_and(|until| until.saturating_duration_since(now) >= FORGIVEN_AFTER.saturating_mul(burst))
    }
}

fn bound<K: std::hash::Hash + Eq>(all: &mut HashMap<K, Instant>, recent: impl Fn(&Instant) -> bool) {
    if all.len() >= COUNTED_MAX {
        all.retain(|_, until| recent(until));
        if all.len() >= COUNTED_MAX {
            all.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_fails_too_often_waits_and_others_do_not() {
        let attempts = Attempts::new(5);
        let now = Instant::now();
        let [bad, good, near, far] =
            ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::ffff"].map(|text| text.parse::<IpAddr>().unwrap());
        for _ in 0..5 {
            assert!(!attempts.spent(bad, now));
            assert_eq!(attempts.count(bad, None, now), Failed::Counted);
            attempts.count(near, None, now);
        }
        assert_eq!(attempts.count(bad, None, now), Failed::TooMany);
        assert!(attempts.spent(bad, now) && attempts.spent(far, now), "the same network");
        assert!(!attempts.spent(good, now));
        assert!(!attempts.spent(bad, now + FORGIVEN_AFTER), "one is forgiven");
        assert!(attempts.spent("::ffff:192.0.2.1".parse().unwrap(), now), "the same address in another form");
    }

    #[test]
    fn the_same_token_from_the_same_address_is_one_failure() {
        let attempts = Attempts::new(5);
        let now = Instant::now();
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(attempts.count(one, Some([1; 32]), now), Failed::Counted);
        for _ in 0..100 {
            assert_eq!(attempts.count(one, Some([1; 32]), now), Failed::Again);
        }
        assert!(!attempts.spent(one, now));
        assert_eq!(attempts.count(other, Some([1; 32]), now), Failed::Counted);
        assert_eq!(attempts.count(one, Some([2; 32]), now), Failed::Counted);
        assert_eq!(attempts.count(one, Some([1; 32]), now + SAME_FOR), Failed::Counted);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let attempts = Attempts::new(5);
        let now = Instant::now();
        for n in 0..(COUNTED_MAX as u32 + 10) {
            attempts.count(IpAddr::V4(n.into()), Some([(n % 256) as u8; 32]), now);
        }
        let counted = attempts.counted.lock().unwrap();
        assert!(counted.until.len() <= COUNTED_MAX && counted.tokens.len() <= COUNTED_MAX);
    }
}
