//! Failed attempts to call, counted for each address, so that guessing costs the guesser and not the database.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Each failure is forgiven after a while.
const FORGIVEN_AFTER: Duration = Duration::from_millis(500);
/// Addresses that are counted; with more, those without recent failures are forgotten.
const ADDRESSES_MAX: usize = 65_536;

pub struct Attempts {
    /// Failures that one address may have at once.
    burst: u32,
    /// When everything so far will be forgiven.
    until: Mutex<HashMap<IpAddr, Instant>>,
}

impl Attempts {
    pub fn new(burst: u32) -> Self {
        Self { burst, until: Mutex::default() }
    }

    /// Whether an address has to wait. Asking counts for nothing.
    pub fn spent(&self, peer: IpAddr, now: Instant) -> bool {
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until
            .get(&network(peer))
            .is_some_and(|until| until.saturating_duration_since(now) >= FORGIVEN_AFTER * self.burst)
    }

    /// Counts a failure.
    pub fn count(&self, peer: IpAddr, now: Instant) {
        let mut all = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ADDRESSES_MAX {
            all.retain(|_, until| *until > now);
            if all.len() >= ADDRESSES_MAX {
                all.clear();
            }
        }
        let until = all.entry(network(peer)).or_insert(now);
        *until = (*until).max(now) + FORGIVEN_AFTER;
    }
}

/// Whoever has one IPv6 address has all of its network.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
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
            attempts.count(bad, now);
            attempts.count(near, now);
        }
        assert!(attempts.spent(bad, now) && attempts.spent(far, now), "the same network");
        assert!(!attempts.spent(good, now));
        assert!(!attempts.spent(bad, now + FORGIVEN_AFTER), "one is forgiven");
        assert!(attempts.spent("::ffff:192.0.2.1".parse().unwrap(), now), "the same address in another form");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let attempts = Attempts::new(5);
        let now = Instant::now();
        for n in 0..(ADDRESSES_MAX as u32 + 10) {
            attempts.count(IpAddr::V4(n.into()), now);
        }
        assert!(attempts.until.lock().unwrap().len() <= ADDRESSES_MAX);
    }
}
