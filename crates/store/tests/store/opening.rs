//! Which files are opened, which are refused, and with what words.

use crate::*;
use berth_store::Filter;
use sqlx::Executor;

#[tokio::test]
async fn a_new_state_is_made_for_its_owner_alone() {
    let home = home().await;
    let run = home.store.begin_run("test").await.unwrap();
    save(&run, "net").await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(home.path.parent().unwrap()), 0o700);
        let mut names = Vec::new();
        for file in std::fs::read_dir(home.path.parent().unwrap()).unwrap() {
            let file = file.unwrap();
            assert_eq!(mode(&file.path()), 0o600, "{:?}", file.file_name());
            names.push(file.file_name().into_string().unwrap());
        }
        names.sort();
        assert_eq!(names, ["state.db", "state.db-shm", "state.db-wal", "state.db.lock"]);
    }
    let settings: (String, i64) = {
        let mut file = raw(&home.path).await;
        let mode = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut file).await.unwrap();
        let version = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut file).await.unwrap();
        (mode, version)
    };
    assert_eq!(settings, ("wal".into(), 1));
}

#[tokio::test]
async fn many_openers_of_a_new_state_make_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let stores = futures::future::join_all((0..8).map(|_| Store::open(options(&path)))).await;
    for store in &stores {
        assert!(store.as_ref().unwrap().resources(&Filter::default()).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn looking_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none/state.db");
    let error = refused(Store::open(Options { must_exist: true, ..options(&path) }).await);
    assert!(matches!(error, StoreError::Missing { .. }) && error.to_string().contains("none/state.db"));
    assert!(!path.parent().unwrap().exists());
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let home = home().await;
    home.store.close().await;
    raw(&home.path).await.execute("PRAGMA user_version = 99").await.unwrap();
    let error = refused(Store::open(options(&home.path)).await);
    assert!(matches!(error, StoreError::Newer { found: 99, known: 1, .. }));
    assert!(error.to_string().contains("schema 99") && error.help()[0].contains("newer"));
    let version: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut raw(&home.path).await).await.unwrap();
    assert_eq!(version, 99);
}

#[tokio::test]
async fn what_is_not_a_state_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to be looked at as one\n".repeat(40)).unwrap();
    assert!(matches!(refused(Store::open(options(&text)).await), StoreError::Open { .. }));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("not a database"));

    let other = folder.path().join("other.db");
    {
        use sqlx::ConnectOptions;
        let make = sqlx::sqlite::SqliteConnectOptions::new().filename(&other).create_if_missing(true);
        make.connect().await.unwrap().execute("CREATE TABLE cats (name TEXT)").await.unwrap();
    }
    assert!(matches!(refused(Store::open(options(&other)).await), StoreError::Foreign { .. }));
    let tables: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_schema").fetch_one(&mut raw(&other).await).await.unwrap();
    assert_eq!(tables, 1);

    let folder_as_file = folder.path().join("notes.txt/state.db");
    assert!(matches!(refused(Store::open(options(&folder_as_file)).await), StoreError::File { .. }));
}

#[tokio::test]
async fn a_wrong_or_missing_key_is_told_at_once() {
    let home = home().await;
    home.store.close().await;
    let wrong = refused(Store::open(Options { key: key(2), ..options(&home.path) }).await);
    assert!(matches!(&wrong, StoreError::WrongKey { .. }));
    assert!(wrong.to_string().contains("state.db") && wrong.help()[0].contains("BERTH_KEY"));

    // A state that is there never gets a new key made for it: that would look like success and lose every secret.
    let absent = home.folder.path().join("keys/key");
    let missing = refused(Store::open(Options { key: KeySource::File(absent.clone()), ..options(&home.path) }).await);
    assert!(matches!(&missing, StoreError::KeyMissing { .. }) && missing.to_string().contains("keys/key"));
    assert!(!absent.exists());

    let fresh = home.folder.path().join("fresh.db");
    Store::open(Options { key: KeySource::File(absent.clone()), ..options(&fresh) }).await.unwrap().close().await;
    assert!(absent.exists());
    Store::open(Options { key: KeySource::File(absent), ..options(&fresh) }).await.unwrap();
    open(&home.path).await;
}

#[tokio::test]
async fn journal_and_events_stay_bounded() {
    let home = home().await;
    let mut file = raw(&home.path).await;
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100500) ";
    let events =
        "INSERT INTO events (at, kind, name, org, env, what, detail) SELECT i, 'K', 'n', '', '', 'w', '' FROM n";
    // The first ten were never closed.
    let journal = "INSERT INTO journal (fence, kind, name, org, env, unit_key, token, op, what, started_at, ended_at, \
        outcome, detail) SELECT 0, 'K', 'n', '', '', 'u', 't', 'create', 'w', i, CASE WHEN i > 10 THEN i END, '', '' FROM n";
    for statement in [events, journal] {
        file.execute(sqlx::AssertSqlSafe(format!("{fill}{statement}"))).await.unwrap();
    }
    home.store.begin_run("test").await.unwrap().finish().await;
    let count = async |statement: &'static str, file: &mut sqlx::SqliteConnection| -> i64 {
        sqlx::query_scalar(statement).fetch_one(file).await.unwrap()
    };
    assert_eq!(count("SELECT COUNT(*) FROM events", &mut file).await, 100_000);
    assert_eq!(count("SELECT MIN(id) FROM events", &mut file).await, 501);
    assert_eq!(count("SELECT COUNT(*) FROM journal", &mut file).await, 100_010);
    assert_eq!(count("SELECT COUNT(*) FROM journal WHERE ended_at IS NULL", &mut file).await, 10);
}
