//! When a program that serves is to end.

use crate::failure::Failure;

/// Ctrl-C, or the signal that a supervisor or `berth sandbox --stop` sends.
pub struct Ends {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Ends {
    pub fn listen() -> Result<Self, Failure> {
        Ok(Self {
            #[cfg(unix)]
            terminate: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
                .map_err(|error| Failure::caused("cannot listen for signals", &error))?,
        })
    }

    pub async fn wait(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "cannot listen for Ctrl-C");
        }
    }
}
