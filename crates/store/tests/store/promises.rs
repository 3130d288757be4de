//! What whoever trusts a server counts on: nothing waits for ever, nothing stale is believed, and what was allowed once was
//! allowed for that.

use crate::fixtures::*;
use crate::*;
use berth_engine::ResourceState;
use berth_store::*;
use jiff::Timestamp;
use std::time::Duration;

on_both! {
    children_follow_what_they_refer_to,
    nothing_refers_to_what_goes,
    a_deletion_is_asked_for_again,
    a_delete_whose_resource_came_again_is_given_up,
    a_task_that_workers_die_of_waits,
    a_check_older_than_a_change_writes_nothing,
    permissions_end_with_their_change,
    drift_is_looked_for_after_failures,
    a_schedule_that_changed_counts,
    an_object_has_one_resource,
    nobody_approves_their_own,
    work_of_no_service_is_for_any_worker,
}

async fn meta(control: &Control, id: &ResourceId) -> ControlMeta {
    control.meta(std::slice::from_ref(id)).await.unwrap().remove(0)
}

async fn stored(control: &Control, id: &ResourceId) -> StoredResource {
    control.store().resource(id).await.unwrap().expect("it is there")
}

fn ready_with(id: &ResourceId, generation: i64, outputs: Value) -> Recorded {
    let status = Status { observed_generation: generation, ..ready(outputs) };
    Recorded::Status { resource: id.clone(), status }
}

/// Everything that is due is carried out by one worker, and becomes Ready with these outputs. Who was.
async fn carry_out(control: &Control, outputs: Value, now: Timestamp) -> Vec<String> {
    enqueue_due(control, now).await;
    let mut names = Vec::new();
    for Leased { held, task } in control.lease(ask("w", 100), now).await.unwrap() {
        let id = task.resource.unwrap();
        accept(control, &held, now).await;
        control.record(&held, "ready", ready_with(&id, task.generation, outputs.clone()), now).await.unwrap();
        control.report(&held, done(), now).await.unwrap();
        names.push(id.name);
    }
    names.sort();
    names
}

/// A drift check of these, held by a worker.
async fn checking(control: &Control, ids: &[&ResourceId], now: Timestamp) -> Leased {
    let resources = ids.iter().map(|id| (*id).clone()).collect();
    let task = NewTask { resource: None, resources, refresh: true, ..new_task(TaskOp::Drift, ids[0], now) };
    control.enqueue(vec![task], now).await.unwrap();
    control.lease(LeaseAsk { checks: 1, ..ask("checker", 0) }, now).await.unwrap().remove(0)
}

fn found(id: &ResourceId, differences: &str, repair: bool, next: Option<Timestamp>) -> DriftFound {
    DriftFound { id: id.clone(), generation: 1, differences: differences.into(), repair, held: String::new(), next }
}

