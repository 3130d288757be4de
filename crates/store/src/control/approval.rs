//! Approvals of plans that wait.

use super::Control;
use super::facts;
use super::server_writer::Operation;
use super::tx::Tx;
use super::types::*;
use crate::db::Query;
use async_trait::async_trait;
use berth_engine::lifecycle::{Event, Party};
use berth_model::ResourceId;
use jiff::Timestamp;

const AUTHOR: &str =
    "SELECT applied_by, applied_id FROM resources WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";

struct Approve {
    id: ResourceId,
    digest: String,
    actor: Actor,
    audit: AuditNote,
    now: Timestamp,
}

#[async_trait]
impl Operation for Approve {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let missing = || ControlError::NotFound(self.id.to_string());
        let found = facts::of(tx, &self.id).await?.ok_or_else(missing)?;
        let by = Party { name: self.actor.name.clone(), id: self.actor.owner.clone() };
        let Some(patch) = found.patched(&Event::Approved { by: &by }, self.now.as_microsecond()) else {
            return Err(ControlError::Refused(format!("no plan of {} waits for approval", self.id)));
        };
        if found.facts.plan_digest != self.digest {
            return Err(ControlError::OtherPlan { id: self.id.clone(), waiting: found.facts.plan_digest });
        }
        let row = tx.row(Query::about(AUTHOR, &self.id)).await?.ok_or_else(missing)?;
        let (by, author): (String, String) = (row.get(0)?, row.get(1)?);
        let id = || Box::new(self.id.clone());
        if author.is_empty() && !by.is_empty() {
            return Err(ControlError::UnknownAuthor { id: id(), by });
        }
        if author == self.actor.owner {
            return Err(ControlError::OwnChange { id: id(), by });
        }
        facts::write(tx, vec![patch]).await?;
        tx.event(&self.id, "approved", &format!("by {}", self.actor.name), "", self.now);
        tx.audit(&self.audit, &self.actor, self.now);
        Ok(())
    }
}

impl Control {
    /// Refused when no plan waits, or when the caller applied the resource; `OtherPlan` when another plan waits.
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
