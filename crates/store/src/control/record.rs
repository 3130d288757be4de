//! What a worker writes while it holds a task: the engine's records and its progress. Each is checked in the
//! transaction that writes it, and refused where the task is no longer held.

use super::Control;
use super::allowed::{Check, subject};
use super::columns::{IdRow, NUMBERED, Numbered};
use super::completion::{self, held};
use super::facts::{self, FACT_COLUMNS, Found, PATCH_COLUMNS, PatchRow, fact_columns, patch_assignments};
use super::server_writer::{BatchFailure, Operation, only};
use super::tasks::{self, task_columns};
use super::tx::Tx;
use super::types::*;
use crate::db::{Multi, Query, Row};
use crate::encode::{check_count, cut};
use crate::error::StoreError;
use crate::row_writes::{RowWrite, StatusRow, WriteAnswer};
use crate::rows;
use async_trait::async_trait;
use berth_engine::ResourceState;
use berth_engine::lifecycle::{Event, Facts, Party, StatusReport, transition};
use berth_engine::record::EntryId;
use berth_model::ResourceId;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Lines that are kept of a task's log; the oldest go first.
const LOG_LINES_MAX: i64 = 2_000;
/// Lines in one call.
const LOG_CALL_MAX: usize = 1_000;
const LOG_LINE_BYTES_MAX: usize = 4 << 10;
const KEY_BYTES_MAX: usize = 200;

/// The tasks, which of the writes each is for, whether that was done before and with which entry, and what was accepted.
static HELD: Multi = Multi::new(
    concat!(
        "SELECT ",
        task_columns!(),
        ", v.n, EXISTS (SELECT 1 FROM records WHERE records.task = v.of_task AND records.key = v.of_key), \
         (SELECT records.entry FROM records WHERE records.task = v.of_task AND records.key = v.of_key), \
         tasks.accepted FROM {rows} JOIN tasks ON tasks.id = v.of_task"
    ),
    &[("n", "bigint"), ("of_task", "text"), ("of_key", "text")],
);
static REMEMBER: Multi = Multi::new(
    "INSERT INTO records (task, key, entry) SELECT v.of_task, v.of_key, v.entry FROM {rows}",
    &[("of_task", "text"), ("of_key", "text"), ("entry", "bigint")],
);
const AUTHOR_OF: &str = "SELECT applied_by, applied_id, trace FROM resources \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";
static BEFORE: Multi = Multi::new(
    concat!(
        "SELECT ",
        fact_columns!(),
        ", v.n, r.outputs, \
         EXISTS (SELECT 1 FROM links l WHERE l.kind = v.kind AND l.name = v.name AND l.org = v.org AND l.env = v.env) \
         FROM {rows} JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env"
    ),
    NUMBERED,
);
/// Entries that an earlier task left open.
static SETTLE: Multi = Multi::new(
    "UPDATE journal SET ended_at = v.now, outcome = 'interrupted' FROM {rows} WHERE journal.ended_at IS NULL \
     AND journal.fence < v.number AND journal.kind = v.to_kind AND journal.name = v.to_name \
     AND journal.org = v.to_org AND journal.env = v.to_env",
    &[
        ("to_kind", "text"),
        ("to_name", "text"),
        ("to_org", "text"),
        ("to_env", "text"),
        ("number", "bigint"),
        ("now", "bigint"),
    ],
);
/// As `sql::STATUS`: no secrets given means that those that are there stay.
static STATUS: Multi = Multi::joined(
    concat!(
        "UPDATE resources SET ",
        patch_assignments!(),
        ", outputs = v.outputs, facts = v.facts, \
         secret_names = CASE WHEN v.secrets = '' THEN resources.secret_names ELSE v.secret_names END, \
         secrets_seal = CASE WHEN v.secrets = '' THEN resources.secrets_seal ELSE v.secrets_seal END, \
         secrets = CASE WHEN v.secrets = '' THEN resources.secrets ELSE v.secrets END \
         FROM {rows} WHERE resources.id = v.id"
    ),
    PATCH_COLUMNS,
    &[
        ("outputs", "text"),
        ("facts", "text"),
        ("secret_names", "text"),
        ("secrets", "text"),
        ("secrets_seal", "bigint"),
    ],
);
const LAST_LINE: &str = "SELECT COALESCE(MAX(line), 0) FROM task_log WHERE task = $1";
const DROP_LINES: &str = "DELETE FROM task_log WHERE task = $1 AND line <= $2";
const MESSAGE: &str = "UPDATE tasks SET message = $2 WHERE id = $1";

static ADD_LINES: Multi = Multi::new(
    "INSERT INTO task_log (task, line, at, text) SELECT v.task, v.line, v.at, v.text FROM {rows}",
    &[("task", "text"), ("line", "bigint"), ("at", "bigint"), ("text", "text")],
);

