//! Group commit for servers. One task owns the connection that writes; it takes everything that waits, applies it in one
//! transaction, commits, and only then answers. Writers of several servers take turns: PostgreSQL holds the turn until
//! the transaction ends.

use super::counts::Observed;
use super::tx::Tx;
use super::types::ControlError;
use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::lock::Lock;
use crate::run_writer::{BEGIN_ONE, KEEP_ONE, UNDO_ONE};
use crate::seal::Sealer;
use crate::sql;
use crate::store::Store;
use async_trait::async_trait;
use futures::future::BoxFuture;
use std::any::{Any, TypeId};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Operations that may wait; more than that and callers wait to hand theirs in.
const QUEUE_MAX: usize = 4096;
/// Operations in one transaction.
const BATCH_MAX: usize = 512;
/// How long a lost connection is tried to be made anew before those who wait are told.
const RECONNECT_WITHIN: Duration = Duration::from_secs(30);
const RECONNECT_FIRST: Duration = Duration::from_millis(20);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often a batch is begun anew after its connection broke.
const TRIES_MAX: u32 = 5;

/// One operation of a server's, inside a transaction. It may be run twice over (after its batch was rolled back), so it
/// keeps what it needs. An answer that is no failure of the database is a value: nothing was written then, or the operation
/// is undone.
#[async_trait]
pub(crate) trait Operation: Send + Sync + Sized + 'static {
    type Answer: Send + 'static;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Self::Answer, ControlError>;

    /// Many of a kind at once, in statements for all of them where that is worth it. One answer for each.
    async fn run_many(ops: &[&Self], tx: &mut Tx<'_>) -> Result<Vec<Result<Self::Answer, ControlError>>, BatchFailure> {
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            let before = tx.writes;
            let answer = op.run(tx).await;
            match &answer {
                Err(ControlError::Store(error)) => return Err(BatchFailure::Store(error.again())),
                Err(error) if tx.writes != before => return Err(BatchFailure::Half(error.again())),
                _ => answers.push(answer),
            }
        }
        Ok(answers)
    }
}

/// Why a batch cannot be committed as it is.
pub(crate) enum BatchFailure {
    Store(StoreError),
    /// An operation was refused after it had written.
    Half(ControlError),
}

impl From<StoreError> for BatchFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The answer to an operation that ran as a batch of its own.
pub(super) fn only<T>(batch: Result<Vec<Result<T, ControlError>>, BatchFailure>) -> Result<T, ControlError> {
    match batch {
        Ok(mut answers) => answers.pop().unwrap_or(Err(ControlError::Store(StoreError::Ended))),
        Err(BatchFailure::Store(error)) => Err(error.into()),
        Err(BatchFailure::Half(error)) => Err(error),
    }
}

type Reply<T> = Result<T, ControlError>;
type RunMany = for<'a> fn(&'a mut [&'a mut Box<dyn AnyJob>], &'a mut Tx<'_>) -> BoxFuture<'a, Result<(), BatchFailure>>;

/// An operation that waits, of whatever kind.
trait AnyJob: Send + Sync {
    fn kind(&self) -> TypeId;
    fn runner(&self) -> RunMany;
    fn as_any(&mut self) -> &mut dyn Any;
    fn fail(&mut self, error: ControlError);
    /// The answer goes out: what it tells of is on disk.
    fn send(self: Box<Self>);
}

struct Job<O: Operation> {
    op: O,
    answer: Option<Reply<O::Answer>>,
    ack: oneshot::Sender<Reply<O::Answer>>,
}

impl<O: Operation> AnyJob for Job<O>
where
    O::Answer: Sync,
{
    fn kind(&self) -> TypeId {
        TypeId::of::<O>()
    }

    fn runner(&self) -> RunMany {
        run_many::<O>
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn fail(&mut self, error: ControlError) {
        self.answer = Some(Err(error));
    }

    fn send(self: Box<Self>) {
        // A caller that no longer waits was interrupted; the write is committed all the same.
        let _ = self.ack.send(self.answer.unwrap_or(Err(ControlError::Store(StoreError::Ended))));
    }
}

fn run_many<'a, O: Operation>(
    jobs: &'a mut [&'a mut Box<dyn AnyJob>],
    tx: &'a mut Tx<'_>,
) -> BoxFuture<'a, Result<(), BatchFailure>>
where
    O::Answer: Sync,
{
    Box::pin(async move {
        let mut ops = Vec::with_capacity(jobs.len());
        let mut slots = Vec::with_capacity(jobs.len());
        for job in jobs.iter_mut() {
            if let Some(job) = job.as_any().downcast_mut::<Job<O>>() {
                ops.push(&job.op);
                slots.push(&mut job.answer);
            }
        }
        let answers = O::run_many(&ops, tx).await?;
        for (slot, answer) in slots.into_iter().zip(answers) {
            *slot = Some(answer);
        }
        Ok(())
    })
}

