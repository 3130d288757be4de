//! Whether a worker may record something. A worker is not trusted: it holds the credentials of its task and may send anything.
//! Everything is compared with the task, with the plan that the gate accepted, and with the rows that are stored.

use super::apply::OWNER;
use super::drift_checks;
use super::tx::Tx;
use super::types::*;
use crate::db::Query;
use crate::error::StoreError;
use crate::row_writes::{RowWrite, StatusRow, UnitAfter, UnitRow};
use crate::rows;
use berth_engine::ResourceState;
use berth_engine::unit::{ASKED_AGAIN, Op, Props};
use berth_model::ResourceId;
use serde_json::Value;

/// Stands in a task's `accepted` for a check that writes down what it saw.
pub(super) const REFRESH: &str = "refresh";
/// Rows of one key: the object in use, and those that it takes the place of.
const ROWS_OF_KEY_MAX: i64 = 16;
/// A key, a token, a type, a scope.
const NAME_BYTES_MAX: usize = 512;
const OBJECT_ID_BYTES_MAX: usize = 1024;
/// What a worker may tell in the history; everything else is told by the server itself.
const EVENTS: [&str; 2] = ["refreshed", "made twice"];

const ENTRY_OF: &str = "SELECT kind, name, org, env, unit_key, token, op, fence, ended_at FROM journal WHERE id = $1";
const ROW_OF: &str = "SELECT u.unit_type, u.scope, u.account, u.object_id, u.identity, u.props, u.outputs, u.deposed, u.ready FROM units u JOIN resources r ON r.id = u.resource_id \
     WHERE r.kind = $1 AND r.name = $2 AND r.org = $3 AND r.env = $4 AND u.unit_key = $5 AND u.token = $6";
const ROWS_OF_KEY: &str = "SELECT COUNT(*) FROM units u JOIN resources r ON r.id = u.resource_id \
     WHERE r.kind = $1 AND r.name = $2 AND r.org = $3 AND r.env = $4 AND u.unit_key = $5";
const HAS_UNITS: &str = "SELECT 1 FROM units u JOIN resources r ON r.id = u.resource_id \
     WHERE r.kind = $1 AND r.name = $2 AND r.org = $3 AND r.env = $4 LIMIT 1";
const STATUS_OF: &str = "SELECT state, observed_generation FROM resources \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4";

/// What a write is about, where it says so itself.
pub(super) fn subject(write: &RowWrite) -> Option<&ResourceId> {
    match write {
        RowWrite::Intent { unit, .. } | RowWrite::SaveUnit(unit) => Some(&unit.resource),
        RowWrite::Close { after: UnitAfter::Save(unit), .. } => Some(&unit.resource),
        RowWrite::ForgetUnit { resource, .. }
        | RowWrite::MoveUnit { resource, .. }
        | RowWrite::Status { resource, .. }
        | RowWrite::Event { resource, .. } => Some(resource),
        RowWrite::SetDeleting(resource) | RowWrite::ForgetResource(resource) => Some(resource),
        RowWrite::Close { .. } | RowWrite::SaveResources(_) => None,
    }
}

/// One write, and what it is compared with.
pub(super) struct Check<'a> {
    pub task: &'a Task,
    /// What the server accepted for this lease.
    pub accepted: &'a str,
    pub write: &'a RowWrite,
}

fn refused(why: impl Into<String>) -> ControlError {
    ControlError::Refused(why.into())
}

