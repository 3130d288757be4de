//! Why a cluster's real control plane does not serve.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum RealError {
    #[error(
        "{limit} clusters of this sandbox have a real control plane, and no more can; delete one, or start the sandbox without --kube-bin"
    )]
    Full { limit: usize },
    #[error("the sandbox is stopping")]
    Stopping,
    #[error("the cluster was deleted")]
    Gone,
    #[error("{program} cannot be started: {source}")]
    Start { program: &'static str, source: io::Error },
    #[error("{program} ended ({status}): {said} [{}]", log.display())]
    Ended { program: &'static str, status: String, said: String, log: PathBuf },
    #[error("{program} was not ready within {seconds} s [{}]", log.display())]
    NotReady { program: &'static str, seconds: u64, log: PathBuf },
    #[error("files of the control plane in {}: {source}", folder.display())]
    Files { folder: PathBuf, source: io::Error },
    #[error("certificates of the control plane: {0}")]
    Certificates(String),
    #[error("the API server does not answer: {0}")]
    NoAnswer(String),
    #[error("{method} {path} was answered with {status}: {message}")]
    Refused { method: String, path: String, status: u16, message: String },
}
