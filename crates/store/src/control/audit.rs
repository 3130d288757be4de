//! The audit log: appended to, each entry's hash over the one before, so that a line that was removed or changed shows.
//! The newest entry's number and hash are the head, which stands in `meta` sealed with the key ring: whoever writes the
//! database can compute hashes and cannot make a head. Sealed as other secrets are, it gets new keys with them.
//!
//! What the key cannot show is that the whole log is an earlier one, cut off together with its head: for that a head has to be
//! kept elsewhere.

use super::server_writer::Operation;
use super::tx::Tx;
use super::types::{Actor, AuditBroken, AuditEntry, AuditHead, AuditNote, AuditQuery, AuditState, ControlError};
use super::{Control, LIST_MAX};
use crate::db::{Multi, Query, Row};
use crate::encode::cut;
use crate::error::StoreError;
use crate::hex;
use crate::rows::time;
use crate::seal::Sealer;
use crate::sealed_place::SealedPlace;
use crate::store::Store;
use crate::unlock::AUDIT_HEAD;
use async_trait::async_trait;
use jiff::Timestamp;
use secrecy::ExposeSecret;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

/// Entries that a check reads at once.
const VERIFY_PAGE: i64 = 5_000;
/// One part of a check that nobody waits for.
const PART: Duration = Duration::from_secs(60);

/// The head, and the newest and oldest entries' numbers, at one moment: a server writes all in one transaction.
const HEAD: &str = "SELECT (SELECT value FROM meta WHERE name = 'audit_head'), \
     (SELECT COALESCE(MAX(id), 0) FROM audit), (SELECT COALESCE(MIN(id), 1) FROM audit)";
/// The action of the entry that a server writes where it found no genuine head.
const HEAD_LOST: &str = "audit-head-lost";
const LAST: &str = "SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1";
const SET_HEAD: &str = "INSERT INTO meta (name, value) VALUES ('audit_head', $1) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
const ENTRIES: &str = "SELECT a.id, a.at, a.actor, a.action, a.target, a.detail, a.outcome, a.hash, a.actor_id, \
     COALESCE((SELECT p.hash FROM audit p WHERE p.id = a.id - 1), '') FROM audit a \
     WHERE ($1 = 0 OR a.id < $1) AND ($2 IS NULL OR a.actor = $2 OR a.actor_id = $2) AND ($3 IS NULL OR a.action = $3) \
     ORDER BY a.id DESC LIMIT $4";
const PAGE: &str = "SELECT id, at, actor, action, target, detail, outcome, hash, actor_id, '' AS previous FROM audit \
     WHERE id > $1 ORDER BY id LIMIT $2";

