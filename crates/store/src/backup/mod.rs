//! Backups: everything in a state as JSON lines, encrypted by age, from one snapshot while servers run. A restore takes it
//! into either database, whole or not at all.
//!
//! ```text
//! {"backup":"berth","format":2,"schema":2,"source":"sqlite","at":"…","tables":[{"name":"meta","columns":[…],"rows":3},…]}
//! {"keyRing":"…"}                    the keys, or null
//! ["…",1,true,null]                  one line for each row, table by table
//! {"end":true,"rows":3,"sha256":"…","key":"…","hmac":"…"} of all bytes before it
//! ```
//!
//! Anyone can encrypt something for a public key of age's. So the last line has a code that only a key of the state's ring can make,
//! and a restore checks it with a ring that did not come with the backup. In format 1 there was none.

mod origin;
mod read;
mod restore;
mod write;

pub use origin::{Access, Origin};
pub use restore::{RestoreOptions, Restored, restore};
pub use write::Backup;

use crate::error::StoreError;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The layout of the lines. A reader refuses what is newer.
const FORMAT: u32 = 2;
/// The first one with an authentication code.
const FORMAT_AUTHENTIC: u32 = 2;
/// One line: a row with the largest manifest, outputs and secrets that the state takes.
const LINE_BYTES_MAX: u64 = 128 << 20;
/// The factor that age's own tool uses for passphrases: about a second, and 256 MiB for that long.
const WORK_FACTOR: u8 = 18;
/// What a reader will work for at most.
const WORK_FACTOR_MAX: u8 = 22;
/// How often progress is told.
const TOLD_EVERY_ROWS: u64 = 1000;

/// Who will be able to read a backup.
pub enum Recipients {
    /// Public keys of age: `age1…`.
    Keys(Vec<String>),
    Passphrase(SecretString),
}

/// What opens a backup.
pub enum Identity {
    /// The text of age's identity files: `AGE-SECRET-KEY-1…` on a line of its own.
    Keys(SecretString),
    Passphrase(SecretString),
}

/// How far a backup or a restore is.
#[derive(Clone, Debug)]
pub struct BackupProgress<'a> {
    pub table: &'a str,
    pub rows: u64,
    pub rows_in_all: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot {doing} the backup")]
    File { doing: &'static str, source: std::io::Error },
    #[error("`{0}` is no public key of age's")]
    Recipient(String),
    #[error("the identity file holds no key of age's")]
    Identity,
    #[error("this is not a backup of Berth's: {0}")]
    NotBackup(&'static str),
    #[error("the passphrase does not open this backup")]
    WrongPassphrase,
    #[error("the identity does not open this backup")]
    WrongIdentity,
    #[error("this backup is opened with {needed}, not with {given}")]
    OtherIdentity { needed: &'static str, given: &'static str },
    #[error("the backup is cut off: its end is missing")]
    Truncated,
    #[error("the backup is damaged: {0}")]
    Damaged(String),
    #[error("the backup has format {found}, and this berth knows formats up to {known}")]
    NewerFormat { found: u32, known: u32 },
    #[error("the backup has schema {found}, and this berth knows schemas up to {known}")]
    NewerSchema { found: i64, known: i64 },
    #[error("nothing shows who made the backup: it is of a version that did not authenticate backups")]
    NoCode,
    #[error(
        "nothing shows who made the backup: it is authenticated with the key {key}, which is not in the key ring from {place}"
    )]
    OtherKey { key: String, place: String },
    #[error("the backup was changed or forged: it names the key {key}, which did not authenticate it")]
    Forged { key: String },
    #[error("{state} is not empty")]
    NotEmpty { state: String },
    #[error("the backup holds no keys, and the key ring from {place} does not open what is in it")]
    KeyElsewhere { place: String },
    #[error("the backup's keys are not in the key ring from {place}, which cannot be written")]
    RingNotWritable { place: String },
}

impl BackupError {
    pub fn help(&self) -> Vec<String> {
        let lines: &[&str] = match self {
            Self::Store(error) => return error.help(),
            Self::Recipient(_) => &["a public key is what `age-keygen` prints: `age1…`; several are given one by one"],
            Self::Identity => &["give the file that `age-keygen -o FILE` wrote, with a line `AGE-SECRET-KEY-1…`"],
            Self::WrongPassphrase => &["the passphrase is the first line of the file, without its line break"],
            Self::WrongIdentity => &["give the identity whose public key the backup was made for"],
            Self::OtherIdentity { .. } => {
                &["give `--identity FILE` or `--passphrase-file FILE`, as the backup was made"]
            }
            Self::Truncated | Self::Damaged(_) => {
                &["nothing was restored; take another copy of the backup, or an older one"]
            }
            Self::NoCode => &[
                "nothing was restored; if you know where it comes from, add --accept-unauthenticated: it lists the access that comes \
                 with it",
            ],
            Self::OtherKey { .. } => &[
                "nothing was restored; give the key ring of the state that was backed up, kept apart from the backup, with \
                 --key-file FILE",
                "if it is lost and you know where the backup comes from, add --accept-unauthenticated: it lists the access that \
                 comes with it",
            ],
            Self::Forged { .. } => &["nothing was restored; take another copy of the backup, or an older one"],
            Self::NewerFormat { .. } | Self::NewerSchema { .. } => &["use the berth that made it, or a newer one"],
            Self::NotEmpty { .. } => &["restore into a new database, or replace this one with `--replace`"],
            Self::KeyElsewhere { .. } => &["give the key ring of the state that was backed up with `--key-file FILE`"],
            Self::RingNotWritable { .. } => {
                &["say where the keys are to be written with `--key-file FILE`, and give that file to the server"]
            }
            Self::File { .. } | Self::NotBackup(_) => &[],
        };
        lines.iter().map(|line| (*line).to_owned()).collect()
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    /// `berth`.
    backup: String,
    format: u32,
    schema: i64,
    /// `sqlite` or `postgres`.
    source: String,
    at: String,
    berth: String,
    tables: Vec<HeaderTable>,
}

#[derive(Serialize, Deserialize)]
struct HeaderTable {
    name: String,
    columns: Vec<String>,
    rows: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyLine {
    key_ring: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trailer {
    end: bool,
    rows: u64,
    sha256: String,
    /// The id of the key of the code; empty in format 1.
    #[serde(default)]
    key: String,
    #[serde(default)]
    hmac: String,
}

/// Where a file for the backup is made before it gets its name.
pub(crate) fn half_made(path: &std::path::Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    name.into()
}
