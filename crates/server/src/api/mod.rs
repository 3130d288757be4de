//! The services of the API, and what they share.

pub mod arguments;
mod events;
pub mod front;
pub mod messages;
pub mod methods;
pub(crate) mod page;
mod public_slots;
pub mod rate;
pub mod resources;
mod select;
mod tasks;

use crate::limits::{ANSWER_BYTES_MAX, BODY_BYTES_MAX};
use crate::metrics::Metrics;
use crate::pb::events_server::EventsServer;
use crate::pb::resources_server::ResourcesServer;
use crate::pb::tasks_server::TasksServer;
use crate::policy_cache::PolicyCache;
use crate::start::Config;
use crate::tasks::is_present;
use berth_clouds::accounts::Declared;
use berth_clouds::address;
use berth_engine::handler::{Outcome, Trouble};
use berth_store::{Control, StoreError};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::service::RoutesBuilder;

/// Figures that the database is asked for are this old at most.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// What every service of a server has in common.
pub struct ServerState {
    pub control: Control,
    pub config: Config,
    pub metrics: Metrics,
    /// Cancelled when the server stops: whatever waits or streams ends.
    pub stop: CancellationToken,
    pub(crate) policy_cache: PolicyCache,
    pub controller: crate::controller::Health,
    /// No other server writes to the same state.
    pub(crate) alone: bool,
    /// When the database was last asked for figures.
    counted: Mutex<Option<Instant>>,
}

impl ServerState {
    pub fn new(control: Control, config: Config, stop: CancellationToken) -> Self {
        let alone = !control.store().location().is_shared();
        let metrics = Metrics::default();
        let told = metrics.clone();
        control.observe_batches(Box::new(move |operations, took| told.wrote(operations, took)));
        let (policy_cache, counted) = (PolicyCache::default(), Mutex::default());
        let controller = crate::controller::Health::default();
        Self { control, config, metrics, stop, policy_cache, controller, alone, counted }
    }

    /// Its clouds are simulated: every answer says so.
    pub fn is_sandbox(&self) -> bool {
        self.config.simulated.is_some()
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Whether an Account's address is one that this server lets its workers call. Simulated clouds are all that a simulated
    /// server's workers call, whatever an Account says.
    pub fn allow_url(&self, account: &Declared) -> Outcome<()> {
        let Some(url) = account.api_url.as_deref().filter(|_| self.config.simulated.is_none()) else { return Ok(()) };
        let asked = address::origin(url);
        if asked.is_some()
            && asked
                == berth_clouds::registry::find(&account.provider).ok().and_then(|cloud| address::origin(cloud.api_url))
        {
            return Ok(());
        }
        address::check(url)?;
        match asked.is_some() && self.config.allow_api_urls.iter().any(|allowed| address::origin(allowed) == asked) {
            true => Ok(()),
            false => Err(Trouble::refused(format!("this server lets no Account name the address {url}"))
                .help(format!("leave it out for the cloud's own, or start the server with --allow-api-url {url}"))),
        }
    }

    /// What only the database knows, not older than a few seconds: counting looks at every resource.
    pub(crate) async fn refresh_metrics(&self) {
        let mut counted = self.counted.lock().await;
        if counted.is_some_and(|at| at.elapsed() < COUNT_EVERY) {
            return;
        }
        *counted = Some(Instant::now());
        let control = &self.control;
        let asked = async { Ok::<_, StoreError>((control.counts().await?, control.workers().await?)) };
        match asked.await {
            Ok((counts, workers)) => {
                let of = |state: &str| counts.tasks.iter().find(|(one, _)| one == state).map_or(0, |(_, count)| *count);
                self.metrics.queue.set(of("queued"));
                self.metrics.running.set(of("running"));
                Metrics::set(&self.metrics.resources, counts.resources);
                Metrics::set(&self.metrics.tasks, counts.tasks);
                let now = self.now();
                let seen = workers.iter().filter(|worker| is_present(worker.seen_at, now)).count();
                self.metrics.workers.set(i64::try_from(seen).unwrap_or(i64::MAX));
            }
            Err(error) => tracing::warn!(%error, "the database could not be asked for figures"),
        }
    }
}

/// Adds every service.
pub(crate) fn add_services(routes: &mut RoutesBuilder, server: &Arc<ServerState>) {
    routes
        .add_service(
            ResourcesServer::new(resources::Service(server.clone()))
                .max_decoding_message_size(BODY_BYTES_MAX)
                .max_encoding_message_size(ANSWER_BYTES_MAX)
                .send_compressed(CompressionEncoding::Gzip),
        )
        .add_service(TasksServer::new(tasks::Service(server.clone())).send_compressed(CompressionEncoding::Gzip))
        .add_service(EventsServer::new(events::Service::new(server.clone())));
}
