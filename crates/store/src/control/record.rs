//! What a worker writes while it holds a task: the engine's records, its plan, its progress. Each is checked in the
//! transaction that writes it, and refused where the task is no longer held.

use super::Control;
use super::ends::{self, After, held};
use super::tasks::{self, task_columns};
use super::tx::Tx;
use super::types::*;
use super::writer::Op;
use crate::db::{Multi, Query, Row};
use crate::encode::{JSON_BYTES_MAX, check_count, cut};
use crate::error::StoreError;
use crate::rows;
use crate::writes::{After as UnitAfter, Answer, Write};
use async_trait::async_trait;
use berth_engine::record::EntryId;
use berth_model::ResourceId;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Lines that are kept of a task's log; the oldest go first.
const LOG_LINES_MAX: i64 = 2_000;
/// Lines in one call.
const LOG_CALL_MAX: usize = 1_000;
const LOG_LINE_BYTES_MAX: usize = 4 << 10;
const KEY_BYTES_MAX: usize = 200;

/// The task, and whether this write was done before and with which entry.
const HELD: &str = concat!(
    "SELECT ",
    task_columns!(),
    ", EXISTS (SELECT 1 FROM records WHERE task = $1 AND key = $2), \
     (SELECT entry FROM records WHERE task = $1 AND key = $2) FROM tasks WHERE id = $1"
);
const REMEMBER: &str = "INSERT INTO records (task, key, entry) VALUES ($1, $2, $3)";
const ENTRY_OF: &str = "SELECT kind, name, org, env FROM journal WHERE id = $1";
const STATE_OF: &str = "SELECT state, deleting, outputs, observed_generation, applied_by, trace FROM resources \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";
/// What is being deleted is not Ready, whatever a worker that has not heard of it says. Drift is looked for while Ready.
const AFTER_STATUS: &str = "UPDATE resources SET \
     state = CASE WHEN deleting AND state = 'Ready' THEN 'Deleting' ELSE state END, \
     drift = CASE WHEN state = 'Ready' THEN '' ELSE drift END, \
     drift_at = CASE WHEN state = 'Ready' AND NOT deleting AND drift_every IS NOT NULL \
       THEN COALESCE(drift_at, $5 + drift_every * $6 / 100) ELSE NULL END \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";
/// The same of a check, which neither begins nor ends that anyone looks for drift.
const AFTER_CHECK: &str = "UPDATE resources SET state = 'Deleting' WHERE kind = $1 AND name = $2 AND org = $3 \
     AND env = $4 AND deleting AND state = 'Ready'";
/// Those that refer to what changed are as they should be no longer: they may have been made from what it was before. What
/// was allowed or approved for them was not for this. Whoever changed it changed them.
const UNSETTLE_CHILDREN: &str = "UPDATE resources SET state = 'Pending', message = $6, status_at = $5, due_at = $5, \
     due_mark = due_mark + 1, attempts = 0, allow_replace = FALSE, allow_data_loss = FALSE, plan_digest = '', \
     approved_by = '', applied_by = $7, trace = $8 \
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
     approved_by = CASE WHEN plan_digest = $6 THEN approved_by ELSE '' END \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";
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
    write: Write,
    now: Timestamp,
}

/// What a write is about, where it says so itself.
fn subject(write: &Write) -> Option<&ResourceId> {
    match write {
        Write::Intent { unit, .. } | Write::SaveUnit(unit) => Some(&unit.resource),
        Write::Close { after: UnitAfter::Save(unit), .. } => Some(&unit.resource),
        Write::ForgetUnit { resource, .. } | Write::Status { resource, .. } | Write::Event { resource, .. } => {
            Some(resource)
        }
        Write::SetDeleting(resource) | Write::ForgetResource(resource) => Some(resource),
        Write::Close { .. } | Write::SaveResources(_) => None,
    }
}

