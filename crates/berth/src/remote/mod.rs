//! A server in place of the project's own state.

mod accept;
mod account_move;
mod apply;
mod backend;
pub mod carry_out;
pub mod contexts;
mod delete;
mod drift;
pub mod event_stream;
pub mod follow;
mod import;
pub mod kept_heads;
pub mod messages;
mod plan;
mod refresh;
pub mod saved_plan;
pub mod sign_in;
mod wait;

use crate::args::ServerArgs;
use crate::cli::{Threads, block_on};
use crate::failure::Failure;
use crate::remote::contexts::Target;
use crate::view::progress;
use berth_engine::unit::UnitState;
use berth_model::ResourceId;
use berth_server::client::Client;
use berth_server::tasks::is_present;
use berth_server::{Code, Fault, pb};
use berth_store::{Filter, HistoryLine, StoredResource};
use futures::{StreamExt, TryStreamExt};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::{Request, Status};

/// Largest page that a server returns.
pub const PAGE: u32 = 1000;
/// For calls that read clouds before they answer.
pub const CLOUDS_WITHIN: Duration = Duration::from_secs(600);
/// After a task has waited for this long, the user is told if no worker is present.
const WORKER_WITHIN: Duration = Duration::from_secs(4);
/// Calls under way at once, where many are needed.
const AT_ONCE: usize = 8;

/// A connection to a server, with the context that it was opened from.
#[derive(Clone)]
pub struct Remote {
    pub client: Client,
    pub target: Arc<Target>,
    /// Set when a resource of simulated clouds was read.
    sandbox: Arc<AtomicBool>,
}

impl Remote {
    pub async fn open(target: Target) -> Result<Self, Failure> {
        tracing::info!(server = target.context.server, context = target.name, "asking a server");
        let client = target.context.connection().connect().await?;
        Ok(Self::over(client, target))
    }

    pub fn over(client: Client, target: Target) -> Self {
        Self { client, target: Arc::new(target), sandbox: Arc::default() }
    }

    /// Whether the resources read so far are in simulated clouds.
    pub fn is_sandbox(&self) -> bool {
        self.sandbox.load(Ordering::Relaxed)
    }

    fn note(&self, resource: &pb::Resource) {
        if resource.sandbox {
            self.sandbox.store(true, Ordering::Relaxed);
        }
    }

    pub fn url(&self) -> &str {
        &self.target.context.server
    }

    /// `https://… (context prod)`.
    pub fn place(&self) -> String {
        match self.target.name.as_str() {
            "" => self.url().to_owned(),
            name => format!("{} (context {name})", self.url()),
        }
    }

    /// Waits for an answer that needs a worker, and prints a note if no worker is running.
    pub async fn by_worker<T>(&self, work: impl Future<Output = T>) -> T {
        let look = async {
            tokio::time::sleep(WORKER_WITHIN).await;
            if self.has_no_worker().await {
                anstream::eprintln!(
                    "no worker is running: {} waits for one. Start it with `berth worker`, or the server without --no-worker",
                    self.url()
                );
            }
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            done = progress::patiently("the server is reading the clouds", work) => done,
            never = look => match never {},
        }
    }

    async fn has_no_worker(&self) -> bool {
        let now = jiff::Timestamp::now();
        let lately = |worker: &pb::Worker| messages::maybe_time(&worker.seen_at).is_some_and(|at| is_present(at, now));
        let answer = self.client.tasks().workers(pb::ListWorkersRequest {}).await;
        answer.is_ok_and(|answer| !answer.into_inner().workers.iter().any(lately))
    }

    pub fn fail(&self, status: &Status) -> Failure {
        self.client.fault(status).into()
    }

    pub fn fault(&self, status: &Status) -> Fault {
        self.client.fault(status)
    }

    /// All resources that match a filter.
    pub async fn resources(&self, filter: &Filter) -> Result<Vec<StoredResource>, Failure> {
        let same = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        let all = self.list(request(filter)).await?;
        // The API cannot filter for an empty env or org, so it is done here.
        let kept = all.iter().map(messages::stored);
        Ok(kept.filter(|one| same(&filter.org, &one.id.org) && same(&filter.env, &one.id.env)).collect())
    }

