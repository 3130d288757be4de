//! What passed through one cloud's port: counts, a bounded log of changes, and calls being held.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clock::SimTime;
use crate::http::mutating;

const MAX_EVENTS: usize = 10_000;
const METHODS: [Method; 6] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD];

/// One mutating call.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    pub number: u64,
    pub at: String,
    pub method: String,
    pub path: String,
    /// What was answered; nothing when the connection was dropped or the call is held.
    pub status: Option<u16>,
    /// Whether the cloud changed, answered or not.
    pub took_effect: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<&'static str>,
}

pub struct Traffic {
    by_method: [AtomicU64; METHODS.len() + 1],
    numbers: AtomicU64,
    events: Mutex<VecDeque<Event>>,
    held: watch::Sender<usize>,
    late: AtomicU64,
}

impl Default for Traffic {
    fn default() -> Traffic {
        let by_method = std::array::from_fn(|_| AtomicU64::new(0));
        let held = watch::channel(0).0;
        Traffic { by_method, numbers: AtomicU64::new(0), events: Mutex::default(), held, late: AtomicU64::new(0) }
    }
}

impl Traffic {
    pub fn count(&self, method: &Method) {
        let at = METHODS.iter().position(|m| m == method).unwrap_or(METHODS.len());
        self.by_method[at].fetch_add(1, Ordering::Relaxed);
    }

    pub fn total(&self) -> u64 {
        self.by_method.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    pub fn mutating(&self) -> u64 {
        let counted = METHODS.iter().zip(&self.by_method).filter(|(method, _)| mutating(method));
        counted.map(|(_, n)| n.load(Ordering::Relaxed)).sum()
    }

    pub fn reset(&self) {
        self.by_method.iter().for_each(|n| n.store(0, Ordering::Relaxed));
    }

    pub fn calls(&self) -> Value {
        let counts = METHODS.iter().map(Method::as_str).chain(["OTHER"]).zip(&self.by_method);
        let by_method: BTreeMap<&str, u64> =
            counts.map(|(name, n)| (name, n.load(Ordering::Relaxed))).filter(|(_, n)| *n > 0).collect();
        json!({"total": self.total(), "mutating": self.mutating(), "by_method": by_method, "late": self.late()})
    }

    pub fn record(
        &self,
        at: SimTime,
        method: &Method,
        path: &str,
        fault: Option<&'static str>,
        seen: (Option<u16>, bool),
    ) {
        let (status, took_effect) = seen;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (at, method, path) = (at.rfc3339(), method.to_string(), path.to_owned());
        let mut events = self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if events.len() == MAX_EVENTS {
            events.pop_front();
        }
        events.push_back(Event { number, at, method, path, status, took_effect, fault });
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter().cloned().collect()
    }

    /// Counts a held call for as long as the guard lives, which is until its client goes away.
    pub fn hold(&self) -> Held<'_> {
        self.held.send_modify(|n| *n += 1);
        Held(self)
    }

    pub fn held(&self) -> usize {
        *self.held.borrow()
    }

    /// A call was refused and is to be acted on later, or now was.
    pub fn late_begins(&self) {
        self.late.fetch_add(1, Ordering::SeqCst);
    }

    pub fn late_ends(&self) {
        self.late.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many calls were refused and are still to be acted on.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::SeqCst)
    }

    /// Waits until a call is held, at most `limit`; gives how many are.
    pub async fn wait_held(&self, limit: Duration) -> usize {
        let mut seen = self.held.subscribe();
        let _ = tokio::time::timeout(limit, seen.wait_for(|n| *n > 0)).await;
        self.held()
    }
}

pub struct Held<'a>(&'a Traffic);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.send_modify(|n| *n = n.saturating_sub(1));
    }
}
