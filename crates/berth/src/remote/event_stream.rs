//! A stream of events that survives broken connections: each watch begins after the last event that was received.

use super::Remote;
use berth_server::{Code, Fault, pb};
use std::time::Duration;
use tokio::sync::mpsc;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const HELD: usize = 1024;

#[derive(Debug)]
pub enum StreamItem {
    Event(Box<pb::Event>),
    /// The connection broke; reconnecting.
    Disconnected(Fault),
    /// Connected again; no event was missed.
    Reconnected,
    /// An error that a retry cannot fix.
    Ended(Fault),
}

/// A running watch. Dropping it ends the watch.
pub struct EventStream {
    heard: mpsc::Receiver<StreamItem>,
    task: tokio::task::JoinHandle<()>,
}

impl EventStream {
    /// `None` after the watch has ended.
    pub async fn next(&mut self) -> Option<StreamItem> {
        self.heard.recv().await
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches events after the position in the request; -1 means from the next event on.
pub fn subscribe(remote: &Remote, request: pb::WatchRequest) -> EventStream {
    let (send, heard) = mpsc::channel(HELD);
    let remote = remote.clone();
    let task = tokio::spawn(async move { run(&remote, request, &send).await });
    EventStream { heard, task }
}

async fn run(remote: &Remote, mut request: pb::WatchRequest, send: &mpsc::Sender<StreamItem>) {
    let mut pause = FIRST_PAUSE;
    let mut broken = false;
    loop {
        // -1 is replaced by a fixed position, so that a reconnect does not skip events.
        if request.after < 0
            && let Ok(last) = remote.last_event().await
        {
            request.after = last;
        }
        let fault = match once(remote, &mut request, send, &mut broken, &mut pause).await {
            Ok(()) => None,
            Err(Some(fault)) => Some(fault),
            Err(None) => return,
        };
        match fault {
            Some(fault) if is_final(fault.code) => {
                _ = send.send(StreamItem::Ended(fault)).await;
                return;
            }
            Some(fault) if !broken => {
                broken = true;
                if send.send(StreamItem::Disconnected(fault)).await.is_err() {
                    return;
                }
            }
            _ => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn is_final(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::Denied | Code::InvalidArgument | Code::NotFound)
}

/// Reads one connection until it ends. `Err(None)`: the receiver is gone.
async fn once(
    remote: &Remote,
    request: &mut pb::WatchRequest,
    send: &mpsc::Sender<StreamItem>,
    broken: &mut bool,
    pause: &mut Duration,
) -> Result<(), Option<Fault>> {
    let answer = remote.client.events().watch(request.clone()).await;
    let mut stream = answer.map_err(|status| Some(remote.fault(&status)))?.into_inner();
    if std::mem::take(broken) {
        send.send(StreamItem::Reconnected).await.map_err(|_| None)?;
    }
    while let Some(event) = stream.message().await.map_err(|status| Some(remote.fault(&status)))? {
        *pause = FIRST_PAUSE;
        request.after = request.after.max(event.id);
        send.send(StreamItem::Event(Box::new(event))).await.map_err(|_| None)?;
    }
    Ok(())
}
