//! Tasks as rows: created, listed, cancelled, superseded.

use super::columns::{IdRow, TIMED};
use super::server_writer::Operation;
use super::tx::{LaneKey, Tx};
use super::types::*;
use super::{Control, LIST_MAX, allowed, completion};
use crate::db::{Multi, OF_COLUMNS, OfRow, Query, Row};
use crate::encode::{SECRET_BYTES_MAX, check_count, cut};
use crate::error::StoreError;
use crate::rows::{self, number, parse, time};
use crate::sealed_place::SealedPlace;
use async_trait::async_trait;
use berth_model::ResourceId;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

/// Tasks in one call.
const TASKS_MAX: usize = 10_000;
/// Resources of one drift check.
const DRIFT_BATCH_MAX: usize = 1_000;

macro_rules! task_columns {
    () => {
        "id, op, state, kind, name, org, env, resources, lane_org, service, account, account_limit, priority, \
         generation, worker, fence, attempts, cancelling, created_at, run_after, started_at, lease_until, ended_at, \
         message, help, trace"
    };
}
pub(super) use task_columns;
/// How many columns those are.
pub(super) const TASK_COLUMNS: usize = 26;

const TASK: &str = concat!("SELECT ", task_columns!(), " FROM tasks WHERE id = $1");
const SECRETS: &str = "SELECT payload, result FROM tasks WHERE id = $1";
const LOG: &str = "SELECT line, at, text FROM task_log WHERE task = $1 AND line > $2 ORDER BY line LIMIT $3";
const WORKERS: &str = "SELECT w.name, w.services, w.capacity, w.version, w.seen_at, w.draining, \
     (SELECT COUNT(*) FROM tasks t WHERE t.state = 'running' AND t.worker = w.name) \
     FROM workers w ORDER BY w.name LIMIT $1";
const LOADS: &str = "SELECT org, account, CAST(SUM(queued) AS BIGINT), CAST(SUM(running) AS BIGINT), MAX(places) \
     FROM lanes GROUP BY org, account ORDER BY org, account";
const RECOUNT: &str = "INSERT INTO lanes (checks, org, account, service, queued, running, places, turn) \
     SELECT checks, lane_org, account, service, SUM(CASE WHEN state = 'queued' AND NOT waiting THEN 1 ELSE 0 END), \
     SUM(CASE WHEN state = 'running' THEN 1 ELSE 0 END), MAX(account_limit), 0 FROM tasks \
     WHERE state IN ('queued', 'running') GROUP BY checks, lane_org, account, service";
static OPEN_OF: Multi = Multi::new(
    concat!(
        "SELECT ",
        task_columns!(),
        ", waiting FROM {rows} JOIN tasks ON kind = v.of_kind AND name = v.of_name AND org = v.of_org AND env = v.of_env \
         WHERE mutates AND state IN ('queued', 'running')"
    ),
    OF_COLUMNS,
);
/// Something else is wanted now.
const STOP: &str = "UPDATE tasks SET cancelling = TRUE WHERE id = $1";
/// Someone wants it to rest, unless something happens to its resource from now on.
const CANCEL: &str = "UPDATE tasks SET cancelling = TRUE, cancel_mark = (SELECT r.due_mark FROM resources r \
     WHERE r.kind = tasks.kind AND r.name = tasks.name AND r.org = tasks.org AND r.env = tasks.env) WHERE id = $1";

pub(super) static INSERT: Multi = Multi::new(
    "INSERT INTO tasks (id, op, mutates, checks, state, waiting, cancelling, kind, name, org, env, lane_org, account, \
     service, account_limit, priority, generation, worker, fence, attempts, created_at, run_after, message, help, trace, \
     resources, payload, result, accepted) \
     SELECT v.id, v.op, v.mutates, v.checks, 'queued', v.waiting, FALSE, v.kind, v.name, v.org, v.env, v.lane_org, \
     v.account, v.service, v.account_limit, v.priority, v.generation, '', 0, 0, v.now, v.run_after, '', '', v.trace, \
     v.resources, v.payload, '', v.accepted FROM {rows} WHERE TRUE ON CONFLICT DO NOTHING RETURNING id",
    &[
        ("id", "text"),
        ("op", "text"),
        ("mutates", "boolean"),
        ("checks", "boolean"),
        ("waiting", "boolean"),
        ("kind", "text"),
        ("name", "text"),
        ("org", "text"),
        ("env", "text"),
        ("lane_org", "text"),
        ("account", "text"),
        ("service", "text"),
        ("account_limit", "bigint"),
        ("priority", "bigint"),
        ("generation", "bigint"),
        ("now", "bigint"),
        ("run_after", "bigint"),
        ("trace", "text"),
        ("resources", "text"),
        ("payload", "text"),
        ("accepted", "text"),
    ],
);

