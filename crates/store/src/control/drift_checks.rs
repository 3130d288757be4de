//! Comparisons with the clouds: when they are due, and what they found.

use super::columns::{IdRow, NUMBERED, Numbered};
use super::facts::{self, FACT_COLUMNS, fact_columns};
use super::server_writer::Operation;
use super::tx::Tx;
use super::types::*;
use super::{Control, LIST_MAX};
use crate::db::{Multi, Query};
use crate::error::StoreError;
use crate::rows::{self, time};
use async_trait::async_trait;
use berth_engine::lifecycle::{DriftCheck, Event};
use berth_model::ResourceId;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::HashSet;

const DRIFT_DUE: &str = "SELECT kind, name, org, env, generation, service, drift_at, account FROM resources \
     WHERE drift_at IS NOT NULL AND drift_at <= $1 ORDER BY drift_at LIMIT $2";
/// Spread over five minutes. Where nothing was looked for before, half an hour stands for how often until the next apply says.
const RESCHEDULE: &str = "UPDATE resources SET drift_at = $3 + (id % 300) * 1000000, \
     drift_every = COALESCE(drift_every, 1800000000) WHERE env = $1 AND ($2 = '' OR org = $2) AND service <> '' \
     AND observed_generation > 0 AND NOT deleting";

static DRIFT_BEFORE: Multi = Multi::new(
    concat!(
        "SELECT ",
        fact_columns!(),
        ", v.n, r.drift FROM {rows} \
         JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env ORDER BY v.n"
    ),
    NUMBERED,
);
/// What a check saw may be older than what a change made since the check began: such a check knows nothing.
static CHANGED_SINCE: Multi = Multi::new(
    "SELECT v.n FROM {rows} WHERE EXISTS (SELECT 1 FROM tasks t WHERE t.kind = v.kind AND t.name = v.name \
     AND t.org = v.org AND t.env = v.env AND t.mutates \
     AND (t.state = 'running' OR t.fence > v.of_fence OR t.ended_at >= v.began))",
    &[
        ("n", "bigint"),
        ("kind", "text"),
        ("name", "text"),
        ("org", "text"),
        ("env", "text"),
        ("of_fence", "bigint"),
        ("began", "bigint"),
    ],
);

#[derive(Serialize)]
struct Since<'a> {
    n: i64,
    #[serde(flatten)]
    id: IdRow<'a>,
    of_fence: i64,
    began: i64,
}

/// Which of the resources were changed, or are being, since a check of them began: by their places in the list.
async fn changed(tx: &mut Tx<'_>, ids: &[&ResourceId], check: &Task) -> Result<HashSet<i64>, StoreError> {
    let (of_fence, began) = (check.fence, check.started_at.map_or(0, |at| at.as_microsecond()));
    let rows: Vec<Since> = ids.iter().zip(0..).map(|(id, n)| Since { n, id: (*id).into(), of_fence, began }).collect();
    tx.rows_many(&CHANGED_SINCE, &rows).await?.iter().map(|row| row.get(0)).collect()
}

pub(super) async fn changed_since(tx: &mut Tx<'_>, id: &ResourceId, check: &Task) -> Result<bool, StoreError> {
    Ok(!changed(tx, &[id], check).await?.is_empty())
}

/// What a drift check found is kept, and told where it is news.
pub(super) async fn found(
    task: &Task,
    findings: &[DriftFound],
    now: Timestamp,
    tx: &mut Tx<'_>,
) -> Result<(), StoreError> {
    let mut own: HashSet<_> = task.resources.iter().collect();
    let findings: Vec<&DriftFound> = findings.iter().filter(|one| own.remove(&one.id)).collect();
    let ids: Vec<&ResourceId> = findings.iter().map(|one| &one.id).collect();
    let outdated = changed(tx, &ids, task).await?;
    let numbered: Vec<Numbered> = ids.iter().zip(0..).map(|(id, n)| Numbered { n, id: (*id).into() }).collect();
    let mut patches = Vec::with_capacity(findings.len());
    for row in tx.rows_many(&DRIFT_BEFORE, &numbered).await? {
        let (n, before): (i64, String) = (row.get(FACT_COLUMNS)?, row.get(FACT_COLUMNS + 1)?);
        let one = usize::try_from(n).ok().and_then(|n| findings.get(n)).filter(|_| !outdated.contains(&n));
        let Some(one) = one else { continue };
        let check = DriftCheck {
            generation: one.generation,
            differences: &one.differences,
            repair: one.repair,
            next: one.next.map(|at| at.as_microsecond()),
        };
        let patch = facts::found(&row, 0)?.patched(&Event::DriftChecked(check), now.as_microsecond());
        if patch.is_some() && before != one.differences {
            let what = if one.differences.is_empty() { "as declared again" } else { "drifted" };
            tx.event(&one.id, what, &one.differences, &task.id.0, now);
            if !one.held.is_empty() {
                tx.event(&one.id, "repair held", &one.held, &task.id.0, now);
            }
        }
        patches.extend(patch);
    }
    facts::write(tx, patches).await
}

struct Reschedule {
    org: String,
    env: String,
    now: Timestamp,
}

#[async_trait]
impl Operation for Reschedule {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let query = Query::new(RESCHEDULE).bind(&self.env).bind(&self.org).bind(self.now.as_microsecond());
        tx.execute(query).await?;
        tx.news = true;
        Ok(())
    }
}

impl Control {
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
}
