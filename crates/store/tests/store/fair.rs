//! Who gets which task next, and that a long queue costs nothing.

use crate::fixtures::*;
use crate::*;
use berth_store::*;
use std::time::{Duration, Instant};

on_both! {
    orgs_then_accounts_take_turns,
    an_account_has_so_many_places,
    services_and_priorities_and_times_are_kept,
    checks_and_changes_have_places_of_their_own,
    a_long_queue_is_leased_from_fast,
}

fn task(org: &str, account: &str, name: &str) -> NewTask {
    let id = ResourceId { org: org.into(), ..vpc(name) };
    NewTask { account: account.into(), ..new_task(TaskOp::Apply, &id, at(0)) }
}

fn names(leased: &[Leased]) -> Vec<&str> {
    leased.iter().filter_map(|one| Some(one.task.resource.as_ref()?.name.as_str())).collect()
}

async fn orgs_then_accounts_take_turns(place: StateLocation) {
    let control = control(&place).await;
    let mut tasks: Vec<NewTask> = (0..40).map(|n| task("acme", "main", &format!("big-{n}"))).collect();
    tasks.extend((0..4).map(|n| task("acme", "small", &format!("small-{n}"))));
    tasks.extend((0..3).map(|n| task("other", "main", &format!("other-{n}"))));
    control.enqueue(tasks, at(0)).await.unwrap();
    let mut order = Vec::new();
    for turn in 0..6 {
        let leased = control.lease(ask("w1", 2), at(turn)).await.unwrap();
        order.extend(leased.iter().map(|one| (one.task.org.clone(), one.task.account.clone())));
    }
    let of = |org: &str| order.iter().filter(|(name, _)| name == org).count();
    assert_eq!((of("acme"), of("other")), (9, 3), "{order:?}");
    assert_eq!(order[..6].iter().filter(|(org, _)| org == "other").count(), 3, "an org with few tasks waits for none");
    let small = order.iter().take(8).filter(|(_, account)| account == "small").count();
    assert!(small >= 2, "accounts of an org take turns: {order:?}");
}

async fn an_account_has_so_many_places(place: StateLocation) {
    let control = control(&place).await;
    let wanted = (0..10).map(|n| desired(&vpc(&format!("n-{n}")), json!({}))).collect();
    control.apply(applying(wanted), at(0)).await.unwrap();
    let limited = |n| NewTask { account_limit: 3, ..task("acme", "main", &format!("n-{n}")) };
    control.enqueue((0..10).map(limited).collect(), at(0)).await.unwrap();
    let first = control.lease(ask("w1", 8), at(1)).await.unwrap();
    assert_eq!(first.len(), 3);
    assert!(control.lease(ask("w2", 8), at(1)).await.unwrap().is_empty());
    let loads = control.loads().await.unwrap();
    let load = AccountLoad { org: "acme".into(), account: "main".into(), queued: 7, running: 3, limit: 3 };
    assert_eq!(loads, [load]);
    control.report(&first[0].held, Ending::new(TaskOutcome::Failed, ""), at(2)).await.unwrap();
    control.release(&first[1].held, "", at(2)).await.unwrap();
    let next = control.lease(ask("w2", 8), at(2)).await.unwrap();
    assert_eq!(names(&next), ["n-1", "n-3"], "the oldest first");
    // A server that starts anew counts the same.
    control.close().await;
    let control = Control::open(control.store().clone()).await.unwrap();
    assert!(control.lease(ask("w3", 8), at(3)).await.unwrap().is_empty());
    assert_eq!(control.expire(at(40)).await.unwrap(), 3);
    assert_eq!(control.lease(ask("w3", 8), at(40)).await.unwrap().len(), 3);
}

