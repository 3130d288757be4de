//! How tasks end, and what that means for their resources. Reports that wait at once share their statements.

use super::Control;
use super::apply::{IdRow, Timed, WAKE_CHILDREN};
use super::tasks::{self, task, task_columns};
use super::tx::Tx;
use super::types::*;
use super::writer::{Broken, Op};
use crate::db::{Multi, Query};
use crate::encode::{JSON_BYTES_MAX, check_count, cut};
use crate::error::StoreError;
use crate::sealed_place::SealedPlace;
use async_trait::async_trait;
use berth_engine::ResourceState;
use berth_model::ResourceId;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// When to look again at what is said to be done and is not Ready.
const UNSETTLED_AGAIN_MICROS: i64 = 30_000_000;
/// Lines of help that come with an end.
const HELP_MAX: usize = 20;
/// Findings of one drift check.
const FOUND_MAX: usize = 1_000;

const IS_WAITING: &str = "SELECT waiting FROM tasks WHERE id = $1";
const REQUEUE: &str = "UPDATE tasks SET state = 'queued', waiting = $3, run_after = $4, worker = '', lease_until = NULL, \
     message = $2 WHERE id = $1";
const DELETING: &str = "SELECT deleting FROM resources WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";

static TASKS: Multi = Multi::new(
    concat!("SELECT ", task_columns!(), ", accepted FROM tasks WHERE id IN (SELECT v.task FROM {rows})"),
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

/// Something else is wanted now than what the task did, or what its resource refers to is another.
macro_rules! moved_on {
    () => {
        "((v.applies AND (deleting OR stale OR generation <> v.of_generation)) OR (NOT v.applies AND NOT deleting))"
    };
}

/// What was declared is carried out.
macro_rules! carried_out {
    () => {
        "(v.outcome = 'done' AND v.applies AND generation = v.of_generation AND NOT deleting AND state = 'Ready' \
         AND observed_generation = generation)"
    };
}

/// What a task's end means for its resource. One that moved on while the task ran is due at once, however that ended; so is
/// one whose task was stopped, unless someone cancelled it and nothing happened since. What was allowed and approved was so
/// for what is now done, and for nothing that comes later. What could not be changed is looked at all the same: drift does
/// not wait for whoever mends a failure.
static AFTER: Multi = Multi::new(
    concat!(
        "UPDATE resources SET due_at = CASE WHEN ",
        moved_on!(),
        " THEN v.now WHEN v.outcome = 'cancelled' \
         AND COALESCE((SELECT t.cancel_mark FROM tasks t WHERE t.id = v.task), -1) <> due_mark THEN v.now \
         WHEN v.outcome = 'done' AND (deleting OR state <> 'Ready' OR observed_generation <> generation) \
         THEN COALESCE(v.retry_at, v.now + 30000000) ELSE v.retry_at END, \
         due_mark = due_mark + 1, \
         attempts = CASE v.outcome WHEN 'done' THEN 0 WHEN 'failed' THEN attempts + 1 ELSE attempts END, \
         state = CASE WHEN v.applies AND stale AND state = 'Ready' AND NOT deleting THEN 'Pending' WHEN ",
        moved_on!(),
        " OR v.new_state = '' THEN state ELSE v.new_state END, message = CASE WHEN ",
        moved_on!(),
        " OR v.outcome = 'done' THEN message ELSE v.new_message END, \
         status_at = CASE WHEN v.outcome = 'done' THEN status_at ELSE v.now END, \
         allow_replace = allow_replace AND NOT ",
        carried_out!(),
        ", allow_data_loss = allow_data_loss AND NOT ",
        carried_out!(),
        ", allow_recreate = allow_recreate AND NOT ",
        carried_out!(),
        ", plan_digest = CASE WHEN ",
        carried_out!(),
        " THEN '' ELSE plan_digest END, \
         drift_at = CASE WHEN v.outcome <> 'done' AND NOT deleting AND observed_generation > 0 \
         AND drift_every IS NOT NULL THEN COALESCE(drift_at, v.now + drift_every) ELSE drift_at END \
         FROM {rows} WHERE resources.kind = v.to_kind AND resources.name = v.to_name AND resources.org = v.to_org \
         AND resources.env = v.to_env",
    ),
    &[
        ("task", "text"),
        ("to_kind", "text"),
        ("to_name", "text"),
        ("to_org", "text"),
        ("to_env", "text"),
        ("applies", "boolean"),
        ("of_generation", "bigint"),
        ("outcome", "text"),
        ("new_state", "text"),
        ("new_message", "text"),
        ("retry_at", "bigint"),
        ("now", "bigint"),
    ],
);

/// Dropped where the resource moved on since it was looked at.
static FOUND: Multi = Multi::new(
    "UPDATE resources SET drift = v.found, drift_checked_at = v.now, \
     drift_at = CASE WHEN drift_at IS NULL THEN NULL ELSE v.next END, \
     due_at = CASE WHEN v.repair AND v.found <> '' AND state IN ('Ready', 'Failed') THEN v.now ELSE due_at END, \
     due_mark = CASE WHEN v.repair AND v.found <> '' AND state IN ('Ready', 'Failed') THEN due_mark + 1 \
       ELSE due_mark END \
     FROM {rows} WHERE resources.kind = v.to_kind AND resources.name = v.to_name AND resources.org = v.to_org \
     AND resources.env = v.to_env AND generation = v.of_generation AND NOT deleting",
    &[
        ("to_kind", "text"),
        ("to_name", "text"),
        ("to_org", "text"),
        ("to_env", "text"),
        ("of_generation", "bigint"),
        ("found", "text"),
        ("repair", "boolean"),
        ("next", "bigint"),
        ("now", "bigint"),
    ],
);

const DRIFT_BEFORE: &str = "SELECT drift FROM resources WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4 \
     AND generation = $5 AND NOT deleting";
/// What a check saw may be older than what a change made since the check began: such a check knows nothing.
const CHANGED_SINCE: &str = "SELECT 1 FROM tasks WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4 AND mutates \
     AND (state = 'running' OR fence > $5 OR ended_at >= $6) LIMIT 1";

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

#[derive(Serialize)]
struct AfterRow<'a> {
    task: &'a str,
    to_kind: &'a str,
    to_name: &'a str,
    to_org: &'a str,
    to_env: &'a str,
    applies: bool,
    of_generation: i64,
    outcome: &'a str,
    new_state: &'a str,
    new_message: &'a str,
    retry_at: Option<i64>,
    now: i64,
}

