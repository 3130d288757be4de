//! Moves units to another cloud account: the only write that changes the account of a unit.

use super::Control;
use super::apply::APPLY_MAX;
use super::facts;
use super::server_writer::Operation;
use super::tx::Tx;
use super::types::{ControlError, MoveAccount};
use crate::db::Query;
use crate::encode::check_count;
use crate::row_writes::RowWrite;
use async_trait::async_trait;
use berth_engine::lifecycle::Event;
use berth_model::ResourceId;
use jiff::Timestamp;
use std::collections::BTreeSet;

const WORKED_ON: &str = "SELECT 1 FROM tasks WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4 AND mutates \
     AND state = 'running' LIMIT 1";
const NOT_APPLIED: &str = "moved to another account, and not applied there yet";

struct Move {
    change: MoveAccount,
    now: Timestamp,
}

#[async_trait]
impl Operation for Move {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let MoveAccount { identity, moved, forgotten, actor, audit } = &self.change;
        let now = self.now.as_microsecond();
        let all: BTreeSet<&ResourceId> = moved.iter().chain(forgotten).map(|unit| &unit.resource).collect();
        for id in &all {
            if tx.row(Query::about(WORKED_ON, id)).await?.is_some() {
                return Err(ControlError::Refused(format!("{id} is being worked on: try again when that is over")));
            }
        }
        for unit in moved {
            let (resource, key, token) = (unit.resource.clone(), unit.key.clone(), unit.token.clone());
            let write = RowWrite::MoveUnit { resource, key, token, identity: identity.text().to_owned() };
            tx.write(&write, 0, "", now).await?;
        }
        for unit in forgotten {
            let (resource, key, token) = (unit.resource.clone(), unit.key.clone(), unit.token.clone());
            tx.write(&RowWrite::ForgetUnit { resource, key, token }, 0, "", now).await?;
        }
        for id in forgotten.iter().map(|unit| &unit.resource).collect::<BTreeSet<_>>() {
            let Some(found) = facts::of(tx, id).await? else { continue };
            let patch = found.patched(&Event::AccountLeft { message: NOT_APPLIED }, now);
            facts::write(tx, patch.into_iter().collect()).await?;
        }
        for id in all {
            tx.event(id, "moved", &format!("to {identity}"), "", self.now);
        }
        tx.audit(audit, actor, self.now);
        Ok(())
    }
}

impl Control {
    /// All or nothing; refused while one of the resources is being worked on.
    pub async fn move_account(&self, change: MoveAccount, now: Timestamp) -> Result<(), ControlError> {
        check_count("the list of units", change.moved.len() + change.forgotten.len(), 10 * APPLY_MAX)?;
        self.write(Move { change, now }).await
    }
}