async fn children_follow_what_they_refer_to(place: StateLocation) {
    let control = control(&place).await;
    let (parent, child, other) = (vpc("net"), vpc("child"), vpc("other"));
    let referring = |spec| Desired { parents: vec![parent.clone()], allow_replace: true, ..desired(&child, spec) };
    let all = vec![desired(&parent, json!({"n": 1})), referring(json!({})), desired(&other, json!({}))];
    control.apply(applying(all), at(0)).await.unwrap();
    // Here the child does not wait for its parent: whatever it was made from was not what it refers to.
    assert_eq!(carry_out(&control, json!({"id": "a"}), at(1)).await, ["child", "net", "other"]);
    assert_eq!(carry_out(&control, json!({"id": "a"}), at(2)).await, ["child"], "its parent became Ready meanwhile");
    assert!(carry_out(&control, json!({"id": "a"}), at(3)).await.is_empty(), "nothing changed for anyone");
    // Carried out again with the same outcome: nobody else is concerned.
    let again = |spec| Apply { retry: true, ..applying(vec![desired(&parent, spec)]) };
    control.apply(again(json!({"n": 1})), at(4)).await.unwrap();
    assert_eq!(carry_out(&control, json!({"id": "a"}), at(4)).await, ["net"]);
    assert!(carry_out(&control, json!({"id": "a"}), at(4)).await.is_empty());
    // Another object in the same place: its id is what the child was made from.
    let by_alice = Apply { actor: Actor::new("oidc:alice"), ..again(json!({"n": 1})) };
    control.apply(by_alice, at(5)).await.unwrap();
    assert_eq!(carry_out(&control, json!({"id": "b"}), at(5)).await, ["net"]);
    let waiting = stored(&control, &child).await;
    assert_eq!((waiting.status.state.as_str(), waiting.settled()), ("Pending", false));
    assert!(waiting.status.message.contains("net has changed"), "{}", waiting.status.message);
    let known = meta(&control, &child).await;
    assert!(!known.allow_replace, "nobody allowed this");
    assert_eq!(known.applied_by, "oidc:alice", "whoever caused it does not approve it");
    assert!(stored(&control, &other).await.settled());
    assert_eq!(carry_out(&control, json!({"id": "b"}), at(6)).await, ["child"]);
    // Another manifest: a reference may be to a field of it.
    control.apply(applying(vec![desired(&parent, json!({"n": 2}))]), at(7)).await.unwrap();
    assert_eq!(carry_out(&control, json!({"id": "b"}), at(7)).await, ["net"]);
    assert_eq!(carry_out(&control, json!({"id": "b"}), at(8)).await, ["child"]);
    assert!(carry_out(&control, json!({"id": "b"}), at(9)).await.is_empty());
    // What a check writes down counts as well.
    let check = checking(&control, &[&parent], at(10)).await;
    control.record(&check.held, "s", ready_with(&parent, 2, json!({"id": "c"})), at(10)).await.unwrap();
    control.report(&check.held, done(), at(10)).await.unwrap();
    assert_eq!(carry_out(&control, json!({"id": "c"}), at(11)).await, ["child"]);
}

async fn nothing_refers_to_what_goes(place: StateLocation) {
    let control = control(&place).await;
    let parent = vpc("net");
    let child = |n: usize| Desired { parents: vec![parent.clone()], ..desired(&vpc(&format!("c{n:03}")), json!({})) };
    control.apply(applying(vec![desired(&parent, json!({}))]), at(0)).await.unwrap();
    control.apply(applying((0..150).map(child).collect()), at(0)).await.unwrap();
    let delete = async |ids: Vec<ResourceId>| control.delete(ids, &actor(), note("delete"), at(1)).await;
    let refused = delete(vec![parent.clone()]).await.unwrap_err();
    assert!(matches!(&refused, ControlError::InUse { id, by, more: 99 } if **id == parent && by.name == "c000"));
    assert!(refused.to_string().contains("refers to it, and 99 more like it"), "{refused}");
    // All but the last one: however many they are, the one that stays is seen.
    let mut most: Vec<ResourceId> = (0..149).map(|n| vpc(&format!("c{n:03}"))).collect();
    most.push(parent.clone());
    let refused = delete(most.clone()).await.unwrap_err();
    assert!(matches!(&refused, ControlError::InUse { by, more: 0, .. } if by.name == "c149"), "{refused}");
    assert_eq!(place.number("SELECT COUNT(*) FROM resources WHERE deleting").await, 0, "all or nothing");
    assert_eq!(place.number("SELECT COUNT(*) FROM events WHERE what = 'deleting'").await, 0);
    most.push(vpc("c149"));
    delete(most).await.unwrap();
    assert_eq!(place.number("SELECT COUNT(*) FROM resources WHERE deleting").await, 151);
    // From now on nothing may refer to it, be it new, or one that is wanted again.
    for n in [7, 777] {
        let refused = control.apply(applying(vec![child(n)]), at(2)).await.unwrap_err();
        assert!(matches!(&refused, ControlError::Going { parent: of, .. } if **of == parent), "{refused}");
    }
    assert_eq!(place.number("SELECT COUNT(*) FROM resources WHERE deleting").await, 151);
    // Unless it is wanted again itself.
    control.apply(applying(vec![child(7), desired(&parent, json!({}))]), at(3)).await.unwrap();
    assert_eq!(place.number("SELECT COUNT(*) FROM resources WHERE deleting").await, 149);
    control.apply(applying(vec![child(777)]), at(4)).await.unwrap();
}

