//! Leasing: who gets which task next. Orgs take turns, then their accounts; inside an account the highest priority, then the
//! oldest task goes first. What waits and runs is counted in lanes, so that a queue of any length costs the same.

use super::Control;
use super::apply::micros;
use super::completion;
use super::server_writer::{BatchFailure, Operation};
use super::tasks::{task, task_columns};
use super::tx::{LaneKey, Tx};
use super::types::*;
use crate::db::{Multi, Query};
use crate::encode::{check_count, cut};
use crate::error::StoreError;
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// Tasks that one call leases, or beats for.
const HELD_MAX: usize = 4_096;
/// Tasks whose time came that one call moves on, and leases that one call ends.
const STEP_MAX: i64 = 1_000;
const SERVICES_MAX: usize = 100;
/// How often it is written down that an idle worker was heard of.
const SEEN_EVERY_MICROS: i64 = 5_000_000;
/// A task that outlived so many workers may be what they die of: from then on it waits, twice as long each time.
const DEATHS_MAX: u32 = 3;
const DEATH_PAUSE_SECONDS_MAX: i64 = 120;

const WAKE: &str = "UPDATE tasks SET waiting = FALSE WHERE id IN (SELECT id FROM tasks WHERE state = 'queued' AND waiting \
     AND run_after <= $1 ORDER BY run_after LIMIT $2) RETURNING checks, lane_org, account, service";
const LANES: &str = "SELECT checks, org, account, service, queued, running, places, turn FROM lanes \
     WHERE queued > 0 OR running > 0 ORDER BY checks, org, account, service";
const NEXT: &str = "SELECT id FROM tasks WHERE state = 'queued' AND NOT waiting AND checks = $1 AND lane_org = $2 \
     AND account = $3 AND service = $4 ORDER BY priority DESC, id LIMIT $5";
/// The same for many lanes at once, where the database can: SQLite has no round trips to save.
static NEXT_OF_MANY: Multi = Multi::new(
    "SELECT v.n, t.id FROM {rows} CROSS JOIN LATERAL (SELECT id, priority FROM tasks WHERE state = 'queued' AND NOT waiting \
     AND checks = v.checks AND lane_org = v.org AND account = v.account AND service = v.service \
     ORDER BY priority DESC, id LIMIT v.wanted) AS t ORDER BY v.n, t.priority DESC, t.id",
    &[
        ("n", "bigint"),
        ("checks", "boolean"),
        ("org", "text"),
        ("account", "text"),
        ("service", "text"),
        ("wanted", "bigint"),
    ],
);
const FENCES: &str = "UPDATE fence SET number = number + $1 WHERE one = 1 RETURNING number";
const ENDED_LEASES: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM tasks WHERE state = 'running' AND lease_until <= $1 ORDER BY lease_until, id LIMIT $2"
);

const ANY_ENDED: &str = "SELECT EXISTS (SELECT 1 FROM tasks WHERE state = 'running' AND lease_until <= $1) \
     OR EXISTS (SELECT 1 FROM tasks WHERE state = 'queued' AND waiting AND run_after <= $1)";
const ANYTHING: &str = "SELECT EXISTS (SELECT 1 FROM lanes WHERE queued > 0) \
     OR EXISTS (SELECT 1 FROM tasks WHERE state = 'queued' AND waiting AND run_after <= $1), \
     EXISTS (SELECT 1 FROM workers WHERE name = $2 AND seen_at > $3 AND draining = $4)";

const FORGET_WORKER: &str = "DELETE FROM workers WHERE name = $1 \
     AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.state = 'running' AND t.worker = workers.name)";

static TAKE: Multi = Multi::new(
    concat!(
        "UPDATE tasks SET state = 'running', worker = v.worker_name, fence = v.fence_number, lease_until = v.until, \
         started_at = v.now, attempts = tasks.attempts + 1, message = '', \
         accepted = CASE WHEN tasks.mutates THEN '' ELSE tasks.accepted END, \
         generation = CASE WHEN tasks.mutates THEN COALESCE((SELECT r.generation FROM resources r \
         WHERE r.kind = tasks.kind AND r.name = tasks.name AND r.org = tasks.org AND r.env = tasks.env), \
         tasks.generation) ELSE tasks.generation END \
         FROM {rows} WHERE tasks.id = v.task AND tasks.state = 'queued' RETURNING ",
        task_columns!()
    ),
    &[("task", "text"), ("worker_name", "text"), ("fence_number", "bigint"), ("until", "bigint"), ("now", "bigint")],
);

