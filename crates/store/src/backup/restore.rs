//! Restoring: everything in one transaction, and nothing that was running when the backup was made may go on writing.

use super::origin::{Access, Origin, access, origin};
use super::read::{self, Lines};
use super::{BackupError, BackupProgress, FORMAT_AUTHENTIC, Header, Identity, TOLD_EVERY_ROWS};
use crate::catalog::{self, Kind, Table, quoted};
use crate::control::types::AuditState;
use crate::db::{self, Connection, Query};
use crate::error::StoreError;
use crate::key::{Found, KeySource, write_ring};
use crate::keyring::KeyRing;
use crate::location;
use crate::lock::Lock;
use crate::store::{Options, Store};
use crate::unlock::{KEY_CHECK, opens};
use crate::{schema, sql};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Database, Encode, Type};
use std::io::{BufRead, Read};
use std::path::PathBuf;

/// Rows of one statement, and their parameters: SQLite takes 32,766 of these.
const INSERT_ROWS: usize = 100;
const INSERT_CELLS: usize = 10_000;
const INSERT_BYTES: usize = 4 << 20;
/// Added to the fence and to the events' count. More than a server can have given out between the backup and its end, so
/// that nothing it gave out is given out again: not to a worker that still believes in its lease, nor to a watcher.
const LEAP: i64 = 1 << 32;

const FENCE: &str = "SELECT number FROM fence WHERE one = 1";
const LEAP_FENCE: &str = "UPDATE fence SET number = (CASE WHEN number > $1 THEN number ELSE $1 END) + $2 WHERE one = 1";
const END_LEASES: &str = "UPDATE tasks SET lease_until = 0 WHERE state = 'running'";
const NO_HOLDER: &str = "DELETE FROM meta WHERE name = 'holder'";
const SQLITE_LEAP_EVENTS: &str = "UPDATE sqlite_sequence SET seq = seq + $1 WHERE name = 'events'";
const SQLITE_COUNT_EVENTS: &str = "INSERT INTO sqlite_sequence (name, seq) \
     SELECT 'events', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'events')";

/// Where a backup goes.
pub struct RestoreOptions {
    /// The database, and where the keys are or will be.
    pub into: Options,
    /// What is there goes.
    pub replace: bool,
    /// Take it though nothing shows who made it.
    pub accept_unauthenticated: bool,
}

/// What was restored.
#[derive(Clone, Debug)]
pub struct Restored {
    pub rows: u64,
    pub tables: usize,
    /// When the backup was made, by its own word.
    pub at: String,
    /// `sqlite` or `postgres`.
    pub source: String,
    /// The schema that it was made with.
    pub schema: i64,
    /// The file that the keys were written to, if they were not there yet.
    pub keys_written: Option<PathBuf>,
    /// Secrets, all of which open.
    pub secrets: u64,
    /// The audit log, followed line by line.
    pub audit: AuditState,
    pub origin: Origin,
    /// The tokens that work there, the first hundred.
    pub access: Vec<Access>,
}

/// Takes a backup into a database, whole or not at all.
pub async fn restore(
    input: impl BufRead + Send,
    identity: &Identity,
    options: RestoreOptions,
    mut progress: impl FnMut(BackupProgress<'_>) + Send,
) -> Result<Restored, BackupError> {
    let mut lines = read::open(input, identity)?;
    let header = lines.header()?;
    let keys = lines.key_ring()?;
    if header.format < FORMAT_AUTHENTIC && !options.accept_unauthenticated {
        return Err(BackupError::NoCode);
    }
    let made = match &options.into.location.0 {
        location::Kind::Sqlite(path) if !path.exists() => Some(path.clone()),
        _ => None,
    };
    if let Some(path) = &made {
        db::create_file(path)?;
    }
    let opened = Opened { lines, header, keys, identity };
    let restored = restore_into(opened, &options, made, &mut progress).await?;
    check(restored, options.into).await
}

/// A backup of which the rows are still to be read.
struct Opened<'i, R: Read> {
    lines: Lines<R>,
    header: Header,
    keys: Option<KeyRing>,
    identity: &'i Identity,
}

