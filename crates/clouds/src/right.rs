//! The right to call clouds, for work that may lose it: a worker whose lease is over begins no further call.

use berth_engine::handler::{Outcome, Trouble};
use std::sync::Arc;

/// Says whether the work may still call.
pub type Right = Arc<dyn Fn() -> bool + Send + Sync>;

tokio::task_local! {
    static RIGHT: Right;
}

/// Runs work that has the right to call for as long as `right` says so. Without this, work may always call.
pub async fn with_right<T>(right: Right, work: impl Future<Output = T>) -> T {
    RIGHT.scope(right, work).await
}

/// Asked immediately before a request is sent. The refusal is final: nothing waits for a right that is lost to come back.
pub(crate) fn may_send(call: impl FnOnce() -> String) -> Outcome<()> {
    match RIGHT.try_with(|right| right()) {
        Ok(false) => Err(Trouble::refused("not sent: this worker's lease is over").call(call())),
        Ok(true) | Err(_) => Ok(()),
    }
}
