//! The facts of resources' rows, which transitions read, and patches, which they write: one query and one statement, however
//! many rows. What an event means is decided in [`berth_engine::lifecycle`].

use super::columns::{IdRow, NUMBERED, Numbered};
use super::tx::Tx;
use crate::db::{Multi, Query, Row};
use crate::error::StoreError;
use crate::rows;
use berth_engine::ResourceState;
use berth_engine::lifecycle::{Event, Facts, Patch, Permissions, transition};
use berth_model::ResourceId;
use serde::Serialize;
use std::collections::HashMap;

/// Columns of a row `r` that [`found`] reads.
macro_rules! fact_columns {
    () => {
        "r.id, r.generation, r.observed_generation, r.deleting, r.stale, r.service <> '', r.state, r.message, \
         r.status_at, r.due_at, r.due_mark, r.attempts, r.allow_replace, r.allow_data_loss, r.allow_recreate, \
         r.plan_digest, r.drift_every, r.drift_at, r.drift_checked_at"
    };
}
pub(super) use fact_columns;

/// How many columns those are.
pub(super) const FACT_COLUMNS: usize = 19;

/// What a patch sets. Statements that set more beside it put this first.
macro_rules! patch_assignments {
    () => {
        "generation = v.generation, observed_generation = v.observed_generation, deleting = v.deleting, stale = v.stale, \
         state = v.state, message = v.message, status_at = v.status_at, due_at = v.due_at, due_mark = v.due_mark, \
         attempts = v.attempts, allow_replace = v.allow_replace, allow_data_loss = v.allow_data_loss, \
         allow_recreate = v.allow_recreate, plan_digest = v.plan_digest, drift_every = v.drift_every, \
         drift_at = v.drift_at, drift_checked_at = v.drift_checked_at, drift = COALESCE(v.drift, resources.drift), \
         approved_by = COALESCE(v.approved_by, resources.approved_by), \
         approved_id = COALESCE(v.approved_id, resources.approved_id), \
         applied_by = COALESCE(v.applied_by, resources.applied_by), \
         applied_id = COALESCE(v.applied_id, resources.applied_id), trace = COALESCE(v.trace, resources.trace)"
    };
}
pub(super) use patch_assignments;

/// Columns of [`PatchRow`].
pub(super) const PATCH_COLUMNS: &[(&str, &str)] = &[
    ("id", "bigint"),
    ("generation", "bigint"),
    ("observed_generation", "bigint"),
    ("deleting", "boolean"),
    ("stale", "boolean"),
    ("state", "text"),
    ("message", "text"),
    ("status_at", "bigint"),
    ("due_at", "bigint"),
    ("due_mark", "bigint"),
    ("attempts", "bigint"),
    ("allow_replace", "boolean"),
    ("allow_data_loss", "boolean"),
    ("allow_recreate", "boolean"),
    ("plan_digest", "text"),
    ("drift_every", "bigint"),
    ("drift_at", "bigint"),
    ("drift_checked_at", "bigint"),
    ("drift", "text"),
    ("approved_by", "text"),
    ("approved_id", "text"),
    ("applied_by", "text"),
    ("applied_id", "text"),
    ("trace", "text"),
];