async fn a_deletion_is_asked_for_again(place: StateLocation) {
    let control = control(&place).await;
    let (id, held) = accepted(&control, "net", "w1", at(0)).await;
    control.record(&held, "k", is_ready(&id, 1), at(1)).await.unwrap();
    control.report(&held, done(), at(1)).await.unwrap();
    let delete = async |now| control.delete(vec![id.clone()], &actor(), note("delete"), now).await.unwrap();
    delete(at(2)).await;
    for (turn, blocked) in [(10, true), (20, false)] {
        enqueue_due(&control, at(turn)).await;
        let task = control.lease(ask("w1", 1), at(turn)).await.unwrap().remove(0);
        assert_eq!(task.task.op, TaskOp::Delete);
        if blocked {
            let said = PlanDecision::Block("nothing is deleted on Fridays".into());
            control.submit_plan(&task.held, planned("{}", "d"), said, at(turn)).await.unwrap();
        } else {
            control.report(&task.held, Ending::new(TaskOutcome::Refused, "no"), at(turn)).await.unwrap();
        }
        assert!(control.due(at(9999), 10).await.unwrap().is_empty(), "it rests");
        delete(at(turn + 1)).await;
        assert_eq!(stored(&control, &id).await.status.state, ResourceState::Deleting);
        assert_eq!(control.due(at(turn + 1), 10).await.unwrap().len(), 1, "until it is asked for again");
    }
    // A plan that waits for approval goes on waiting.
    enqueue_due(&control, at(30)).await;
    let task = control.lease(ask("w1", 1), at(30)).await.unwrap().remove(0);
    control.submit_plan(&task.held, planned("{}", "d"), PlanDecision::AwaitApproval, at(30)).await.unwrap();
    delete(at(31)).await;
    assert_eq!(stored(&control, &id).await.status.state, ResourceState::AwaitingApproval);
    control.approve(&id, "d", &Actor::new("oidc:bob"), note("approve"), at(32)).await.unwrap();
}

async fn a_delete_whose_resource_came_again_is_given_up(place: StateLocation) {
    let control = control(&place).await;
    let (id, deleting) = being_deleted(&control, "net", "w1").await;
    accept(&control, &deleting.held, at(4)).await;
    control.record(&deleting.held, "k", Recorded::ForgetResource(id.clone()), at(4)).await.unwrap();
    // The worker dies here; its report never comes. Someone declares a resource of the same name.
    control.apply(applying(vec![desired(&id, json!({"new": true}))]), at(5)).await.unwrap();
    enqueue_due(&control, at(5)).await;
    assert_eq!(control.expire(at(60)).await.unwrap(), 1);
    let task = control.task(&deleting.held.task).await.unwrap().unwrap();
    assert_eq!(task.state, TaskState::Cancelled, "the new one is not to be deleted");
    enqueue_due(&control, at(60)).await;
    assert_eq!(control.lease(ask("w2", 1), at(61)).await.unwrap()[0].task.op, TaskOp::Apply);
    assert_eq!(control.loads().await.unwrap()[0].queued, 0);
}

async fn a_task_that_workers_die_of_waits(place: StateLocation) {
    let control = control(&place).await;
    let (_, first) = leased(&control, "net", "w0", at(0)).await;
    let mut now = 0;
    let mut pauses = Vec::new();
    for n in 1..14 {
        now += 31;
        assert_eq!(control.expire(at(now)).await.unwrap(), 1);
        let began = now;
        loop {
            let leased = control.lease(ask(&format!("w{n}"), 1), at(now)).await.unwrap();
            if let [one] = &leased[..] {
                assert_eq!((&one.held.task, one.task.attempts), (&first.task, n + 1));
                break;
            }
            let next = control.next_due().await.unwrap().expect("its time is known");
            assert!(next > at(now), "a look that finds nothing must not be followed by another at once");
            now += next.duration_since(at(now)).as_secs();
        }
        pauses.push(now - began);
    }
    assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 64, 120, 120, 120, 120]);
    // Also where no worker asks: whoever expires leases wakes those who wait.
    now += 31;
    control.expire(at(now)).await.unwrap();
    assert_eq!(control.loads().await.unwrap()[0].queued, 0);
    now += 120;
    control.expire(at(now)).await.unwrap();
    assert_eq!(control.loads().await.unwrap()[0].queued, 1);
    assert_eq!(control.next_due().await.unwrap(), None);
}

