//! What is due, and what the controller decided about it.

use super::apply::{IdRow, NUMBERED};
use super::read::{self, meta_columns};
use super::tasks::{self, TaskRow};
use super::tx::Tx;
use super::types::*;
use super::writer::Op;
use super::{Control, LIST_MAX};
use crate::db::{Multi, Query};
use crate::encode::{check_count, cut};
use crate::error::StoreError;
use crate::row_writes::Write;
use crate::rows::{self, time};
use async_trait::async_trait;
use berth_engine::ResourceState;
use berth_model::ResourceId;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::HashMap;

const DECISIONS_MAX: usize = 10_000;

const DUE: &str = concat!(
    "SELECT ",
    resource_columns!(),
    ", ",
    meta_columns!(),
    ", (SELECT t.id FROM tasks t WHERE t.kind = resources.kind AND t.name = resources.name AND t.org = resources.org \
     AND t.env = resources.env AND t.mutates AND t.state IN ('queued', 'running')) \
     FROM resources WHERE due_at IS NOT NULL AND due_at <= $1 ORDER BY due_at LIMIT $2"
);
const NEXT_DUE: &str = "SELECT (SELECT MIN(due_at) FROM resources WHERE due_at IS NOT NULL), \
     (SELECT MIN(drift_at) FROM resources WHERE drift_at IS NOT NULL), \
     (SELECT MIN(lease_until) FROM tasks WHERE state = 'running'), \
     (SELECT MIN(run_after) FROM tasks WHERE state = 'queued' AND waiting)";
const DRIFT_DUE: &str = "SELECT kind, name, org, env, generation, service, drift_at, account FROM resources \
     WHERE drift_at IS NOT NULL AND drift_at <= $1 ORDER BY drift_at LIMIT $2";
const WAITING_PLAN: &str = "SELECT state, plan_digest, applied_by, applied_id FROM resources \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";
const APPROVE: &str = "UPDATE resources SET approved_by = $5, approved_id = $7, state = 'Pending', message = '', \
     status_at = $6, due_at = $6, due_mark = due_mark + 1 WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";

/// Spread over five minutes. Where nothing was looked for before, half an hour stands for how often until the next apply says.
const RESCHEDULE: &str = "UPDATE resources SET drift_at = $3 + (id % 300) * 1000000, \
     drift_every = COALESCE(drift_every, 1800000000) WHERE env = $1 AND ($2 = '' OR org = $2) AND service <> '' \
     AND observed_generation > 0 AND NOT deleting";

static SEEN: Multi = Multi::new(
    "SELECT v.n, r.generation, r.due_mark, r.deleting FROM {rows} \
     JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env",
    NUMBERED,
);

static REST: Multi = Multi::new(
    "UPDATE resources SET due_at = v.until, due_mark = due_mark + 1 FROM {rows} WHERE resources.kind = v.to_kind \
     AND resources.name = v.to_name AND resources.org = v.to_org AND resources.env = v.to_env",
    &[("to_kind", "text"), ("to_name", "text"), ("to_org", "text"), ("to_env", "text"), ("until", "bigint")],
);

/// What it waited for is there: that is not said any longer.
static BEGUN: Multi = Multi::new(
    "UPDATE resources SET message = '' FROM {rows} WHERE resources.kind = v.to_kind AND resources.name = v.to_name \
     AND resources.org = v.to_org AND resources.env = v.to_env AND resources.state = 'Pending' AND resources.message <> ''",
    &[("to_kind", "text"), ("to_name", "text"), ("to_org", "text"), ("to_env", "text")],
);

static SETTLE: Multi = Multi::new(
    "UPDATE resources SET state = v.new_state, message = v.new_message, status_at = v.now, \
     observed_generation = CASE WHEN v.new_state = 'Ready' THEN generation ELSE observed_generation END \
     FROM {rows} WHERE resources.kind = v.to_kind \
     AND resources.name = v.to_name AND resources.org = v.to_org AND resources.env = v.to_env \
     AND (state <> v.new_state OR message <> v.new_message) RETURNING kind, name, org, env, state, message",
    &[
        ("to_kind", "text"),
        ("to_name", "text"),
        ("to_org", "text"),
        ("to_env", "text"),
        ("new_state", "text"),
        ("new_message", "text"),
        ("now", "bigint"),
    ],
);

#[derive(Serialize)]
struct Numbered<'a> {
    n: usize,
    #[serde(flatten)]
    id: IdRow<'a>,
}

#[derive(Serialize)]
struct ToRow<'a> {
    to_kind: &'a str,
    to_name: &'a str,
    to_org: &'a str,
    to_env: &'a str,
}

impl<'a> From<&'a ResourceId> for ToRow<'a> {
    fn from(id: &'a ResourceId) -> Self {
        Self { to_kind: &id.kind, to_name: &id.name, to_org: &id.org, to_env: &id.env }
    }
}