/// A check that gets lost is made up for by the next one.
static POSTPONE_DRIFT: Multi = Multi::new(
    "UPDATE resources SET drift_at = v.now + COALESCE(resources.drift_every, 1800000000) FROM {rows} \
     WHERE resources.kind = v.kind AND resources.name = v.name AND resources.org = v.org AND resources.env = v.env \
     AND resources.drift_at IS NOT NULL AND resources.drift_at <= v.now",
    TIMED,
);

#[derive(Serialize)]
pub(super) struct TaskRow {
    id: String,
    op: &'static str,
    mutates: bool,
    checks: bool,
    waiting: bool,
    kind: String,
    name: String,
    org: String,
    env: String,
    lane_org: String,
    account: String,
    service: String,
    account_limit: u32,
    priority: i32,
    generation: i64,
    now: i64,
    run_after: i64,
    trace: String,
    resources: String,
    payload: String,
    accepted: &'static str,
}

/// In the order that they are made in, also within a millisecond: a count fills the first bits that are not the time's.
fn new_id(now: Timestamp) -> Result<String, StoreError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut bytes = [0u8; 10];
    crate::seal::random(&mut bytes)?;
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    // Twelve bits beside the version, six beside the variant, then as they come.
    let [high, low] = ((count >> 20) as u16).to_be_bytes();
    bytes[0] = high;
    bytes[1] = low;
    bytes[2] = (count >> 14) as u8 & 0x3f;
    bytes[3] = (count >> 6) as u8;
    bytes[4] = ((count as u8) << 2) | (bytes[4] & 3);
    let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
    Ok(uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid().to_string())
}

impl TaskRow {
    pub(super) fn new(control: &Control, task: &NewTask, now: Timestamp) -> Result<Self, ControlError> {
        let id = new_id(now)?;
        let resource = task.resource.clone().unwrap_or_else(|| ResourceId::new("", ""));
        check_count("the list of resources", task.resources.len(), DRIFT_BATCH_MAX)?;
        let payload = match &task.payload {
            None => String::new(),
            Some(payload) => {
                check_count("a task's payload", payload.expose_secret().len(), 16 * SECRET_BYTES_MAX)?;
                control.store().sealer().seal(&SealedPlace::payload(&id), payload.expose_secret())?
            }
        };
        let resources: Vec<IdRow> = task.resources.iter().map(IdRow::from).collect();
        Ok(Self {
            op: task.op.as_str(),
            mutates: task.op.mutates(),
            checks: task.op.is_check(),
            waiting: task.run_after > now,
            kind: resource.kind,
            name: resource.name,
            org: resource.org,
            env: resource.env,
            lane_org: task.org.clone(),
            account: task.account.clone(),
            service: task.service.clone(),
            account_limit: task.account_limit,
            priority: task.priority,
            generation: task.generation,
            now: now.as_microsecond(),
            run_after: task.run_after.as_microsecond(),
            trace: cut(task.trace.clone()),
            resources: match resources.is_empty() {
                true => String::new(),
                false => serde_json::to_string(&resources).map_err(|error| StoreError::Database(error.to_string()))?,
            },
            payload,
            accepted: if task.refresh { allowed::REFRESH } else { "" },
            id,
        })
    }

    fn lane(&self) -> LaneKey {
        LaneKey {
            checks: self.checks,
            org: self.lane_org.clone(),
            account: self.account.clone(),
            service: self.service.clone(),
        }
    }
}

/// Which of them were made: a resource with an open task that changes it gets no second one.
pub(super) async fn insert(tx: &mut Tx<'_>, rows: &[&TaskRow]) -> Result<HashSet<String>, StoreError> {
    let mut made = HashSet::new();
    for row in tx.returning_many(&INSERT, rows).await? {
        made.insert(row.get::<String>(0)?);
    }
    for row in rows.iter().filter(|row| made.contains(&row.id)) {
        let lane = tx.lane(row.lane());
        lane.queued += i64::from(!row.waiting);
        lane.places = Some(i64::from(row.account_limit));
    }
    Ok(made)
}

impl Task {
    pub(super) fn lane(&self) -> LaneKey {
        LaneKey {
            checks: self.op.is_check(),
            org: self.org.clone(),
            account: self.account.clone(),
            service: self.service.clone(),
        }
    }
}

