//! What a run is given and what it answers: options, the wish to stop, the report; and what all of its units share.

use crate::handler::Trouble;
use crate::progress::Watcher;
use crate::record::{RecordError, Recorder};
use crate::unit::Stray;
use berth_model::ResourceId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How a plan is carried out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Resources worked on at once.
    pub parallelism: usize,
    /// How long one resource may take; the annotation `berth.dev/timeout` overrides this.
    pub timeout: Duration,
    /// Wait until things are ready. Without, only what others need is waited for.
    pub wait: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { parallelism: 64, timeout: Duration::from_secs(45 * 60), wait: true }
    }
}

/// Asks a run to stop after the calls in flight.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<(AtomicBool, Notify)>);

impl Interrupt {
    pub fn set(&self) {
        self.0.0.store(true, Ordering::SeqCst);
        self.0.1.notify_waiters();
    }
    pub fn is_set(&self) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }
}

/// Why a unit or resource stopped short.
#[derive(Debug)]
pub(crate) enum Stop {
    Trouble(Trouble),
    Interrupted,
    Record(RecordError),
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Stop::Trouble(trouble)
    }
}
impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Stop::Record(error)
    }
}

/// How a run ended.
#[derive(Debug, Default)]
pub struct Report {
    pub done: Vec<ResourceId>,
    /// Begun, and nobody waited for them.
    pub pending: Vec<ResourceId>,
    pub failed: Vec<(ResourceId, Trouble)>,
    pub skipped: Vec<ResourceId>,
    /// Begun, and left on their way because the run was asked to stop.
    pub left: Vec<ResourceId>,
    pub interrupted: bool,
    /// The state could not be written: nothing more was done.
    pub record: Option<RecordError>,
    /// Objects that were made twice.
    pub strays: Vec<(ResourceId, Stray)>,
}

/// What all units of a run share.
pub(crate) struct RunContext<'a> {
    pub recorder: &'a dyn Recorder,
    pub watcher: &'a dyn Watcher,
    pub interrupt: Interrupt,
    pub options: &'a Options,
    /// What was changed in clouds so far; printed if the state cannot be written any more.
    pub changed: Mutex<Vec<(ResourceId, String)>>,
}

impl RunContext<'_> {
    pub fn note_change(&self, resource: &ResourceId, what: String) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).push((resource.clone(), what));
    }

    pub fn changes_of(&self, resource: &ResourceId) -> Vec<String> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.iter().filter(|(id, _)| id == resource).map(|(_, what)| what.clone()).collect()
    }

    /// Checked before every call: an interrupted run makes none.
    pub fn go_on(&self) -> Result<(), Stop> {
        if self.interrupt.is_set() { Err(Stop::Interrupted) } else { Ok(()) }
    }

    /// For calls that change nothing: those may be let go of at any time, and may be held back for long by the cloud's wish.
    pub async fn unless_interrupted<T>(&self, read: impl Future<Output = T>) -> Result<T, Stop> {
        let woken = self.interrupt.0.1.notified();
        self.go_on()?;
        tokio::select! {
            seen = read => Ok(seen),
            () = woken => Err(Stop::Interrupted),
        }
    }

    pub async fn pause(&self, time: Duration) -> Result<(), Stop> {
        let woken = self.interrupt.0.1.notified();
        self.go_on()?;
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = woken => Err(Stop::Interrupted),
        }
    }
}
