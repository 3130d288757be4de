//! The servers' half of the state: desired state, tasks and their leases, events, audit, tokens.
//!
//! Any number of servers may share a PostgreSQL database; a file of SQLite's has one server. Each server's writes go through
//! one writer, and the writers of all servers take turns, a transaction each: see `docs/decisions/0006-one-writer-at-a-time.md`.

mod revision;
pub mod types;

use crate::error::StoreError;
use crate::rows::Event;
use crate::store::Store;
use berth_engine::record::EntryId;
use berth_model::ResourceId;
use jiff::Timestamp;
use secrecy::SecretString;
use std::time::Duration;
use types::*;

/// Generations of a manifest that are kept beside the stored one.
pub const REVISIONS_KEPT: i64 = 20;
/// Resources, tasks, tokens, events, audit entries or log lines that one call gives.
pub const LIST_MAX: u32 = 1000;

/// A state as servers use it. Cheap to clone.
#[derive(Clone)]
pub struct Control {
    store: Store,
    wake: std::sync::Arc<tokio::sync::watch::Sender<u64>>,
}

fn soon<T, E: From<StoreError>>() -> Result<T, E> {
    Err(StoreError::Database("not built yet".into()).into())
}

#[allow(unused_variables)]
impl Control {
    /// Marks the state as a server's and starts the writer. Refused while an embedded run writes.
    pub async fn open(store: Store) -> Result<Self, StoreError> {
        Ok(Self { store, wake: std::sync::Arc::new(tokio::sync::watch::channel(0).0) })
    }