enum Message {
    Run(Box<dyn AnyJob>),
    Finish(oneshot::Sender<()>),
}

/// The callers' end.
#[derive(Clone)]
pub(crate) struct ServerWriter {
    queue: mpsc::Sender<Message>,
    observed: Observed,
}

impl ServerWriter {
    pub async fn start(store: &Store, wake: watch::Sender<u64>) -> Result<Self, StoreError> {
        let (mut connection, lock) = Lock::share(store.location(), COMMAND).await?;
        Query::new(sql::SET_MODE).execute(&mut connection).await?;
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let observed = Observed::default();
        let task =
            WriterLoop { store: store.clone(), connection: Some((connection, lock)), wake, observed: observed.clone() };
        tokio::spawn(task.run(waiting));
        Ok(Self { queue, observed })
    }

    pub async fn run<O: Operation>(&self, op: O) -> Reply<O::Answer>
    where
        O::Answer: Sync,
    {
        let (ack, answer) = oneshot::channel();
        let ended = || ControlError::Store(StoreError::Ended);
        let job = Job { op, answer: None, ack };
        self.queue.send(Message::Run(Box::new(job))).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    pub(super) fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Returns when everything handed in before is written.
    pub async fn finish(&self) {
        let (ack, answer) = oneshot::channel();
        if self.queue.send(Message::Finish(ack)).await.is_ok() {
            let _ = answer.await;
        }
    }
}

const COMMAND: &str = "berth server";

struct WriterLoop {
    store: Store,
    connection: Option<(Connection, Lock)>,
    wake: watch::Sender<u64>,
    observed: Observed,
}

/// How an attempt at a batch ended.
enum Ended {
    Committed {
        news: bool,
    },
    /// Rolled back: nothing of it is there.
    Undone(BatchFailure),
    /// The connection broke before the commit was asked for: nothing of it is there.
    LostBefore(StoreError),
    /// The connection broke while the commit was asked for, in the transaction of this number.
    LostDuring(StoreError, i64),
}

impl WriterLoop {
    async fn run(mut self, mut waiting: mpsc::Receiver<Message>) {
        let mut finish = None;
        while finish.is_none() {
            let Some(first) = waiting.recv().await else { break };
            let mut jobs = Vec::new();
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Run(job) => jobs.push(job),
                    Message::Finish(ack) => {
                        finish = Some(ack);
                        break;
                    }
                }
                next = if jobs.len() < BATCH_MAX { waiting.try_recv().ok() } else { None };
            }
            if !jobs.is_empty() {
                let started = std::time::Instant::now();
                self.batch(&mut jobs).await;
                self.observed.tell(jobs.len(), started.elapsed());
            }
            for job in jobs {
                job.send();
            }
        }
        waiting.close();
        if let Some((connection, lock)) = self.connection
            && let Err(error) = lock.release(connection).await
        {
            tracing::debug!(%error, "the state did not close cleanly");
        }
        if let Some(ack) = finish {
            let _ = ack.send(());
        }
    }

    /// All in one transaction. If any of them fails, once more with each kept apart, so that one's error is not the others'
    /// loss. After a lost connection, once more from the start.
    async fn batch(&mut self, jobs: &mut [Box<dyn AnyJob>]) {
        let mut apart = false;
        for _ in 0..TRIES_MAX {
            if let Err(error) = self.connect().await {
                return fail(jobs, &error);
            }
            match self.attempt(jobs, apart).await {
                Ended::Committed { news } => {
                    if news {
                        self.wake.send_modify(|count| *count += 1);
                    }
                    return;
                }
                Ended::Undone(_) if !apart => apart = true,
                Ended::Undone(BatchFailure::Store(error)) => return fail(jobs, &error),
                Ended::Undone(BatchFailure::Half(error)) => {
                    return fail(jobs, &StoreError::Database(error.to_string()));
                }
                Ended::LostBefore(error) => {
                    tracing::warn!(%error, "the connection to the database broke; writing again");
                    self.connection = None;
                }
                Ended::LostDuring(error, number) => {
                    self.connection = None;
                    match self.how_ended(number).await {
                        Ok(true) => {
                            self.wake.send_modify(|count| *count += 1);
                            return;
                        }
                        Ok(false) => tracing::warn!(%error, "the connection to the database broke; writing again"),
                        Err(_) => {
                            let unknown = format!("{error}; whether the change was written is unknown");
                            return fail(jobs, &StoreError::Lost(unknown));
                        }
                    }
                }
            }
        }
        fail(jobs, &StoreError::Lost("it broke again and again".into()));
    }

    async fn attempt(&mut self, jobs: &mut [Box<dyn AnyJob>], apart: bool) -> Ended {
        let Some((connection, _)) = &mut self.connection else { return Ended::LostBefore(StoreError::Ended) };
        let (news, number) = match transact(connection, self.store.sealer(), jobs, apart).await {
            Ok(done) => done,
            Err(BatchFailure::Store(error @ StoreError::Lost(_))) => return Ended::LostBefore(error),
            Err(broken) => {
                // Fails when SQLite has rolled back by itself, which is as good.
                return match connection.run("ROLLBACK").await {
                    Err(error @ StoreError::Lost(_)) => Ended::LostBefore(error),
                    _ => Ended::Undone(broken),
                };
            }
        };
        let commit = if news && !connection.dialect().is_sqlite { sql::POSTGRES_COMMIT_NEWS } else { "COMMIT" };
        match connection.run(commit).await {
            Ok(()) => Ended::Committed { news },
            Err(error @ StoreError::Lost(_)) => Ended::LostDuring(error, number),
            Err(error) => {
                let _ = connection.run("ROLLBACK").await;
                Ended::Undone(BatchFailure::Store(error))
            }
        }
    }

    async fn connect(&mut self) -> Result<(), StoreError> {
        let until = Instant::now() + RECONNECT_WITHIN;
        let mut pause = RECONNECT_FIRST;
        while self.connection.is_none() {
            match Lock::share(self.store.location(), COMMAND).await {
                Ok(made) => self.connection = Some(made),
                Err(error) if Instant::now() + pause >= until => return Err(StoreError::Lost(error.to_string())),
                Err(error) => {
                    tracing::warn!(%error, "the database cannot be reached; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
                }
            }
        }
        Ok(())
    }

    /// Whether a transaction whose end was not heard of was committed.
    async fn how_ended(&mut self, number: i64) -> Result<bool, StoreError> {
        for _ in 0..TRIES_MAX {
            self.connect().await?;
            let Some((connection, _)) = &mut self.connection else { break };
            let number = number.to_string();
            let row = Query::new(sql::POSTGRES_HOW_ENDED).bind(&number).fetch_one(connection).await;
            match row.and_then(|row| row.get::<String>(0)) {
                Ok(status) if status == "committed" => return Ok(true),
                Ok(status) if status == "aborted" => return Ok(false),
                // The server has not noticed yet that we are gone.
                Ok(status) if status == "in progress" => tokio::time::sleep(RECONNECT_PAUSE_MAX).await,
                Ok(_) => break,
                Err(StoreError::Lost(_)) => self.connection = None,
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Lost("nobody knows".into()))
    }
}

fn fail(jobs: &mut [Box<dyn AnyJob>], error: &StoreError) {
    for job in jobs {
        job.fail(ControlError::Store(error.again()));
    }
}

/// Everything up to the commit. Whether there is news, and the transaction's number.
async fn transact(
    connection: &mut Connection,
    sealer: &Sealer,
    jobs: &mut [Box<dyn AnyJob>],
    apart: bool,
) -> Result<(bool, i64), BatchFailure> {
    let number = connection.begin_turn().await?;
    let mut tx = Tx::new(connection, sealer);
    if apart {
        for job in jobs {
            one_apart(job, &mut tx).await?;
        }
    } else {
        let mut groups: Vec<(TypeId, Vec<&mut Box<dyn AnyJob>>)> = Vec::new();
        for job in jobs {
            let kind = job.kind();
            match groups.iter_mut().find(|(other, _)| *other == kind) {
                Some((_, group)) => group.push(job),
                None => groups.push((kind, vec![job])),
            }
        }
        for (_, mut group) in groups {
            let Some(run) = group.first().map(|job| job.runner()) else { continue };
            run(&mut group, &mut tx).await?;
        }
    }
    tx.flush().await?;
    Ok((tx.news, number))
}

async fn one_apart(job: &mut Box<dyn AnyJob>, tx: &mut Tx<'_>) -> Result<(), BatchFailure> {
    tx.flush().await?;
    tx.connection.run(BEGIN_ONE).await?;
    let run = job.runner();
    let mut result = {
        let mut group = [&mut *job];
        run(&mut group, tx).await
    };
    if result.is_ok() {
        result = tx.flush().await.map_err(BatchFailure::Store);
    }
    match result {
        Ok(()) => tx.connection.run(KEEP_ONE).await?,
        Err(BatchFailure::Store(error @ StoreError::Lost(_))) => return Err(error.into()),
        Err(broken) => {
            tx.forget();
            tx.connection.run(UNDO_ONE).await?;
            job.fail(match broken {
                BatchFailure::Store(error) => error.into(),
                BatchFailure::Half(error) => error,
            });
        }
    }
    Ok(())
}
