//! Shows the progress of a server's work on resources, like that of the embedded engine. Events only say which resources to
//! read again; decisions are made from the resources themselves, so nothing is missed when the connection breaks.

use super::event_stream::{EventStream, StreamItem, subscribe};
use super::{Remote, messages};
use crate::args::address::Names;
use crate::failure::Failure;
use crate::view::progress::Display;
use berth_engine::ResourceState;
use berth_engine::handler::{Class, Help, Trouble};
use berth_engine::progress::{Progress, Skip, Watcher};
use berth_engine::{Action, Plan, Report};
use berth_model::ResourceId;
use berth_server::pb;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long events are gathered before the resources that they are about are read.
const GATHER: Duration = Duration::from_millis(200);
/// How often running tasks are read.
const TASKS_EVERY: Duration = Duration::from_secs(1);
/// How often all resources are read, in case events were lost.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const RUNNING_MAX: usize = 1000;

/// The state that a resource is expected to reach.
#[derive(Clone, Debug)]
pub struct Goal {
    pub id: ResourceId,
    /// Gone, or else ready.
    pub gone: bool,
    /// At least this generation is ready.
    pub generation: i64,
    /// Its state before the change; without it, the present state is accepted.
    pub before: Option<Before>,
}

/// A resource before the change, so that an old failure is not taken for a new one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Before {
    pub generation: i64,
    pub status_at: String,
}

impl Before {
    pub fn of(resource: Option<&pb::Resource>) -> Self {
        resource.map_or_else(Self::default, |r| Self { generation: r.generation, status_at: r.status_at.clone() })
    }
}

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// The last event before the change.
    pub since: i64,
    pub timeout: Duration,
    /// Stay while a plan waits for approval; otherwise that ends the watch of its resource.
    pub approvals: bool,
}

/// How a watch ended.
#[derive(Debug, Default)]
pub struct Followed {
    pub report: Report,
    /// Waits for someone's approval.
    pub awaiting: Vec<ResourceId>,
    /// Resources that a policy or a missing permission stops, with the reason.
    pub blocked: Vec<(ResourceId, String)>,
    /// The timeout expired.
    pub timed_out: bool,
}

/// One resource's place on the board.
struct Track {
    goal: Goal,
    after: Vec<ResourceId>,
    action: Action,
    typical: Option<Duration>,
    shown: Shown,
    began: Instant,
}

#[derive(PartialEq)]
enum Shown {
    Nothing,
    /// For somebody's approval.
    Awaits,
    Waits(ResourceId),
    /// Everything that it refers to is ready.
    Queued,
    Runs(String),
}

struct Follow<'a> {
    remote: &'a Remote,
    watch: Watch,
    display: &'a Display,
    tracks: HashMap<ResourceId, Track>,
    /// Resources of which an event since the change said that a task ended.
    fresh: HashSet<ResourceId>,
    followed: Followed,
}

/// At most this many failed tasks are read for their advice.
const HELPED_MAX: usize = 20;

/// Watches until every goal is reached or has failed.
pub async fn follow(remote: &Remote, goals: Vec<Goal>, plan: &Plan, watch: Watch) -> Result<Followed, Failure> {
    let display = Display::new(goals.len(), Names::of(goals.iter().map(|goal| &goal.id)));
    let mut follow = Follow {
        remote,
        watch,
        display: &display,
        tracks: HashMap::new(),
        fresh: HashSet::new(),
        followed: Followed::default(),
    };
    for goal in goals {
        let planned = plan.resources.iter().find(|r| r.id == goal.id);
        let action = planned.map_or(if goal.gone { Action::Delete } else { Action::Resume }, |r| r.action);
        let track = Track {
            after: planned.map(|r| r.after.clone()).unwrap_or_default(),
            typical: planned.and_then(|r| r.typical_seconds).map(Duration::from_secs),
            action,
            goal,
            shown: Shown::Nothing,
            began: Instant::now(),
        };
        follow.tracks.insert(track.goal.id.clone(), track);
    }
    let stream = subscribe(remote, pb::WatchRequest { after: watch.since, ..Default::default() });
    follow.run(stream).await?;
    follow.helps().await;
    let followed = follow.followed;
    drop(display);
    Ok(followed)
}