#[derive(Serialize)]
struct RestRow<'a> {
    #[serde(flatten)]
    id: ToRow<'a>,
    until: Option<i64>,
}

#[derive(Serialize)]
struct SettleRow<'a> {
    #[serde(flatten)]
    id: ToRow<'a>,
    new_state: &'a str,
    new_message: &'a str,
    now: i64,
}

enum Step {
    Enqueue(Box<TaskRow>),
    Rest(Option<i64>),
    Settle { state: ResourceState, message: String, until: Option<i64> },
    Forget,
}

struct Choice {
    id: ResourceId,
    generation: i64,
    due_mark: i64,
    step: Step,
}

struct Decide {
    decisions: Vec<Choice>,
    now: Timestamp,
}

#[async_trait]
impl Op for Decide {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let now = self.now.as_microsecond();
        let ids: Vec<Numbered> =
            self.decisions.iter().enumerate().map(|(n, one)| Numbered { n, id: (&one.id).into() }).collect();
        let mut seen: HashMap<usize, (i64, i64, bool)> = HashMap::new();
        for row in tx.rows_many(&SEEN, &ids).await? {
            let n = usize::try_from(row.get::<i64>(0)?).unwrap_or(usize::MAX);
            seen.insert(n, (row.get(1)?, row.get(2)?, row.get(3)?));
        }
        let current = |n: usize, one: &Choice| {
            seen.get(&n).is_some_and(|(generation, mark, _)| (*generation, *mark) == (one.generation, one.due_mark))
        };
        let (mut made, mut rests, mut settled, mut gone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut begun: Vec<ToRow> = Vec::new();
        for (n, one) in self.decisions.iter().enumerate().filter(|(n, one)| current(*n, one)) {
            let mut until = None;
            match &one.step {
                Step::Enqueue(row) => {
                    made.push(row.as_ref());
                    begun.push((&one.id).into());
                }
                Step::Rest(time) => until = *time,
                Step::Settle { state, message, until: time } => {
                    until = *time;
                    settled.push(SettleRow {
                        id: (&one.id).into(),
                        new_state: state.as_str(),
                        new_message: message,
                        now,
                    });
                }
                Step::Forget => {
                    if seen.get(&n).is_some_and(|(_, _, deleting)| *deleting) {
                        gone.push(&one.id);
                    }
                    continue;
                }
            }
            rests.push(RestRow { id: (&one.id).into(), until });
        }
        tx.execute_many(&REST, &rests).await?;
        tx.execute_many(&BEGUN, &begun).await?;
        if !settled.is_empty() {
            for row in tx.returning_many(&SETTLE, &settled).await? {
                let (state, message): (String, String) = (row.get(4)?, row.get(5)?);
                tx.event(&rows::id_at(&row, 0)?, &state, &message, "", self.now);
            }
        }
        if !made.is_empty() {
            tasks::insert(tx, &made).await?;
        }
        for id in gone {
            tx.execute(Query::about(super::record::WAKE_PARENTS, id).bind(now)).await?;
            tx.write(&Write::ForgetResource(id.clone()), i64::MAX, "", now).await?;
            tx.event(id, "deleted", "", "", self.now);
        }
        Ok(())
    }
}

struct Approve {
    id: ResourceId,
    digest: String,
    actor: Actor,
    audit: AuditNote,
    now: Timestamp,
}

#[async_trait]
impl Op for Approve {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let row = tx.row(Query::about(WAITING_PLAN, &self.id)).await?;
        let row = row.ok_or_else(|| ControlError::NotFound(self.id.to_string()))?;
        let (state, waiting): (String, String) = (row.get(0)?, row.get(1)?);
        if state != ResourceState::AwaitingApproval.as_str() {
            return Err(ControlError::Refused(format!("no plan of {} waits for approval", self.id)));
        }
        if waiting != self.digest {
            return Err(ControlError::OtherPlan { id: self.id.clone(), waiting });
        }
        let (by, author): (String, String) = (row.get(2)?, row.get(3)?);
        let id = || Box::new(self.id.clone());
        if author.is_empty() && !by.is_empty() {
            return Err(ControlError::UnknownAuthor { id: id(), by });
        }
        if author == self.actor.owner {
            return Err(ControlError::OwnChange { id: id(), by });
        }
        let query = Query::about(APPROVE, &self.id).bind(&self.actor.name).bind(self.now.as_microsecond());
        let query = query.bind(&self.actor.owner);
        tx.execute(query).await?;
        tx.event(&self.id, "approved", &format!("by {}", self.actor.name), "", self.now);
        tx.audit(&self.audit, &self.actor, self.now);
        Ok(())
    }
}

struct Reschedule {
    org: String,
    env: String,
    now: Timestamp,
}

#[async_trait]
impl Op for Reschedule {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let query = Query::new(RESCHEDULE).bind(&self.env).bind(&self.org).bind(self.now.as_microsecond());
        tx.execute(query).await?;
        tx.news = true;
        Ok(())
    }
}

