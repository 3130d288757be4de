//! Lease, heartbeat, plan, record, progress, report, release.

use super::Bucket;
use super::build::contexts;
use super::drift::findings;
use super::plan_gate::decide_plan;
use super::verify;
use crate::access::{Principal, Revalidation, Role, principal};
use crate::api::ServerState;
use crate::fault::{Code, Fault};
use crate::metrics::{Op, State};
use crate::pb::{self, record_request::Write, worker_service_server::WorkerService};
use crate::policy::Verdict;
use crate::record_messages;
use crate::worker::api::TaskApi;
use crate::worker::{OLDEST_PROTOCOL, PROTOCOL};
use async_trait::async_trait;
use berth_engine::unit::Identity;
use berth_model::ResourceId;
use berth_store::{
    ControlError, Ending, Held, LeaseAsk, Leased, PlanDecision, Recorded, SubmittedPlan, TaskId, TaskOp, TaskOutcome,
};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// A worker may wait this long for work.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Without a wake, the queue is looked at this often: a notification may be lost with its connection.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Tasks that one call may ask for.
const TASKS_MAX: u32 = 256;
/// Tasks that one worker may hold.
const HELD_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 253;
const SERVICES_MAX: usize = 32;
const LINES_MAX: usize = 1_000;
const PLAN_BYTES_MAX: usize = 8 << 20;
/// Tries again after failures: from the first pause on, doubled each time.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(300);

pub struct Service(pub Arc<ServerState>);

/// The same, for the worker inside the server.
pub struct InProcess(pub Arc<ServerState>);

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

fn held(held: Option<pb::Held>) -> Result<Held, Fault> {
    let held = held.filter(|held| !held.task.is_empty()).ok_or_else(|| invalid("which task is not said"))?;
    verify::plain("the number of a task", &held.task)?;
    Ok(Held { task: TaskId(held.task), fence: held.fence })
}

/// A worker of one org has a name among those of that org: it speaks for no other's.
fn name_of(caller: &Principal, name: String) -> String {
    if caller.org.is_empty() { name } else { format!("{}/{name}", caller.org) }
}

fn named(held: Held) -> pb::Held {
    pb::Held { task: held.task.0, fence: held.fence }
}

/// When a failed task is tried again: exponential, with jitter, and never before the cloud's own word.
pub fn retry_at(now: Timestamp, failures: u32, asked: Duration) -> Timestamp {
    let pause = FIRST_RETRY.saturating_mul(1 << failures.min(8)).min(LONGEST_RETRY);
    let pause = pause.mul_f64(rand::random_range(0.5..1.0)).max(asked);
    SignedDuration::try_from(pause).ok().and_then(|pause| now.checked_add(pause).ok()).unwrap_or(now)
}

impl ServerState {
    fn refused(&self, error: ControlError) -> Fault {
        match error {
            ControlError::Fenced => {
                self.metrics.fenced.inc();
                Fault::new(Code::Conflict, "the lease of this task has ended, or it is another worker's")
            }
            other => other.into(),
        }
    }

    /// Whether a worker and this server fit together. Workers of any version understand `InvalidArgument`: they end.
    fn check_party(&self, request: &pb::LeaseRequest) -> Result<(), Fault> {
        let version = env!("CARGO_PKG_VERSION");
        if request.protocol < OLDEST_PROTOCOL {
            return Err(invalid("this worker is of an older version than the server, which gives it no tasks")
                .help(format!("upgrade the worker to the server's version, {version}, and start it again")));
        }
        match (self.config.simulated.is_some(), request.simulated) {
            (true, false) => {
                Err(invalid("this server works on simulated clouds, and the worker would work on real ones")
                    .help("start the worker with --sandbox")
                    .help("or give it the address of a server that was started without --sandbox"))
            }
            (false, true) => {
                Err(invalid("this server works on real clouds, and the worker would work on simulated ones")
                    .help("start the worker without --sandbox")
                    .help("or give it the address of a server that was started with --sandbox"))
            }
            _ => Ok(()),
        }
    }

    fn lease_answer(&self, tasks: Vec<pb::LeasedTask>, waited_ms: u32) -> pb::LeaseResponse {
        let simulated = self
            .config
            .simulated
            .as_ref()
            .map(|clouds| pb::SimulatedClouds { urls: clouds.urls.clone(), pace: clouds.pace });
        pb::LeaseResponse { tasks, waited_ms, protocol: PROTOCOL, simulated }
    }

