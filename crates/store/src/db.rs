//! SQLite and PostgreSQL behind one interface: statements with their parameters, rows, connections, a pool of readers. The code above
//! this file does not know which of the two it uses.

use crate::error::StoreError;
use crate::files;
use crate::location::{Kind, Location};
use crate::sql::{self, Dialect};
use berth_model::ResourceId;
use futures::{Stream, TryStreamExt};
use serde::Serialize;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection as _, Database, Decode, Encode, Postgres, Row as _, Sqlite, Type,
};
use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Readers at once; one is enough for a command, a few serve what runs beside it.
const READERS_MAX: u32 = 4;
const READER_WAIT: Duration = Duration::from_secs(30);
/// A reader that rested longer than this is asked whether it still has its connection.
const TRUSTED_FOR: Duration = Duration::from_secs(1);
/// How long a statement of SQLite's waits for another connection's transaction.
const BUSY_WAIT: Duration = Duration::from_secs(10);
const CONNECT_WAIT: Duration = Duration::from_secs(30);
/// One statement's answer, or all rows of a read. Longer than what the server itself gives a statement.
const ANSWER_WAIT: Duration = Duration::from_secs(150);

/// A parameter of a statement.
pub(crate) enum Arg<'q> {
    Text(Option<&'q str>),
    Number(i64),
    Unsure(Option<i64>),
    Truth(bool),
}

macro_rules! arg_from {
    ($($type:ty, $value:ident => $arg:expr;)*) => {
        $(impl<'q> From<$type> for Arg<'q> {
            fn from($value: $type) -> Self {
                $arg
            }
        })*
    };
}

arg_from! {
    &'q str, text => Arg::Text(Some(text));
    &'q String, text => Arg::Text(Some(text));
    Option<&'q str>, text => Arg::Text(text);
    i64, number => Arg::Number(number);
    Option<i64>, number => Arg::Unsure(number);
    bool, truth => Arg::Truth(truth);
}

/// A statement and its parameters, in order. It can be sent more than once.
pub(crate) struct Query<'q> {
    text: Cow<'static, str>,
    args: Vec<Arg<'q>>,
}

impl<'q> Query<'q> {
    pub fn new(text: &'static str) -> Self {
        Self { text: Cow::Borrowed(text), args: Vec::new() }
    }

    /// A statement put together from parts of our own; what callers give is bound, never part of the text.
    pub fn built(text: String) -> Self {
        Self { text: Cow::Owned(text), args: Vec::new() }
    }

    /// Parameters 1 to 4 of every statement about one resource.
    pub fn about(text: &'static str, id: &'q ResourceId) -> Self {
        Self::new(text).bind(&id.kind).bind(&id.name).bind(&id.org).bind(&id.env)
    }

