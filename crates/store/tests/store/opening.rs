//! Which files are opened, which are refused, and with what words.

use crate::*;
use berth_store::Filter;

on_both! {
    many_openers_of_a_new_state_make_one,
    looking_makes_nothing,
    a_newer_schema_is_refused_and_left_alone,
    what_is_not_a_state_is_refused_and_left_alone,
    a_wrong_or_missing_key_is_told_at_once,
    journal_and_events_stay_bounded,
}

#[tokio::test]
async fn a_new_state_is_made_for_its_owner_alone() {
    let home = place::sqlite().open().await;
    let (file, folder) = (home.place.file(), home.place.file().parent().unwrap().to_owned());
    let run = home.store.begin_run("test").await.unwrap();
    save(&run, "net").await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        let mut names = Vec::new();
        for file in std::fs::read_dir(&folder).unwrap() {
            let file = file.unwrap();
            assert_eq!(mode(&file.path()), 0o600, "{:?}", file.file_name());
            names.push(file.file_name().into_string().unwrap());
        }
        names.sort();
        assert_eq!(names, ["state.db", "state.db-shm", "state.db-wal", "state.db.lock"]);
    }
    assert!(file.exists());
    assert_eq!(home.place.texts("PRAGMA journal_mode").await, ["wal"]);
    assert_eq!(home.place.number("PRAGMA user_version").await, 6);
}

async fn many_openers_of_a_new_state_make_one(place: StateLocation) {
    let stores = futures::future::join_all((0..8).map(|_| Store::open(options(&place.address)))).await;
    for store in &stores {
        assert!(store.as_ref().unwrap().resources(&Filter::default()).await.unwrap().is_empty());
    }
}

async fn looking_makes_nothing(place: StateLocation) {
    let error = refused(Store::open(Options { must_exist: true, ..options(&place.address) }).await);
    let name = if place.is_sqlite() { ".berth/state.db" } else { "/state_" };
    assert!(matches!(error, StoreError::Missing { .. }) && error.to_string().contains(name), "{error}");
    if place.is_sqlite() {
        assert!(!place.file().parent().unwrap().exists());
    } else {
        let tables = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'";
        assert_eq!(place.number(tables).await, 0);
    }
}

async fn a_newer_schema_is_refused_and_left_alone(place: StateLocation) {
    let home = place.open().await;
    home.store.close().await;
    let sqlite = home.place.is_sqlite();
    let set = if sqlite { "PRAGMA user_version = 99" } else { "UPDATE berth_schema SET version = 99" };
    home.place.sql(set).await;
    let error = refused(Store::open(options(&home.place.address)).await);
    assert!(matches!(error, StoreError::Newer { found: 99, known: 6, .. }));
    assert!(error.to_string().contains("schema 99") && error.help()[0].contains("newer"));
    let get = if sqlite { "PRAGMA user_version" } else { "SELECT version FROM berth_schema" };
    assert_eq!(home.place.number(get).await, 99);
}

async fn what_is_not_a_state_is_refused_and_left_alone(place: StateLocation) {
    if place.is_sqlite() {
        std::fs::create_dir(place.file().parent().unwrap()).unwrap();
        std::fs::File::create_new(place.file()).unwrap();
    }
    place.sql("CREATE TABLE cats (name TEXT)").await;
    assert!(matches!(refused(Store::open(options(&place.address)).await), StoreError::Foreign { .. }));
    let tables = match place.is_sqlite() {
        true => "SELECT COUNT(*) FROM sqlite_schema",
        false => "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'",
    };
    assert_eq!(place.number(tables).await, 1);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to be looked at as one\n".repeat(40)).unwrap();
    let at = |path: &std::path::Path| Options { key: key(1), ..Options::at(path) };
    assert!(matches!(refused(Store::open(at(&text)).await), StoreError::Open { .. }));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("not a database"));
    let folder_as_file = folder.path().join("notes.txt/state.db");
    assert!(matches!(refused(Store::open(at(&folder_as_file)).await), StoreError::File { .. }));
}

/// What is written once for both must find the same tables and columns in both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_schemas_have_the_same_columns() {
    let (sqlite, postgres) = (place::sqlite().open().await, place::postgres().await.open().await);
    let of_sqlite = "SELECT t.name || '.' || c.name || CASE WHEN c.\"notnull\" THEN '' ELSE '?' END \
        FROM pragma_table_list t, pragma_table_info(t.name) c WHERE t.name NOT LIKE 'sqlite_%'";
    let of_postgres = "SELECT table_name || '.' || column_name || CASE is_nullable WHEN 'YES' THEN '?' ELSE '' END \
        FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'berth_schema'";
    let mut columns = (sqlite.place.texts(of_sqlite).await, postgres.place.texts(of_postgres).await);
    columns.0.sort();
    columns.1.sort();
    assert!(columns.0.len() > 50, "{columns:?}");
    assert_eq!(columns.0, columns.1);
}

async fn a_wrong_or_missing_key_is_told_at_once(place: StateLocation) {
    let home = place.open().await;
    home.store.close().await;
    let wrong = refused(Store::open(Options { key: key(2), ..options(&home.place.address) }).await);
    assert!(matches!(&wrong, StoreError::WrongKey { .. }));
    assert!(wrong.to_string().contains("state") && wrong.help()[0].contains("BERTH_KEY"));

    // A state that is there never gets a new key made for it: that would look like success and lose every secret.
    let absent = home.place.folder.path().join("keys/key");
    let missing =
        refused(Store::open(Options { key: KeySource::File(absent.clone()), ..options(&home.place.address) }).await);
    assert!(matches!(&missing, StoreError::KeyMissing { .. }) && missing.to_string().contains("keys/key"));
    assert!(!absent.exists());

    let fresh = if home.place.is_sqlite() { place::sqlite() } else { place::postgres().await };
    let with_file = || Options { key: KeySource::File(absent.clone()), ..options(&fresh.address) };
    Store::open(with_file()).await.unwrap().close().await;
    assert!(absent.exists());
    Store::open(with_file()).await.unwrap();
    open(&home.place.address).await;
}

async fn journal_and_events_stay_bounded(place: StateLocation) {
    let home = place.open().await;
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100500) ";
    let events =
        "INSERT INTO events (at, kind, name, org, env, what, detail) SELECT i, 'K', 'n', '', '', 'w', '' FROM n";
    // The first ten were never closed.
    let journal = "INSERT INTO journal (fence, kind, name, org, env, unit_key, token, op, what, started_at, ended_at, \
        outcome, detail) SELECT 0, 'K', 'n', '', '', 'u', 't', 'create', 'w', i, CASE WHEN i > 10 THEN i END, '', '' FROM n";
    for statement in [events, journal] {
        home.place.sql(&format!("{fill}{statement}")).await;
    }
    home.store.begin_run("test").await.unwrap().finish().await;
    assert_eq!(home.place.number("SELECT COUNT(*) FROM events").await, 100_000);
    assert_eq!(home.place.number("SELECT MIN(id) FROM events").await, 501);
    assert_eq!(home.place.number("SELECT COUNT(*) FROM journal").await, 100_010);
    assert_eq!(home.place.number("SELECT COUNT(*) FROM journal WHERE ended_at IS NULL").await, 10);
}
