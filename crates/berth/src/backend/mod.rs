//! Where resources are kept and who changes them: the project's own state with the embedded engine, or a server. A command opens
//! one of the two, asks it, and prints the answer; it does not see which of them answered.

pub mod accept;
mod jobs;
pub mod lookup;
pub mod refreshed;

pub use jobs::{
    ApplySource, ChangeOptions, DriftCheck, Ended, ImportJob, Imported, Judgement, MoveJob, Moved, MovedUnit,
    PlanOptions, Proposal, SavedFile, Selection,
};

use crate::args::{Address, Which, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::manifests::Loaded;
use crate::local::workspace::Workspace;
use crate::remote::Remote;
use crate::view::output::Format;
use accept::Accepted;
use async_trait::async_trait;
use berth_engine::Known;
use berth_engine::unit::UnitState;
use berth_model::ResourceId;
use berth_store::{Filter, HistoryLine, StoredResource};
use refreshed::Refreshed;
use secrecy::SecretString;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Not `Send`: a command runs on the thread that it was started on.
#[async_trait(?Send)]
pub trait Backend {
    async fn resources(&self, filter: &Filter) -> Result<Vec<StoredResource>, Failure>;

    async fn units_of(&self, id: &ResourceId) -> Result<Vec<UnitState>, Failure>;

    /// Changes and events of one resource, newest first; also of a resource that was deleted.
    async fn history(&self, id: &ResourceId, limit: u32) -> Result<Vec<HistoryLine>, Failure>;

    /// Changes and events of all resources, newest first; with `open`, only changes whose end is not known.
    async fn recent_history(&self, open: bool, limit: u32) -> Result<Vec<(ResourceId, HistoryLine)>, Failure>;

    /// Reserves the right to change the state until the backend is closed. A server orders changes by itself.
    async fn begin(&self, command: &str) -> Result<(), Failure>;

    /// The same, but waits until `until` for another command that has the right.
    async fn begin_when_free(&self, command: &str, until: Instant) -> Result<(), Failure>;

    /// Waits until these resources are ready, or gone; the embedded engine does the rest of the work, a server does it by itself.
    async fn wait(&self, pending: Vec<StoredResource>, gone: bool, timeout: Duration, format: Format) -> CommandResult;

    /// Everything that is known of all resources.
    async fn known(&self) -> Result<Known, Failure>;

    /// Whether something at this address was deleted before.
    async fn was_deleted(&self, address: &Address) -> Result<bool, Failure>;

    /// Compares resources with the clouds; `None` where there are none. With `keep`, findings are stored with the resources.
    async fn drift(&self, selection: &Selection, keep: bool) -> Result<Option<DriftCheck>, Failure>;

    /// A resource, and its manifest as it can be written back: with its secrets where the backend gives them out.
    async fn editable(&self, id: &ResourceId) -> Result<Option<(StoredResource, Value)>, Failure>;

    /// Stores manifests that drift was accepted into.
    async fn accept(&self, accepted: Vec<Accepted<'_>>) -> Result<(), Failure>;

    /// Brings outputs and facts up to date with the clouds.
    async fn refresh(&self, selection: &Selection) -> Result<Refreshed, Failure>;

    /// `Err` is an end: what is wrong with the files was printed.
    async fn plan(&self, loaded: Loaded, options: &PlanOptions<'_>) -> Result<Result<Proposal, Exit>, Failure>;

    async fn apply(&self, source: ApplySource, options: &ChangeOptions<'_>) -> Result<Ended, Failure>;

    /// Deletes these resources of those that are `known`.
    async fn delete(&self, known: Known, ids: Vec<ResourceId>, options: &ChangeOptions<'_>) -> Result<Ended, Failure>;

    async fn import(&self, job: &ImportJob<'_>) -> Result<Imported, Failure>;

    /// Secret outputs in the clear.
    async fn secrets(&self, stored: &StoredResource) -> Result<BTreeMap<String, SecretString>, Failure>;

    /// Moves the objects of an account to the one that the credentials belong to, if `job.ask` allows it.
    async fn move_account(&self, job: &MoveJob<'_>) -> Result<Moved, Failure>;

    /// The decoded kubeconfig of a cluster that has one. `output` is the secret output that holds it.
    async fn kubeconfig(&self, stored: &StoredResource, output: &str) -> Result<SecretString, Failure>;

    /// Names this state or server the same from wherever it is opened: the path of the state, or the server's URL.
    fn origin(&self) -> Result<String, Failure>;

    /// Whether the clouds are simulated. A server shows it with its resources, so this is known after the first of them.
    fn is_sandbox(&self) -> bool;

    /// The server's address and context; `None` for the project's own state.
    fn place(&self) -> Option<String>;

    async fn close(self: Box<Self>);
}

/// What a command needs of the project's own state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The state must exist; no cloud is connected.
    Read,
    /// The state must exist, and clouds are used.
    Clouds,
    /// The state is created where there is none, and clouds are used.
    Create,
}

/// Opens the backend that the arguments select, does the work, and closes it.
pub fn with_backend<T>(
    args: &WorkspaceArgs,
    access: Access,
    work: impl AsyncFnOnce(&dyn Backend) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let which = args.which()?;
    // One thread is cheaper; simulated clouds inside this process need another.
    let threads = match &which {
        Which::Local(_) if access != Access::Read => Threads::beside(&args.sandbox),
        _ => Threads::One,
    };
    block_on(threads, async {
        let backend: Box<dyn Backend> = match which {
            Which::Local(_) => Box::new(Workspace::open(args, access).await?),
            Which::Server(target) => Box::new(Remote::open(target).await?),
        };
        let result = work(&*backend).await;
        backend.close().await;
        result
    })
}
