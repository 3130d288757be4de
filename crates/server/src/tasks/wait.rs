//! Tasks that someone waits for: plans, imports, drift checks on demand.

use super::{Bucket, is_present};
use crate::api::ServerState;
use crate::fault::{Code, Fault};
use berth_store::{Actor, AuditNote, Control, NewTask, TaskId, TaskState};
use secrecy::ExposeSecret;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Without a wake, the task is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Enqueues a task, waits until it has ended, and gives its result. A task that nobody waits for any more is cancelled.
pub async fn run_and_wait(server: &ServerState, task: NewTask, timeout: Duration) -> Result<Value, Fault> {
    let op = task.op.as_str();
    let ids = server.control.enqueue(vec![task], server.now()).await?;
    let id = ids.into_iter().next().ok_or_else(|| Fault::new(Code::Internal, "the task was not made"))?;
    let mut waiting = Waiting { control: server.control.clone(), id: Some(id.clone()) };
    let result = wait(server, &id, op, timeout).await;
    if !result.as_ref().is_err_and(|fault| matches!(fault.code, Code::TimedOut | Code::Unavailable)) {
        waiting.id = None;
    }
    result
}

/// Cancels the task when the caller stops waiting.
struct Waiting {
    control: Control,
    id: Option<TaskId>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let control = self.control.clone();
        tokio::spawn(async move {
            let (actor, now) = (Actor::new("controller"), jiff::Timestamp::now());
            if let Err(error) = control.cancel(&id, &actor, AuditNote::default(), now).await {
                tracing::debug!(task = %id, %error, "a task that nobody waits for was not cancelled");
            }
        });
    }
}

async fn wait(server: &ServerState, id: &TaskId, op: &str, timeout: Duration) -> Result<Value, Fault> {
    let until = Instant::now() + timeout;
    let mut wakes = server.control.wakes();
    let mut bucket = Bucket::new();
    let stopping = || Fault::new(Code::Unavailable, "the server is stopping").help("ask again: another one answers");
    loop {
        wakes.mark_unchanged();
        let task = server.control.task(id).await?.ok_or_else(|| Fault::new(Code::NotFound, "the task is gone"))?;
        match task.state {
            TaskState::Done => break,
            TaskState::Failed => {
                return Err(Fault { help: task.help, ..Fault::new(Code::Refused, task.message) });
            }
            TaskState::Cancelled => return Err(Fault::new(Code::Refused, format!("the task to {op} was cancelled"))),
            TaskState::Queued | TaskState::Running => {}
        }
        if Instant::now() >= until {
            return Err(overdue(server, op, task.state, timeout).await);
        }
        if server.stop.is_cancelled() {
            return Err(stopping());
        }
        tokio::time::sleep(bucket.take()).await;
        tokio::select! {
            changed = wakes.changed() => if changed.is_err() { return Err(stopping()) },
            () = tokio::time::sleep_until(until.min(Instant::now() + LOOK_AGAIN)) => {}
            () = server.stop.cancelled() => {}
        }
    }
    let result = server.control.result(id).await?;
    let result = result.ok_or_else(|| Fault::new(Code::Internal, format!("the task to {op} gave no result")))?;
    serde_json::from_str(result.expose_secret())
        .map_err(|_| Fault::new(Code::Internal, format!("the result of the task to {op} cannot be read")))
}

async fn overdue(server: &ServerState, op: &str, state: TaskState, timeout: Duration) -> Fault {
    let seconds = timeout.as_secs();
    if state == TaskState::Running {
        return Fault::new(Code::TimedOut, format!("the task to {op} did not end within {seconds} s"))
            .help("ask again; large plans take longer");
    }
    let now = server.now();
    let workers = server.control.workers().await.unwrap_or_default();
    let awake = workers.iter().any(|worker| is_present(worker.seen_at, now));
    let fault = Fault::new(Code::TimedOut, format!("no worker took the task to {op} within {seconds} s"));
    if awake {
        fault.help("all workers are busy, or none serves this: see `berth tasks`")
    } else {
        fault.help("no worker is running: start one with `berth worker`, or the server without --no-worker")
    }
}
