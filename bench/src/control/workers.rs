//! Workers that do no work: they lease tasks over gRPC, say that all went well, and ask for more. What is measured is the server.

use crate::figures::Times;
use crate::server::Server;
use anyhow::{Context as _, Result, bail};
use berth_server::client::{Client, Connection};
use berth_server::context::Context;
use berth_server::pb::record_request::Write;
use berth_server::pb::{
    LeaseRequest, LeasedTask, RecordRequest, ReportRequest, ResourceId, StatusRow, SubmitPlanRequest,
};
use secrecy::SecretString;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Tasks that one worker holds at once.
pub const CAPACITY: u32 = 16;
const WAIT_SECONDS: u32 = 5;
/// Without a task for this long, there are none left.
const DRY_AFTER: Duration = Duration::from_secs(15);

/// How workers reach the server.
#[derive(Clone)]
pub struct Link {
    connection: Connection,
    recipient: String,
}

impl Link {
    pub async fn new(server: &Server) -> Result<Self> {
        let mut connection = Connection::new(server.site.url.clone(), SecretString::from(server.worker_token().await?));
        connection.ca = Some(server.authority()?.into_bytes());
        Ok(Self { connection, recipient: age::x25519::Identity::generate().to_public().to_string() })
    }

    async fn client(&self) -> Result<Client> {
        self.connection.connect().await.map_err(|fault| anyhow::anyhow!("{}", fault.message))
    }

    fn ask(&self, worker: &str, changes: u32) -> LeaseRequest {
        LeaseRequest {
            worker: worker.to_owned(),
            changes,
            checks: 0,
            recipient: self.recipient.clone(),
            wait_seconds: WAIT_SECONDS,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capacity: changes,
            protocol: berth_server::worker::PROTOCOL,
            ..LeaseRequest::default()
        }
    }
}

/// What the workers got done together.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub tasks: u64,
    pub seconds: f64,
}

impl Done {
    pub fn per_second(self) -> f64 {
        self.tasks as f64 / self.seconds
    }
}

/// So many workers, each with a connection of its own, until `tasks` are reported or `time` is over.
pub async fn drain(link: &Link, workers: usize, tasks: u64, time: Duration) -> Result<Done> {
    let reported = Arc::new(AtomicU64::new(0));
    let last_report = Arc::new(AtomicU64::new(0));
    let enough = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for _ in 0..workers {
        clients.push(link.client().await?);
    }
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let (link, reported, enough) = (link.clone(), reported.clone(), enough.clone());
        let last_report = last_report.clone();
        running.spawn(async move {
            let name = format!("bench-{workers}-{number}");
            let mut last = Instant::now();
            while !enough.load(Ordering::Relaxed) {
                let leased = client.worker().lease(link.ask(&name, CAPACITY)).await.context("a lease failed")?;
                let leased = leased.into_inner().tasks;
                if leased.is_empty() && last.elapsed() > DRY_AFTER {
                    break;
                }
                if !leased.is_empty() {
                    last = Instant::now();
                }
                let mut reports = JoinSet::new();
                for task in leased {
                    reports.spawn(carry_out(client.clone(), task));
                }
                while let Some(one) = reports.join_next().await {
                    one??;
                    // A worker that waits in vain at the end is no part of it.
                    last_report.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
                    if reported.fetch_add(1, Ordering::Relaxed) + 1 >= tasks || begun.elapsed() > time {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(one) = running.join_next().await {
        one??;
    }
    Ok(Done { tasks: reported.load(Ordering::Relaxed), seconds: last_report.load(Ordering::Relaxed) as f64 / 1e6 })
}

/// What a worker tells the server of a task that went well: the plan, which the server must accept, the status, durable before
/// the answer, then the end. Without the status the resource would not be Ready, and the controller would have it done again.
async fn carry_out(client: Client, task: LeasedTask) -> Result<()> {
    let context: Context = serde_json::from_slice(&task.context).context("a task's context cannot be read")?;
    let id = context.resource.context("a task without a resource")?;
    // The units of `server::fleet_manifest`.
    let units = json!([
        {"key": "cluster", "unit_type": "civo.cluster", "op": "create"},
        {"key": "pool/batch", "unit_type": "civo.pool", "op": "create"},
        {"key": "autoscaler", "unit_type": "civo.autoscaler", "op": "create"},
    ]);
    let plan = json!({"resources": [{"id": id, "action": "create", "units": units}]});
    let submit = SubmitPlanRequest { held: task.held.clone(), plan: plan.to_string().into(), ..Default::default() };
    let verdict = client.worker().submit_plan(submit).await.context("a plan was not taken")?.into_inner();
    if !verdict.proceed {
        bail!("a plan may not be carried out: {}", verdict.message);
    }
    let status = StatusRow {
        state: "Ready".into(),
        outputs: "{}".into(),
        facts: "{}".into(),
        observed_generation: context.generation,
        ..StatusRow::default()
    };
    let record = RecordRequest {
        held: task.held.clone(),
        resource: Some(ResourceId { kind: id.kind, name: id.name, org: id.org, env: id.env }),
        key: "status".into(),
        write: Some(Write::Status(status)),
    };
    client.worker().record(record).await.context("a write failed")?;
    let report = ReportRequest { held: task.held, outcome: "done".into(), ..ReportRequest::default() };
    client.worker().report(report).await.context("a report failed")?;
    Ok(())
}

/// From the request to apply, to the task in the hands of a worker that was waiting for it; one at a time.
pub async fn apply_to_lease(link: &Link, server: &Server, rounds: usize, prefix: &str) -> Result<(Times, Times)> {
    let client = link.client().await?;
    let (mut whole, mut after) = (Times::default(), Times::default());
    for round in 0..rounds {
        let (client, ask) = (client.clone(), link.ask("bench-idle", 1));
        let other = client.clone();
        let waiting = tokio::spawn(async move {
            let leased = other.worker().lease(ask).await;
            (Instant::now(), leased)
        });
        // Long enough that the worker waits at the server before there is anything to do.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let asked = Instant::now();
        server.apply(&[crate::server::fleet_manifest(&format!("{prefix}-{round}"), "")]).await?;
        let accepted = Instant::now();
        let (at, leased) = waiting.await?;
        let Some(task) = leased.context("a lease failed")?.into_inner().tasks.into_iter().next() else {
            bail!("a worker waited and got no task");
        };
        whole.add(at - asked);
        // The lease may come before the answer to who applied.
        after.add(at.saturating_duration_since(accepted));
        carry_out(client, task).await?;
    }
    Ok((whole, after))
}
