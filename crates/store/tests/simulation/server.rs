//! The server: the real store, and as much of a controller and of a task manager as leases need.

use crate::desired::plain_desired;
use crate::worker::{Answer, LEASE, Request, Work};
use crate::world::SharedWorld;
use berth_engine::ResourceState;
use berth_engine::lifecycle::{Facts, rules};
use berth_engine::unit::Op;
use berth_model::ResourceId;
use berth_store::*;
use jiff::Timestamp;
use secrecy::SecretBox;
use serde_json::json;
use sqlx::{ConnectOptions, Connection, Executor};
use std::sync::Arc;
use std::time::Duration;

const TABLES: [&str; 11] = [
    "units",
    "links",
    "revisions",
    "resources",
    "journal",
    "events",
    "tasks",
    "lanes",
    "records",
    "task_log",
    "workers",
];

pub struct Server {
    pub control: Control,
    store: Store,
    /// To empty the tables between schedules.
    raw: sqlx::SqliteConnection,
    _folder: tempfile::TempDir,
    /// It forgets to look at the fence.
    mutant: bool,
}

pub fn id(number: usize) -> ResourceId {
    ResourceId { kind: "CivoVpc".into(), name: format!("net-{number}"), org: "acme".into(), env: "sim".into() }
}

impl Server {
    pub async fn start(mutant: bool) -> Self {
        // In memory where there is such a place: nobody pulls a plug here.
        let memory = std::path::Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        }
        .expect("a folder");
        let path = folder.path().join("state.db");
        let key = KeySource::Given(Arc::new(SecretBox::new(Box::new([1; 32]))));
        let store = Store::open(Options { key, ..Options::at(&path) }).await.expect("a state");
        let control = Control::open(store.clone()).await.expect("a server");
        let raw = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).disable_statement_logging();
        let raw = raw.connect().await.expect("the file opens");
        Self { control, store, raw, _folder: folder, mutant }
    }

    pub async fn clean(&mut self) {
        let mut text = String::from("BEGIN IMMEDIATE;");
        for table in TABLES {
            text.push_str(&format!("DELETE FROM {table};"));
        }
        text.push_str("COMMIT");
        self.raw.execute(sqlx::AssertSqlSafe(text)).await.expect("empty tables");
    }

    pub async fn stop(self) {
        self.control.close().await;
        self.raw.close().await.expect("closed");
        self.store.close().await;
    }

    /// What it had in memory is gone.
    pub async fn restart(&mut self) {
        self.control.close().await;
        self.control = Control::open(self.store.clone()).await.expect("a server starts anew");
    }

    pub async fn apply(&self, number: usize, version: i64, parent: Option<usize>, now: Timestamp) -> i64 {
        let id = id(number);
        let manifest = json!({ "kind": id.kind, "metadata": {"name": id.name}, "spec": {"version": version} });
        let resource = NewResource {
            id,
            api_version: "sim/v1".into(),
            manifest,
            secrets: Vec::new(),
            source: ManifestSource::default(),
        };
        let parents = parent.map(self::id).into_iter().collect();
        let desired = Desired { parents, ..plain_desired(resource) };
        let apply = Apply {
            resources: vec![desired],
            delete: Vec::new(),
            actor: Actor::new("sim"),
            audit: AuditNote::default(),
            retry: true,
            trace: String::new(),
        };
        self.control.apply(apply, now).await.expect("applied")[0].generation
    }

    /// Whether it was taken: one that others refer to is not.
    pub async fn delete(&self, number: usize, now: Timestamp) -> bool {
        self.control.delete(vec![id(number)], &Actor::new("sim"), AuditNote::default(), now).await.is_ok()
    }

    /// One turn of a controller: how many leases ended, and whether tasks were made.
    pub async fn tick(&self, world: &SharedWorld) -> (u64, bool) {
        let now = world.borrow().now;
        let expired = self.control.expire(now).await.expect("expired");
        let mut decisions = Vec::new();
        for due in self.control.due(now, 100).await.expect("due") {
            let wait = |message: &str| Decided::Settle {
                state: if due.resource.deleting { ResourceState::Deleting } else { ResourceState::Pending },
                message: message.into(),
            };
            let task = |op| {
                Decided::Enqueue(NewTask {
                    op,
                    resource: Some(due.resource.id.clone()),
                    resources: Vec::new(),
                    org: "acme".into(),
                    service: "network".into(),
                    account: "main".into(),
                    account_limit: 0,
                    priority: 0,
                    run_after: now,
                    generation: due.resource.generation,
                    refresh: false,
                    payload: None,
                    trace: String::new(),
                })
            };
            let what = if due.task.is_some() {
                Decided::Rest
            } else if due.resource.deleting {
                match self.control.children(&due.resource.id).await.expect("children").is_empty() {
                    true => task(TaskOp::Delete),
                    false => wait("in use"),
                }
            } else if due.resource.settled() {
                Decided::Rest
            } else if self.parents_ready(&due.resource.id).await {
                task(TaskOp::Apply)
            } else {
                wait("waits for its parent")
            };
            let (generation, due_mark) = (due.resource.generation, due.meta.due_mark);
            decisions.push(Decision { id: due.resource.id, generation, due_mark, what });
        }
        let made = decisions.iter().any(|decision| matches!(decision.what, Decided::Enqueue(_)));
        self.control.decide(decisions, now).await.expect("decided");
        self.check_rows(world).await;
        (expired, made)
    }

    /// The rules of transitions, of the rows as they are stored. Nobody cancels anything here, so nothing rests that is not
    /// as declared, but for what waits for another.
    async fn check_rows(&self, world: &SharedWorld) {
        let open = TaskQuery { open: true, limit: 10, ..TaskQuery::default() };
        let open = self.control.tasks(&open).await.expect("tasks");
        let list = ListQuery { limit: 100, ..ListQuery::default() };
        for Listed { resource, meta } in self.control.list(&list).await.expect("a list").resources {
            let micros = |at: Option<Timestamp>| at.map(Timestamp::as_microsecond);
            let facts = Facts {
                generation: resource.generation,
                observed_generation: resource.status.observed_generation,
                deleting: resource.deleting,
                has_objects: true,
                state: resource.status.state,
                message: resource.status.message.clone(),
                due_at: micros(meta.due_at),
                due_mark: meta.due_mark,
                attempts: meta.attempts.into(),
                drift_at: micros(meta.drift_at),
                ..Facts::default()
            };
            let has_task = open.iter().any(|task| task.resource.as_ref() == Some(&resource.id));
            if let Some(rule) = rules::broken_row(&facts) {
                world.borrow_mut().breaks(format!("{}: {rule}: {facts:?}", resource.id));
            }
            if rules::is_lost(&facts, has_task) && !self.is_woken_later(&resource, &open).await {
                world.borrow_mut().breaks(format!("nobody looks at {} again: {facts:?}", resource.id));
            }
        }
    }

    /// This controller gives those that wait for another no time: they are woken, or the simulation does not come to rest.
    async fn is_woken_later(&self, resource: &StoredResource, open: &[Task]) -> bool {
        if resource.deleting {
            return !self.control.children(&resource.id).await.expect("children").is_empty();
        }
        // The end of a parent's task wakes its children.
        let parents = self.control.parents(&resource.id).await.expect("parents");
        let is_open = |id: &ResourceId| open.iter().any(|task| task.resource.as_ref() == Some(id));
        parents.iter().any(is_open) || !self.parents_ready(&resource.id).await
    }

    async fn parents_ready(&self, id: &ResourceId) -> bool {
        for parent in self.control.parents(id).await.expect("parents") {
            let stored = self.store.resource(&parent).await.expect("a read");
            if !stored.is_some_and(|stored| stored.settled() && !stored.deleting) {
                return false;
            }
        }
        true
    }

    /// The mutant takes whatever number the task has now for the one that was given.
    async fn held(&self, held: &Held) -> Held {
        if !self.mutant {
            return held.clone();
        }
        let task = self.control.task(&held.task).await.expect("a read");
        Held { fence: task.map_or(held.fence, |task| task.fence), ..held.clone() }
    }

    /// What is known of a report's task before it is told: said again, it is over already.
    pub async fn is_open(&self, request: &Request) -> bool {
        let Request::Report { held, .. } = request else { return false };
        self.control.task(&held.task).await.expect("a read").is_some_and(|task| task.state.is_open())
    }

    pub async fn answer(&self, request: Request, world: &SharedWorld, is_open: bool) -> Answer {
        let now = world.borrow().now;
        match request {
            Request::Lease { worker } => self.lease(worker, world).await,
            Request::Beat { worker, held } => {
                let lease = Duration::from_secs(LEASE.as_secs().unsigned_abs());
                let beat = self.control.heartbeat(&worker, vec![held.clone()], lease, now).await.expect("a beat");
                if beat.kept.contains(&held) {
                    let mut world = world.borrow_mut();
                    world.accepted(&held, "heartbeat");
                    world.beat(&held, now + LEASE);
                }
                Answer::Beat { kept: beat.kept.contains(&held), cancel: beat.cancel.contains(&held) }
            }
            Request::Record { held, key, write } => {
                let under = self.held(&held).await;
                match self.control.record(&under, &key, *write, now).await {
                    Ok(entry) => {
                        world.borrow_mut().accepted(&held, "record");
                        Answer::Recorded(entry)
                    }
                    Err(ControlError::Fenced) => Answer::Fenced,
                    // Of a journal that someone else settled meanwhile: as the engine, the worker gives up.
                    Err(_) if !world.borrow().is_current(&held) || self.mutant => Answer::Fenced,
                    Err(error) => {
                        world.borrow_mut().breaks(format!("a record failed: {error}"));
                        Answer::Fenced
                    }
                }
            }
            Request::Report { held, ending } => {
                let under = self.held(&held).await;
                match self.control.report(&under, *ending, now).await {
                    // Said again is fine, and has no effect.
                    Ok(()) => {
                        let mut world = world.borrow_mut();
                        if is_open {
                            world.accepted(&held, "report");
                        }
                        world.over(&held);
                        Answer::Done
                    }
                    Err(_) => Answer::Fenced,
                }
            }
            Request::Release { held } => match self.control.release(&held, "sim", now).await {
                Ok(()) => {
                    world.borrow_mut().over(&held);
                    Answer::Done
                }
                Err(_) => Answer::Fenced,
            },
        }
    }

    async fn lease(&self, worker: String, world: &SharedWorld) -> Answer {
        let now = world.borrow().now;
        let ask = LeaseAsk {
            worker,
            org: String::new(),
            services: Vec::new(),
            changes: 1,
            checks: 0,
            lease: Duration::from_secs(LEASE.as_secs().unsigned_abs()),
            version: String::new(),
            capacity: 1,
            draining: false,
        };
        let Some(leased) = self.control.lease(ask, now).await.expect("a lease").pop() else {
            return Answer::Leased(None);
        };
        let resource = leased.task.resource.clone().expect("a task of a resource's");
        world.borrow_mut().leased(&resource, &leased.held, now + LEASE);
        let Some(stored) = self.store.resource(&resource).await.expect("a read") else {
            return Answer::Leased(None);
        };
        let units = self.store.units_of(&resource).await.expect("units");
        // The gate lets everything pass here; a worker that lost its lease meanwhile finds out by itself.
        let ops = vec![Op::Create, Op::Update, Op::Delete];
        let steps = vec![PlanStep { key: "network".into(), unit_type: "sim.network".into(), ops }];
        let plan = SubmittedPlan { text: "{}".into(), digest: "sim".into(), steps, warnings: Vec::new() };
        self.control.submit_plan(&leased.held, plan, PlanDecision::Proceed, now).await.expect("accepted");
        assert_eq!(stored.generation, leased.task.generation);
        let work = Work { held: leased.held, op: leased.task.op, resource, generation: leased.task.generation, units };
        Answer::Leased(Some(Box::new(work)))
    }
}
