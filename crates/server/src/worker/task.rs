//! One task, from its context to its report.

use super::api::TaskApi;
use super::credentials::WorkerCredentials;
use super::lease::Lease;
use super::recorder::{LeaseRecorder, until_answered};
use super::task_log::TaskLog;
use crate::context::{CheckRow, Context, ImportAsk, Sealed};
use crate::pb;
use crate::results::{DriftResult, DriftedRow, ImportResult, Located, PlanResult, RaisedRow, TroubleRow};
use berth_clouds::{Clouds, with_call_permit};
use berth_engine::handler::{Catalog, Class, Trouble};
use berth_engine::identity::other_account;
use berth_engine::record::{RecordError, Recorder};
use berth_engine::unit::UnitState;
use berth_engine::{Drifted, Interrupt, Known, Options, Request, converge, drift, findings, observe, plan, refresh};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;

const FIRST_GO_OTHERS: &str = "it can be replaced only when no other resource uses the old object: delete those that do, then apply all of them again";

/// The wish that a task stops after the call in flight.
#[derive(Default)]
pub struct StopSignal {
    pub interrupt: Interrupt,
    /// For what changes nothing, and may be let go of at any time.
    stopped: CancellationToken,
    /// Someone cancelled it; otherwise it is to be given back.
    pub cancelled: AtomicBool,
}

impl StopSignal {
    pub fn stop(&self) {
        self.interrupt.set();
        self.stopped.cancel();
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.stop();
    }

    async fn unless_stopped<T>(&self, reads: impl Future<Output = T>) -> Result<T, JobEnd> {
        tokio::select! {
            done = reads => Ok(done),
            () = self.stopped.cancelled() => Err(JobEnd::Stopped),
        }
    }
}

/// How a task ends.
pub enum JobEnd {
    Report(Box<pb::ReportRequest>),
    /// It was asked to stop before it was done.
    Stopped,
    /// Another has it now, or the gate ended it: there is nothing to say.
    Over,
}

impl From<RecordError> for JobEnd {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Fenced => JobEnd::Over,
            RecordError::Failed(message) => ended("failed", message, Vec::new()),
        }
    }
}

pub fn ended(outcome: &str, message: impl Into<String>, help: Vec<String>) -> JobEnd {
    let message = message.into();
    JobEnd::Report(Box::new(pb::ReportRequest {
        outcome: outcome.into(),
        message,
        help,
        ..pb::ReportRequest::default()
    }))
}

fn result_of(result: &impl Serialize) -> JobEnd {
    match serde_json::to_vec(result) {
        Ok(result) => {
            let outcome = "done".into();
            JobEnd::Report(Box::new(pb::ReportRequest { outcome, result, ..pb::ReportRequest::default() }))
        }
        Err(error) => ended("failed", format!("the result cannot be written: {error}"), Vec::new()),
    }
}

/// What the server is told of a trouble: whether trying again can help, and when.
fn failed(trouble: &Trouble) -> JobEnd {
    let mut retry_after_seconds = 0;
    let outcome = match &trouble.class {
        Class::Retry { after } => {
            let seconds = after.map_or(0, |after| after.as_secs().saturating_add(1));
            retry_after_seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            "failed"
        }
        // Another worker may have the right credentials.
        Class::NotFound | Class::Quota | Class::Unauthorized | Class::OtherAccount | Class::Unanswered => "failed",
        // A new plan may succeed although this one was given up.
        Class::Moved | Class::Unfinished => "failed",
        Class::Refused | Class::Taken { .. } => "refused",
    };
    let (message, help) = (trouble.to_string(), trouble.help_lines());
    let outcome = outcome.into();
    JobEnd::Report(Box::new(pb::ReportRequest {
        outcome,
        message,
        help,
        retry_after_seconds,
        ..pb::ReportRequest::default()
    }))
}

/// Whom the credentials belong to that a request is carried out with; empty where it needs none.
async fn identity_of(clouds: &Clouds, request: &Request) -> Result<String, Trouble> {
    let wanted = request.wanted.iter().filter(|wanted| !wanted.manifest.kind.provider.is_empty());
    let mut accounts =
        wanted.map(|wanted| &wanted.account).chain(request.known.units.values().flatten().map(|unit| &unit.account));
    match accounts.next() {
        Some(account) => Ok(clouds.provider(account).await?.identity().await?.text().to_owned()),
        None => Ok(String::new()),
    }
}

pub struct Job {
    pub api: Arc<dyn TaskApi>,
    pub lease: Arc<Lease>,
    pub log: Arc<TaskLog>,
    pub stopper: Arc<StopSignal>,
    pub options: Options,
}

