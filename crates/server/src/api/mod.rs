//! The services of the API, and what they share.

pub mod convert;
mod events;
pub mod front;
pub mod methods;
mod page;
pub mod rate;
pub mod resources;
mod select;
mod tasks;

use crate::limits::{ANSWER_BYTES_MAX, BODY_BYTES_MAX};
use crate::metrics::Metrics;
use crate::pb::events_server::EventsServer;
use crate::pb::resources_server::ResourcesServer;
use crate::pb::tasks_server::TasksServer;
use crate::start::Config;
use berth_store::Control;
use jiff::Timestamp;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::service::RoutesBuilder;

/// What every service of a server has in common.
pub struct Shared {
    pub control: Control,
    pub config: Config,
    pub metrics: Metrics,
    /// Cancelled when the server stops: whatever waits or streams ends.
    pub stop: CancellationToken,
    pub(crate) books: resources::Books,
    /// No other server writes to the same state.
    pub(crate) alone: bool,
}

impl Shared {
    pub fn new(control: Control, config: Config, stop: CancellationToken) -> Self {
        // A file of SQLite's has one server.
        let alone = !control.store().location().to_string().starts_with("postgres");
        Self { control, config, metrics: Metrics::default(), stop, books: resources::Books::default(), alone }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// What only the database knows, as it is now.
    pub(crate) async fn refresh_metrics(&self) {}
}

/// Adds every service.
pub(crate) fn add_services(routes: &mut RoutesBuilder, shared: &Arc<Shared>) {
    routes
        .add_service(
            ResourcesServer::new(resources::Service(shared.clone()))
                .max_decoding_message_size(BODY_BYTES_MAX)
                .max_encoding_message_size(ANSWER_BYTES_MAX)
                .accept_compressed(CompressionEncoding::Gzip)
                .send_compressed(CompressionEncoding::Gzip),
        )
        .add_service(TasksServer::new(tasks::Service(shared.clone())).send_compressed(CompressionEncoding::Gzip))
        .add_service(EventsServer::new(events::Service(shared.clone())));
}
