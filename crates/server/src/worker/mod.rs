//! Workers: they lease tasks, carry them out with the engine, and report. They keep no database, and dial out only.

pub mod api;
pub mod credentials;
pub mod lease;
mod recorder;
pub mod remote;
pub mod scratch;
mod task;
mod task_log;

use crate::api::ServerState;
use crate::context::{Context, Sealed};
use crate::fault::{Code, Fault};
use crate::pb;
use crate::tasks::InProcess;
use crate::telemetry;
use api::TaskApi;
use berth_clouds::accounts::Simulated;
use berth_engine::Options;
use credentials::WorkerCredentials;
use lease::{BothClocks, Lease};
use scratch::Scratch;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use task::{Job, JobEnd, StopSignal, ended};
use task_log::TaskLog;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// What workers and servers say to each other. It grows when either must know that the other does what it did not do before.
pub const PROTOCOL: u32 = 1;
/// What both still understand; a party that speaks an older one, or had no number, is refused.
pub const OLDEST_PROTOCOL: u32 = 1;

/// How long a lease request waits for work.
const POLL: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often leases are looked at; the server is asked at a third of a lease.
const LOOK: Duration = Duration::from_millis(250);
/// Between heartbeats that fail.
const BEAT_AGAIN: Duration = Duration::from_millis(500);
/// How long interrupted tasks have to end their call in flight before they are dropped.
const INTERRUPTED_WITHIN: Duration = Duration::from_secs(75);

/// Drift checks at once, where nothing else is said.
pub const CHECKS: u32 = 2;
/// How long a server that stops lets its own worker's tasks end.
const INSIDE_DRAIN: Duration = Duration::from_secs(5);

/// The services that there are.
pub fn services() -> std::collections::BTreeSet<&'static str> {
    berth_model::registry().kinds().map(|kind| kind.service.as_str()).filter(|service| !service.is_empty()).collect()
}

#[derive(Clone)]
pub struct WorkerConfig {
    /// Unique among those that run.
    pub name: String,
    /// Empty: all.
    pub services: Vec<String>,
    /// Tasks at once that change something or that someone waits for.
    pub capacity: u32,
    /// Drift checks at once, in places of their own.
    pub checks: u32,
    /// Works on the simulated clouds of its server, and for no other server.
    pub simulated: bool,
    /// What these were told to accept, where they were told anything.
    pub sandbox_token: Option<String>,
    pub credentials: WorkerCredentials,
    /// Where the worker gets a folder, and each task one inside.
    pub scratch: PathBuf,
    /// How long tasks have to end when the worker is asked to stop.
    pub drain: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("the folder {path} cannot be used: {cause}")]
    Scratch { path: String, cause: std::io::Error },
    /// The server will not have this worker, and asking again will not help.
    #[error("{0}")]
    Unwelcome(Fault),
}

/// Works until it is asked to stop, then lets tasks end. Fails only where going on would be of no use.
pub async fn run(config: WorkerConfig, api: Arc<dyn TaskApi>, stop: CancellationToken) -> Result<(), WorkerError> {
    let scratch = Scratch::open(&config.scratch, &config.name)
        .map_err(|cause| WorkerError::Scratch { path: config.scratch.display().to_string(), cause })?;
    let identity = age::x25519::Identity::generate();
    let worker = Arc::new(Worker {
        recipient: identity.to_public().to_string(),
        identity,
        changes: Semaphore::new(config.capacity as usize),
        checks: Semaphore::new(config.checks as usize),
        held: Mutex::new(HashMap::new()),
        news: Notify::new(),
        tasks: TaskTracker::new(),
        scratch,
        config,
        api,
    });
    // Before the first task could come: a server that does not fit has none to give.
    tokio::select! {
        joined = worker.join() => joined?,
        () = stop.cancelled() => return Ok(()),
    }
    let beats = tokio::spawn(worker.clone().beat());
    let (for_changes, for_checks) = (worker.clone().ask(true, stop.clone()), worker.clone().ask(false, stop.clone()));
    let asked = tokio::try_join!(for_changes, for_checks);
    worker.drain().await;
    beats.abort();
    worker.leave().await;
    asked.map(|_| ())
}