static FACTS: Multi = Multi::new(
    concat!(
        "SELECT ",
        fact_columns!(),
        ", v.n FROM {rows} JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env"
    ),
    NUMBERED,
);
/// Those that refer to the given ones; once, also where they refer to several.
static REFERRERS: Multi = Multi::new(
    concat!(
        "SELECT ",
        fact_columns!(),
        ", r.kind, r.name, r.org, r.env FROM resources r WHERE r.id IN (SELECT l.child FROM {rows} JOIN links l \
         ON l.kind = v.kind AND l.name = v.name AND l.org = v.org AND l.env = v.env)"
    ),
    super::columns::IDS,
);
/// Those that the given ones refer to.
static REFERENCES: Multi = Multi::new(
    concat!(
        "SELECT ",
        fact_columns!(),
        ", r.kind, r.name, r.org, r.env FROM resources r WHERE r.id IN (SELECT p.id FROM {rows} \
         JOIN resources c ON c.kind = v.kind AND c.name = v.name AND c.org = v.org AND c.env = v.env \
         JOIN links l ON l.child = c.id \
         JOIN resources p ON p.kind = l.kind AND p.name = l.name AND p.org = l.org AND p.env = l.env)"
    ),
    super::columns::IDS,
);
static PATCH: Multi = Multi::new(
    concat!("UPDATE resources SET ", patch_assignments!(), " FROM {rows} WHERE resources.id = v.id"),
    PATCH_COLUMNS,
);
/// The same where only that changes, which is so for most: columns cost.
static DUE: Multi = Multi::new(
    "UPDATE resources SET due_at = v.due_at, due_mark = v.due_mark FROM {rows} WHERE resources.id = v.id",
    &[("id", "bigint"), ("due_at", "bigint"), ("due_mark", "bigint")],
);
const FORGET_OUTPUTS: &str =
    "UPDATE resources SET outputs = '{}', facts = '{}', secret_names = '', secrets = '' WHERE id = $1";

/// The facts of a row, and its number.
#[derive(Clone)]
pub(super) struct Found {
    pub row: i64,
    pub facts: Facts,
}

/// Columns in the order of `fact_columns`, from that one on.
pub(super) fn found(row: &Row, at: usize) -> Result<Found, StoreError> {
    let (number, state) = (row.get::<i64>(at)?, row.get::<String>(at + 6)?);
    let facts = Facts {
        generation: row.get(at + 1)?,
        observed_generation: row.get(at + 2)?,
        deleting: row.get(at + 3)?,
        stale: row.get(at + 4)?,
        has_objects: row.get(at + 5)?,
        // One row whose state nobody knows must not keep a transaction from the others.
        state: ResourceState::parse(&state).unwrap_or(ResourceState::Failed),
        message: row.get(at + 7)?,
        status_at: row.get(at + 8)?,
        due_at: row.get(at + 9)?,
        due_mark: row.get(at + 10)?,
        attempts: row.get(at + 11)?,
        permissions: Permissions {
            replace: row.get(at + 12)?,
            data_loss: row.get(at + 13)?,
            recreate: row.get(at + 14)?,
        },
        plan_digest: row.get(at + 15)?,
        drift_every: row.get(at + 16)?,
        drift_at: row.get(at + 17)?,
        drift_checked_at: row.get(at + 18)?,
    };
    Ok(Found { row: number, facts })
}

/// A patch as the columns of a statement. What is left out is null, and stays as it is.
#[derive(Serialize)]
pub(super) struct PatchRow {
    id: i64,
    generation: i64,
    observed_generation: i64,
    deleting: bool,
    stale: bool,
    state: &'static str,
    message: String,
    status_at: Option<i64>,
    due_at: Option<i64>,
    due_mark: i64,
    attempts: i64,
    allow_replace: bool,
    allow_data_loss: bool,
    allow_recreate: bool,
    plan_digest: String,
    drift_every: Option<i64>,
    drift_at: Option<i64>,
    drift_checked_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drift: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    #[serde(skip)]
    forgets_outputs: bool,
    #[serde(skip)]
    is_only_due: bool,
}

#[derive(Serialize)]
struct DueRow {
    id: i64,
    due_at: Option<i64>,
    due_mark: i64,
}