    fn check_lease(&self, request: &pb::LeaseRequest) -> Result<(), Fault> {
        self.check_party(request)?;
        if request.worker.is_empty() || request.worker.len() > NAME_BYTES_MAX {
            return Err(invalid("a worker needs a name of at most 253 bytes"));
        }
        verify::plain("the worker's name", &request.worker)?;
        verify::plain("the worker's version", &request.version)?;
        if request.services.len() > SERVICES_MAX {
            return Err(invalid(format!("at most {SERVICES_MAX} services may be named")));
        }
        let all = crate::worker::services();
        if let Some(unknown) = request.services.iter().find(|service| !all.contains(service.as_str())) {
            let all: Vec<&str> = all.into_iter().collect();
            let fault = invalid(format!("there is no service `{unknown}`"));
            return Err(fault.help(format!("there are: {}", all.join(", "))));
        }
        if !request.draining && request.recipient.parse::<age::x25519::Recipient>().is_err() {
            return Err(invalid("the worker's recipient is not an age recipient"));
        }
        Ok(())
    }

    /// A worker that is for one org has nothing to do with the tasks of others, whatever number it names.
    async fn own(&self, caller: &Principal, held: &[pb::Held]) -> Result<(), Fault> {
        if caller.org.is_empty() {
            return Ok(());
        }
        for one in held {
            verify::plain("the number of a task", &one.task)?;
            let task = self.control.task(&TaskId(one.task.clone())).await?;
            if task.is_none_or(|task| task.org != caller.org) {
                return Err(self.refused(ControlError::Fenced));
            }
        }
        Ok(())
    }

