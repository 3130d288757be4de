//! What a worker writes while it holds a task: the engine's records, its plan, its progress. Each is checked in the
//! transaction that writes it, and refused where the task is no longer held.

use super::Control;
use super::allowed::{Check, subject};
use super::apply::{NUMBERED, Numbered};
use super::completion::{self, After, held};
use super::tasks::{self, task_columns};
use super::tx::Tx;
use super::types::*;
use super::writer::{Broken, Op};
use crate::db::{Multi, Query, Row};
use crate::encode::{JSON_BYTES_MAX, check_count, cut};
use crate::error::StoreError;
use crate::row_writes::{Answer, StatusRow, Write};
use crate::rows;
use async_trait::async_trait;
use berth_engine::ResourceState;
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
const STATE_OF: &str = "SELECT state, deleting, applied_by, trace, applied_id FROM resources \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";
static STATES_OF: Multi = Multi::new(
    "SELECT v.n, r.state, r.outputs, r.observed_generation, r.generation, \
     EXISTS (SELECT 1 FROM links l WHERE l.kind = v.kind AND l.name = v.name AND l.org = v.org AND l.env = v.env) \
     FROM {rows} JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env",
    NUMBERED,
);
/// Entries that an earlier task left open.
static SETTLE: Multi = Multi::new(
    "UPDATE journal SET ended_at = v.now, outcome = 'interrupted' FROM {rows} WHERE journal.ended_at IS NULL \
     AND journal.fence < v.number AND v.new_state = 'Ready' AND journal.kind = v.to_kind AND journal.name = v.to_name \
     AND journal.org = v.to_org AND journal.env = v.to_env",
    STATUS_COLUMNS,
);
/// As `sql::STATUS`. What is being deleted is not Ready, whatever a worker that has not heard of it says. Drift is looked
/// for while Ready; a check neither begins nor ends that.
static STATUS: Multi = Multi::new(
    "UPDATE resources SET message = v.new_message, outputs = v.new_outputs, facts = v.new_facts, status_at = v.now, \
     state = CASE WHEN deleting AND v.new_state = 'Ready' THEN 'Deleting' ELSE v.new_state END, \
     observed_generation = CASE WHEN v.observed > 0 THEN v.observed WHEN v.new_state = 'Ready' THEN generation \
       ELSE observed_generation END, \
     secret_names = CASE WHEN v.new_secrets = '' THEN secret_names ELSE v.new_secret_names END, \
     secrets_seal = CASE WHEN v.new_secrets = '' THEN secrets_seal ELSE v.new_secrets_seal END, \
     secrets = CASE WHEN v.new_secrets = '' THEN secrets ELSE v.new_secrets END, \
     drift = CASE WHEN v.changes AND v.new_state = 'Ready' THEN '' ELSE drift END, \
     drift_at = CASE WHEN NOT v.changes THEN drift_at \
       WHEN v.new_state = 'Ready' AND NOT deleting AND drift_every IS NOT NULL \
       THEN COALESCE(drift_at, v.now + drift_every * v.jitter / 100) ELSE NULL END \
     FROM {rows} WHERE resources.kind = v.to_kind AND resources.name = v.to_name AND resources.org = v.to_org \
     AND resources.env = v.to_env",
    STATUS_COLUMNS,
);
const STATUS_COLUMNS: &[(&str, &str)] = &[
    ("to_kind", "text"),
    ("to_name", "text"),
    ("to_org", "text"),
    ("to_env", "text"),
    ("number", "bigint"),
    ("changes", "boolean"),
    ("now", "bigint"),
    ("new_state", "text"),
    ("new_message", "text"),
    ("new_outputs", "text"),
    ("new_facts", "text"),
    ("observed", "bigint"),
    ("new_secret_names", "text"),
    ("new_secrets", "text"),
    ("new_secrets_seal", "bigint"),
    ("jitter", "bigint"),
];
/// Those that refer to what changed are as they should be no longer: they may have been made from what it was before. What
/// was allowed or approved for them was not for this. Whoever changed it changed them.
const UNSETTLE_CHILDREN: &str = "UPDATE resources SET state = 'Pending', message = $6, status_at = $5, due_at = $5, \
     due_mark = due_mark + 1, attempts = 0, allow_replace = FALSE, allow_data_loss = FALSE, \
     allow_recreate = FALSE, plan_digest = '', \
     approved_by = '', approved_id = '', applied_by = $7, trace = $8, applied_id = $9 \
     WHERE id IN (SELECT child FROM links WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4) \
     AND state = 'Ready' AND observed_generation = generation AND NOT deleting AND service <> '' \
     RETURNING kind, name, org, env";