static TAKE_RESOURCES: Multi = Multi::new(
    "UPDATE resources SET fence = v.fence, stale = FALSE FROM {rows} WHERE resources.kind = v.kind AND resources.name = v.name \
     AND resources.org = v.org AND resources.env = v.env",
    &[("kind", "text"), ("name", "text"), ("org", "text"), ("env", "text"), ("fence", "bigint")],
);

static SEEN: Multi = Multi::new(
    "INSERT INTO workers (name, services, capacity, version, seen_at, draining) \
     SELECT v.name, v.services, v.capacity, v.version, v.seen_at, v.draining FROM {rows} WHERE TRUE \
     ON CONFLICT (name) DO UPDATE SET services = excluded.services, capacity = excluded.capacity, \
     version = excluded.version, seen_at = excluded.seen_at, draining = excluded.draining",
    &[
        ("name", "text"),
        ("services", "text"),
        ("capacity", "bigint"),
        ("version", "text"),
        ("seen_at", "bigint"),
        ("draining", "boolean"),
    ],
);

static BEAT: Multi = Multi::new(
    "UPDATE tasks SET lease_until = v.until FROM {rows} WHERE tasks.id = v.task AND tasks.fence = v.number \
     AND tasks.state = 'running' AND tasks.lease_until > v.now RETURNING id, fence, cancelling",
    &[("task", "text"), ("number", "bigint"), ("until", "bigint"), ("now", "bigint")],
);

#[derive(Serialize)]
struct Seen {
    name: String,
    services: String,
    capacity: u32,
    version: String,
    seen_at: i64,
    draining: bool,
}

#[derive(Serialize)]
struct Take {
    task: String,
    worker_name: String,
    fence_number: i64,
    until: i64,
    now: i64,
}

#[derive(Serialize)]
struct TakeResource<'a> {
    #[serde(flatten)]
    id: super::columns::IdRow<'a>,
    fence: i64,
}

struct Lane {
    key: LaneKey,
    queued: i64,
    running: i64,
    places: i64,
    turn: i64,
}

/// Whose turn it is. Pure, and the same for the same lanes.
struct Turns {
    lanes: Vec<Lane>,
    /// When the account and the org last had a turn, and how many tasks of the account run.
    accounts: HashMap<(bool, String, String), (i64, i64)>,
    orgs: HashMap<(bool, String), i64>,
    last: i64,
}

impl Turns {
    fn new(lanes: Vec<Lane>) -> Self {
        let (mut accounts, mut orgs, mut last) = (HashMap::new(), HashMap::new(), 0);
        for lane in &lanes {
            let LaneKey { checks, org, account, .. } = &lane.key;
            let entry: &mut (i64, i64) = accounts.entry((*checks, org.clone(), account.clone())).or_default();
            *entry = (entry.0.max(lane.turn), entry.1 + lane.running);
            let turn: &mut i64 = orgs.entry((*checks, org.clone())).or_default();
            *turn = (*turn).max(lane.turn);
            last = last.max(lane.turn);
        }
        Self { lanes, accounts, orgs, last }
    }

    /// The lane whose turn it is, among those of this org and these services that have work and a free place.
    fn next(&mut self, checks: bool, org: &str, services: &[String]) -> Option<usize> {
        let mut best: Option<((i64, i64, i64), usize)> = None;
        for (at, lane) in self.lanes.iter().enumerate() {
            let key = &lane.key;
            if key.checks != checks || lane.queued <= 0 {
                continue;
            }
            // What is of no one service, such as a plan of several kinds, is for any worker.
            let served = services.is_empty() || key.service.is_empty() || services.contains(&key.service);
            if !served || !org.is_empty() && (key.org != org || !is_own_account(&key.account, org)) {
                continue;
            }
            let (account_turn, running) =
                self.accounts.get(&(checks, key.org.clone(), key.account.clone())).copied().unwrap_or_default();
            if lane.places > 0 && running >= lane.places {
                continue;
            }
            let org_turn = self.orgs.get(&(checks, key.org.clone())).copied().unwrap_or_default();
            let rank = (org_turn, account_turn, lane.turn);
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                best = Some((rank, at));
            }
        }
        let (_, at) = best?;
        self.last += 1;
        let lane = &mut self.lanes[at];
        lane.queued -= 1;
        lane.turn = self.last;
        let account = self.accounts.entry((checks, lane.key.org.clone(), lane.key.account.clone())).or_default();
        *account = (self.last, account.1 + 1);
        self.orgs.insert((checks, lane.key.org.clone()), self.last);
        Some(at)
    }
}