#[derive(Serialize)]
struct FoundRow<'a> {
    to_kind: &'a str,
    to_name: &'a str,
    to_org: &'a str,
    to_env: &'a str,
    of_generation: i64,
    found: &'a str,
    repair: bool,
    next: Option<i64>,
    now: i64,
}

/// What becomes of the resource.
pub(super) struct After {
    /// `done`, `failed`, or another word.
    pub outcome: &'static str,
    /// Empty: as it is.
    pub state: &'static str,
    pub message: String,
    pub retry_at: Option<i64>,
}

impl After {
    pub fn cancelled(message: &str) -> Self {
        Self { outcome: "cancelled", state: "", message: message.to_owned(), retry_at: None }
    }
}

const _: () = assert!(UNSETTLED_AGAIN_MICROS == 30_000_000, "the statement says so too");

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

/// What the end of a task that changes something means for its resource.
pub(super) async fn after(tx: &mut Tx<'_>, task: &Task, after: &After, now: Timestamp) -> Result<(), StoreError> {
    match after_row(task, after, now) {
        Some(row) => tx.execute_many(&AFTER, &[row]).await.map(|_| ()),
        None => Ok(()),
    }
}

fn after_row<'a>(task: &'a Task, after: &'a After, now: Timestamp) -> Option<AfterRow<'a>> {
    let id = task.resource.as_ref().filter(|_| task.op.mutates())?;
    Some(AfterRow {
        task: &task.id.0,
        to_kind: &id.kind,
        to_name: &id.name,
        to_org: &id.org,
        to_env: &id.env,
        applies: task.op == TaskOp::Apply,
        of_generation: task.generation,
        outcome: after.outcome,
        new_state: after.state,
        new_message: &after.message,
        retry_at: after.retry_at,
        now: now.as_microsecond(),
    })
}

