//! Writes about resources, units, journal and status, as rows. A run's writer and the servers' share them.

use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::rows::{self, StoredResource};
use crate::sql;
use berth_engine::ResourceState;
use berth_model::ResourceId;

/// A unit's row, encoded and sealed.
pub(crate) struct UnitRow {
    pub resource: ResourceId,
    pub key: String,
    pub token: String,
    pub unit_type: String,
    pub scope: String,
    pub account: String,
    /// Empty where it is not known.
    pub identity: String,
    pub object_id: Option<String>,
    pub deposed: bool,
    pub ready: bool,
    pub props: String,
    pub outputs: String,
    pub secrets: String,
    pub secrets_seal: i64,
}

/// A resource's row, encoded and sealed.
pub(crate) struct ResourceRow {
    pub id: ResourceId,
    pub api_version: String,
    pub manifest: String,
    pub manifest_seal: i64,
    pub sealed_paths: String,
    pub digest: String,
    pub source_file: String,
    pub source_document: u32,
}

pub(crate) struct StatusRow {
    pub state: ResourceState,
    pub message: String,
    pub outputs: String,
    pub facts: String,
    pub observed_generation: i64,
    pub secret_names: String,
    pub secrets: String,
    pub secrets_seal: i64,
}

/// What becomes of the unit's row when a journal entry is closed.
pub(crate) enum UnitAfter {
    Save(Box<UnitRow>),
    Gone,
    Keep,
    /// Gone if a create was refused, else as it was.
    Undo,
}

/// One write. It can be applied twice over (after its batch was rolled back), so it owns what it needs.
pub(crate) enum RowWrite {
    Intent {
        op: &'static str,
        creates: bool,
        what: String,
        unit: Box<UnitRow>,
    },
    Close {
        entry: i64,
        outcome: &'static str,
        detail: String,
        after: UnitAfter,
    },
    SaveUnit(Box<UnitRow>),
    ForgetUnit {
        resource: ResourceId,
        key: String,
        token: String,
    },
    /// The object belongs to another account from now on.
    MoveUnit {
        resource: ResourceId,
        key: String,
        token: String,
        identity: String,
    },
    Status {
        resource: ResourceId,
        status: Box<StatusRow>,
    },
    SaveResources(Vec<ResourceRow>),
    SetDeleting(ResourceId),
    ForgetResource(ResourceId),
    Event {
        resource: ResourceId,
        what: String,
        detail: String,
    },
}

pub(crate) enum WriteAnswer {
    Done,
    Entry(i64),
    Saved(Vec<StoredResource>),
}

/// Where writes go, inside a transaction, and under which number.
pub(crate) struct WriteContext<'a> {
    pub connection: &'a mut Connection,
    pub fence: i64,
    /// Earlier runs left journal entries open.
    pub leftovers: bool,
    /// The task that writes; empty for a run.
    pub task: &'a str,
}

