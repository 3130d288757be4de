//! Making a backup: one snapshot, row by row, so that memory does not grow with the state.

use super::{
    BackupError, BackupProgress, FORMAT, Header, HeaderTable, KeyLine, Recipients, TOLD_EVERY_ROWS, Trailer,
    WORK_FACTOR, half_made,
};
use crate::catalog::{self, Kind, Table, quoted};
use crate::db::{Connection, Row};
use crate::error::StoreError;
use crate::files;
use crate::hex;
use crate::schema::SCHEMA;
use crate::store::Store;
use age::{Encryptor, scrypt, x25519};
use futures::TryStreamExt;
use hmac::Mac;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::AssertSqlSafe;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::str::FromStr;
use zeroize::Zeroizing;

/// What was backed up.
#[derive(Clone, Debug)]
pub struct Backup {
    pub rows: u64,
    pub tables: usize,
    /// Of the lines in it, before encryption.
    pub sha256: String,
    /// Whether the keys are in it.
    pub with_keys: bool,
}

/// A read that goes on for as long as a slow disk needs, and not for ever.
const POSTGRES_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '2h'; \
     SET LOCAL idle_in_transaction_session_timeout = '10min'";

impl Store {
    /// Writes a backup to a file that is not there yet, for its owner alone. The file gets its name when it is whole.
    pub async fn backup_to(
        &self,
        path: &Path,
        recipients: &Recipients,
        with_keys: bool,
        progress: impl FnMut(BackupProgress<'_>) + Send,
    ) -> Result<Backup, BackupError> {
        let failed = |doing| move |source| BackupError::File { doing, source };
        if path.exists() {
            return Err(failed("write")(std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
        }
        let part = half_made(path);
        let file = files::private_file().create_new(true).open(&part).map_err(failed("create"))?;
        let written = async {
            let (file, backup) = self.backup(BufWriter::new(file), recipients, with_keys, progress).await?;
            let file = file.into_inner().map_err(|error| failed("write")(error.into_error()))?;
            file.sync_all().map_err(failed("write"))?;
            // Linked, not renamed: a file that came to be there meanwhile is not replaced.
            std::fs::hard_link(&part, path).map_err(failed("name"))?;
            Ok(backup)
        }
        .await;
        _ = std::fs::remove_file(&part);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if written.is_ok() {
            files::sync_folder(folder).map_err(failed("keep"))?;
        }
        written
    }

    /// Writes a backup anywhere.
    pub async fn backup<W: Write + Send>(
        &self,
        out: W,
        recipients: &Recipients,
        with_keys: bool,
        progress: impl FnMut(BackupProgress<'_>) + Send,
    ) -> Result<(W, Backup), BackupError> {
        let failed = |source| BackupError::File { doing: "write", source };
        let stream = encryptor(recipients)?.wrap_output(out).map_err(failed)?;
        let mut lines = Lines { out: stream, hash: Sha256::new(), rows: 0 };
        let mut connection = Connection::open(self.location()).await?;
        let written = self.write_lines(&mut connection, &mut lines, with_keys, progress).await;
        _ = connection.run("ROLLBACK").await;
        _ = connection.close().await;
        let tables = written?;
        let (rows, hash) = (lines.rows, lines.hash.clone().finalize());
        let ring = self.sealer().keys().fresh()?;
        let hmac = hex(&ring.first().backup_mac(&hash, rows).finalize().into_bytes());
        let (key, sha256) = (ring.first().id().to_owned(), hex(&hash));
        lines.line(&Trailer { end: true, rows, sha256: sha256.clone(), key, hmac })?;
        let out = lines.out.finish().map_err(failed)?;
        Ok((out, Backup { rows, tables, sha256, with_keys }))
    }

    async fn write_lines<W: Write + Send>(
        &self,
        connection: &mut Connection,
        lines: &mut Lines<W>,
        with_keys: bool,
        mut progress: impl FnMut(BackupProgress<'_>) + Send,
    ) -> Result<usize, BackupError> {
        let source = match connection {
            Connection::Sqlite(_) => {
                connection.run("BEGIN").await?;
                "sqlite"
            }
            Connection::Postgres(_) => {
                connection.run(POSTGRES_SNAPSHOT).await?;
                "postgres"
            }
        };
        let tables = catalog::tables(connection).await?;
        let mut header = Header {
            backup: "berth".into(),
            format: FORMAT,
            schema: SCHEMA,
            source: source.into(),
            at: jiff::Timestamp::now().to_string(),
            berth: env!("CARGO_PKG_VERSION").into(),
            tables: Vec::new(),
        };
        for table in &tables {
            let count = catalog::rows(connection, format!("SELECT COUNT(*) FROM {}", quoted(&table.name))).await?;
            let rows: i64 = count.first().map(|row| row.get(0)).transpose()?.unwrap_or(0);
            header.tables.push(HeaderTable {
                name: table.name.clone(),
                columns: table.columns.iter().map(|column| column.name.clone()).collect(),
                rows: u64::try_from(rows).unwrap_or(0),
            });
        }
        lines.line(&header)?;
        let ring = with_keys.then(|| self.sealer().keys().fresh()).transpose()?;
        let mut keys = KeyLine { key_ring: ring.map(|ring| ring.text().to_string()) };
        let written = lines.line(&keys);
        drop(keys.key_ring.take().map(Zeroizing::new));
        written?;
        let all = header.tables.iter().map(|table| table.rows).sum();
        for (table, said) in tables.iter().zip(&header.tables) {
            let before = lines.rows;
            write_table(connection, lines, table, all, &mut progress).await?;
            // One snapshot: anything else would be a fault of the database's.
            if lines.rows - before != said.rows {
                return Err(StoreError::Database(format!("{} changed while it was read", table.name)).into());
            }
        }
        Ok(tables.len())
    }
}

fn encryptor(recipients: &Recipients) -> Result<Encryptor, BackupError> {
    let made = match recipients {
        Recipients::Passphrase(passphrase) => {
            let mut recipient = scrypt::Recipient::new(passphrase.clone());
            recipient.set_work_factor(WORK_FACTOR);
            Encryptor::with_recipients(std::iter::once(&recipient as &dyn age::Recipient))
        }
        Recipients::Keys(keys) => {
            let read = |key: &String| {
                x25519::Recipient::from_str(key.trim()).map_err(|_| BackupError::Recipient(shortened(key)))
            };
            let recipients = keys.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            Encryptor::with_recipients(recipients.iter().map(|one| one as &dyn age::Recipient))
        }
    };
    made.map_err(|error| match error {
        age::EncryptError::Io(source) => BackupError::File { doing: "encrypt", source },
        other => BackupError::Recipient(other.to_string()),
    })
}

/// A secret key that was given in place of a public one must not be shown.
fn shortened(key: &str) -> String {
    if key.starts_with("age1") { key.chars().take(80).collect() } else { "…".into() }
}

struct Lines<W: Write> {
    out: age::stream::StreamWriter<W>,
    hash: Sha256,
    rows: u64,
}

impl<W: Write> Lines<W> {
    fn line(&mut self, value: &impl serde::Serialize) -> Result<(), BackupError> {
        let failed = |source| BackupError::File { doing: "write", source };
        let mut line = Zeroizing::new(Vec::with_capacity(1024));
        serde_json::to_writer(&mut *line, value).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.hash.update(&*line);
        self.out.write_all(&line).map_err(failed)
    }
}

async fn write_table<W: Write + Send>(
    connection: &mut Connection,
    lines: &mut Lines<W>,
    table: &Table,
    all: u64,
    progress: &mut (impl FnMut(BackupProgress<'_>) + Send),
) -> Result<(), BackupError> {
    let is_postgres = matches!(connection, Connection::Postgres(_));
    // PostgreSQL has numbers of several sizes.
    let column = |column: &catalog::Column| match column.kind {
        Kind::Number if is_postgres => format!("{}::bigint", quoted(&column.name)),
        _ => quoted(&column.name),
    };
    let columns: Vec<String> = table.columns.iter().map(column).collect();
    let text = AssertSqlSafe(format!("SELECT {} FROM {}", columns.join(", "), quoted(&table.name)));
    let mut each = |row: Row| -> Result<(), BackupError> {
        lines.line(&cells(table, &row)?)?;
        lines.rows += 1;
        if lines.rows.is_multiple_of(TOLD_EVERY_ROWS) {
            progress(BackupProgress { table: &table.name, rows: lines.rows, rows_in_all: all });
        }
        Ok(())
    };
    match connection {
        Connection::Sqlite(one) => {
            let mut rows = sqlx::query(text).fetch(one.as_mut());
            while let Some(row) = rows.try_next().await.map_err(StoreError::from)? {
                each(Row::Sqlite(row))?;
            }
        }
        Connection::Postgres(one) => {
            let mut rows = sqlx::query(text).fetch(one.as_mut());
            while let Some(row) = rows.try_next().await.map_err(StoreError::from)? {
                each(Row::Postgres(row))?;
            }
        }
    }
    progress(BackupProgress { table: &table.name, rows: lines.rows, rows_in_all: all });
    Ok(())
}

fn cells(table: &Table, row: &Row) -> Result<Vec<Value>, StoreError> {
    let cell = |(at, column): (usize, &catalog::Column)| {
        Ok(match column.kind {
            Kind::Text => row.get::<Option<String>>(at)?.map_or(Value::Null, Value::String),
            Kind::Number => row.get::<Option<i64>>(at)?.map_or(Value::Null, Value::from),
            Kind::Truth => row.get::<Option<bool>>(at)?.map_or(Value::Null, Value::Bool),
        })
    };
    table.columns.iter().enumerate().map(cell).collect()
}