impl Job {
    /// Carries the task out. Every call to a cloud asks the lease first.
    pub async fn run(&self, mut context: Context, mut sealed: Sealed, credentials: &WorkerCredentials) -> JobEnd {
        let tokens: Vec<_> = context.accounts.iter().filter_map(|row| sealed.token_of(&row.name)).collect();
        self.log.hide(&tokens);
        let credentials = &WorkerCredentials { orgs: context.orgs(), ..credentials.clone() };
        let clouds = credentials.clouds(&context.accounts, |account| sealed.token_of(account));
        let lease = self.lease.clone();
        let work = async {
            let done = match context.op.as_str() {
                op @ ("apply" | "delete" | "plan") => {
                    let (only_plans, generation) = (op == "plan", context.generation);
                    let request = context.request(&mut sealed, |account| credentials.region(account));
                    match request.map_err(|error| ended("failed", error.to_string(), Vec::new())) {
                        Ok(request) if only_plans => self.plan(request, &clouds).await,
                        Ok(request) => self.change(request, generation, &clouds).await,
                        Err(end) => Err(end),
                    }
                }
                "drift" => self.check(&mut context, &clouds).await,
                "import" => match context.import.take() {
                    Some(ask) => self.import(&ask, &clouds).await,
                    None => Err(ended("refused", "an import without what to import", Vec::new())),
                },
                other => Err(ended("failed", format!("this worker does not know tasks to {other}"), Vec::new())),
            };
            done.unwrap_or_else(|end| end)
        };
        with_call_permit(Arc::new(move || lease.holds()), work).await
    }

    /// Plans, asks the server for permission, then converges.
    async fn change(&self, request: Request, generation: i64, clouds: &Clouds) -> Result<JobEnd, JobEnd> {
        self.log.line("reading the cloud");
        let planned = self.stopper.unless_stopped(plan(clouds, &request)).await?;
        if let Some((_, trouble)) = planned.troubles.first() {
            return Err(failed(trouble));
        }
        let json =
            serde_json::to_vec(&*planned.plan).map_err(|error| ended("failed", error.to_string(), Vec::new()))?;
        let identity = identity_of(clouds, &request).await.map_err(|trouble| failed(&trouble))?;
        let submit = pb::SubmitPlanRequest { held: Some(self.lease.held.clone()), plan: json, identity };
        let verdict = until_answered(&self.lease, || self.api.submit_plan(submit.clone())).await?;
        if !verdict.proceed {
            tracing::info!(message = %verdict.message, "the plan may not be carried out");
            return Err(JobEnd::Over);
        }
        let recorder = LeaseRecorder::new(self.api.clone(), self.lease.clone(), generation, self.log.clone());
        let interrupt = self.stopper.interrupt.clone();
        let goes_first = planned.plan.resources.iter().flat_map(|r| &r.units).any(|unit| unit.delete_first);
        let report = converge(clouds, &recorder, &*self.log, interrupt, &self.options, &request, planned).await;
        if let Some(error) = report.record {
            return Err(error.into());
        }
        if let Some((_, trouble)) = report.failed.first() {
            // A task is of one resource: it cannot take those away that use the old object.
            return Err(
                match goes_first && matches!(trouble.class, Class::Refused | Class::Moved | Class::Unfinished) {
                    true => failed(&trouble.clone().help(FIRST_GO_OTHERS)),
                    false => failed(trouble),
                },
            );
        }
        if report.interrupted || !report.left.is_empty() || !report.skipped.is_empty() {
            return Err(JobEnd::Stopped);
        }
        Ok(ended("done", "", Vec::new()))
    }

    async fn plan(&self, request: Request, clouds: &Clouds) -> Result<JobEnd, JobEnd> {
        let planned = self.stopper.unless_stopped(plan(clouds, &request)).await?;
        let troubles = planned.troubles.iter().map(|(id, trouble)| TroubleRow::of(id, trouble)).collect();
        Ok(result_of(&PlanResult { plan: Arc::unwrap_or_clone(planned.plan), troubles, calls: clouds.calls() }))
    }

    async fn check(&self, context: &mut Context, clouds: &Clouds) -> Result<JobEnd, JobEnd> {
        if !context.locate.is_empty() {
            return self.locate(context, clouds).await;
        }
        let known = Known { units: context.units_by_resource(), ..Known::default() };
        let ids: Vec<_> = context.check.iter().map(|row| row.id.clone()).collect();
        let seen = self.stopper.unless_stopped(drift(clouds, &known, &ids, context.refresh)).await?;
        self.learn(context, &seen.learned).await?;
        if context.refresh {
            self.refresh(context, clouds, &seen).await?;
        }
        let generation = |row: &CheckRow| row.generation;
        let mut drifted = Vec::new();
        for row in &context.check {
            if let Some(found) = seen.drifted.get(&row.id) {
                let units = known.units.get(&row.id).map(Vec::as_slice).unwrap_or_default();
                let differences = findings(clouds, units, found).await;
                let gone = found.gone.iter().map(|unit| unit.key.clone()).collect();
                drifted.push(DriftedRow { id: row.id.clone(), generation: generation(row), gone, differences });
            }
        }
        let troubles: Vec<_> = seen.troubles.iter().map(|(id, trouble)| TroubleRow::of(id, trouble)).collect();
        self.log.line(&format!("{} checked, {} drifted, {} not readable", ids.len(), drifted.len(), troubles.len()));
        let checked = std::mem::take(&mut context.check);
        Ok(result_of(&DriftResult {
            counts: seen.counts,
            located: None,
            checked,
            drifted,
            troubles,
            calls: clouds.calls(),
        }))
    }

