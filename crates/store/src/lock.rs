//! The exclusive right to write: a lock of the operating system's, which is freed when its process ends, however it ends.

use crate::error::StoreError;
use crate::files;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// A lock file holds one short line.
const HOLDER_BYTES_MAX: u64 = 4096;
const COMMAND_CHARS_MAX: usize = 500;

/// Who has the right to write, as its lock file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: Option<u32>,
    pub command: String,
    pub since: Option<Timestamp>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(pid), Some(since)) = (self.pid, self.since) else { return f.write_str("another process") };
        let since = since.round(jiff::Unit::Second).unwrap_or(since);
        write!(f, "`{}` (process {pid}) since {since}", self.command)
    }
}

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

/// `state.db` → `state.db.lock`.
pub(crate) fn lock_path(state: &Path) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl Lock {
    pub fn take(state: &Path, command: &str) -> Result<Self, StoreError> {
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
                return Err(StoreError::Locked { path: state.into(), holder: read_holder(&file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
        let holder = Holder {
            pid: Some(std::process::id()),
            command: command.chars().take(COMMAND_CHARS_MAX).collect(),
            since: Some(Timestamp::now()),
        };
        let mut lock = Self { file };
        lock.write_holder(&holder).map_err(failed("write the lock file"))?;
        Ok(lock)
    }

    fn write_holder(&mut self, holder: &Holder) -> std::io::Result<()> {
        let line = serde_json::to_string(holder).map_err(std::io::Error::other)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(line.as_bytes())
    }
}

impl Drop for Lock {
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
