//! Group commit. One task owns the connection that writes; it takes everything that waits, applies it in one transaction,
//! commits, and only then answers. Many units at once cost few flushes to disk, and each answer still means: on disk.

use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::lock::Lock;
use crate::row_writes::{RowWrite, WriteAnswer, WriteContext};
use tokio::sync::{mpsc, oneshot};

/// Operations that may wait; more than that and callers wait to hand theirs in.
const QUEUE_MAX: usize = 1024;
/// Operations in one transaction.
const BATCH_MAX: usize = 256;

pub(crate) const BEGIN_ONE: &str = "SAVEPOINT one";
pub(crate) const KEEP_ONE: &str = "RELEASE SAVEPOINT one";
pub(crate) const UNDO_ONE: &str = "ROLLBACK TO SAVEPOINT one; RELEASE SAVEPOINT one";

/// One for each write, in order.
type Answers = Vec<Result<WriteAnswer, StoreError>>;

type Ack = oneshot::Sender<Result<WriteAnswer, StoreError>>;

enum Message {
    Write { write: RowWrite, at: i64, ack: Ack },
    Finish(oneshot::Sender<()>),
}

/// The callers' end.
pub(crate) struct RunWriter {
    queue: mpsc::Sender<Message>,
}

impl RunWriter {
    pub fn start(connection: Connection, fence: i64, leftovers: bool, lock: Lock) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(WriterLoop { connection, lock, fence, over: None, leftovers }.run(waiting));
        Self { queue }
    }

    pub async fn write(&self, write: RowWrite) -> Result<WriteAnswer, StoreError> {
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

struct WriterLoop {
    connection: Connection,
    lock: Lock,
    fence: i64,
    /// Why nothing more can be written, once it is so.
    over: Option<StoreError>,
    /// Earlier runs left journal entries open.
    leftovers: bool,
}

impl WriterLoop {
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
                // A caller that no longer waits was interrupted; the write is committed all the same.
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
    async fn group(&mut self, writes: &[(RowWrite, i64)]) -> Answers {
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

    async fn transaction(&mut self, writes: &[(RowWrite, i64)], apart: bool) -> Result<Answers, StoreError> {
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

    async fn attempt(&mut self, writes: &[(RowWrite, i64)], apart: bool) -> Result<Answers, StoreError> {
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
            let mut rows = WriteContext {
                connection: &mut self.connection,
                fence: self.fence,
                leftovers: self.leftovers,
                task: "",
            };
            let answer = rows.apply(write, *at).await;
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
}
