//! Servers' use of the state: desired state, tasks, leases and fences, on both databases.

use crate::fixtures::*;
use crate::*;
use berth_engine::ResourceState;
use berth_engine::record::{Closing, EntryId};
use berth_store::*;
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

on_both! {
    a_resource_goes_all_the_way,
    conflicts_are_answers_and_harm_nobody,
    stale_writes_are_refused,
    a_repeated_record_has_one_effect,
    a_lease_that_ended_goes_to_another,
    a_worker_of_one_org_gets_no_task_of_another,
    at_most_one_open_task_changes_a_resource,
    what_moved_on_is_due_again,
    deletes_wait_for_children_and_win_over_applies,
    a_resource_that_is_wanted_again_outlives_its_delete,
    plans_wait_for_approval,
    cancelled_tasks_rest,
    drift_checks_are_batched_and_made_up_for,
    decisions_about_what_moved_on_are_skipped,
    payloads_results_and_logs,
    a_run_and_a_server_keep_apart,
}

async fn a_resource_goes_all_the_way(place: StateLocation) {
    let control = control(&place).await;
    let (parent, child) = (vpc("net"), vpc("child"));
    let with_parent = Desired { parents: vec![parent.clone()], ..desired(&child, json!({})) };
    let applied =
        control.apply(applying(vec![desired(&parent, json!({"region": "fra1"})), with_parent]), at(0)).await.unwrap();
    assert_eq!(applied.iter().map(|one| one.result).collect::<Vec<_>>(), [AppliedResult::Created; 2]);
    assert_eq!(control.children(&parent).await.unwrap(), vec![child.clone()]);
    assert_eq!(control.parents(&child).await.unwrap(), vec![parent.clone()]);
    assert!(control.due(at(-1), 10).await.unwrap().is_empty());
    let due = control.due(at(0), 10).await.unwrap();
    assert_eq!(due.len(), 2);
    assert_eq!((due[0].meta.account.as_str(), due[0].meta.trace.as_str()), ("main", "00-trace"));
    // The child waits for its parent.
    for one in due {
        let what = match one.resource.id == parent {
            true => Decided::Enqueue(new_task(TaskOp::Apply, &parent, at(0))),
            false => Decided::Settle { state: ResourceState::Pending, message: "waits for net".into() },
        };
        let (generation, due_mark) = (one.resource.generation, one.meta.due_mark);
        control.decide(vec![Decision { id: one.resource.id, generation, due_mark, what }], at(0)).await.unwrap();
    }
    assert!(control.due(at(9), 10).await.unwrap().is_empty());
    let leased = control.lease(ask("w1", 5), at(1)).await.unwrap();
    let [one] = &leased[..] else { panic!("{leased:?}") };
    assert!(one.held.fence > 0 && one.task.generation == 1 && one.task.attempts == 1);
    assert_eq!(control.meta(std::slice::from_ref(&parent)).await.unwrap()[0].fence, one.held.fence);
    let mut made = unit(&parent, "network", "t1");
    let unplanned = control.record(&one.held, "k0", Recorded::Intent(create(&made)), at(1)).await;
    assert!(matches!(unplanned, Err(ControlError::Refused(_))), "{unplanned:?}");
    assert!(matches!(control.report(&one.held, done(), at(1)).await, Err(ControlError::Refused(_))));
    accept(&control, &one.held, at(1)).await;
    let entry = control.record(&one.held, "k1", Recorded::Intent(create(&made)), at(2)).await.unwrap().unwrap();
    made.id = Some("object-1".into());
    let closing = Closing::Done(Some(Box::new(made)));
    assert!(control.record(&one.held, "k2", Recorded::Close { entry, closing }, at(3)).await.unwrap().is_none());
    control.record(&one.held, "k3", is_ready(&parent, 1), at(3)).await.unwrap();
    control.report(&one.held, done(), at(4)).await.unwrap();
    control.report(&one.held, done(), at(5)).await.expect("said again");
    let stored = control.store().resource(&parent).await.unwrap().unwrap();
    assert!(stored.settled());
    assert_eq!(control.store().units_of(&parent).await.unwrap()[0].id.as_deref(), Some("object-1"));
    let due = control.due(at(5), 10).await.unwrap();
    assert_eq!(due.iter().map(|due| &due.resource.id).collect::<Vec<_>>(), [&child], "its parent is ready");
    let events = control.events_after(0, &EventFilter::default(), 100).await.unwrap();
    let told: Vec<_> = events.iter().map(|event| (event.resource.name.as_str(), event.what.as_str())).collect();
    assert_eq!(
        told,
        [
            ("net", "created"),
            ("child", "created"),
            ("child", "Pending"),
            ("net", "started"),
            ("net", "Ready"),
            ("net", "done")
        ]
    );
    assert!(events.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert_eq!(events[5].task, one.held.task.0);
    assert_eq!(control.last_event().await.unwrap(), events[5].id);
    let loads = control.loads().await.unwrap();
    assert!(loads.iter().all(|load| (load.queued, load.running) == (0, 0)), "{loads:?}");
    assert_eq!(control.workers().await.unwrap()[0].name, "w1");
}

async fn conflicts_are_answers_and_harm_nobody(place: StateLocation) {
    let control = control(&place).await;
    let id = vpc("net");
    let expecting =
        |expect, n: i32| applying(vec![Desired { expect: Some(expect), ..desired(&id, json!({ "n": n })) }]);
    let made = control.apply(expecting(0, 1), at(0)).await.unwrap();
    assert_eq!(made[0].generation, 1);
    let error = control.apply(expecting(0, 2), at(0)).await.unwrap_err();
    assert!(matches!(error, ControlError::Conflict { expected: 0, found: 1, .. }), "{error}");
    assert_eq!(control.apply(expecting(1, 2), at(0)).await.unwrap()[0].result, AppliedResult::Updated);
    assert_eq!(control.apply(expecting(2, 2), at(0)).await.unwrap()[0].result, AppliedResult::Unchanged);
    // Many at once on one resource: each generation is made by exactly one of them.
    let all = futures::future::join_all((0..20).map(|n| control.apply(expecting(2, 100 + n), at(1)))).await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1);
    assert!(all.iter().all(|one| matches!(one, Ok(_) | Err(ControlError::Conflict { expected: 2, found: 3, .. }))));
    // All or nothing, and the others of the batch are done.
    let both = |n: i32| {
        let conflict = Desired { expect: Some(99), ..desired(&id, json!({})) };
        applying(vec![desired(&vpc(&format!("bad-{n}")), json!({})), conflict])
    };
    let good = |n: i32| applying(vec![desired(&vpc(&format!("good-{n}")), json!({}))]);
    let all =
        futures::future::join_all((0..40).map(|n| control.apply(if n % 2 == 0 { both(n) } else { good(n) }, at(2))))
            .await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 20);
    assert_eq!(place.number("SELECT COUNT(*) FROM resources WHERE name LIKE 'bad%'").await, 0);
    assert_eq!(place.number("SELECT COUNT(*) FROM resources WHERE name LIKE 'good%'").await, 20);
    // A delete that is refused takes what was applied with it.
    let refused = Apply { delete: vec![vpc("nobody")], ..applying(vec![desired(&vpc("half"), json!({}))]) };
    assert!(matches!(control.apply(refused, at(3)).await, Err(ControlError::NotFound(_))));
    assert!(control.store().resource(&vpc("half")).await.unwrap().is_none());
    let audit = control.audit_entries(&AuditQuery { limit: 1000, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(audit.len(), 24, "one for each that was done");
    assert!(control.verify_audit().await.unwrap().whole);
}

async fn stale_writes_are_refused(place: StateLocation) {
    let control = control(&place).await;
    let (id, old) = accepted(&control, "net", "w1", at(0)).await;
    let intent = || Recorded::Intent(create(&unit(&id, "network", "t1")));
    let fenced = |result: Result<_, ControlError>| assert!(matches!(result, Err(ControlError::Fenced)));
    // The lease ends at 30: not a moment later is anything taken, though nobody has expired it yet.
    control.record(&old, "k1", intent(), at(29)).await.unwrap();
    fenced(control.record(&old, "k1", intent(), at(30)).await.map(|_| ()));
    fenced(control.record(&old, "k2", intent(), at(30)).await.map(|_| ()));
    fenced(control.report(&old, done(), at(30)).await);
    fenced(control.submit_plan(&old, planned("{}", "d"), PlanDecision::Proceed, at(30)).await);
    fenced(control.progress(&old, "late", Vec::new(), at(30)).await);
    fenced(control.release(&old, "late", at(30)).await);
    assert!(control.heartbeat("w1", vec![old.clone()], LEASE, at(30)).await.unwrap().kept.is_empty());
    assert_eq!(control.expire(at(30)).await.unwrap(), 1);
    fenced(control.report(&old, done(), at(31)).await);
    fenced(control.record(&old, "k3", intent(), at(31)).await.map(|_| ()));
    let again = control.lease(ask("w2", 1), at(31)).await.unwrap().remove(0);
    assert!(again.held.fence > old.fence && again.held.task == old.task && again.task.attempts == 2);
    fenced(control.report(&old, done(), at(32)).await);
    let made_up = Held { task: old.task.clone(), fence: again.held.fence + 1 };
    fenced(control.report(&made_up, done(), at(32)).await);
    fenced(control.report(&Held { task: TaskId("nobody".into()), fence: 1 }, done(), at(32)).await);
    // Neither the key of the first holder's write nor its plan means anything for the second.
    assert!(matches!(control.record(&again.held, "k1", intent(), at(32)).await, Err(ControlError::Refused(_))));
    accept(&control, &again.held, at(32)).await;
    control.record(&again.held, "k1", intent(), at(32)).await.unwrap();
    control.report(&again.held, done(), at(33)).await.unwrap();
    fenced(control.report(&old, done(), at(34)).await);
    fenced(control.record(&again.held, "k9", intent(), at(34)).await.map(|_| ()));
}

async fn a_repeated_record_has_one_effect(place: StateLocation) {
    let control = control(&place).await;
    let (id, held) = accepted(&control, "net", "w1", at(0)).await;
    let intent = || Recorded::Intent(create(&unit(&id, "network", "t1")));
    let entry = control.record(&held, "k1", intent(), at(1)).await.unwrap().unwrap();
    let many = (0..10).map(|_| control.record(&held, "k1", intent(), at(2)));
    for again in futures::future::join_all(many).await {
        assert_eq!(again.unwrap(), Some(entry));
    }
    assert_eq!(place.number("SELECT COUNT(*) FROM journal").await, 1);
    let close = || Recorded::Close { entry, closing: Closing::Failed("no answer".into()) };
    for _ in 0..3 {
        assert!(control.record(&held, "k2", close(), at(3)).await.unwrap().is_none());
    }
    let twice = control.record(&held, "k3", close(), at(3)).await.unwrap_err();
    assert!(matches!(&twice, ControlError::Refused(why) if why.contains("closed")), "{twice}");
    for _ in 0..2 {
        let note = Recorded::Event { resource: id.clone(), what: "refreshed".into(), detail: String::new() };
        control.record(&held, "k4", note, at(4)).await.unwrap();
    }
    assert_eq!(place.number("SELECT COUNT(*) FROM events WHERE what = 'refreshed'").await, 1);
    // A task writes about its own resource alone.
    let foreign = Recorded::SaveUnit(unit(&vpc("other"), "network", "t1"));
    assert!(matches!(control.record(&held, "k5", foreign, at(4)).await, Err(ControlError::Refused(_))));
    let missing = Recorded::Close { entry: EntryId(999), closing: Closing::Failed(String::new()) };
    assert!(matches!(control.record(&held, "k6", missing, at(4)).await, Err(ControlError::NotFound(_))));
}

async fn a_lease_that_ended_goes_to_another(place: StateLocation) {
    let control = control(&place).await;
    let (_, first) = leased(&control, "net", "w1", at(0)).await;
    assert_eq!(control.expire(at(29)).await.unwrap(), 0);
    let beat = control.heartbeat("w1", vec![first.clone()], LEASE, at(20)).await.unwrap();
    assert_eq!((beat.kept, beat.cancel.len()), (vec![first.clone()], 0));
    assert_eq!(control.expire(at(49)).await.unwrap(), 0);
    assert_eq!(control.next_due().await.unwrap(), Some(at(50)));
    assert_eq!(control.expire(at(50)).await.unwrap(), 1);
    assert_eq!(control.expire(at(50)).await.unwrap(), 0);
    let task = control.task(&first.task).await.unwrap().unwrap();
    assert_eq!((task.state, task.worker.as_str()), (TaskState::Queued, ""));
    let second = control.lease(ask("w2", 1), at(50)).await.unwrap().remove(0);
    control.release(&second.held, "shutting down", at(51)).await.unwrap();
    control.release(&second.held, "shutting down", at(51)).await.expect("said again");
    let third = control.lease(ask("w3", 1), at(52)).await.unwrap().remove(0);
    assert!(first.fence < second.held.fence && second.held.fence < third.held.fence);
    assert!(matches!(control.release(&second.held, "", at(53)).await, Err(ControlError::Fenced)));
    assert!(control.lease(ask("w4", 1), at(53)).await.unwrap().is_empty());
    assert!(control.lease(LeaseAsk { draining: true, ..ask("w4", 1) }, at(99)).await.unwrap().is_empty());
}

async fn a_worker_of_one_org_gets_no_task_of_another(place: StateLocation) {
    let control = control(&place).await;
    let plan = |org: &str| NewTask {
        resource: None,
        org: org.into(),
        account: String::new(),
        payload: Some(SecretString::from("{}".to_owned())),
        ..new_task(TaskOp::Plan, &vpc("x"), at(0))
    };
    control.enqueue(vec![plan("shop"), plan("bank")], at(0)).await.unwrap();
    let shop = LeaseAsk { org: "shop".into(), ..ask("w1", 9) };
    let leased = control.lease(shop.clone(), at(1)).await.unwrap();
    assert_eq!(leased.iter().map(|one| one.task.org.as_str()).collect::<Vec<_>>(), ["shop"]);
    assert!(control.lease(shop.clone(), at(1)).await.unwrap().is_empty());
    assert_eq!(control.lease(ask("w2", 9), at(1)).await.unwrap().len(), 1, "the other waits for a worker of all orgs");
    // Of its own org's tasks, those whose account is the org's, or the worker's.
    let with = |account: &str| NewTask { account: account.into(), ..plan("shop") };
    let names = ["main", "bank//main", "shopping//main", "shop//main", "shop/prod/main", "env:civo"];
    control.enqueue(names.map(with).into(), at(2)).await.unwrap();
    let mut leased: Vec<_> =
        control.lease(shop, at(2)).await.unwrap().into_iter().map(|one| one.task.account).collect();
    leased.sort();
    assert_eq!(leased, ["env:civo", "shop//main", "shop/prod/main"]);
    assert_eq!(control.lease(ask("w2", 9), at(2)).await.unwrap().len(), 3);
}

async fn at_most_one_open_task_changes_a_resource(place: StateLocation) {
    let control = control(&place).await;
    let (id, held) = leased(&control, "net", "w1", at(0)).await;
    let second = control.enqueue(vec![new_task(TaskOp::Apply, &id, at(0))], at(0)).await;
    assert!(matches!(second, Err(ControlError::Refused(_))), "{second:?}");
    let twice = || vec![new_task(TaskOp::Apply, &vpc("x"), at(0)), new_task(TaskOp::Delete, &vpc("x"), at(0))];
    assert!(matches!(control.enqueue(twice(), at(0)).await, Err(ControlError::Refused(_))));
    assert_eq!(place.number("SELECT COUNT(*) FROM tasks").await, 1, "all or nothing");
    // Applied anew while it runs: the controller's second task is not made.
    control.apply(applying(vec![desired(&id, json!({"n": 2}))]), at(1)).await.unwrap();
    let due = control.due(at(1), 10).await.unwrap().remove(0);
    assert_eq!(due.task.as_ref(), Some(&held.task));
    let what = Decided::Enqueue(new_task(TaskOp::Apply, &id, at(1)));
    let (generation, due_mark) = (due.resource.generation, due.meta.due_mark);
    control.decide(vec![Decision { id: id.clone(), generation, due_mark, what }], at(1)).await.unwrap();
    assert_eq!(place.number("SELECT COUNT(*) FROM tasks").await, 1);
    let loads = control.loads().await.unwrap();
    assert_eq!((loads[0].queued, loads[0].running), (0, 1));
}

async fn what_moved_on_is_due_again(place: StateLocation) {
    let control = control(&place).await;
    let (id, held) = accepted(&control, "net", "w1", at(0)).await;
    control.apply(applying(vec![desired(&id, json!({"n": 2}))]), at(1)).await.unwrap();
    enqueue_due(&control, at(1)).await;
    assert!(control.due(at(9), 10).await.unwrap().is_empty());
    control.record(&held, "k", is_ready(&id, 1), at(2)).await.unwrap();
    control.report(&held, done(), at(3)).await.unwrap();
    assert_eq!(enqueue_due(&control, at(3)).await, 1, "the second generation is yet to come");
    let again = control.lease(ask("w1", 1), at(4)).await.unwrap().remove(0);
    assert_eq!(again.task.generation, 2);
    let failed = Ending { retry_at: Some(at(60)), ..Ending::new(TaskOutcome::Failed, "quota") };
    control.report(&again.held, failed, at(5)).await.unwrap();
    assert!(control.due(at(59), 10).await.unwrap().is_empty());
    let due = control.due(at(60), 10).await.unwrap().remove(0);
    assert_eq!((due.meta.attempts, due.resource.status.state.as_str()), (1, "Failed"));
    assert_eq!(due.resource.status.message, "quota");
    enqueue_due(&control, at(60)).await;
    let third = control.lease(ask("w1", 1), at(60)).await.unwrap().remove(0);
    control.report(&third.held, Ending::new(TaskOutcome::Refused, "no such region"), at(61)).await.unwrap();
    assert!(control.due(at(9999), 10).await.unwrap().is_empty(), "saying it again does not help");
    // Unless someone asks for it.
    control.apply(applying(vec![desired(&id, json!({"n": 2}))]), at(62)).await.unwrap();
    assert!(control.due(at(62), 10).await.unwrap().is_empty());
    control.apply(Apply { retry: true, ..applying(vec![desired(&id, json!({"n": 2}))]) }, at(62)).await.unwrap();
    assert_eq!(control.due(at(62), 10).await.unwrap()[0].meta.attempts, 0);
}

async fn deletes_wait_for_children_and_win_over_applies(place: StateLocation) {
    let control = control(&place).await;
    let (parent, child) = (vpc("net"), vpc("child"));
    let with_parent = Desired { parents: vec![parent.clone()], ..desired(&child, json!({})) };
    control.apply(applying(vec![desired(&parent, json!({})), with_parent]), at(0)).await.unwrap();
    enqueue_due(&control, at(0)).await;
    let refused = control.delete(vec![parent.clone()], &actor(), note("delete"), at(1)).await.unwrap_err();
    assert!(matches!(&refused, ControlError::InUse { by, .. } if **by == child), "{refused}");
    assert!(matches!(
        control.delete(vec![vpc("nobody")], &actor(), note("delete"), at(1)).await,
        Err(ControlError::NotFound(_))
    ));
    let running = control.lease(ask("w1", 1), at(1)).await.unwrap().remove(0);
    control.delete(vec![parent.clone(), child.clone()], &actor(), note("delete"), at(2)).await.unwrap();
    // The queued apply is given up; the running one is asked to stop.
    let tasks = control.tasks(&TaskQuery { limit: 10, ..TaskQuery::default() }).await.unwrap();
    assert_eq!(tasks.iter().filter(|task| task.state == TaskState::Cancelled).count(), 1);
    let beat = control.heartbeat("w1", vec![running.held.clone()], LEASE, at(3)).await.unwrap();
    assert_eq!(beat.cancel, vec![running.held.clone()]);
    control.report(&running.held, Ending::new(TaskOutcome::Cancelled, "stopped"), at(4)).await.unwrap();
    enqueue_due(&control, at(4)).await;
    let leased = control.lease(ask("w1", 5), at(5)).await.unwrap();
    let of = |id: &ResourceId| leased.iter().find(|one| one.task.resource.as_ref() == Some(id)).expect("a delete");
    assert_eq!((of(&child).task.op, of(&parent).task.op), (TaskOp::Delete, TaskOp::Delete));
    // Its parent could not go yet; it is looked at when the child is gone.
    control.report(&of(&parent).held, Ending::new(TaskOutcome::Failed, "in use"), at(5)).await.unwrap();
    assert!(control.due(at(9), 10).await.unwrap().is_empty());
    accept(&control, &of(&child).held, at(6)).await;
    let gone = Recorded::ForgetResource(child.clone());
    control.record(&of(&child).held, "k1", gone, at(6)).await.unwrap();
    control.report(&of(&child).held, done(), at(6)).await.unwrap();
    assert!(control.store().resource(&child).await.unwrap().is_none());
    assert_eq!(control.due(at(6), 10).await.unwrap()[0].resource.id, parent);
    let due = control.due(at(6), 10).await.unwrap().remove(0);
    let (generation, due_mark) = (due.resource.generation, due.meta.due_mark);
    let forget = Decision { id: parent.clone(), generation, due_mark, what: Decided::Forget };
    control.decide(vec![forget], at(7)).await.unwrap();
    assert!(control.store().resource(&parent).await.unwrap().is_none());
    assert_eq!(place.number("SELECT COUNT(*) FROM links").await, 0);
}

async fn a_resource_that_is_wanted_again_outlives_its_delete(place: StateLocation) {
    let control = control(&place).await;
    let (id, deleting) = being_deleted(&control, "net", "w1").await;
    assert_eq!(deleting.task.op, TaskOp::Delete);
    accept(&control, &deleting.held, at(3)).await;
    let made = Recorded::Intent(create(&unit(&id, "network", "t1")));
    let entry = control.record(&deleting.held, "u", made, at(3)).await.unwrap().unwrap();
    let early = control.record(&deleting.held, "early", Recorded::ForgetResource(id.clone()), at(3)).await;
    assert!(matches!(early, Err(ControlError::Refused(_))), "its object is still there: {early:?}");
    let closing = Closing::Refused("no".into());
    control.record(&deleting.held, "c", Recorded::Close { entry, closing }, at(3)).await.unwrap();
    control.apply(applying(vec![desired(&id, json!({"region": "fra1"}))]), at(4)).await.unwrap();
    control.record(&deleting.held, "k", Recorded::ForgetResource(id.clone()), at(5)).await.unwrap();
    control.report(&deleting.held, done(), at(5)).await.unwrap();
    let stored = control.store().resource(&id).await.unwrap().expect("it is wanted");
    assert!(!stored.deleting && !stored.settled());
    assert!(control.store().units_of(&id).await.unwrap().is_empty());
    enqueue_due(&control, at(5)).await;
    assert_eq!(control.lease(ask("w1", 1), at(6)).await.unwrap()[0].task.op, TaskOp::Apply);
}

async fn plans_wait_for_approval(place: StateLocation) {
    let control = control(&place).await;
    let (id, held) = leased(&control, "net", "w1", at(0)).await;
    let approve = |digest: &'static str| {
        let (control, id) = (control.clone(), id.clone());
        async move { control.approve(&id, digest, &Actor::new("oidc:bob"), note("approve"), at(3)).await }
    };
    assert!(matches!(approve("d1").await, Err(ControlError::Refused(_))));
    control.submit_plan(&held, planned("{\"changes\":1}", "d1"), PlanDecision::AwaitApproval, at(2)).await.unwrap();
    assert!(matches!(control.report(&held, done(), at(2)).await, Ok(())), "the task is over, and was this worker's");
    assert!(control.due(at(99), 10).await.unwrap().is_empty());
    let meta = control.meta(std::slice::from_ref(&id)).await.unwrap().remove(0);
    assert_eq!((meta.plan.as_str(), meta.plan_digest.as_str()), ("{\"changes\":1}", "d1"));
    assert!(matches!(approve("d2").await, Err(ControlError::OtherPlan { waiting, .. }) if waiting == "d1"));
    approve("d1").await.unwrap();
    assert!(matches!(approve("d1").await, Err(ControlError::Refused(_))));
    assert_eq!(enqueue_due(&control, at(3)).await, 1);
    let again = control.lease(ask("w1", 1), at(4)).await.unwrap().remove(0);
    control.submit_plan(&again.held, planned("{}", "d1"), PlanDecision::Proceed, at(5)).await.unwrap();
    let meta = || async { control.meta(std::slice::from_ref(&id)).await.unwrap().remove(0) };
    assert_eq!(meta().await.approved_by, "oidc:bob");
    // Another plan was not approved, nor may it follow an accepted one.
    let other = control.submit_plan(&again.held, planned("{}", "d3"), PlanDecision::Block("no".into()), at(6)).await;
    assert!(matches!(other, Err(ControlError::Refused(_))), "{other:?}");
    control.release(&again.held, "again", at(6)).await.unwrap();
    let again = control.lease(ask("w1", 1), at(6)).await.unwrap().remove(0);
    control
        .submit_plan(&again.held, planned("{}", "d3"), PlanDecision::Block("too large".into()), at(6))
        .await
        .unwrap();
    assert_eq!(meta().await.approved_by, "");
    let stored = control.store().resource(&id).await.unwrap().unwrap();
    assert_eq!((stored.status.state.as_str(), stored.status.message.as_str()), ("Blocked", "too large"));
    assert!(control.lease(ask("w1", 9), at(7)).await.unwrap().is_empty());
    assert!(matches!(control.record(&again.held, "k", is_ready(&id, 1), at(7)).await, Err(ControlError::Fenced)));
}

