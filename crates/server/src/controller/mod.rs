//! The controller: a loop that finds what is due and makes tasks. It takes no input but the store, keeps nothing, and any
//! number of servers run it at once: a decision about a resource that moved on meanwhile is dropped by the store.

mod decider;
pub mod next_check;

use crate::api::ServerState;
use crate::fault::{Code, Fault};
use berth_store::{NewTask, TaskOp};
use decider::Decider;
use jiff::{SignedDuration, Timestamp};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Resources decided about in one round.
const ROUND: u32 = 256;
/// Resources whose drift checks are enqueued in one round, and in one task.
const DRIFT_ROUND: u32 = 1_000;
const DRIFT_BATCH: usize = 50;
/// Commits come in bursts: what follows within this time is one wake.
const GATHER: Duration = Duration::from_millis(2);
/// Without a wake and with nothing due, the store is looked at this often all the same.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Ends of leases are looked for at most this often.
const EXPIRE_EVERY: Duration = Duration::from_millis(500);
/// Between removals of what is old.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// Removals in a row, of a few thousand rows each.
const PRUNE_STEPS: u32 = 50;
/// After a failure, from the first pause on.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A controller that has done no round for this long is not ready: a database that restarts takes less.
const FAILS_FOR: Duration = Duration::from_secs(10);

/// What a task is worth: someone waits for plans and imports; a repair is nobody's hurry; checks have places of their own.
pub const PRIORITY_WAITED: i32 = 200;
pub const PRIORITY_CHANGE: i32 = 100;
pub const PRIORITY_RETRY: i32 = 50;
pub const PRIORITY_REPAIR: i32 = 20;
pub const PRIORITY_DRIFT: i32 = 0;

pub fn spawn(server: Arc<ServerState>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut controller = Controller { server: &server, expired: None, pruned: Instant::now() };
        let mut wakes = server.control.wakes();
        let mut pause = FIRST_PAUSE;
        while !stop.is_cancelled() {
            wakes.mark_unchanged();
            let until = match controller.round().await {
                Ok(until) => {
                    pause = FIRST_PAUSE;
                    server.controller.worked();
                    until
                }
                Err(fault) => {
                    tracing::warn!(%fault, "the controller could not do its round");
                    server.controller.failed(&fault.message);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    // Not by wakes: what fails would fail at every commit.
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = stop.cancelled() => {}
                    }
                    continue;
                }
            };
            if until.is_zero() {
                continue;
            }
            tokio::select! {
                changed = wakes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(until) => {}
                () = stop.cancelled() => return,
            }
            tokio::time::sleep(GATHER).await;
        }
    })
}

/// Whether the controller does its rounds, for those who ask if the server is ready.
#[derive(Default)]
pub struct Health(Mutex<Option<(Instant, String)>>);

impl Health {
    fn worked(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn failed(&self, why: &str) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *failing = Some((since, why.to_owned()));
    }

    /// Why it has not done one for a while.
    pub fn failing(&self) -> Option<String> {
        let failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failing.as_ref().filter(|(since, _)| since.elapsed() >= FAILS_FOR).map(|(_, why)| why.clone())
    }
}

struct Controller<'a> {
    server: &'a ServerState,
    expired: Option<Instant>,
    pruned: Instant,
}

