//! Resources that the controller must look at now.

use super::read::{self, meta_columns};
use super::types::*;
use super::{Control, LIST_MAX};
use crate::db::Query;
use crate::error::StoreError;
use crate::rows::{self, time};
use jiff::Timestamp;

const DUE: &str = concat!(
    "SELECT ",
    resource_columns!(),
    ", ",
    meta_columns!(),
    ", (SELECT t.id FROM tasks t WHERE t.kind = resources.kind AND t.name = resources.name AND t.org = resources.org \
     AND t.env = resources.env AND t.mutates AND t.state IN ('queued', 'running')) \
     FROM resources WHERE due_at IS NOT NULL AND due_at <= $1 ORDER BY due_at LIMIT $2"
);
const NEXT_DUE: &str = "SELECT (SELECT MIN(due_at) FROM resources WHERE due_at IS NOT NULL), \
     (SELECT MIN(drift_at) FROM resources WHERE drift_at IS NOT NULL), \
     (SELECT MIN(lease_until) FROM tasks WHERE state = 'running'), \
     (SELECT MIN(run_after) FROM tasks WHERE state = 'queued' AND waiting)";

fn due(row: &crate::db::Row) -> Result<Due, StoreError> {
    let resource = rows::resource(row)?;
    let meta = read::meta(row, read::META_AT, &resource.id)?;
    let task: Option<String> = row.get(read::META_AT + read::META_COLUMNS)?;
    Ok(Due { resource, meta, task: task.map(TaskId) })
}

impl Control {
    /// What a decision is due for, the longest due first.
    pub async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
        Ok(self.due_and_unreadable(now, limit).await?.0)
    }

    /// The same, with those whose rows cannot be read.
    pub async fn due_and_unreadable(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<(Vec<Due>, Vec<UnreadableRow>), StoreError> {
        let query = Query::new(DUE).bind(now.as_microsecond()).bind(i64::from(limit.clamp(1, LIST_MAX)));
        let decode = |row: &crate::db::Row| match due(row) {
            Ok(due) => Ok(Ok(due)),
            Err(error @ StoreError::Corrupt { .. }) => Ok(Err(UnreadableRow {
                id: rows::id_at(row, 0)?,
                generation: row.get(7)?,
                due_mark: row.get(read::META_AT + read::DUE_MARK)?,
                cause: error.to_string(),
            })),
            Err(error) => Err(error),
        };
        let (mut due, mut unreadable) = (Vec::new(), Vec::new());
        for row in self.store().pool().rows(query, decode).await? {
            match row {
                Ok(one) => due.push(one),
                Err(one) => unreadable.push(one),
            }
        }
        Ok((due, unreadable))
    }

    /// When something will be due next: a resource, a drift check, a task that waits, or the end of a lease.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let decode = |row: &crate::db::Row| {
            let mut first: Option<i64> = None;
            for column in 0..4 {
                let at: Option<i64> = row.get(column)?;
                first = [first, at].into_iter().flatten().min();
            }
            first.map(time).transpose()
        };
        Ok(self.store().pool().row(Query::new(NEXT_DUE), decode).await?.flatten())
    }
}
