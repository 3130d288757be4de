//! Deletion: everything that is asked for at once, or nothing. Those that refer to what goes must go too.

use super::apply::{APPLY_MAX, IdRow, NUMBERED, Numbered, TIMED, Timed, by};
use super::tx::Tx;
use super::types::{Actor, Applied, AppliedResult, AuditNote, ControlError};
use super::writer::Op;
use super::{Control, tasks};
use crate::db::Multi;
use crate::encode::check_count;
use crate::error::StoreError;
use crate::rows;
use async_trait::async_trait;
use berth_model::ResourceId;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

static LOOK: Multi = Multi::new(
    "SELECT v.n, r.generation, r.deleting FROM {rows} \
     JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env",
    NUMBERED,
);

/// Whoever asks for a deletion cannot be the one who approves it.
static BEGIN: Multi = Multi::new(
    "UPDATE resources SET deleting = TRUE, state = 'Deleting', message = '', status_at = v.now, due_at = v.now, \
     due_mark = resources.due_mark + 1, attempts = 0, drift_at = NULL, plan_digest = '', approved_by = '', \
     approved_id = '', applied_id = CASE WHEN v.who = '' THEN resources.applied_id ELSE v.who_id END, \
     trace = v.of_trace, applied_by = CASE WHEN v.who = '' THEN resources.applied_by ELSE v.who END \
     FROM {rows} WHERE resources.kind = v.to_kind AND resources.name = v.to_name AND resources.org = v.to_org \
     AND resources.env = v.to_env AND NOT resources.deleting",
    &[
        ("to_kind", "text"),
        ("to_name", "text"),
        ("to_org", "text"),
        ("to_env", "text"),
        ("now", "bigint"),
        ("of_trace", "text"),
        ("who", "text"),
        ("who_id", "text"),
    ],
);

/// Asked for again: one that failed or was blocked is tried anew; a plan that waits for approval goes on waiting.
static AGAIN: Multi = Multi::new(
    "UPDATE resources SET state = 'Deleting', message = '', status_at = v.now, due_at = v.now, \
     due_mark = resources.due_mark + 1, attempts = 0 FROM {rows} WHERE resources.kind = v.kind \
     AND resources.name = v.name AND resources.org = v.org AND resources.env = v.env AND resources.deleting \
     AND resources.state <> 'AwaitingApproval'",
    TIMED,
);

/// Who stays and refers to what goes.
static HOLDERS: Multi = Multi::new(
    "SELECT v.n, c.kind, c.name, c.org, c.env FROM {rows} \
     JOIN links l ON l.kind = v.kind AND l.name = v.name AND l.org = v.org AND l.env = v.env \
     JOIN resources c ON c.id = l.child WHERE NOT c.deleting ORDER BY v.n, c.kind, c.name, c.org, c.env LIMIT 100",
    NUMBERED,
);

#[derive(Serialize)]
struct BeginRow<'a> {
    to_kind: &'a str,
    to_name: &'a str,
    to_org: &'a str,
    to_env: &'a str,
    now: i64,
    of_trace: &'a str,
    who: &'a str,
    who_id: &'a str,
}

/// Marks all of them, then looks whether anyone is left that refers to one: what was written is undone then.
pub(super) async fn delete_all(
    tx: &mut Tx<'_>,
    ids: &[ResourceId],
    actor: &Actor,
    trace: &str,
    now: Timestamp,
) -> Result<Vec<Applied>, ControlError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let at = now.as_microsecond();
    let mut seen = HashSet::with_capacity(ids.len());
    let ids: Vec<&ResourceId> = ids.iter().filter(|id| seen.insert(*id)).collect();
    let numbered: Vec<Numbered> =
        ids.iter().enumerate().map(|(n, id)| Numbered { n: i64::try_from(n).unwrap_or(0), id: (*id).into() }).collect();
    let mut stored: HashMap<usize, (i64, bool)> = HashMap::with_capacity(ids.len());
    for row in tx.rows_many(&LOOK, &numbered).await? {
        stored.insert(place(row.get(0)?), (row.get(1)?, row.get(2)?));
    }
    let (mut begun, mut again, mut deleted) = (Vec::new(), Vec::new(), Vec::with_capacity(ids.len()));
    for (n, id) in ids.iter().enumerate() {
        let (generation, already) = *stored.get(&n).ok_or_else(|| ControlError::NotFound(id.to_string()))?;
        deleted.push(Applied { id: (*id).clone(), generation, result: AppliedResult::Deleting });
        if already { again.push(*id) } else { begun.push(*id) }
    }
    let rows: Vec<BeginRow> = begun
        .iter()
        .map(|id| {
            let IdRow { kind, name, org, env } = (*id).into();
            let (of_trace, who, who_id) = (trace, actor.name.as_str(), actor.owner.as_str());
            BeginRow { to_kind: kind, to_name: name, to_org: org, to_env: env, now: at, of_trace, who, who_id }
        })
        .collect();
    tx.execute_many(&BEGIN, &rows).await?;
    let rows: Vec<Timed> = again.iter().map(|id| Timed { now: at, id: (*id).into() }).collect();
    tx.execute_many(&AGAIN, &rows).await?;
    tx.news = true;
    let holders = tx.rows_many(&HOLDERS, &numbered).await?;
    if let Some(first) = holders.first() {
        let id = ids.get(place(first.get(0)?)).ok_or(StoreError::Ended)?;
        let (id, by) = (Box::new((*id).clone()), Box::new(rows::id_at(first, 1)?));
        return Err(ControlError::InUse { id, by, more: holders.len() - 1 });
    }
    tasks::supersede(tx, &begun, "delete", now).await?;
    for id in begun {
        tx.event(id, "deleting", by(actor).trim_start(), "", now);
    }
    Ok(deleted)
}

fn place(n: i64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

struct DeleteOp {
    ids: Vec<ResourceId>,
    actor: Actor,
    audit: AuditNote,
    now: Timestamp,
}

#[async_trait]
impl Op for DeleteOp {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        delete_all(tx, &self.ids, &self.actor, "", self.now).await?;
        tx.audit(&self.audit, &self.actor, self.now);
        Ok(())
    }
}

impl Control {
    /// Refused while others refer to one of them and are not being deleted. One that is being deleted is tried again.
    pub async fn delete(
        &self,
        ids: Vec<ResourceId>,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        check_count("the list of resources", ids.len(), APPLY_MAX)?;
        self.write(DeleteOp { ids, actor: actor.clone(), audit, now }).await
    }
}
