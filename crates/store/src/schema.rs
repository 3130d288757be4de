//! Bringing the schema up to date, and refusing what is not Berth's or is newer.

use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::location::Location;
use crate::sql;

/// Marks a file of SQLite's as Berth's: "Brth". PostgreSQL has a table for it.
const APPLICATION_ID: i64 = 0x4272_7468;

struct Migration {
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! migration {
    ($name:literal) => {
        Migration {
            sqlite: include_str!(concat!("../migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../migrations/postgres/", $name, ".sql")),
        }
    };
}

/// The schema's versions, in order; the first is 1. A line here never changes once it was released.
const MIGRATIONS: &[Migration] = &[
    migration!("0001_first"),
    migration!("0002_control"),
    migration!("0003_following"),
    migration!("0004_identity"),
    migration!("0005_parties"),
    migration!("0006_authentic"),
];

pub(crate) const SCHEMA: i64 = MIGRATIONS.len() as i64;

struct Found {
    version: i64,
    ours: bool,
    empty: bool,
}

async fn look(connection: &mut Connection, location: &Location) -> Result<Found, StoreError> {
    let row = Query::new(connection.dialect().look).fetch_one(connection).await?;
    let tables: i64 = row.get(0)?;
    let mark: i64 = row.get(1)?;
    if let Connection::Sqlite(_) = connection {
        let version = row.get(2)?;
        return Ok(Found { version, ours: mark == APPLICATION_ID, empty: tables == 0 && version == 0 });
    }
    if row.get::<Option<String>>(2)?.is_none() {
        let cause = "the search_path names no schema that exists";
        return Err(StoreError::open(location, sqlx::Error::Configuration(cause.into())));
    }
    let ours = mark == 1;
    let version = if ours { Query::new(sql::POSTGRES_VERSION).fetch_one(connection).await?.get(0)? } else { 0 };
    Ok(Found { version, ours, empty: tables == 0 })
}

/// Up to date costs a look; else what is missing is applied in one transaction, by one process at a time.
pub(crate) async fn migrate(
    connection: &mut Connection,
    location: &Location,
    must_exist: bool,
) -> Result<(), StoreError> {
    let found = look(connection, location).await?;
    if found.empty && must_exist {
        return Err(StoreError::Missing { state: location.to_string() });
    }
    if up_to_date(&found, location)? {
        return Ok(());
    }
    connection.run(connection.dialect().begin).await?;
    let result = apply(connection, location, SCHEMA).await;
    let ended = connection.run(if result.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
    result.and(ended)
}

async fn apply(connection: &mut Connection, location: &Location, version: i64) -> Result<(), StoreError> {
    if let Connection::Postgres(_) = connection {
        connection.run(sql::POSTGRES_SCHEMA_LOCK).await?;
    }
    // Another process may have done it while this one waited.
    let found = look(connection, location).await?;
    if up_to_date(&found, location)? {
        return Ok(());
    }
    let place = |version: i64| usize::try_from(version).unwrap_or(0).min(MIGRATIONS.len());
    for migration in &MIGRATIONS[place(found.version)..place(version)] {
        let text = match connection {
            Connection::Sqlite(_) => migration.sqlite,
            Connection::Postgres(_) => migration.postgres,
        };
        connection.run(text).await?;
    }
    // Neither pragmas nor many statements at once take parameters; all are numbers of our own.
    let marks = match connection {
        Connection::Sqlite(_) => format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version}"),
        Connection::Postgres(_) => format!(
            "CREATE TABLE IF NOT EXISTS berth_schema (version BIGINT NOT NULL); \
             DELETE FROM berth_schema; INSERT INTO berth_schema (version) VALUES ({version})"
        ),
    };
    connection.run_raw(sqlx::raw_sql(sqlx::AssertSqlSafe(marks))).await
}

/// The schema of a version, in a database that is empty or has an earlier one. Part of the caller's transaction.
pub(crate) async fn bring_to(connection: &mut Connection, location: &Location, version: i64) -> Result<(), StoreError> {
    apply(connection, location, version.min(SCHEMA)).await
}

/// Whether there is nothing at all in the database. What is not Berth's is an error.
pub(crate) async fn is_empty(connection: &mut Connection, location: &Location) -> Result<bool, StoreError> {
    let found = look(connection, location).await?;
    if !found.empty && !found.ours {
        return Err(StoreError::Foreign { state: location.to_string() });
    }
    Ok(found.empty)
}

/// Takes every table away, so that the database is as if it had never been used. Part of the caller's transaction.
pub(crate) async fn remove(connection: &mut Connection) -> Result<(), StoreError> {
    let mut tables = crate::catalog::tables(connection).await?;
    // Those that refer to others first.
    tables.reverse();
    let mut statements: String =
        tables.iter().map(|table| format!("DROP TABLE {}; ", crate::catalog::quoted(&table.name))).collect();
    statements.push_str(match connection {
        Connection::Sqlite(_) => "PRAGMA user_version = 0",
        Connection::Postgres(_) => "DROP TABLE berth_schema",
    });
    connection.run_raw(sqlx::raw_sql(sqlx::AssertSqlSafe(statements))).await
}

fn up_to_date(found: &Found, location: &Location) -> Result<bool, StoreError> {
    if !found.empty && !found.ours {
        return Err(StoreError::Foreign { state: location.to_string() });
    }
    if found.version > SCHEMA {
        return Err(StoreError::Newer { state: location.to_string(), found: found.version, known: SCHEMA });
    }
    Ok(found.version == SCHEMA)
}
