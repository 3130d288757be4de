//! Counts of resources and tasks for metrics, and how long writes take.

use super::Control;
use crate::db::{Query, Row};
use crate::error::StoreError;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const RESOURCES: &str = "SELECT state, COUNT(*) FROM resources GROUP BY state";
const TASKS: &str = "SELECT state, COUNT(*) FROM tasks GROUP BY state";

/// By state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub resources: Vec<(String, i64)>,
    pub tasks: Vec<(String, i64)>,
}

/// Told of each batch that was written: how many operations, and how long they took together.
pub type BatchObserver = Box<dyn Fn(usize, Duration) + Send + Sync>;

#[derive(Clone, Default)]
pub(super) struct Observed(Arc<OnceLock<BatchObserver>>);

impl Observed {
    pub fn tell(&self, operations: usize, took: Duration) {
        if let Some(observer) = self.0.get() {
            observer(operations, took);
        }
    }
}

impl Control {
    /// Looks at every resource: not to be asked often.
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        let decode = |row: &Row| Ok((row.get::<String>(0)?, row.get::<i64>(1)?));
        let pool = self.store().pool();
        let resources = pool.rows(Query::new(RESOURCES), decode).await?;
        let tasks = pool.rows(Query::new(TASKS), decode).await?;
        Ok(Counts { resources, tasks })
    }

    /// The first observer stays.
    pub fn observe_batches(&self, observer: BatchObserver) {
        _ = self.0.writer.observed().0.set(observer);
    }
}