/// A task may be making one of them right now, from what was before. The next lease sees what is.
const OUTDATE_CHILDREN: &str = "UPDATE resources SET stale = TRUE \
     WHERE id IN (SELECT child FROM links WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4) \
     AND NOT (state = 'Ready' AND observed_generation = generation) AND NOT deleting";
/// It is wanted again, and nothing of it is left: it begins anew.
const BEGIN_ANEW: &str = "UPDATE resources SET state = 'Pending', message = '', observed_generation = 0, outputs = '{}', \
     facts = '{}', secret_names = '', secrets = '', due_at = $5, due_mark = due_mark + 1 \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";
/// What the one that goes referred to may now go too.
pub(super) const WAKE_PARENTS: &str = "UPDATE resources SET due_at = $5, due_mark = due_mark + 1 WHERE deleting AND id IN (\
     SELECT p.id FROM links l JOIN resources p ON p.kind = l.kind AND p.name = l.name AND p.org = l.org AND p.env = l.env \
     WHERE l.child = (SELECT id FROM resources WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4))";
const SAVE_PLAN: &str = "UPDATE resources SET plan = $5, plan_digest = $6, \
     approved_by = CASE WHEN plan_digest = $6 THEN approved_by ELSE '' END, \
     approved_id = CASE WHEN plan_digest = $6 THEN approved_id ELSE '' END \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";
const LAST_LINE: &str = "SELECT COALESCE(MAX(line), 0) FROM task_log WHERE task = $1";
const DROP_LINES: &str = "DELETE FROM task_log WHERE task = $1 AND line <= $2";
const ACCEPTED: &str = "SELECT accepted FROM tasks WHERE id = $1";
const ACCEPT: &str = "UPDATE tasks SET accepted = $2 WHERE id = $1";
const MESSAGE: &str = "UPDATE tasks SET message = $2 WHERE id = $1";

static ADD_LINES: Multi = Multi::new(
    "INSERT INTO task_log (task, line, at, text) SELECT v.task, v.line, v.at, v.text FROM {rows}",
    &[("task", "text"), ("line", "bigint"), ("at", "bigint"), ("text", "text")],
);

struct Record {
    held: Held,
    key: String,
    write: Write,
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
            Write::ForgetResource(id) => self.forget(id, &task, tx).await?,
            Write::Status { .. } => return Ok(Recording::Status { changes: task.op.mutates() }),
            write => {
                let answer = tx.write(write, self.held.fence, &task.id.0, self.now.as_microsecond()).await?;
                if let Answer::Entry(number) = answer {
                    return Ok(Recording::Written(Some(number)));
                }
            }
        }
        Ok(Recording::Written(None))
    }

    async fn forget(&self, id: &ResourceId, task: &Task, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let now = self.now.as_microsecond();
        let row = tx.row(Query::about(STATE_OF, id)).await?;
        let Some(row) = row else { return Ok(()) };
        if row.get::<bool>(1)? {
            tx.execute(Query::about(WAKE_PARENTS, id).bind(now)).await?;
            tx.write(&self.write, self.held.fence, &task.id.0, now).await?;
            tx.event(id, "deleted", "", &task.id.0, self.now);
        } else {
            tx.execute(Query::about(crate::sql::FORGET_UNITS_OF, id)).await?;
            tx.execute(Query::about(BEGIN_ANEW, id).bind(now)).await?;
        }
        Ok(())
    }

    /// What refers to this one, which is not as it was, is looked at again.
    async fn unsettle_children(&self, id: &ResourceId, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let Some(now) = tx.row(Query::about(STATE_OF, id)).await? else { return Ok(()) };
        tx.execute(Query::about(OUTDATE_CHILDREN, id)).await?;
        let message = format!("{id} has changed");
        let (who, trace, who_id): (String, String, String) = (now.get(2)?, now.get(3)?, now.get(4)?);
        let query = Query::about(UNSETTLE_CHILDREN, id).bind(self.now.as_microsecond()).bind(&message);
        for child in tx.returning(query.bind(&who).bind(&trace).bind(&who_id)).await? {
            tx.event(&rows::id_at(&child, 0)?, ResourceState::Pending.as_str(), &message, &self.held.task.0, self.now);
        }
        Ok(())
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
struct StatusChange<'a> {
    to_kind: &'a str,
    to_name: &'a str,
    to_org: &'a str,
    to_env: &'a str,
    number: i64,
    changes: bool,
    now: i64,
    new_state: &'a str,
    new_message: &'a str,
    new_outputs: &'a str,
    new_facts: &'a str,
    observed: i64,
    new_secret_names: &'a str,
    new_secrets: &'a str,
    new_secrets_seal: i64,
    jitter: i64,
}

