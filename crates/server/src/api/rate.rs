//! How many requests a second one token may make.

use crate::fault::{Code, Fault};
use crate::limits::Limits;
use governor::clock::DefaultClock;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens that were not used lately are forgotten after this many requests.
const FORGET_EVERY: u64 = 65_536;

/// Keyed by the token's id, so that it has as many entries as there are valid tokens.
pub struct Rate {
    limiter: Option<RateLimiter<String, HashMapStateStore<String>, DefaultClock>>,
    asked: AtomicU64,
}

impl Rate {
    pub fn new(limits: &Limits) -> Self {
        let limiter = limits.requests_per_second.map(|most| RateLimiter::hashmap(Quota::per_second(most)));
        Self { limiter, asked: AtomicU64::new(0) }
    }

    pub fn check(&self, token: &str) -> Result<(), Fault> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        if self.asked.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            limiter.retain_recent();
        }
        // Cloning the key is cheaper than a second look.
        limiter.check_key(&token.to_owned()).map_err(|_| {
            Fault::new(Code::TooMany, "this token makes too many requests a second")
                .help("wait a moment, then go on more slowly")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    #[test]
    fn one_token_does_not_use_up_the_limit_of_another() {
        let rate = Rate::new(&Limits { requests_per_second: NonZeroU32::new(2), ..Limits::default() });
        assert!(rate.check("a").is_ok() && rate.check("a").is_ok());
        assert_eq!(rate.check("a").unwrap_err().code, Code::TooMany);
        assert!(rate.check("b").is_ok());
        let none = Rate::new(&Limits { requests_per_second: None, ..Limits::default() });
        assert!((0..1000).all(|_| none.check("a").is_ok()));
    }
}