struct Record {
    held: Held,
    key: String,
    write: RowWrite,
    now: Timestamp,
}

/// What became of one write.
enum Recording {
    Written(Option<i64>),
    /// It was written before.
    Known(Option<i64>),
    /// Allowed, and yet to be written.
    Status {
        changes: bool,
    },
}

impl Record {
    /// Checks it, and writes it unless it is one that is written together with others.
    async fn one(&self, found: Option<&Row>, tx: &mut Tx<'_>) -> Result<Recording, ControlError> {
        let row = found.ok_or(ControlError::Fenced)?;
        let task = tasks::task(row)?;
        if !completion::is_held(&task, self.held.fence, self.now) {
            return Err(ControlError::Fenced);
        }
        if row.get(27)? {
            return Ok(Recording::Known(row.get(28)?));
        }
        let accepted: String = row.get(29)?;
        Check { task: &task, accepted: &accepted, write: &self.write }.run(tx).await?;
        match &self.write {
            RowWrite::ForgetResource(id) => self.forget(id, &task, tx).await?,
            RowWrite::Status { .. } => return Ok(Recording::Status { changes: task.op.mutates() }),
            write => {
                let answer = tx.write(write, self.held.fence, &task.id.0, self.now.as_microsecond()).await?;
                if let WriteAnswer::Entry(number) = answer {
                    return Ok(Recording::Written(Some(number)));
                }
            }
        }
        Ok(Recording::Written(None))
    }

    async fn forget(&self, id: &ResourceId, task: &Task, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let now = self.now.as_microsecond();
        let Some(found) = facts::of(tx, id).await? else { return Ok(()) };
        if found.facts.deleting {
            facts::wake_references(tx, &[id.into()], now).await?;
            tx.write(&self.write, self.held.fence, &task.id.0, now).await?;
            tx.event(id, "deleted", "", &task.id.0, self.now);
        } else {
            tx.execute(Query::about(crate::sql::FORGET_UNITS_OF, id)).await?;
            facts::write(tx, found.patched(&Event::ObjectsDeleted, now).into_iter().collect()).await?;
        }
        Ok(())
    }

    /// What refers to this one, which is not as it was, is looked at again.
    async fn outdate_referrers(&self, id: &ResourceId, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let Some(row) = tx.row(Query::about(AUTHOR_OF, id)).await? else { return Ok(()) };
        let (by, trace) = (Party { name: row.get(0)?, id: row.get(1)? }, row.get::<String>(2)?);
        let message = format!("{id} has changed");
        let event = Event::ReferenceChanged { message: &message, by: &by, trace: &trace };
        let mut patches = Vec::new();
        for (child, found) in facts::referrers(tx, &[id.into()]).await? {
            let Some(patch) = transition(&found.facts, &event, self.now.as_microsecond()) else { continue };
            if patch.facts.state != found.facts.state {
                tx.event(&child, patch.facts.state.as_str(), &message, &self.held.task.0, self.now);
            }
            patches.push(PatchRow::new(&found, patch));
        }
        facts::write(tx, patches).await
    }
}

/// From 50 to 100, the same for the same resource: checks of many that became ready at once are spread.
fn jitter_percent(id: &ResourceId) -> i64 {
    let bytes = [&id.kind, &id.name, &id.org, &id.env].into_iter().flat_map(|part| part.bytes().chain([0]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    50 + i64::try_from((hash >> 16) % 51).unwrap_or(0)
}

#[derive(Serialize)]
struct HeldRow<'a> {
    n: usize,
    of_task: &'a str,
    of_key: &'a str,
    entry: Option<i64>,
}

impl<'a> HeldRow<'a> {
    fn of(n: usize, record: &'a Record, entry: Option<i64>) -> Self {
        Self { n, of_task: &record.held.task.0, of_key: &record.key, entry }
    }
}

#[derive(Serialize)]
struct SettledRow<'a> {
    to_kind: &'a str,
    to_name: &'a str,
    to_org: &'a str,
    to_env: &'a str,
    number: i64,
    now: i64,
}

#[derive(Serialize)]
struct StatusPatch<'a> {
    #[serde(flatten)]
    patch: PatchRow,
    outputs: &'a str,
    facts: &'a str,
    secret_names: &'a str,
    secrets: &'a str,
    secrets_seal: i64,
}

/// What is stored of a resource whose status is written.
struct Before {
    found: Found,
    outputs: String,
    has_referrers: bool,
}