    /// Finds objects by their ids, as if nobody knew which account they are in.
    async fn locate(&self, context: &mut Context, clouds: &Clouds) -> Result<JobEnd, JobEnd> {
        let provider = clouds.provider(&context.locate).await.map_err(|trouble| failed(&trouble))?;
        let identity = self.stopper.unless_stopped(provider.identity()).await?.map_err(|trouble| failed(&trouble))?;
        let units = context.units_by_resource().into_values().flatten();
        let units: Vec<UnitState> = units
            .filter(|unit| unit.account == context.locate)
            .map(|unit| UnitState { identity: None, ..unit })
            .collect();
        let asked: Vec<&UnitState> = units.iter().collect();
        let looked = self.stopper.unless_stopped(observe(clouds, &asked, true)).await?;
        let (mut tokens, mut troubles) = (Vec::new(), Vec::new());
        for (unit, seen) in units.iter().zip(&looked.seen) {
            match seen {
                Ok(Some(_)) => tokens.push(unit.token.clone()),
                Ok(None) => {}
                Err(trouble) => troubles.push(TroubleRow::of(&unit.resource, trouble)),
            }
        }
        let located = Some(Located { identity, tokens });
        let (counts, checked, drifted, calls) = (Vec::new(), Vec::new(), Vec::new(), clouds.calls());
        Ok(result_of(&DriftResult { counts, located, checked, drifted, troubles, calls }))
    }

    /// Units that were found by their id belong to the account that these credentials belong to.
    async fn learn(&self, context: &Context, learned: &[UnitState]) -> Result<(), JobEnd> {
        for unit in learned {
            let Some(row) = context.check.iter().find(|row| row.id == unit.resource) else { continue };
            let recorder = LeaseRecorder::new(self.api.clone(), self.lease.clone(), row.generation, self.log.clone());
            match recorder.save_unit(unit.clone()).await {
                // A change of it is running, and records the status.
                Ok(()) | Err(RecordError::Failed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What was seen becomes what the state remembers. Where much seems gone, what is not found stays as it was.
    async fn refresh(&self, context: &Context, clouds: &Clouds, seen: &Drifted) -> Result<(), JobEnd> {
        let mut by_resource: std::collections::BTreeMap<_, Vec<refresh::Seen>> = std::collections::BTreeMap::new();
        for one in seen.believed() {
            by_resource.entry(one.0.resource.clone()).or_default().push(one.clone());
        }
        for row in &context.refreshed {
            let Some(units) = by_resource.remove(&row.id) else { continue };
            let before = row.status();
            let status = refresh::status_now(clouds, &row.id, &before, row.deleting, &units);
            let recorder = LeaseRecorder::new(self.api.clone(), self.lease.clone(), row.generation, self.log.clone());
            let names = refresh::changed(&before, &status);
            let written = async {
                for (unit, observed) in units {
                    if let Some(unit) = refresh::unit_now(unit, observed.as_ref()) {
                        recorder.save_unit(unit).await?;
                    }
                }
                if !names.is_empty() {
                    recorder.status(&row.id, status).await?;
                    recorder.event(&row.id, "refreshed", &names.join(", ")).await?;
                }
                Ok(())
            };
            match written.await {
                // A change of it is running, and records the unit.
                Ok(()) | Err(RecordError::Failed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn import(&self, ask: &ImportAsk, clouds: &Clouds) -> Result<JobEnd, JobEnd> {
        let provider = clouds.provider(&ask.account).await.map_err(|trouble| failed(&trouble))?;
        let read = async {
            match ask.kind.as_str() {
                "" => provider.raise_all().await,
                kind => provider.raise(kind, &ask.object_id, &ask.region).await.map(|one| vec![one]),
            }
        };
        let identity = self.stopper.unless_stopped(provider.identity()).await?.map_err(|trouble| failed(&trouble))?;
        if let Some(own) = ask.owners.first().filter(|_| !ask.owners.contains(&identity)) {
            return Err(failed(&other_account(&ask.account, own, &identity)));
        }
        let raised = self.stopper.unless_stopped(read).await?.map_err(|trouble| failed(&trouble))?;
        let raised = raised.into_iter().map(RaisedRow::from).collect();
        Ok(result_of(&ImportResult { raised, identity: Some(identity), calls: clouds.calls() }))
    }
}
