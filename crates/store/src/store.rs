//! The state, opened: everything that reads.

use crate::error::StoreError;
use crate::key::{self, Found, KeySource};
use crate::rows::{self, Entries, Event, Filter, HistoryLine, JournalEntry, StoredResource};
use crate::run::{NewResource, Run};
use crate::seal::{Key, Place, Sealer};
use crate::{schema, sql};
use berth_engine::unit::UnitState;
use berth_model::ResourceId;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqlitePoolOptions, SqliteRow};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Readers at once; one is enough for a command, a few serve what runs beside it.
const READERS_MAX: u32 = 4;
const READER_WAIT_SECONDS: u64 = 30;
/// Lines of journal, events or history that one call gives.
pub const LINES_MAX: u32 = 10_000;

const KEY_CHECK_TEXT: &str = "berth";

/// How to open a state.
#[derive(Clone, Default)]
pub struct Options {
    /// The database file, such as `.berth/state.db`.
    pub path: PathBuf,
    pub key: KeySource,
    /// Fail with [`StoreError::Missing`] instead of making a state where there is none.
    pub must_exist: bool,
}

impl Options {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }
}

/// An open state. Reading needs no lock and works beside a run of another process; writing goes through [`Run`].
#[derive(Clone)]
pub struct Store {
    pool: SqlitePool,
    path: Arc<Path>,
    sealer: Arc<Sealer>,
}

impl Store {
    pub async fn open(options: Options) -> Result<Self, StoreError> {
        let path = options.path;
        if options.must_exist && !path.exists() {
            return Err(StoreError::Missing { path });
        }
        schema::create_file(&path)?;
        let pool = SqlitePoolOptions::new()
            .max_connections(READERS_MAX)
            .acquire_timeout(Duration::from_secs(READER_WAIT_SECONDS))
            .test_before_acquire(false)
            .connect_lazy_with(schema::connect_options(&path));
        let mut connection = pool.acquire().await.map_err(|source| StoreError::Open { path: path.clone(), source })?;
        schema::migrate(&mut connection, &path).await?;
        let sealer = unlock(&mut connection, &options.key, &path).await?;
        drop(connection);
        Ok(Self { pool, path: path.into(), sealer: Arc::new(sealer) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn sealer(&self) -> &Arc<Sealer> {
        &self.sealer
    }

    /// Waits for readers and closes the file. Dropping the store is as safe; this only leaves no files beside the state.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Takes the exclusive right to write, for `what` (the command, shown to whoever comes second).
    pub async fn begin_run(&self, what: &str) -> Result<Run, StoreError> {
        Run::begin(self, what).await
    }

    pub async fn resource(&self, id: &ResourceId) -> Result<Option<StoredResource>, StoreError> {
        let row = bind_id(sqlx::query(sql::RESOURCE), id).fetch_optional(&self.pool).await?;
        row.as_ref().map(rows::resource).transpose()
    }

    /// By kind, name, org and env. One query however many there are.
    pub async fn resources(&self, filter: &Filter) -> Result<Vec<StoredResource>, StoreError> {
        let query = sqlx::query(sql::RESOURCES)
            .bind(filter.kind.as_deref())
            .bind(filter.name.as_deref())
            .bind(filter.org.as_deref())
            .bind(filter.env.as_deref());
        self.rows(query, rows::resource).await
    }

    /// Without secrets; see [`Store::secrets_of`].
    pub async fn units_of(&self, id: &ResourceId) -> Result<Vec<UnitState>, StoreError> {
        self.rows(bind_id(sqlx::query(sql::UNITS_OF), id), rows::unit).await
    }

    /// Every unit of every resource, without secrets.
    pub async fn all_units(&self) -> Result<Vec<UnitState>, StoreError> {
        self.rows(sqlx::query(sql::UNITS), rows::unit).await
    }

    /// Who manages an object of a cloud's.
    pub async fn units_by_object(&self, object_id: &str) -> Result<Vec<UnitState>, StoreError> {
        self.rows(sqlx::query(sql::UNITS_BY_OBJECT).bind(object_id), rows::unit).await
    }

    /// Secret outputs of a unit (of the object in use, not of one that was replaced). Empty when there are none.
    pub async fn secrets_of(&self, id: &ResourceId, key: &str) -> Result<BTreeMap<String, SecretString>, StoreError> {
        let row: Option<(String, String)> =
            bind_id(sqlx::query_as(sql::UNIT_SECRETS), id).bind(key).fetch_optional(&self.pool).await?;
        let Some((token, column)) = row else { return Ok(BTreeMap::new()) };
        self.sealer.open_all(&column, &format!("{id} {key}"), |name| Place::unit(id, key, &token, name))
    }

    /// Secret outputs of a resource, such as a kubeconfig.
    pub async fn status_secrets(&self, id: &ResourceId) -> Result<BTreeMap<String, SecretString>, StoreError> {
        let column: Option<String> =
            bind_id(sqlx::query_scalar(sql::STATUS_SECRETS), id).fetch_optional(&self.pool).await?;
        self.sealer.open_all(&column.unwrap_or_default(), &id.to_string(), |name| Place::status(id, name))
    }

    /// A stored manifest with its secrets opened: for the moment of use only, never to be kept or shown.
    pub fn unseal(&self, resource: &StoredResource) -> Result<Value, StoreError> {
        let mut manifest = resource.sealed_manifest()?;
        for pointer in resource.sealed_paths()? {
            let sealed = || StoreError::Sealed { of: resource.id.to_string() };
            let slot = manifest.pointer_mut(&pointer).ok_or_else(sealed)?;
            let text = slot.as_str().ok_or_else(sealed)?;
            let clear = self.sealer.open(&Place::manifest(&resource.id, &pointer), text).ok_or_else(sealed)?;
            *slot = Value::String(clear.expose_secret().to_owned());
        }
        Ok(manifest)
    }

    /// Seals a manifest's secrets for a file outside the state; [`Store::open_sealed`] reads it back.
    pub fn seal(&self, resource: NewResource) -> Result<(Value, Vec<String>), StoreError> {
        let NewResource { id, mut manifest, secrets, .. } = resource;
        for pointer in &secrets {
            let Some(Value::String(clear)) = manifest.pointer_mut(pointer) else {
                return Err(StoreError::Sealed { of: id.to_string() });
            };
            let clear = zeroize::Zeroizing::new(std::mem::take(clear));
            let sealed = self.sealer.seal(&Place::file(pointer), &clear)?;
            if let Some(slot) = manifest.pointer_mut(pointer) {
                *slot = Value::String(sealed);
            }
        }
        Ok((manifest, secrets))
    }

    /// Opens what [`Store::seal`] sealed with the same key.
    pub fn open_sealed(&self, mut manifest: Value, secrets: &[String]) -> Result<Value, StoreError> {
        for pointer in secrets {
            let sealed = || StoreError::Sealed { of: "the plan".into() };
            let slot = manifest.pointer_mut(pointer).ok_or_else(sealed)?;
            let text = slot.as_str().ok_or_else(sealed)?;
            let clear = self.sealer.open(&Place::file(pointer), text).ok_or_else(sealed)?;
            *slot = Value::String(clear.expose_secret().to_owned());
        }
        Ok(manifest)
    }

    /// Changes and events of one resource, newest first; pages start at 0.
    pub async fn history(&self, id: &ResourceId, limit: u32, page: u32) -> Result<Vec<HistoryLine>, StoreError> {
        let limit = i64::from(limit.min(LINES_MAX));
        let query = bind_id(sqlx::query(sql::HISTORY), id).bind(limit).bind(limit * i64::from(page));
        self.rows(query, rows::history_line).await
    }

    /// Newest first.
    pub async fn journal(&self, entries: Entries, limit: u32) -> Result<Vec<JournalEntry>, StoreError> {
        let query = match entries {
            Entries::All => sql::JOURNAL,
            Entries::Open => sql::JOURNAL_OPEN,
        };
        self.rows(sqlx::query(query).bind(i64::from(limit.min(LINES_MAX))), rows::journal_entry).await
    }

    /// Newest first.
    pub async fn events(&self, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.rows(sqlx::query(sql::EVENTS).bind(i64::from(limit.min(LINES_MAX))), rows::event).await
    }

    async fn rows<T>(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
        decode: fn(&SqliteRow) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        use futures::TryStreamExt;
        // Row by row, so that the raw rows of a large state are not all in memory beside what they become.
        let mut stream = query.fetch(&self.pool);
        let mut all = Vec::new();
        while let Some(row) = stream.try_next().await? {
            all.push(decode(&row)?);
        }
        Ok(all)
    }
}

/// A query that four parameters can be added to, whatever it returns.
pub(crate) trait Bindable<'q>: Sized {
    fn add(self, value: &'q str) -> Self;
}

impl<'q> Bindable<'q> for sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
    fn add(self, value: &'q str) -> Self {
        self.bind(value)
    }
}

impl<'q, O> Bindable<'q> for sqlx::query::QueryAs<'q, sqlx::Sqlite, O, sqlx::sqlite::SqliteArguments> {
    fn add(self, value: &'q str) -> Self {
        self.bind(value)
    }
}

impl<'q, O> Bindable<'q> for sqlx::query::QueryScalar<'q, sqlx::Sqlite, O, sqlx::sqlite::SqliteArguments> {
    fn add(self, value: &'q str) -> Self {
        self.bind(value)
    }
}