/// Whether a resource was changed, or is being, since a check of it began.
pub(super) async fn changed_since(tx: &mut Tx<'_>, id: &ResourceId, check: &Task) -> Result<bool, StoreError> {
    let began = check.started_at.map_or(0, |at| at.as_microsecond());
    Ok(tx.row(Query::about(CHANGED_SINCE, id).bind(check.fence).bind(began)).await?.is_some())
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
        let deleting: Option<bool> = tx.row(Query::about(DELETING, id)).await?.map(|row| row.get(0)).transpose()?;
        match deleting {
            None => {
                let state = if task.op == TaskOp::Delete { TaskState::Done } else { TaskState::Cancelled };
                return end(tx, task, state, &message, now, false).await;
            }
            // Its resource went, and one of the same name came after it; or it was wanted again.
            Some(deleting) => unwanted |= deleting != (task.op == TaskOp::Delete),
        }
    }
    if unwanted {
        end(tx, task, TaskState::Cancelled, &message, now, false).await?;
        return after(tx, task, &After::cancelled(&message), now).await;
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
    state: TaskState,
    after: After,
    help: String,
    result: String,
    drift: Vec<DriftFound>,
    now: Timestamp,
}

#[async_trait]
impl Op for Report {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        match Self::run_many(&[self], tx).await {
            Ok(mut answers) => answers.pop().unwrap_or(Ok(())),
            Err(Broken::Store(error)) => Err(error.into()),
            Err(Broken::Half(error)) => Err(error),
        }
    }

    async fn run_many(ops: &[&Self], tx: &mut Tx<'_>) -> Result<Vec<Result<(), ControlError>>, Broken> {
        let ids: Vec<OnTask> = ops.iter().map(|op| OnTask { task: &op.held.task.0 }).collect();
        let mut found: HashMap<String, Task> = HashMap::new();
        let mut unplanned: HashSet<String> = HashSet::new();
        for row in tx.rows_many(&TASKS, &ids).await? {
            let task = task(&row)?;
            if task.op.mutates() && row.get::<String>(26)?.is_empty() {
                unplanned.insert(task.id.0.clone());
            }
            found.insert(task.id.0.clone(), task);
        }
        let mut answers = Vec::with_capacity(ops.len());
        let mut ending: Vec<(&Report, &Task)> = Vec::new();
        let mut seen = HashSet::new();
        for op in ops {
            let answer = match found.get(&op.held.task.0) {
                Some(task) if is_held(task, op.held.fence, op.now) => {
                    if op.state == TaskState::Done && unplanned.contains(&task.id.0) {
                        let why = format!("task {} cannot be done: it has no accepted plan", task.id);
                        answers.push(Err(ControlError::Refused(why)));
                        continue;
                    }
                    if seen.insert(&op.held.task.0) {
                        ending.push((op, task));
                    }
                    Ok(())
                }
                // Said again by whoever ended it.
                Some(task) if !task.state.is_open() && task.fence == op.held.fence => Ok(()),
                _ => Err(ControlError::Fenced),
            };
            answers.push(answer);
        }
        end_all(&ending, tx).await?;
        Ok(answers)
    }
}

