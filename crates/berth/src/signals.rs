//! Signals that end a program.

use crate::failure::Failure;

/// Ctrl-C, or the signal that a supervisor or `berth sandbox --stop` sends.
pub struct StopSignal {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl StopSignal {
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

/// Waits for Ctrl-C or a request to terminate; `false` where signals cannot be received.
pub async fn signal() -> bool {
    let Ok(mut term) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else { return false };
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.is_ok(),
        _ = term.recv() => true,
    }
}