impl Before {
    /// Whether what others were made from is another now: the outputs, or the manifest. An Account is where things live, not
    /// what they are made from.
    fn outdates(&self, id: &ResourceId, status: &StatusRow, patched: &Facts) -> Result<bool, StoreError> {
        if !self.has_referrers || id.kind == "Account" || status.state != ResourceState::Ready {
            return Ok(false);
        }
        let read = |text: &str| rows::parse::<Value>(text, || format!("the outputs of {id}"));
        let observed = self.found.facts.observed_generation;
        Ok(patched.observed_generation != observed || read(&self.outputs)? != read(&status.outputs)?)
    }
}

async fn before(records: &[(&Record, bool)], tx: &mut Tx<'_>) -> Result<HashMap<usize, Before>, StoreError> {
    let ids = records.iter().zip(0..);
    let ids: Vec<Numbered> =
        ids.filter_map(|((record, _), n)| Some(Numbered { n, id: subject(&record.write)?.into() })).collect();
    let mut all = HashMap::new();
    for row in tx.rows_many(&BEFORE, &ids).await? {
        let n = usize::try_from(row.get::<i64>(FACT_COLUMNS)?).unwrap_or(usize::MAX);
        let (outputs, has_referrers) = (row.get(FACT_COLUMNS + 1)?, row.get(FACT_COLUMNS + 2)?);
        all.insert(n, Before { found: facts::found(&row, 0)?, outputs, has_referrers });
    }
    Ok(all)
}

/// The status of many resources, in a statement for all; no resource is there twice. Whether each is there.
async fn statuses(records: &[(&Record, bool)], tx: &mut Tx<'_>) -> Result<Vec<bool>, StoreError> {
    let all = before(records, tx).await?;
    let (mut rows, mut settled, mut outdated) = (Vec::with_capacity(records.len()), Vec::new(), Vec::new());
    for (n, (record, changes)) in records.iter().enumerate() {
        let RowWrite::Status { resource: id, status } = &record.write else { continue };
        let Some(before) = all.get(&n) else { continue };
        let (old, now) = (&before.found.facts, record.now.as_microsecond());
        let report = StatusReport {
            changes: *changes,
            state: status.state,
            message: &status.message,
            observed_generation: status.observed_generation,
            first_check_percent: jitter_percent(id),
        };
        let Some(patch) = transition(old, &Event::StatusReported(report), now) else { continue };
        if old.state != status.state {
            tx.event(id, status.state.as_str(), &status.message, &record.held.task.0, record.now);
        }
        if status.state == ResourceState::Ready {
            let IdRow { kind: to_kind, name: to_name, org: to_org, env: to_env } = id.into();
            settled.push(SettledRow { to_kind, to_name, to_org, to_env, number: record.held.fence, now });
        }
        if before.outdates(id, status, &patch.facts)? {
            outdated.push((*record, id));
        }
        rows.push(StatusPatch {
            patch: PatchRow::new(&before.found, patch),
            outputs: &status.outputs,
            facts: &status.facts,
            secret_names: &status.secret_names,
            secrets: &status.secrets,
            secrets_seal: status.secrets_seal,
        });
    }
    tx.execute_many(&SETTLE, &settled).await?;
    tx.execute_many(&STATUS, &rows).await?;
    tx.news |= !rows.is_empty();
    for (record, id) in outdated {
        record.outdate_referrers(id, tx).await?;
    }
    Ok((0..records.len()).map(|n| all.contains_key(&n)).collect())
}

#[async_trait]
impl Operation for Record {
    type Answer = Option<EntryId>;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Self::Answer, ControlError> {
        only(Self::run_many(&[self], tx).await)
    }

    /// In rounds: no task and no resource is twice in one.
    async fn run_many(ops: &[&Self], tx: &mut Tx<'_>) -> Result<Vec<Result<Self::Answer, ControlError>>, BatchFailure> {
        let mut answers: Vec<Option<Result<Self::Answer, ControlError>>> = ops.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..ops.len()).collect();
        while !left.is_empty() {
            let (mut tasks, mut resources) = (HashSet::new(), HashSet::new());
            let (round, later): (Vec<usize>, Vec<usize>) = left.into_iter().partition(|&at| {
                let about = subject(&ops[at].write);
                // What comes after one that has to wait waits with it: writes of a task stay in their order.
                let first = tasks.insert(&ops[at].held.task.0);
                first && about.is_none_or(|id| resources.insert(id))
            });
            record_round(ops, &round, &mut answers, tx).await?;
            left = later;
        }
        Ok(answers.into_iter().map(|one| one.unwrap_or(Err(ControlError::Store(StoreError::Ended)))).collect())
    }
}