impl Controller<'_> {
    /// One look at everything that is due. How long until the next, if nothing happens before.
    async fn round(&mut self) -> Result<Duration, Fault> {
        let control = &self.server.control;
        if self.pruned.elapsed() >= PRUNE_EVERY {
            self.pruned = Instant::now();
            self.prune().await?;
        }
        let now = self.server.now();
        let Some(next) = control.next_due().await? else { return Ok(LOOK_AGAIN) };
        if next > now {
            return Ok(until(now, next));
        }
        // Each for itself: what keeps one from being done is no reason to leave the others.
        let (expired, decided, checked) = (self.expire(now).await, self.decide(now).await, self.check_drift(now).await);
        expired?;
        if decided? | checked? {
            return Ok(Duration::ZERO);
        }
        Ok(match control.next_due().await? {
            Some(next) => until(self.server.now(), next).max(Duration::from_millis(20)),
            None => LOOK_AGAIN,
        })
    }

    async fn expire(&mut self, now: Timestamp) -> Result<(), Fault> {
        if self.expired.is_some_and(|at| at.elapsed() < EXPIRE_EVERY) {
            return Ok(());
        }
        self.expired = Some(Instant::now());
        let expired = self.server.control.expire(now).await?;
        self.server.metrics.leases_expired.inc_by(expired);
        if expired > 0 {
            tracing::info!(tasks = expired, "leases ended; the tasks are queued again");
        }
        Ok(())
    }

    /// As much as came since the last time, in steps that let others write in between.
    async fn prune(&self) -> Result<(), Fault> {
        for _ in 0..PRUNE_STEPS {
            let removed = self.server.control.prune(self.server.now()).await?;
            if removed == 0 {
                return Ok(());
            }
            tracing::debug!(removed, "old events, tasks and logs are gone");
        }
        Ok(())
    }

    /// Whether there may be more.
    async fn decide(&self, now: Timestamp) -> Result<bool, Fault> {
        let control = &self.server.control;
        let (due, unreadable) = control.due_and_unreadable(now, ROUND).await?;
        if due.is_empty() && unreadable.is_empty() {
            return Ok(false);
        }
        let more = due.len() + unreadable.len() >= ROUND as usize;
        let mut decider = Decider::new(control, now);
        let mut decisions: Vec<_> = unreadable.into_iter().map(|one| decider.unreadable(one)).collect();
        for one in due {
            decisions.push(decider.decide(one).await?);
        }
        control.decide(decisions, now).await?;
        Ok(more)
    }

    /// Checks that are due, in batches of one account and service.
    async fn check_drift(&self, now: Timestamp) -> Result<bool, Fault> {
        let control = &self.server.control;
        let due = control.drift_due(now, DRIFT_ROUND).await?;
        if due.is_empty() {
            return Ok(false);
        }
        let mut decider = Decider::new(control, now);
        let mut tasks = Vec::new();
        let mut count = 0;
        for (account, mut resources) in due {
            count += resources.len();
            let account_limit = match decider.account_limit(&account).await {
                Ok(limit) => limit,
                Err(fault) if fault.code == Code::Unavailable => return Err(fault),
                // The check reports what is wrong with the account; one check at a time is enough for that.
                Err(_) => 1,
            };
            resources.sort_by(|a, b| (&a.service, &a.id.org, &a.id).cmp(&(&b.service, &b.id.org, &b.id)));
            for same in resources.chunk_by(|a, b| a.service == b.service && a.id.org == b.id.org) {
                for batch in same.chunks(DRIFT_BATCH) {
                    tasks.push(NewTask {
                        op: TaskOp::Drift,
                        resource: None,
                        resources: batch.iter().map(|one| one.id.clone()).collect(),
                        org: batch[0].id.org.clone(),
                        service: batch[0].service.clone(),
                        account: account.clone(),
                        account_limit,
                        priority: PRIORITY_DRIFT,
                        run_after: now,
                        generation: 0,
                        refresh: false,
                        payload: None,
                        trace: String::new(),
                    });
                }
            }
        }
        control.enqueue(tasks, now).await?;
        Ok(count >= DRIFT_ROUND as usize)
    }
}

fn until(now: Timestamp, next: Timestamp) -> Duration {
    let left = next.duration_since(now).max(SignedDuration::ZERO).unsigned_abs();
    left.clamp(Duration::from_millis(1), LOOK_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_does_no_rounds_is_not_ready() {
        let health = Health::default();
        health.failed("the state cannot be read");
        assert_eq!(health.failing(), None, "a database that restarts is no reason");
        tokio::time::advance(FAILS_FOR / 2).await;
        health.failed("the state cannot be read");
        tokio::time::advance(FAILS_FOR / 2).await;
        assert_eq!(health.failing().as_deref(), Some("the state cannot be read"));
        health.worked();
        assert_eq!(health.failing(), None);
    }
}