async fn end_all(ending: &[(&Report, &Task)], tx: &mut Tx<'_>) -> Result<(), StoreError> {
    let rows: Vec<EndRow> = ending
        .iter()
        .map(|(op, task)| EndRow {
            task: &task.id.0,
            new_state: op.state.as_str(),
            now: op.now.as_microsecond(),
            new_message: &op.after.message,
            new_help: &op.help,
            new_result: &op.result,
        })
        .collect();
    tx.execute_many(&END, &rows).await?;
    let ids: Vec<OnTask> = ending.iter().map(|(_, task)| OnTask { task: &task.id.0 }).collect();
    tx.execute_many(&FORGET_RECORDS, &ids).await?;
    let rows: Vec<AfterRow> = ending.iter().filter_map(|(op, task)| after_row(task, &op.after, op.now)).collect();
    tx.execute_many(&AFTER, &rows).await?;
    let ready: Vec<Timed> = ending
        .iter()
        .filter(|(op, task)| op.state == TaskState::Done && task.op == TaskOp::Apply)
        .filter_map(|(op, task)| Some(Timed { now: op.now.as_microsecond(), id: IdRow::from(task.resource.as_ref()?) }))
        .collect();
    tx.execute_many(&WAKE_CHILDREN, &ready).await?;
    for (op, task) in ending {
        tx.lane(task.lane()).running -= 1;
        tell(tx, task, op.state, &op.after.message, op.now);
        drifted(op, task, tx).await?;
    }
    Ok(())
}

/// What a drift check found is kept, and told where it is news.
async fn drifted(op: &Report, task: &Task, tx: &mut Tx<'_>) -> Result<(), StoreError> {
    if task.op != TaskOp::Drift || op.drift.is_empty() {
        return Ok(());
    }
    let own: HashSet<_> = task.resources.iter().collect();
    let mut rows = Vec::with_capacity(op.drift.len());
    for found in op.drift.iter().filter(|found| own.contains(&found.id)) {
        let before = tx.row(Query::about(DRIFT_BEFORE, &found.id).bind(found.generation)).await?;
        let Some(before) = before else { continue };
        if changed_since(tx, &found.id, task).await? {
            continue;
        }
        let before: String = before.get(0)?;
        if before != found.differences {
            let what = if found.differences.is_empty() { "as declared again" } else { "drifted" };
            tx.event(&found.id, what, &found.differences, &task.id.0, op.now);
            if !found.held.is_empty() {
                tx.event(&found.id, "repair held", &found.held, &task.id.0, op.now);
            }
        }
        rows.push(FoundRow {
            to_kind: &found.id.kind,
            to_name: &found.id.name,
            to_org: &found.id.org,
            to_env: &found.id.env,
            of_generation: found.generation,
            found: &found.differences,
            repair: found.repair,
            next: found.next.map(|at| at.as_microsecond()),
            now: op.now.as_microsecond(),
        });
    }
    tx.execute_many(&FOUND, &rows).await.map(|_| ())
}

struct Release {
    held: Held,
    why: String,
    now: Timestamp,
}

#[async_trait]
impl Op for Release {
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
        let (state, outcome, resource) = match ending.outcome {
            Outcome::Done => (TaskState::Done, "done", ""),
            Outcome::Failed => (TaskState::Failed, "failed", ResourceState::Failed.as_str()),
            Outcome::Refused => (TaskState::Failed, "refused", ResourceState::Failed.as_str()),
            Outcome::Cancelled => (TaskState::Cancelled, "cancelled", ""),
        };
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
        let after = After {
            outcome,
            state: resource,
            message: cut(ending.message),
            retry_at: ending.retry_at.filter(|_| ending.outcome != Outcome::Refused).map(|at| at.as_microsecond()),
        };
        self.write(Report { held: held.clone(), state, after, help, result, drift: ending.drift, now }).await
    }

    /// Back to the queue: the worker stops before it is done.
    pub async fn release(&self, held: &Held, why: &str, now: Timestamp) -> Result<(), ControlError> {
        self.write(Release { held: held.clone(), why: why.to_owned(), now }).await
    }
}