/// Columns in the order of `task_columns`.
pub(super) fn task(row: &Row) -> Result<Task, StoreError> {
    let id: String = row.get(0)?;
    let corrupt = |cause: &str| StoreError::Corrupt { of: format!("task {id}"), cause: cause.to_owned() };
    let maybe = |column: usize| row.get::<Option<i64>>(column)?.map(time).transpose();
    let resource = rows::id_at(row, 3)?;
    let list: String = row.get(7)?;
    let help: String = row.get(24)?;
    Ok(Task {
        op: TaskOp::parse(row.get(1)?).ok_or_else(|| corrupt("unknown operation"))?,
        state: TaskState::parse(row.get(2)?).ok_or_else(|| corrupt("unknown state"))?,
        resource: (!resource.kind.is_empty()).then_some(resource),
        resources: if list.is_empty() { Vec::new() } else { parse(&list, || format!("task {id}"))? },
        org: row.get(8)?,
        service: row.get(9)?,
        account: row.get(10)?,
        account_limit: number(row.get(11)?),
        priority: i32::try_from(row.get::<i64>(12)?).unwrap_or(0),
        generation: row.get(13)?,
        worker: row.get(14)?,
        fence: row.get(15)?,
        attempts: number(row.get(16)?),
        cancelling: row.get(17)?,
        created_at: time(row.get(18)?)?,
        run_after: time(row.get(19)?)?,
        started_at: maybe(20)?,
        lease_until: maybe(21)?,
        ended_at: maybe(22)?,
        message: row.get(23)?,
        help: if help.is_empty() { Vec::new() } else { parse(&help, || format!("task {id}"))? },
        trace: row.get(25)?,
        id: TaskId(id),
    })
}

pub(super) async fn find(tx: &mut Tx<'_>, id: &TaskId) -> Result<Option<Task>, StoreError> {
    tx.row(Query::new(TASK).bind(&id.0)).await?.map(|row| task(&row)).transpose()
}

/// Open tasks that do something else than is wanted now: a queued one ends, a running one is asked to stop.
pub(super) async fn supersede(
    tx: &mut Tx<'_>,
    ids: &[&ResourceId],
    wanted: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let of: Vec<OfRow> = ids.iter().map(|id| (*id).into()).collect();
    for row in tx.rows_many(&OPEN_OF, &of).await? {
        let old = task(&row)?;
        if old.op.as_str() == wanted {
            continue;
        }
        match old.state {
            TaskState::Queued => {
                let waiting: bool = row.get(TASK_COLUMNS)?;
                let message = format!("given up for {wanted}");
                completion::end(tx, &old, TaskState::Cancelled, &message, now, waiting).await?;
            }
            _ => {
                tx.execute(Query::new(STOP).bind(&old.id.0)).await?;
                tx.news = true;
            }
        }
    }
    Ok(())
}

struct Enqueue {
    rows: Vec<TaskRow>,
    /// Resources that are now being checked.
    drift: Vec<ResourceId>,
    now: Timestamp,
}

#[async_trait]
impl Operation for Enqueue {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let rows: Vec<&TaskRow> = self.rows.iter().collect();
        let made = insert(tx, &rows).await?;
        if let Some(row) = rows.iter().find(|row| !made.contains(&row.id)) {
            return Err(ControlError::Refused(format!("{}/{} has an open task already", row.kind, row.name)));
        }
        let now = self.now.as_microsecond();
        let drift: Vec<_> = self.drift.iter().map(|id| super::columns::Timed { now, id: id.into() }).collect();
        tx.execute_many(&POSTPONE_DRIFT, &drift).await?;
        Ok(())
    }
}

struct Cancel {
    id: TaskId,
    actor: Actor,
    audit: AuditNote,
    now: Timestamp,
}

#[async_trait]
impl Operation for Cancel {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let found = find(tx, &self.id).await?;
        let found = found.ok_or_else(|| ControlError::NotFound(format!("task {}", self.id)))?;
        match found.state {
            TaskState::Queued => {
                let message = format!("cancelled by {}", self.actor.name);
                let waiting = completion::is_waiting(tx, &self.id).await?;
                tx.execute(Query::new(CANCEL).bind(&self.id.0)).await?;
                completion::end(tx, &found, TaskState::Cancelled, &message, self.now, waiting).await?;
                completion::after_cancel(tx, &found, &message, self.now).await?;
            }
            TaskState::Running => {
                tx.execute(Query::new(CANCEL).bind(&self.id.0)).await?;
                tx.news = true;
            }
            state => return Err(ControlError::Refused(format!("task {} is {} already", self.id, state.as_str()))),
        }
        tx.audit(&self.audit, &self.actor, self.now);
        Ok(())
    }
}

/// Counts anew what waits and runs.
pub(super) struct Recount;

#[async_trait]
impl Operation for Recount {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        tx.execute(Query::new("DELETE FROM lanes")).await?;
        tx.execute(Query::new(RECOUNT)).await?;
        Ok(())
    }
}

