//! The services of the API, and what they share.

pub mod front;
pub mod methods;
pub mod rate;

use crate::metrics::Metrics;
use crate::start::Config;
use berth_store::Control;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

/// What every service of a server has in common.
pub struct Shared {
    pub control: Control,
    pub config: Config,
    pub metrics: Metrics,
    /// Cancelled when the server stops: whatever waits or streams ends.
    pub stop: CancellationToken,
}

impl Shared {
    pub fn new(control: Control, config: Config, stop: CancellationToken) -> Self {
        Self { control, config, metrics: Metrics::default(), stop }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Adds every service that is built.
pub(crate) fn add_services(_routes: &mut tonic::service::RoutesBuilder, _shared: &std::sync::Arc<Shared>) {}

impl Shared {
    /// What only the database knows, as it is now.
    pub(crate) async fn refresh_metrics(&self) {}
}