async fn cancelled_tasks_rest(place: StateLocation) {
    let control = control(&place).await;
    let id = vpc("net");
    control.apply(applying(vec![desired(&id, json!({}))]), at(0)).await.unwrap();
    enqueue_due(&control, at(0)).await;
    let task = control.tasks(&TaskQuery { open: true, limit: 5, ..TaskQuery::default() }).await.unwrap().remove(0);
    control.cancel(&task.id, &actor(), note("cancel"), at(1)).await.unwrap();
    assert!(matches!(control.cancel(&task.id, &actor(), note("cancel"), at(1)).await, Err(ControlError::Refused(_))));
    assert!(control.lease(ask("w1", 1), at(2)).await.unwrap().is_empty());
    assert!(control.due(at(99), 10).await.unwrap().is_empty());
    control.apply(Apply { retry: true, ..applying(vec![desired(&id, json!({}))]) }, at(3)).await.unwrap();
    enqueue_due(&control, at(3)).await;
    let held = control.lease(ask("w1", 1), at(4)).await.unwrap().remove(0).held;
    control.cancel(&held.task, &actor(), note("cancel"), at(5)).await.unwrap();
    assert_eq!(control.heartbeat("w1", vec![held.clone()], LEASE, at(6)).await.unwrap().cancel, vec![held.clone()]);
    // The worker never says a word: its lease ends, and so does the task.
    assert_eq!(control.expire(at(99)).await.unwrap(), 1);
    let task = control.task(&held.task).await.unwrap().unwrap();
    assert_eq!(task.state, TaskState::Cancelled);
    let nobody = control.cancel(&TaskId("nobody".into()), &actor(), note("cancel"), at(9)).await;
    assert!(matches!(nobody, Err(ControlError::NotFound(_))));
}