/// What is stored of a resource whose status is written.
struct Before {
    state: String,
    outputs: String,
    observed: i64,
    generation: i64,
    has_children: bool,
}

impl Before {
    /// Whether what others were made from is another now: the outputs, or the manifest. An Account is where things live, not
    /// what they are made from.
    fn outdates(&self, id: &ResourceId, status: &StatusRow) -> Result<bool, StoreError> {
        if !self.has_children || id.kind == "Account" || status.state != ResourceState::Ready {
            return Ok(false);
        }
        let observed = if status.observed_generation > 0 { status.observed_generation } else { self.generation };
        let read = |text: &str| rows::parse::<Value>(text, || format!("the outputs of {id}"));
        Ok(observed != self.observed || read(&self.outputs)? != read(&status.outputs)?)
    }
}

async fn before(records: &[(&Record, bool)], tx: &mut Tx<'_>) -> Result<HashMap<usize, Before>, StoreError> {
    let ids = records.iter().zip(0..);
    let ids: Vec<Numbered> =
        ids.filter_map(|((record, _), n)| Some(Numbered { n, id: subject(&record.write)?.into() })).collect();
    let mut found = HashMap::new();
    for row in tx.rows_many(&STATES_OF, &ids).await? {
        let before = Before {
            state: row.get(1)?,
            outputs: row.get(2)?,
            observed: row.get(3)?,
            generation: row.get(4)?,
            has_children: row.get(5)?,
        };
        found.insert(usize::try_from(row.get::<i64>(0)?).unwrap_or(usize::MAX), before);
    }
    Ok(found)
}

/// The status of many resources, in a statement for all; no resource is there twice. Whether each is there.
async fn statuses(records: &[(&Record, bool)], tx: &mut Tx<'_>) -> Result<Vec<bool>, StoreError> {
    let found = before(records, tx).await?;
    let (mut rows, mut outdated) = (Vec::with_capacity(records.len()), Vec::new());
    for (n, (record, changes)) in records.iter().enumerate() {
        let Write::Status { resource: id, status } = &record.write else { continue };
        let Some(before) = found.get(&n) else { continue };
        if before.state != status.state.as_str() {
            tx.event(id, status.state.as_str(), &status.message, &record.held.task.0, record.now);
        }
        if before.outdates(id, status)? {
            outdated.push((*record, id));
        }
        rows.push(StatusChange {
            to_kind: &id.kind,
            to_name: &id.name,
            to_org: &id.org,
            to_env: &id.env,
            number: record.held.fence,
            changes: *changes,
            now: record.now.as_microsecond(),
            new_state: status.state.as_str(),
            new_message: &status.message,
            new_outputs: &status.outputs,
            new_facts: &status.facts,
            observed: status.observed_generation,
            new_secret_names: &status.secret_names,
            new_secrets: &status.secrets,
            new_secrets_seal: status.secrets_seal,
            jitter: jitter_percent(id),
        });
    }
    tx.execute_many(&SETTLE, &rows).await?;
    tx.execute_many(&STATUS, &rows).await?;
    tx.news |= !rows.is_empty();
    for (record, id) in outdated {
        record.unsettle_children(id, tx).await?;
    }
    Ok((0..records.len()).map(|n| found.contains_key(&n)).collect())
}

