//! What Berth remembers: resources, units, journal, events and secrets, in one SQLite file or in a schema of a
//! PostgreSQL database.
//!
//! Anyone may read at any time. Writing needs a [`Run`]: an exclusive lock, and a fence that each write checks in its own
//! transaction. Every write is on disk before its call returns. Secrets are sealed before they reach the database.

#[macro_use]
mod sql;
mod backup;
mod catalog;
mod control;
mod db;
mod default_path;
mod encode;
mod error;
mod files;
mod key;
mod key_command;
mod keyring;
mod location;
mod lock;
mod rotate;
mod row_writes;
mod rows;
mod run;
mod run_writer;
mod schema;
mod seal;
mod sealed_columns;
mod sealed_place;
mod store;
mod unlock;

pub use backup::{
    Access, Backup, BackupError, BackupProgress, Identity, Origin, Recipients, RestoreOptions, Restored, restore,
};
pub use control::counts::{BatchObserver, Counts};
pub use control::types::*;
pub use control::{APPLY_MAX, Control, LIST_MAX, REVISIONS_KEPT};
pub use default_path::default_path;
pub use error::StoreError;
pub use key::{KeySource, write_ring};
pub use keyring::{KEYS_MAX, KeyRing};
pub use location::Location;
pub use lock::Holder;
pub use rotate::{RotateFrom, RotateProgress, RotateStep, Rotated};
pub use rows::{Entries, Event, Filter, HistoryChange, HistoryLine, JournalEntry, ManifestSource, StoredResource};
pub use run::{NewResource, Run};
pub use seal::PREFIX as SEALED_PREFIX;
pub use store::{LINES_MAX, Options, Store};

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
