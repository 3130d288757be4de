//! The project's own state and the embedded engine, as a backend.

use super::workspace::Workspace;
use super::{accept, account_move, apply, delete, drift, import, kubeconfig, plan, refresh, wait};
use crate::args::Address;
use crate::backend::accept::Accepted;
use crate::backend::refreshed::Refreshed;
use crate::backend::{
    ApplySource, Backend, ChangeOptions, DriftCheck, Ended, ImportJob, Imported, MoveJob, Moved, PlanOptions, Proposal,
    Selection,
};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::manifests::Loaded;
use crate::view::output::Format;
use async_trait::async_trait;
use berth_engine::Known;
use berth_engine::unit::UnitState;
use berth_model::ResourceId;
use berth_store::{Entries, Filter, HistoryChange, HistoryLine, StoredResource};
use secrecy::SecretString;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[async_trait(?Send)]
impl Backend for Workspace {
    async fn resources(&self, filter: &Filter) -> Result<Vec<StoredResource>, Failure> {
        Ok(self.store.resources(filter).await?)
    }

    async fn units_of(&self, id: &ResourceId) -> Result<Vec<UnitState>, Failure> {
        Ok(self.store.units_of(id).await?)
    }

    async fn history(&self, id: &ResourceId, limit: u32) -> Result<Vec<HistoryLine>, Failure> {
        Ok(self.store.history(id, limit, 0).await?)
    }

    async fn recent_history(&self, open: bool, limit: u32) -> Result<Vec<(ResourceId, HistoryLine)>, Failure> {
        let entries = if open { Entries::Open } else { Entries::All };
        let changes = self.store.journal(entries, limit).await?.into_iter().map(|entry| {
            let change =
                HistoryChange { op: entry.op, unit: entry.unit, outcome: entry.outcome, ended_at: entry.ended_at };
            let line =
                HistoryLine { at: entry.started_at, what: entry.what, detail: entry.detail, change: Some(change) };
            (entry.resource, line)
        });
        let mut lines: Vec<(ResourceId, HistoryLine)> = changes.collect();
        if !open {
            lines.extend(self.store.events(limit).await?.into_iter().map(|event| {
                (event.resource, HistoryLine { at: event.at, what: event.what, detail: event.detail, change: None })
            }));
            // Stable, so that changes of one instant stay in the journal's order.
            lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.at));
            lines.truncate(limit as usize);
        }
        Ok(lines)
    }

    async fn begin(&self, command: &str) -> Result<(), Failure> {
        Workspace::begin(self, command).await?;
        Ok(())
    }

    async fn begin_when_free(&self, command: &str, until: Instant) -> Result<(), Failure> {
        wait::begin_when_free(self, command, until).await
    }

    async fn wait(&self, pending: Vec<StoredResource>, gone: bool, timeout: Duration, format: Format) -> CommandResult {
        wait::wait(self, pending, gone, timeout, format).await
    }

    async fn known(&self) -> Result<Known, Failure> {
        self.known_all().await
    }

    async fn was_deleted(&self, address: &Address) -> Result<bool, Failure> {
        delete::was_deleted(self, address).await
    }

    async fn drift(&self, selection: &Selection, keep: bool) -> Result<Option<DriftCheck>, Failure> {
        drift::check(self, selection, keep).await
    }

    async fn editable(&self, id: &ResourceId) -> Result<Option<(StoredResource, Value)>, Failure> {
        let Some(stored) = self.store.resource(id).await? else { return Ok(None) };
        let manifest = self.store.unseal(&stored)?;
        Ok(Some((stored, manifest)))
    }

    async fn accept(&self, accepted: Vec<Accepted<'_>>) -> Result<(), Failure> {
        accept::accept(self, accepted).await
    }

    async fn refresh(&self, selection: &Selection) -> Result<Refreshed, Failure> {
        refresh::refresh(self, selection).await
    }

    async fn plan(&self, loaded: Loaded, options: &PlanOptions<'_>) -> Result<Result<Proposal, Exit>, Failure> {
        plan::plan(self, loaded, options).await.map(Ok)
    }

    async fn apply(&self, source: ApplySource, options: &ChangeOptions<'_>) -> Result<Ended, Failure> {
        apply::apply(self, source, options).await
    }

    async fn delete(&self, known: Known, ids: Vec<ResourceId>, options: &ChangeOptions<'_>) -> Result<Ended, Failure> {
        delete::delete(self, known, ids, options).await
    }

    async fn import(&self, job: &ImportJob<'_>) -> Result<Imported, Failure> {
        import::import(self, job).await
    }

    async fn secrets(&self, stored: &StoredResource) -> Result<BTreeMap<String, SecretString>, Failure> {
        Ok(self.store.status_secrets(&stored.id).await?)
    }

    async fn move_account(&self, job: &MoveJob<'_>) -> Result<Moved, Failure> {
        account_move::move_account(self, job).await
    }

    async fn kubeconfig(&self, stored: &StoredResource, output: &str) -> Result<SecretString, Failure> {
        kubeconfig::read(self, stored, output).await
    }

    fn origin(&self) -> Result<String, Failure> {
        let path = self.args.state_path()?;
        Ok(std::fs::canonicalize(&path).unwrap_or(path).display().to_string())
    }

    fn is_sandbox(&self) -> bool {
        self.args.sandbox.sandbox
    }

    fn place(&self) -> Option<String> {
        None
    }

    async fn close(self: Box<Self>) {
        Workspace::close(*self).await;
    }
}
