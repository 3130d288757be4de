//! What only a server can do to a state: end connections, crash, hold several states, demand a password or a certificate.

use crate::postgres_server::{PASSWORD, Postgres};
use crate::*;
use berth_engine::record::{Closing, RecordError, Recorder};
use berth_store::{Entries, Filter};
use sqlx::{Connection, Executor};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Ends every connection of Berth's to the place's database, as an idle timeout or an administrator would.
async fn end_connections(place: &StateLocation) -> i64 {
    let all = "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE datname = current_database() AND application_name = 'berth'";
    place.number(all).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_survive_that_the_server_ends_their_connections() {
    let home = place::postgres().await.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let id = save(&run, "net").await;
    run.finish().await;
    let read_four = || async {
        let all = Filter::default();
        let reads = (0..4).map(|_| home.store.resources(&all));
        for read in futures::future::join_all(reads).await {
            assert_eq!(read.unwrap()[0].id, id);
        }
    };
    read_four().await;
    assert!(end_connections(&home.place).await >= 2, "several readers rested");
    read_four().await;
    assert!(end_connections(&home.place).await >= 1);
    assert!(home.store.resource(&id).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_connection_broke_writes_no_more() {
    let home = place::postgres().await.open().await;
    let run = home.store.begin_run("first").await.unwrap();
    let id = save(&run, "net").await;
    assert!(end_connections(&home.place).await >= 1);
    for _ in 0..3 {
        let error = refused(run.save_resource(new_resource(&id, json!({"n": 2}))).await);
        assert!(matches!(error, StoreError::Lost(_)) && error.help()[0].contains("server"), "{error}");
        let all = futures::future::join_all((0..5).map(|_| run.event(&id, "late", ""))).await;
        assert!(
            all.iter().all(|one| matches!(one, Err(RecordError::Failed(text)) if text.contains("broke"))),
            "{all:?}"
        );
    }
    let next = home.store.begin_run("second").await.expect("the lock went with the connection");
    assert!(next.fence() > run.fence());
    run.finish().await;
    next.event(&id, "in time", "").await.unwrap();
    assert_eq!(home.store.events(10).await.unwrap().len(), 1);
    // Who came first, and ended badly, is not who is shown.
    let StoreError::Locked { holder, .. } = refused(home.store.begin_run("third").await) else { panic!("two runs") };
    assert_eq!((holder.command.as_str(), holder.host.is_some()), ("second", true));
}

/// A takeover that is under way when a write looks at the fence is waited for, not overlooked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_for_a_takeover_that_is_not_yet_committed() {
    let home = place::postgres().await.open().await;
    let run = home.store.begin_run("first").await.unwrap();
    let id = save(&run, "net").await;
    let mut other = sqlx::PgConnection::connect(&home.place.address).await.unwrap();
    other.execute("BEGIN").await.unwrap();
    other.execute("UPDATE fence SET number = number + 1").await.unwrap();
    let late = async {
        let result = run.event(&id, "late", "").await;
        assert!(matches!(result, Err(RecordError::Fenced)), "{result:?}");
    };
    let takeover = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        other.execute("COMMIT").await.unwrap();
    };
    futures::future::join(late, takeover).await;
    assert!(home.store.events(10).await.unwrap().is_empty());
}

/// After an error PostgreSQL refuses the rest of a transaction; the others must not suffer from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_the_server_refuses_harms_no_other() {
    let home = place::postgres().await.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let id = save(&run, "net").await;
    let writes = (0..100).map(async |number| {
        // There is no such character in a text of PostgreSQL's.
        let key = if number % 20 == 7 { "net\0work" } else { "network" };
        (number % 20 == 7, run.save_unit(unit(&id, key, &format!("t{number}"))).await)
    });
    for (bad, result) in futures::future::join_all(writes).await {
        assert_eq!(bad, matches!(result, Err(RecordError::Failed(_))), "{result:?}");
    }
    assert_eq!(home.store.units_of(&id).await.unwrap().len(), 95);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_amid_writes_has_every_acknowledged_one() {
    let server = Postgres::start();
    let address = server.database().await;
    let store = open(&address).await;
    let (begun, made) = (Mutex::new(HashSet::new()), Mutex::new(HashSet::new()));
    for (round, writes_until_crash) in [40, 300, 700].into_iter().enumerate() {
        let run = store.begin_run("writes").await.expect("the lock of a crashed server's connection is free");
        let (acknowledged, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let workers = (0..16).map(|worker| {
            let (run, begun, made, acknowledged, failed, server) =
                (&run, &begun, &made, &acknowledged, &failed, &server);
            async move {
                let id = vpc(&format!("net-{worker}"));
                run.save_resource(new_resource(&id, json!({}))).await.expect("saved before the crash");
                for turn in 0..100_000 {
                    let token = format!("{round}-{worker}-{turn}");
                    let mut unit = unit(&id, "network", &token);
                    let Ok(entry) = run.intent(create(&unit)).await else { break };
                    begun.lock().unwrap().insert(token.clone());
                    unit.id = Some(format!("object-{token}"));
                    let Ok(()) = run.close(entry, Closing::Done(Some(Box::new(unit)))).await else { break };
                    made.lock().unwrap().insert(token);
                    if acknowledged.fetch_add(1, Ordering::SeqCst) == writes_until_crash {
                        server.crash();
                    }
                }
                failed.fetch_add(1, Ordering::SeqCst);
                assert!(run.event(&id, "late", "").await.is_err(), "a broken run never writes again");
            }
        });
        futures::future::join_all(workers).await;
        assert_eq!(failed.into_inner(), 16, "every worker was told");
        assert!(acknowledged.into_inner() > writes_until_crash);
        server.back();

        // The store that was open all along reads on.
        let units: HashMap<_, _> =
            store.all_units().await.unwrap().into_iter().map(|unit| (unit.token, unit.id)).collect();
        for token in begun.lock().unwrap().iter() {
            assert!(units.contains_key(token), "the intent of {token} is lost");
        }
        for token in made.lock().unwrap().iter() {
            assert_eq!(units[token].as_deref(), Some(format!("object-{token}").as_str()), "the end of {token} is lost");
        }
        let journal = store.journal(Entries::All, 10_000).await.unwrap();
        assert_eq!(journal.len(), units.len());
        for entry in journal {
            assert_eq!(entry.ended_at.is_some(), units[&entry.token].is_some(), "{} is torn", entry.token);
        }
    }
    let again = open(&address).await;
    let run = again.begin_run("after all").await.unwrap();
    save(&run, "net").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_schema_is_a_state_of_its_own() {
    let place = place::postgres().await;
    place.sql("CREATE SCHEMA one").await;
    place.sql("CREATE SCHEMA two").await;
    place.sql("CREATE TABLE public.cats (name TEXT)").await;
    let in_schema = |path: &str| format!("{}&options[search_path]={path}", place.address);
    let (one, two) = (open(&in_schema("one,public")).await, open(&in_schema("two")).await);
    let (first, second) = (one.begin_run("first").await.unwrap(), two.begin_run("second").await.unwrap());
    save(&first, "net").await;
    assert!(two.resources(&Filter::default()).await.unwrap().is_empty());
    save(&second, "other").await;
    assert_eq!(one.resources(&Filter::default()).await.unwrap().len(), 1);
    assert!(matches!(refused(one.begin_run("third").await), StoreError::Locked { .. }));
    assert_eq!(place.number("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'").await, 1);

    let nowhere = refused(Store::open(options(&in_schema("nowhere"))).await);
    assert!(matches!(&nowhere, StoreError::Connect { source, .. } if source.to_string().contains("search_path")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_durable_where_the_database_is_told_not_to_be() {
    let home = place::postgres().await.open().await;
    let database = home.place.texts("SELECT current_database()::text").await.remove(0);
    home.place.sql(&format!("ALTER DATABASE {database} SET synchronous_commit = off")).await;
    // What the run's own connection has set shows in what it writes.
    home.place
        .sql(
            "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN NEW.detail := current_setting('synchronous_commit'); RETURN NEW; END $$",
        )
        .await;
    home.place.sql("CREATE TRIGGER tell BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION tell()").await;
    assert_eq!(home.place.texts("SELECT current_setting('synchronous_commit')").await, ["off"]);
    let run = home.store.begin_run("test").await.unwrap();
    run.event(&vpc("net"), "asked", "").await.unwrap();
    assert_eq!(home.store.events(1).await.unwrap()[0].detail, "on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_not_let_in_is_told_why_without_the_password() {
    let place = place::postgres().await;
    let nobody_listens = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wrong = place.address.replace(PASSWORD, "hunter2-wrong");
    let closed = format!("postgres://berth:hunter2-closed@{nobody_listens}/berth");
    let missing = place.address.replace("/state_", "/hunter_");
    for (address, cause) in [(wrong, "password"), (closed, "refused"), (missing, "does not exist")] {
        let clock = Instant::now();
        let error = refused(Store::open(options(&address)).await);
        let StoreError::Connect { state, source } = &error else { panic!("{error}") };
        assert!(clock.elapsed().as_secs() < 10, "told at once");
        assert!(source.to_string().contains(cause), "{source}");
        assert!(state.starts_with("postgres://berth@127.0.0.1:"), "{state}");
        let everything = format!("{error} {error:?} {source} {source:?} {:?}", options(&address).location);
        assert!(!everything.contains("hunter2") && !everything.contains(PASSWORD), "{everything}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_proves_who_it_is_by_its_certificate() {
    let place = place::postgres().await;
    let certificate = postgres_server::shared().folder().join("server.crt");
    let own_copy = place.folder.path().join("ca.pem");
    std::fs::copy(certificate, &own_copy).unwrap();
    let verified = place.address.replace("sslmode=disable", "sslmode=verify-full");
    let error = refused(Store::open(options(&verified)).await);
    assert!(
        matches!(&error, StoreError::Connect { source, .. } if source.to_string().contains("certificate")),
        "{error:?}"
    );
    assert!(error.help().iter().any(|line| line.contains("sslrootcert")));
    let store = open(&format!("{verified}&sslrootcert={}", own_copy.display())).await;
    let run = store.begin_run("test").await.unwrap();
    save(&run, "net").await;
    let encrypted = "SELECT COUNT(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
        WHERE a.datname = current_database() AND a.application_name = 'berth' AND s.ssl";
    assert!(place.number(encrypted).await >= 1);
}
