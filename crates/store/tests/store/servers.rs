//! Several servers on one database, a database that goes away, and an audit log that someone laid hands on.

use crate::control::*;
use crate::server::Server;
use crate::*;
use berth_store::*;
use std::collections::HashSet;
use std::time::Duration;

on_both! {
    a_removed_or_changed_audit_line_shows,
    many_at_once_are_each_answered,
}

async fn a_removed_or_changed_audit_line_shows(place: Place) {
    let control = control(&place).await;
    assert_eq!(control.verify_audit().await.unwrap().entries, 0);
    for n in 0..20 {
        let entry = AuditNote { detail: format!("number {n}"), ..note("apply") };
        control.audit(entry, &actor(), at(n)).await.unwrap();
    }
    let whole = control.verify_audit().await.unwrap();
    let newest = control.audit_entries(&AuditQuery { limit: 2, ..AuditQuery::default() }).await.unwrap();
    assert_eq!((whole.whole, whole.entries, whole.head.as_str()), (true, 20, newest[0].hash.as_str()));
    assert_eq!((newest[0].id, newest[0].previous.as_str()), (20, newest[1].hash.as_str()));
    assert_eq!((newest[0].actor.as_str(), newest[0].detail.as_str()), ("token:test", "number 19"));
    let older = AuditQuery { before: 5, limit: 10, ..AuditQuery::default() };
    assert_eq!(control.audit_entries(&older).await.unwrap().len(), 4);
    let other = AuditQuery { actor: Some("nobody".into()), limit: 10, ..AuditQuery::default() };
    assert!(control.audit_entries(&other).await.unwrap().is_empty());
    // In parts: from the middle on; with another's hash; and by one that was further than the log is.
    let (tenth, within) = (AuditQuery { before: 11, limit: 1, ..AuditQuery::default() }, Duration::from_secs(10));
    let tenth = control.audit_entries(&tenth).await.unwrap().remove(0);
    let rest = control.verify_audit_from(10, &tenth.hash, within).await.unwrap();
    assert_eq!((rest.whole, rest.entries, rest.head.as_str()), (true, 10, whole.head.as_str()));
    for (after, hash, broken_at) in [(10, "", 11), (21, "", 21), (i64::MAX, "", 21), (20, "another", 21)] {
        let found = control.verify_audit_from(after, hash, within).await.unwrap();
        assert_eq!((found.whole, found.broken_at), (false, Some(broken_at)), "after {after}");
    }
    place.sql("CREATE TABLE kept AS SELECT * FROM audit").await;
    let damages = [
        ("UPDATE audit SET detail = 'nothing' WHERE id = 7", 7),
        ("UPDATE audit SET actor = 'someone else' WHERE id = 1", 1),
        ("UPDATE audit SET at = at + 1 WHERE id = 20", 20),
        ("DELETE FROM audit WHERE id = 9", 9),
        ("DELETE FROM audit WHERE id = 1", 1),
        ("DELETE FROM audit WHERE id = 20", 20),
        ("DELETE FROM audit WHERE id > 15", 16),
        ("DELETE FROM audit", 1),
        // All that follows is renumbered, so that no number is missing.
        ("DELETE FROM audit WHERE id = 9; UPDATE audit SET id = id - 1 WHERE id > 9", 9),
    ];
    for (damage, broken_at) in damages {
        for statement in damage.split("; ") {
            place.sql(statement).await;
        }
        let found = control.verify_audit().await.unwrap();
        assert_eq!((found.whole, found.broken_at), (false, Some(broken_at)), "{damage}");
        place.sql("DELETE FROM audit").await;
        place.sql("INSERT INTO audit SELECT * FROM kept").await;
        assert!(control.verify_audit().await.unwrap().whole);
    }
}

async fn many_at_once_are_each_answered(place: Place) {
    let control = control(&place).await;
    let wakes = control.wakes();
    let applies =
        (0..300).map(|n| control.apply(applying(vec![desired(&vpc(&format!("n-{n:03}")), json!({}))]), at(0)));
    for applied in futures::future::join_all(applies).await {
        assert_eq!(applied.unwrap()[0].result, AppliedResult::Created);
    }
    assert!(wakes.has_changed().unwrap());
    assert_eq!(enqueue_due(&control, at(0)).await, 300);
    let leases = (0..10).map(|n| {
        let control = control.clone();
        async move { control.lease(ask(&format!("w{n}"), 30), at(1)).await.unwrap() }
    });
    let leased: Vec<Leased> = futures::future::join_all(leases).await.into_iter().flatten().collect();
    assert_eq!(leased.len(), 300);
    let fences: HashSet<i64> = leased.iter().map(|one| one.held.fence).collect();
    let tasks: HashSet<&TaskId> = leased.iter().map(|one| &one.held.task).collect();
    assert_eq!((fences.len(), tasks.len()), (300, 300), "each task once, each under a number of its own");
    // Good and stale reports in one batch.
    let reports = leased.iter().enumerate().map(|(n, one)| {
        let stale = n % 3 == 0;
        let held = Held { fence: one.held.fence + i64::from(stale), ..one.held.clone() };
        let control = control.clone();
        async move { (stale, control.report(&held, Ending::new(Outcome::Refused, "no"), at(2)).await) }
    });
    for (stale, result) in futures::future::join_all(reports).await {
        assert_eq!(stale, matches!(result, Err(ControlError::Fenced)), "{result:?}");
    }
    let loads = control.loads().await.unwrap();
    assert_eq!((loads[0].queued, loads[0].running), (0, 100));
}

