//! What can go wrong with the state, each with its place; the cure is kept apart in [`StoreError::help`].

use crate::lock::Holder;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state's folder, file or lock cannot be made or opened.
    #[error("cannot {doing} {path}")]
    File { doing: &'static str, path: PathBuf, source: std::io::Error },
    /// Only looking was asked for, and there is nothing to look at.
    #[error("there is no state at {path}")]
    Missing { path: PathBuf },
    /// The file is there, and SQLite cannot open it.
    #[error("cannot open the state {path}")]
    Open { path: PathBuf, source: sqlx::Error },
    #[error("{path} is not a state of Berth's")]
    Foreign { path: PathBuf },
    #[error("the state {path} has schema {found}, and this berth knows schemas up to {known}")]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// Another run has the right to write.
    #[error("the state {path} is in use by {holder}")]
    Locked { path: PathBuf, holder: Holder },
    /// The key was given and is not one, or cannot be read or kept.
    #[error("the encryption key from {place} cannot be used: {cause}")]
    Key { place: String, cause: String },
    /// The state is sealed and the place where its key should be is empty.
    #[error("the state {path} is encrypted, and its key is not at {place}")]
    KeyMissing { path: PathBuf, place: String },
    #[error("the key from {place} is not the one that {path} is encrypted with")]
    WrongKey { path: PathBuf, place: String },
    /// A sealed value does not open where it stands: it was moved or damaged.
    #[error("a secret of {of} cannot be decrypted: it was moved or damaged")]
    Sealed { of: String },
    #[error("the state holds something unreadable in {of}: {cause}")]
    Corrupt { of: String, cause: String },
    /// What should be written is larger than the state takes.
    #[error("{what} is {bytes} bytes long, and at most {limit} can be kept")]
    TooLarge { what: String, bytes: usize, limit: usize },
    #[error("{of} is not in the state")]
    Unknown { of: String },
    #[error("journal entry {entry} is not open")]
    NotOpen { entry: i64 },
    #[error("this run lost its right to write: another one has taken over")]
    Fenced,
    #[error("this run has ended")]
    Ended,
    /// A query failed for reasons of the disk or the database.
    #[error("cannot read or write the state: {0}")]
    Database(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.to_string())
    }
}

impl StoreError {
    /// What to check and what to type.
    pub fn help(&self) -> Vec<String> {
        let lines: &[&str] = match self {
            Self::File { .. } | Self::Open { .. } => {
                &["check that the folder exists, is yours, and has room; `--state FILE` chooses another place"]
            }
            Self::Missing { .. } => &["apply something first, or choose another state with `--state FILE`"],
            Self::Foreign { .. } => &["choose another file with `--state FILE`"],
            Self::Newer { .. } => &["use the berth that wrote it, or a newer one"],
            Self::Locked { .. } => &["wait until it is done; the lock is freed by itself when that process ends"],
            Self::Key { .. } => &["a key is 32 bytes in base64 or hex: make one with `openssl rand -base64 32`"],
            Self::KeyMissing { .. } | Self::WrongKey { .. } => &[
                "give the key that the state was made with: set BERTH_KEY, or BERTH_KEY_FILE to the file that holds it",
                "without that key the secrets in this state are lost; another state can be chosen with `--state FILE`",
            ],
            Self::Sealed { .. } | Self::Corrupt { .. } => &["restore the state from a backup"],
            Self::Fenced => &["wait until the other run is done, then run the same command again"],
            Self::Database(_) => &["check that the disk has room and works, then run the same command again"],
            Self::TooLarge { .. } | Self::Unknown { .. } | Self::NotOpen { .. } | Self::Ended => &[],
        };
        lines.iter().map(|line| (*line).to_owned()).collect()
    }
}
