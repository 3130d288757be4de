//! Permission to call clouds, for work that may lose it: a worker whose lease has expired sends no further request.

use berth_engine::handler::{Outcome, Trouble};
use std::sync::Arc;

/// Says whether the work may still call.
pub type CallPermit = Arc<dyn Fn() -> bool + Send + Sync>;

tokio::task_local! {
    static PERMIT: CallPermit;
}

/// Runs work that may call for as long as `permit` says so. Without this, work may always call.
pub async fn with_call_permit<T>(permit: CallPermit, work: impl Future<Output = T>) -> T {
    PERMIT.scope(permit, work).await
}

/// Asked immediately before a request is sent. The refusal is final: a lost permit never comes back.
pub(crate) fn may_send(call: impl FnOnce() -> String) -> Outcome<()> {
    match PERMIT.try_with(|permit| permit()) {
        Ok(false) => Err(Trouble::refused("not sent: this worker's lease is over").call(call())),
        Ok(true) | Err(_) => Ok(()),
    }
}
