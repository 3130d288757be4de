//! The service Events: what happened, in the order in which it was written.

use super::arguments::check_text;
use super::messages::time;
use super::{ServerState, page};
use crate::access::{Principal, Revalidation, principal};
use crate::fault::{Code, Fault};
use crate::pb::{self, events_server::Events};
use berth_store::EventFilter;
use futures::Stream;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Events read at once, and kept for a watcher that is slow.
const BATCH: u32 = 256;
/// A watcher that takes none for this long is let go; it can come back with the last position it saw.
const SLOW_AFTER: Duration = Duration::from_secs(20);
/// A look without a wake: another server's commit may come without one.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Streams that one token may have open: each looks at the database whenever something happens.
const STREAMS_MAX: usize = 256;

pub struct Service {
    server: Arc<ServerState>,
    /// Open streams of each token.
    open: Arc<Mutex<HashMap<String, usize>>>,
}

impl Service {
    pub fn new(server: Arc<ServerState>) -> Self {
        Self { server, open: Arc::default() }
    }
}

/// The slot of one open stream, given back when the stream ends.
struct StreamSlot {
    token: String,
    open: Arc<Mutex<HashMap<String, usize>>>,
}

impl StreamSlot {
    fn take(open: &Arc<Mutex<HashMap<String, usize>>>, caller: &Principal) -> Result<Self, Fault> {
        let mut all = open.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = all.entry(caller.token_id.clone()).or_default();
        if *taken >= STREAMS_MAX {
            let why = format!("this token follows events {STREAMS_MAX} times already");
            return Err(Fault::new(Code::TooMany, why).help("end some of them"));
        }
        *taken += 1;
        Ok(Self { token: caller.token_id.clone(), open: open.clone() })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = all.get_mut(&self.token) {
            *taken -= 1;
            if *taken == 0 {
                all.remove(&self.token);
            }
        }
    }
}

/// Name, kind, org and env that a caller asks for, within their scope; `None` when nothing can be in both.
fn filter(
    caller: &Principal,
    kind: String,
    name: String,
    org: String,
    env: String,
) -> Result<Option<EventFilter>, Fault> {
    for (field, text) in [("kind", &kind), ("name", &name), ("org", &org), ("env", &env)] {
        check_text(field, text)?;
    }
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let kind = given(kind).map(|kind| berth_model::registry().find(&kind).map_or(kind, |found| found.name.clone()));
    let Some((org, env)) = caller.narrow(given(org), given(env)) else { return Ok(None) };
    Ok(Some(EventFilter { kind, name: given(name), org, env }))
}

fn event(event: berth_store::Event, sandbox: bool) -> pb::Event {
    pb::Event {
        id: event.id,
        at: time(event.at),
        resource: Some((&event.resource).into()),
        what: event.what,
        detail: event.detail,
        task: event.task,
        sandbox,
    }
}

#[tonic::async_trait]
impl Events for Service {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::Event, Status>> + Send>>;

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let caller = principal(&request)?;
        let pb::WatchRequest { after, kind, name, org, env } = request.into_inner();
        let filter = filter(&caller, kind, name, org, env)?;
        let slot = StreamSlot::take(&self.open, &caller)?;
        let server = self.server.clone();
        let after = match after {
            ..0 => server.control.last_event().await.map_err(Fault::from)?,
            after => after,
        };
        let (sender, receiver) = mpsc::channel(BATCH as usize);
        tokio::spawn(async move {
            server.metrics.watchers.inc();
            follow(&server, &caller, after, filter, sender).await;
            server.metrics.watchers.dec();
            drop(slot);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn list(&self, request: Request<pb::ListEventsRequest>) -> Result<Response<pb::ListEventsResponse>, Status> {
        let caller = principal(&request)?;
        let pb::ListEventsRequest { after, kind, name, org, env, page_size, newest } = request.into_inner();
        let limit = page::size(page_size)?;
        let Some(filter) = filter(&caller, kind, name, org, env)? else {
            return Ok(Response::new(pb::ListEventsResponse::default()));
        };
        let control = &self.server.control;
        let found = match newest {
            true => control.events_newest(&filter, limit).await,
            false => control.events_after(after.max(0), &filter, limit).await,
        };
        let events = found.map_err(Fault::from)?.into_iter().map(|one| event(one, self.server.is_sandbox())).collect();
        Ok(Response::new(pb::ListEventsResponse { events }))
    }
}

/// Sends events until the watcher is gone, too slow, no longer entitled, or the server stops.
async fn follow(
    server: &ServerState,
    caller: &Principal,
    mut after: i64,
    filter: Option<EventFilter>,
    to: mpsc::Sender<Result<pb::Event, Status>>,
) {
    let mut wakes = server.control.wakes();
    let mut revalidation = Revalidation::new(&server.control, caller);
    let end = loop {
        // Marked as seen before the look: a commit during it wakes again.
        wakes.mark_unchanged();
        if let Err(fault) = revalidation.check().await {
            break fault;
        }
        let found = match &filter {
            Some(filter) => server.control.events_after(after, filter, BATCH).await,
            None => Ok(Vec::new()),
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => break Fault::from(error).help(format!("go on after {after}")),
        };
        let more = found.len() == BATCH as usize;
        let mut slow = false;
        for one in found {
            let position = one.id;
            match timeout(SLOW_AFTER, to.send(Ok(event(one, server.is_sandbox())))).await {
                Ok(Ok(())) => after = position,
                Ok(Err(_)) => return,
                Err(_) => {
                    slow = true;
                    break;
                }
            }
        }
        if slow {
            server.metrics.watchers_dropped.inc();
            break Fault::new(Code::TooMany, "events come faster than they are taken")
                .help(format!("watch again, after {after}"));
        }
        if more {
            continue;
        }
        tokio::select! {
            () = server.stop.cancelled() => {
                break Fault::new(Code::Unavailable, "the server is stopping")
                    .help(format!("watch another, or this one when it is back, after {after}"));
            }
            () = to.closed() => return,
            _ = wakes.changed() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    };
    // A watcher that is too slow may not take this either; its stream ends all the same.
    _ = to.try_send(Err(end.into()));
}