/// The worker inside a server, unless it was told to have none.
pub fn in_process(server: &Arc<ServerState>, stop: CancellationToken) -> Option<JoinHandle<()>> {
    let here = server.config.worker.clone()?;
    let config = WorkerConfig {
        name: format!("inside-{}", uuid::Uuid::now_v7().simple()),
        services: Vec::new(),
        capacity: here.capacity,
        checks: CHECKS,
        simulated: server.config.simulated.is_some(),
        sandbox_token: server.config.simulated.as_ref().and_then(|clouds| clouds.token.clone()),
        credentials: WorkerCredentials {
            allow_env: here.allow_env.into_iter().collect(),
            allow_files: here.allow_file,
            own_for: here.own_credentials_for.into_iter().collect(),
            ..WorkerCredentials::default()
        },
        scratch: server.config.folder.join("worker"),
        drain: INSIDE_DRAIN,
    };
    let api = Arc::new(InProcess(server.clone()));
    Some(tokio::spawn(async move {
        if let Err(error) = run(config, api, stop).await {
            tracing::error!(%error, "the worker inside the server has ended");
        }
    }))
}

/// Between questions that the server does not answer.
struct Pause {
    time: Duration,
    told: bool,
}

impl Default for Pause {
    fn default() -> Self {
        Self { time: FIRST_PAUSE, told: false }
    }
}