/// Whether a worker of this org alone may have tasks of the account: one of the org's own, or its own credentials. Whose a
/// task of several accounts is was decided when it was made.
fn is_own_account(account: &str, org: &str) -> bool {
    account.is_empty()
        || account.starts_with("env:")
        || account.strip_prefix(org).is_some_and(|rest| rest.starts_with('/'))
}

struct LeaseOp {
    ask: LeaseAsk,
    now: Timestamp,
}

#[async_trait]
impl Operation for LeaseOp {
    type Answer = Vec<Leased>;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Self::Answer, ControlError> {
        let answers = Self::run_many(&[self], tx).await;
        match answers {
            Ok(mut answers) => answers.pop().unwrap_or(Ok(Vec::new())),
            Err(BatchFailure::Store(error)) => Err(error.into()),
            Err(BatchFailure::Half(error)) => Err(error),
        }
    }

    async fn run_many(ops: &[&Self], tx: &mut Tx<'_>) -> Result<Vec<Result<Self::Answer, ControlError>>, BatchFailure> {
        seen(ops, tx).await?;
        let now = ops.iter().map(|op| op.now).max().unwrap_or_default();
        wake(tx, now).await?;
        tx.flush_lanes().await?;
        let mut turns = Turns::new(lanes(tx).await?);
        // Which worker gets how many from which lane, in the order of turns.
        let mut given: Vec<Vec<usize>> = vec![Vec::new(); turns.lanes.len()];
        for (at, op) in ops.iter().enumerate().filter(|(_, op)| !op.ask.draining) {
            for (checks, wanted) in [(false, op.ask.changes), (true, op.ask.checks)] {
                for _ in 0..wanted.min(HELD_MAX as u32) {
                    let Some(lane) = turns.next(checks, &op.ask.org, &op.ask.services) else { break };
                    given[lane].push(at);
                }
            }
        }
        let takes = take(ops, &turns, &given, tx).await?;
        let mut answers: Vec<Vec<Leased>> = ops.iter().map(|_| Vec::new()).collect();
        let rows = tx.returning_many(&TAKE, &takes.iter().map(|(_, take)| take).collect::<Vec<_>>()).await?;
        let mut taken = Vec::with_capacity(rows.len());
        for row in &rows {
            taken.push(task(row)?);
        }
        taken.sort_by_key(|task| task.fence);
        let whose: HashMap<&str, usize> = takes.iter().map(|(at, take)| (take.task.as_str(), *at)).collect();
        for task in taken {
            let Some(&at) = whose.get(task.id.0.as_str()) else { continue };
            if let Some(id) = task.resource.as_ref().filter(|_| task.op.mutates()) {
                tx.event(id, "started", &format!("{} on {}", task.op.as_str(), task.worker), &task.id.0, ops[at].now);
            }
            answers[at].push(Leased { held: Held { task: task.id.clone(), fence: task.fence }, task });
        }
        let changed: Vec<TakeResource> = answers
            .iter()
            .flatten()
            .filter(|leased| leased.task.op.mutates())
            .filter_map(|leased| Some((leased.task.resource.as_ref()?, leased.held.fence)))
            .map(|(id, fence)| TakeResource { id: id.into(), fence })
            .collect();
        tx.execute_many(&TAKE_RESOURCES, &changed).await?;
        Ok(answers.into_iter().map(Ok).collect())
    }
}

/// Tasks whose time has come wait no longer.
async fn wake(tx: &mut Tx<'_>, now: Timestamp) -> Result<(), StoreError> {
    for row in tx.returning(Query::new(WAKE).bind(now.as_microsecond()).bind(STEP_MAX)).await? {
        let key = LaneKey { checks: row.get(0)?, org: row.get(1)?, account: row.get(2)?, service: row.get(3)? };
        tx.lane(key).queued += 1;
    }
    Ok(())
}

/// When a task whose worker died may be taken again.
fn after_death(task: &Task, now: Timestamp) -> Timestamp {
    let Some(more) = task.attempts.checked_sub(DEATHS_MAX) else { return now };
    let seconds = (1i64 << more.min(16)).min(DEATH_PAUSE_SECONDS_MAX);
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now)
}

