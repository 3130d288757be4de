//! Watches: a stream of changes that ends by itself after a bounded time. Nothing is pushed: the stream looks at the
//! cluster a few times a second, as everything else here follows from the clock at the moment of looking.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Clusters;
use super::convert;
use super::objects::{Event, Objects};
use super::print::{self, Include};
use super::select::Selector;
use super::status;
use super::types::ResourceType;
use crate::clock::SimTime;

const LOOK_EVERY: Duration = Duration::from_millis(150);
pub const DEFAULT_SECONDS: u64 = 300;
pub const MAX_SECONDS: u64 = 600;

/// What a client asked to watch.
#[derive(Debug)]
pub struct Watched {
    pub cluster: String,
    pub resource: &'static ResourceType,
    pub namespace: String,
    pub selector: Selector,
    /// Changes after this version; 0 begins with everything that is there.
    pub version: u64,
    pub seconds: u64,
    /// The client wants to be told when it has seen everything that was there.
    pub mark_initial: bool,
    pub table: Option<Include>,
}

struct Watching {
    clusters: Arc<Clusters>,
    watched: Watched,
    known: HashSet<String>,
    started: bool,
    over: bool,
    ends: Instant,
}

pub(super) fn lines(clusters: Arc<Clusters>, watched: Watched) -> impl Stream<Item = Bytes> + Send {
    let ends = Instant::now() + Duration::from_secs(watched.seconds);
    let state = Watching { clusters, watched, known: HashSet::new(), started: false, over: false, ends };
    futures::stream::unfold(state, |mut state| async move {
        loop {
            if state.over {
                return None;
            }
            if state.started {
                if Instant::now() + LOOK_EVERY > state.ends {
                    return None;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            let text = state.look()?;
            if !text.is_empty() {
                return Some((Bytes::from(text), state));
            }
        }
    })
}

impl Watching {
    /// What changed since the last look; `None` when the cluster is gone.
    fn look(&mut self) -> Option<String> {
        let view = self.clusters.world.cluster_view(&self.watched.cluster).filter(|view| view.api_up)?;
        let clusters = self.clusters.clone();
        Some(clusters.with(&view, |objects, now| self.changes(objects, now)))
    }

    fn changes(&mut self, objects: &Objects, now: SimTime) -> String {
        let watched = &self.watched;
        let everything = Selector::default();
        if objects.too_old(watched.version) {
            let gone = status::expired(watched.version, objects.version()).body;
            self.over = true;
            return format!("{}\n", json!({"type": "ERROR", "object": gone}));
        }
        if !self.started && watched.version > 0 {
            let seen = objects.list(convert::stored(watched.resource), &watched.namespace, &watched.selector);
            let old = seen.filter(|object| revision(object) <= watched.version).filter_map(uid);
            self.known.extend(old);
        }
        let mut text = String::new();
        let resource = convert::stored(watched.resource);
        for event in objects.since(resource, &watched.namespace, &everything, watched.version) {
            let Some(uid) = uid(&event.object) else { continue };
            let here = event.kind != "DELETED" && watched.selector.matches(&event.object);
            let kind = match (here, self.known.contains(&uid)) {
                (true, false) => "ADDED",
                (true, true) => "MODIFIED",
                (false, true) => "DELETED",
                (false, false) => continue,
            };
            if here {
                self.known.insert(uid);
            } else {
                self.known.remove(&uid);
            }
            text.push_str(&line(watched, objects, &Event { kind, object: event.object }, now));
        }
        if !self.started && watched.mark_initial {
            let mark = json!({"kind": watched.resource.kind, "apiVersion": watched.resource.api_version(), "metadata": {
                "resourceVersion": objects.version().to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}});
            text.push_str(&format!("{}\n", json!({"type": "BOOKMARK", "object": mark})));
        }
        self.started = true;
        self.watched.version = objects.version();
        text
    }
}

fn line(watched: &Watched, objects: &Objects, event: &Event, now: SimTime) -> String {
    let object = match watched.table {
        None => convert::shown(watched.resource, &event.object, now),
        Some(include) => {
            let meta = json!({"resourceVersion": event.object["metadata"]["resourceVersion"]});
            print::table(watched.resource, &objects.custom, &[&event.object], include, now, meta)
        }
    };
    format!("{}\n", json!({"type": event.kind, "object": object}))
}

fn uid(object: &Value) -> Option<String> {
    object["metadata"]["uid"].as_str().map(str::to_owned)
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}
