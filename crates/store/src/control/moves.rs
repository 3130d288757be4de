//! What is managed belongs to another cloud account from now on: the only write that changes whom a unit belongs to.

use super::Control;
use super::apply::APPLY_MAX;
use super::tx::Tx;
use super::types::{ControlError, MoveAccount};
use super::writer::Op;
use crate::db::Query;
use crate::encode::check_count;
use crate::row_writes::Write;
use async_trait::async_trait;
use berth_model::ResourceId;
use jiff::Timestamp;
use std::collections::BTreeSet;

const WORKED_ON: &str = "SELECT 1 FROM tasks WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4 AND mutates \
     AND state = 'running' LIMIT 1";
/// Its outputs name objects that it no longer has; the next apply makes new ones.
const BEGIN_ANEW: &str = "UPDATE resources SET state = 'Pending', message = $5, observed_generation = 0, outputs = '{}', \
     facts = '{}', secret_names = '', secrets = '', drift = '', status_at = $6, due_at = NULL, due_mark = due_mark + 1 \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";
const NOT_APPLIED: &str = "moved to another account, and not applied there yet";

struct Move {
    change: MoveAccount,
    now: Timestamp,
}

#[async_trait]
impl Op for Move {
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
            let write = Write::MoveUnit { resource, key, token, identity: identity.text().to_owned() };
            tx.write(&write, 0, "", now).await?;
        }
        for unit in forgotten {
            let (resource, key, token) = (unit.resource.clone(), unit.key.clone(), unit.token.clone());
            tx.write(&Write::ForgetUnit { resource, key, token }, 0, "", now).await?;
        }
        for id in forgotten.iter().map(|unit| &unit.resource).collect::<BTreeSet<_>>() {
            tx.execute(Query::about(BEGIN_ANEW, id).bind(NOT_APPLIED).bind(now)).await?;
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