async fn record_round(
    ops: &[&Record],
    round: &[usize],
    answers: &mut [Option<Result<Option<EntryId>, ControlError>>],
    tx: &mut Tx<'_>,
) -> Result<(), BatchFailure> {
    let asked: Vec<HeldRow> = round.iter().map(|&at| HeldRow::of(at, ops[at], None)).collect();
    let mut found = HashMap::new();
    for row in tx.rows_many(&HELD, &asked).await? {
        found.insert(usize::try_from(row.get::<i64>(26)?).unwrap_or(usize::MAX), row);
    }
    let (mut told, mut records, mut done) = (Vec::new(), Vec::new(), Vec::new());
    for &at in round {
        let op = ops[at];
        let before = tx.writes;
        match op.one(found.get(&at), tx).await {
            Ok(Recording::Status { changes }) => {
                told.push(at);
                records.push((op, changes));
            }
            Ok(Recording::Written(entry)) => done.push((at, entry)),
            Ok(Recording::Known(entry)) => answers[at] = Some(Ok(entry.map(EntryId))),
            Err(ControlError::Store(error)) => return Err(error.into()),
            Err(error) if tx.writes != before => return Err(BatchFailure::Half(error)),
            Err(error) => answers[at] = Some(Err(error)),
        }
    }
    for (at, is_there) in told.into_iter().zip(statuses(&records, tx).await?) {
        match subject(&ops[at].write).filter(|_| !is_there) {
            Some(id) => answers[at] = Some(Err(ControlError::NotFound(id.to_string()))),
            None => done.push((at, None)),
        }
    }
    let remember: Vec<HeldRow> = done.iter().map(|(at, entry)| HeldRow::of(*at, ops[*at], *entry)).collect();
    tx.execute_many(&REMEMBER, &remember).await?;
    for (at, entry) in done {
        answers[at] = Some(Ok(entry.map(EntryId)));
    }
    Ok(())
}

#[derive(Serialize)]
struct Line<'a> {
    task: &'a str,
    line: i64,
    at: i64,
    text: &'a str,
}

struct Progress {
    held: Held,
    message: String,
    lines: Vec<(i64, String)>,
    now: Timestamp,
}

#[async_trait]
impl Operation for Progress {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let task = held(tx, &self.held, self.now).await?;
        if !self.message.is_empty() && self.message != task.message {
            tx.execute(Query::new(MESSAGE).bind(&task.id.0).bind(&self.message)).await?;
            tx.news = true;
        }
        if self.lines.is_empty() {
            return Ok(());
        }
        let row = tx.row(Query::new(LAST_LINE).bind(&task.id.0)).await?;
        let last: i64 = row.ok_or(StoreError::Ended)?.get(0)?;
        let lines: Vec<Line> = self
            .lines
            .iter()
            .zip(last + 1..)
            .map(|((at, text), line)| Line { task: &task.id.0, line, at: *at, text })
            .collect();
        let last = lines.last().map_or(last, |line| line.line);
        tx.execute_many(&ADD_LINES, &lines).await?;
        if last > LOG_LINES_MAX {
            tx.execute(Query::new(DROP_LINES).bind(&task.id.0).bind(last - LOG_LINES_MAX)).await?;
        }
        tx.news = true;
        Ok(())
    }
}

impl Control {
    /// A write of the engine's. The same key again: the same answer, and no second effect.
    pub async fn record(
        &self,
        held: &Held,
        key: &str,
        write: Recorded,
        now: Timestamp,
    ) -> Result<Option<EntryId>, ControlError> {
        check_count("a record's key", key.len(), KEY_BYTES_MAX)?;
        let encoder = self.encoder();
        let write = match write {
            Recorded::Intent(intent) => encoder.intent(intent)?,
            Recorded::Close { entry, closing } => encoder.close(entry, closing)?,
            Recorded::SaveUnit(unit) => RowWrite::SaveUnit(encoder.unit(&unit)?),
            Recorded::ForgetUnit { resource, key, token } => RowWrite::ForgetUnit { resource, key, token },
            Recorded::Status { resource, status } => encoder.status(&resource, &status)?,
            Recorded::ForgetResource(resource) => RowWrite::ForgetResource(resource),
            Recorded::Event { resource, what, detail } => encoder.event(&resource, &what, &detail),
        };
        self.write(Record { held: held.clone(), key: key.to_owned(), write, now }).await
    }

    /// What the task is at, and lines for its log.
    pub async fn progress(
        &self,
        held: &Held,
        message: &str,
        lines: Vec<(Timestamp, String)>,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        check_count("the list of log lines", lines.len(), LOG_CALL_MAX)?;
        let short = |text: String| match text.char_indices().find(|(at, _)| *at >= LOG_LINE_BYTES_MAX) {
            Some((at, _)) => text[..at].to_owned(),
            None => text,
        };
        let lines = lines.into_iter().map(|(at, text)| (at.as_microsecond(), short(cut(text)))).collect();
        self.write(Progress { held: held.clone(), message: cut(message.to_owned()), lines, now }).await
    }
}