async fn a_check_older_than_a_change_writes_nothing(place: StateLocation) {
    let control = control(&place).await;
    let (id, held) = accepted(&control, "net", "w1", at(0)).await;
    let unit = unit(&id, "network", "old");
    control.record(&held, "u", Recorded::Intent(create(&unit)), at(1)).await.unwrap();
    control.record(&held, "k", is_ready(&id, 1), at(1)).await.unwrap();
    control.report(&held, done(), at(1)).await.unwrap();
    let check = checking(&control, &[&id], at(10)).await;
    // A change begins and ends while the check is on its way: the object is another one now.
    control
        .apply(Apply { retry: true, ..applying(vec![desired(&id, json!({"region": "fra1"}))]) }, at(11))
        .await
        .unwrap();
    enqueue_due(&control, at(11)).await;
    let change = control.lease(ask("w1", 1), at(11)).await.unwrap().remove(0);
    accept(&control, &change.held, at(11)).await;
    let old = Recorded::ForgetUnit { resource: id.clone(), key: "network".into(), token: "old".into() };
    control.record(&change.held, "u", old, at(12)).await.unwrap();
    let save = || Recorded::SaveUnit(unit.clone());
    let refused = control.record(&check.held, "u1", save(), at(12)).await.unwrap_err();
    assert!(matches!(&refused, ControlError::Refused(why) if why.contains("was changed")), "{refused}");
    control.record(&change.held, "k", is_ready(&id, 1), at(13)).await.unwrap();
    control.report(&change.held, done(), at(13)).await.unwrap();
    assert!(matches!(control.record(&check.held, "u2", save(), at(14)).await, Err(ControlError::Refused(_))));
    let status = ready_with(&id, 1, json!({"id": "old"}));
    assert!(matches!(control.record(&check.held, "s", status, at(14)).await, Err(ControlError::Refused(_))));
    let drift = vec![found(&id, "[1]", true, None)];
    control.report(&check.held, Ending { drift, ..done() }, at(15)).await.unwrap();
    assert!(control.store().units_of(&id).await.unwrap().is_empty());
    assert_eq!(meta(&control, &id).await.drift, "", "what it saw is no more");
    assert!(control.due(at(99), 10).await.unwrap().is_empty());
    // One that began after it knows.
    let check = checking(&control, &[&id], at(20)).await;
    let gone = control.record(&check.held, "u", save(), at(20)).await;
    assert!(matches!(gone, Err(ControlError::Refused(_))), "a check makes no rows: {gone:?}");
    control.record(&check.held, "s", ready_with(&id, 1, json!({"id": "new"})), at(20)).await.unwrap();
    let drift = vec![found(&id, "[1]", true, None)];
    control.report(&check.held, Ending { drift, ..done() }, at(21)).await.unwrap();
    assert_eq!(meta(&control, &id).await.drift, "[1]");
    assert_eq!(control.due(at(21), 10).await.unwrap().len(), 1);
}

