//! The scheduler. Every step is drawn from the seed.

use crate::Seen;
use crate::server::{Server, id};
use crate::worker::{Answer, Request, Worker};
use crate::world::{Sent, SharedWorld, World};
use berth_store::{ListQuery, TaskQuery};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

const WORKERS: usize = 2;
const RESOURCES: usize = 2;
/// Steps with faults, at most; then as many without as it takes.
const STEPS_MAX: usize = 30;
const CALM_STEPS_MAX: usize = 400;
/// Asked so rarely when nothing points to an answer: most of the time would go into asking.
const IDLE_ASKS: usize = 8;

struct Slot {
    future: Pin<Box<dyn Future<Output = ()>>>,
    /// Not polled before this step.
    frozen_until: usize,
}

pub struct Driver {
    pub server: Server,
    world: SharedWorld,
    workers: Vec<Slot>,
    /// What should be in the end: the version that was applied last, and its generation.
    declared: BTreeMap<usize, i64>,
    versions: i64,
    step: usize,
    /// Something may be due, or queued.
    due: bool,
    queued: bool,
    fenced: u64,
    crashes: u64,
    expired: u64,
    restarts: u64,
    doubled: u64,
    batched: u64,
}

impl Driver {
    pub fn new(seed: u64, server: Server) -> Self {
        let world: SharedWorld = Rc::new(RefCell::new(World::new(seed)));
        let workers = (0..WORKERS).map(|number| slot(&world, number, 0)).collect();
        Self {
            server,
            world,
            workers,
            declared: BTreeMap::new(),
            versions: 0,
            step: 0,
            due: true,
            queued: false,
            fenced: 0,
            crashes: 0,
            expired: 0,
            restarts: 0,
            doubled: 0,
            batched: 0,
        }
    }

    pub fn trace(&self) -> Vec<String> {
        self.world.borrow().trace.clone()
    }