fn due(row: &crate::db::Row) -> Result<Due, StoreError> {
    let resource = rows::resource(row)?;
    let meta = read::meta(row, read::META_AT, &resource.id)?;
    let task: Option<String> = row.get(read::META_AT + read::META_COLUMNS)?;
    Ok(Due { resource, meta, task: task.map(TaskId) })
}

impl Control {
    /// What a decision is due for, the longest due first.
    pub async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
        Ok(self.due_and_unreadable(now, limit).await?.0)
    }

    /// The same, with those whose rows cannot be read.
    pub async fn due_and_unreadable(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<(Vec<Due>, Vec<UnreadableRow>), StoreError> {
        let query = Query::new(DUE).bind(now.as_microsecond()).bind(i64::from(limit.clamp(1, LIST_MAX)));
        let decode = |row: &crate::db::Row| match due(row) {
            Ok(due) => Ok(Ok(due)),
            Err(error @ StoreError::Corrupt { .. }) => Ok(Err(UnreadableRow {
                id: rows::id_at(row, 0)?,
                generation: row.get(7)?,
                due_mark: row.get(read::META_AT + read::DUE_MARK)?,
                cause: error.to_string(),
            })),
            Err(error) => Err(error),
        };
        let (mut due, mut unreadable) = (Vec::new(), Vec::new());
        for row in self.store().pool().rows(query, decode).await? {
            match row {
                Ok(one) => due.push(one),
                Err(one) => unreadable.push(one),
            }
        }
        Ok((due, unreadable))
    }

    /// When something will be due next: a resource, a drift check, a task that waits, or the end of a lease.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let decode = |row: &crate::db::Row| {
            let mut first: Option<i64> = None;
            for column in 0..4 {
                let at: Option<i64> = row.get(column)?;
                first = [first, at].into_iter().flatten().min();
            }
            first.map(time).transpose()
        };
        Ok(self.store().pool().row(Query::new(NEXT_DUE), decode).await?.flatten())
    }

    /// Each is carried out unless its resource moved on since it was seen.
    pub async fn decide(&self, decisions: Vec<Decision>, now: Timestamp) -> Result<(), ControlError> {
        check_count("the list of decisions", decisions.len(), DECISIONS_MAX)?;
        if decisions.is_empty() {
            return Ok(());
        }
        let mut steps = Vec::with_capacity(decisions.len());
        for Decision { id, generation, due_mark, what } in decisions {
            let step = match what {
                Decided::Enqueue(task) => Step::Enqueue(Box::new(TaskRow::new(self, &task, now)?)),
                Decided::Rest => Step::Rest(None),
                Decided::RestUntil(until) => Step::Rest(Some(until.as_microsecond())),
                Decided::Settle { state, message } => Step::Settle { state, message: cut(message), until: None },
                Decided::SettleUntil { state, message, until } => {
                    Step::Settle { state, message: cut(message), until: Some(until.as_microsecond()) }
                }
                Decided::Forget => Step::Forget,
            };
            steps.push(Choice { id, generation, due_mark, step });
        }
        self.write(Decide { decisions: steps, now }).await
    }

    /// Resources whose drift check is due, by account and org. [`Control::enqueue`] of a drift task moves their next check on.
    pub async fn drift_due(&self, now: Timestamp, limit: u32) -> Result<Vec<(String, Vec<DriftDue>)>, StoreError> {
        let query = Query::new(DRIFT_DUE).bind(now.as_microsecond()).bind(i64::from(limit.clamp(1, LIST_MAX)));
        let decode = |row: &crate::db::Row| {
            let due = DriftDue {
                id: rows::id_at(row, 0)?,
                generation: row.get(4)?,
                service: row.get(5)?,
                due_at: time(row.get(6)?)?,
            };
            Ok((row.get::<String>(7)?, due))
        };
        let mut accounts: Vec<(String, Vec<DriftDue>)> = Vec::new();
        for (account, due) in self.store().pool().rows(query, decode).await? {
            let same = |(name, list): &&mut (String, Vec<DriftDue>)| {
                *name == account && list.first().is_some_and(|one| one.id.org == due.id.org)
            };
            match accounts.iter_mut().find(same) {
                Some((_, list)) => list.push(due),
                None => accounts.push((account, vec![due])),
            }
        }
        Ok(accounts)
    }

    /// Resources of an env are compared with their clouds soon: when the next check is due is said by another rule now.
    pub async fn reschedule(&self, org: &str, env: &str, now: Timestamp) -> Result<(), ControlError> {
        self.write(Reschedule { org: org.to_owned(), env: env.to_owned(), now }).await
    }

    /// Refused when nothing waits; or where whoever approves has applied it; `OtherPlan` when another plan does.
    pub async fn approve(
        &self,
        id: &ResourceId,
        digest: &str,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        self.write(Approve { id: id.clone(), digest: digest.to_owned(), actor: actor.clone(), audit, now }).await
    }
}