impl Follow<'_> {
    async fn run(&mut self, mut stream: EventStream) -> Result<(), Failure> {
        let started = Instant::now();
        let mut look: BTreeSet<ResourceId> = self.tracks.keys().cloned().collect();
        let mut everything = tokio::time::interval(LOOK_EVERY);
        let mut tasks = tokio::time::interval(TASKS_EVERY);
        let mut gather = tokio::time::interval(GATHER);
        gather.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let stop = crate::signals::signal();
        let mut stop = std::pin::pin!(stop);
        while !self.tracks.is_empty() {
            tokio::select! {
                _ = &mut stop => {
                    self.followed.report.interrupted = true;
                    self.leave();
                }
                Some(item) = stream.next() => match item {
                    StreamItem::Event(event) => {
                        let id = messages::id_of(event.resource.as_ref());
                        if self.tracks.contains_key(&id) {
                            if !event.task.is_empty() && event.what != "started" && event.what != "queued again" {
                                self.fresh.insert(id.clone());
                            }
                            look.insert(id);
                        }
                    }
                    StreamItem::Disconnected(fault) => self.display.say(&format!("{fault}; trying again")),
                    StreamItem::Reconnected => self.display.say("connected again"),
                    StreamItem::Ended(fault) => return Err(fault.into()),
                },
                _ = gather.tick(), if !look.is_empty() => {
                    let ids: Vec<ResourceId> = std::mem::take(&mut look).into_iter().collect();
                    // A server that is away for a moment is asked again.
                    if self.look(&ids).await.is_err() {
                        look.extend(ids.into_iter().filter(|id| self.tracks.contains_key(id)));
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
                _ = tasks.tick() => {
                    // The next read will show it, too.
                    if let Err(failure) = self.tasks().await {
                        tracing::debug!(%failure, "the tasks could not be read");
                    }
                }
                _ = everything.tick() => {
                    look.extend(self.tracks.keys().cloned());
                }
            }
            if started.elapsed() >= self.watch.timeout && !self.tracks.is_empty() {
                self.followed.timed_out = true;
                self.leave();
            }
        }
        Ok(())
    }

    /// Adds the advice of failed tasks. Failures are reported without it where it cannot be read.
    async fn helps(&mut self) {
        for (id, trouble) in self.followed.report.failed.iter_mut().take(HELPED_MAX) {
            let request = pb::ListTasksRequest {
                kind: id.kind.clone(),
                name: id.name.clone(),
                org: id.org.clone(),
                env: id.env.clone(),
                ..Default::default()
            };
            match self.remote.tasks(request, 1).await.map(|mut tasks| tasks.pop()) {
                // Only a task that failed has advice.
                Ok(Some(task)) => trouble.help = task.help.into_iter().map(Help::from).collect(),
                Ok(_) => {}
                Err(failure) => tracing::debug!(%failure, "the task that failed could not be read"),
            }
        }
    }

    /// Stops watching; the server continues its work.
    fn leave(&mut self) {
        let mut left: Vec<ResourceId> = self.tracks.drain().map(|(id, _)| id).collect();
        left.sort();
        self.followed.report.left = left;
    }

    async fn look(&mut self, ids: &[ResourceId]) -> Result<(), Failure> {
        for (id, resource) in self.remote.several(ids).await? {
            self.judge(&id, resource.as_ref());
        }
        self.skip();
        self.waits();
        Ok(())
    }

    fn judge(&mut self, id: &ResourceId, resource: Option<&pb::Resource>) {
        let Some(track) = self.tracks.get(id) else { return };
        let goal = &track.goal;
        let Some(resource) = resource else {
            match goal.gone {
                true => self.done(id, "deleted".into()),
                false => self.failed(id, Trouble::refused(format!("{id} was deleted meanwhile"))),
            }
            return;
        };
        let moved =
            goal.before.as_ref().is_none_or(|before| *before != Before::of(Some(resource))) || self.fresh.contains(id);
        match ResourceState::parse(&resource.state) {
            // A change takes this state away before it is answered: whatever plan waits now is the one of this goal.
            Some(ResourceState::AwaitingApproval) => self.awaits(id),
            _ if !moved => {}
            Some(ResourceState::Failed) if goal.gone || resource.generation >= goal.generation => {
                let trouble = Trouble::new(Class::Refused, resource.message.clone());
                self.failed(id, trouble);
            }
            Some(ResourceState::Blocked) => {
                let why = resource.message.clone();
                self.end(
                    id,
                    Progress::Failed { resource: id.clone(), trouble: Trouble::refused(format!("blocked: {why}")) },
                );
                self.followed.blocked.push((id.clone(), why));
            }
            Some(ResourceState::Ready) if !goal.gone && resource.observed_generation >= goal.generation => {
                self.done(id, summary(resource));
            }
            _ => {}
        }
    }

    fn awaits(&mut self, id: &ResourceId) {
        if self.watch.approvals {
            let Some(track) = self.tracks.get_mut(id) else { return };
            if track.shown != Shown::Awaits {
                track.shown = Shown::Awaits;
                let what = "waits for approval by somebody else".to_owned();
                self.display.see(Progress::Doing { resource: id.clone(), what });
            }
            return;
        }
        self.end(id, Progress::Skipped { resource: id.clone(), because: Skip::AwaitsApproval });
        self.followed.awaiting.push(id.clone());
    }

    fn end(&mut self, id: &ResourceId, progress: Progress) {
        self.tracks.remove(id);
        self.display.see(progress);
    }

    fn done(&mut self, id: &ResourceId, summary: String) {
        let took = self.tracks.get(id).map(|track| track.began.elapsed()).unwrap_or_default();
        self.end(id, Progress::Done { resource: id.clone(), summary, took });
        self.followed.report.done.push(id.clone());
    }

    fn failed(&mut self, id: &ResourceId, trouble: Trouble) {
        self.end(id, Progress::Failed { resource: id.clone(), trouble: trouble.clone() });
        self.followed.report.failed.push((id.clone(), trouble));
    }

    /// Skips resources that refer to one that failed.
    fn skip(&mut self) {
        loop {
            let over: HashSet<&ResourceId> = {
                let report = &self.followed.report;
                let blocked = self.followed.blocked.iter().map(|(id, _)| id);
                let failed = report.failed.iter().map(|(id, _)| id);
                failed.chain(blocked).chain(&self.followed.awaiting).chain(&report.skipped).collect()
            };
            let next = self.tracks.values().find_map(|track| {
                let needed = track.after.iter().find(|needed| over.contains(needed))?;
                Some((track.goal.id.clone(), needed.clone()))
            });
            let Some((id, needed)) = next else { return };
            self.end(&id, Progress::Skipped { resource: id.clone(), because: Skip::Needs(needed) });
            self.followed.report.skipped.push(id);
        }
    }

    /// Shows what each resource that has not started is waiting for.
    fn waits(&mut self) {
        let open: HashSet<ResourceId> = self.tracks.keys().cloned().collect();
        for track in self.tracks.values_mut() {
            let resource = track.goal.id.clone();
            match (&track.shown, track.after.iter().find(|needed| open.contains(needed))) {
                (Shown::Runs(_) | Shown::Awaits, _) => {}
                (Shown::Waits(before), Some(on)) if before == on => {}
                (_, Some(on)) => {
                    self.display.see(Progress::Waits { resource, on: on.clone() });
                    track.shown = Shown::Waits(on.clone());
                }
                (Shown::Waits(_), None) => {
                    self.display.see(Progress::Started { resource, verb: "queued", typical: None });
                    track.shown = Shown::Queued;
                }
                (Shown::Nothing | Shown::Queued, None) => {}
            }
        }
    }

    /// What the tasks under way are doing.
    async fn tasks(&mut self) -> Result<(), Failure> {
        let request = pb::ListTasksRequest { state: "running".into(), ..Default::default() };
        for task in self.remote.tasks(request, RUNNING_MAX).await? {
            let id = messages::id_of(task.resource.as_ref());
            let Some(track) = self.tracks.get_mut(&id).filter(|_| matches!(task.op.as_str(), "apply" | "delete"))
            else {
                continue;
            };
            if !matches!(track.shown, Shown::Runs(_)) {
                track.began = Instant::now();
                let (verb, typical) = (verb(track.action), track.typical);
                self.display.see(Progress::Started { resource: id.clone(), verb, typical });
                track.shown = Shown::Runs(String::new());
            }
            let what = task.message.lines().next().unwrap_or_default().to_owned();
            if !what.is_empty() && track.shown != Shown::Runs(what.clone()) {
                self.display.see(Progress::Doing { resource: id, what: what.clone() });
                track.shown = Shown::Runs(what);
            }
        }
        Ok(())
    }
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Create => "creating",
        Action::Update => "updating",
        Action::Replace => "replacing",
        Action::Delete => "deleting",
        Action::Resume => "going on",
        Action::Unchanged => "checking",
    }
}

/// What is there now, in a few words.
pub fn summary(resource: &pb::Resource) -> String {
    let facts = messages::map(resource.facts.as_ref());
    let text = |name: &str| facts.get(name).map(crate::view::resource_view::value_text);
    let nodes = text("nodes").map(|n| if n == "1" { "1 node".to_owned() } else { format!("{n} nodes") });
    let outputs = messages::map(resource.outputs.as_ref());
    let range = outputs.get("cidr_block").or_else(|| outputs.get("ip_range")).and_then(|v| v.as_str());
    let parts: Vec<String> = [text("version"), nodes, range.filter(|r| !r.is_empty()).map(|r| format!("network {r}"))]
        .into_iter()
        .flatten()
        .collect();
    if parts.is_empty() { "ready".into() } else { parts.join(", ") }
}