impl Check<'_> {
    pub async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let task = self.task;
        let changes = task.op.mutates();
        let own = |id: &ResourceId| task.resource.as_ref() == Some(id) || !changes && task.resources.contains(id);
        if let Some(id) = subject(self.write).filter(|id| !own(id)) {
            return Err(refused(format!("task {} is not about {id}", task.id)));
        }
        if let RowWrite::Event { what, .. } = self.write
            && !EVENTS.contains(&what.as_str())
        {
            return Err(refused("a worker cannot write such an event"));
        }
        if changes { self.change(tx).await } else { self.look(tx).await }
    }

    /// A task that changes its resource.
    async fn change(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        if self.accepted.is_empty() {
            return Err(refused(format!("task {} has no accepted plan: hand one in first", self.task.id)));
        }
        let steps: Vec<PlanStep> = rows::parse(self.accepted, || format!("task {}", self.task.id))?;
        match self.write {
            RowWrite::Intent { op, creates, unit, .. } => {
                let planned = steps.iter().any(|step| {
                    step.key == unit.key
                        && step.unit_type == unit.unit_type
                        && step.ops.iter().any(|planned| planned.as_str() == *op)
                });
                if !planned {
                    return Err(refused(format!("the accepted plan does not {op} {} {}", unit.unit_type, unit.key)));
                }
                self.unit(unit, *creates, tx).await
            }
            RowWrite::SaveUnit(unit) => self.unit(unit, false, tx).await,
            RowWrite::Close { entry, after, .. } => self.close(*entry, after, tx).await,
            RowWrite::ForgetUnit { key, .. } => {
                let goes = |step: &PlanStep| step.ops.iter().any(|op| matches!(op, Op::Create | Op::Delete));
                match steps.iter().any(|step| step.key == *key && goes(step)) {
                    true => Ok(()),
                    false => Err(refused(format!("the accepted plan does not take {key} away"))),
                }
            }
            RowWrite::Status { status, .. } => self.status(status),
            RowWrite::ForgetResource(id) => {
                if self.task.op != TaskOp::Delete {
                    return Err(refused(format!("task {} does not delete {id}", self.task.id)));
                }
                match tx.row(Query::about(HAS_UNITS, id)).await? {
                    Some(_) => Err(refused(format!("{id} still has objects"))),
                    None => Ok(()),
                }
            }
            RowWrite::Event { .. } => Ok(()),
            RowWrite::SaveResources(_) | RowWrite::SetDeleting(_) | RowWrite::MoveUnit { .. } => {
                Err(refused("a worker declares nothing"))
            }
        }
    }

    /// A check keeps what it saw, where that was asked for.
    async fn look(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let looks = match self.write {
            // Whom an object belongs to is learned by every check that finds it.
            RowWrite::SaveUnit(unit) => self.accepted == REFRESH || self.learns(unit, tx).await?,
            RowWrite::Status { .. } | RowWrite::Event { .. } => self.accepted == REFRESH,
            _ => false,
        };
        if !looks {
            return Err(refused(format!("a {} task changes nothing", self.task.op.as_str())));
        }
        let Some(id) = subject(self.write) else { return Err(refused("it is not said what this is about")) };
        if drift_checks::changed_since(tx, id, self.task).await? {
            return Err(refused(format!("{id} was changed since it was looked at")));
        }
        match self.write {
            RowWrite::SaveUnit(unit) => self.unit(unit, false, tx).await,
            RowWrite::Status { status, .. } => {
                let Some(row) = tx.row(Query::about(STATUS_OF, id)).await? else {
                    return Err(ControlError::NotFound(id.to_string()));
                };
                let (state, observed): (String, i64) = (row.get(0)?, row.get(1)?);
                // That an object is gone is all that a look can say of the state.
                let fits = status.state.as_str() == state || status.state == ResourceState::Failed;
                match fits && observed > 0 && status.observed_generation == observed {
                    true => Ok(()),
                    false => Err(refused(format!("a check cannot set {id} to {}", shown(status.state.as_str())))),
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether a row stays as it is, but for whom it belongs to, which nobody knew.
    async fn learns(&self, unit: &UnitRow, tx: &mut Tx<'_>) -> Result<bool, ControlError> {
        let query = Query::about(ROW_OF, &unit.resource).bind(&unit.key).bind(&unit.token);
        let Some(row) = tx.row(query).await? else { return Ok(false) };
        let read = |text: &str| rows::parse::<Value>(text, || format!("a unit of {}", unit.resource));
        let (props, outputs): (String, String) = (row.get(5)?, row.get(6)?);
        Ok(row.get::<String>(4)?.is_empty()
            && !unit.identity.is_empty()
            && unit.secrets.is_empty()
            && row.get::<Option<String>>(3)? == unit.object_id
            && read(&props)? == read(&unit.props)?
            && read(&outputs)? == read(&unit.outputs)?
            && row.get::<bool>(7)? == unit.deposed
            && row.get::<bool>(8)? == unit.ready)
    }

    /// A row that is there keeps what it is; a new one is of the task's account, and follows an intent to create it.
    async fn unit(&self, unit: &UnitRow, creates: bool, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let about = || format!("{} of {}", shown(&unit.key), unit.resource);
        let names = [&unit.key, &unit.token, &unit.unit_type, &unit.scope, &unit.account, &unit.identity];
        let id_bytes = unit.object_id.as_ref().map_or(0, String::len);
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) || id_bytes > OBJECT_ID_BYTES_MAX {
            return Err(refused(format!("a name of {} is too long", about())));
        }
        let query = Query::about(ROW_OF, &unit.resource).bind(&unit.key).bind(&unit.token);
        let known = match tx.row(query).await? {
            None if !creates => return Err(refused(format!("{} was never begun", about()))),
            None => {
                self.new_unit(unit, tx).await?;
                None
            }
            Some(row) => {
                let same: [(&str, String, &str); 3] = [
                    ("type", row.get(0)?, &unit.unit_type),
                    ("scope", row.get(1)?, &unit.scope),
                    ("account", row.get(2)?, &unit.account),
                ];
                if let Some((what, ..)) = same.iter().find(|(_, stored, given)| stored != given) {
                    return Err(refused(format!("the {what} of {} cannot change", about())));
                }
                let (belongs, given): (String, &str) = (row.get(4)?, &unit.identity);
                if !belongs.is_empty() && !given.is_empty() && account_of(&belongs) != account_of(given) {
                    return Err(refused(format!("{} belongs to another account", about())));
                }
                let outputs: String = row.get(6)?;
                let outputs = rows::parse::<Props>(&outputs, || format!("a unit of {}", unit.resource))?;
                // A create that was sent twice may have made two: when the one is gone, the row is the other's.
                row.get::<Option<String>>(3)?
                    .filter(|id| !outputs.contains_key(ASKED_AGAIN) || unit.object_id.as_ref() == Some(id))
            }
        };
        match (&known, &unit.object_id) {
            (Some(known), Some(given)) if known != given => {
                Err(refused(format!("{} is another object already", about())))
            }
            (None, Some(given)) => {
                let query = Query::about(OWNER, &unit.resource).bind(given).bind(&unit.unit_type).bind(&unit.account);
                match tx.row(query).await? {
                    Some(_) => Err(refused(format!("{} cannot have an object of another resource", about()))),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    async fn new_unit(&self, unit: &UnitRow, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        if unit.account != self.task.account {
            return Err(refused(format!("task {} is not for the account {}", self.task.id, shown(&unit.account))));
        }
        let row = tx.row(Query::about(ROWS_OF_KEY, &unit.resource).bind(&unit.key)).await?;
        let count: i64 = row.ok_or(StoreError::Ended)?.get(0)?;
        if count >= ROWS_OF_KEY_MAX {
            return Err(refused(format!("{} of {} has {count} objects already", unit.key, unit.resource)));
        }
        Ok(())
    }

    /// An entry is closed by the lease that opened it, and with the unit that it is about.
    async fn close(&self, entry: i64, after: &UnitAfter, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let missing = || ControlError::NotFound(format!("journal entry {entry}"));
        let row = tx.row(Query::new(ENTRY_OF).bind(entry)).await?.ok_or_else(missing)?;
        let id = rows::id_at(&row, 0)?;
        if self.task.resource.as_ref() != Some(&id) {
            return Err(refused(format!("task {} is not about journal entry {entry}", self.task.id)));
        }
        let (key, token, op): (String, String, String) = (row.get(4)?, row.get(5)?, row.get(6)?);
        if row.get::<i64>(7)? != self.task.fence {
            return Err(refused(format!("journal entry {entry} is not of this lease")));
        }
        if row.get::<Option<i64>>(8)?.is_some() {
            return Err(refused(format!("journal entry {entry} is closed already")));
        }
        match after {
            UnitAfter::Save(unit) if unit.key != key || unit.token != token => {
                Err(refused(format!("journal entry {entry} is about another unit")))
            }
            UnitAfter::Save(unit) => self.unit(unit, false, tx).await,
            UnitAfter::Gone if op != "delete" => Err(refused(format!("journal entry {entry} is not about a deletion"))),
            UnitAfter::Gone | UnitAfter::Keep | UnitAfter::Undo => Ok(()),
        }
    }

    /// The states that a change can bring about. Ready is said of the generation that was carried out, and of no other.
    fn status(&self, status: &StatusRow) -> Result<(), ControlError> {
        let (task, state) = (self.task, status.state);
        let known = match task.op {
            TaskOp::Delete => matches!(state, ResourceState::Deleting | ResourceState::Failed),
            _ => matches!(state, ResourceState::Pending | ResourceState::Ready | ResourceState::Failed),
        };
        if !known {
            return Err(refused(format!("a task to {} cannot set the state `{state}`", task.op.as_str())));
        }
        let observed = status.observed_generation;
        let fits = observed == task.generation || state != ResourceState::Ready && observed == 0;
        match fits {
            true => Ok(()),
            false => Err(refused(format!("task {} carries out generation {}", task.id, task.generation))),
        }
    }
}

/// What follows the account's id is how people know it, and may change.
fn account_of(identity: &str) -> &str {
    identity.split(' ').next().unwrap_or_default()
}

/// For a message: what was sent may be of any length.
fn shown(text: &str) -> String {
    format!("`{}`", text.chars().take(64).collect::<String>())
}