impl Pause {
    /// Fails where asking again will not help.
    async fn after(&mut self, fault: Fault) -> Result<(), WorkerError> {
        if matches!(fault.code, Code::Unauthenticated | Code::Denied | Code::InvalidArgument) {
            return Err(WorkerError::Unwelcome(fault));
        }
        if !self.told {
            tracing::warn!(%fault, "no answer from the server; asking again every few seconds");
            self.told = true;
        }
        tokio::time::sleep(self.time.mul_f64(rand::random_range(0.5..1.0))).await;
        self.time = (self.time * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// The server answers. Whether it was told that it did not.
    fn end(&mut self) -> bool {
        std::mem::take(self).told
    }
}

struct Running {
    lease: Arc<Lease>,
    stopper: Arc<StopSignal>,
    time: Duration,
}

struct Worker {
    config: WorkerConfig,
    api: Arc<dyn TaskApi>,
    identity: age::x25519::Identity,
    recipient: String,
    changes: Semaphore,
    checks: Semaphore,
    held: Mutex<HashMap<String, Running>>,
    /// A task was taken.
    news: Notify,
    tasks: TaskTracker,
    scratch: Scratch,
}

impl Worker {
    fn held(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn question(&self, changes: usize, checks: usize, wait: Duration, draining: bool) -> pb::LeaseRequest {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        pb::LeaseRequest {
            worker: self.config.name.clone(),
            services: self.config.services.clone(),
            changes: count(changes),
            checks: count(checks),
            recipient: self.recipient.clone(),
            wait_seconds: u32::try_from(wait.as_secs()).unwrap_or(0),
            version: env!("CARGO_PKG_VERSION").into(),
            capacity: self.config.capacity,
            draining,
            protocol: PROTOCOL,
            simulated: self.config.simulated,
            leaving: false,
        }
    }

    /// Asks for nothing, until the server answers: whether the two fit.
    async fn join(&self) -> Result<(), WorkerError> {
        let mut pause = Pause::default();
        loop {
            match self.api.lease(self.question(0, 0, Duration::ZERO, false)).await {
                Ok(answer) => return self.check(&answer).map_err(WorkerError::Unwelcome),
                Err(fault) => pause.after(fault).await?,
            }
        }
    }

    /// Whether tasks of the server that answered so may be taken. It may be another one than the last time.
    fn check(&self, answer: &pb::LeaseResponse) -> Result<(), Fault> {
        let unfit = |message: &str| Fault::new(Code::InvalidArgument, format!("{}: {message}", self.api.place()));
        if answer.protocol < OLDEST_PROTOCOL {
            let version = env!("CARGO_PKG_VERSION");
            return Err(unfit("the server is of an older version than this worker, which takes no tasks of it")
                .help(format!("upgrade the server to the worker's version, {version}, then start the worker again")));
        }
        match (answer.simulated.is_some(), self.config.simulated) {
            (true, false) => Err(unfit("the server works on simulated clouds, and this worker on real ones")
                .help("start the worker with --sandbox")),
            (false, true) => Err(unfit("the server works on real clouds, and this worker on simulated ones")
                .help("start the worker without --sandbox")),
            _ => Ok(()),
        }
    }

    /// What a worker that takes no tasks was given all the same.
    async fn give_back(&self, tasks: Vec<pb::LeasedTask>) {
        for held in tasks.into_iter().filter_map(|task| task.held) {
            let why = "the worker and the server do not fit together".into();
            if let Err(fault) = self.api.release(pb::ReleaseRequest { held: Some(held), why }).await {
                tracing::warn!(%fault, "a task could not be given back; its lease will end");
            }
        }
    }

    /// Asks for changes, or for checks, whenever there is a place for one.
    async fn ask(self: Arc<Self>, changes: bool, stop: CancellationToken) -> Result<(), WorkerError> {
        let places = if changes { &self.changes } else { &self.checks };
        let mut pause = Pause::default();
        loop {
            let free = tokio::select! {
                free = places.acquire() => free,
                () = stop.cancelled() => return Ok(()),
            };
            drop(free);
            let free = places.available_permits().max(1);
            let question = self.question(if changes { free } else { 0 }, if changes { 0 } else { free }, POLL, false);
            let asked = BothClocks::now();
            let answer = tokio::select! {
                answer = self.api.lease(question) => answer,
                () = stop.cancelled() => return Ok(()),
            };
            let fault = match answer {
                Ok(answer) => {
                    if pause.end() {
                        tracing::info!(server = %self.api.place(), "the server answers again");
                    }
                    if let Err(fault) = self.check(&answer) {
                        self.give_back(answer.tasks).await;
                        return Err(WorkerError::Unwelcome(fault));
                    }
                    let clouds =
                        answer.simulated.map(|at| Simulated::at(at.urls, self.config.sandbox_token.clone(), at.pace));
                    let began = asked.after(Duration::from_millis(answer.waited_ms.into()).min(asked.elapsed()));
                    for task in answer.tasks {
                        self.clone().begin(task, began, changes, clouds.clone());
                    }
                    continue;
                }
                Err(fault) => fault,
            };
            tokio::select! {
                waited = pause.after(fault) => waited?,
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    fn begin(self: Arc<Self>, task: pb::LeasedTask, asked: BothClocks, change: bool, clouds: Option<Simulated>) {
        let Some(held) = task.held.clone() else { return };
        let time = Duration::from_secs(task.lease_seconds.into());
        let lease = Arc::new(Lease::new(held.clone(), asked, time));
        let stopper = Arc::new(StopSignal::default());
        let running = Running { lease: lease.clone(), stopper: stopper.clone(), time };
        self.held().insert(held.task.clone(), running);
        // Taken before the next question is asked, so that it asks for no more than there is room for.
        let places = if change { &self.changes } else { &self.checks };
        if let Ok(place) = places.try_acquire() {
            place.forget();
        }
        self.news.notify_one();
        let worker = self.clone();
        self.tasks.spawn(async move {
            // A panic in one task must not cost its place, nor the others.
            let span = tracing::info_span!("task", task = %lease.held.task, op = task.op);
            telemetry::go_on(&span, &task.traceparent);
            let work = tokio::spawn(worker.clone().carry_out(task, lease.clone(), stopper, clouds).instrument(span));
            if let Err(error) = work.await {
                tracing::error!(%error, task = %lease.held.task, "a task broke off");
                _ = worker.api.release(release(&lease, "the worker's task broke off")).await;
            }
            worker.held().remove(&lease.held.task);
            if change { worker.changes.add_permits(1) } else { worker.checks.add_permits(1) }
        });
    }

    async fn carry_out(
        self: Arc<Self>,
        task: pb::LeasedTask,
        lease: Arc<Lease>,
        stopper: Arc<StopSignal>,
        clouds: Option<Simulated>,
    ) {
        let log = Arc::new(TaskLog::default());
        let streaming = tokio::spawn(log.clone().stream(self.api.clone(), lease.clone()));
        let job = Job {
            api: self.api.clone(),
            lease: lease.clone(),
            log: log.clone(),
            stopper: stopper.clone(),
            options: Options::default(),
        };
        let credentials = WorkerCredentials { simulated: clouds, ..self.config.credentials.clone() };
        let opened = Context::from_json(&task.context)
            .and_then(|context| Ok((context, Sealed::open(&task.credentials, &self.identity)?)));
        let folder = self.scratch.task(&lease.held.task);
        let end = match (opened, &folder) {
            (Ok((context, sealed)), Ok(_)) => {
                tracing::debug!(task = %lease.held.task, op = %context.op, "begun");
                job.run(context, sealed, &credentials).await
            }
            (Err(error), _) => ended("failed", error.to_string(), Vec::new()),
            (_, Err(error)) => ended("failed", format!("the worker has no folder for the task: {error}"), Vec::new()),
        };
        streaming.abort();
        log.flush(&*self.api, &lease).await;
        let told = match end {
            // The lease was lost: the worker that has it now continues.
            _ if !lease.holds() => {
                tracing::warn!(task = %lease.held.task, "the lease ended before the task; whoever has it now goes on");
                Ok(())
            }
            JobEnd::Over => Ok(()),
            JobEnd::Stopped if stopper.cancelled.load(std::sync::atomic::Ordering::SeqCst) => {
                let JobEnd::Report(report) = ended("cancelled", "cancelled", Vec::new()) else { return };
                self.report(*report, &lease, &log).await
            }
            JobEnd::Stopped => {
                let why = release(&lease, "the worker is stopping");
                recorder::until_answered(&lease, || self.api.release(why.clone())).await
            }
            JobEnd::Report(report) => self.report(*report, &lease, &log).await,
        };
        if let Err(error) = told {
            tracing::warn!(%error, task = %lease.held.task, "how the task ended could not be told; its lease will end");
        }
        drop(folder);
    }

    async fn report(
        &self,
        mut report: pb::ReportRequest,
        lease: &Lease,
        log: &TaskLog,
    ) -> Result<(), berth_engine::record::RecordError> {
        report.held = Some(lease.held.clone());
        report.message = log.redacted(&report.message);
        report.help.iter_mut().for_each(|line| *line = log.redacted(line));
        recorder::until_answered(lease, || self.api.report(report.clone())).await
    }

    /// Keeps leases, and stops what is cancelled or lost.
    async fn beat(self: Arc<Self>) {
        let mut next = tokio::time::Instant::now();
        loop {
            if self.held().is_empty() {
                self.news.notified().await;
                let shortest = self.held().values().map(|running| running.time).min().unwrap_or(LOOK);
                next = tokio::time::Instant::now() + shortest / 3;
            }
            for running in self.held().values().filter(|running| !running.lease.holds()) {
                running.stopper.stop();
            }
            if tokio::time::Instant::now() >= next {
                let answered = self.heartbeat().await;
                let shortest = self.held().values().map(|running| running.time).min().unwrap_or(LOOK);
                let pause = if answered { shortest / 3 } else { BEAT_AGAIN.min(shortest / 6) };
                next = tokio::time::Instant::now() + pause;
            }
            tokio::time::sleep_until(next.min(tokio::time::Instant::now() + LOOK)).await;
        }
    }

    async fn heartbeat(&self) -> bool {
        let held: Vec<pb::Held> =
            self.held().values().filter(|r| r.lease.holds()).map(|r| r.lease.held.clone()).collect();
        if held.is_empty() {
            return true;
        }
        let request = pb::HeartbeatRequest { worker: self.config.name.clone(), held: held.clone() };
        let asked = BothClocks::now();
        let answer = match self.api.heartbeat(request).await {
            Ok(answer) => answer,
            Err(fault) => {
                tracing::debug!(%fault, "a heartbeat was not answered");
                return false;
            }
        };
        let time = Duration::from_secs(answer.lease_seconds.into());
        let running = self.held();
        for one in held {
            let Some(running) = running.get(&one.task).filter(|running| running.lease.held == one) else { continue };
            if answer.cancel.contains(&one) {
                running.stopper.cancel();
            }
            if answer.kept.contains(&one) || answer.cancel.contains(&one) {
                running.lease.keep(asked, time);
            } else {
                tracing::warn!(task = %one.task, "the lease is another worker's now; stopping");
                running.lease.lose();
                running.stopper.stop();
            }
        }
        true
    }

    /// Nobody is to wait for it. A server that cannot be told finds out by itself.
    async fn leave(&self) {
        let question = pb::LeaseRequest { leaving: true, ..self.question(0, 0, Duration::ZERO, true) };
        if !matches!(tokio::time::timeout(LOOK, self.api.lease(question)).await, Ok(Ok(_))) {
            tracing::debug!("the server does not know that this worker has ended");
        }
    }

    /// No new tasks; those that run get their time, then are interrupted after the call in flight and given back.
    async fn drain(&self) {
        self.tasks.close();
        if !self.tasks.is_empty() {
            tracing::info!(tasks = self.tasks.len(), "letting tasks end");
            let question = self.question(0, 0, Duration::ZERO, true);
            let told = tokio::time::timeout(LOOK, self.api.lease(question)).await;
            if !matches!(told, Ok(Ok(_))) {
                tracing::debug!("the server does not know that this worker is stopping");
            }
        }
        if tokio::time::timeout(self.config.drain, self.tasks.wait()).await.is_ok() {
            return;
        }
        tracing::info!(tasks = self.tasks.len(), "interrupting tasks after the call in flight");
        self.held().values().for_each(|running| running.stopper.stop());
        if tokio::time::timeout(INTERRUPTED_WITHIN, self.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "tasks did not end; their leases will");
        }
    }
}

fn release(lease: &Lease, why: &str) -> pb::ReleaseRequest {
    pb::ReleaseRequest { held: Some(lease.held.clone()), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A server that answers with these, one after the other, and counts what is given back to it.
    struct Answers {
        answers: Mutex<Vec<pb::LeaseResponse>>,
        released: AtomicUsize,
        worked: AtomicUsize,
    }

    #[async_trait]
    impl TaskApi for Answers {
        async fn lease(&self, request: pb::LeaseRequest) -> Result<pb::LeaseResponse, Fault> {
            assert_eq!(request.protocol, PROTOCOL);
            Ok(self.answers.lock().unwrap().pop().unwrap_or_default())
        }
        async fn heartbeat(&self, _: pb::HeartbeatRequest) -> Result<pb::HeartbeatResponse, Fault> {
            Ok(pb::HeartbeatResponse::default())
        }
        async fn submit_plan(&self, _: pb::SubmitPlanRequest) -> Result<pb::SubmitPlanResponse, Fault> {
            Ok(pb::SubmitPlanResponse::default())
        }
        async fn record(&self, _: pb::RecordRequest) -> Result<pb::RecordResponse, Fault> {
            Ok(pb::RecordResponse::default())
        }
        async fn progress(&self, _: pb::ProgressRequest) -> Result<(), Fault> {
            Ok(())
        }
        async fn report(&self, _: pb::ReportRequest) -> Result<(), Fault> {
            self.worked.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
        async fn release(&self, _: pb::ReleaseRequest) -> Result<(), Fault> {
            self.released.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
        fn place(&self) -> String {
            "https://old.example".into()
        }
    }

    async fn joined(simulated: bool, answers: Vec<pb::LeaseResponse>) -> (Fault, usize, usize) {
        let folder = tempfile::tempdir().unwrap();
        let config = WorkerConfig {
            name: "w".into(),
            services: Vec::new(),
            capacity: 1,
            checks: 0,
            simulated,
            sandbox_token: None,
            credentials: WorkerCredentials::default(),
            scratch: folder.path().to_owned(),
            drain: Duration::from_secs(1),
        };
        let api = Arc::new(Answers { answers: Mutex::new(answers), released: 0.into(), worked: 0.into() });
        let ended = run(config, api.clone(), CancellationToken::new());
        let ended = tokio::time::timeout(Duration::from_secs(10), ended).await.expect("it ends");
        let Err(WorkerError::Unwelcome(fault)) = ended else { panic!("{ended:?}") };
        (fault, api.released.load(Ordering::SeqCst), api.worked.load(Ordering::SeqCst))
    }

    fn answer(protocol: u32, simulated: bool, tasks: usize) -> pb::LeaseResponse {
        let held = Some(pb::Held { task: "t".into(), fence: 1 });
        let task = pb::LeasedTask { held, op: "apply".into(), lease_seconds: 30, ..pb::LeasedTask::default() };
        pb::LeaseResponse {
            tasks: vec![task; tasks],
            protocol,
            simulated: simulated.then(pb::SimulatedClouds::default),
            waited_ms: 0,
        }
    }

    #[tokio::test]
    async fn a_server_from_before_the_protocol_had_a_number_gets_no_work_done() {
        let (fault, released, worked) = joined(false, vec![answer(0, false, 0)]).await;
        assert!(fault.message.contains("older version"), "{fault}");
        assert!(fault.help[0].contains("upgrade the server"), "{:?}", fault.help);
        assert_eq!((released, worked), (0, 0));
        // Another server than the one that was joined answers: what it gave is given back.
        let (fault, released, worked) = joined(false, vec![answer(0, false, 2), answer(PROTOCOL, false, 0)]).await;
        assert!(fault.help[0].contains("upgrade the server"), "{:?}", fault.help);
        assert_eq!((released, worked), (2, 0));
    }

    #[tokio::test]
    async fn a_worker_takes_tasks_of_its_like_only() {
        for (worker, server) in [(false, true), (true, false)] {
            let given = vec![answer(PROTOCOL, server, 1), answer(PROTOCOL, server, 0)];
            let (fault, released, worked) = joined(worker, given).await;
            assert!(fault.message.contains("simulated"), "{fault}");
            assert!(fault.help[0].contains("--sandbox"), "{:?}", fault.help);
            assert_eq!((released, worked), (0, 0), "it joins before it asks for tasks");
        }
    }
}