    /// For reads: resources, units, secrets, history.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Wakes after every commit of this process, and on PostgreSQL of others. Only a hint: look at the state again.
    pub fn wakes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.wake.subscribe()
    }

    /// Returns when everything handed in before is written.
    pub async fn close(&self) {}

    /// Resources, their links and labels, events and audit: all or nothing.
    pub async fn apply(&self, apply: Apply, now: Timestamp) -> Result<Vec<Applied>, ControlError> {
        soon()
    }

    /// Refused while others refer to one of them and are not being deleted.
    pub async fn delete(
        &self,
        ids: Vec<ResourceId>,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        soon()
    }

    pub async fn revision(&self, id: &ResourceId, generation: i64) -> Result<Option<Revision>, StoreError> {
        soon()
    }

    pub async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        soon()
    }

    /// In the order asked for; those that are not there are left out.
    pub async fn meta(&self, ids: &[ResourceId]) -> Result<Vec<ControlMeta>, StoreError> {
        soon()
    }

    /// Who refers to it.
    pub async fn children(&self, id: &ResourceId) -> Result<Vec<ResourceId>, StoreError> {
        soon()
    }

    /// What it refers to, whether or not that is there.
    pub async fn parents(&self, id: &ResourceId) -> Result<Vec<ResourceId>, StoreError> {
        soon()
    }

    /// Refused when nothing waits; `OtherPlan` when another plan does.
    pub async fn approve(
        &self,
        id: &ResourceId,
        digest: &str,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        soon()
    }

    /// What a decision is due for, the longest due first.
    pub async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
        soon()
    }

    /// When something will be due next: a resource, a drift check, or the end of a lease.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        soon()
    }

    pub async fn decide(&self, decisions: Vec<Decision>, now: Timestamp) -> Result<(), ControlError> {
        soon()
    }

    /// Resources whose drift check is due, by account.
    pub async fn drift_due(&self, now: Timestamp, limit: u32) -> Result<Vec<(String, Vec<DriftDue>)>, StoreError> {
        soon()
    }

    /// For drift checks, plans and imports. A drift check moves its resources' next check on by their interval, so that a
    /// check which is lost is made up for.
    pub async fn enqueue(&self, tasks: Vec<NewTask>, now: Timestamp) -> Result<Vec<TaskId>, ControlError> {
        soon()
    }

    /// Tasks whose lease ended go back to the queue. How many.
    pub async fn expire(&self, now: Timestamp) -> Result<u64, ControlError> {
        soon()
    }

    /// Fair: orgs take turns, then their accounts; inside an account the highest priority, then the oldest goes first.
    pub async fn lease(&self, ask: LeaseAsk, now: Timestamp) -> Result<Vec<Leased>, ControlError> {
        soon()
    }

    pub async fn heartbeat(
        &self,
        worker: &str,
        held: Vec<Held>,
        lease: Duration,
        now: Timestamp,
    ) -> Result<Beat, ControlError> {
        soon()
    }

    /// The same key again: the same answer, and no second effect.
    pub async fn record(
        &self,
        held: &Held,
        key: &str,
        write: Recorded,
        now: Timestamp,
    ) -> Result<Option<EntryId>, ControlError> {
        soon()
    }

    pub async fn submit_plan(
        &self,
        held: &Held,
        plan: &str,
        digest: &str,
        decision: PlanDecision,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        soon()
    }

    pub async fn progress(
        &self,
        held: &Held,
        message: &str,
        lines: Vec<(Timestamp, String)>,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        soon()
    }

    /// A repeated report is fine.
    pub async fn report(&self, held: &Held, ending: Ending, now: Timestamp) -> Result<(), ControlError> {
        soon()
    }

    /// Back to the queue: the worker stops before it is done.
    pub async fn release(&self, held: &Held, why: &str, now: Timestamp) -> Result<(), ControlError> {
        soon()
    }

    /// A queued task ends at once; a running one is asked to stop.
    pub async fn cancel(
        &self,
        task: &TaskId,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        soon()
    }

    pub async fn task(&self, id: &TaskId) -> Result<Option<Task>, StoreError> {
        soon()
    }

    /// Newest first.
    pub async fn tasks(&self, query: &TaskQuery) -> Result<Vec<Task>, StoreError> {
        soon()
    }

    /// Lines with their numbers, after that number.
    pub async fn task_log(
        &self,
        id: &TaskId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<(i64, Timestamp, String)>, StoreError> {
        soon()
    }

    /// The request of a plan or import.
    pub async fn payload(&self, id: &TaskId) -> Result<Option<SecretString>, StoreError> {
        soon()
    }

    /// The result that was reported.
    pub async fn result(&self, id: &TaskId) -> Result<Option<SecretString>, StoreError> {
        soon()
    }

    pub async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        soon()
    }

    pub async fn loads(&self) -> Result<Vec<AccountLoad>, StoreError> {
        soon()
    }

    /// In the order of their commits: whoever has seen one has missed none before it.
    pub async fn events_after(&self, after: i64, filter: &EventFilter, limit: u32) -> Result<Vec<Event>, StoreError> {
        soon()
    }

    /// The last ones, newest first.
    pub async fn events_newest(&self, filter: &EventFilter, limit: u32) -> Result<Vec<Event>, StoreError> {
        soon()
    }

    /// Number of the last event; 0 when there was none.
    pub async fn last_event(&self) -> Result<i64, StoreError> {
        soon()
    }

    pub async fn audit(&self, entry: AuditNote, actor: &Actor, now: Timestamp) -> Result<(), ControlError> {
        soon()
    }

    /// Newest first.
    pub async fn audit_entries(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, StoreError> {
        soon()
    }

    /// Reads the whole log in pages.
    pub async fn verify_audit(&self) -> Result<AuditState, StoreError> {
        soon()
    }

    pub async fn create_token(
        &self,
        token: NewToken,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<TokenRow, ControlError> {
        soon()
    }

    pub async fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>, StoreError> {
        soon()
    }

    /// By id, after that one.
    pub async fn tokens(&self, after: &str, limit: u32) -> Result<Vec<TokenRow>, StoreError> {
        soon()
    }

    pub async fn revoke_token(
        &self,
        id: &str,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<TokenRow, ControlError> {
        soon()
    }

    /// Remembers when tokens were last used.
    pub async fn touch_tokens(&self, used: Vec<(String, Timestamp)>) -> Result<(), ControlError> {
        soon()
    }

    /// Removes a bounded number of old events, journal entries, tasks and logs. How many; call again while it is not 0.
    pub async fn prune(&self, now: Timestamp) -> Result<u64, ControlError> {
        soon()
    }
}