async fn permissions_end_with_their_change(place: StateLocation) {
    let control = control(&place).await;
    let id = vpc("net");
    let allowed = |spec| Desired { allow_replace: true, allow_data_loss: true, ..desired(&id, spec) };
    control.apply(applying(vec![allowed(json!({}))]), at(0)).await.unwrap();
    enqueue_due(&control, at(0)).await;
    let task = control.lease(ask("w1", 1), at(1)).await.unwrap().remove(0);
    control
        .submit_plan(&task.held, planned("{\"replace\":1}", "d1"), PlanDecision::AwaitApproval, at(1))
        .await
        .unwrap();
    control.approve(&id, "d1", &Actor::new("oidc:bob"), note("approve"), at(2)).await.unwrap();
    enqueue_due(&control, at(2)).await;
    let task = control.lease(ask("w1", 1), at(3)).await.unwrap().remove(0);
    control.submit_plan(&task.held, planned("{\"replace\":1}", "d1"), PlanDecision::Proceed, at(3)).await.unwrap();
    // Cut short: what was allowed is still to be done.
    control
        .report(&task.held, Ending { retry_at: Some(at(5)), ..Ending::new(TaskOutcome::Failed, "503") }, at(4))
        .await
        .unwrap();
    let known = meta(&control, &id).await;
    assert!(
        known.allow_replace && known.allow_data_loss && known.plan_digest == "d1" && known.approved_by == "oidc:bob"
    );
    enqueue_due(&control, at(5)).await;
    let task = control.lease(ask("w1", 1), at(5)).await.unwrap().remove(0);
    control.submit_plan(&task.held, planned("{\"replace\":1}", "d1"), PlanDecision::Proceed, at(5)).await.unwrap();
    control.record(&task.held, "k", is_ready(&id, 1), at(6)).await.unwrap();
    control.report(&task.held, done(), at(6)).await.unwrap();
    let known = meta(&control, &id).await;
    assert!(!known.allow_replace && !known.allow_data_loss && known.plan_digest.is_empty(), "{known:?}");
    // Nor does one that is as declared take permissions for later.
    control.apply(applying(vec![allowed(json!({}))]), at(7)).await.unwrap();
    let known = meta(&control, &id).await;
    assert!(!known.allow_replace && !known.allow_data_loss);
    control.apply(Apply { retry: true, ..applying(vec![allowed(json!({}))]) }, at(8)).await.unwrap();
    assert!(meta(&control, &id).await.allow_replace, "this one is carried out");
}

async fn drift_is_looked_for_after_failures(place: StateLocation) {
    let control = control(&place).await;
    let id = vpc("net");
    let every = Some(Duration::from_secs(100));
    let declared = |spec| Desired { drift_every: every, ..desired(&id, spec) };
    control.apply(applying(vec![declared(json!({}))]), at(0)).await.unwrap();
    enqueue_due(&control, at(0)).await;
    let first = control.lease(ask("w1", 1), at(0)).await.unwrap().remove(0);
    control
        .report(&first.held, Ending { retry_at: Some(at(1)), ..Ending::new(TaskOutcome::Failed, "503") }, at(0))
        .await
        .unwrap();
    assert_eq!(meta(&control, &id).await.drift_at, None, "nothing is there yet that could drift");
    assert_eq!(carry_out(&control, json!({}), at(1)).await, ["net"]);
    assert!(meta(&control, &id).await.drift_at.is_some());
    // An update that fails for good, one that is blocked, one that waits for approval.
    for (n, end) in ["refused", "blocked", "waits"].into_iter().enumerate() {
        let now = 10 * (n as i64 + 1);
        control.apply(applying(vec![declared(json!({ "n": n }))]), at(now)).await.unwrap();
        enqueue_due(&control, at(now)).await;
        let Leased { mut held, .. } = control.lease(ask("w1", 1), at(now)).await.unwrap().remove(0);
        accept(&control, &held, at(now)).await;
        let pending = Status { state: ResourceState::Pending, ..Status::default() };
        control.record(&held, "p", Recorded::Status { resource: id.clone(), status: pending }, at(now)).await.unwrap();
        assert_eq!(meta(&control, &id).await.drift_at, None, "not while it is changed");
        if end != "refused" {
            control.release(&held, "planned anew", at(now)).await.unwrap();
            held = control.lease(ask("w1", 1), at(now)).await.unwrap().remove(0).held;
        }
        match end {
            "refused" => control.report(&held, Ending::new(TaskOutcome::Refused, "no"), at(now)).await.unwrap(),
            "blocked" => {
                control
                    .submit_plan(&held, planned("{}", "d"), PlanDecision::Block("no".into()), at(now))
                    .await
                    .unwrap();
            }
            _ => control.submit_plan(&held, planned("{}", "d"), PlanDecision::AwaitApproval, at(now)).await.unwrap(),
        }
        assert_eq!(meta(&control, &id).await.drift_at, Some(at(now + 100)), "{end}");
    }
    // A check that could not see anything is made up for; one that found something does not wake what waits for approval.
    let check = checking(&control, &[&id], at(200)).await;
    assert_eq!(meta(&control, &id).await.drift_at, Some(at(300)));
    let drift = vec![DriftFound { generation: 4, ..found(&id, "[1]", true, Some(at(250))) }];
    control.report(&check.held, Ending { drift, ..done() }, at(200)).await.unwrap();
    assert_eq!(meta(&control, &id).await.drift_at, Some(at(250)));
    assert!(control.due(at(200), 10).await.unwrap().is_empty());
    assert_eq!(stored(&control, &id).await.status.state, ResourceState::AwaitingApproval);
}

