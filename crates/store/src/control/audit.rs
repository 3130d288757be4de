//! The audit log: appended to, each entry's hash over the one before, so that a line that was removed or changed shows.

use super::tx::Tx;
use super::types::{Actor, AuditEntry, AuditNote, AuditQuery, AuditState, ControlError};
use super::writer::Op;
use super::{Control, LIST_MAX};
use crate::db::{Multi, Query, Row};
use crate::encode::cut;
use crate::error::StoreError;
use crate::rows::time;
use crate::store::Store;
use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

/// Entries that a check reads at once.
const VERIFY_PAGE: i64 = 5_000;
/// One part of a check that nobody waits for.
const PART: Duration = Duration::from_secs(60);

const HEAD: &str = "SELECT value FROM meta WHERE name = 'audit_head'";
/// The last entry's number and hash: without it, lines cut off at the end would not show.
const SET_HEAD: &str = "INSERT INTO meta (name, value) VALUES ('audit_head', $1) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
const ENTRIES: &str = "SELECT a.id, a.at, a.actor, a.action, a.target, a.detail, a.outcome, a.hash, \
     COALESCE((SELECT p.hash FROM audit p WHERE p.id = a.id - 1), '') FROM audit a \
     WHERE ($1 = 0 OR a.id < $1) AND ($2 IS NULL OR a.actor = $2) AND ($3 IS NULL OR a.action = $3) \
     ORDER BY a.id DESC LIMIT $4";
const PAGE: &str = "SELECT id, at, actor, action, target, detail, outcome, hash, '' AS previous FROM audit \
     WHERE id > $1 ORDER BY id LIMIT $2";

static APPEND: Multi = Multi::new(
    "INSERT INTO audit (id, at, actor, action, target, detail, outcome, hash) \
     SELECT v.id, v.at, v.actor, v.action, v.target, v.detail, v.outcome, v.hash FROM {rows}",
    &[
        ("id", "bigint"),
        ("at", "bigint"),
        ("actor", "text"),
        ("action", "text"),
        ("target", "text"),
        ("detail", "text"),
        ("outcome", "text"),
        ("hash", "text"),
    ],
);

#[derive(Serialize)]
struct NewEntry {
    id: i64,
    at: i64,
    actor: String,
    action: String,
    target: String,
    detail: String,
    outcome: String,
    hash: String,
}

/// Every part with its length, so that no two entries look alike.
fn hash(previous: &str, entry: &NewEntry) -> String {
    let mut sha = Sha256::new();
    let mut feed = |part: &[u8]| {
        sha.update((part.len() as u64).to_le_bytes());
        sha.update(part);
    };
    feed(previous.as_bytes());
    feed(&entry.id.to_le_bytes());
    feed(&entry.at.to_le_bytes());
    for text in [&entry.actor, &entry.action, &entry.target, &entry.detail, &entry.outcome] {
        feed(text.as_bytes());
    }
    hex(&sha.finalize())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn parse_head(text: &str) -> (i64, String) {
    text.split_once(' ').and_then(|(id, hash)| Some((id.parse().ok()?, hash.to_owned()))).unwrap_or((0, String::new()))
}

pub(super) async fn append(tx: &mut Tx<'_>, notes: &[(AuditNote, String, i64)]) -> Result<(), StoreError> {
    let head: Option<String> = tx.row(Query::new(HEAD)).await?.map(|row| row.get(0)).transpose()?;
    let (mut id, mut previous) = parse_head(&head.unwrap_or_default());
    let mut rows = Vec::with_capacity(notes.len());
    for (note, actor, at) in notes {
        id += 1;
        let mut entry = NewEntry {
            id,
            at: *at,
            actor: cut(actor.clone()),
            action: cut(note.action.clone()),
            target: cut(note.target.clone()),
            detail: cut(note.detail.clone()),
            outcome: cut(note.outcome.clone()),
            hash: String::new(),
        };
        entry.hash = hash(&previous, &entry);
        previous.clone_from(&entry.hash);
        rows.push(entry);
    }
    tx.execute_many(&APPEND, &rows).await?;
    let head = format!("{id} {previous}");
    tx.execute(Query::new(SET_HEAD).bind(&head)).await?;
    Ok(())
}

fn entry(row: &Row) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry {
        id: row.get(0)?,
        at: time(row.get(1)?)?,
        actor: row.get(2)?,
        action: row.get(3)?,
        target: row.get(4)?,
        detail: row.get(5)?,
        outcome: row.get(6)?,
        hash: row.get(7)?,
        previous: row.get(8)?,
    })
}