async fn seen(ops: &[&LeaseOp], tx: &mut Tx<'_>) -> Result<(), StoreError> {
    let mut workers: HashMap<&str, Seen> = HashMap::new();
    for op in ops {
        let ask = &op.ask;
        let services = serde_json::to_string(&ask.services).map_err(|error| StoreError::Database(error.to_string()))?;
        workers.insert(
            &ask.worker,
            Seen {
                name: ask.worker.clone(),
                services,
                capacity: ask.capacity,
                version: cut(ask.version.clone()),
                seen_at: op.now.as_microsecond(),
                draining: ask.draining,
            },
        );
    }
    let rows: Vec<Seen> = workers.into_values().collect();
    tx.execute_many(&SEEN, &rows).await.map(|_| ())
}

async fn lanes(tx: &mut Tx<'_>) -> Result<Vec<Lane>, StoreError> {
    let mut lanes = Vec::new();
    for row in tx.rows(Query::new(LANES)).await? {
        lanes.push(Lane {
            key: LaneKey { checks: row.get(0)?, org: row.get(1)?, account: row.get(2)?, service: row.get(3)? },
            queued: row.get(4)?,
            running: row.get(5)?,
            places: row.get(6)?,
            turn: row.get(7)?,
        });
    }
    Ok(lanes)
}

#[derive(Serialize)]
struct LaneDemand<'a> {
    n: usize,
    #[serde(flatten)]
    lane: &'a LaneKey,
    wanted: usize,
}

/// The first tasks of these lanes, as many as were given of each.
async fn next_of(
    turns: &Turns,
    given: &[Vec<usize>],
    asked: &[usize],
    tx: &mut Tx<'_>,
) -> Result<HashMap<usize, Vec<String>>, StoreError> {
    let mut found: HashMap<usize, Vec<String>> = HashMap::new();
    let wanted = asked.iter().map(|&n| LaneDemand { n, lane: &turns.lanes[n].key, wanted: given[n].len() });
    if !tx.connection.dialect().is_sqlite {
        let wanted: Vec<LaneDemand> = wanted.collect();
        for row in tx.rows_many(&NEXT_OF_MANY, &wanted).await? {
            let n = usize::try_from(row.get::<i64>(0)?).unwrap_or(usize::MAX);
            found.entry(n).or_default().push(row.get(1)?);
        }
        return Ok(found);
    }
    for LaneDemand { n, lane, wanted } in wanted {
        let query = Query::new(NEXT)
            .bind(lane.checks)
            .bind(&lane.org)
            .bind(&lane.account)
            .bind(&lane.service)
            .bind(i64::try_from(wanted).unwrap_or(i64::MAX));
        for row in tx.rows(query).await? {
            found.entry(n).or_default().push(row.get(0)?);
        }
    }
    Ok(found)
}

/// The tasks that the turns chose, each with a number of its own, and for whom.
async fn take(
    ops: &[&LeaseOp],
    turns: &Turns,
    given: &[Vec<usize>],
    tx: &mut Tx<'_>,
) -> Result<Vec<(usize, Take)>, StoreError> {
    let asked: Vec<usize> = (0..given.len()).filter(|&at| !given[at].is_empty()).collect();
    let mut found = next_of(turns, given, &asked, tx).await?;
    let mut chosen: Vec<(usize, String)> = Vec::new();
    for at in asked {
        let (lane, whose) = (&turns.lanes[at], &given[at]);
        let tasks = found.remove(&at).unwrap_or_default();
        let (wanted, count) = (whose.len() as i64, tasks.len() as i64);
        let change = tx.lane(lane.key.clone());
        change.queued -= count;
        change.running += count;
        change.turn = lane.turn;
        if count < wanted {
            // The count was wrong; there is no more than this.
            change.queued -= lane.queued + wanted - count;
        }
        chosen.extend(whose.iter().copied().zip(tasks));
    }
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let count = i64::try_from(chosen.len()).unwrap_or(0);
    let rows = tx.returning(Query::new(FENCES).bind(count)).await?;
    let last: i64 = rows.first().ok_or(StoreError::Ended)?.get(0)?;
    let first = last - count + 1;
    Ok(chosen
        .into_iter()
        .zip(first..)
        .map(|((at, task), fence_number)| {
            let (ask, now) = (&ops[at].ask, ops[at].now.as_microsecond());
            let take = Take {
                task,
                worker_name: ask.worker.clone(),
                fence_number,
                until: now.saturating_add(micros(ask.lease)),
                now,
            };
            (at, take)
        })
        .collect())
}