#[async_trait]
impl Op for Record {
    type Answer = Option<EntryId>;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Self::Answer, ControlError> {
        match Self::run_many(&[self], tx).await {
            Ok(mut answers) => answers.pop().unwrap_or(Ok(None)),
            Err(Broken::Store(error)) => Err(error.into()),
            Err(Broken::Half(error)) => Err(error),
        }
    }

    /// In rounds: no task and no resource is twice in one.
    async fn run_many(ops: &[&Self], tx: &mut Tx<'_>) -> Result<Vec<Result<Self::Answer, ControlError>>, Broken> {
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
) -> Result<(), Broken> {
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
            Err(error) if tx.writes != before => return Err(Broken::Half(error)),
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

struct SubmitPlan {
    held: Held,
    plan: SubmittedPlan,
    steps: String,
    decision: PlanDecision,
    now: Timestamp,
}

#[async_trait]
impl Op for SubmitPlan {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let task = held(tx, &self.held, self.now).await?;
        let Some(id) = task.resource.clone().filter(|_| task.op.mutates()) else {
            return Err(ControlError::Refused(format!("a {} task changes nothing", task.op.as_str())));
        };
        let row = tx.row(Query::new(ACCEPTED).bind(&task.id.0)).await?;
        let accepted: String = row.ok_or(StoreError::Ended)?.get(0)?;
        if !accepted.is_empty() {
            // Said again by a worker that did not hear the answer. Another plan would be one that nobody looked at.
            return match accepted == self.steps && self.decision == PlanDecision::Proceed {
                true => Ok(()),
                false => Err(ControlError::Refused(format!("task {} has an accepted plan already", task.id))),
            };
        }
        for warning in &self.plan.warnings {
            tx.event(&id, "PolicyWarning", warning, &task.id.0, self.now);
        }
        tx.execute(Query::about(SAVE_PLAN, &id).bind(&self.plan.text).bind(&self.plan.digest)).await?;
        if self.decision == PlanDecision::Proceed {
            tx.execute(Query::new(ACCEPT).bind(&task.id.0).bind(&self.steps)).await?;
        }
        let (state, message, end) = match &self.decision {
            PlanDecision::Proceed => return Ok(()),
            PlanDecision::AwaitApproval => {
                (ResourceState::AwaitingApproval.as_str(), "its plan waits for approval", TaskState::Done)
            }
            PlanDecision::Hold(message) => {
                (ResourceState::AwaitingApproval.as_str(), message.as_str(), TaskState::Done)
            }
            PlanDecision::Block(message) => (ResourceState::Blocked.as_str(), message.as_str(), TaskState::Failed),
        };
        completion::end(tx, &task, end, message, self.now, false).await?;
        let after = After { outcome: "stopped", state, message: cut(message.to_owned()), retry_at: None };
        completion::after(tx, &task, &after, self.now).await?;
        tx.event(&id, state, message, &task.id.0, self.now);
        Ok(())
    }
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
impl Op for Progress {
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
            Recorded::SaveUnit(unit) => Write::SaveUnit(encoder.unit(&unit)?),
            Recorded::ForgetUnit { resource, key, token } => Write::ForgetUnit { resource, key, token },
            Recorded::Status { resource, status } => encoder.status(&resource, &status)?,
            Recorded::ForgetResource(resource) => Write::ForgetResource(resource),
            Recorded::Event { resource, what, detail } => encoder.event(&resource, &what, &detail),
        };
        self.write(Record { held: held.clone(), key: key.to_owned(), write, now }).await
    }

    /// The worker's plan, and what the gate said to it. Unless it may proceed, the task is over.
    pub async fn submit_plan(
        &self,
        held: &Held,
        plan: SubmittedPlan,
        decision: PlanDecision,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        check_count("a plan", plan.text.len(), JSON_BYTES_MAX)?;
        let steps = serde_json::to_string(&plan.steps).map_err(|error| StoreError::Database(error.to_string()))?;
        check_count("a plan's steps", steps.len(), JSON_BYTES_MAX)?;
        self.write(SubmitPlan { held: held.clone(), plan, steps, decision, now }).await
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
