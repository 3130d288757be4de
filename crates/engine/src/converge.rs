//! Carries a plan out: its steps in their order, in parallel where that order allows.

use crate::handler::{Catalog, Class, Trouble};
use crate::plan::{Action, Planned, Request, ResourcePlan};
use crate::progress::{Progress, Skip, Watcher};
use crate::record::{RecordError, Recorder};
use crate::resource_run::{End, ResourceRun};
use crate::run::{Interrupt, Options, Report, RunContext, Stop};
use crate::steps::{Next, Part, Step, Steps};
use crate::unit::UnitState;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Carries out what was planned.
pub async fn converge(
    catalog: &dyn Catalog,
    recorder: &dyn Recorder,
    watcher: &dyn Watcher,
    interrupt: Interrupt,
    options: &Options,
    request: &Request,
    planned: Planned,
) -> Report {
    let Planned { plan, seen, learned, prepared, .. } = planned;
    let plans = &plan.resources;
    let cx = RunContext { recorder, watcher, interrupt, options, changed: Mutex::default() };
    let run = ResourceRun::new(cx, catalog, request, plans, seen, prepared);
    let mut driver =
        Driver { run: &run, plans, steps: Steps::new(plans), begun: HashMap::new(), report: Report::default() };
    driver.tell_waits();
    driver.learn(learned).await;
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < options.parallelism.max(1) {
            let Some(step) = driver.next() else { break };
            let (run, plan) = (&run, &plans[step.resource]);
            running.push(async move {
                let _turn = run.turn(plan).await;
                let result = match step.part {
                    Part::Unmake => run.unmake(plan).await,
                    Part::Make => run.make(plan).await,
                };
                (step, result)
            });
        }
        let Some((step, result)) = running.next().await else { break };
        driver.ended(step, result).await;
    }
    driver.report.interrupted |= run.cx.interrupt.is_set() && !driver.report.skipped.is_empty();
    driver.report
}

/// Begins steps as they become free, and tells what came of them.
struct Driver<'r, 'p> {
    run: &'r ResourceRun<'r>,
    plans: &'p [ResourcePlan],
    steps: Steps<'p>,
    /// When the first step of each resource was begun.
    begun: HashMap<usize, Instant>,
    report: Report,
}

impl Driver<'_, '_> {
    fn see(&self, progress: Progress) {
        self.run.cx.watcher.see(progress);
    }

    fn tell_waits(&self) {
        for plan in self.plans.iter().filter(|plan| plan.action != Action::Unchanged) {
            if let Some(on) = plan.after.first() {
                self.see(Progress::Waits { resource: plan.id.clone(), on: on.clone() });
            }
        }
    }

    /// Writes down whom the units belong to that the plan found by their ids.
    async fn learn(&mut self, learned: Vec<UnitState>) {
        for unit in learned {
            if let Err(error) = self.run.cx.recorder.save_unit(unit).await {
                self.report.record = Some(error);
                return;
            }
        }
    }

    /// The next step to begin, or `None` for now.
    fn next(&mut self) -> Option<Step> {
        loop {
            let stopped = self.run.cx.interrupt.is_set() || self.report.record.is_some();
            match self.steps.next(stopped)? {
                Next::Run(step) => {
                    self.begin(step);
                    return Some(step);
                }
                Next::Skip(resource, because) => {
                    let id = &self.plans[resource].id;
                    self.see(Progress::Skipped { resource: id.clone(), because });
                    self.report.skipped.push(id.clone());
                }
            }
        }
    }

    fn begin(&mut self, step: Step) {
        let plan = &self.plans[step.resource];
        if !self.begun.contains_key(&step.resource) && plan.action != Action::Unchanged {
            let typical = plan.typical_seconds.map(Duration::from_secs);
            self.see(Progress::Started { resource: plan.id.clone(), verb: verb(plan.action), typical });
        }
        self.begun.entry(step.resource).or_insert_with(Instant::now);
    }

    async fn ended(&mut self, step: Step, result: Result<End, Stop>) {
        match result {
            Ok(end) => {
                if self.steps.is_last(step) {
                    self.finished(step, end);
                }
                self.steps.done(step);
            }
            Err(stop) => {
                self.stopped(&self.plans[step.resource], stop).await;
                self.steps.leave_out(step);
            }
        }
    }

    fn finished(&mut self, step: Step, end: End) {
        let plan = &self.plans[step.resource];
        let id = &plan.id;
        self.report.strays.extend(end.strays.into_iter().map(|stray| (id.clone(), stray)));
        if plan.action != Action::Unchanged {
            let took = self.begun.get(&step.resource).map(Instant::elapsed).unwrap_or_default();
            self.see(Progress::Done { resource: id.clone(), summary: end.summary, took });
        }
        let ended = if end.pending { &mut self.report.pending } else { &mut self.report.done };
        ended.push(id.clone());
    }

    async fn stopped(&mut self, plan: &ResourcePlan, stop: Stop) {
        match stop {
            Stop::Trouble(trouble) => {
                self.run.failed(plan, &trouble).await;
                self.failed(plan, trouble);
            }
            Stop::Interrupted => {
                self.report.interrupted = true;
                self.see(Progress::Skipped { resource: plan.id.clone(), because: Skip::Interrupted });
                self.report.left.push(plan.id.clone());
            }
            Stop::Record(error) => {
                match unrecorded(&self.run.cx.changes_of(&plan.id), &error) {
                    Some(trouble) => self.failed(plan, trouble),
                    None => {
                        let because = Skip::Unrecorded(error.to_string().into());
                        self.see(Progress::Skipped { resource: plan.id.clone(), because });
                        self.report.skipped.push(plan.id.clone());
                    }
                }
                self.report.record = Some(error);
            }
        }
    }

    fn failed(&mut self, plan: &ResourcePlan, trouble: Trouble) {
        self.see(Progress::Failed { resource: plan.id.clone(), trouble: trouble.clone() });
        self.report.failed.push((plan.id.clone(), trouble));
    }
}

/// What was changed in the cloud of a resource that the state can no longer tell of; `None` when nothing was.
fn unrecorded(changes: &[String], error: &RecordError) -> Option<Trouble> {
    let (last, before) = changes.split_last()?;
    let all = if before.is_empty() { last.clone() } else { format!("{} and {last}", before.join(", ")) };
    Some(
        Trouble::new(Class::Unfinished, format!("{all}; then: {error}"))
            .help("once the state can be written, run the same command again: what was made is found and taken up"),
    )
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Unchanged => "checking",
        Action::Create => "creating",
        Action::Update => "updating",
        Action::Replace => "replacing",
        Action::Resume => "going on with",
        Action::Delete => "deleting",
    }
}