async fn drift_checks_are_batched_and_made_up_for(place: StateLocation) {
    let control = control(&place).await;
    let every = Some(Duration::from_secs(100));
    let ids: Vec<ResourceId> = (0..4).map(|n| vpc(&format!("net-{n}"))).collect();
    let resources = ids.iter().enumerate().map(|(n, id)| Desired {
        drift_every: every,
        account: if n < 3 { "main" } else { "other" }.into(),
        ..desired(id, json!({}))
    });
    control.apply(applying(resources.collect()), at(0)).await.unwrap();
    assert!(control.drift_due(at(9999), 10).await.unwrap().is_empty(), "what is not ready does not drift");
    enqueue_due(&control, at(0)).await;
    for one in control.lease(ask("w1", 10), at(0)).await.unwrap() {
        accept(&control, &one.held, at(0)).await;
        control.record(&one.held, "k", is_ready(one.task.resource.as_ref().unwrap(), 1), at(0)).await.unwrap();
        control.report(&one.held, done(), at(0)).await.unwrap();
    }
    assert!(control.drift_due(at(49), 10).await.unwrap().is_empty());
    let mut due = control.drift_due(at(100), 10).await.unwrap();
    due.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(
        due.iter().map(|(account, list)| (account.as_str(), list.len())).collect::<Vec<_>>(),
        [("main", 3), ("other", 1)]
    );
    let drift = NewTask {
        op: TaskOp::Drift,
        resource: None,
        resources: due[0].1.iter().map(|one| one.id.clone()).collect(),
        ..new_task(TaskOp::Drift, &ids[0], at(100))
    };
    control.enqueue(vec![drift], at(100)).await.unwrap();
    assert_eq!(control.drift_due(at(100), 10).await.unwrap().len(), 1, "the other account's");
    assert!(control.lease(ask("w1", 10), at(100)).await.unwrap().is_empty(), "checks have places of their own");
    let held = control.lease(LeaseAsk { checks: 5, ..ask("w1", 0) }, at(100)).await.unwrap().remove(0).held;
    let found = |id: &ResourceId, generation, differences: &str| DriftFound {
        held: String::new(),
        id: id.clone(),
        generation,
        differences: differences.into(),
        repair: true,
        next: Some(at(500)),
    };
    let drift =
        vec![found(&ids[0], 1, "[1]"), found(&ids[1], 7, "[1]"), found(&ids[2], 1, ""), found(&ids[3], 1, "[1]")];
    let ending = Ending { drift, result: Some("{}".into()), ..done() };
    control.report(&held, ending, at(110)).await.unwrap();
    let metas = control.meta(&ids).await.unwrap();
    let drifts: Vec<_> = metas.iter().map(|meta| (meta.drift.as_str(), meta.drift_checked_at)).collect();
    assert_eq!(drifts, [("[1]", Some(at(110))), ("", None), ("", Some(at(110))), ("", None)]);
    assert_eq!((metas[0].drift_at, metas[1].drift_at), (Some(at(500)), Some(at(200))));
    let due = control.due(at(110), 10).await.unwrap();
    assert_eq!(due.iter().map(|due| &due.resource.id).collect::<Vec<_>>(), [&ids[0]], "to be repaired");
    assert_eq!(control.result(&held.task).await.unwrap().unwrap().expose_secret(), "{}");
    let events = control.events_newest(&EventFilter { name: Some("net-0".into()), ..EventFilter::default() }, 1).await;
    assert_eq!(events.unwrap()[0].what, "drifted");
    let drifted = FieldTerm::parse("drifted=true").unwrap();
    let listing = control.list(&ListQuery { fields: drifted, limit: 10, ..ListQuery::default() }).await.unwrap();
    assert_eq!(listing.resources.len(), 1);
}