impl Record {
    /// A task that changes something writes about its own resource alone; a check keeps what it saw.
    async fn allowed(&self, task: &Task, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let own = |id: &ResourceId| match task.op.mutates() {
            true => task.resource.as_ref() == Some(id),
            false => task.resource.as_ref() == Some(id) || task.resources.contains(id),
        };
        let foreign = |id: &ResourceId| ControlError::Refused(format!("task {} is not about {id}", task.id));
        if let Some(id) = subject(&self.write).filter(|id| !own(id)) {
            return Err(foreign(id));
        }
        if let Write::Close { entry, .. } = &self.write {
            let row = tx.row(Query::new(ENTRY_OF).bind(*entry)).await?;
            let row = row.ok_or_else(|| ControlError::NotFound(format!("journal entry {entry}")))?;
            let id = rows::id_at(&row, 0)?;
            if !own(&id) {
                return Err(foreign(&id));
            }
        }
        if task.op.mutates() {
            return Ok(());
        }
        let looks = match &self.write {
            Write::SaveUnit(_) | Write::ForgetUnit { .. } | Write::Event { .. } => true,
            // What a check saw is written down, unless it would hide that the resource was changed meanwhile.
            Write::Status { status, .. } => status.observed_generation > 0,
            _ => false,
        };
        if !looks {
            return Err(ControlError::Refused(format!("a {} task changes nothing", task.op.as_str())));
        }
        if let Some(id) = subject(&self.write)
            && ends::changed_since(tx, id, task).await?
        {
            return Err(ControlError::Refused(format!("{id} was changed since it was looked at")));
        }
        Ok(())
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

    async fn status(&self, id: &ResourceId, task: &Task, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let now = self.now.as_microsecond();
        let row = tx.row(Query::about(STATE_OF, id)).await?;
        let row = row.ok_or_else(|| ControlError::NotFound(id.to_string()))?;
        let before: String = row.get(0)?;
        let Write::Status { status, .. } = &self.write else { return Ok(()) };
        tx.write(&self.write, self.held.fence, &task.id.0, now).await?;
        let settle = match task.op.mutates() {
            true => Query::about(AFTER_STATUS, id).bind(now).bind(jitter_percent(id)),
            false => Query::about(AFTER_CHECK, id),
        };
        tx.execute(settle).await?;
        if before != status.state {
            tx.event(id, &status.state, &status.message, &task.id.0, self.now);
        }
        if status.state == "Ready" {
            self.unsettle_children(id, &row, task, tx).await?;
        }
        Ok(())
    }

    /// What refers to this one is looked at again when the outputs or the manifest that it was made from are others. An
    /// Account is where things live, not what they are made from.
    async fn unsettle_children(
        &self,
        id: &ResourceId,
        before: &Row,
        task: &Task,
        tx: &mut Tx<'_>,
    ) -> Result<(), ControlError> {
        let after = tx.row(Query::about(STATE_OF, id)).await?;
        let Some(after) = after.filter(|_| id.kind != "Account") else { return Ok(()) };
        let made_from = |row: &Row| -> Result<(Value, i64), StoreError> {
            let outputs: String = row.get(2)?;
            Ok((rows::parse(&outputs, || format!("the outputs of {id}"))?, row.get(3)?))
        };
        if made_from(before)? == made_from(&after)? {
            return Ok(());
        }
        tx.execute(Query::about(OUTDATE_CHILDREN, id)).await?;
        let message = format!("{id} has changed");
        let (who, trace): (String, String) = (after.get(4)?, after.get(5)?);
        let query = Query::about(UNSETTLE_CHILDREN, id).bind(self.now.as_microsecond()).bind(&message);
        for child in tx.returning(query.bind(&who).bind(&trace)).await? {
            tx.event(&rows::id_at(&child, 0)?, "Pending", &message, &task.id.0, self.now);
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

#[async_trait]
impl Op for Record {
    type Answer = Option<EntryId>;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Self::Answer, ControlError> {
        let row = tx.row(Query::new(HELD).bind(&self.held.task.0).bind(&self.key)).await?;
        let row = row.ok_or(ControlError::Fenced)?;
        let task = tasks::task(&row)?;
        if !ends::is_held(&task, self.held.fence, self.now) {
            return Err(ControlError::Fenced);
        }
        if row.get(26)? {
            return Ok(row.get::<Option<i64>>(27)?.map(EntryId));
        }
        self.allowed(&task, tx).await?;
        let mut entry = None;
        match &self.write {
            Write::ForgetResource(id) => self.forget(id, &task, tx).await?,
            Write::Status { resource, .. } => self.status(resource, &task, tx).await?,
            write => {
                let answer = tx.write(write, self.held.fence, &task.id.0, self.now.as_microsecond()).await?;
                if let Answer::Entry(number) = answer {
                    entry = Some(number);
                }
            }
        }
        let remember = Query::new(REMEMBER).bind(&self.held.task.0).bind(&self.key).bind(entry);
        tx.execute(remember).await?;
        Ok(entry.map(EntryId))
    }
}

struct SubmitPlan {
    held: Held,
    plan: String,
    digest: String,
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
        tx.execute(Query::about(SAVE_PLAN, &id).bind(&self.plan).bind(&self.digest)).await?;
        let (state, message, end) = match &self.decision {
            PlanDecision::Proceed => return Ok(()),
            PlanDecision::AwaitApproval => ("AwaitingApproval", "its plan waits for approval", TaskState::Done),
            PlanDecision::Block(message) => ("Blocked", message.as_str(), TaskState::Failed),
        };
        ends::end(tx, &task, end, message, self.now, false).await?;
        let after = After { outcome: "stopped", state, message: cut(message.to_owned()), retry_at: None };
        ends::after(tx, &task, &after, self.now).await?;
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
        plan: &str,
        digest: &str,
        decision: PlanDecision,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        check_count("a plan", plan.len(), JSON_BYTES_MAX)?;
        let op = SubmitPlan { held: held.clone(), plan: plan.to_owned(), digest: digest.to_owned(), decision, now };
        self.write(op).await
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
