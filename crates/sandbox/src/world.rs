//! Every object of every simulated cloud, behind one short-held lock.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::clock::{Clock, SimTime, Speed};
use crate::faults::Faults;
use crate::log::{Log, Opened};
use crate::registry::{self, CloudName, CloudStore};
use crate::table::AnyTable;
use crate::traffic::Traffic;
use crate::{Config, Quota, SandboxError};

/// One cloud's objects as seen at one moment, with what its handlers need besides.
pub struct View<'a, S> {
    pub now: SimTime,
    pub dice: &'a mut Dice,
    pub quota: Quota,
    /// Id of the account.
    pub account: &'a str,
    pub store: &'a mut S,
}

/// The objects of all clouds.
struct State {
    now: SimTime,
    dice: Dice,
    quota: Quota,
    clouds: Vec<CloudState>,
}

struct CloudState {
    name: CloudName,
    /// Id of the account. Two sandboxes are two accounts, unless they share a state file.
    account: String,
    store: Box<dyn CloudStore>,
}

impl State {
    fn tables(&self) -> Vec<&dyn AnyTable> {
        self.clouds.iter().flat_map(|cloud| cloud.store.tables()).collect()
    }

    fn tables_mut(&mut self) -> Vec<&mut dyn AnyTable> {
        self.clouds.iter_mut().flat_map(|cloud| cloud.store.tables_mut()).collect()
    }

    fn accounts(&self) -> BTreeMap<String, String> {
        self.clouds.iter().map(|cloud| (cloud.name.to_string(), cloud.account.clone())).collect()
    }
}

/// How long things take: seeded, so that a run can be repeated.
pub struct Dice {
    rng: StdRng,
    instant: bool,
}

impl Dice {
    fn new(seed: u64, speed: Speed) -> Dice {
        Dice { rng: StdRng::seed_from_u64(seed), instant: speed == Speed::Instant }
    }

    /// A time in that range of simulated seconds, in milliseconds; none at all in an instant world.
    pub fn seconds(&mut self, from: u32, to: u32) -> i64 {
        let ms = self.rng.random_range(i64::from(from) * 1000..=i64::from(to) * 1000);
        if self.instant { 0 } else { ms }
    }

    /// Five characters from `a`–`z` and digits, as clouds put them behind generated names.
    pub fn suffix(&mut self, len: usize) -> String {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..len).map(|_| char::from(LETTERS[self.rng.random_range(0..LETTERS.len())])).collect()
    }

    pub fn rng(&mut self) -> &mut StdRng {
        &mut self.rng
    }
}

/// A fresh random id. Never seeded: ids of a restarted sandbox must not meet those in its state file.
pub fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

struct Inner {
    state: State,
    log: Option<Log>,
    buffer: Vec<u8>,
}

pub struct World {
    clock: Clock,
    inner: Mutex<Inner>,
    broken: OnceLock<String>,
    faults: Faults,
    traffic: BTreeMap<CloudName, Traffic>,
}

impl World {
    pub fn open(config: &Config) -> Result<World, SandboxError> {
        let dice = Dice::new(config.seed, config.speed);
        let clouds = registry::clouds();
        let clouds = clouds.map(|cloud| CloudState { name: cloud.name, account: new_id(), store: (cloud.store)() });
        let mut state = State { now: SimTime(0), dice, quota: config.quota, clouds: clouds.collect() };
        let opened = match &config.state {
            Some(path) => Some(Opened::open(Path::new(path), &mut state.tables_mut())?),
            None => None,
        };
        let header = opened.as_ref().and_then(|o| o.header.as_ref());
        for cloud in &mut state.clouds {
            if let Some(kept) = header.and_then(|header| header.accounts.get(cloud.name.as_str())) {
                cloud.account.clone_from(kept);
            }
        }
        let (fresh, anchor) = (header.is_none(), header.map(|h| h.clock));
        let clock = Clock::start(config.speed, anchor);
        state.now = clock.now();
        if fresh {
            state.clouds.iter_mut().for_each(|cloud| cloud.store.seed(state.now));
        }
        for table in state.tables_mut() {
            table.settle();
            table.sweep(clock.now());
        }
        let log = match opened {
            Some(opened) => Some(opened.compact(clock.anchor(), state.accounts(), &state.tables())?),
            None => None,
        };
        Ok(World {
            clock,
            inner: Mutex::new(Inner { state, log, buffer: Vec::new() }),
            broken: OnceLock::new(),
            faults: Faults::new(config.fail.clone(), config.seed),
            traffic: registry::for_each_cloud(|_| Traffic::default()),
        })
    }

    /// Runs `work` on the objects of the cloud that keeps them in an `S`, as they are now. What it changed is in the state
    /// file before this returns.
    pub fn with<S: CloudStore, R>(&self, work: impl FnOnce(&mut View<'_, S>) -> R) -> R {
        self.with_all(|state| {
            let State { now, dice, quota, clouds } = state;
            let found = clouds.iter_mut().find_map(|CloudState { account, store, .. }| {
                let store: &mut dyn Any = store.as_mut();
                Some((account, store.downcast_mut::<S>()?))
            });
            // The same descriptor names a cloud's handlers and makes its store.
            let Some((account, store)) = found else { unreachable!("a cloud without objects is served") };
            work(&mut View { now: *now, dice, quota: *quota, account, store })
        })
    }

    fn with_all<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.state.now = self.clock.now();
        let (now, memory) = (inner.state.now, self.faults.longest_lag());
        for table in inner.state.tables_mut() {
            table.set_memory(memory);
            table.sweep(now);
        }
        let result = work(&mut inner.state);
        self.save(inner);
        result
    }

