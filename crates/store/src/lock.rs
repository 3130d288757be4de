//! The exclusive right to write, which ends when its process ends, however it ends: beside a file a lock of the operating
//! system's, in PostgreSQL an advisory lock that the server keeps for as long as the connection lasts.

use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::location::{Kind, Location};
use crate::{files, sql};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a lock in PostgreSQL may be held by a run that is already over.
const DEAD_RUN_ENDS_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A lock file holds one short line.
const HOLDER_BYTES_MAX: u64 = 4096;
const COMMAND_CHARS_MAX: usize = 500;

/// Who has the right to write, by their own word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: Option<u32>,
    /// The machine, where the state can be used from several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub command: String,
    pub since: Option<Timestamp>,
}

impl Holder {
    fn this(command: &str, host: Option<String>) -> Self {
        let command = command.chars().take(COMMAND_CHARS_MAX).collect();
        Self { pid: Some(std::process::id()), host, command, since: Some(Timestamp::now()) }
    }

    fn line(&self) -> std::io::Result<String> {
        serde_json::to_string(self).map_err(std::io::Error::other)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(pid), Some(since)) = (self.pid, self.since) else { return f.write_str("another process") };
        let since = since.round(jiff::Unit::Second).unwrap_or(since);
        match &self.host {
            Some(host) => write!(f, "`{}` (process {pid} on {host}) since {since}", self.command),
            None => write!(f, "`{}` (process {pid}) since {since}", self.command),
        }
    }
}

/// The right to write.
pub(crate) enum Lock {
    File(FileLock),
    /// Held by the connection; who holds it is a row, which counts for nothing but the message.
    Session {
        holder: String,
    },
    /// Held by the connection of each server.
    Shared,
}

impl Lock {
    /// The lock, and the connection to write by.
    pub async fn take(location: &Location, command: &str) -> Result<(Connection, Self), StoreError> {
        if let Kind::Sqlite(path) = &location.0 {
            let lock = FileLock::take(path, command)?;
            return Ok((Connection::open(location).await?, Self::File(lock)));
        }
        let mut connection = Connection::open(location).await?;
        // The server frees a dead run's lock a moment after its connection broke.
        let until = Instant::now() + DEAD_RUN_ENDS_WITHIN;
        while !Query::new(sql::POSTGRES_RUN_LOCK).fetch_one(&mut connection).await?.get::<bool>(0)? {
            if Instant::now() < until {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            let row = Query::new(sql::HOLDER).fetch_optional(&mut connection).await?;
            let line: String = row.map(|row| row.get(0)).transpose()?.unwrap_or_default();
            let holder = serde_json::from_str(&line).unwrap_or_default();
            return Err(StoreError::Locked { state: location.to_string(), holder });
        }
        Query::new(sql::POSTGRES_DURABLE).fetch_optional(&mut connection).await?;
        let line = Holder::this(command, host()).line();
        Ok((connection, Self::Session { holder: line.map_err(|error| StoreError::Database(error.to_string()))? }))
    }

    /// A server's: it keeps runs out. A file has one server, a database any number.
    pub async fn share(location: &Location, command: &str) -> Result<(Connection, Self), StoreError> {
        // One that just ended frees its lock a moment later.
        let until = Instant::now() + DEAD_RUN_ENDS_WITHIN;
        if let Kind::Sqlite(path) = &location.0 {
            loop {
                match FileLock::take(path, command) {
                    Ok(lock) => return Ok((Connection::open(location).await?, Self::File(lock))),
                    Err(StoreError::Locked { .. }) if Instant::now() < until => tokio::time::sleep(LOOK_AGAIN).await,
                    Err(error) => return Err(error),
                }
            }
        }
        let mut connection = Connection::open(location).await?;
        while !Query::new(sql::POSTGRES_SERVER_LOCK).fetch_one(&mut connection).await?.get::<bool>(0)? {
            if Instant::now() < until {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            let row = Query::new(sql::HOLDER).fetch_optional(&mut connection).await?;
            let line: String = row.map(|row| row.get(0)).transpose()?.unwrap_or_default();
            return Err(StoreError::Locked {
                state: location.to_string(),
                holder: serde_json::from_str(&line).unwrap_or_default(),
            });
        }
        Query::new(sql::POSTGRES_DURABLE).fetch_optional(&mut connection).await?;
        connection.run(sql::POSTGRES_WRITER).await?;
        Ok((connection, Self::Shared))
    }

    /// Records the holder, to be shown to other processes.
    pub async fn sign(&self, connection: &mut Connection) -> Result<(), StoreError> {
        if let Self::Session { holder } = self {
            Query::new(sql::SET_HOLDER).bind(holder).execute(connection).await?;
        }
        Ok(())
    }

    /// Closes the connection and frees the lock; both are done when it returns.
    pub async fn release(self, mut connection: Connection) -> Result<(), StoreError> {
        let file = match self {
            Self::File(file) => Some(file),
            Self::Session { holder } => {
                Query::new(sql::CLEAR_HOLDER).bind(&holder).execute(&mut connection).await?;
                // Closing frees it too, but a little later.
                connection.run(sql::POSTGRES_RUN_UNLOCK).await?;
                None
            }
            Self::Shared => {
                connection.run(sql::POSTGRES_SERVER_UNLOCK).await?;
                None
            }
        };
        let closed = connection.close().await;
        drop(file);
        closed
    }
}

fn host() -> Option<String> {
    #[cfg(unix)]
    return Some(rustix::system::uname().nodename().to_string_lossy().into_owned());
    #[cfg(not(unix))]
    std::env::var("COMPUTERNAME").ok()
}

/// Held until it is dropped.
pub(crate) struct FileLock {
    file: File,
}

/// `state.db` → `state.db.lock`.
fn lock_path(state: &Path) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl FileLock {
    fn take(state: &Path, command: &str) -> Result<Self, StoreError> {
        let path = lock_path(state);
        let failed = |doing| {
            let path = path.clone();
            move |source| StoreError::File { doing, path, source }
        };
        let file =
            files::private_file().create(true).truncate(false).open(&path).map_err(failed("open the lock file"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked { state: state.display().to_string(), holder: read_holder(&file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
        let mut lock = Self { file };
        lock.write_holder(&Holder::this(command, None)).map_err(failed("write the lock file"))?;
        Ok(lock)
    }

    fn write_holder(&mut self, holder: &Holder) -> std::io::Result<()> {
        let line = holder.line()?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(line.as_bytes())
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The file stays: removing it would let two processes lock two files of the same name.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// What cannot be read is shown as an unknown holder: the lock itself is what counts.
fn read_holder(file: &File) -> Holder {
    let mut text = String::new();
    let mut limited = file.take(HOLDER_BYTES_MAX);
    match limited.read_to_string(&mut text) {
        Ok(_) => serde_json::from_str(&text).unwrap_or_default(),
        Err(_) => Holder::default(),
    }
}
