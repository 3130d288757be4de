//! The types that reads of the state return, and how they are made from rows.

use crate::db::Row;
use crate::error::StoreError;
use crate::sealed_place::SealNumber;
use berth_engine::record::Status;
use berth_engine::unit::{Identity, Props, UnitState};
use berth_engine::{KnownResource, ResourceState};
use berth_model::{Manifest, ResourceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a manifest came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestSource {
    /// As the user named it; empty for standard input.
    pub file: String,
    /// Which document of the file, from 0.
    pub document: u32,
}

/// A resource as the state knows it.
#[derive(Clone, Debug)]
pub struct StoredResource {
    pub id: ResourceId,
    pub api_version: String,
    /// Grows each time the manifest changes.
    pub generation: i64,
    pub created_at: Timestamp,
    /// When the manifest last changed.
    pub updated_at: Timestamp,
    pub source: ManifestSource,
    /// A delete was begun and has not ended.
    pub deleting: bool,
    /// Without secrets: `secret_names` says which there are, `Store::status_secrets` gives them.
    pub status: Status,
    pub status_at: Option<Timestamp>,
    pub secret_names: Vec<String>,
    /// JSON text, parsed only when asked for: thousands of them are loaded at once.
    pub(crate) manifest: String,
    pub(crate) manifest_seal: SealNumber,
    pub(crate) sealed_paths: String,
}

impl StoredResource {
    /// As a server shows it: secrets in its manifest are markers already. The caller fills in the rest.
    pub fn shown(id: ResourceId, api_version: String, manifest: &Value) -> Self {
        Self {
            id,
            api_version,
            generation: 0,
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
            source: ManifestSource::default(),
            deleting: false,
            status: Status::default(),
            status_at: None,
            secret_names: Vec::new(),
            manifest: manifest.to_string(),
            manifest_seal: SealNumber::NONE,
            sealed_paths: String::new(),
        }
    }

    /// The manifest with secrets as sealed text.
    pub fn sealed_manifest(&self) -> Result<Value, StoreError> {
        parse(&self.manifest, || format!("the manifest of {}", self.id))
    }

    /// JSON pointers of the secrets in the manifest.
    pub fn sealed_paths(&self) -> Result<Vec<String>, StoreError> {
        if self.sealed_paths.is_empty() {
            return Ok(Vec::new());
        }
        parse(&self.sealed_paths, || format!("the secrets' places of {}", self.id))
    }

    /// Whether what is stored is what was last carried out.
    pub fn settled(&self) -> bool {
        self.status.state == ResourceState::Ready && self.status.observed_generation == self.generation
    }

    /// The manifest, from JSON that the state gave of it: sealed or opened.
    pub fn manifest(&self, json: &Value) -> Result<Manifest, StoreError> {
        let of = || format!("the manifest of {}", self.id);
        Manifest::from_json(json).map_err(|error| StoreError::Corrupt { of: of(), cause: error.to_string() })
    }

    /// What the engine needs of it, secrets sealed.
    pub fn into_known(self) -> Result<(ResourceId, KnownResource), StoreError> {
        let manifest = Arc::new(self.manifest(&self.sealed_manifest()?)?);
        let settled = self.settled();
        Ok((self.id, KnownResource { manifest, outputs: self.status.outputs, facts: self.status.facts, settled }))
    }

    pub fn known(&self) -> Result<KnownResource, StoreError> {
        Ok(self.clone().into_known()?.1)
    }
}

/// Which resources to read; `None` takes all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub kind: Option<String>,
    pub name: Option<String>,
    pub org: Option<String>,
    pub env: Option<String>,
}

/// An entry of the journal: one change in a cloud.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    pub id: i64,
    /// Number of the run that made it.
    pub fence: i64,
    pub resource: ResourceId,
    pub unit: String,
    pub token: String,
    pub op: String,
    pub what: String,
    pub started_at: Timestamp,
    /// `None` while nobody knows how it ended.
    pub ended_at: Option<Timestamp>,
    /// `done`, `failed`, `refused`, `interrupted`, or empty while open.
    pub outcome: String,
    pub detail: String,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub id: i64,
    pub at: Timestamp,
    pub resource: ResourceId,
    pub what: String,
    pub detail: String,
    /// The task that it came from; empty for none.
    pub task: String,
}

/// Which journal entries to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    All,
    /// Begun, and not known how they ended.
    Open,
}

/// One line of a resource's history: a change in a cloud, or an event.
#[derive(Clone, Debug)]
pub struct HistoryLine {
    pub at: Timestamp,
    pub what: String,
    pub detail: String,
    /// `None` for an event.
    pub change: Option<HistoryChange>,
}

#[derive(Clone, Debug)]
pub struct HistoryChange {
    pub op: String,
    pub unit: String,
    /// As in [`JournalEntry::outcome`].
    pub outcome: String,
    pub ended_at: Option<Timestamp>,
}