    pub fn bind(mut self, arg: impl Into<Arg<'q>>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// How many rows it changed.
    pub async fn execute(self, on: &mut Connection) -> Result<u64, StoreError> {
        match on {
            Connection::Sqlite(one) => Ok(within(self.native().execute(one.as_mut())).await?.rows_affected()),
            Connection::Postgres(one) => Ok(within(self.native().execute(one.as_mut())).await?.rows_affected()),
        }
    }

    pub async fn fetch_optional(self, on: &mut Connection) -> Result<Option<Row>, StoreError> {
        match on {
            Connection::Sqlite(one) => Ok(within(self.native().fetch_optional(one.as_mut())).await?.map(Row::Sqlite)),
            Connection::Postgres(one) => {
                Ok(within(self.native().fetch_optional(one.as_mut())).await?.map(Row::Postgres))
            }
        }
    }

    pub async fn fetch_all(self, on: &mut Connection) -> Result<Vec<Row>, StoreError> {
        match on {
            Connection::Sqlite(one) => {
                Ok(within(self.native().fetch_all(one.as_mut())).await?.into_iter().map(Row::Sqlite).collect())
            }
            Connection::Postgres(one) => {
                Ok(within(self.native().fetch_all(one.as_mut())).await?.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    pub async fn fetch_one(self, on: &mut Connection) -> Result<Row, StoreError> {
        self.fetch_optional(on).await?.ok_or_else(|| sqlx::Error::RowNotFound.into())
    }

    fn native<DB: Database>(&self) -> sqlx::query::Query<'static, DB, DB::Arguments>
    where
        for<'a> Option<&'a str>: Encode<'a, DB> + Type<DB>,
        for<'a> i64: Encode<'a, DB> + Type<DB>,
        for<'a> Option<i64>: Encode<'a, DB> + Type<DB>,
        for<'a> bool: Encode<'a, DB> + Type<DB>,
    {
        let query = match &self.text {
            Cow::Borrowed(text) => sqlx::query(*text),
            Cow::Owned(text) => sqlx::query(AssertSqlSafe(text.clone())),
        };
        self.args.iter().fold(query, |query, arg| match arg {
            Arg::Text(text) => query.bind(*text),
            Arg::Number(number) => query.bind(*number),
            Arg::Unsure(number) => query.bind(*number),
            Arg::Truth(truth) => query.bind(*truth),
        })
    }
}

/// Columns of [`OfRow`]; names that no table has, so that they need no prefix.
pub(crate) const OF_COLUMNS: &[(&str, &str)] =
    &[("of_kind", "text"), ("of_name", "text"), ("of_org", "text"), ("of_env", "text")];

#[derive(Serialize)]
pub(crate) struct OfRow<'a> {
    of_kind: &'a str,
    of_name: &'a str,
    of_org: &'a str,
    of_env: &'a str,
}

impl<'a> From<&'a ResourceId> for OfRow<'a> {
    fn from(id: &'a ResourceId) -> Self {
        Self { of_kind: &id.kind, of_name: &id.name, of_org: &id.org, of_env: &id.env }
    }
}

/// A statement about many rows at once, which come as one JSON list in the first parameter: `{rows}` in the text stands for
/// them, as a table `v` with these columns. One text for both databases, and one round trip however many rows.
pub(crate) struct Multi {
    text: &'static str,
    /// Name and type: `text`, `bigint` or `boolean`.
    columns: Columns,
    more: Columns,
    texts: [OnceLock<String>; 2],
}

type Columns = &'static [(&'static str, &'static str)];

impl Multi {
    pub const fn new(text: &'static str, columns: Columns) -> Self {
        Self::joined(text, columns, &[])
    }

    /// With columns of two lists.
    pub const fn joined(text: &'static str, columns: Columns, more: Columns) -> Self {
        Self { text, columns, more, texts: [OnceLock::new(), OnceLock::new()] }
    }

    /// `rows` is a JSON list of objects.
    pub fn query<'q>(&'static self, dialect: &Dialect, rows: &'q str) -> Query<'q> {
        Query::new(self.text(dialect)).bind(rows)
    }

    fn text(&'static self, dialect: &Dialect) -> &'static str {
        let sqlite = dialect.is_sqlite;
        self.texts[usize::from(sqlite)].get_or_init(|| {
            let columns: Vec<String> = self
                .columns
                .iter()
                .chain(self.more)
                .map(
                    |(name, kind)| {
                        if sqlite { format!("value ->> '{name}' AS {name}") } else { format!("{name} {kind}") }
                    },
                )
                .collect();
            let rows = match sqlite {
                true => format!("(SELECT {} FROM json_each($1)) AS v", columns.join(", ")),
                false => format!("json_to_recordset($1::json) AS v({})", columns.join(", ")),
            };
            self.text.replace("{rows}", &rows)
        })
    }
}

pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// Columns by number, from 0.
    pub fn get<'r, T>(&'r self, column: usize) -> Result<T, StoreError>
    where
        T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            Self::Sqlite(row) => Ok(row.try_get(column)?),
            Self::Postgres(row) => Ok(row.try_get(column)?),
        }
    }
}

/// A connection with one owner, outside the pool.
pub(crate) enum Connection {
    Sqlite(Box<SqliteConnection>),
    Postgres(Box<PgConnection>),
}

impl Connection {
    pub async fn open(location: &Location) -> Result<Self, StoreError> {
        let opening = async {
            match &location.0 {
                Kind::Sqlite(path) => sqlite_options(path).connect().await.map(|one| Self::Sqlite(Box::new(one))),
                Kind::Postgres(options) => options.connect().await.map(|one| Self::Postgres(Box::new(one))),
            }
        };
        let late = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
        tokio::time::timeout(CONNECT_WAIT, opening)
            .await
            .unwrap_or_else(late)
            .map_err(|source| StoreError::open(location, source))
    }