/// Two servers write at once: every event is numbered in the order of commits, and each task goes to one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_a_database() {
    let place = place::postgres().await;
    let (one, two) = (control(&place).await, control(&place).await);
    let watching = async {
        let (mut seen, mut after) = (Vec::new(), 0);
        while seen.len() < 400 {
            let more = two.events_after(after, &EventFilter::default(), 50).await.unwrap();
            if more.is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            after = more.last().map_or(after, |event| event.id);
            seen.extend(more.into_iter().map(|event| event.resource.name));
        }
        seen
    };
    let writing = async |control: &Control, of: &str| {
        for n in 0..200 {
            let id = vpc(&format!("{of}-{n}"));
            control.apply(applying(vec![desired(&id, json!({}))]), at(0)).await.unwrap();
        }
    };
    let all = async { futures::future::join3(writing(&one, "a"), writing(&two, "b"), watching).await };
    let (_, _, seen) = tokio::time::timeout(Duration::from_secs(60), all).await.expect("a watcher misses none");
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 400, "each once");
    assert!(one.verify_audit().await.unwrap().whole);
    assert_eq!(one.verify_audit().await.unwrap().entries, 400);
    // Both decide about the same; one task each is made.
    let decided = futures::future::join(enqueue_due(&one, at(0)), enqueue_due(&two, at(0))).await;
    assert!(decided.0 + decided.1 >= 400);
    assert_eq!(place.number("SELECT COUNT(*) FROM tasks").await, 400);
    let leases = (0..20).map(|n| {
        let control = if n % 2 == 0 { &one } else { &two };
        async move { control.lease(ask(&format!("w{n}"), 25), at(1)).await.unwrap() }
    });
    let leased: Vec<Leased> = futures::future::join_all(leases).await.into_iter().flatten().collect();
    let tasks: HashSet<&TaskId> = leased.iter().map(|one| &one.held.task).collect();
    assert_eq!((leased.len(), tasks.len()), (400, 400));
    // What one does wakes the other.
    let mut wakes = two.wakes();
    wakes.mark_unchanged();
    one.apply(applying(vec![desired(&vpc("news"), json!({}))]), at(2)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), wakes.changed()).await.expect("woken").unwrap();
    // No run gets in between while any of them lives.
    one.close().await;
    assert!(matches!(refused(two.store().begin_run("x").await), StoreError::Server { .. }));
}

/// Whatever was acknowledged is there; what was not heard of is asked for, or done again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_crashes_is_come_back_to() {
    let server = Server::start();
    let address = server.database().await;
    let control = Control::open(open(&address).await).await.unwrap();
    let mut acknowledged = HashSet::new();
    for round in 0..3 {
        let applies = (0..200).map(|n| {
            let (control, server) = (control.clone(), &server);
            async move {
                let name = format!("n-{round}-{n}");
                if n == 60 {
                    server.crash();
                }
                let applied = control.apply(applying(vec![desired(&vpc(&name), json!({}))]), at(0)).await;
                (name, applied)
            }
        });
        let results = futures::stream::StreamExt::collect::<Vec<_>>(futures::stream::StreamExt::buffer_unordered(
            futures::stream::iter(applies),
            16,
        ));
        for (name, applied) in results.await {
            match applied {
                Ok(applied) => {
                    assert_eq!(applied[0].result, AppliedResult::Created);
                    acknowledged.insert(name);
                }
                Err(error) => assert!(matches!(&error, ControlError::Store(StoreError::Lost(_))), "{error}"),
            }
        }
        server.back();
    }
    assert!(acknowledged.len() > 500, "{} of 600", acknowledged.len());
    let mut query = ListQuery { limit: 1000, ..ListQuery::default() };
    query.kind = Some("CivoVpc".into());
    let stored: HashSet<String> =
        control.list(&query).await.unwrap().resources.into_iter().map(|one| one.resource.id.name).collect();
    assert!(acknowledged.is_subset(&stored));
    let audit = control.verify_audit().await.unwrap();
    assert_eq!((audit.whole, audit.entries), (true, stored.len() as i64), "nothing was done twice");
    assert_eq!(control.events_after(0, &EventFilter::default(), 1000).await.unwrap().len(), stored.len());
}

/// A server that froze amid a transaction does not keep the others from writing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_writer_loses_its_turn() {
    use sqlx::{Connection, Executor};
    let place = place::postgres().await;
    let control = control(&place).await;
    let mut frozen = sqlx::PgConnection::connect(&place.address).await.unwrap();
    frozen.execute("SET idle_in_transaction_session_timeout = '5s'").await.unwrap();
    frozen.execute("BEGIN").await.unwrap();
    let turn = "SELECT pg_advisory_xact_lock(hashtextextended('berth write ' || current_schema(), 0))";
    frozen.execute(turn).await.unwrap();
    let applied = control.apply(applying(vec![desired(&vpc("net"), json!({}))]), at(0));
    tokio::time::timeout(Duration::from_secs(20), applied).await.expect("its turn comes").unwrap();
}
