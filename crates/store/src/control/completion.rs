//! How tasks end, and what becomes of their resources. Reports that wait at once share their statements.

use super::Control;
use super::columns::IdRow;
use super::drift_checks;
use super::facts::{self, Found, fact_columns};
use super::server_writer::{BatchFailure, Operation, only};
use super::tasks::{self, task, task_columns};
use super::tx::Tx;
use super::types::*;
use crate::db::{Multi, Query};
use crate::encode::{JSON_BYTES_MAX, check_count, cut};
use crate::error::StoreError;
use crate::sealed_place::SealedPlace;
use async_trait::async_trait;
use berth_engine::lifecycle::{Change, Ended, Event, TaskEnd};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Lines of help that come with an end.
const HELP_MAX: usize = 20;
/// Findings of one drift check.
const FOUND_MAX: usize = 1_000;

const IS_WAITING: &str = "SELECT waiting FROM tasks WHERE id = $1";
const CANCEL_MARK: &str = "SELECT cancel_mark FROM tasks WHERE id = $1";
const REQUEUE: &str = "UPDATE tasks SET state = 'queued', waiting = $3, run_after = $4, worker = '', lease_until = NULL, \
     message = $2 WHERE id = $1";

/// The tasks, what was accepted for each, and the facts of the resources that they change.
static TASKS: Multi = Multi::new(
    concat!(
        "SELECT t.*, ",
        fact_columns!(),
        " FROM (SELECT ",
        task_columns!(),
        ", accepted, cancel_mark, mutates FROM tasks WHERE id IN (SELECT v.task FROM {rows})) AS t \
         LEFT JOIN resources r ON t.mutates AND r.kind = t.kind AND r.name = t.name AND r.org = t.org AND r.env = t.env"
    ),
    &[("task", "text")],
);

static END: Multi = Multi::new(
    "UPDATE tasks SET state = v.new_state, ended_at = v.now, message = v.new_message, help = v.new_help, \
     result = v.new_result, lease_until = NULL, waiting = FALSE FROM {rows} WHERE tasks.id = v.task",
    &[
        ("task", "text"),
        ("new_state", "text"),
        ("now", "bigint"),
        ("new_message", "text"),
        ("new_help", "text"),
        ("new_result", "text"),
    ],
);

static FORGET_RECORDS: Multi =
    Multi::new("DELETE FROM records WHERE task IN (SELECT v.task FROM {rows})", &[("task", "text")]);

#[derive(Serialize)]
struct OnTask<'a> {
    task: &'a str,
}

#[derive(Serialize)]
struct EndRow<'a> {
    task: &'a str,
    new_state: &'a str,
    now: i64,
    new_message: &'a str,
    new_help: &'a str,
    new_result: &'a str,
}

pub(super) async fn is_waiting(tx: &mut Tx<'_>, id: &TaskId) -> Result<bool, StoreError> {
    let row = tx.row(Query::new(IS_WAITING).bind(&id.0)).await?;
    row.map_or(Ok(false), |row| row.get(0))
}

/// The task is over; its resource is not touched. `waiting`: it was queued, and its time had not come.
pub(super) async fn end(
    tx: &mut Tx<'_>,
    task: &Task,
    state: TaskState,
    message: &str,
    now: Timestamp,
    waiting: bool,
) -> Result<(), StoreError> {
    let message = cut(message.to_owned());
    let row = EndRow {
        task: &task.id.0,
        new_state: state.as_str(),
        now: now.as_microsecond(),
        new_message: &message,
        new_help: "",
        new_result: "",
    };
    tx.execute_many(&END, &[row]).await?;
    let lane = tx.lane(task.lane());
    match task.state {
        TaskState::Queued => lane.queued -= i64::from(!waiting),
        _ => {
            lane.running -= 1;
            tx.execute_many(&FORGET_RECORDS, &[OnTask { task: &task.id.0 }]).await?;
        }
    }
    tell(tx, task, state, &message, now);
    Ok(())
}

fn tell(tx: &mut Tx<'_>, task: &Task, state: TaskState, message: &str, now: Timestamp) {
    if let Some(id) = &task.resource {
        let detail =
            if message.is_empty() { task.op.as_str().to_owned() } else { format!("{}: {message}", task.op.as_str()) };
        tx.event(id, state.as_str(), &detail, &task.id.0, now);
    }
}

/// The event that the end of a task is for its resource; `None` for a task that changes none.
fn end_event<'a>(task: &Task, ended: Ended, message: &'a str, retry_at: Option<i64>) -> Option<Event<'a>> {
    let change = match task.op {
        TaskOp::Apply => Change::Apply,
        TaskOp::Delete => Change::Delete,
        TaskOp::Drift | TaskOp::Plan | TaskOp::Import => return None,
    };
    Some(Event::TaskEnded(TaskEnd { change, generation: task.generation, ended, message, retry_at }))
}