    fn save(&self, inner: &mut Inner) {
        let Some(log) = &mut inner.log else {
            return inner.state.tables_mut().into_iter().for_each(|table| table.settle());
        };
        let buffer = &mut inner.buffer;
        buffer.clear();
        let drained = inner.state.tables_mut().into_iter().try_for_each(|table| table.drain(buffer));
        let saved = match drained {
            Ok(()) if buffer.is_empty() => Ok(()),
            Ok(()) => log.append(buffer).map_err(|e| e.chain()),
            Err(e) => Err(e.to_string()),
        };
        if let Err(reason) = saved {
            tracing::error!(reason, "the sandbox cannot write its state file; every call is refused from now on");
            let _ = self.broken.set(reason);
        }
    }

    /// Why the state file can no longer be trusted, if so: calls are then answered with an error.
    pub fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }

    pub fn now(&self) -> SimTime {
        self.clock.now()
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    pub fn traffic(&self, cloud: CloudName) -> &Traffic {
        &self.traffic[&cloud]
    }

    /// What a cluster of any cloud looks like from inside.
    pub fn cluster_view(&self, id: &str) -> Option<ClusterView> {
        self.with_all(|state| state.clouds.iter().find_map(|cloud| cloud.store.cluster_view(id, state.now)))
    }

    /// Every live object of a cloud, and how many were ever made and deleted.
    pub fn ledger(&self, cloud: CloudName) -> Value {
        self.with_all(|state| {
            let tables = state.clouds.iter().filter(|one| one.name == cloud).flat_map(|one| one.store.tables());
            let mut objects = Vec::new();
            let mut totals = BTreeMap::new();
            for table in tables.filter(|table| table.in_ledger()) {
                let before = objects.len();
                table.ledger(state.now, &mut objects);
                let (created, deleted) = table.totals();
                let live = objects.len() - before;
                totals.insert(table.type_name(), json!({"created": created, "deleted": deleted, "live": live}));
            }
            json!({"cloud": cloud, "now": state.now.rfc3339(), "objects": objects, "totals": totals})
        })
    }

    /// Lets go of the state file and its lock.
    pub(crate) fn close(&self) {
        self.lock().log = None;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A cluster as its own Kubernetes API shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    pub id: String,
    pub name: String,
    pub cloud: CloudName,
    /// The name of its storage class, and what provisions its volumes.
    pub storage_class: (&'static str, &'static str),
    /// As `kubectl version` shows it, such as `v1.30.5+k3s1`.
    pub kubernetes_version: String,
    pub nodes: Vec<NodeView>,
    /// Whether the control plane is there; until then connections get no answer worth having.
    pub api_up: bool,
    pub created: SimTime,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    pub name: String,
    pub ready: bool,
    pub pool: String,
    pub size: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<TaintView>,
    pub capacity: NodeCapacity,
    /// Where the cloud says it.
    pub machine: Option<MachineView>,
    pub created: SimTime,
}

/// The machine behind a node: as its cloud names it inside a cluster, and its address there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineView {
    pub provider_id: String,
    pub address: std::net::Ipv4Addr,
}

/// What a node has, and how much of it is kept from pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCapacity {
    pub cpus: u32,
    pub memory_mib: u64,
    pub disk_gib: u64,
    pub pods: u32,
    pub gpus: u32,
    pub reserved_cpu_milli: u32,
    pub reserved_memory_mib: u64,
}

impl Default for NodeCapacity {
    fn default() -> NodeCapacity {
        NodeCapacity {
            cpus: 2,
            memory_mib: 4096,
            disk_gib: 50,
            pods: 110,
            gpus: 0,
            reserved_cpu_milli: 0,
            reserved_memory_mib: 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintView {
    pub key: String,
    pub value: String,
    pub effect: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn times_are_the_same_for_the_same_seed_and_inside_their_range() {
        let roll = |seed| {
            let mut dice = Dice::new(seed, Speed::Times(1.0));
            (0..100).map(|_| dice.seconds(30, 40)).collect::<Vec<_>>()
        };
        assert_eq!(roll(7), roll(7));
        assert_ne!(roll(7), roll(8));
        assert!(roll(7).iter().all(|ms| (30_000..=40_000).contains(ms)));
        assert_eq!(Dice::new(7, Speed::Instant).seconds(30, 40), 0);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_change_that_cannot_be_kept_is_not_answered_as_done() {
        let folder = tempfile::tempdir().unwrap();
        let state = Some(folder.path().join("clouds.jsonl"));
        let sandbox = crate::Sandbox::start(Config { state, ..Config::default() }).await.unwrap();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        sandbox.world.lock().log.as_mut().unwrap().write_to(full);
        let (http, url) =
            (reqwest::Client::builder().no_proxy().build().unwrap(), sandbox.url(crate::civo::CLOUD.name));
        let read = http.get(format!("{url}/v2/regions")).send().await.unwrap();
        assert_eq!(read.status(), 200, "nothing to keep, nothing to fear");
        let body = json!({"label": "shop", "region": "FRA1"});
        let answer = http.post(format!("{url}/v2/networks")).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 500);
        let text = answer.text().await.unwrap();
        assert!(text.contains("No space left on device"), "{text}");
        let later = http.get(format!("{url}/v2/regions")).send().await.unwrap();
        assert_eq!(later.status(), 500, "from then on memory and file disagree");
        sandbox.stop().await;
    }
}
