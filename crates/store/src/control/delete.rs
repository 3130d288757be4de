//! Deletion: all of a request or nothing. Resources that refer to a deleted one must be deleted with it.

use super::apply::{APPLY_MAX, by};
use super::columns::{NUMBERED, Numbered};
use super::facts;
use super::server_writer::Operation;
use super::tx::Tx;
use super::types::{Actor, Applied, AppliedResult, AuditNote, ControlError};
use super::{Control, tasks};
use crate::db::Multi;
use crate::encode::check_count;
use crate::error::StoreError;
use crate::rows;
use async_trait::async_trait;
use berth_engine::lifecycle::{Event, Party};
use berth_model::ResourceId;
use jiff::Timestamp;
use std::collections::HashSet;

/// Who stays and refers to what goes.
static HOLDERS: Multi = Multi::new(
    "SELECT v.n, c.kind, c.name, c.org, c.env FROM {rows} \
     JOIN links l ON l.kind = v.kind AND l.name = v.name AND l.org = v.org AND l.env = v.env \
     JOIN resources c ON c.id = l.child WHERE NOT c.deleting ORDER BY v.n, c.kind, c.name, c.org, c.env LIMIT 100",
    NUMBERED,
);

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
    let mut seen = HashSet::with_capacity(ids.len());
    let ids: Vec<&ResourceId> = ids.iter().filter(|id| seen.insert(*id)).collect();
    let found = facts::of_many(tx, ids.iter().copied()).await?;
    let by_whom = Party { name: actor.name.clone(), id: actor.owner.clone() };
    let event = Event::DeletionAsked { by: &by_whom, trace };
    let (mut begun, mut deleted, mut patches) = (Vec::new(), Vec::with_capacity(ids.len()), Vec::new());
    for (n, id) in ids.iter().enumerate() {
        let one = found.get(&n).ok_or_else(|| ControlError::NotFound(id.to_string()))?;
        let generation = one.facts.generation;
        deleted.push(Applied { id: (*id).clone(), generation, result: AppliedResult::Deleting });
        if !one.facts.deleting {
            begun.push(*id);
        }
        patches.extend(one.patched(&event, now.as_microsecond()));
    }
    facts::write(tx, patches).await?;
    tx.news = true;
    let numbered: Vec<Numbered> = ids.iter().zip(0..).map(|(id, n)| Numbered { n, id: (*id).into() }).collect();
    let holders = tx.rows_many(&HOLDERS, &numbered).await?;
    if let Some(first) = holders.first() {
        let id = ids.get(usize::try_from(first.get::<i64>(0)?).unwrap_or(usize::MAX)).ok_or(StoreError::Ended)?;
        let (id, by) = (Box::new((*id).clone()), Box::new(rows::id_at(first, 1)?));
        return Err(ControlError::InUse { id, by, more: holders.len() - 1 });
    }
    tasks::supersede(tx, &begun, "delete", now).await?;
    for id in begun {
        tx.event(id, "deleting", by(actor).trim_start(), "", now);
    }
    Ok(deleted)
}

struct DeleteOp {
    ids: Vec<ResourceId>,
    actor: Actor,
    audit: AuditNote,
    now: Timestamp,
}

#[async_trait]
impl Operation for DeleteOp {
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
