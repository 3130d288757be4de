//! The state file: JSON lines, one for each changed object, rewritten in short form at every start.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::SandboxError;
use crate::clock::Anchor;
use crate::table::AnyTable;

const FORMAT: u32 = 1;
/// An object of the clouds is a few kilobytes; a longer line is no line of ours.
const MAX_LINE_BYTES: usize = 16 << 20;

/// First line of the file.
#[derive(Serialize, Deserialize)]
pub struct Header {
    berth_sandbox: u32,
    pub clock: Anchor,
    /// Ids of the accounts: a state file is one account with each cloud. Empty in files of earlier versions.
    #[serde(default)]
    pub accounts: BTreeMap<String, String>,
    /// Creates and deletes ever, by type: compaction drops the lines that they could be counted from.
    pub totals: BTreeMap<String, (u64, u64)>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    type_name: String,
    seq: u64,
    #[serde(default)]
    object: Value,
}

/// Holds the file and its lock for as long as the sandbox runs.
pub struct Log {
    path: PathBuf,
    file: File,
    _lock: File,
}

/// A state file that is locked and read, but not yet written.
pub struct Opened {
    path: PathBuf,
    lock: File,
    /// `None` for a fresh file.
    pub header: Option<Header>,
}

impl Opened {
    /// Locks the file and replays it into the tables.
    pub fn open(path: &Path, tables: &mut [&mut dyn AnyTable]) -> Result<Opened, SandboxError> {
        let failed = |source: io::Error| SandboxError::State { path: path.to_owned(), source };
        let lock = private().read(true).truncate(false).open(beside(path, ".lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SandboxError::StateInUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let mut opened = Opened { path: path.to_owned(), lock, header: None };
        match File::open(path) {
            Ok(file) => opened.replay(file, tables)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(e)),
        }
        Ok(opened)
    }

    fn replay(&mut self, file: File, tables: &mut [&mut dyn AnyTable]) -> Result<(), SandboxError> {
        let path = self.path.clone();
        let by_type: BTreeMap<&str, usize> = tables.iter().enumerate().map(|(at, t)| (t.type_name(), at)).collect();
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let (mut buffer, mut number) = (Vec::new(), 0usize);
        loop {
            buffer.clear();
            let limit = MAX_LINE_BYTES as u64;
            let read = io::Read::take(&mut reader, limit)
                .read_until(b'\n', &mut buffer)
                .map_err(|source| SandboxError::State { path: path.clone(), source })?;
            // The last line may be torn: its answer was never sent, so the change never happened.
            if read == 0 || (buffer.last() != Some(&b'\n') && read < MAX_LINE_BYTES) {
                return Ok(());
            }
            number += 1;
            let bad = |reason: String| SandboxError::StateUnreadable { path: path.clone(), line: number, reason };
            if number == 1 {
                let header: Header = serde_json::from_slice(&buffer).map_err(|e| bad(e.to_string()))?;
                if header.berth_sandbox != FORMAT {
                    return Err(bad(format!("format {} is not known to this version", header.berth_sandbox)));
                }
                for (name, (created, deleted)) in &header.totals {
                    if let Some(&at) = by_type.get(name.as_str()) {
                        // Replaying the compacted rows counts each of them once more.
                        tables[at].set_totals(*created, *deleted);
                    }
                }
                self.header = Some(header);
                continue;
            }
            let line: Line = serde_json::from_slice(&buffer).map_err(|e| bad(e.to_string()))?;
            let Some(&at) = by_type.get(line.type_name.as_str()) else {
                return Err(bad(format!("unknown type `{}`", line.type_name)));
            };
            match line.object {
                Value::Null => tables[at].forget(line.seq),
                object => tables[at].restore(line.seq, object).map_err(|e| bad(e.to_string()))?,
            }
        }
    }

    /// Writes the short form beside the file and puts it in its place.
    pub fn compact(
        self,
        clock: Anchor,
        accounts: BTreeMap<String, String>,
        tables: &[&dyn AnyTable],
    ) -> Result<Log, SandboxError> {
        let failed = |source: io::Error| SandboxError::State { path: self.path.clone(), source };
        let mut text = Vec::new();
        let mut totals = BTreeMap::new();
        let mut rows = Vec::new();
        for table in tables {
            let before = rows.len();
            table.dump(&mut rows).map_err(|e| failed(e.into()))?;
            let live = rows[before..].iter().filter(|b| **b == b'\n').count() as u64;
            let (created, deleted) = table.totals();
            // Each row counts itself as created when it is read back.
            totals.insert(table.type_name().to_owned(), (created.saturating_sub(live), deleted));
        }
        let header = Header { berth_sandbox: FORMAT, clock, accounts, totals };
        serde_json::to_writer(&mut text, &header).map_err(|e| failed(e.into()))?;
        text.push(b'\n');
        text.extend_from_slice(&rows);

        let fresh = beside(&self.path, ".new");
        let mut file = private().truncate(true).open(&fresh).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&fresh, &self.path).map_err(failed)?;
        let file = OpenOptions::new().append(true).open(&self.path).map_err(failed)?;
        Ok(Log { path: self.path, file, _lock: self.lock })
    }
}

impl Log {
    pub fn append(&mut self, lines: &[u8]) -> Result<(), SandboxError> {
        self.file.write_all(lines).map_err(|source| SandboxError::State { path: self.path.clone(), source })
    }

    /// Lets a test see what a full disk does.
    #[cfg(test)]
    pub fn write_to(&mut self, file: File) {
        self.file = file;
    }
}

/// The state holds kubeconfigs' keys and names of real projects: for the owner's eyes only.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
