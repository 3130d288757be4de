//! A worker's right to a task, as the worker itself may count on it.
//!
//! The clock starts before the request that took or kept the lease was sent (and, where the server let it wait for work, that
//! much later), and stops a margin before the server's can. Two
//! clocks are asked, since the steady one stands still while a machine sleeps: whichever says first that the time is over.
//! A lease that was once found to be over stays over, whatever a heartbeat says later.

use crate::pb;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Part of the lease that is left unused: time for a call that was begun just before its end to end, too.
const MARGIN: u32 = 5;

/// The moment before a request is sent, on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct BothClocks {
    steady: Instant,
    wall: SystemTime,
}

impl BothClocks {
    pub fn now() -> Self {
        Self { steady: Instant::now(), wall: SystemTime::now() }
    }

    pub fn elapsed(self) -> Duration {
        self.steady.elapsed()
    }

    /// So much later: the server waited that long before the lease began.
    pub fn after(self, waited: Duration) -> Self {
        Self { steady: self.steady + waited, wall: self.wall + waited }
    }
}

pub struct Lease {
    pub held: pb::Held,
    until: Mutex<BothClocks>,
    over: AtomicBool,
}

impl Lease {
    /// `asked`: before the request was sent.
    pub fn new(held: pb::Held, asked: BothClocks, time: Duration) -> Self {
        Self { held, until: Mutex::new(end(asked, time)), over: AtomicBool::new(false) }
    }

    /// Whether the worker may still act. Asked before every write and every call to a cloud.
    pub fn holds(&self) -> bool {
        if self.over.load(Ordering::SeqCst) {
            return false;
        }
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = BothClocks::now();
        let holds = now.steady < until.steady && now.wall < until.wall;
        if !holds {
            self.over.store(true, Ordering::SeqCst);
        }
        holds
    }

    /// A heartbeat that was asked for at `asked` was answered.
    pub fn keep(&self, asked: BothClocks, time: Duration) {
        if self.holds() {
            let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
            let next = end(asked, time);
            // Answers may overtake each other: the later end counts.
            if next.steady > until.steady {
                *until = next;
            }
        }
    }

    /// The server says that it is another's, or refused a write.
    pub fn lose(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub fn left(&self) -> Duration {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if self.holds() { until.steady.saturating_duration_since(Instant::now()) } else { Duration::ZERO }
    }
}

fn end(asked: BothClocks, time: Duration) -> BothClocks {
    let time = time - time / MARGIN;
    BothClocks { steady: asked.steady + time, wall: asked.wall + time }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> pb::Held {
        pb::Held { task: "t".into(), fence: 1 }
    }

    fn ago(seconds: u64) -> BothClocks {
        let now = BothClocks::now();
        let back = Duration::from_secs(seconds);
        BothClocks { steady: now.steady - back, wall: now.wall - back }
    }

    #[test]
    fn a_lease_ends_before_the_servers() {
        let lease = Lease::new(held(), ago(0), Duration::from_secs(10));
        assert!(lease.holds() && lease.left() <= Duration::from_secs(8));
        assert!(!Lease::new(held(), ago(9), Duration::from_secs(10)).holds());
    }

    #[test]
    fn what_was_lost_never_comes_back() {
        let lease = Lease::new(held(), ago(20), Duration::from_secs(10));
        assert!(!lease.holds());
        lease.keep(BothClocks::now(), Duration::from_secs(10));
        assert!(!lease.holds() && lease.left() == Duration::ZERO);
    }

    #[test]
    fn a_machine_that_slept_knows_by_the_wall_clock() {
        let asleep = BothClocks { steady: Instant::now(), wall: SystemTime::now() - Duration::from_secs(60) };
        assert!(!Lease::new(held(), asleep, Duration::from_secs(30)).holds());
    }

    #[test]
    fn a_heartbeat_prolongs_and_an_old_answer_does_not_shorten() {
        let lease = Lease::new(held(), ago(5), Duration::from_secs(10));
        lease.keep(ago(0), Duration::from_secs(10));
        lease.keep(ago(4), Duration::from_secs(10));
        assert!(lease.left() > Duration::from_secs(7));
        lease.lose();
        assert!(!lease.holds());
    }
}
