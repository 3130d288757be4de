//! The servers' half of the state: desired state, tasks and their leases, events, audit, tokens.
//!
//! Any number of servers may share a PostgreSQL database; a file of SQLite's has one server. Each server's writes go through
//! one writer, and the writers of all servers take turns, a transaction each: see `docs/decisions/0006-one-writer-at-a-time.md`.

mod access;
mod allowed;
mod apply;
mod approval;
mod audit;
mod clouds;
mod columns;
mod completion;
pub mod counts;
mod decisions;
mod delete;
mod drift_checks;
mod due;
mod facts;
mod gone;
mod lease;
mod listen;
mod moves;
mod prune;
mod read;
mod record;
mod revision;
mod server_writer;
mod submitted_plans;
mod tasks;
mod tx;
pub mod types;

pub use apply::APPLY_MAX;

use crate::encode::Encoder;
use crate::error::StoreError;
use crate::store::Store;
use server_writer::{Operation, ServerWriter};
use std::sync::Arc;
use tokio::sync::watch;
use tracing::Instrument;
use types::ControlError;

/// Generations of a manifest that are kept beside the stored one.
pub const REVISIONS_KEPT: i64 = 20;
/// Resources, tasks, tokens, events, audit entries or log lines that one call gives.
pub const LIST_MAX: u32 = 1000;

/// A state as servers use it. Cheap to clone.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    store: Store,
    writer: ServerWriter,
    wake: watch::Sender<u64>,
    listener: Option<tokio::task::AbortHandle>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

impl Control {
    /// Marks the state as a server's and starts the writer. Refused while an embedded run writes; a file of SQLite's has one
    /// server at a time.
    pub async fn open(store: Store) -> Result<Self, StoreError> {
        let wake = watch::Sender::new(0);
        let writer = ServerWriter::start(&store, wake.clone()).await?;
        let listener = listen::start(&store, wake.clone());
        let control = Self(Arc::new(Inner { store, writer, wake, listener }));
        control.write(tasks::Recount).await.map_err(|error| match error {
            ControlError::Store(error) => error,
            other => StoreError::Database(other.to_string()),
        })?;
        Ok(control)
    }

    /// For reads: resources, units, secrets, history.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Wakes after every commit of this process that others may want to know of, and on PostgreSQL of other servers'. Only a
    /// hint: look at the state again.
    pub fn wakes(&self) -> watch::Receiver<u64> {
        self.0.wake.subscribe()
    }

    /// Returns when everything handed in before is written and the state is free for others. Nothing can be written after.
    pub async fn close(&self) {
        self.0.writer.finish().await;
        if let Some(listener) = &self.0.listener {
            listener.abort();
        }
    }

    pub(crate) async fn write<O: Operation>(&self, op: O) -> Result<O::Answer, ControlError>
    where
        O::Answer: Sync,
    {
        self.0.writer.run(op).instrument(tracing::info_span!("write")).await
    }

    fn encoder(&self) -> Encoder<'_> {
        Encoder { sealer: self.0.store.sealer() }
    }
}
