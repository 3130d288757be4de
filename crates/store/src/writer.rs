//! Group commit. One task owns the connection that writes; it takes everything that waits, applies it in one transaction,
//! commits, and only then answers. Many units at once cost few flushes to disk, and each answer still means: on disk.

use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::lock::Lock;
use crate::rows::{self, StoredResource};
use crate::sql;
use berth_model::ResourceId;
use tokio::sync::{mpsc, oneshot};

/// Operations that may wait; more than that and callers wait to hand theirs in.
const QUEUE_MAX: usize = 1024;
/// Operations in one transaction.
const BATCH_MAX: usize = 256;

const BEGIN_ONE: &str = "SAVEPOINT one";
const KEEP_ONE: &str = "RELEASE SAVEPOINT one";
const UNDO_ONE: &str = "ROLLBACK TO SAVEPOINT one; RELEASE SAVEPOINT one";

/// A unit's row, encoded and sealed.
pub(crate) struct UnitRow {
    pub resource: ResourceId,
    pub key: String,
    pub token: String,
    pub unit_type: String,
    pub scope: String,
    pub account: String,
    pub object_id: Option<String>,
    pub deposed: bool,
    pub ready: bool,
    pub props: String,
    pub outputs: String,
    pub secrets: String,
}

/// A resource's row, encoded and sealed.
pub(crate) struct ResourceRow {
    pub id: ResourceId,
    pub api_version: String,
    pub manifest: String,
    pub sealed_paths: String,
    pub digest: String,
    pub source_file: String,
    pub source_document: u32,
}

pub(crate) struct StatusRow {
    pub state: String,
    pub message: String,
    pub outputs: String,
    pub facts: String,
    pub observed_generation: i64,
    pub secret_names: String,
    pub secrets: String,
}

/// What becomes of the unit's row when a journal entry is closed.
pub(crate) enum After {
    Save(Box<UnitRow>),
    Gone,
    Keep,
    /// Gone if a create was refused, else as it was.
    Undo,
}