    async fn lease_tasks(&self, caller: &Principal, mut request: pb::LeaseRequest) -> Result<pb::LeaseResponse, Fault> {
        self.check_lease(&request)?;
        request.worker = name_of(caller, request.worker);
        if request.leaving {
            self.control.forget_worker(&request.worker).await?;
            return Ok(pb::LeaseResponse::default());
        }
        let came = Instant::now();
        let until = came + Duration::from_secs(request.wait_seconds.into()).min(WAIT_MAX);
        let mut wakes = self.control.wakes();
        let mut bucket = Bucket::new();
        let mut revalidation = Revalidation::new(&self.control, caller);
        loop {
            wakes.mark_unchanged();
            // Credentials go out with a task: not to someone whose token was revoked while they waited.
            revalidation.check().await?;
            let ask = LeaseAsk {
                worker: request.worker.clone(),
                org: caller.org.clone(),
                services: request.services.clone(),
                changes: request.changes.min(TASKS_MAX),
                checks: request.checks.min(TASKS_MAX),
                lease: self.config.lease,
                version: request.version.clone(),
                capacity: request.capacity,
                draining: request.draining,
            };
            // Looked at before the time that the lease begins at: the worker must never count on more than it has.
            let waited_ms = u32::try_from(came.elapsed().as_millis()).unwrap_or(0);
            let leased = self.control.lease(ask, self.now()).await?;
            if !leased.is_empty() {
                let tasks = self.with_contexts(caller, leased, &request.recipient).await;
                if !tasks.is_empty() {
                    return Ok(self.lease_answer(tasks, waited_ms));
                }
            }
            tokio::time::sleep(bucket.take()).await;
            if Instant::now() >= until || self.stop.is_cancelled() {
                return Ok(self.lease_answer(Vec::new(), 0));
            }
            tokio::select! {
                changed = wakes.changed() => if changed.is_err() { return Ok(self.lease_answer(Vec::new(), 0)) },
                () = tokio::time::sleep_until(until.min(Instant::now() + LOOK_AGAIN)) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// A task whose context cannot be made ends here.
    async fn with_contexts(&self, caller: &Principal, leased: Vec<Leased>, recipient: &str) -> Vec<pb::LeasedTask> {
        let built = contexts(self, caller, &leased).await;
        let mut tasks = Vec::with_capacity(leased.len());
        for (one, built) in leased.into_iter().zip(built) {
            let made = built.and_then(|(context, sealed)| {
                let internal = |error: crate::context::ContextError| Fault::new(Code::Internal, error.to_string());
                Ok((context.to_json().map_err(internal)?, sealed.seal(recipient).map_err(internal)?))
            });
            match made {
                Ok((context, credentials)) => {
                    self.metrics.leases.get_or_create(&Op { op: one.task.op.as_str().into() }).inc();
                    tasks.push(pb::LeasedTask {
                        held: Some(named(one.held)),
                        op: one.task.op.as_str().into(),
                        lease_seconds: self.lease_seconds(),
                        attempt: one.task.attempts,
                        context,
                        credentials,
                        traceparent: one.task.trace,
                    });
                }
                Err(fault) => self.without_context(&one, fault).await,
            }
        }
        tasks
    }

    fn lease_seconds(&self) -> u32 {
        u32::try_from(self.config.lease.as_secs()).unwrap_or(u32::MAX).max(1)
    }

    async fn without_context(&self, leased: &Leased, fault: Fault) {
        tracing::warn!(task = %leased.task.id, %fault, "a task's context could not be made");
        let now = self.now();
        let told = match fault.code {
            // The database did not answer: another try.
            Code::Unavailable => self.control.release(&leased.held, &fault.message, now).await,
            _ => {
                let ending = Ending { help: fault.help, ..Ending::new(TaskOutcome::Refused, fault.message) };
                self.control.report(&leased.held, ending, now).await
            }
        };
        if let Err(error) = told {
            tracing::warn!(task = %leased.task.id, %error, "it stays until its lease ends");
        }
    }

    async fn keep(&self, request: pb::HeartbeatRequest) -> Result<pb::HeartbeatResponse, Fault> {
        if request.held.len() > HELD_MAX {
            return Err(invalid(format!("a worker holds at most {HELD_MAX} tasks")));
        }
        verify::plain("the worker's name", &request.worker)?;
        let held = request.held.into_iter().map(|one| held(Some(one))).collect::<Result<Vec<_>, _>>()?;
        let beat = self.control.heartbeat(&request.worker, held, self.config.lease, self.now()).await;
        let beat = beat.map_err(|error| self.refused(error))?;
        Ok(pb::HeartbeatResponse {
            kept: beat.kept.into_iter().map(named).collect(),
            cancel: beat.cancel.into_iter().map(named).collect(),
            lease_seconds: self.lease_seconds(),
        })
    }

    async fn judge(&self, request: pb::SubmitPlanRequest) -> Result<pb::SubmitPlanResponse, Fault> {
        let held = held(request.held)?;
        if request.plan.len() > PLAN_BYTES_MAX {
            return Err(Fault::new(Code::TooLarge, "the plan is too large"));
        }
        let text = String::from_utf8(request.plan).map_err(|_| invalid("the plan cannot be read"))?;
        verify::shallow(&text)?;
        let plan: berth_engine::Plan = serde_json::from_str(&text).map_err(|_| invalid("the plan cannot be read"))?;
        let Some(task) = self.control.task(&held.task).await? else {
            return Err(self.refused(ControlError::Fenced));
        };
        let decided = match decide_plan(self, &task, &plan, &text, Identity::from_text(request.identity).as_ref()).await
        {
            Ok(decided) => decided,
            // It was applied or deleted again meanwhile: the next task plans the new desired state.
            Err(fault) if fault.code == Code::Conflict => {
                let back = self.control.release(&held, &fault.message, self.now()).await;
                back.map_err(|error| self.refused(error))?;
                return Ok(pb::SubmitPlanResponse { proceed: false, message: fault.message });
            }
            Err(fault) => return Err(fault),
        };
        let proceed = decided.decision == PlanDecision::Proceed;
        let warned = |warning: &Verdict| format!("{}: {}", warning.policy, warning.message);
        let submitted = SubmittedPlan {
            text: decided.plan,
            digest: decided.digest,
            steps: decided.steps,
            warnings: decided.warnings.iter().map(warned).collect(),
        };
        let submitted = self.control.submit_plan(&held, submitted, decided.decision, self.now()).await;
        submitted.map_err(|error| self.refused(error))?;
        Ok(pb::SubmitPlanResponse { proceed, message: decided.message })
    }

    async fn write_down(&self, request: pb::RecordRequest) -> Result<pb::RecordResponse, Fault> {
        let held = held(request.held)?;
        if request.key.is_empty() || request.key.len() > NAME_BYTES_MAX {
            return Err(invalid("a write needs a key of at most 253 bytes"));
        }
        verify::plain("the key of a write", &request.key)?;
        let resource: ResourceId =
            request.resource.ok_or_else(|| invalid("which resource a write is about is not said"))?.into();
        let write = match request.write.ok_or_else(|| invalid("what to write is not said"))? {
            Write::Intent(row) => {
                row.unit.as_ref().map_or(Ok(()), verify::unit)?;
                Recorded::Intent(record_messages::intent(&resource, row)?)
            }
            Write::Close(row) => {
                row.unit.as_ref().map_or(Ok(()), verify::unit)?;
                let (entry, closing) = record_messages::closing(&resource, row)?;
                Recorded::Close { entry, closing }
            }
            Write::SaveUnit(row) => {
                verify::unit(&row)?;
                Recorded::SaveUnit(record_messages::unit_state(&resource, row)?)
            }
            Write::ForgetUnit(unit) => {
                verify::plain("a unit's key", &unit.key)?;
                verify::plain("a unit's token", &unit.token)?;
                Recorded::ForgetUnit { resource, key: unit.key, token: unit.token }
            }
            Write::Status(mut row) => {
                verify::status(&resource, &row)?;
                row.message = verify::one_line(row.message);
                Recorded::Status { resource, status: record_messages::status(row)? }
            }
            Write::ForgetResource(true) => Recorded::ForgetResource(resource),
            Write::ForgetResource(false) => return Err(invalid("what to write is not said")),
            Write::Event(note) => Recorded::Event { resource, what: note.what, detail: note.detail },
        };
        let entry = self.control.record(&held, &request.key, write, self.now()).await;
        let entry = entry.map_err(|error| self.refused(error))?;
        Ok(pb::RecordResponse { entry: entry.map_or(0, |entry| entry.0) })
    }

    async fn note_progress(&self, request: pb::ProgressRequest) -> Result<(), Fault> {
        let held = held(request.held)?;
        let lines = request.lines.into_iter().take(LINES_MAX);
        let lines = lines.filter_map(|line| Some((Timestamp::from_microsecond(line.at).ok()?, line.text)));
        let noted = self.control.progress(&held, &request.message, lines.collect(), self.now()).await;
        noted.map_err(|error| self.refused(error))
    }

    async fn end_task(&self, request: pb::ReportRequest) -> Result<(), Fault> {
        let held = held(request.held)?;
        let outcome = match request.outcome.as_str() {
            "done" => TaskOutcome::Done,
            "failed" => TaskOutcome::Failed,
            "refused" => TaskOutcome::Refused,
            "cancelled" => TaskOutcome::Cancelled,
            other => return Err(invalid(format!("`{other}` is not how a task ends"))),
        };
        let mut ending = Ending { help: request.help, ..Ending::new(outcome, verify::one_line(request.message)) };
        let now = self.now();
        // Most are done and have nothing to show: the store knows the task when it ends it.
        let task = match outcome != TaskOutcome::Failed && request.result.is_empty() {
            true => None,
            false => {
                let task = self.control.task(&held.task).await?;
                Some(task.ok_or_else(|| self.refused(ControlError::Fenced))?)
            }
        };
        if let Some(task) = task.as_ref().filter(|_| !request.result.is_empty()) {
            let result = String::from_utf8(request.result).map_err(|_| invalid("the result is not JSON"))?;
            verify::result(self, task, &result).await?;
            if task.op == TaskOp::Drift {
                ending.drift = findings(self, &result, now).await?;
            }
            ending.result = Some(result);
        }
        if outcome == TaskOutcome::Failed
            && let Some(task) = task.filter(|task| task.op.mutates())
            && let Some(resource) = &task.resource
        {
            let meta = self.control.meta(std::slice::from_ref(resource)).await?;
            let failures = meta.first().map_or(0, |meta| meta.attempts);
            let asked = Duration::from_secs(request.retry_after_seconds.into());
            ending.retry_at = Some(retry_at(now, failures, asked));
        }
        self.control.report(&held, ending, now).await.map_err(|error| self.refused(error))?;
        self.metrics.reports.get_or_create(&State { state: request.outcome }).inc();
        Ok(())
    }

    async fn give_back(&self, request: pb::ReleaseRequest) -> Result<(), Fault> {
        let held = held(request.held)?;
        self.control.release(&held, &request.why, self.now()).await.map_err(|error| self.refused(error))
    }
}

#[tonic::async_trait]
impl WorkerService for Service {
    async fn lease(&self, request: Request<pb::LeaseRequest>) -> Result<Response<pb::LeaseResponse>, Status> {
        let caller = principal(&request)?;
        if !caller.env.is_empty() {
            return Err(Fault::new(Code::Denied, "a worker is for an org or for all, not for one env").into());
        }
        Ok(Response::new(self.0.lease_tasks(&caller, request.into_inner()).await?))
    }

    async fn heartbeat(
        &self,
        request: Request<pb::HeartbeatRequest>,
    ) -> Result<Response<pb::HeartbeatResponse>, Status> {
        let caller = principal(&request)?;
        self.0.own(&caller, &request.get_ref().held).await?;
        let mut request = request.into_inner();
        request.worker = name_of(&caller, request.worker);
        Ok(Response::new(self.0.keep(request).await?))
    }

    async fn submit_plan(
        &self,
        request: Request<pb::SubmitPlanRequest>,
    ) -> Result<Response<pb::SubmitPlanResponse>, Status> {
        self.0.own(&*principal(&request)?, request.get_ref().held.as_slice()).await?;
        Ok(Response::new(self.0.judge(request.into_inner()).await?))
    }

    async fn record(&self, request: Request<pb::RecordRequest>) -> Result<Response<pb::RecordResponse>, Status> {
        self.0.own(&*principal(&request)?, request.get_ref().held.as_slice()).await?;
        Ok(Response::new(self.0.write_down(request.into_inner()).await?))
    }

    async fn progress(&self, request: Request<pb::ProgressRequest>) -> Result<Response<pb::ProgressResponse>, Status> {
        self.0.own(&*principal(&request)?, request.get_ref().held.as_slice()).await?;
        self.0.note_progress(request.into_inner()).await?;
        Ok(Response::new(pb::ProgressResponse {}))
    }

    async fn report(&self, request: Request<pb::ReportRequest>) -> Result<Response<pb::ReportResponse>, Status> {
        self.0.own(&*principal(&request)?, request.get_ref().held.as_slice()).await?;
        self.0.end_task(request.into_inner()).await?;
        Ok(Response::new(pb::ReportResponse {}))
    }

    async fn release(&self, request: Request<pb::ReleaseRequest>) -> Result<Response<pb::ReleaseResponse>, Status> {
        self.0.own(&*principal(&request)?, request.get_ref().held.as_slice()).await?;
        self.0.give_back(request.into_inner()).await?;
        Ok(Response::new(pb::ReleaseResponse {}))
    }
}

#[async_trait]
impl TaskApi for InProcess {
    async fn lease(&self, request: pb::LeaseRequest) -> Result<pb::LeaseResponse, Fault> {
        self.0.lease_tasks(&Principal::inside("server", Role::Worker), request).await
    }
    async fn heartbeat(&self, request: pb::HeartbeatRequest) -> Result<pb::HeartbeatResponse, Fault> {
        self.0.keep(request).await
    }
    async fn submit_plan(&self, request: pb::SubmitPlanRequest) -> Result<pb::SubmitPlanResponse, Fault> {
        self.0.judge(request).await
    }
    async fn record(&self, request: pb::RecordRequest) -> Result<pb::RecordResponse, Fault> {
        self.0.write_down(request).await
    }
    async fn progress(&self, request: pb::ProgressRequest) -> Result<(), Fault> {
        self.0.note_progress(request).await
    }
    async fn report(&self, request: pb::ReportRequest) -> Result<(), Fault> {
        self.0.end_task(request).await
    }
    async fn release(&self, request: pb::ReleaseRequest) -> Result<(), Fault> {
        self.0.give_back(request).await
    }
    fn place(&self) -> String {
        "this server".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_wait_longer_each_time_up_to_a_limit_and_never_less_than_the_cloud_asked() {
        let now = Timestamp::UNIX_EPOCH;
        let after = |failures, asked| retry_at(now, failures, Duration::from_secs(asked)).as_millisecond();
        assert!((1_000..=2_000).contains(&after(0, 0)));
        assert!((8_000..=16_000).contains(&after(3, 0)));
        assert!(after(60, 0) <= 300_000);
        assert_eq!(after(0, 900), 900_000);
    }
}