    pub fn count(&self, seen: &Seen) {
        let creates = self.world.borrow().cloud.creates.values().map(|count| u64::from(*count)).sum();
        for (number, more) in [
            (&seen.fenced, self.fenced),
            (&seen.crashes, self.crashes),
            (&seen.expired, self.expired),
            (&seen.restarts, self.restarts),
            (&seen.doubled, self.doubled),
            (&seen.batched, self.batched),
            (&seen.creates, creates),
        ] {
            number.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn below(&self, limit: usize) -> usize {
        self.world.borrow_mut().rng.below(limit)
    }

    fn note(&self, text: impl Into<String>) {
        let mut world = self.world.borrow_mut();
        let line = format!("{} {}", world.now.as_second(), text.into());
        world.trace.push(line);
    }

    fn check(&self) -> Result<(), String> {
        match &self.world.borrow().broken {
            Some(rule) => Err(format!("{rule}\n{}", self.world.borrow().trace.join("\n"))),
            None => Ok(()),
        }
    }

    pub async fn run(&mut self) -> Result<(), String> {
        for number in 0..RESOURCES {
            self.apply(number).await;
        }
        let steps = STEPS_MAX / 2 + self.below(STEPS_MAX / 2);
        while self.step < steps {
            self.step += 1;
            self.disturb().await;
            self.go_on(true).await;
            self.check()?;
        }
        self.world.borrow_mut().calm = true;
        self.note("calm");
        for slot in &mut self.workers {
            slot.frozen_until = 0;
        }
        for _ in 0..CALM_STEPS_MAX {
            self.step += 1;
            self.go_on(false).await;
            self.check()?;
            if self.is_quiet() && self.is_over().await {
                return self.end().await.map_err(|rule| format!("{rule}\n{}", self.trace().join("\n")));
            }
        }
        Err(format!("it does not come to rest\n{}", self.trace().join("\n")))
    }

    async fn apply(&mut self, number: usize) {
        self.versions += 1;
        let now = self.world.borrow().now;
        // The second refers to the first, in half of the schedules.
        let parent = (number == 1 && self.versions % 2 == 0 && self.declared.contains_key(&0)).then_some(0);
        let generation = self.server.apply(number, self.versions, parent, now).await;
        self.note(format!("apply {number} generation {generation}"));
        self.declared.insert(number, generation);
        self.due = true;
    }

    async fn disturb(&mut self) {
        let number = self.below(RESOURCES);
        match self.below(40) {
            0 => self.apply(number).await,
            1 => {
                let now = self.world.borrow().now;
                if self.declared.contains_key(&number) && self.server.delete(number, now).await {
                    self.note(format!("delete {number}"));
                    self.declared.remove(&number);
                    self.due = true;
                }
            }
            2 | 3 => {
                let worker = self.below(WORKERS);
                self.note(format!("crash {worker}"));
                self.crashes += 1;
                self.workers[worker] = slot(&self.world, worker, self.step);
                // What it sent may still be on its way, or not.
                if self.below(2) == 0 {
                    self.world.borrow_mut().requests.retain(|sent| sent.worker != worker);
                }
            }
            4 | 5 => {
                let worker = self.below(WORKERS);
                let steps = 3 + self.below(12);
                self.note(format!("freeze {worker} for {steps} steps"));
                self.workers[worker].frozen_until = self.step + steps;
            }
            6 => {
                let seconds = 20 + self.below(30) as u64;
                self.world.borrow_mut().pass(seconds);
                self.note(format!("{seconds} seconds pass"));
                self.due = true;
            }
            7 if self.below(3) == 0 => {
                self.note("restart");
                self.restarts += 1;
                self.server.restart().await;
                // Answers that were not sent are lost; their effects stay.
                let lost: Vec<u64> = self.world.borrow().answers.iter().map(|(number, _)| *number).collect();
                let mut world = self.world.borrow_mut();
                world.answers = lost.into_iter().map(|number| (number, Answer::Lost)).collect();
            }
            _ => {}
        }
    }

    /// A little of everything: the clock, the controller, the network, the workers.
    async fn go_on(&mut self, faults: bool) {
        let idle = self.is_quiet();
        let seconds = if idle && !faults { 10 } else { self.below(3) as u64 };
        self.world.borrow_mut().pass(seconds);
        if self.below(IDLE_ASKS) == 0 || (self.due && (!faults || self.below(2) == 0)) || (idle && !faults) {
            let (expired, made) = self.server.tick(&self.world).await;
            self.expired += expired;
            self.queued |= expired > 0 || made;
            self.due = false;
        }
        self.deliver(faults).await;
        self.answers(faults);
        for (number, slot) in self.workers.iter_mut().enumerate() {
            let lazy = faults && self.world.borrow_mut().rng.once_in(4);
            if slot.frozen_until <= self.step && !lazy {
                let mut context = Context::from_waker(Waker::noop());
                assert!(slot.future.as_mut().poll(&mut context).is_pending(), "worker {number} never ends");
            }
        }
    }

    /// Some requests reach the server, some of them twice, some together.
    async fn deliver(&mut self, faults: bool) {
        let mut now = Vec::new();
        let waiting = std::mem::take(&mut self.world.borrow_mut().requests);
        for sent in waiting {
            let asks = matches!(sent.request, Request::Lease { .. });
            // In the calm, nobody waits for an answer until the lease in it has ended.
            let in_vain = faults && asks && !self.queued && self.below(IDLE_ASKS) != 0;
            let late = in_vain || (faults && self.below(4) == 0);
            if late { self.world.borrow_mut().requests.push(sent) } else { now.push(sent) }
        }
        if now.len() > 1 && self.below(2) == 0 {
            now.reverse();
        }
        let twice = faults && self.below(8) == 0;
        // What is asked at the same time shares a transaction. Leases look before they ask, which takes as long as it takes:
        // in which order they come would not be the seed's choice.
        let leases = |sent: &Sent| matches!(sent.request, Request::Lease { .. });
        let (apart, together): (Vec<Sent>, Vec<Sent>) = now.into_iter().partition(leases);
        let mut said = Vec::new();
        for sent in apart {
            let mut answers = self.ask(&[&sent], false).await;
            if twice {
                answers.extend(self.ask(&[&sent], false).await);
            }
            said.push((sent, answers));
        }
        let at_once = self.below(2) == 0;
        if at_once {
            let mut answers = self.ask(&together.iter().collect::<Vec<_>>(), twice).await;
            self.batched += u64::from(answers.len() > 1);
            let mut again = answers.split_off(together.len()).into_iter();
            for (sent, first) in together.into_iter().zip(answers) {
                said.push((sent, std::iter::once(first).chain(again.next()).collect()));
            }
        } else {
            for sent in together {
                let answers = self.ask(&[&sent], twice).await;
                said.push((sent, answers));
            }
        }
        for (sent, answers) in said {
            let mut answers = answers.into_iter();
            let Some(answer) = answers.next() else { continue };
            self.note(format!("worker {} {} -> {}", sent.worker, short(&sent.request), short(&answer)));
            self.fenced += u64::from(matches!(answer, Answer::Fenced));
            match (&sent.request, &answer) {
                (Request::Lease { .. }, Answer::Leased(None)) => self.queued = false,
                (Request::Report { .. }, _) => self.due = true,
                (Request::Release { .. }, _) => self.queued = true,
                _ => {}
            }
            for again in answers {
                self.note(format!("worker {} again -> {}", sent.worker, short(&again)));
                self.doubled += 1;
            }
            let answer = if faults && self.below(10) == 0 { Answer::Lost } else { answer };
            self.world.borrow_mut().answers.push((sent.number, answer));
        }
    }

    /// All at once; and then, or at once with them, all again.
    async fn ask(&self, sent: &[&Sent], twice: bool) -> Vec<Answer> {
        let mut open = Vec::with_capacity(sent.len());
        for one in sent {
            open.push(self.server.is_open(&one.request).await);
        }
        let first = sent.iter().zip(open).map(|(one, open)| (one.request.clone(), open));
        let again = sent.iter().filter(|_| twice).map(|one| (one.request.clone(), false));
        let asked = first.chain(again).map(|(request, open)| self.server.answer(request, &self.world, open));
        futures::future::join_all(asked).await
    }

    fn answers(&mut self, faults: bool) {
        let waiting = std::mem::take(&mut self.world.borrow_mut().answers);
        for (number, answer) in waiting {
            let late = faults && self.below(4) == 0;
            let mut world = self.world.borrow_mut();
            if late {
                world.answers.push((number, answer));
            } else {
                world.arrived.insert(number, answer);
            }
        }
    }

    /// Nobody does anything but ask for work.
    fn is_quiet(&self) -> bool {
        let world = self.world.borrow();
        let asks = |sent: &crate::world::Sent| matches!(sent.request, Request::Lease { .. });
        world.answers.is_empty() && world.requests.len() == WORKERS && world.requests.iter().all(asks) && !self.queued
    }

    async fn is_over(&self) -> bool {
        let open = TaskQuery { open: true, limit: 10, ..TaskQuery::default() };
        if !self.server.control.tasks(&open).await.expect("tasks").is_empty() {
            return false;
        }
        let now = self.world.borrow().now + jiff::SignedDuration::from_secs(3600);
        self.server.control.due(now, 10).await.expect("due").is_empty()
    }

    /// Everything that is declared is there once, as it was declared last, and nothing else is.
    async fn end(&self) -> Result<(), String> {
        let list = ListQuery { limit: 100, ..ListQuery::default() };
        let stored = self.server.control.list(&list).await.expect("a list").resources;
        if stored.len() != self.declared.len() {
            let all = TaskQuery { limit: 20, ..TaskQuery::default() };
            let tasks = self.server.control.tasks(&all).await.expect("tasks");
            return Err(format!("{} are declared, stored are {stored:#?} with {tasks:#?}", self.declared.len()));
        }
        let loads = self.server.control.loads().await.expect("loads");
        if let Some(load) = loads.iter().find(|load| load.queued + load.running != 0) {
            return Err(format!("the lanes do not add up: {load:?}"));
        }
        let world = self.world.borrow();
        for (number, generation) in &self.declared {
            let name = id(*number);
            let one = stored.iter().find(|one| one.resource.id == name).ok_or(format!("{name} is lost"))?;
            if !one.resource.settled() || one.resource.generation != *generation {
                return Err(format!("{name} did not reach generation {generation}: {:?}", one.resource.status));
            }
            let objects: Vec<_> = world.cloud.objects.values().filter(|object| object.resource == name).collect();
            if objects.len() != 1 {
                return Err(format!("the cloud has {} objects of {name}", objects.len()));
            }
            if objects[0].generation != *generation {
                return Err(format!("the object of {name} has generation {}", objects[0].generation));
            }
        }
        if world.cloud.objects.len() != self.declared.len() {
            return Err(format!("the cloud has {} objects", world.cloud.objects.len()));
        }
        if let Some(((name, token), count)) = world.cloud.creates.iter().find(|(_, count)| **count > 1) {
            return Err(format!("{name} was created {count} times with {token}"));
        }
        Ok(())
    }
}

/// Without what differs from run to run: ids of tasks are random in part.
fn short(what: &impl std::fmt::Debug) -> String {
    let text = format!("{what:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

fn slot(world: &SharedWorld, number: usize, life: usize) -> Slot {
    let worker = Worker { world: world.clone(), name: format!("w{number}-{life}"), number };
    Slot { future: Box::pin(worker.run()), frozen_until: 0 }
}
