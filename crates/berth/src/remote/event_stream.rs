//! Events as they come, through broken connections: each watch begins after the last event that was heard.

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
    /// The connection broke; it is being made again.
    Disconnected(Fault),
    /// It is there again, and nothing was missed.
    Reconnected,
    /// Trying again will not help.
    Ended(Fault),
}

/// Whoever listens. Dropping it ends the watch.
pub struct EventStream {
    heard: mpsc::Receiver<StreamItem>,
    task: tokio::task::JoinHandle<()>,
}

impl EventStream {
    /// `None` once it ended.
    pub async fn next(&mut self) -> Option<StreamItem> {
        self.heard.recv().await
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens from after the position that the request names; -1 begins with the next event.
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
        // "The next one" must not become a later one when the connection breaks before it comes.
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

/// One connection's worth. `Err(None)`: nobody listens any more.
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
