//! What the simulated parts share: the clock, the network's messages, the cloud, and what is known of leases from the
//! outside.

use crate::worker::{Answer, Request};
use berth_model::ResourceId;
use berth_store::{Held, TaskId};
use jiff::{SignedDuration, Timestamp};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

pub type SharedWorld = Rc<RefCell<World>>;

/// Small, fast, and the same everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

#[derive(Clone, Debug)]
pub struct Object {
    pub resource: ResourceId,
    pub token: String,
    pub generation: i64,
}

/// Knows objects by their ids, and counts creates by resource and token.
#[derive(Default)]
pub struct Cloud {
    pub objects: BTreeMap<u64, Object>,
    pub creates: HashMap<(ResourceId, String), u32>,
    last: u64,
}

/// A lease as seen from outside the store.
#[derive(Clone, Debug)]
pub struct Lease {
    pub held: Held,
    pub until: Timestamp,
    pub over: bool,
}

pub struct Sent {
    pub number: u64,
    pub worker: usize,
    pub request: Request,
}

pub struct World {
    pub now: Timestamp,
    pub rng: Rng,
    pub cloud: Cloud,
    /// On their way to the server.
    pub requests: Vec<Sent>,
    /// On their way back.
    pub answers: Vec<(u64, Answer)>,
    /// Arrived, and not yet taken.
    pub arrived: HashMap<u64, Answer>,
    /// The newest lease of each resource.
    pub leases: HashMap<ResourceId, Lease>,
    pub tasks: HashMap<TaskId, ResourceId>,
    pub broken: Option<String>,
    pub trace: Vec<String>,
    /// No more faults.
    pub calm: bool,
    next: u64,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            now: Timestamp::from_second(1_800_000_000).expect("a time"),
            rng: Rng::new(seed),
            cloud: Cloud::default(),
            requests: Vec::new(),
            answers: Vec::new(),
            arrived: HashMap::new(),
            leases: HashMap::new(),
            tasks: HashMap::new(),
            broken: None,
            trace: Vec::new(),
            calm: false,
            next: 0,
        }
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn pass(&mut self, seconds: u64) {
        self.now += SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(0));
    }

    pub fn breaks(&mut self, rule: String) {
        self.trace.push(format!("BROKEN {rule}"));
        self.broken.get_or_insert(rule);
    }

    /// A task was leased. The one before must be over or past its time.
    pub fn leased(&mut self, resource: &ResourceId, held: &Held, until: Timestamp) {
        let now = self.now;
        if let Some(before) = self.leases.get(resource)
            && !before.over
            && before.until > now
        {
            let rule = format!("{resource} was leased under {} while {} holds", held.fence, before.held.fence);
            self.breaks(rule);
        }
        if self.leases.get(resource).is_some_and(|before| before.held.fence >= held.fence) {
            self.breaks(format!("the fence of {resource} did not grow"));
        }
        self.tasks.insert(held.task.clone(), resource.clone());
        self.leases.insert(resource.clone(), Lease { held: held.clone(), until, over: false });
    }

    pub fn is_current(&self, held: &Held) -> bool {
        let lease = self.tasks.get(&held.task).and_then(|resource| self.leases.get(resource));
        lease.is_some_and(|lease| lease.held == *held && !lease.over && lease.until > self.now)
    }

    /// The server took a write under this number.
    pub fn accepted(&mut self, held: &Held, what: &str) {
        if !self.is_current(held) {
            self.breaks(format!("a stale {what} under {} was accepted", held.fence));
        }
    }

    pub fn over(&mut self, held: &Held) {
        if let Some(resource) = self.tasks.get(&held.task)
            && let Some(lease) = self.leases.get_mut(resource)
            && lease.held == *held
        {
            lease.over = true;
        }
    }

    pub fn beat(&mut self, held: &Held, until: Timestamp) {
        if let Some(resource) = self.tasks.get(&held.task)
            && let Some(lease) = self.leases.get_mut(resource)
            && lease.held == *held
        {
            lease.until = until;
        }
    }
}

/// Calls to the cloud. Each checks the rule that a worker whose lease ended makes no more of them.
pub fn cloud<T>(world: &SharedWorld, held: &Held, call: impl FnOnce(&mut Cloud) -> T) -> T {
    let mut world = world.borrow_mut();
    if !world.is_current(held) {
        world.breaks(format!("a call to the cloud after the lease under {} ended", held.fence));
    }
    call(&mut world.cloud)
}

impl Cloud {
    pub fn find(&self, resource: &ResourceId, token: &str) -> Option<u64> {
        let same = |object: &Object| object.token == token && object.resource == *resource;
        self.objects.iter().find(|(_, object)| same(object)).map(|(id, _)| *id)
    }

    /// Makes one each time: this cloud does not help anyone who asks twice.
    pub fn create(&mut self, resource: &ResourceId, token: &str, generation: i64) -> u64 {
        self.last += 1;
        *self.creates.entry((resource.clone(), token.to_owned())).or_default() += 1;
        let object = Object { resource: resource.clone(), token: token.to_owned(), generation };
        self.objects.insert(self.last, object);
        self.last
    }

    pub fn update(&mut self, id: u64, generation: i64) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.generation = generation;
        }
    }

    pub fn delete(&mut self, id: u64) {
        self.objects.remove(&id);
    }
}
