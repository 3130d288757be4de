//! A server's state in a moment that tests begin at: what is desired, leased and accepted.

use crate::desired::plain_desired;
use crate::*;
use berth_engine::ResourceState;
use berth_engine::unit::Op;
use berth_store::*;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

pub const LEASE: Duration = Duration::from_secs(30);

/// Seconds after a moment that all tests begin at.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_secs(seconds)
}

pub fn actor() -> Actor {
    Actor::new("token:test")
}

pub fn note(action: &str) -> AuditNote {
    AuditNote { action: action.into(), target: "t".into(), detail: String::new(), outcome: "ok".into() }
}

pub fn desired(id: &ResourceId, spec: Value) -> Desired {
    let labels = BTreeMap::from([("team".to_owned(), "shop".to_owned())]);
    Desired { labels, ..plain_desired(new_resource(id, spec)) }
}

pub fn applying(resources: Vec<Desired>) -> Apply {
    Apply {
        resources,
        delete: Vec::new(),
        actor: actor(),
        audit: note("apply"),
        retry: false,
        trace: "00-trace".into(),
    }
}

pub async fn control(place: &StateLocation) -> Control {
    Control::open(open(&place.address).await).await.expect("a server's state")
}

pub fn new_task(op: TaskOp, id: &ResourceId, now: Timestamp) -> NewTask {
    NewTask {
        op,
        resource: Some(id.clone()),
        resources: Vec::new(),
        org: id.org.clone(),
        service: "network".into(),
        account: "main".into(),
        account_limit: 0,
        priority: 0,
        run_after: now,
        generation: 1,
        refresh: false,
        payload: None,
        trace: String::new(),
    }
}

pub fn ask(worker: &str, changes: u32) -> LeaseAsk {
    LeaseAsk {
        worker: worker.into(),
        org: String::new(),
        services: Vec::new(),
        changes,
        checks: 0,
        lease: LEASE,
        version: "1".into(),
        capacity: 8,
        draining: false,
    }
}

/// As the controller would: everything that is due gets a task.
pub async fn enqueue_due(control: &Control, now: Timestamp) -> usize {
    let due = control.due(now, 1000).await.unwrap();
    let count = due.len();
    let decisions = due
        .into_iter()
        .map(|due| Decision {
            generation: due.resource.generation,
            due_mark: due.meta.due_mark,
            what: if due.task.is_some() {
                Decided::Rest
            } else {
                let op = if due.resource.deleting { TaskOp::Delete } else { TaskOp::Apply };
                let task = new_task(op, &due.resource.id, now);
                Decided::Enqueue(NewTask { account: due.meta.account, service: due.meta.service, ..task })
            },
            id: due.resource.id,
        })
        .collect();
    control.decide(decisions, now).await.unwrap();
    count
}

/// A plan of a resource with one network, as the gate hands it on.
pub fn planned(text: &str, digest: &str) -> SubmittedPlan {
    let ops = vec![Op::Create, Op::Update, Op::Replace, Op::Delete];
    let steps = vec![PlanStep { key: "network".into(), unit_type: "civo.network".into(), ops }];
    SubmittedPlan { text: text.into(), digest: digest.into(), steps, warnings: Vec::new() }
}

/// The plan of a leased change is accepted.
pub async fn accept(control: &Control, held: &Held, now: Timestamp) {
    control.submit_plan(held, planned("{}", "accepted"), PlanDecision::Proceed, now).await.unwrap();
}

/// A resource with a task that `worker` holds and may carry out.
pub async fn accepted(control: &Control, name: &str, worker: &str, now: Timestamp) -> (ResourceId, Held) {
    let (id, held) = leased(control, name, worker, now).await;
    accept(control, &held, now).await;
    (id, held)
}

/// A resource with a task that `worker` holds.
pub async fn leased(control: &Control, name: &str, worker: &str, now: Timestamp) -> (ResourceId, Held) {
    let id = vpc(name);
    control.apply(applying(vec![desired(&id, json!({"region": "fra1"}))]), now).await.unwrap();
    enqueue_due(control, now).await;
    let mut leased = control.lease(ask(worker, 1), now).await.unwrap();
    assert_eq!(leased.len(), 1);
    let leased = leased.remove(0);
    assert_eq!(leased.task.resource.as_ref(), Some(&id));
    (id, leased.held)
}

pub fn done() -> Ending {
    Ending::new(TaskOutcome::Done, "")
}

pub fn is_ready(id: &ResourceId, generation: i64) -> Recorded {
    let status = Status { state: ResourceState::Ready, observed_generation: generation, ..Status::default() };
    Recorded::Status { resource: id.clone(), status }
}

/// A resource that was ready, and whose deletion `worker` holds since second 3.
pub async fn being_deleted(control: &Control, name: &str, worker: &str) -> (ResourceId, Leased) {
    let (id, held) = accepted(control, name, worker, at(0)).await;
    control.record(&held, "k", is_ready(&id, 1), at(1)).await.unwrap();
    control.report(&held, done(), at(1)).await.unwrap();
    control.delete(vec![id.clone()], &actor(), note("delete"), at(2)).await.unwrap();
    enqueue_due(control, at(2)).await;
    let deleting = control.lease(ask(worker, 1), at(3)).await.unwrap().remove(0);
    (id, deleting)
}
