//! Rotation: every data key is wrapped anew with the ring's first key, while servers run and write. Nothing needs to be
//! remembered between batches, since a text names the key it is sealed with: a process that was killed starts again and finds only
//! what is left.

use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::keyring::KeyRing;
use crate::seal::{Unopened, key_of, open_with, rewrap};
use crate::sealed_columns::{Cell, SEALED_COLUMNS, Sealed, SealedColumn};
use crate::sealed_place::{SealNumber, SealedPlace};
use crate::sql;
use crate::store::Store;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Rows in one transaction: writers wait for no longer than these take.
const BATCH_ROWS: i64 = 100;
/// Passes over the state. The second usually finds nothing; more are needed only while someone keeps using an old key.
const PASSES_MAX: u32 = 10;
/// Between batches, so that writers get their turn.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Until every server that shares the ring's file has looked at it again.
const RING_SEEN_WITHIN: Duration = Duration::from_millis(1500);
/// Rows that no state has.
const COUNT_MAX: u64 = 1 << 60;
/// One part of a rotation that nobody waits for.
const LONG: Duration = Duration::from_secs(3600);

/// How far a rotation is.
#[derive(Clone, Debug)]
pub struct RotateProgress {
    /// From 1.
    pub pass: u32,
    /// The table and column that is being gone through.
    pub place: &'static str,
    /// Rows looked at in this pass.
    pub looked_at: u64,
    /// Rows changed in all passes.
    pub resealed: u64,
}

/// A rotation that is done: nothing is sealed with another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// Rows that were changed.
    pub resealed: u64,
    /// The key that everything is sealed with.
    pub key_id: String,
}

impl Store {
    /// The ids of the keys in use, the one that seals first.
    pub fn key_ids(&self) -> Vec<String> {
        self.sealer().keys().ring().ids()
    }

    /// Reads the key ring again, and seals everything with its first key. Servers may run and write meanwhile; if it ends
    /// early, however, it can be begun again.
    pub async fn rotate(&self, mut progress: impl FnMut(RotateProgress) + Send) -> Result<Rotated, StoreError> {
        let mut from = RotateFrom::default();
        loop {
            match self.rotate_on(from, LONG, &mut progress).await? {
                RotateStep::Done(done) => return Ok(done),
                RotateStep::More(next) => from = *next,
            }
        }
    }

    /// The same in parts, each of which ends soon after `within`: for callers that cannot wait for the whole.
    pub async fn rotate_on(
        &self,
        from: RotateFrom,
        within: Duration,
        mut progress: impl FnMut(RotateProgress) + Send,
    ) -> Result<RotateStep, StoreError> {
        let ring = self.sealer().keys().fresh()?;
        let until = Instant::now() + within;
        let mut connection = Connection::open(self.location()).await?;
        let mut from = from;
        from.waited |= ring.ids().len() == 1;
        let ended = loop {
            if let Some(column) = SEALED_COLUMNS.get(from.column) {
                if self.rotate_column(&mut connection, column, &ring, &mut from, until, &mut progress).await? {
                    (from.column, from.after) = (from.column + 1, None);
                }
                if Instant::now() >= until {
                    break Ok(RotateStep::More(Box::new(from)));
                }
                continue;
            }
            let left = std::mem::take(&mut from.left);
            let clean = left.changed + left.passed_over == 0;
            if clean && let Some(first) = left.unopened {
                break Err(StoreError::NotRotated { count: left.unopened_count, first });
            }
            if clean && from.waited {
                break Ok(RotateStep::Done(Rotated { resealed: from.resealed, key_id: ring.first().id().to_owned() }));
            }
            if !from.waited {
                // A server that has not seen the new ring yet may have written with an old key just now.
                tokio::time::sleep(RING_SEEN_WITHIN).await;
                from.waited = true;
            } else if from.pass >= PASSES_MAX {
                break Err(StoreError::OldKeyInUse { count: left.changed + left.passed_over });
            }
            from = RotateFrom { pass: from.pass + 1, column: 0, after: None, looked_at: 0, ..from };
        };
        connection.close().await?;
        ended
    }