    pub async fn list(&self, mut request: pb::ListRequest) -> Result<Vec<pb::Resource>, Failure> {
        request.page_size = PAGE;
        let mut all = Vec::new();
        let mut resources = self.client.resources();
        loop {
            let page = resources.list(request.clone()).await.map_err(|s| self.fail(&s))?.into_inner();
            page.resources.iter().for_each(|resource| self.note(resource));
            all.extend(page.resources);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// `None` if it does not exist or the caller may not see it.
    pub async fn get(&self, id: &ResourceId) -> Result<Option<pb::Resource>, Failure> {
        match self.client.resources().get(messages::get_request(id)).await {
            Ok(resource) => {
                self.note(resource.get_ref());
                Ok(Some(resource.into_inner()))
            }
            Err(status) => match self.fault(&status) {
                fault if fault.code == Code::NotFound => Ok(None),
                fault => Err(fault.into()),
            },
        }
    }

    pub async fn resource(&self, id: &ResourceId) -> Result<Option<StoredResource>, Failure> {
        Ok(self.get(id).await?.as_ref().map(messages::stored))
    }

    /// Reads several resources; `None` for those that do not exist.
    pub async fn several(&self, ids: &[ResourceId]) -> Result<Vec<(ResourceId, Option<pb::Resource>)>, Failure> {
        let asked = futures::stream::iter(ids.iter().cloned()).map(|id| async move {
            let found = self.get(&id).await?;
            Ok::<_, Failure>((id, found))
        });
        asked.buffered(AT_ONCE).try_collect().await
    }

    pub async fn units_of(&self, id: &ResourceId) -> Result<Vec<UnitState>, Failure> {
        let answer = self.client.resources().units(messages::get_request(id)).await.map_err(|s| self.fail(&s))?;
        Ok(answer.into_inner().units.into_iter().map(|unit| messages::unit(id, unit)).collect())
    }

    /// Newest first; nothing where nothing is known of the resource.
    pub async fn history(&self, id: &ResourceId, limit: u32) -> Result<Vec<HistoryLine>, Failure> {
        let mut lines = Vec::new();
        let mut page_token = String::new();
        while lines.len() < limit as usize {
            let request = pb::HistoryRequest {
                kind: id.kind.clone(),
                name: id.name.clone(),
                org: id.org.clone(),
                env: id.env.clone(),
                page_size: limit.min(PAGE),
                page_token,
            };
            let page = match self.client.resources().history(request).await {
                Ok(page) => page.into_inner(),
                Err(status) => match self.fault(&status) {
                    fault if fault.code == Code::NotFound => break,
                    fault => return Err(fault.into()),
                },
            };
            lines.extend(page.lines.into_iter().map(messages::history_line));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        lines.truncate(limit as usize);
        Ok(lines)
    }

    /// Several histories at once, each with its resource.
    pub async fn histories(
        &self,
        ids: Vec<ResourceId>,
        limit: u32,
    ) -> Result<Vec<(ResourceId, Vec<HistoryLine>)>, Failure> {
        let asked = futures::stream::iter(ids).map(|id| async move {
            let lines = self.history(&id, limit).await?;
            Ok::<_, Failure>((id, lines))
        });
        asked.buffered(AT_ONCE).try_collect().await
    }

    /// Secret outputs in the clear; the server records the access in its audit log.
    pub async fn secret_outputs(
        &self,
        id: &ResourceId,
        names: Vec<String>,
    ) -> Result<BTreeMap<String, SecretString>, Failure> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let request = pb::OutputsRequest {
            kind: id.kind.clone(),
            name: id.name.clone(),
            org: id.org.clone(),
            env: id.env.clone(),
            secrets: names.clone(),
        };
        let answer = self.client.resources().outputs(request).await.map_err(|s| self.fail(&s))?.into_inner();
        let mut outputs = messages::map(answer.outputs.as_ref());
        let text = |name: &String| match outputs.remove(name) {
            Some(serde_json::Value::String(text)) => Some((name.clone(), SecretString::from(text))),
            _ => None,
        };
        Ok(names.iter().filter_map(text).collect())
    }

    /// A cluster's kubeconfig.
    pub async fn kubeconfig(&self, id: &ResourceId) -> Result<SecretString, Failure> {
        let mut request = Request::new(messages::get_request(id));
        request.set_timeout(CLOUDS_WITHIN);
        let answer = self.client.resources().kubeconfig(request).await.map_err(|s| self.fail(&s))?;
        Ok(SecretString::from(answer.into_inner().kubeconfig))
    }

    /// Up to so many tasks, newest first.
    pub async fn tasks(&self, mut request: pb::ListTasksRequest, limit: usize) -> Result<Vec<pb::Task>, Failure> {
        let mut all: Vec<pb::Task> = Vec::new();
        let mut tasks = self.client.tasks();
        loop {
            let left = limit.saturating_sub(all.len());
            request.page_size = u32::try_from(left).unwrap_or(PAGE).min(PAGE);
            let page = tasks.list(request.clone()).await.map_err(|s| self.fail(&s))?.into_inner();
            all.extend(page.tasks);
            if page.next_page_token.is_empty() || all.len() >= limit {
                all.truncate(limit);
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// The newest events, newest first.
    pub async fn newest_events(&self, limit: u32) -> Result<Vec<pb::Event>, Failure> {
        let request = pb::ListEventsRequest { page_size: limit.min(PAGE), newest: true, ..Default::default() };
        let answer = self.client.events().list(request).await.map_err(|s| self.fail(&s))?;
        Ok(answer.into_inner().events)
    }

    /// Id of the newest event: a watch that begins after it misses nothing.
    pub async fn last_event(&self) -> Result<i64, Failure> {
        Ok(self.newest_events(1).await?.first().map_or(0, |event| event.id))
    }
}

/// Connects to the server that the arguments select, and does the work there.
pub fn with_server<T>(args: &ServerArgs, work: impl AsyncFnOnce(&Remote) -> Result<T, Failure>) -> Result<T, Failure> {
    let target = args.server()?;
    block_on(Threads::One, async { work(&Remote::open(target).await?).await })
}

/// The manifest of a resource on a server, as a file to apply again. An error if it holds secrets: the server does not give
/// them out.
pub fn kept_file(stored: &StoredResource) -> Result<pb::ManifestFile, Failure> {
    let manifest = stored.sealed_manifest()?;
    if holds_secrets(&manifest) {
        return Err(Failure::new(format!("{} holds secrets, which the server does not give out", stored.id))
            .help("apply the file that it is declared in:   berth apply -f FILE"));
    }
    let name = match stored.source.file.as_str() {
        "" => format!("{}.json", stored.id),
        file => file.to_owned(),
    };
    Ok(pb::ManifestFile { name, text: manifest.to_string() })
}

fn holds_secrets(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::String(text) => text == berth_model::REDACTED,
        Value::Array(items) => items.iter().any(holds_secrets),
        Value::Object(map) => map.values().any(holds_secrets),
        _ => false,
    }
}

fn request(filter: &Filter) -> pb::ListRequest {
    let text = |wanted: &Option<String>| wanted.clone().unwrap_or_default();
    pb::ListRequest {
        kind: text(&filter.kind),
        name: text(&filter.name),
        org: text(&filter.org),
        env: text(&filter.env),
        ..Default::default()
    }
}