#[derive(Serialize)]
struct BeatRow {
    task: String,
    number: i64,
    until: i64,
    now: i64,
}

struct BeatOp {
    worker: String,
    rows: Vec<BeatRow>,
    now: Timestamp,
}

#[async_trait]
impl Operation for BeatOp {
    type Answer = Beat;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Beat, ControlError> {
        let query = Query::new("UPDATE workers SET seen_at = $2 WHERE name = $1");
        tx.execute(query.bind(&self.worker).bind(self.now.as_microsecond())).await?;
        let mut beat = Beat::default();
        for row in tx.returning_many(&BEAT, &self.rows).await? {
            let held = Held { task: TaskId(row.get(0)?), fence: row.get(1)? };
            if row.get(2)? {
                beat.cancel.push(held.clone());
            }
            beat.kept.push(held);
        }
        Ok(beat)
    }
}

struct ForgetWorker(String);

#[async_trait]
impl Operation for ForgetWorker {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        tx.execute(Query::new(FORGET_WORKER).bind(&self.0)).await?;
        tx.news = true;
        Ok(())
    }
}

struct Expire(Timestamp);

#[async_trait]
impl Operation for Expire {
    type Answer = u64;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<u64, ControlError> {
        let rows = tx.rows(Query::new(ENDED_LEASES).bind(self.0.as_microsecond()).bind(STEP_MAX)).await?;
        for row in &rows {
            let old = task(row)?;
            let message = format!("the lease of {} ended", old.worker);
            completion::give_back(tx, &old, &message, self.0, after_death(&old, self.0)).await?;
        }
        wake(tx, self.0).await?;
        Ok(rows.len() as u64)
    }
}

impl Control {
    /// Fair: orgs take turns, then their accounts; inside an account the highest priority, then the oldest goes first.
    pub async fn lease(&self, ask: LeaseAsk, now: Timestamp) -> Result<Vec<Leased>, ControlError> {
        check_count("the list of services", ask.services.len(), SERVICES_MAX)?;
        if self.nothing_to_lease(&ask, now).await? {
            return Ok(Vec::new());
        }
        self.write(LeaseOp { ask, now }).await
    }

    /// A worker that has ended, and holds nothing any more.
    pub async fn forget_worker(&self, name: &str) -> Result<(), ControlError> {
        self.write(ForgetWorker(name.to_owned())).await
    }

    /// An idle worker asks often: as long as there is nothing for anyone, and it was heard of lately, nothing is written.
    async fn nothing_to_lease(&self, ask: &LeaseAsk, now: Timestamp) -> Result<bool, StoreError> {
        let query = Query::new(ANYTHING)
            .bind(now.as_microsecond())
            .bind(&ask.worker)
            .bind(now.as_microsecond() - SEEN_EVERY_MICROS)
            .bind(ask.draining);
        let found = self.store().pool().row(query, |row| Ok((row.get::<bool>(0)?, row.get::<bool>(1)?))).await?;
        Ok(found.is_some_and(|(work, known)| !work && known))
    }

    /// Which of them are still the worker's, each for another lease's time from now.
    pub async fn heartbeat(
        &self,
        worker: &str,
        held: Vec<Held>,
        lease: Duration,
        now: Timestamp,
    ) -> Result<Beat, ControlError> {
        check_count("the list of tasks", held.len(), HELD_MAX)?;
        let at = now.as_microsecond();
        let until = at.saturating_add(micros(lease));
        let rows =
            held.into_iter().map(|one| BeatRow { task: one.task.0, number: one.fence, until, now: at }).collect();
        self.write(BeatOp { worker: worker.to_owned(), rows, now }).await
    }

    /// Tasks whose lease ended go back to the queue, and those whose time has come can be taken. How many leases ended; at
    /// most a thousand in one call.
    pub async fn expire(&self, now: Timestamp) -> Result<u64, ControlError> {
        let query = Query::new(ANY_ENDED).bind(now.as_microsecond());
        if self.store().pool().row(query, |row| row.get::<bool>(0)).await? != Some(true) {
            return Ok(0);
        }
        self.write(Expire(now)).await
    }
}
