//! What a server tells `berth watch`: everything once, then what changes. Events say what to read again.

use super::model::Key;
use crate::failure::Failure;
use crate::remote::event_stream::{StreamItem, subscribe};
use crate::remote::{PAGE, Remote, messages};
use berth_model::ResourceId;
use berth_server::pb;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;

/// Resources that are kept; of a larger fleet these are shown.
const FLEET_MAX: usize = 20_000;
const EVENTS_FIRST: u32 = 200;
const TASKS_EVERY: Duration = Duration::from_secs(1);
const WORKERS_EVERY: Duration = Duration::from_secs(5);
/// Events are gathered for so long before what they are about is read.
const GATHER: Duration = Duration::from_millis(300);
const OPEN_TASKS: usize = 200;
const RECENT_TASKS: usize = 50;

pub enum News {
    Key(Key),
    Resized,
    Page {
        resources: Vec<pb::Resource>,
        last: bool,
        more: bool,
    },
    Changed(Vec<(ResourceId, Option<pb::Resource>)>),
    /// Oldest first.
    Events(Vec<pb::Event>),
    Tasks(Vec<pb::Task>),
    Workers(Vec<pb::Worker>),
    Trouble(Option<String>),
}

/// Dropping it ends the tasks.
pub struct Feed(Vec<JoinHandle<()>>);

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

pub fn start(remote: Remote, send: Sender<News>) -> Feed {
    Feed(vec![
        tokio::spawn(fleet(remote.clone(), send.clone())),
        tokio::spawn(work(remote.clone(), send.clone())),
        tokio::spawn(workers(remote, send)),
    ])
}

/// The fleet as it is, then as it changes.
async fn fleet(remote: Remote, send: Sender<News>) {
    // The position of the event stream is read before the pages, so that changes meanwhile are read again.
    let mut recent = retried(&send, || remote.newest_events(EVENTS_FIRST)).await;
    let after = recent.first().map_or(0, |event| event.id);
    recent.reverse();
    if send.send(News::Events(recent)).await.is_err() {
        return;
    }
    let mut request = pb::ListRequest { page_size: PAGE, ..Default::default() };
    let mut read = 0;
    loop {
        let page = retried(&send, || async {
            let answer = remote.client.resources().list(request.clone()).await;
            Ok(answer.map_err(|status| remote.fail(&status))?.into_inner())
        })
        .await;
        read += page.resources.len();
        let last = page.next_page_token.is_empty();
        let more = !last && read >= FLEET_MAX;
        if send.send(News::Page { resources: page.resources, last: last || more, more }).await.is_err() {
            return;
        }
        if last || more {
            break;
        }
        request.page_token = page.next_page_token;
    }
    changes(&remote, &send, after).await;
}

async fn changes(remote: &Remote, send: &Sender<News>, after: i64) {
    let mut stream = subscribe(remote, pb::WatchRequest { after, ..Default::default() });
    let mut look: BTreeSet<ResourceId> = BTreeSet::new();
    let mut gather = tokio::time::interval(GATHER);
    gather.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let told = tokio::select! {
            item = stream.next() => match item {
                Some(StreamItem::Event(event)) => {
                    let id = messages::id_of(event.resource.as_ref());
                    if !id.kind.is_empty() {
                        look.insert(id);
                    }
                    send.send(News::Events(vec![*event])).await
                }
                Some(StreamItem::Disconnected(fault)) => send.send(News::Trouble(Some(fault.message))).await,
                Some(StreamItem::Reconnected) => send.send(News::Trouble(None)).await,
                Some(StreamItem::Ended(fault)) => {
                    _ = send.send(News::Trouble(Some(fault.message))).await;
                    return;
                }
                None => return,
            },
            _ = gather.tick(), if !look.is_empty() => {
                let ids: Vec<ResourceId> = look.iter().cloned().collect();
                match remote.several(&ids).await {
                    Ok(changed) => {
                        look.clear();
                        send.send(News::Changed(changed)).await
                    }
                    Err(failure) => send.send(News::Trouble(Some(failure.to_string()))).await,
                }
            }
        };
        if told.is_err() {
            return;
        }
    }
}

async fn work(remote: Remote, send: Sender<News>) {
    loop {
        let news = match tasks(&remote).await {
            Ok(tasks) => [News::Tasks(tasks), News::Trouble(None)],
            Err(failure) => [News::Trouble(Some(failure.to_string())), News::Resized],
        };
        for one in news {
            if !matches!(one, News::Resized) && send.send(one).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(TASKS_EVERY).await;
    }
}

/// Those that run or wait, and the newest that are over.
async fn tasks(remote: &Remote) -> Result<Vec<pb::Task>, Failure> {
    let mut all: Vec<pb::Task> = Vec::new();
    for (state, limit) in [("running", OPEN_TASKS), ("queued", OPEN_TASKS), ("", RECENT_TASKS)] {
        let request = pb::ListTasksRequest { state: state.into(), ..Default::default() };
        for task in remote.tasks(request, limit).await? {
            if !all.iter().any(|other| other.id == task.id) {
                all.push(task);
            }
        }
    }
    Ok(all)
}

async fn workers(remote: Remote, send: Sender<News>) {
    loop {
        // Whatever is wrong is said by the tasks, which are asked for more often.
        if let Ok(answer) = remote.client.tasks().workers(pb::ListWorkersRequest {}).await
            && send.send(News::Workers(answer.into_inner().workers)).await.is_err()
        {
            return;
        }
        tokio::time::sleep(WORKERS_EVERY).await;
    }
}

/// Asks until there is an answer.
async fn retried<T, F: Future<Output = Result<T, Failure>>>(send: &Sender<News>, ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(failure) => {
                _ = send.send(News::Trouble(Some(failure.to_string()))).await;
                tokio::time::sleep(TASKS_EVERY).await;
            }
        }
    }
}