async fn a_schedule_that_changed_counts(place: StateLocation) {
    let control = control(&place).await;
    let id = vpc("net");
    let apply = async |every: Option<u64>, now| {
        let one = Desired { drift_every: every.map(Duration::from_secs), ..desired(&id, json!({})) };
        control.apply(applying(vec![one]), now).await.unwrap()
    };
    apply(None, at(0)).await;
    carry_out(&control, json!({}), at(0)).await;
    assert_eq!(meta(&control, &id).await.drift_at, None);
    // The manifest is the same; when to look is not.
    assert_eq!(apply(Some(100), at(1)).await[0].result, AppliedResult::Unchanged);
    assert_eq!(meta(&control, &id).await.drift_at, Some(at(101)));
    apply(None, at(2)).await;
    assert_eq!(meta(&control, &id).await.drift_at, None);
    // Its Environment says so for all of them; the check tells when the next is due, or that there is none.
    control.reschedule("acme", "elsewhere", at(3)).await.unwrap();
    control.reschedule("other", "prod", at(3)).await.unwrap();
    assert_eq!(meta(&control, &id).await.drift_at, None);
    control.reschedule("", "prod", at(3)).await.unwrap();
    let due = meta(&control, &id).await.drift_at.expect("soon");
    assert!(due >= at(3) && due <= at(303));
    let check = checking(&control, &[&id], at(400)).await;
    let drift = vec![found(&id, "", false, None)];
    control.report(&check.held, Ending { drift, ..done() }, at(401)).await.unwrap();
    assert_eq!(meta(&control, &id).await.drift_at, None, "it is off");
}

async fn an_object_has_one_resource(place: StateLocation) {
    let control = control(&place).await;
    let import = |name: &str, account: &str| {
        let id = vpc(name);
        let object = UnitState { id: Some("object-1".into()), account: account.into(), ..unit(&id, "network", "t") };
        applying(vec![Desired { expect: Some(0), units: vec![object], ..desired(&id, json!({})) }])
    };
    // Both looked, found it free, and store it at the same time.
    let (one, other) = tokio::join!(control.apply(import("a", "m"), at(0)), control.apply(import("b", "m"), at(0)));
    let refused = [one, other].into_iter().find_map(Result::err).expect("one is too late");
    assert!(matches!(&refused, ControlError::Refused(why) if why.contains("managed already")), "{refused}");
    assert_eq!(place.number("SELECT COUNT(*) FROM resources").await, 1);
    assert_eq!(place.number("SELECT COUNT(*) FROM units").await, 1);
    control.apply(import("c", "n"), at(1)).await.expect("another account's is another");
}

async fn nobody_approves_their_own(place: StateLocation) {
    let control = control(&place).await;
    let (id, held) = leased(&control, "net", "w1", at(0)).await;
    control.submit_plan(&held, planned("{}", "d1"), PlanDecision::AwaitApproval, at(2)).await.unwrap();
    let own = control.approve(&id, "d1", &actor(), note("approve"), at(3)).await.unwrap_err();
    assert!(matches!(&own, ControlError::OwnChange { .. }), "{own}");
    control.approve(&id, "d1", &Actor::new("oidc:bob"), note("approve"), at(3)).await.unwrap();
}

async fn work_of_no_service_is_for_any_worker(place: StateLocation) {
    let control = control(&place).await;
    let plan =
        |service: &str| NewTask { resource: None, service: service.into(), ..new_task(TaskOp::Plan, &vpc("x"), at(0)) };
    control.enqueue(vec![plan(""), plan("kubernetes"), plan("network")], at(0)).await.unwrap();
    let asked = LeaseAsk { services: vec!["network".into()], ..ask("w", 9) };
    let leased = control.lease(asked, at(0)).await.unwrap();
    let mut services: Vec<_> = leased.iter().map(|one| one.task.service.as_str()).collect();
    services.sort_unstable();
    assert_eq!(services, ["", "network"]);
}