async fn decisions_about_what_moved_on_are_skipped(place: StateLocation) {
    let control = control(&place).await;
    let id = vpc("net");
    control.apply(applying(vec![desired(&id, json!({}))]), at(0)).await.unwrap();
    let seen = control.due(at(0), 10).await.unwrap().remove(0);
    let decide = |what| Decision { id: id.clone(), generation: 1, due_mark: seen.meta.due_mark, what };
    // Something happened since, at the very same time.
    control.apply(Apply { retry: true, ..applying(vec![desired(&id, json!({}))]) }, at(0)).await.unwrap();
    control.decide(vec![decide(Decided::Rest)], at(0)).await.unwrap();
    let again = control.due(at(0), 10).await.unwrap().remove(0);
    assert!(again.meta.due_mark > seen.meta.due_mark);
    control.decide(vec![decide(Decided::Enqueue(new_task(TaskOp::Apply, &id, at(0))))], at(0)).await.unwrap();
    assert_eq!(place.number("SELECT COUNT(*) FROM tasks").await, 0);
    let until = Decided::SettleUntil { state: ResourceState::Pending, message: "later".into(), until: at(50) };
    let decision = Decision { id: id.clone(), generation: 1, due_mark: again.meta.due_mark, what: until };
    control.decide(vec![decision], at(1)).await.unwrap();
    assert!(control.due(at(49), 10).await.unwrap().is_empty());
    assert_eq!(control.due(at(50), 10).await.unwrap()[0].resource.status.message, "later");
    let forget = Decision { id: id.clone(), generation: 1, due_mark: again.meta.due_mark + 1, what: Decided::Forget };
    control.decide(vec![forget], at(50)).await.unwrap();
    assert!(control.store().resource(&id).await.unwrap().is_some(), "only what is being deleted is forgotten");
}