pub(crate) fn parse<T: serde::de::DeserializeOwned>(text: &str, of: impl FnOnce() -> String) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Corrupt { of: of(), cause: error.to_string() })
}

fn props(text: &str, of: &ResourceId) -> Result<Props, StoreError> {
    if text == "{}" { Ok(Props::new()) } else { parse(text, || of.to_string()) }
}

pub(crate) fn time(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(micros)
        .map_err(|error| StoreError::Corrupt { of: "a time".into(), cause: error.to_string() })
}

/// Numbers are stored as 64 bits: PostgreSQL has none without a sign.
pub(crate) fn number(stored: i64) -> u32 {
    u32::try_from(stored).unwrap_or(u32::MAX)
}

pub(crate) fn state_named(name: &str, of: impl FnOnce() -> String) -> Result<ResourceState, StoreError> {
    let unknown = || StoreError::Corrupt { of: of(), cause: format!("unknown state `{name}`") };
    ResourceState::parse(name).ok_or_else(unknown)
}

pub(crate) fn id_at(row: &Row, first: usize) -> Result<ResourceId, StoreError> {
    Ok(ResourceId {
        kind: row.get(first)?,
        name: row.get(first + 1)?,
        org: row.get(first + 2)?,
        env: row.get(first + 3)?,
    })
}

/// Columns by number, in the order of `sql::resource_columns`: looking names up costs more than decoding.
pub(crate) fn resource(row: &Row) -> Result<StoredResource, StoreError> {
    let id = id_at(row, 0)?;
    let names: String = row.get(19)?;
    let state = row.get::<String>(13)?;
    let status = Status {
        state: state_named(&state, || id.to_string())?,
        message: row.get(14)?,
        outputs: props(row.get(15)?, &id)?,
        secrets: BTreeMap::new(),
        facts: props(row.get(16)?, &id)?,
        observed_generation: row.get(17)?,
    };
    Ok(StoredResource {
        api_version: row.get(4)?,
        manifest: row.get(5)?,
        manifest_seal: SealNumber(row.get(20)?),
        sealed_paths: row.get(6)?,
        generation: row.get(7)?,
        created_at: time(row.get(8)?)?,
        updated_at: time(row.get(9)?)?,
        source: ManifestSource { file: row.get(10)?, document: number(row.get(11)?) },
        deleting: row.get(12)?,
        status,
        status_at: row.get::<Option<i64>>(18)?.map(time).transpose()?,
        secret_names: if names.is_empty() { Vec::new() } else { parse(&names, || id.to_string())? },
        id,
    })
}

/// Columns in the order of `sql::units_from`. Secrets stay behind.
pub(crate) fn unit(row: &Row) -> Result<UnitState, StoreError> {
    let resource = id_at(row, 0)?;
    Ok(UnitState {
        key: row.get(4)?,
        token: row.get(5)?,
        unit_type: row.get(6)?,
        scope: row.get(7)?,
        account: row.get(8)?,
        id: row.get(9)?,
        deposed: row.get(10)?,
        ready: row.get(11)?,
        updated_at: time(row.get(13)?)?,
        props: props(row.get(14)?, &resource)?,
        outputs: props(row.get(15)?, &resource)?,
        identity: Identity::from_text(row.get::<String>(16)?),
        secrets: BTreeMap::new(),
        resource,
    })
}

pub(crate) fn journal_entry(row: &Row) -> Result<JournalEntry, StoreError> {
    Ok(JournalEntry {
        id: row.get(0)?,
        fence: row.get(1)?,
        resource: id_at(row, 2)?,
        unit: row.get(6)?,
        token: row.get(7)?,
        op: row.get(8)?,
        what: row.get(9)?,
        started_at: time(row.get(10)?)?,
        ended_at: row.get::<Option<i64>>(11)?.map(time).transpose()?,
        outcome: row.get(12)?,
        detail: row.get(13)?,
    })
}

pub(crate) fn event(row: &Row) -> Result<Event, StoreError> {
    Ok(Event {
        id: row.get(0)?,
        at: time(row.get(1)?)?,
        resource: id_at(row, 2)?,
        what: row.get(6)?,
        detail: row.get(7)?,
        task: row.get(8)?,
    })
}

pub(crate) fn history_line(row: &Row) -> Result<HistoryLine, StoreError> {
    let op: String = row.get(3)?;
    let change = if op.is_empty() {
        None
    } else {
        Some(HistoryChange {
            op,
            unit: row.get(4)?,
            outcome: row.get(5)?,
            ended_at: row.get::<Option<i64>>(6)?.map(time).transpose()?,
        })
    };
    Ok(HistoryLine { at: time(row.get(0)?)?, what: row.get(1)?, detail: row.get(2)?, change })
}