async fn restore_into<R: Read + Send>(
    opened: Opened<'_, R>,
    options: &RestoreOptions,
    made: Option<PathBuf>,
    progress: &mut (impl FnMut(BackupProgress<'_>) + Send),
) -> Result<Restored, BackupError> {
    let location = &options.into.location;
    // Nobody else writes meanwhile: neither a run nor a server.
    let (mut connection, lock) = Lock::take(location, "berth restore").await?;
    if !schema::is_empty(&mut connection, location).await? && !options.replace {
        return Err(BackupError::NotEmpty { state: location.to_string() });
    }
    connection.run(connection.dialect().begin).await?;
    let result = transaction(&mut connection, opened, options, progress).await;
    match result {
        Ok(restored) => {
            connection.run("COMMIT").await?;
            // The row that says who holds the lock is not there any more, and need not be.
            lock.release(connection).await?;
            Ok(restored)
        }
        Err(error) => {
            _ = connection.run("ROLLBACK").await;
            _ = connection.close().await;
            if let Some(path) = made {
                // Made for this, and nobody else could have written to it; the lock is still held.
                _ = std::fs::remove_file(path);
            }
            drop(lock);
            Err(error)
        }
    }
}

async fn transaction<R: Read + Send>(
    connection: &mut Connection,
    opened: Opened<'_, R>,
    options: &RestoreOptions,
    progress: &mut (impl FnMut(BackupProgress<'_>) + Send),
) -> Result<Restored, BackupError> {
    let Opened { mut lines, header, keys, identity } = opened;
    let RestoreOptions { into, accept_unauthenticated: accept, .. } = options;
    let location = &into.location;
    let mut fence = 0;
    if !schema::is_empty(connection, location).await? {
        fence = Query::new(FENCE).fetch_one(connection).await?.get(0)?;
        schema::remove(connection).await?;
    }
    // As it was where the backup was made; what came since follows, as for any older state.
    schema::bring_to(connection, location, header.schema).await?;
    let tables = matching(&header, catalog::tables(connection).await?)?;
    for table in tables.iter().rev() {
        // What the schema itself puts in is in the backup too.
        catalog::rows(connection, format!("DELETE FROM {}", quoted(&table.name))).await?;
    }
    let rows = fill(connection, &mut lines, &header, &tables, progress).await?;
    let code = lines.end(rows)?;
    let origin = origin(code.as_ref(), keys.as_ref(), &into.key, identity, *accept)?;
    schema::bring_to(connection, location, schema::SCHEMA).await?;
    fence_off(connection, fence).await?;
    count_on(connection).await?;
    let check: Option<String> = match Query::new(sql::META).bind(KEY_CHECK).fetch_optional(connection).await? {
        Some(row) => Some(row.get(0)?),
        None => None,
    };
    // Before the commit: rows that nobody can open are worth nothing.
    let keys_written = place_keys(keys, &into.key, check.as_deref())?;
    Ok(Restored {
        rows,
        tables: tables.len(),
        at: header.at.clone(),
        source: header.source.clone(),
        schema: header.schema,
        keys_written,
        secrets: 0,
        audit: AuditState::default(),
        origin,
        access: access(connection).await?,
    })
}

/// The tables in the backup's order and with its columns, as this database has them. Names are taken from the database.
fn matching(header: &Header, known: Vec<Table>) -> Result<Vec<Table>, BackupError> {
    let odd = |what: String| BackupError::Damaged(format!("{what} is not of schema {}", header.schema));
    let mut tables = Vec::with_capacity(known.len());
    for said in &header.tables {
        let table = known.iter().find(|table| table.name == said.name).ok_or_else(|| odd("a table".into()))?;
        if tables.iter().any(|other: &Table| other.name == table.name) {
            return Err(odd(format!("the second table {}", table.name)));
        }
        let column = |name: &String| {
            let found = table.columns.iter().find(|column| column.name == *name).cloned();
            found.ok_or_else(|| odd(format!("a column of {}", table.name)))
        };
        let columns = said.columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        if columns.len() != table.columns.len() {
            return Err(odd(format!("the list of columns of {}", table.name)));
        }
        tables.push(Table { name: table.name.clone(), columns });
    }
    if tables.len() != known.len() {
        return Err(odd("the list of tables".into()));
    }
    Ok(tables)
}

enum Cell {
    Text(Option<String>),
    Number(Option<i64>),
    Truth(Option<bool>),
}

fn cell(kind: Kind, value: Value) -> Option<Cell> {
    Some(match (kind, value) {
        (Kind::Text, Value::String(text)) => Cell::Text(Some(text)),
        (Kind::Text, Value::Null) => Cell::Text(None),
        (Kind::Number, Value::Number(number)) => Cell::Number(Some(number.as_i64()?)),
        (Kind::Number, Value::Null) => Cell::Number(None),
        (Kind::Truth, Value::Bool(truth)) => Cell::Truth(Some(truth)),
        (Kind::Truth, Value::Null) => Cell::Truth(None),
        _ => return None,
    })
}

/// Reads all rows and writes them, many with each statement. How many there were.
async fn fill<R: Read + Send>(
    connection: &mut Connection,
    lines: &mut Lines<R>,
    header: &Header,
    tables: &[Table],
    progress: &mut (impl FnMut(BackupProgress<'_>) + Send),
) -> Result<u64, BackupError> {
    let all = header.tables.iter().map(|table| table.rows).sum();
    let mut rows = 0;
    for (table, said) in tables.iter().zip(&header.tables) {
        let width = table.columns.len();
        let rows_max = (INSERT_CELLS / width.max(1)).clamp(1, INSERT_ROWS);
        let mut cells: Vec<Cell> = Vec::with_capacity(width * rows_max);
        let mut bytes = 0;
        for _ in 0..said.rows {
            let row = lines.row()?;
            let odd = || BackupError::Damaged(format!("a row of {} has other columns", table.name));
            if row.len() != width {
                return Err(odd());
            }
            for (column, value) in table.columns.iter().zip(row) {
                bytes += value.as_str().map_or(8, str::len);
                cells.push(cell(column.kind, value).ok_or_else(odd)?);
            }
            rows += 1;
            if cells.len() >= width * rows_max || bytes >= INSERT_BYTES {
                insert(connection, table, &cells).await?;
                cells.clear();
                bytes = 0;
            }
            if rows % TOLD_EVERY_ROWS == 0 {
                progress(BackupProgress { table: &table.name, rows, rows_in_all: all });
            }
        }
        if !cells.is_empty() {
            insert(connection, table, &cells).await?;
        }
        progress(BackupProgress { table: &table.name, rows, rows_in_all: all });
    }
    Ok(rows)
}

async fn insert(connection: &mut Connection, table: &Table, cells: &[Cell]) -> Result<(), StoreError> {
    let columns: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    let counted = table.columns.iter().any(|column| column.counted);
    let overriding = match connection {
        Connection::Postgres(_) if counted => " OVERRIDING SYSTEM VALUE",
        _ => "",
    };
    let width = columns.len();
    let row = |row: usize| {
        let cells: Vec<String> = (1..=width).map(|cell| format!("${}", row * width + cell)).collect();
        format!("({})", cells.join(", "))
    };
    let values: Vec<String> = (0..cells.len() / width).map(row).collect();
    let text = format!(
        "INSERT INTO {} ({}){overriding} VALUES {}",
        quoted(&table.name),
        columns.join(", "),
        values.join(", ")
    );
    match connection {
        Connection::Sqlite(one) => bound(text, cells).execute(one.as_mut()).await.map(|_| ())?,
        Connection::Postgres(one) => bound(text, cells).execute(one.as_mut()).await.map(|_| ())?,
    }
    Ok(())
}

fn bound<DB: Database>(text: String, cells: &[Cell]) -> sqlx::query::Query<'static, DB, DB::Arguments>
where
    for<'a> Option<&'a str>: Encode<'a, DB> + Type<DB>,
    for<'a> Option<i64>: Encode<'a, DB> + Type<DB>,
    for<'a> Option<bool>: Encode<'a, DB> + Type<DB>,
{
    cells.iter().fold(sqlx::query(AssertSqlSafe(text)), |query, cell| match cell {
        Cell::Text(text) => query.bind(text.as_deref()),
        Cell::Number(number) => query.bind(*number),
        Cell::Truth(truth) => query.bind(*truth),
    })
}

/// Runs and servers of the time of the backup have no right to write here.
async fn fence_off(connection: &mut Connection, fence: i64) -> Result<(), StoreError> {
    Query::new(LEAP_FENCE).bind(fence).bind(LEAP).execute(connection).await?;
    Query::new(END_LEASES).execute(connection).await?;
    Query::new(NO_HOLDER).execute(connection).await?;
    Ok(())
}

/// The databases' own counts go on after what was restored.
async fn count_on(connection: &mut Connection) -> Result<(), StoreError> {
    if let Connection::Sqlite(_) = connection {
        // SQLite has counted along; it has no count yet for a table without rows.
        Query::new(SQLITE_COUNT_EVENTS).execute(connection).await?;
        Query::new(SQLITE_LEAP_EVENTS).bind(LEAP).execute(connection).await?;
        return Ok(());
    }
    for table in catalog::tables(connection).await? {
        for column in table.columns.iter().filter(|column| column.counted) {
            let leap = if table.name == "events" { LEAP } else { 0 };
            let (table, column) = (quoted(&table.name), quoted(&column.name));
            // The last one that was given out; none for a table without rows.
            let text = format!(
                "SELECT setval(pg_get_serial_sequence('{table}', '{}'), COALESCE(MAX({column}), 0) + {leap} + 1, false) \
                 FROM {table}",
                column.trim_matches('"')
            );
            catalog::rows(connection, text).await?;
        }
    }
    Ok(())
}

/// Sees to it that the ring at its new place opens what was restored. The file that was written, if any.
fn place_keys(keys: Option<KeyRing>, source: &KeySource, check: Option<&str>) -> Result<Option<PathBuf>, BackupError> {
    let found = source.find()?;
    let opened = |ring: &KeyRing| check.is_none_or(|check| opens(ring, check));
    let Some(keys) = keys else {
        return match found {
            Found::Keys { ring, .. } if opened(&ring) => Ok(None),
            Found::Keys { place, .. } => Err(BackupError::KeyElsewhere { place }),
            Found::Absent { path } => Err(BackupError::KeyElsewhere { place: path.display().to_string() }),
        };
    };
    if !opened(&keys) {
        return Err(BackupError::Damaged("its keys do not open it".into()));
    }
    let (ring, place) = match found {
        Found::Keys { ring, .. } if ring.covers(&keys) => return Ok(None),
        // The keys that are there go on sealing; those of the backup open what is in it.
        Found::Keys { ring, place } => (keys.after(&ring), place),
        Found::Absent { path } => (keys, path.display().to_string()),
    };
    let Some(path) = source.file() else { return Err(BackupError::RingNotWritable { place }) };
    write_ring(&path, &ring)?;
    Ok(Some(path))
}

/// What was restored, looked at as anyone else would: it opens, and so does every secret in it.
async fn check(restored: Restored, into: Options) -> Result<Restored, BackupError> {
    let store = Store::open(Options { must_exist: true, ..into }).await?;
    let checked = store.check_secrets().await;
    let audit = store.verify_audit().await;
    store.close().await;
    Ok(Restored { secrets: checked?, audit: audit?, ..restored })
}
