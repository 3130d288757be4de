//! Opening the database file, and bringing its schema up to date.

use crate::error::StoreError;
use crate::{files, sql};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Executor, Row};
use std::path::Path;
use std::time::Duration;

/// How long a statement waits for another connection's transaction.
const BUSY_SECONDS: u64 = 10;

/// Marks the file as Berth's: "Brth".
const APPLICATION_ID: i64 = 0x4272_7468;

/// The schema's versions, in order; the first is 1. A line here never changes once it was released.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/sqlite/0001_first.sql")];

pub(crate) const SCHEMA: i64 = MIGRATIONS.len() as i64;

pub(crate) fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(BUSY_SECONDS))
        .foreign_keys(true)
        .disable_statement_logging()
}

/// Makes the file before SQLite would, for the owner alone; SQLite gives the files beside it the same rights.
pub(crate) fn create_file(path: &Path) -> Result<(), StoreError> {
    if path.exists() {
        return Ok(());
    }
    files::private_parent(path)?;
    match files::private_file().create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(StoreError::File { doing: "create the state", path: path.into(), source }),
    }
}

struct Found {
    version: i64,
    application: i64,
    tables: i64,
}

async fn look(connection: &mut SqliteConnection) -> Result<Found, sqlx::Error> {
    let row = sqlx::query(
        "SELECT v.user_version, a.application_id, (SELECT COUNT(*) FROM sqlite_schema) \
         FROM pragma_user_version v, pragma_application_id a",
    )
    .fetch_one(connection)
    .await?;
    Ok(Found { version: row.try_get(0)?, application: row.try_get(1)?, tables: row.try_get(2)? })
}

/// Up to date costs one query; else what is missing is applied in one transaction.
pub(crate) async fn migrate(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open { path: path.into(), source };
    if up_to_date(&look(connection).await.map_err(failed)?, path)? {
        return Ok(());
    }
    connection.execute("BEGIN IMMEDIATE").await.map_err(failed)?;
    let result = apply(connection, path).await;
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.execute(end).await.map_err(failed);
    result.and(ended.map(|_| ()))
}

async fn apply(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open { path: path.into(), source };
    // Another process may have done it while this one waited.
    let found = look(connection).await.map_err(failed)?;
    if up_to_date(&found, path)? {
        return Ok(());
    }
    let done = usize::try_from(found.version).unwrap_or(0);
    for migration in &MIGRATIONS[done..] {
        sqlx::raw_sql(*migration).execute(&mut *connection).await.map_err(failed)?;
    }
    // Pragmas take no parameters; both are numbers of our own.
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(marks)).execute(&mut *connection).await.map_err(failed)?;
    Ok(())
}

fn up_to_date(found: &Found, path: &Path) -> Result<bool, StoreError> {
    let empty = found.tables == 0 && found.version == 0;
    if !empty && found.application != APPLICATION_ID {
        return Err(StoreError::Foreign { path: path.into() });
    }
    if found.version > SCHEMA {
        return Err(StoreError::Newer { path: path.into(), found: found.version, known: SCHEMA });
    }
    Ok(found.version == SCHEMA)
}

pub(crate) async fn key_check(connection: &mut SqliteConnection) -> Result<Option<String>, StoreError> {
    Ok(sqlx::query_scalar(sql::KEY_CHECK).fetch_optional(connection).await?)
}
