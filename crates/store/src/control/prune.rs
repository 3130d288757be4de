//! Deletes old events, journal entries, tasks and logs, a bounded number at a time. The audit log is kept.

use super::Control;
use super::server_writer::Operation;
use super::tx::Tx;
use super::types::ControlError;
use crate::db::Query;
use async_trait::async_trait;
use jiff::Timestamp;

/// Events that are kept; older ones go.
const EVENTS_KEPT: i64 = 1_000_000;
/// Closed journal entries that are kept.
const JOURNAL_KEPT: i64 = 1_000_000;
/// How long ended tasks and their logs are kept, in microseconds: two weeks.
const TASKS_KEPT_FOR: i64 = 14 * 24 * 3600 * 1_000_000;
/// Tasks that are kept however fast they come; counted by time of creation.
const STEP_MAX: i64 = 2_000;
/// Workers that were not heard of for a day are no longer shown.
const WORKERS_KEPT_FOR: i64 = 24 * 3600 * 1_000_000;

const EVENTS: &str = "DELETE FROM events WHERE id <= (SELECT MAX(id) FROM events) - $1 \
     AND id < (SELECT MIN(id) FROM events) + $2";
const JOURNAL: &str = "DELETE FROM journal WHERE ended_at IS NOT NULL AND id <= (SELECT MAX(id) FROM journal) - $1 \
     AND id < (SELECT MIN(id) FROM journal WHERE ended_at IS NOT NULL) + $2";
const LOGS: &str = "DELETE FROM task_log WHERE task IN (SELECT id FROM tasks WHERE ended_at IS NOT NULL \
     AND ended_at < $1 ORDER BY ended_at, id LIMIT $2)";
const TASKS: &str = "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE ended_at IS NOT NULL AND ended_at < $1 \
     ORDER BY ended_at, id LIMIT $2)";
const WORKERS: &str = "DELETE FROM workers WHERE seen_at < $1";
/// What is gone for longer went apart from what goes now.
const GONE: &str = "DELETE FROM gone WHERE at < $1";
const LANES: &str = "DELETE FROM lanes WHERE queued = 0 AND running = 0 AND turn < \
     (SELECT MAX(turn) FROM lanes) - 100000";

struct Prune(Timestamp);

#[async_trait]
impl Operation for Prune {
    type Answer = u64;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<u64, ControlError> {
        let now = self.0.as_microsecond();
        let mut gone = tx.execute(Query::new(EVENTS).bind(EVENTS_KEPT).bind(STEP_MAX)).await?;
        gone += tx.execute(Query::new(JOURNAL).bind(JOURNAL_KEPT).bind(STEP_MAX)).await?;
        tx.execute(Query::new(LOGS).bind(now - TASKS_KEPT_FOR).bind(STEP_MAX)).await?;
        gone += tx.execute(Query::new(TASKS).bind(now - TASKS_KEPT_FOR).bind(STEP_MAX)).await?;
        gone += tx.execute(Query::new(WORKERS).bind(now - WORKERS_KEPT_FOR)).await?;
        gone += tx.execute(Query::new(LANES)).await?;
        gone += tx.execute(Query::new(GONE).bind(now - super::gone::TOGETHER_MICROS)).await?;
        Ok(gone)
    }
}

impl Control {
    /// Removes a bounded number of old events, journal entries, tasks and logs. How many; call again while it is not 0.
    pub async fn prune(&self, now: Timestamp) -> Result<u64, ControlError> {
        self.write(Prune(now)).await
    }
}