async fn payloads_results_and_logs(place: StateLocation) {
    let control = control(&place).await;
    let plan = NewTask {
        resource: None,
        payload: Some(SecretString::from("hunter2-payload".to_owned())),
        run_after: at(5),
        ..new_task(TaskOp::Plan, &vpc("net"), at(0))
    };
    let id = control.enqueue(vec![plan], at(0)).await.unwrap().remove(0);
    assert_eq!(control.payload(&id).await.unwrap().unwrap().expose_secret(), "hunter2-payload");
    assert!(control.result(&id).await.unwrap().is_none());
    assert!(control.lease(ask("w1", 1), at(4)).await.unwrap().is_empty(), "its time has not come");
    assert_eq!(control.next_due().await.unwrap(), Some(at(5)));
    let held = control.lease(ask("w1", 1), at(5)).await.unwrap().remove(0).held;
    for turn in 0..3 {
        let lines = (0..900).map(|line| (at(6), format!("line {}", turn * 900 + line))).collect();
        control.progress(&held, &format!("step {turn}"), lines, at(6)).await.unwrap();
    }
    let first = control.task_log(&id, 0, 10).await.unwrap();
    assert_eq!((first.len(), first[0].0, first[0].2.as_str()), (10, 701, "line 700"), "the oldest are gone");
    assert_eq!(control.task_log(&id, 2699, 10).await.unwrap(), [(2700, at(6), "line 2699".to_owned())]);
    assert_eq!(control.task(&id).await.unwrap().unwrap().message, "step 2");
    let refused = control.record(&held, "k", is_ready(&vpc("net"), 1), at(7)).await;
    assert!(matches!(refused, Err(ControlError::Refused(_))), "a plan changes nothing");
    let ending = Ending {
        result: Some("hunter2-result".into()),
        help: vec!["try this".into()],
        ..Ending::new(TaskOutcome::Failed, "no")
    };
    control.report(&held, ending, at(8)).await.unwrap();
    assert_eq!(control.result(&id).await.unwrap().unwrap().expose_secret(), "hunter2-result");
    let task = control.task(&id).await.unwrap().unwrap();
    assert_eq!((task.state, task.help), (TaskState::Failed, vec!["try this".to_owned()]));
    let stored = place.texts("SELECT payload || result FROM tasks").await;
    assert!(!stored[0].contains("hunter2"));
    // Old ones go, and their logs with them.
    assert_eq!(control.prune(at(1000)).await.unwrap(), 0);
    assert!(control.prune(at(1_300_000)).await.unwrap() >= 1);
    assert!(control.task(&id).await.unwrap().is_none());
    assert_eq!(place.number("SELECT COUNT(*) FROM task_log").await, 0);
}

async fn a_run_and_a_server_keep_apart(place: StateLocation) {
    let store = open(&place.address).await;
    let run = store.begin_run("berth apply").await.unwrap();
    let error = refused(Control::open(store.clone()).await);
    let StoreError::Locked { holder, .. } = &error else { panic!("{error}") };
    assert_eq!(holder.command, "berth apply");
    run.finish().await;
    let control = Control::open(store.clone()).await.unwrap();
    let error = refused(store.begin_run("berth apply").await);
    assert!(matches!(&error, StoreError::Server { .. }) && error.help()[0].contains("berth login"), "{error}");
    control.close().await;
    assert!(matches!(control.expire(at(0)).await, Ok(0) | Err(ControlError::Store(StoreError::Ended))));
    let error = refused(store.begin_run("berth apply").await);
    assert!(matches!(error, StoreError::Server { .. }), "also while no server runs");
    Control::open(store).await.expect("a server starts anew");
}