async fn services_and_priorities_and_times_are_kept(place: StateLocation) {
    let control = control(&place).await;
    let tasks = vec![
        task("acme", "main", "plain"),
        NewTask { priority: 5, ..task("acme", "main", "urgent") },
        NewTask { run_after: at(10), priority: 9, ..task("acme", "main", "later") },
        NewTask { service: "kubernetes".into(), ..task("acme", "main", "cluster") },
    ];
    control.enqueue(tasks, at(0)).await.unwrap();
    let network = |count| LeaseAsk { services: vec!["network".into()], ..ask("w1", count) };
    assert_eq!(names(&control.lease(network(1), at(1)).await.unwrap()), ["urgent"]);
    assert_eq!(names(&control.lease(network(5), at(1)).await.unwrap()), ["plain"]);
    assert_eq!(names(&control.lease(network(5), at(10)).await.unwrap()), ["later"]);
    let storage = LeaseAsk { services: vec!["storage".into()], ..ask("w2", 5) };
    assert!(control.lease(storage, at(11)).await.unwrap().is_empty());
    assert_eq!(names(&control.lease(ask("w2", 5), at(11)).await.unwrap()), ["cluster"]);
}

async fn checks_and_changes_have_places_of_their_own(place: StateLocation) {
    let control = control(&place).await;
    control.apply(applying(vec![desired(&vpc("n"), json!({}))]), at(0)).await.unwrap();
    let drift = |n| {
        let resources = vec![vpc(&format!("d-{n}"))];
        NewTask { op: TaskOp::Drift, resource: None, resources, account_limit: 1, ..task("acme", "main", "") }
    };
    control.enqueue((0..5).map(drift).collect(), at(0)).await.unwrap();
    let checks = control.lease(LeaseAsk { checks: 4, ..ask("w1", 4) }, at(1)).await.unwrap();
    assert_eq!(checks.len(), 1, "one place for checks of this account");
    assert_eq!(checks[0].task.resources, vec![vpc("d-0")]);
    control.enqueue(vec![NewTask { account_limit: 1, ..task("acme", "main", "n") }], at(1)).await.unwrap();
    assert_eq!(names(&control.lease(ask("w1", 1), at(1)).await.unwrap()), ["n"], "a check takes no change's place");
    assert_eq!(control.expire(at(60)).await.unwrap(), 2);
    let again = control.lease(LeaseAsk { checks: 4, ..ask("w1", 4) }, at(60)).await.unwrap();
    assert_eq!(again.len(), 2, "checks go on after their worker died");
}

async fn a_long_queue_is_leased_from_fast(place: StateLocation) {
    let control = control(&place).await;
    let fill = "INSERT INTO tasks (id, op, mutates, checks, state, waiting, cancelling, kind, name, org, env, lane_org, \
        account, service, account_limit, priority, generation, worker, fence, attempts, created_at, run_after, message, \
        help, trace, resources, payload, result) \
        SELECT 'task-' || (1000000 + i), 'apply', TRUE, FALSE, 'queued', i % 10 = 9, FALSE, 'K', 'n-' || i, 'o', 'e', \
        'org-' || (i % 7), 'account-' || (i % 50), 'network', 0, i % 3, 1, '', 0, 0, 1, 9000000000000000, '', '', '', '', '', '' \
        FROM n";
    place
        .sql(&format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) {fill}"))
        .await;
    control.close().await;
    let control = Control::open(control.store().clone()).await.unwrap();
    assert_eq!(control.loads().await.unwrap().iter().map(|load| load.queued).sum::<u32>(), 90_000);
    control.lease(ask("w1", 1), at(0)).await.unwrap();
    let clock = Instant::now();
    for turn in 0..20 {
        let leased = control.lease(ask("w1", 10), at(turn)).await.unwrap();
        assert_eq!(leased.len(), 10);
        assert!(leased.iter().all(|one| one.task.priority == 2), "{leased:?}");
    }
    // A look over the whole queue would take longer for one of them alone.
    assert!(clock.elapsed() < Duration::from_secs(4), "{:?}", clock.elapsed());
}