    pub fn dialect(&self) -> &'static Dialect {
        match self {
            Self::Sqlite(_) => &sql::SQLITE,
            Self::Postgres(_) => &sql::POSTGRES,
        }
    }

    /// Statements without parameters, one or many.
    pub async fn run(&mut self, text: &'static str) -> Result<(), StoreError> {
        self.run_raw(sqlx::raw_sql(text)).await
    }

    /// Begins a transaction of a server's, in one round trip: its number, to ask for if the answer to its commit is lost.
    /// SQLite's have none and need none.
    pub async fn begin_turn(&mut self) -> Result<i64, StoreError> {
        let begin = self.dialect().begin;
        match self {
            Self::Sqlite(_) => self.run(begin).await.map(|()| 0),
            Self::Postgres(one) => {
                let row = within(sqlx::raw_sql(sql::POSTGRES_TURN).fetch_one(one.as_mut())).await?;
                let number: String = row.try_get(0)?;
                number.parse().map_err(|_| StoreError::Database(format!("`{number}` is no transaction's number")))
            }
        }
    }

    pub async fn run_raw(&mut self, raw: sqlx::RawSql) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(one) => within(raw.execute(one.as_mut())).await.map(|_| ()),
            Self::Postgres(one) => within(raw.execute(one.as_mut())).await.map(|_| ()),
        }
    }

    pub async fn close(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(one) => within(one.close()).await,
            Self::Postgres(one) => within(one.close()).await,
        }
    }
}

/// An answer that does not come is a connection that broke.
async fn within<T>(answer: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(ANSWER_WAIT, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(no_answer()),
    }
}

fn no_answer() -> StoreError {
    StoreError::Lost(format!("no answer within {} seconds", ANSWER_WAIT.as_secs()))
}

/// Connections for reading, made as they are needed.
#[derive(Clone)]
pub(crate) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Pool {
    pub fn new(location: &Location) -> Self {
        match &location.0 {
            Kind::Sqlite(path) => Self::Sqlite(
                SqlitePoolOptions::new()
                    .max_connections(READERS_MAX)
                    .acquire_timeout(READER_WAIT)
                    .test_before_acquire(false)
                    .connect_lazy_with(sqlite_options(path)),
            ),
            Kind::Postgres(options) => Self::Postgres(
                PgPoolOptions::new()
                    .max_connections(READERS_MAX)
                    .acquire_timeout(READER_WAIT)
                    .test_before_acquire(false)
                    .after_connect(|one, _| {
                        Box::pin(async move { sqlx::raw_sql(sql::POSTGRES_READER).execute(one).await.map(|_| ()) })
                    })
                    .before_acquire(|one, about| {
                        Box::pin(async move {
                            if about.idle_for > TRUSTED_FOR {
                                one.ping().await?;
                            }
                            Ok(true)
                        })
                    })
                    .connect_lazy_with((**options).clone()),
            ),
        }
    }

    /// SQLite tidies its files up when the last connection goes; a reader that is there keeps it from doing so in vain.
    pub async fn warm(&self) -> Result<(), sqlx::Error> {
        if let Self::Sqlite(pool) = self {
            pool.acquire().await?;
        }
        Ok(())
    }

    /// A server that was started anew has closed every connection that rested: each is tried once, then a new one.
    pub async fn rows<T>(
        &self,
        query: Query<'_>,
        decode: fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        for _ in 0..READERS_MAX {
            match self.rows_once(&query, decode).await {
                Err(StoreError::Lost(cause)) => tracing::debug!(cause, "reading again on another connection"),
                result => return result,
            }
        }
        self.rows_once(&query, decode).await
    }

    async fn rows_once<T>(
        &self,
        query: &Query<'_>,
        decode: fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let reading = async {
            match self {
                Self::Sqlite(pool) => collect(query.native().fetch(pool), |row| decode(&Row::Sqlite(row))).await,
                Self::Postgres(pool) => collect(query.native().fetch(pool), |row| decode(&Row::Postgres(row))).await,
            }
        };
        tokio::time::timeout(ANSWER_WAIT, reading).await.map_err(|_| StoreError::Database(no_answer().to_string()))?
    }

    pub async fn row<T>(
        &self,
        query: Query<'_>,
        decode: fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(query, decode).await?.pop())
    }

    pub async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// Row by row, so that the raw rows of a large state are not all in memory beside what they become.
async fn collect<R, T>(
    mut rows: impl Stream<Item = Result<R, sqlx::Error>> + Unpin,
    decode: impl Fn(R) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::new();
    while let Some(row) = rows.try_next().await? {
        all.push(decode(row)?);
    }
    Ok(all)
}

fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_WAIT)
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
