//! Several servers on one database, a database that goes away, and an audit log that someone laid hands on.

use crate::fixtures::*;
use crate::postgres_server::Postgres;
use crate::*;
use berth_store::*;
use std::collections::HashSet;
use std::time::Duration;

on_both! {
    a_removed_or_changed_audit_line_shows,
    a_log_that_was_written_anew_without_the_key_shows,
    a_log_without_a_genuine_head_goes_on_and_says_so,
    entries_that_no_server_wrote_show,
    an_audit_log_of_before_is_taken_over_as_it_is,
    a_state_whose_marks_were_taken_out_does_not_open,
    many_at_once_are_each_answered,
}

async fn a_removed_or_changed_audit_line_shows(place: StateLocation) {
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

/// What whoever writes the database can do: change an entry and compute all hashes again, as the log does.
async fn write_anew(place: &StateLocation, change: &str) -> String {
    computed_anew(place, change, "actor_id").await
}

/// `actor_id` is what stands for that column, which a log of before does not have.
async fn computed_anew(place: &StateLocation, change: &str, actor_id: &str) -> String {
    use sha2::{Digest, Sha256};
    place.sql(change).await;
    let columns = "id || '\u{1}' || at || '\u{1}' || actor || '\u{1}' || action || '\u{1}' || target || '\u{1}' || detail || '\u{1}' || outcome";
    let mut previous = String::new();
    for line in place.texts(&format!("SELECT {columns} || '\u{1}' || {actor_id} FROM audit ORDER BY id")).await {
        let parts: Vec<&str> = line.split('\u{1}').collect();
        let mut sha = Sha256::new();
        let mut feed = |part: &[u8]| {
            sha.update((part.len() as u64).to_le_bytes());
            sha.update(part);
        };
        feed(previous.as_bytes());
        feed(&parts[0].parse::<i64>().unwrap().to_le_bytes());
        feed(&parts[1].parse::<i64>().unwrap().to_le_bytes());
        parts[2..7].iter().chain(parts[7..].iter().filter(|id| !id.is_empty())).for_each(|part| feed(part.as_bytes()));
        previous = sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        place.sql(&format!("UPDATE audit SET hash = '{previous}' WHERE id = {}", parts[0])).await;
    }
    previous
}

async fn head_row(place: &StateLocation) -> String {
    place.texts("SELECT value FROM meta WHERE name = 'audit_head'").await.remove(0)
}

async fn set_head(place: &StateLocation, value: &str) {
    place.sql(&format!("UPDATE meta SET value = '{value}' WHERE name = 'audit_head'")).await;
}

async fn a_log_that_was_written_anew_without_the_key_shows(place: StateLocation) {
    let control = control(&place).await;
    for n in 0..5 {
        control.audit(AuditNote { detail: format!("number {n}"), ..note("apply") }, &actor(), at(n)).await.unwrap();
    }
    let third = head_row(&place).await;
    control.audit(note("delete"), &actor(), at(9)).await.unwrap();
    let (whole, kept) = (control.verify_audit().await.unwrap(), control.audit_head().await.unwrap().unwrap());
    assert_eq!((whole.whole, kept.id, &kept.hash), (true, 6, &whole.head));
    let sealed = head_row(&place).await;
    assert!(sealed.starts_with(SEALED_PREFIX) && !sealed.contains(&kept.hash));

    // Recomputed without a change it is the same log; with one it is not, whatever stands as its head.
    assert_eq!(
        write_anew(&place, "UPDATE audit SET detail = detail").await,
        kept.hash,
        "the test computes as the log does"
    );
    place.sql("CREATE TABLE kept AS SELECT * FROM audit").await;
    let forged = write_anew(&place, "UPDATE audit SET detail = 'nothing' WHERE id = 2").await;
    for head in [sealed.as_str(), &format!("6 {forged}"), &third] {
        set_head(&place, head).await;
        let found = control.verify_audit().await.unwrap();
        assert!(!found.whole, "{head}");
    }
    set_head(&place, &sealed).await;
    let found = control.verify_audit().await.unwrap();
    assert_eq!((found.broken_at, found.broken), (Some(7), Some(AuditBroken::Head)));
    place.sql("DELETE FROM audit").await;
    place.sql("INSERT INTO audit SELECT * FROM kept").await;
    assert!(control.verify_audit().await.unwrap().whole);

    // The end cut off, with the head of then: only a head that was kept elsewhere shows it.
    place.sql("DELETE FROM audit WHERE id = 6").await;
    set_head(&place, &third).await;
    assert!(control.verify_audit().await.unwrap().whole);
    let since = control.verify_audit_from(kept.id, &kept.hash, Duration::from_secs(10)).await.unwrap();
    assert_eq!((since.whole, since.broken_at), (false, Some(6)));
}

async fn a_log_without_a_genuine_head_goes_on_and_says_so(place: StateLocation) {
    let control = control(&place).await;
    for turn in 0..2 {
        control.audit(note("apply"), &actor(), at(turn)).await.unwrap();
        match turn {
            0 => drop(place.sql("DELETE FROM meta WHERE name = 'audit_head'").await),
            _ => set_head(&place, "1 made up").await,
        }
        assert_eq!(control.audit_head().await.unwrap(), None);
        assert_eq!(
            control.verify_audit().await.unwrap().broken,
            Some(if turn == 0 { AuditBroken::Head } else { AuditBroken::HeadLost })
        );
    }
    control.audit(note("delete"), &actor(), at(5)).await.unwrap();
    let found = control.verify_audit().await.unwrap();
    assert_eq!((found.whole, found.broken_at, found.broken), (false, Some(2), Some(AuditBroken::HeadLost)));
    // 1 apply, 2 lost, 3 apply, 4 lost, 5 delete: from a head that was kept after the last loss on, it is whole.
    let head = control.audit_head().await.unwrap().unwrap();
    assert_eq!(head.id, 5);
    control.audit(note("apply"), &actor(), at(6)).await.unwrap();
    assert!(control.verify_audit_from(head.id, &head.hash, Duration::from_secs(10)).await.unwrap().whole);
}

/// Whoever writes the database can go on with the chain by themselves: the head says where it ends.
async fn entries_that_no_server_wrote_show(place: StateLocation) {
    let control = control(&place).await;
    for n in 0..3 {
        control.audit(note("apply"), &actor(), at(n)).await.unwrap();
    }
    let kept = control.audit_head().await.unwrap().unwrap();
    place
        .sql(
            "INSERT INTO audit (id, at, actor, actor_id, action, target, detail, outcome, hash) \
             SELECT 4, at, 'token:ann', '', 'approve', target, detail, outcome, '' FROM audit WHERE id = 3",
        )
        .await;
    write_anew(&place, "UPDATE audit SET detail = detail").await;
    for (after, hash) in [(0, ""), (kept.id, kept.hash.as_str())] {
        let found = control.verify_audit_from(after, hash, Duration::from_secs(10)).await.unwrap();
        assert_eq!((found.whole, found.broken_at, found.broken), (false, Some(4), Some(AuditBroken::Added)));
    }
    place.sql("UPDATE audit SET id = 0 WHERE id = 4").await;
    let found = control.verify_audit().await.unwrap();
    assert_eq!((found.whole, found.broken_at, found.broken), (false, Some(0), Some(AuditBroken::Added)));
    place.sql("UPDATE audit SET id = 4 WHERE id = 0").await;
    // The log goes on after them, and says for ever that nothing vouches for them.
    control.audit(note("delete"), &actor(), at(9)).await.unwrap();
    let found = control.verify_audit().await.unwrap();
    assert_eq!((found.whole, found.broken_at, found.broken), (false, Some(5), Some(AuditBroken::HeadLost)));
    assert_eq!(control.audit_head().await.unwrap().map(|head| head.id), Some(6));
}

/// The version before kept the head in the clear.
async fn an_audit_log_of_before_is_taken_over_as_it_is(place: StateLocation) {
    // A state of the first schema, with a log as the one before this wrote it.
    crate::upgrade::make(&place).await;
    let dialect = if place.is_sqlite() { "sqlite" } else { "postgres" };
    for migration in ["0002_control", "0003_following"] {
        let path = format!("{}/migrations/{dialect}/{migration}.sql", env!("CARGO_MANIFEST_DIR"));
        place.sql(&std::fs::read_to_string(path).unwrap()).await;
    }
    place.sql(if place.is_sqlite() { "PRAGMA user_version = 3" } else { "UPDATE berth_schema SET version = 3" }).await;
    for id in 1..=3 {
        place
            .sql(&format!(
                "INSERT INTO audit VALUES ({id}, {id}000000, 'token:ci', 'apply', 'CivoVpc/net', '', 'ok', '')"
            ))
            .await;
    }
    let head = computed_anew(&place, "UPDATE audit SET detail = 'as it was'", "''").await;
    place.sql(&format!("INSERT INTO meta (name, value) VALUES ('audit_head', '3 {head}')")).await;
    let store = Store::open(Options { key: key(0x11), ..options(&place.address) }).await.unwrap();
    let control = Control::open(store).await.unwrap();
    let before = control.verify_audit().await.unwrap();
    assert_eq!((before.whole, before.entries, before.head.as_str()), (true, 3, head.as_str()));
    assert!(head_row(&place).await.starts_with(SEALED_PREFIX));
    control.audit(note("apply"), &actor(), at(5)).await.unwrap();
    assert_eq!(control.verify_audit().await.unwrap().entries, 4);
    // From here on, what was written before is under the key as well.
    write_anew(&place, "UPDATE audit SET actor = 'someone else' WHERE id = 1").await;
    assert_eq!(control.verify_audit().await.unwrap().broken, Some(AuditBroken::Head));
}

/// Without its marks a state would look like one of before, and be taken over with whatever log stands in it.
async fn a_state_whose_marks_were_taken_out_does_not_open(place: StateLocation) {
    let first = control(&place).await;
    first.audit(note("apply"), &actor(), at(0)).await.unwrap();
    first.close().await;
    first.store().close().await;
    for (marks, gone) in
        [("'state_key'", "state_key"), ("'key_check', 'state_key', 'audit_head', 'digest_key'", "key_check")]
    {
        place.sql(&format!("DELETE FROM meta WHERE name IN ({marks})")).await;
        let error = refused(Store::open(options(&place.address)).await);
        assert!(matches!(&error, StoreError::MarkGone { mark, .. } if *mark == gone), "{error}");
    }
}

async fn many_at_once_are_each_answered(place: StateLocation) {
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
        async move { (stale, control.report(&held, Ending::new(TaskOutcome::Refused, "no"), at(2)).await) }
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
    let server = Postgres::start();
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