impl Control {
    /// For drift checks, plans and imports. A drift check moves its resources' next check on by their interval, so that a
    /// check which is lost is made up for.
    pub async fn enqueue(&self, tasks: Vec<NewTask>, now: Timestamp) -> Result<Vec<TaskId>, ControlError> {
        check_count("the list of tasks", tasks.len(), TASKS_MAX)?;
        let rows = tasks.iter().map(|task| TaskRow::new(self, task, now)).collect::<Result<Vec<_>, _>>()?;
        let ids = rows.iter().map(|row| TaskId(row.id.clone())).collect();
        let drift = tasks.into_iter().filter(|task| task.op == TaskOp::Drift).flat_map(|task| task.resources).collect();
        self.write(Enqueue { rows, drift, now }).await?;
        Ok(ids)
    }

    /// A queued task ends at once; a running one is asked to stop. Its resource rests until something changes.
    pub async fn cancel(
        &self,
        task: &TaskId,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        self.write(Cancel { id: task.clone(), actor: actor.clone(), audit, now }).await
    }

    pub async fn task(&self, id: &TaskId) -> Result<Option<Task>, StoreError> {
        self.store().pool().row(Query::new(TASK).bind(&id.0), task).await
    }

    /// Newest first.
    pub async fn tasks(&self, query: &TaskQuery) -> Result<Vec<Task>, StoreError> {
        let mut text = concat!("SELECT ", task_columns!(), " FROM tasks WHERE TRUE").to_owned();
        let mut args: Vec<&str> = Vec::new();
        let conditions = [
            ("state", "=", query.state.map(TaskState::as_str)),
            ("op", "=", query.op.map(TaskOp::as_str)),
            ("kind", "=", query.kind.as_deref()),
            ("name", "=", query.name.as_deref()),
            ("lane_org", "=", query.org.as_deref()),
            ("env", "=", query.env.as_deref()),
            ("account", "=", query.account.as_deref()),
            ("id", "<", query.before.as_ref().map(|id| id.0.as_str())),
        ];
        for (column, how, value) in conditions {
            if let Some(value) = value {
                args.push(value);
                text.push_str(&format!(" AND {column} {how} ${}", args.len()));
            }
        }
        if query.open {
            text.push_str(" AND state IN ('queued', 'running')");
        }
        text.push_str(&format!(" ORDER BY id DESC LIMIT {}", query.limit.clamp(1, LIST_MAX)));
        let query = args.into_iter().fold(Query::built(text), Query::bind);
        self.store().pool().rows(query, task).await
    }

    /// Lines with their numbers, after that number.
    pub async fn task_log(
        &self,
        id: &TaskId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<(i64, Timestamp, String)>, StoreError> {
        let query = Query::new(LOG).bind(&id.0).bind(after).bind(i64::from(limit.clamp(1, LIST_MAX)));
        self.store().pool().rows(query, |row| Ok((row.get(0)?, time(row.get(1)?)?, row.get(2)?))).await
    }

    /// The request of a plan or import.
    pub async fn payload(&self, id: &TaskId) -> Result<Option<SecretString>, StoreError> {
        self.task_secret(id, "payload").await
    }

    /// The result that was reported.
    pub async fn result(&self, id: &TaskId) -> Result<Option<SecretString>, StoreError> {
        self.task_secret(id, "result").await
    }

    async fn task_secret(&self, id: &TaskId, which: &str) -> Result<Option<SecretString>, StoreError> {
        let query = Query::new(SECRETS).bind(&id.0);
        let row: Option<(String, String)> =
            self.store().pool().row(query, |row| Ok((row.get(0)?, row.get(1)?))).await?;
        let Some((payload, result)) = row else { return Ok(None) };
        let (sealed, place) = match which {
            "payload" => (payload, SealedPlace::payload(&id.0)),
            _ => (result, SealedPlace::result(&id.0)),
        };
        if sealed.is_empty() {
            return Ok(None);
        }
        self.store().sealer().open(&place, &sealed, &format!("task {id}")).map(Some)
    }

    pub async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        let query = Query::new(WORKERS).bind(i64::from(LIST_MAX));
        let decode = |row: &Row| {
            let services: String = row.get(1)?;
            Ok(WorkerRow {
                name: row.get(0)?,
                services: parse(&services, || "a worker's services".into())?,
                capacity: number(row.get(2)?),
                version: row.get(3)?,
                seen_at: time(row.get(4)?)?,
                draining: row.get(5)?,
                running: number(row.get(6)?),
            })
        };
        self.store().pool().rows(query, decode).await
    }

    pub async fn loads(&self) -> Result<Vec<AccountLoad>, StoreError> {
        let decode = |row: &Row| {
            Ok(AccountLoad {
                org: row.get(0)?,
                account: row.get(1)?,
                queued: number(row.get(2)?),
                running: number(row.get(3)?),
                limit: u32::try_from(row.get::<i64>(4)?).unwrap_or(0),
            })
        };
        self.store().pool().rows(Query::new(LOADS), decode).await
    }
}