    /// Whether the column is done.
    async fn rotate_column(
        &self,
        connection: &mut Connection,
        column: &SealedColumn,
        ring: &KeyRing,
        from: &mut RotateFrom,
        until: Instant,
        progress: &mut (impl FnMut(RotateProgress) + Send),
    ) -> Result<bool, StoreError> {
        loop {
            let began = Instant::now();
            let after = from.after.clone().unwrap_or_else(|| column.first_key());
            let rows = self.page(column, &after).await?;
            let Some(last) = rows.last() else { return Ok(true) };
            from.after = Some(last.key.clone());
            let full = rows.len() as i64 == BATCH_ROWS;
            from.looked_at += rows.len() as u64;
            let mut changes = Vec::new();
            for row in rows {
                // A row from before rows had seal numbers gets one.
                let number = match row.number {
                    Some(SealNumber::NONE) => Some(SealNumber::draw()?),
                    other => other,
                };
                let again = |place: &SealedPlace, text: &str| rewrap(ring, place, &place.with(number), text);
                match column.each(&row, again) {
                    Ok(Some(text)) => changes.push(Change { row, text, number }),
                    Ok(None) => {}
                    Err(unopened) => {
                        from.left.unopened_count += 1;
                        from.left.unopened.get_or_insert_with(|| unopened.of(&row.of(column)).to_string());
                    }
                }
            }
            if !changes.is_empty() {
                let done = put(connection, column, &changes).await?;
                from.left.changed += done;
                from.left.passed_over += changes.len() as u64 - done;
                from.resealed += done;
                progress(from.progress());
                tokio::time::sleep(began.elapsed().clamp(PAUSE.0, PAUSE.1)).await;
            }
            if !full {
                progress(from.progress());
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    /// How many texts each key seals. The empty id is for texts of before keys had ids.
    pub async fn sealed_by(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let ring = self.sealer().keys().fresh()?;
        let mut by_key = BTreeMap::new();
        self.for_each_sealed(|_, text| {
            if let Some(key) = key_of(text) {
                let key = ring.name_of(key).unwrap_or(key);
                *by_key.entry(key.to_owned()).or_default() += 1;
            }
            Ok(())
        })
        .await?;
        Ok(by_key)
    }

    /// Opens every secret in the state. How many there are; the first that does not open is the error.
    pub async fn check_secrets(&self) -> Result<u64, StoreError> {
        let ring = self.sealer().keys().fresh()?;
        let mut count = 0;
        self.for_each_sealed(|place, text| {
            count += 1;
            open_with(&ring, place, text).map(|_| ())
        })
        .await?;
        Ok(count)
    }

    /// Reads every sealed text in the state. The first one that `visit` cannot open is the error.
    async fn for_each_sealed(
        &self,
        mut visit: impl FnMut(&SealedPlace, &str) -> Result<(), Unopened> + Send,
    ) -> Result<(), StoreError> {
        for column in SEALED_COLUMNS {
            let mut after = column.first_key();
            loop {
                let rows = self.page(column, &after).await?;
                let Some(last) = rows.last() else { break };
                after = last.key.clone();
                for row in &rows {
                    let visited = column.each(row, |place, text| visit(place, text).map(|()| None));
                    visited.map_err(|unopened| unopened.of(&row.of(column)))?;
                }
            }
        }
        Ok(())
    }

    async fn page(&self, column: &SealedColumn, after: &[Cell]) -> Result<Vec<Sealed>, StoreError> {
        let query = after.iter().fold(Query::new(column.page), bind);
        self.pool().rows(query.bind(BATCH_ROWS), column.read).await
    }
}

/// Where a rotation in parts continues. Opaque to callers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateFrom {
    pass: u32,
    /// Which of the columns, and the key of its row that was last looked at.
    column: usize,
    after: Option<Vec<Cell>>,
    looked_at: u64,
    resealed: u64,
    waited: bool,
    left: Left,
}

impl Default for RotateFrom {
    fn default() -> Self {
        let left = Left::default();
        Self { pass: 1, column: 0, after: None, looked_at: 0, resealed: 0, waited: false, left }
    }
}

impl RotateFrom {
    pub fn progress(&self) -> RotateProgress {
        let place = SEALED_COLUMNS.get(self.column).map_or("", |column| column.name);
        RotateProgress { pass: self.pass, place, looked_at: self.looked_at, resealed: self.resealed }
    }

    /// `None` for what no rotation gave.
    pub fn parse(text: &str) -> Option<Self> {
        let from: Self = serde_json::from_str(text).ok()?;
        let keys = SEALED_COLUMNS.get(from.column).map(|column| column.first_key()).unwrap_or_default();
        let same = |(one, other): (&Cell, &Cell)| std::mem::discriminant(one) == std::mem::discriminant(other);
        let fits =
            |after: &Vec<Cell>| !keys.is_empty() && after.len() == keys.len() && after.iter().zip(&keys).all(same);
        let Left { changed, passed_over, unopened_count, .. } = from.left;
        let counts = [from.looked_at, from.resealed, changed, passed_over, unopened_count];
        let good = (1..=PASSES_MAX).contains(&from.pass)
            && from.column <= SEALED_COLUMNS.len()
            && from.after.as_ref().is_none_or(fits)
            && counts.iter().all(|count| *count < COUNT_MAX);
        good.then_some(from)
    }
}

impl std::fmt::Display for RotateFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| std::fmt::Error)?)
    }
}

/// How a part of a rotation ended.
#[derive(Debug)]
pub enum RotateStep {
    Done(Rotated),
    More(Box<RotateFrom>),
}

/// What one pass leaves for another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Left {
    changed: u64,
    /// Rows that someone else changed in between.
    passed_over: u64,
    unopened_count: u64,
    unopened: Option<String>,
}

fn bind<'q>(query: Query<'q>, cell: &'q Cell) -> Query<'q> {
    match cell {
        Cell::Number(number) => query.bind(*number),
        Cell::Text(text) => query.bind(text),
    }
}

/// What becomes of a row.
struct Change {
    row: Sealed,
    text: String,
    number: Option<SealNumber>,
}

/// Puts each new text where the old one still stands, all in one transaction. How many did.
async fn put(connection: &mut Connection, column: &SealedColumn, changes: &[Change]) -> Result<u64, StoreError> {
    connection.run(connection.dialect().begin).await?;
    let done = put_all(connection, column, changes).await;
    let ended = connection.run(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
    done.and_then(|done| ended.map(|()| done))
}

async fn put_all(connection: &mut Connection, column: &SealedColumn, changes: &[Change]) -> Result<u64, StoreError> {
    let statement = match connection {
        Connection::Sqlite(_) => column.put.sqlite,
        Connection::Postgres(_) => {
            connection.run(sql::POSTGRES_WRITE_TURN).await?;
            column.put.postgres
        }
    };
    let mut done = 0;
    for Change { row, text, number } in changes {
        let query = row.key.iter().fold(Query::new(statement), bind).bind(&row.text).bind(text);
        let query = match number {
            Some(number) => query.bind(number.0),
            None => query,
        };
        done += query.execute(connection).await?;
    }
    Ok(done)
}