/// Parameters 1 to 4 of every statement about one resource.
pub(crate) fn bind_id<'q, Q: Bindable<'q>>(query: Q, id: &'q ResourceId) -> Q {
    query.add(&id.kind).add(&id.name).add(&id.org).add(&id.env)
}

/// Finds the key and proves that it is the state's. A new state takes whatever key there is, or a new one.
async fn unlock(connection: &mut SqliteConnection, source: &KeySource, path: &Path) -> Result<Sealer, StoreError> {
    let check = schema::key_check(connection).await?;
    let (key, place): (Key, String) = match source.find()? {
        Found::Key { key, place } => (key, place),
        Found::Absent { path: place } if check.is_some() => {
            return Err(StoreError::KeyMissing { path: path.into(), place: place.display().to_string() });
        }
        Found::Absent { path } => key::create(&path)?,
    };
    let sealer = Sealer::new(&key);
    let check = match check {
        Some(check) => check,
        None => {
            let sealed = sealer.seal(&Place::key_check(), KEY_CHECK_TEXT)?;
            sqlx::query(sql::SET_KEY_CHECK).bind(&sealed).execute(&mut *connection).await?;
            // Another process may have been first, with another key.
            schema::key_check(connection).await?.unwrap_or(sealed)
        }
    };
    match sealer.open(&Place::key_check(), &check) {
        Some(text) if text.expose_secret() == KEY_CHECK_TEXT => Ok(sealer),
        _ => Err(StoreError::WrongKey { path: path.into(), place }),
    }
}
