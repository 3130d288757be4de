//! One pause for all calls of an account: when a cloud asks for a pause, it applies to every call with the same token.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Default)]
pub struct Hold {
    until: Mutex<Option<Instant>>,
}

impl Hold {
    /// No call is sent for this long. A longer pause that is already in effect stays.
    pub fn ask(&self, pause: Duration) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = (*until).max(Instant::now().checked_add(pause));
    }

    /// How much of the pause is left.
    pub fn left(&self) -> Option<Duration> {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map(|until| until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Waits until the pause is over, also when it is extended meanwhile. A pause that ends after `latest` is not waited
    /// for: the error is the time left.
    pub async fn over(&self, latest: Instant) -> Result<(), Duration> {
        while let Some(left) = self.left() {
            if left > latest.saturating_duration_since(Instant::now()) {
                return Err(left);
            }
            tokio::time::sleep(left).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test(start_paused = true)]
    async fn everybody_waits_for_the_longest_pause() {
        let hold = Hold::default();
        let start = Instant::now();
        assert_eq!(hold.over(start).await, Ok(()), "nothing was asked for");
        hold.ask(seconds(75));
        hold.ask(seconds(3));
        assert_eq!(hold.left(), Some(seconds(75)));
        let longer = async {
            tokio::time::sleep(seconds(70)).await;
            hold.ask(seconds(20));
        };
        let (a, b, ()) = tokio::join!(hold.over(start + seconds(300)), hold.over(start + seconds(300)), longer);
        assert_eq!((a, b, start.elapsed().as_secs(), hold.left()), (Ok(()), Ok(()), 90, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_beyond_the_bound_is_told_at_once() {
        let hold = Hold::default();
        let start = Instant::now();
        hold.ask(seconds(3600));
        assert_eq!(hold.over(start + seconds(300)).await, Err(seconds(3600)));
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