impl PatchRow {
    pub fn new(found: &Found, patch: Patch) -> Self {
        let is_only_due = patch.is_only_due(&found.facts);
        let Patch { facts, drift, approved, applied, trace, forgets_outputs } = patch;
        let (approved_by, approved_id) = approved.map(|party| (party.name, party.id)).unzip();
        let (applied_by, applied_id) = applied.map(|party| (party.name, party.id)).unzip();
        Self {
            id: found.row,
            generation: facts.generation,
            observed_generation: facts.observed_generation,
            deleting: facts.deleting,
            stale: facts.stale,
            state: facts.state.as_str(),
            message: facts.message,
            status_at: facts.status_at,
            due_at: facts.due_at,
            due_mark: facts.due_mark,
            attempts: facts.attempts,
            allow_replace: facts.permissions.replace,
            allow_data_loss: facts.permissions.data_loss,
            allow_recreate: facts.permissions.recreate,
            plan_digest: facts.plan_digest,
            drift_every: facts.drift_every,
            drift_at: facts.drift_at,
            drift_checked_at: facts.drift_checked_at,
            drift,
            approved_by,
            approved_id,
            applied_by,
            applied_id,
            trace,
            forgets_outputs,
            is_only_due,
        }
    }
}

impl Found {
    /// What the event changes of this row.
    pub fn patched(&self, event: &Event<'_>, now: i64) -> Option<PatchRow> {
        transition(&self.facts, event, now).map(|patch| PatchRow::new(self, patch))
    }
}

/// By their place in the list; what is not stored is missing.
pub(super) async fn of_many<'a>(
    tx: &mut Tx<'_>,
    ids: impl IntoIterator<Item = &'a ResourceId>,
) -> Result<HashMap<usize, Found>, StoreError> {
    let ids: Vec<Numbered> = ids.into_iter().zip(0..).map(|(id, n)| Numbered { n, id: id.into() }).collect();
    let mut all = HashMap::with_capacity(ids.len());
    for row in tx.rows_many(&FACTS, &ids).await? {
        all.insert(usize::try_from(row.get::<i64>(FACT_COLUMNS)?).unwrap_or(usize::MAX), found(&row, 0)?);
    }
    Ok(all)
}

pub(super) async fn of(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Option<Found>, StoreError> {
    Ok(of_many(tx, [id]).await?.remove(&0))
}

async fn related(
    tx: &mut Tx<'_>,
    how: &'static Multi,
    ids: &[IdRow<'_>],
) -> Result<Vec<(ResourceId, Found)>, StoreError> {
    let rows = tx.rows_many(how, ids).await?;
    rows.iter().map(|row| Ok((rows::id_at(row, FACT_COLUMNS)?, found(row, 0)?))).collect()
}

/// Those that refer to one of these.
pub(super) async fn referrers(tx: &mut Tx<'_>, ids: &[IdRow<'_>]) -> Result<Vec<(ResourceId, Found)>, StoreError> {
    related(tx, &REFERRERS, ids).await
}

/// What became Ready wakes those that refer to it.
pub(super) async fn wake_referrers(tx: &mut Tx<'_>, ids: &[IdRow<'_>], now: i64) -> Result<(), StoreError> {
    let woken = referrers(tx, ids).await?;
    write(tx, woken.iter().filter_map(|(_, one)| one.patched(&Event::ReferenceReady, now)).collect()).await
}

/// What these refer to, and is being deleted, may go as soon as they do not.
pub(super) async fn wake_references(tx: &mut Tx<'_>, ids: &[IdRow<'_>], now: i64) -> Result<(), StoreError> {
    let woken = related(tx, &REFERENCES, ids).await?;
    write(tx, woken.iter().filter_map(|(_, one)| one.patched(&Event::ReferrerGone, now)).collect()).await
}

/// Each row is there once.
pub(super) async fn write(tx: &mut Tx<'_>, rows: Vec<PatchRow>) -> Result<(), StoreError> {
    let (due, rows): (Vec<PatchRow>, Vec<PatchRow>) = rows.into_iter().partition(|row| row.is_only_due);
    let due = due.iter().map(|row| DueRow { id: row.id, due_at: row.due_at, due_mark: row.due_mark });
    tx.execute_many(&DUE, &due.collect::<Vec<_>>()).await?;
    tx.execute_many(&PATCH, &rows).await?;
    for row in rows.iter().filter(|row| row.forgets_outputs) {
        tx.execute(Query::new(FORGET_OUTPUTS).bind(row.id)).await?;
    }
    Ok(())
}