struct Audit {
    note: AuditNote,
    actor: Actor,
    now: Timestamp,
}

#[async_trait]
impl Op for Audit {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        tx.audit(&self.note, &self.actor, self.now);
        Ok(())
    }
}

impl Control {
    /// Appends one entry; it is on disk when this returns.
    pub async fn audit(&self, entry: AuditNote, actor: &Actor, now: Timestamp) -> Result<(), ControlError> {
        self.write(Audit { note: entry, actor: actor.clone(), now }).await
    }

    /// Newest first.
    pub async fn audit_entries(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, StoreError> {
        let query = Query::new(ENTRIES)
            .bind(query.before)
            .bind(query.actor.as_deref())
            .bind(query.action.as_deref())
            .bind(i64::from(query.limit.clamp(1, LIST_MAX)));
        self.store().pool().rows(query, entry).await
    }

    /// Reads the whole log in pages and follows the chain.
    pub async fn verify_audit(&self) -> Result<AuditState, StoreError> {
        self.store().verify_audit().await
    }

    /// The same in parts: from the entry after `after` on, whose hash is `hash`, for about so long.
    pub async fn verify_audit_from(&self, after: i64, hash: &str, within: Duration) -> Result<AuditState, StoreError> {
        self.store().verify_from(after, hash, within).await
    }
}

impl Store {
    /// As [`Control::verify_audit`], for a state without a server.
    pub async fn verify_audit(&self) -> Result<AuditState, StoreError> {
        let mut state = self.verify_from(0, "", PART).await?;
        while state.more {
            let next = self.verify_from(state.last, &state.head, PART).await?;
            state = AuditState { entries: state.entries + next.entries, ..next };
        }
        Ok(state)
    }

    async fn verify_from(&self, after: i64, hash_of: &str, within: Duration) -> Result<AuditState, StoreError> {
        let until = Instant::now() + within;
        let pool = self.pool();
        // The log may grow meanwhile: what is checked is what there was at the start.
        let head: Option<String> = pool.row(Query::new(HEAD), |row| row.get(0)).await?;
        let (last, head) = parse_head(&head.unwrap_or_default());
        let head_then = hash_of.to_owned();
        let mut state =
            AuditState { whole: true, entries: 0, broken_at: None, head: head_then, last: after, more: false };
        while state.last < last {
            let page = pool.rows(Query::new(PAGE).bind(state.last).bind(VERIFY_PAGE), entry).await?;
            for found in page.iter().take_while(|found| found.id <= last) {
                let expected = NewEntry {
                    id: found.id,
                    at: found.at.as_microsecond(),
                    actor: found.actor.clone(),
                    action: found.action.clone(),
                    target: found.target.clone(),
                    detail: found.detail.clone(),
                    outcome: found.outcome.clone(),
                    hash: String::new(),
                };
                state.entries += 1;
                if found.id != state.last + 1 || hash(&state.head, &expected) != found.hash {
                    return Ok(AuditState { whole: false, broken_at: Some(state.last + 1), ..state });
                }
                state.last = found.id;
                state.head.clone_from(&found.hash);
            }
            if page.last().is_none_or(|found| found.id > last) {
                break;
            }
            if state.last < last && Instant::now() >= until {
                return Ok(AuditState { more: true, ..state });
            }
        }
        if state.last != last || state.head != head {
            // Whoever was further already misses what came after the head.
            let broken_at = Some(state.last.min(last).saturating_add(1));
            return Ok(AuditState { whole: false, broken_at, ..state });
        }
        // Lines after the head, while the head says there are none, were not written by a server: a newer head is fine.
        Ok(state)
    }
}
