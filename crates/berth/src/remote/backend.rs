//! A server as a backend.

use super::{Remote, messages};
use super::{accept, account_move, apply, delete, drift, import, plan, refresh, wait};
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
use berth_server::pb;
use berth_store::{Filter, HistoryLine, StoredResource};
use secrecy::SecretString;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

/// Resources whose history is asked for, one by one.
const RESOURCES_MAX: usize = 200;

#[async_trait(?Send)]
impl Backend for Remote {
    async fn resources(&self, filter: &Filter) -> Result<Vec<StoredResource>, Failure> {
        Remote::resources(self, filter).await
    }

    async fn units_of(&self, id: &ResourceId) -> Result<Vec<UnitState>, Failure> {
        Remote::units_of(self, id).await
    }

    async fn history(&self, id: &ResourceId, limit: u32) -> Result<Vec<HistoryLine>, Failure> {
        Remote::history(self, id, limit).await
    }

    /// A server gives the changes of one resource at a time: of those with a recent event, or with an open task.
    async fn recent_history(&self, open: bool, limit: u32) -> Result<Vec<(ResourceId, HistoryLine)>, Failure> {
        let mut ids = BTreeSet::new();
        let mut events = Vec::new();
        if open {
            for state in ["running", "queued"] {
                let request = pb::ListTasksRequest { state: state.into(), ..Default::default() };
                let tasks = self.tasks(request, RESOURCES_MAX).await?;
                let named = tasks.iter().filter(|task| task.resource.is_some());
                ids.extend(named.map(|task| messages::id_of(task.resource.as_ref())));
            }
        } else {
            events = self.newest_events(limit).await?;
            ids.extend(events.iter().map(|event| messages::id_of(event.resource.as_ref())));
        }
        let ids: Vec<ResourceId> = ids.into_iter().filter(|id| !id.kind.is_empty()).take(RESOURCES_MAX).collect();
        let mut lines = Vec::new();
        let mut told = HashSet::new();
        for (id, history) in self.histories(ids, limit).await? {
            if !history.is_empty() {
                told.insert(id.clone());
            }
            lines.extend(history.into_iter().map(|line| (id.clone(), line)));
        }
        // Of a resource that is gone, the events are left.
        let gone = events.into_iter().map(|event| (messages::id_of(event.resource.as_ref()), event));
        lines.extend(gone.filter(|(id, _)| !told.contains(id)).map(|(id, event)| {
            let at = messages::time(&event.at);
            (id, HistoryLine { at, what: event.what, detail: event.detail, change: None })
        }));
        if open {
            lines.retain(|(_, line)| line.change.as_ref().is_some_and(|change| change.outcome.is_empty()));
        }
        lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.at));
        lines.truncate(limit as usize);
        Ok(lines)
    }

    async fn begin(&self, _command: &str) -> Result<(), Failure> {
        Ok(())
    }

    async fn begin_when_free(&self, _command: &str, _until: Instant) -> Result<(), Failure> {
        Ok(())
    }

    async fn wait(&self, pending: Vec<StoredResource>, gone: bool, timeout: Duration, format: Format) -> CommandResult {
        wait::wait(self, pending, gone, timeout, format).await
    }

    async fn known(&self) -> Result<Known, Failure> {
        let mut known = Known::default();
        for stored in Remote::resources(self, &Filter::default()).await? {
            known.resources.insert(stored.id.clone(), stored.known()?);
        }
        Ok(known)
    }

    async fn was_deleted(&self, address: &Address) -> Result<bool, Failure> {
        delete::was_deleted(self, address).await
    }

    async fn drift(&self, selection: &Selection, _keep: bool) -> Result<Option<DriftCheck>, Failure> {
        drift::check(self, selection).await
    }

    async fn editable(&self, id: &ResourceId) -> Result<Option<(StoredResource, Value)>, Failure> {
        let Some(stored) = self.resource(id).await? else { return Ok(None) };
        let manifest = stored.sealed_manifest()?;
        Ok(Some((stored, manifest)))
    }

    async fn accept(&self, accepted: Vec<Accepted<'_>>) -> Result<(), Failure> {
        accept::accept(self, accepted).await
    }

    async fn refresh(&self, selection: &Selection) -> Result<Refreshed, Failure> {
        refresh::refresh(self, selection).await
    }

    async fn plan(&self, loaded: Loaded, options: &PlanOptions<'_>) -> Result<Result<Proposal, Exit>, Failure> {
        plan::plan(self, loaded, options).await
    }

    async fn apply(&self, source: ApplySource, options: &ChangeOptions<'_>) -> Result<Ended, Failure> {
        apply::apply(self, source, options).await
    }

    async fn delete(&self, _known: Known, ids: Vec<ResourceId>, options: &ChangeOptions<'_>) -> Result<Ended, Failure> {
        delete::delete(self, ids, options).await
    }

    async fn import(&self, job: &ImportJob<'_>) -> Result<Imported, Failure> {
        import::import(self, job).await
    }

    async fn secrets(&self, stored: &StoredResource) -> Result<BTreeMap<String, SecretString>, Failure> {
        self.secret_outputs(&stored.id, stored.secret_names.clone()).await
    }

    async fn move_account(&self, job: &MoveJob<'_>) -> Result<Moved, Failure> {
        account_move::move_account(self, job).await
    }

    /// A server asks the cloud itself, where kubeconfigs are issued for a limited time.
    async fn kubeconfig(&self, stored: &StoredResource, _output: &str) -> Result<SecretString, Failure> {
        Remote::kubeconfig(self, &stored.id).await
    }

    fn origin(&self) -> Result<String, Failure> {
        Ok(self.url().to_owned())
    }

    fn is_sandbox(&self) -> bool {
        Remote::is_sandbox(self)
    }

    fn place(&self) -> Option<String> {
        Some(Remote::place(self))
    }

    async fn close(self: Box<Self>) {}
}
