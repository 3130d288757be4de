//! One transaction of the servers' writer: what operations see of it. Events, audit entries and what lanes gained or lost are
//! collected and written once for all operations.

use super::audit;
use super::types::{Actor, AuditNote};
use crate::db::{Connection, Multi, Query, Row};
use crate::encode::cut;
use crate::error::StoreError;
use crate::row_writes::{RowWrite, WriteAnswer, WriteContext};
use crate::seal::Sealer;
use berth_model::ResourceId;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::HashMap;

#[derive(Serialize)]
struct EventRow {
    kind: String,
    name: String,
    org: String,
    env: String,
    at: i64,
    what: String,
    detail: String,
    task: String,
}

/// Whose work waits together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct LaneKey {
    pub checks: bool,
    pub org: String,
    pub account: String,
    pub service: String,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct LaneChange {
    pub queued: i64,
    pub running: i64,
    /// The newest word on how many may run at once.
    pub places: Option<i64>,
    pub turn: i64,
}

pub(crate) struct Tx<'a> {
    pub connection: &'a mut Connection,
    pub sealer: &'a Sealer,
    events: Vec<EventRow>,
    pub audits: Vec<(AuditNote, Actor, i64)>,
    lanes: HashMap<LaneKey, LaneChange>,
    /// Statements that may have changed something.
    pub writes: u64,
    /// Whether others should look.
    pub news: bool,
}

static INSERT_EVENTS: Multi = Multi::new(
    "INSERT INTO events (kind, name, org, env, at, what, detail, task) \
     SELECT v.kind, v.name, v.org, v.env, v.at, v.what, v.detail, v.task FROM {rows} ORDER BY v.n",
    &[
        ("n", "bigint"),
        ("kind", "text"),
        ("name", "text"),
        ("org", "text"),
        ("env", "text"),
        ("at", "bigint"),
        ("what", "text"),
        ("detail", "text"),
        ("task", "text"),
    ],
);

static CHANGE_LANES: Multi = Multi::new(
    "INSERT INTO lanes (checks, org, account, service, queued, running, places, turn) \
     SELECT v.checks, v.org, v.account, v.service, v.queued, v.running, v.places, v.turn FROM {rows} \
     WHERE TRUE ON CONFLICT (checks, org, account, service) DO UPDATE SET queued = lanes.queued + excluded.queued, \
     running = lanes.running + excluded.running, \
     places = CASE WHEN excluded.places < 0 THEN lanes.places ELSE excluded.places END, \
     turn = CASE WHEN excluded.turn > lanes.turn THEN excluded.turn ELSE lanes.turn END",
    &[
        ("checks", "boolean"),
        ("org", "text"),
        ("account", "text"),
        ("service", "text"),
        ("queued", "bigint"),
        ("running", "bigint"),
        ("places", "bigint"),
        ("turn", "bigint"),
    ],
);

#[derive(Serialize)]
struct Numbered<'a, T> {
    n: usize,
    #[serde(flatten)]
    row: &'a T,
}

#[derive(Serialize)]
struct LaneRow<'a> {
    #[serde(flatten)]
    key: &'a LaneKey,
    queued: i64,
    running: i64,
    places: i64,
    turn: i64,
}

impl<'a> Tx<'a> {
    pub fn new(connection: &'a mut Connection, sealer: &'a Sealer) -> Self {
        Self {
            connection,
            sealer,
            events: Vec::new(),
            audits: Vec::new(),
            lanes: HashMap::new(),
            writes: 0,
            news: false,
        }
    }

    pub async fn execute(&mut self, query: Query<'_>) -> Result<u64, StoreError> {
        self.writes += 1;
        query.execute(self.connection).await
    }

    /// Of a statement that writes and gives rows back.
    pub async fn returning(&mut self, query: Query<'_>) -> Result<Vec<Row>, StoreError> {
        self.writes += 1;
        query.fetch_all(self.connection).await
    }