/// What the end of a task that changes something means for its resource.
pub(super) async fn after(
    tx: &mut Tx<'_>,
    task: &Task,
    ended: Ended,
    message: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (Some(id), Some(event)) = (&task.resource, end_event(task, ended, message, None)) else { return Ok(()) };
    let Some(found) = facts::of(tx, id).await? else { return Ok(()) };
    facts::write(tx, found.patched(&event, now.as_microsecond()).into_iter().collect()).await
}

/// The task was cancelled by somebody, or given up for something else.
pub(super) async fn after_cancel(
    tx: &mut Tx<'_>,
    task: &Task,
    message: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = tx.row(Query::new(CANCEL_MARK).bind(&task.id.0)).await?;
    let mark = row.map_or(Ok(None), |row| row.get(0))?;
    after(tx, task, Ended::Cancelled { mark }, message, now).await
}

/// Back to the queue, for now or from that time on; or over, where it was asked to stop or something else is wanted.
pub(super) async fn give_back(
    tx: &mut Tx<'_>,
    task: &Task,
    message: &str,
    now: Timestamp,
    from: Timestamp,
) -> Result<(), StoreError> {
    let message = cut(message.to_owned());
    let mut unwanted = task.cancelling;
    if let Some(id) = task.resource.as_ref().filter(|_| task.op.mutates()) {
        match facts::of(tx, id).await? {
            None => {
                let state = if task.op == TaskOp::Delete { TaskState::Done } else { TaskState::Cancelled };
                return end(tx, task, state, &message, now, false).await;
            }
            // Its resource went, and one of the same name came after it; or it was wanted again.
            Some(found) => unwanted |= found.facts.deleting != (task.op == TaskOp::Delete),
        }
    }
    if unwanted {
        end(tx, task, TaskState::Cancelled, &message, now, false).await?;
        return after_cancel(tx, task, &message, now).await;
    }
    let waits = from > now;
    let query = Query::new(REQUEUE).bind(&task.id.0).bind(&message).bind(waits).bind(from.as_microsecond());
    tx.execute(query).await?;
    tx.execute_many(&FORGET_RECORDS, &[OnTask { task: &task.id.0 }]).await?;
    let lane = tx.lane(task.lane());
    lane.running -= 1;
    lane.queued += i64::from(!waits);
    if let Some(id) = &task.resource {
        tx.event(id, "queued again", &message, &task.id.0, now);
    }
    Ok(())
}

/// Whether the task is held under this number, at this time.
pub(super) fn is_held(task: &Task, fence: i64, now: Timestamp) -> bool {
    task.state == TaskState::Running && task.fence == fence && task.lease_until.is_some_and(|until| until > now)
}

/// The task, if it is held.
pub(super) async fn held(tx: &mut Tx<'_>, held: &Held, now: Timestamp) -> Result<Task, ControlError> {
    match tasks::find(tx, &held.task).await? {
        Some(task) if is_held(&task, held.fence, now) => Ok(task),
        _ => Err(ControlError::Fenced),
    }
}

struct Report {
    held: Held,
    outcome: TaskOutcome,
    message: String,
    retry_at: Option<i64>,
    help: String,
    result: String,
    drift: Vec<DriftFound>,
    now: Timestamp,
}

impl Report {
    fn state(&self) -> TaskState {
        match self.outcome {
            TaskOutcome::Done => TaskState::Done,
            TaskOutcome::Failed | TaskOutcome::Refused => TaskState::Failed,
            TaskOutcome::Cancelled => TaskState::Cancelled,
        }
    }

    fn ended(&self, cancel_mark: Option<i64>) -> Ended {
        match self.outcome {
            TaskOutcome::Done => Ended::Done,
            TaskOutcome::Failed => Ended::Failed,
            TaskOutcome::Refused => Ended::Refused,
            TaskOutcome::Cancelled => Ended::Cancelled { mark: cancel_mark },
        }
    }
}

/// A task that a worker says something about.
pub(super) struct TaskInHand {
    pub task: Task,
    /// Steps of the plan that was accepted for it; empty while there is none.
    pub accepted: String,
    cancel_mark: Option<i64>,
    /// Of the resource that it changes.
    pub resource: Option<Found>,
}

/// Those of these tasks that there are, in one statement.
pub(super) async fn in_hand<'a>(
    tx: &mut Tx<'_>,
    tasks: impl Iterator<Item = &'a TaskId>,
) -> Result<HashMap<String, TaskInHand>, StoreError> {
    /// `accepted`, `cancel_mark`, `mutates`, then the facts.
    const AT: usize = tasks::TASK_COLUMNS;
    let ids: Vec<OnTask> = tasks.map(|id| OnTask { task: &id.0 }).collect();
    let mut all = HashMap::with_capacity(ids.len());
    for row in tx.rows_many(&TASKS, &ids).await? {
        let task = task(&row)?;
        let is_stored = row.get::<Option<i64>>(AT + 3)?.is_some();
        let one = TaskInHand {
            accepted: row.get(AT)?,
            cancel_mark: row.get(AT + 1)?,
            resource: if is_stored { Some(facts::found(&row, AT + 3)?) } else { None },
            task,
        };
        all.insert(one.task.id.0.clone(), one);
    }
    Ok(all)
}

