//! A state in memory that follows the rules of a durable one, and can stop at any write.

use async_trait::async_trait;
use berth_engine::ResourceState;
use berth_engine::record::*;
use berth_engine::unit::{Op, UnitState};
use berth_engine::{Known, KnownResource};
use berth_model::{Manifest, ResourceId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// When the process dies, counted in writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    Never,
    Before(usize),
    After(usize),
}

#[derive(Clone)]
pub struct Stored {
    pub manifest: Arc<Manifest>,
    pub status: Status,
    pub settled: bool,
}

#[derive(Clone, Default)]
pub struct State {
    pub units: BTreeMap<(ResourceId, String, String), UnitState>,
    pub resources: BTreeMap<ResourceId, Stored>,
    journal: Vec<(Intent, bool)>,
}

pub struct Memory {
    pub state: Mutex<State>,
    pub writes: Mutex<usize>,
    crash: Crash,
    /// Nothing is written any more, and nobody else in the process goes on.
    dead: Box<dyn Fn() + Send + Sync>,
    is_dead: Box<dyn Fn() -> bool + Send + Sync>,
}

impl State {
    pub fn known(&self) -> Known {
        let mut known = Known::default();
        for (id, stored) in &self.resources {
            let resource = KnownResource {
                manifest: stored.manifest.clone(),
                outputs: stored.status.outputs.clone(),
                facts: stored.status.facts.clone(),
                settled: stored.settled,
            };
            known.resources.insert(id.clone(), resource);
        }
        for ((id, ..), unit) in &self.units {
            known.units.entry(id.clone()).or_default().push(unit.clone());
        }
        known
    }

    /// As `apply` does before anything else: what is declared is written down.
    pub fn declare(&mut self, manifest: &Arc<Manifest>) {
        let fresh = Stored { manifest: manifest.clone(), status: Status::default(), settled: false };
        let stored = self.resources.entry(manifest.id.clone()).or_insert(fresh);
        stored.settled &= *stored.manifest == **manifest;
        stored.manifest = manifest.clone();
    }

    /// A new run: what a killed one left open in the journal is history.
    pub fn begin_run(&mut self) {
        self.journal.clear();
    }

    pub fn open_entries(&self) -> usize {
        self.journal.iter().filter(|(_, closed)| !closed).count()
    }

    fn save(&mut self, unit: UnitState) {
        self.units.insert((unit.resource.clone(), unit.key.clone(), unit.token.clone()), unit);
    }
}

impl Memory {
    pub fn new(
        state: State,
        crash: Crash,
        dead: impl Fn() + Send + Sync + 'static,
        is_dead: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let (dead, is_dead) = (Box::new(dead), Box::new(is_dead));
        Self { state: Mutex::new(state), writes: Mutex::new(0), crash, dead, is_dead }
    }

    fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, RecordError> {
        let lost = || RecordError::Failed("the process is dead".into());
        if (self.is_dead)() {
            return Err(lost());
        }
        let mut writes = self.writes.lock().unwrap();
        let index = *writes;
        *writes += 1;
        if self.crash == Crash::Before(index) {
            (self.dead)();
            return Err(lost());
        }
        let answer = change(&mut self.state.lock().unwrap());
        if self.crash == Crash::After(index) {
            (self.dead)();
            return Err(lost());
        }
        Ok(answer)
    }
}

#[async_trait]
impl Recorder for Memory {
    async fn intent(&self, intent: Intent) -> Result<EntryId, RecordError> {
        self.write(|state| {
            if intent.op == Op::Create && intent.unit.id.is_none() {
                state.save(intent.unit.clone());
            }
            state.journal.push((intent, false));
            EntryId(state.journal.len() as i64 - 1)
        })
    }

    async fn close(&self, entry: EntryId, closing: Closing) -> Result<(), RecordError> {
        self.write(|state| {
            let (intent, closed) = &mut state.journal[entry.0 as usize];
            assert!(!*closed, "an entry is closed once");
            *closed = true;
            let (op, unit) = (intent.op, intent.unit.clone());
            let key = (unit.resource.clone(), unit.key.clone(), unit.token.clone());
            match closing {
                Closing::Done(Some(unit)) => state.save(*unit),
                Closing::Done(None) => drop(state.units.remove(&key)),
                Closing::Refused(_) if op == Op::Create => {
                    if state.units.get(&key).is_some_and(|unit| unit.id.is_none()) {
                        state.units.remove(&key);
                    }
                }
                Closing::Failed(_) | Closing::Refused(_) => {}
            }
        })
    }

    async fn save_unit(&self, unit: UnitState) -> Result<(), RecordError> {
        self.write(|state| state.save(unit))
    }

    async fn forget_unit(&self, resource: &ResourceId, key: &str, token: &str) -> Result<(), RecordError> {
        self.write(|state| drop(state.units.remove(&(resource.clone(), key.to_owned(), token.to_owned()))))
    }

    async fn status(&self, resource: &ResourceId, status: Status) -> Result<(), RecordError> {
        self.write(|state| {
            if let Some(stored) = state.resources.get_mut(resource) {
                stored.settled = status.state == ResourceState::Ready;
                stored.status = status;
            }
        })
    }

    async fn forget_resource(&self, resource: &ResourceId) -> Result<(), RecordError> {
        self.write(|state| {
            let left = state.units.keys().filter(|(id, ..)| id == resource).count();
            assert_eq!(left, 0, "{resource} is forgotten while units of it are known");
            state.resources.remove(resource);
        })
    }

    async fn event(&self, _: &ResourceId, _: &str, _: &str) -> Result<(), RecordError> {
        self.write(|_| ())
    }
}