/// One write. It can be applied twice over (after its batch was rolled back), so it owns what it needs.
pub(crate) enum Write {
    Intent { op: &'static str, creates: bool, what: String, unit: Box<UnitRow> },
    Close { entry: i64, outcome: &'static str, detail: String, after: After },
    SaveUnit(Box<UnitRow>),
    ForgetUnit { resource: ResourceId, key: String, token: String },
    Status { resource: ResourceId, status: Box<StatusRow> },
    SaveResources(Vec<ResourceRow>),
    SetDeleting(ResourceId),
    ForgetResource(ResourceId),
    Event { resource: ResourceId, what: String, detail: String },
}

pub(crate) enum Answer {
    Done,
    Entry(i64),
    Saved(Vec<StoredResource>),
}

/// One for each write, in order.
type Answers = Vec<Result<Answer, StoreError>>;

type Ack = oneshot::Sender<Result<Answer, StoreError>>;

enum Message {
    Write { write: Write, at: i64, ack: Ack },
    Finish(oneshot::Sender<()>),
}

/// The callers' end.
pub(crate) struct Writer {
    queue: mpsc::Sender<Message>,
}

impl Writer {
    pub fn start(connection: Connection, fence: i64, leftovers: bool, lock: Lock) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(Task { connection, lock, fence, over: None, leftovers }.run(waiting));
        Self { queue }
    }

    pub async fn write(&self, write: Write) -> Result<Answer, StoreError> {
        let (ack, answer) = oneshot::channel();
        let at = jiff::Timestamp::now().as_microsecond();
        self.queue.send(Message::Write { write, at, ack }).await.map_err(|_| StoreError::Ended)?;
        answer.await.map_err(|_| StoreError::Ended)?
    }

    /// Returns when everything handed in before is written and the lock is free.
    pub async fn finish(&self) {
        let (ack, answer) = oneshot::channel();
        if self.queue.send(Message::Finish(ack)).await.is_ok() {
            let _ = answer.await;
        }
    }
}

struct Task {
    connection: Connection,
    lock: Lock,
    fence: i64,
    /// Why nothing more can be written, once it is so.
    over: Option<StoreError>,
    /// Earlier runs left journal entries open.
    leftovers: bool,
}

impl Task {
    async fn run(mut self, mut waiting: mpsc::Receiver<Message>) {
        let mut finish = None;
        while finish.is_none() {
            let Some(first) = waiting.recv().await else { break };
            let mut writes = Vec::new();
            let mut acks = Vec::new();
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Write { write, at, ack } => {
                        writes.push((write, at));
                        acks.push(ack);
                    }
                    Message::Finish(ack) => {
                        finish = Some(ack);
                        break;
                    }
                }
                next = if writes.len() < BATCH_MAX { waiting.try_recv().ok() } else { None };
            }
            for (ack, answer) in acks.into_iter().zip(self.group(&writes).await) {
                // Whoever no longer waits has been interrupted; the write stands all the same.
                let _ = ack.send(answer);
            }
        }
        waiting.close();
        match self.over {
            // There is nobody to give it back to.
            Some(_) => drop((self.connection, self.lock)),
            None => {
                if let Err(error) = self.lock.release(self.connection).await {
                    tracing::warn!(%error, "the state did not close cleanly");
                }
            }
        }
        if let Some(ack) = finish {
            let _ = ack.send(());
        }
    }

    /// All in one transaction. If any of them fails, once more with each kept apart, so that one's error is not the others'
    /// loss.
    async fn group(&mut self, writes: &[(Write, i64)]) -> Answers {
        if writes.is_empty() {
            return Vec::new();
        }
        let mut result = match &self.over {
            Some(error) => Err(error.again()),
            None => self.transaction(writes, false).await,
        };
        if result.is_err() && writes.len() > 1 && self.over.is_none() {
            result = self.transaction(writes, true).await;
        }
        match result {
            Ok(answers) => answers,
            Err(error) if writes.len() == 1 => vec![Err(error)],
            Err(error) => writes.iter().map(|_| Err(error.again())).collect(),
        }
    }

    async fn transaction(&mut self, writes: &[(Write, i64)], apart: bool) -> Result<Answers, StoreError> {
        let result = self.attempt(writes, apart).await;
        match &result {
            Ok(_) => {}
            // Without its connection a run has no right to write, and cannot tell whether someone else has it now.
            Err(error @ StoreError::Lost(_)) => self.over = Some(error.again()),
            Err(_) => {
                // Fails when SQLite has rolled back by itself, which is as good.
                let _ = self.connection.run("ROLLBACK").await;
            }
        }
        result
    }

    async fn attempt(&mut self, writes: &[(Write, i64)], apart: bool) -> Result<Answers, StoreError> {
        let dialect = self.connection.dialect();
        self.connection.run(dialect.begin).await?;
        let fence: i64 = Query::new(dialect.fence).fetch_one(&mut self.connection).await?.get(0)?;
        if fence != self.fence {
            return Err(StoreError::Fenced);
        }
        let mut answers = Vec::with_capacity(writes.len());
        for (write, at) in writes {
            if apart {
                self.connection.run(BEGIN_ONE).await?;
            }
            let answer = self.apply(write, *at).await;
            match &answer {
                Ok(_) if apart => self.connection.run(KEEP_ONE).await?,
                Ok(_) => {}
                Err(error) if apart && !matches!(error, StoreError::Lost(_)) => self.connection.run(UNDO_ONE).await?,
                Err(_) => return answer.map(|_| Vec::new()),
            }
            answers.push(answer);
        }
        self.connection.run("COMMIT").await?;
        Ok(answers)
    }

    async fn apply(&mut self, write: &Write, at: i64) -> Result<Answer, StoreError> {
        match write {
            Write::Intent { op, creates, what, unit } => {
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
                    .fetch_one(&mut self.connection)
                    .await?;
                return Ok(Answer::Entry(row.get(0)?));
            }
            Write::Close { entry, outcome, detail, after } => self.close(*entry, outcome, detail, after, at).await?,
            Write::SaveUnit(unit) => {
                self.settle_unit(&unit.resource, &unit.key, &unit.token, at).await?;
                self.save_unit(unit, at).await?;
            }
            Write::ForgetUnit { resource, key, token } => {
                self.settle_unit(resource, key, token, at).await?;
                self.forget_unit(sql::FORGET_UNIT, resource, key, token).await?;
            }
            Write::Status { resource, status } => self.status(resource, status, at).await?,
            Write::SaveResources(resources) => {
                let mut saved = Vec::with_capacity(resources.len());
                for resource in resources {
                    saved.push(self.save_resource(resource, at).await?);
                }
                return Ok(Answer::Saved(saved));
            }
            Write::SetDeleting(resource) => {
                let done = Query::about(sql::SET_DELETING, resource).bind(at).execute(&mut self.connection).await?;
                known(done, resource)?;
            }
            Write::ForgetResource(resource) => {
                self.settle_resource(resource, at).await?;
                Query::about(sql::FORGET_UNITS_OF, resource).execute(&mut self.connection).await?;
                Query::about(sql::FORGET_RESOURCE, resource).execute(&mut self.connection).await?;
            }
            Write::Event { resource, what, detail } => {
                Query::about(sql::EVENT, resource)
                    .bind(at)
                    .bind(what)
                    .bind(detail)
                    .execute(&mut self.connection)
                    .await?;
            }
        }
        Ok(Answer::Done)
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
            .execute(&mut self.connection)
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
        Query::about(statement, resource).bind(key).bind(token).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn close(
        &mut self,
        entry: i64,
        outcome: &str,
        detail: &str,
        after: &After,
        at: i64,
    ) -> Result<(), StoreError> {
        let row = Query::new(sql::CLOSE)
            .bind(entry)
            .bind(at)
            .bind(outcome)
            .bind(detail)
            .fetch_optional(&mut self.connection)
            .await?
            .ok_or(StoreError::NotOpen { entry })?;
        let resource = rows::id_at(&row, 0)?;
        let (key, token, op): (String, String, String) = (row.get(4)?, row.get(5)?, row.get(6)?);
        match after {
            After::Save(unit) => self.save_unit(unit, at).await,
            After::Gone => self.forget_unit(sql::FORGET_UNIT, &resource, &key, &token).await,
            After::Undo if op == "create" || op == "replace" => {
                self.forget_unit(sql::FORGET_UNBORN_UNIT, &resource, &key, &token).await
            }
            After::Keep | After::Undo => Ok(()),
        }
    }

    async fn status(&mut self, resource: &ResourceId, status: &StatusRow, at: i64) -> Result<(), StoreError> {
        if status.state == "Ready" {
            self.settle_resource(resource, at).await?;
        }
        let done = Query::about(sql::STATUS, resource)
            .bind(&status.state)
            .bind(&status.message)
            .bind(&status.outputs)
            .bind(&status.facts)
            .bind(status.observed_generation)
            .bind(at)
            .bind(&status.secret_names)
            .bind(&status.secrets)
            .execute(&mut self.connection)
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
            .fetch_one(&mut self.connection)
            .await?;
        rows::resource(&row)
    }

    /// An entry that a killed run left open is settled once this run has looked and written down what is so.
    async fn settle_unit(&mut self, resource: &ResourceId, key: &str, token: &str, at: i64) -> Result<(), StoreError> {
        if self.leftovers {
            let query = Query::about(sql::SETTLE_UNIT, resource).bind(key).bind(token).bind(at).bind(self.fence);
            query.execute(&mut self.connection).await?;
        }
        Ok(())
    }

    async fn settle_resource(&mut self, resource: &ResourceId, at: i64) -> Result<(), StoreError> {
        if self.leftovers {
            let query = Query::about(sql::SETTLE_RESOURCE, resource).bind(at).bind(self.fence);
            query.execute(&mut self.connection).await?;
        }
        Ok(())
    }
}

/// A write about a resource that is not there would vanish without a word.
fn known(rows: u64, resource: &ResourceId) -> Result<(), StoreError> {
    if rows == 0 { Err(StoreError::Unknown { of: resource.to_string() }) } else { Ok(()) }
}