#[async_trait]
impl Operation for Report {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        only(Self::run_many(&[self], tx).await)
    }

    async fn run_many(ops: &[&Self], tx: &mut Tx<'_>) -> Result<Vec<Result<(), ControlError>>, BatchFailure> {
        let found = in_hand(tx, ops.iter().map(|op| &op.held.task)).await?;
        let mut answers = Vec::with_capacity(ops.len());
        let mut ending: Vec<(&Report, &TaskInHand)> = Vec::new();
        let mut seen = HashSet::new();
        for op in ops {
            let answer = match found.get(&op.held.task.0) {
                Some(one) if is_held(&one.task, op.held.fence, op.now) => {
                    if op.outcome == TaskOutcome::Done && one.task.op.mutates() && one.accepted.is_empty() {
                        let why = format!("task {} cannot be done: it has no accepted plan", one.task.id);
                        answers.push(Err(ControlError::Refused(why)));
                        continue;
                    }
                    if seen.insert(&op.held.task.0) {
                        ending.push((op, one));
                    }
                    Ok(())
                }
                // Reported again by the worker that ended it.
                Some(one) if !one.task.state.is_open() && one.task.fence == op.held.fence => Ok(()),
                _ => Err(ControlError::Fenced),
            };
            answers.push(answer);
        }
        end_all(&ending, tx).await?;
        Ok(answers)
    }
}

async fn end_all(ending: &[(&Report, &TaskInHand)], tx: &mut Tx<'_>) -> Result<(), StoreError> {
    let rows: Vec<EndRow> = ending
        .iter()
        .map(|(op, one)| EndRow {
            task: &one.task.id.0,
            new_state: op.state().as_str(),
            now: op.now.as_microsecond(),
            new_message: &op.message,
            new_help: &op.help,
            new_result: &op.result,
        })
        .collect();
    tx.execute_many(&END, &rows).await?;
    let ids: Vec<OnTask> = ending.iter().map(|(_, one)| OnTask { task: &one.task.id.0 }).collect();
    tx.execute_many(&FORGET_RECORDS, &ids).await?;
    let patches = ending.iter().filter_map(|(op, one)| {
        let event = end_event(&one.task, op.ended(one.cancel_mark), &op.message, op.retry_at)?;
        one.resource.as_ref()?.patched(&event, op.now.as_microsecond())
    });
    facts::write(tx, patches.collect()).await?;
    let made = ending.iter().filter(|(op, one)| op.outcome == TaskOutcome::Done && one.task.op == TaskOp::Apply);
    let ready: Vec<IdRow> = made.filter_map(|(_, one)| one.task.resource.as_ref().map(IdRow::from)).collect();
    let now = ending.iter().map(|(op, _)| op.now.as_microsecond()).max().unwrap_or_default();
    facts::wake_referrers(tx, &ready, now).await?;
    for (op, one) in ending {
        tx.lane(one.task.lane()).running -= 1;
        tell(tx, &one.task, op.state(), &op.message, op.now);
        if one.task.op == TaskOp::Drift {
            drift_checks::found(&one.task, &op.drift, op.now, tx).await?;
        }
    }
    Ok(())
}

struct Release {
    held: Held,
    why: String,
    now: Timestamp,
}

#[async_trait]
impl Operation for Release {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let task = match tasks::find(tx, &self.held.task).await? {
            Some(task) if is_held(&task, self.held.fence, self.now) => task,
            // Said again: it is in the queue, and nobody had it since.
            Some(task) if task.state == TaskState::Queued && task.fence == self.held.fence => return Ok(()),
            _ => return Err(ControlError::Fenced),
        };
        give_back(tx, &task, &self.why, self.now, self.now).await?;
        Ok(())
    }
}

impl Control {
    /// The task is over. A repeated report is fine; one under a number that is no longer the task's is refused.
    pub async fn report(&self, held: &Held, ending: Ending, now: Timestamp) -> Result<(), ControlError> {
        check_count("a drift check's findings", ending.drift.len(), FOUND_MAX)?;
        let help: Vec<String> = ending.help.into_iter().take(HELP_MAX).map(cut).collect();
        let help = match help.is_empty() {
            true => String::new(),
            false => serde_json::to_string(&help).map_err(|error| StoreError::Database(error.to_string()))?,
        };
        let result = match ending.result {
            None => String::new(),
            Some(result) => {
                check_count("a task's result", result.len(), 4 * JSON_BYTES_MAX)?;
                self.store().sealer().seal(&SealedPlace::result(&held.task.0), &result)?
            }
        };
        let retry_at = ending.retry_at.filter(|_| ending.outcome != TaskOutcome::Refused).map(|at| at.as_microsecond());
        self.write(Report {
            held: held.clone(),
            outcome: ending.outcome,
            message: cut(ending.message),
            retry_at,
            help,
            result,
            drift: ending.drift,
            now,
        })
        .await
    }

    /// Back to the queue: the worker stops before it is done.
    pub async fn release(&self, held: &Held, why: &str, now: Timestamp) -> Result<(), ControlError> {
        self.write(Release { held: held.clone(), why: why.to_owned(), now }).await
    }
}