impl WriteContext<'_> {
    pub async fn apply(&mut self, write: &RowWrite, at: i64) -> Result<WriteAnswer, StoreError> {
        match write {
            RowWrite::Intent { op, creates, what, unit } => {
                self.settle_unit(&unit.resource, &unit.key, &unit.token, at).await?;
                if *creates {
                    self.save_unit(unit, at).await?;
                }
                let row = Query::about(sql::INTENT, &unit.resource)
                    .bind(&unit.key)
                    .bind(&unit.token)
                    .bind(*op)
                    .bind(what)
                    .bind(at)
                    .bind(self.fence)
                    .fetch_one(self.connection)
                    .await?;
                return Ok(WriteAnswer::Entry(row.get(0)?));
            }
            RowWrite::Close { entry, outcome, detail, after } => self.close(*entry, outcome, detail, after, at).await?,
            RowWrite::SaveUnit(unit) => {
                self.settle_unit(&unit.resource, &unit.key, &unit.token, at).await?;
                self.save_unit(unit, at).await?;
            }
            RowWrite::ForgetUnit { resource, key, token } => {
                self.settle_unit(resource, key, token, at).await?;
                self.forget_unit(sql::FORGET_UNIT, resource, key, token).await?;
            }
            RowWrite::MoveUnit { resource, key, token, identity } => {
                let query = Query::about(sql::MOVE_UNIT, resource).bind(key).bind(token).bind(identity).bind(at);
                known(query.execute(self.connection).await?, resource)?;
            }
            RowWrite::Status { resource, status } => self.status(resource, status, at).await?,
            RowWrite::SaveResources(resources) => {
                let mut saved = Vec::with_capacity(resources.len());
                for resource in resources {
                    saved.push(self.save_resource(resource, at).await?);
                }
                return Ok(WriteAnswer::Saved(saved));
            }
            RowWrite::SetDeleting(resource) => {
                let done = Query::about(sql::SET_DELETING, resource)
                    .bind(at)
                    .bind(ResourceState::Deleting.as_str())
                    .execute(self.connection)
                    .await?;
                known(done, resource)?;
            }
            RowWrite::ForgetResource(resource) => {
                self.settle_resource(resource, at).await?;
                Query::about(sql::FORGET_UNITS_OF, resource).execute(self.connection).await?;
                Query::about(sql::FORGET_LINKS_OF, resource).execute(self.connection).await?;
                Query::about(sql::FORGET_REVISIONS_OF, resource).execute(self.connection).await?;
                Query::about(sql::FORGET_RESOURCE, resource).execute(self.connection).await?;
            }
            RowWrite::Event { resource, what, detail } => {
                Query::about(sql::EVENT, resource)
                    .bind(at)
                    .bind(what)
                    .bind(detail)
                    .bind(self.task)
                    .execute(self.connection)
                    .await?;
            }
        }
        Ok(WriteAnswer::Done)
    }

    async fn save_unit(&mut self, unit: &UnitRow, at: i64) -> Result<(), StoreError> {
        let done = Query::about(sql::SAVE_UNIT, &unit.resource)
            .bind(&unit.key)
            .bind(&unit.token)
            .bind(&unit.unit_type)
            .bind(&unit.scope)
            .bind(&unit.account)
            .bind(unit.object_id.as_deref())
            .bind(unit.deposed)
            .bind(unit.ready)
            .bind(at)
            .bind(&unit.props)
            .bind(&unit.outputs)
            .bind(&unit.secrets)
            .bind(&unit.identity)
            .bind(unit.secrets_seal)
            .execute(self.connection)
            .await?;
        known(done, &unit.resource)
    }

    async fn forget_unit(
        &mut self,
        statement: &'static str,
        resource: &ResourceId,
        key: &str,
        token: &str,
    ) -> Result<(), StoreError> {
        Query::about(statement, resource).bind(key).bind(token).execute(self.connection).await?;
        Ok(())
    }

    async fn close(
        &mut self,
        entry: i64,
        outcome: &str,
        detail: &str,
        after: &UnitAfter,
        at: i64,
    ) -> Result<(), StoreError> {
        let row = Query::new(sql::CLOSE)
            .bind(entry)
            .bind(at)
            .bind(outcome)
            .bind(detail)
            .fetch_optional(self.connection)
            .await?
            .ok_or(StoreError::NotOpen { entry })?;
        let resource = rows::id_at(&row, 0)?;
        let (key, token, op): (String, String, String) = (row.get(4)?, row.get(5)?, row.get(6)?);
        match after {
            UnitAfter::Save(unit) => self.save_unit(unit, at).await,
            UnitAfter::Gone => self.forget_unit(sql::FORGET_UNIT, &resource, &key, &token).await,
            UnitAfter::Undo if op == "create" || op == "replace" => {
                self.forget_unit(sql::FORGET_UNBORN_UNIT, &resource, &key, &token).await
            }
            UnitAfter::Keep | UnitAfter::Undo => Ok(()),
        }
    }

    async fn status(&mut self, resource: &ResourceId, status: &StatusRow, at: i64) -> Result<(), StoreError> {
        if status.state == ResourceState::Ready {
            self.settle_resource(resource, at).await?;
        }
        let done = Query::about(sql::STATUS, resource)
            .bind(status.state.as_str())
            .bind(&status.message)
            .bind(&status.outputs)
            .bind(&status.facts)
            .bind(status.observed_generation)
            .bind(at)
            .bind(&status.secret_names)
            .bind(&status.secrets)
            .bind(status.secrets_seal)
            .bind(status.state == ResourceState::Ready)
            .execute(self.connection)
            .await?;
        known(done, resource)
    }

    async fn save_resource(&mut self, resource: &ResourceRow, at: i64) -> Result<StoredResource, StoreError> {
        let row = Query::about(sql::SAVE_RESOURCE, &resource.id)
            .bind(&resource.api_version)
            .bind(&resource.manifest)
            .bind(&resource.sealed_paths)
            .bind(&resource.digest)
            .bind(&resource.source_file)
            .bind(i64::from(resource.source_document))
            .bind(at)
            .bind(resource.manifest_seal)
            .bind(ResourceState::Pending.as_str())
            .fetch_one(self.connection)
            .await?;
        rows::resource(&row)
    }

    /// An entry that a killed run left open is settled once this run has looked and written down what is so.
    async fn settle_unit(&mut self, resource: &ResourceId, key: &str, token: &str, at: i64) -> Result<(), StoreError> {
        if self.leftovers {
            let query = Query::about(sql::SETTLE_UNIT, resource).bind(key).bind(token).bind(at).bind(self.fence);
            query.execute(self.connection).await?;
        }
        Ok(())
    }

    async fn settle_resource(&mut self, resource: &ResourceId, at: i64) -> Result<(), StoreError> {
        if self.leftovers {
            let query = Query::about(sql::SETTLE_RESOURCE, resource).bind(at).bind(self.fence);
            query.execute(self.connection).await?;
        }
        Ok(())
    }
}

/// Refuses a write about a resource that is not stored: it would have no effect and no error.
fn known(rows: u64, resource: &ResourceId) -> Result<(), StoreError> {
    if rows == 0 { Err(StoreError::Unknown { of: resource.to_string() }) } else { Ok(()) }
}