static APPEND: Multi = Multi::new(
    "INSERT INTO audit (id, at, actor, actor_id, action, target, detail, outcome, hash) \
     SELECT v.id, v.at, v.actor, v.actor_id, v.action, v.target, v.detail, v.outcome, v.hash FROM {rows}",
    &[
        ("id", "bigint"),
        ("at", "bigint"),
        ("actor", "text"),
        ("actor_id", "text"),
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
    actor_id: String,
    action: String,
    target: String,
    detail: String,
    outcome: String,
    hash: String,
}

impl AuditEntry {
    /// The hash of this entry after one whose hash is `previous`: for clients that verify the log themselves.
    pub fn computed_hash(&self, previous: &str) -> String {
        hash(
            previous,
            &NewEntry {
                id: self.id,
                at: self.at.as_microsecond(),
                actor: self.actor.clone(),
                actor_id: self.actor_id.clone(),
                action: self.action.clone(),
                target: self.target.clone(),
                detail: self.detail.clone(),
                outcome: self.outcome.clone(),
                hash: String::new(),
            },
        )
    }
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
    // Entries from before there were ids have one part less.
    if !entry.actor_id.is_empty() {
        feed(entry.actor_id.as_bytes());
    }
    hex(&sha.finalize())
}

/// `None` for what no server of this state's wrote.
fn genuine_head(sealer: &Sealer, stored: Option<String>) -> Result<Option<AuditHead>, StoreError> {
    let Some(stored) = stored else { return Ok(None) };
    let Some(text) = sealer.open_if_genuine(&SealedPlace::meta(AUDIT_HEAD), &stored)? else { return Ok(None) };
    let parts = text.expose_secret().split_once(' ');
    Ok(parts.and_then(|(id, hash)| Some(AuditHead { id: id.parse().ok()?, hash: hash.to_owned() })))
}

pub(super) async fn append(tx: &mut Tx<'_>, notes: &[(AuditNote, Actor, i64)]) -> Result<(), StoreError> {
    let row = tx.row(Query::new(HEAD)).await?.ok_or(StoreError::Ended)?;
    let newest: i64 = row.get(1)?;
    let lost;
    let (mut id, mut previous, notes) = match genuine_head(tx.sealer, row.get(0)?)? {
        Some(head) if newest <= head.id => (head.id, head.hash, notes),
        head => {
            // The log goes on, so that an attacker cannot stop it, and says for ever that nothing vouches for what came before.
            match head {
                None => tracing::error!("the audit log's head is missing or was not written by this server's key"),
                Some(head) => tracing::error!(head = head.id, newest, "no server wrote the audit log's last entries"),
            }
            let last = tx.row(Query::new(LAST)).await?;
            let last = last.map(|row| Ok::<_, StoreError>((row.get(0)?, row.get(1)?))).transpose()?;
            let (id, previous) = last.unwrap_or_default();
            lost = with_head_lost(notes);
            (id, previous, lost.as_slice())
        }
    };
    let mut rows = Vec::with_capacity(notes.len());
    for (note, actor, at) in notes {
        id += 1;
        let mut entry = NewEntry {
            id,
            at: *at,
            actor: cut(actor.name.clone()),
            actor_id: cut(actor.id.clone()),
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
    let head = tx.sealer.seal(&SealedPlace::meta(AUDIT_HEAD), &format!("{id} {previous}"))?;
    tx.execute(Query::new(SET_HEAD).bind(&head)).await?;
    Ok(())
}

fn with_head_lost(notes: &[(AuditNote, Actor, i64)]) -> Vec<(AuditNote, Actor, i64)> {
    let note = AuditNote {
        action: HEAD_LOST.into(),
        target: String::new(),
        detail:
            "the log's head was missing, not genuine, or not its end: entries before this one are not authenticated"
                .into(),
        outcome: "failed".into(),
    };
    let at = notes.first().map_or(0, |(_, _, at)| *at);
    std::iter::once((note, Actor::new("berth"), at)).chain(notes.iter().cloned()).collect()
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
        actor_id: row.get(8)?,
        previous: row.get(9)?,
    })
}

struct Audit {
    note: AuditNote,
    actor: Actor,
    now: Timestamp,
}

#[async_trait]
impl Operation for Audit {
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

    /// The newest entry; `None` where the stored head is missing or not genuine.
    pub async fn audit_head(&self) -> Result<Option<AuditHead>, StoreError> {
        self.store().audit_head().await
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

    async fn audit_head(&self) -> Result<Option<AuditHead>, StoreError> {
        Ok(self.head_and_ends().await?.0)
    }

    /// The head, where it is genuine, and the newest and oldest entries' numbers.
    async fn head_and_ends(&self) -> Result<(Option<AuditHead>, i64, i64), StoreError> {
        let all = self.pool().row(Query::new(HEAD), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).await?;
        let (head, newest, oldest): (Option<String>, i64, i64) = all.ok_or(StoreError::Ended)?;
        Ok((genuine_head(self.sealer(), head)?, newest, oldest))
    }

    async fn verify_from(&self, after: i64, hash_of: &str, within: Duration) -> Result<AuditState, StoreError> {
        let until = Instant::now() + within;
        let pool = self.pool();
        // The log may grow meanwhile: what is checked is what there was at the start.
        let (head, newest, oldest) = self.head_and_ends().await?;
        // Without a head: as far as it goes, so that a changed entry is named where there is one.
        let is_genuine = head.is_some();
        let AuditHead { id: last, hash: head } = head.unwrap_or(AuditHead { id: i64::MAX, hash: String::new() });
        let mut state = AuditState {
            whole: true,
            entries: 0,
            broken_at: None,
            broken: None,
            head: hash_of.to_owned(),
            last: after,
            more: false,
        };
        let broken = |state: AuditState, at: i64, why| {
            Ok(AuditState { whole: false, broken_at: Some(at), broken: Some(why), ..state })
        };
        while state.last < last {
            let page = pool.rows(Query::new(PAGE).bind(state.last).bind(VERIFY_PAGE), entry).await?;
            for found in page.iter().take_while(|found| found.id <= last) {
                state.entries += 1;
                if found.id != state.last + 1 || found.computed_hash(&state.head) != found.hash {
                    let at = state.last + 1;
                    return broken(state, at, AuditBroken::Entry);
                }
                if found.action == HEAD_LOST {
                    return broken(state, found.id, AuditBroken::HeadLost);
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
            // A reader that was further already misses the entries after the head.
            let at = state.last.min(last).saturating_add(1);
            let why = if is_genuine && state.last != last { AuditBroken::Entry } else { AuditBroken::Head };
            return broken(state, at, why);
        }
        // Entries are numbered from 1 on, up to the head.
        if oldest < 1 || newest > last {
            return broken(state, if oldest < 1 { oldest } else { last + 1 }, AuditBroken::Added);
        }
        Ok(state)
    }
}
