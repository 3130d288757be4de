//! The task manager's service: what workers ask for, answered from the store. Nothing is kept here.

mod account;
mod build;
mod drift;
mod plan_gate;
mod service;
mod verify;
mod wait;

pub use build::read_account;
pub use service::{InProcess, Service};
pub use wait::run_and_wait;

use crate::api::ServerState;
use crate::pb::worker_service_server::WorkerServiceServer;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A worker that asked for tasks within this time is present.
const SEEN_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// Whether a worker that was last seen at this time is present.
pub fn is_present(seen_at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(seen_at) < SEEN_WITHIN
}

/// A context with many resources, and a unit's properties with its secrets.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The gRPC service.
pub fn worker_service(server: &Arc<ServerState>) -> WorkerServiceServer<Service> {
    WorkerServiceServer::new(Service(server.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Lets a few through at once and then one at a time: a busy store wakes waiting tasks far more often than there is something
/// for them.
struct Bucket {
    left: f64,
    at: Instant,
}

const BURST: f64 = 6.0;
const PER_SECOND: f64 = 20.0;

impl Bucket {
    fn new() -> Self {
        Self { left: BURST, at: Instant::now() }
    }

    /// How long to wait before the next try.
    fn take(&mut self) -> Duration {
        let now = Instant::now();
        self.left = (self.left + now.duration_since(self.at).as_secs_f64() * PER_SECOND).min(BURST);
        self.at = now;
        self.left -= 1.0;
        if self.left >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.left / PER_SECOND) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_a_storm_is_slowed_down() {
        let mut bucket = Bucket::new();
        for _ in 0..6 {
            assert_eq!(bucket.take(), Duration::ZERO);
        }
        let wait = bucket.take();
        assert!(wait > Duration::from_millis(20) && wait < Duration::from_millis(60), "{wait:?}");
        bucket.at -= Duration::from_secs(10);
        assert_eq!(bucket.take(), Duration::ZERO);
    }
}