    pub async fn row(&mut self, query: Query<'_>) -> Result<Option<Row>, StoreError> {
        query.fetch_optional(self.connection).await
    }

    pub async fn rows(&mut self, query: Query<'_>) -> Result<Vec<Row>, StoreError> {
        query.fetch_all(self.connection).await
    }

    /// A statement for all these rows; none is sent for none.
    pub async fn execute_many<T: Serialize>(&mut self, multi: &'static Multi, rows: &[T]) -> Result<u64, StoreError> {
        if rows.is_empty() {
            return Ok(0);
        }
        let rows = to_json(rows)?;
        let query = multi.query(self.connection.dialect(), &rows);
        self.writes += 1;
        query.execute(self.connection).await
    }

    pub async fn returning_many<T: Serialize>(
        &mut self,
        multi: &'static Multi,
        rows: &[T],
    ) -> Result<Vec<Row>, StoreError> {
        self.writes += 1;
        self.rows_many(multi, rows).await
    }

    pub async fn rows_many<T: Serialize>(&mut self, multi: &'static Multi, rows: &[T]) -> Result<Vec<Row>, StoreError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let rows = to_json(rows)?;
        multi.query(self.connection.dialect(), &rows).fetch_all(self.connection).await
    }

    /// A write that runs have too, under a task's number.
    pub async fn write(
        &mut self,
        write: &RowWrite,
        fence: i64,
        task: &str,
        now: i64,
    ) -> Result<WriteAnswer, StoreError> {
        self.writes += 1;
        self.news = true;
        WriteContext { connection: self.connection, fence, leftovers: true, task }.apply(write, now).await
    }

    pub fn event(&mut self, id: &ResourceId, what: &str, detail: &str, task: &str, now: Timestamp) {
        self.news = true;
        self.events.push(EventRow {
            kind: id.kind.clone(),
            name: id.name.clone(),
            org: id.org.clone(),
            env: id.env.clone(),
            at: now.as_microsecond(),
            what: cut(what.to_owned()),
            detail: cut(detail.to_owned()),
            task: task.to_owned(),
        });
    }

    pub fn audit(&mut self, note: &AuditNote, actor: &Actor, now: Timestamp) {
        if !note.action.is_empty() {
            self.audits.push((note.clone(), actor.clone(), now.as_microsecond()));
        }
    }

    pub fn lane(&mut self, key: LaneKey) -> &mut LaneChange {
        self.news = true;
        self.lanes.entry(key).or_default()
    }

    pub async fn flush(&mut self) -> Result<(), StoreError> {
        self.flush_lanes().await?;
        if !self.events.is_empty() {
            let events = std::mem::take(&mut self.events);
            let rows: Vec<_> = events.iter().enumerate().map(|(n, row)| Numbered { n, row }).collect();
            self.execute_many(&INSERT_EVENTS, &rows).await?;
        }
        if !self.audits.is_empty() {
            let notes = std::mem::take(&mut self.audits);
            audit::append(self, &notes).await?;
        }
        Ok(())
    }

    pub async fn flush_lanes(&mut self) -> Result<(), StoreError> {
        if self.lanes.is_empty() {
            return Ok(());
        }
        let mut lanes: Vec<_> = std::mem::take(&mut self.lanes).into_iter().collect();
        lanes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let rows: Vec<_> = lanes
            .iter()
            .map(|(key, change)| LaneRow {
                key,
                queued: change.queued,
                running: change.running,
                places: change.places.unwrap_or(-1),
                turn: change.turn,
            })
            .collect();
        self.execute_many(&CHANGE_LANES, &rows).await?;
        Ok(())
    }

    /// What was collected and not written.
    pub fn forget(&mut self) {
        self.events.clear();
        self.audits.clear();
        self.lanes.clear();
    }
}

fn to_json<T: Serialize>(rows: &[T]) -> Result<String, StoreError> {
    serde_json::to_string(rows).map_err(|error| StoreError::Database(error.to_string()))
}
