//! Errors of the state; what to do about them is in [`StoreError::help`].

use crate::location::{Kind, Location};
use crate::lock::Holder;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state's folder, file or lock cannot be made or opened.
    #[error("cannot {doing} {path}")]
    File { doing: &'static str, path: PathBuf, source: std::io::Error },
    /// Only looking was asked for, and there is nothing to look at.
    #[error("there is no state at {state}")]
    Missing { state: String },
    /// What was given as `sqlite:…` or `postgres://…` is neither.
    #[error("the database's address cannot be used: {cause}")]
    Address { cause: String },
    /// The file is there, and SQLite cannot open it.
    #[error("cannot open the state {state}")]
    Open { state: String, source: sqlx::Error },
    /// The PostgreSQL server does not answer, or does not let us in.
    #[error("cannot connect to {state}")]
    Connect { state: String, source: sqlx::Error },
    #[error("{state} is not a state of Berth's")]
    Foreign { state: String },
    #[error("the state {state} has schema {found}, and this berth knows schemas up to {known}")]
    Newer { state: String, found: i64, known: i64 },
    /// Another run has the right to write.
    #[error("the state {state} is in use by {holder}")]
    Locked { state: String, holder: Holder },
    /// Servers own the state: what is wanted goes through them.
    #[error("the state {state} is a server's")]
    Server { state: String },
    /// The key was given and is not one, or cannot be read or kept.
    #[error("the encryption key from {place} cannot be used: {cause}")]
    Key { place: String, cause: String },
    /// The state is sealed and the place where its key should be is empty.
    #[error("the state {state} is encrypted, and its key is not at {place}")]
    KeyMissing { state: String, place: String },
    #[error("the key from {place} is not the one that {state} is encrypted with")]
    WrongKey { state: String, place: String },
    #[error("the key file {place} can be read by others (mode {mode:03o})")]
    KeyFileOpen { place: String, mode: u32 },
    /// Berth writes it when it makes or upgrades a state, and never takes it away.
    #[error("`{mark}` is missing from {state}: someone took it out of the database")]
    MarkGone { state: String, mark: &'static str },
    /// A sealed value does not open where it stands: it was moved, damaged, or put back from an earlier time.
    #[error("a secret of {of} cannot be decrypted: it was moved, damaged, or is an earlier one that was put back")]
    Sealed { of: String },
    /// The ring was changed too early, or has not come to this machine yet.
    #[error("a secret of {of} is sealed with the key {key}, which is not in the key ring")]
    KeyUnknown { of: String, key: String },
    /// A rotation has done all but these.
    #[error("{count} secrets could not be sealed with the new key; the first: {first}")]
    NotRotated { count: u64, first: String },
    #[error("{count} secrets were sealed with an old key while they were being sealed with the new one")]
    OldKeyInUse { count: u64 },
    #[error("{of} cannot be read from the state: {cause}")]
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
    /// The connection to the database broke. For a run it is the end: the right to write went with it.
    #[error("the connection to the database broke: {0}")]
    Lost(String),
    /// A query failed for reasons of the disk or the database.
    #[error("cannot read or write the state: {0}")]
    Database(String),
}

impl StoreError {
    /// Whether it is the trouble of one row, and not of the database: what else is stored can be read.
    pub fn is_of_one_row(&self) -> bool {
        matches!(self, Self::Sealed { .. } | Self::KeyUnknown { .. } | Self::Corrupt { .. })
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        if broken(&error) { Self::Lost(error.to_string()) } else { Self::Database(error.to_string()) }
    }
}

/// Whether nothing more can be said on this connection.
fn broken(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        // Connection exceptions, a server that stops or starts, and one that would wait no longer for us.
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| code.len() == 5 && ["08", "57P", "25P03", "25P04"].iter().any(|c| code.starts_with(c))),
        _ => false,
    }
}

impl StoreError {
    pub(crate) fn open(location: &Location, source: sqlx::Error) -> Self {
        let state = location.to_string();
        match location.0 {
            Kind::Sqlite(_) => Self::Open { state, source },
            Kind::Postgres(_) => Self::Connect { state, source },
        }
    }

    /// The same again, for each of many that share a fate.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Fenced => Self::Fenced,
            Self::Ended => Self::Ended,
            Self::Lost(cause) => Self::Lost(cause.clone()),
            Self::Database(cause) => Self::Database(cause.clone()),
            Self::NotOpen { entry } => Self::NotOpen { entry: *entry },
            Self::Unknown { of } => Self::Unknown { of: of.clone() },
            other => Self::Database(other.to_string()),
        }
    }

    /// What to check and what to type.
    pub fn help(&self) -> Vec<String> {
        let lines: &[&str] = match self {
            Self::File { .. } | Self::Open { .. } => {
                &["check that the folder exists, is yours, and has room; `--state FILE` chooses another place"]
            }
            Self::Missing { .. } => &["apply something first, or choose another state with `--state FILE`"],
            Self::Foreign { .. } => &["choose another file with `--state FILE`"],
            Self::Address { .. } => &["write `sqlite:PATH` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`"],
            Self::Connect { .. } => &[
                "check that the server runs and can be reached, and that the database, user and password are right",
                "a server elsewhere must prove who it is: add `sslrootcert=FILE` for a certificate authority of your own, \
                 or `sslmode=require` or `disable` where the network is trusted",
            ],
            Self::Newer { .. } => &["use the berth that wrote it, or a newer one"],
            Self::Locked { .. } => &["wait until it is done; the lock is freed by itself when that process ends"],
            Self::Server { .. } => &[
                "log in to its server with `berth login URL`; commands then go there",
                "or choose another state with `--state FILE`",
            ],
            Self::Key { .. } => &[
                "a key is 32 bytes in base64 or hex, such as `openssl rand -base64 32` makes; a key ring has one on each line, \
                 with its id before it",
            ],
            Self::KeyMissing { .. } | Self::WrongKey { .. } => &[
                "give the key that the state was made with: set BERTH_KEY, or BERTH_KEY_FILE to the file that holds it",
                "without that key the secrets in this state are lost; another state can be chosen with `--state FILE`",
            ],
            Self::KeyFileOpen { place, .. } => {
                return vec![
                    format!("to keep it to its owner:   chmod 600 {place}"),
                    "a file that root owns and gives to this process's group alone (0440, as Kubernetes and systemd hand \
                     secrets out) is accepted"
                        .into(),
                ];
            }
            Self::MarkGone { .. } => {
                &["restore the state from a backup: without it, what is in the state proves nothing"]
            }
            Self::KeyUnknown { .. } => &[
                "add that key to the ring that this command or server reads; running servers read it again by themselves",
            ],
            Self::NotRotated { .. } => &["keep the old keys in the ring until these are repaired or restored"],
            Self::OldKeyInUse { .. } => {
                &["see to it that every server reads the new key ring, then run the same command again"]
            }
            Self::Sealed { .. } | Self::Corrupt { .. } => &["restore the state from a backup"],
            Self::Fenced => &["wait until the other run is done, then run the same command again"],
            Self::Lost(_) => {
                &["check that the database server runs and can be reached, then run the same command again"]
            }
            Self::Database(_) => &[
                "check that the disk has room and works, and that the database lets its user read, write and make tables; \
                 then run the same command again",
            ],
            Self::TooLarge { .. } | Self::Unknown { .. } | Self::NotOpen { .. } | Self::Ended => &[],
        };
        lines.iter().map(|line| (*line).to_owned()).collect()
    }
}
