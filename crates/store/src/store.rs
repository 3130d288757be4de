//! An open state, and everything that reads from it.

use crate::db::{self, Connection, Multi, OF_COLUMNS, OfRow, Pool, Query, Row};
use crate::error::StoreError;
use crate::key::KeySource;
use crate::location::{Kind, Location};
use crate::rows::{self, Entries, Event, Filter, HistoryLine, JournalEntry, StoredResource};
use crate::run::{NewResource, Run};
use crate::seal::Sealer;
use crate::sealed_place::{SealNumber, SealedPlace};
use crate::{schema, sql, unlock};
use berth_engine::unit::{Identity, UnitState};
use berth_model::ResourceId;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Lines of journal, events or history that one call gives.
pub const LINES_MAX: u32 = 10_000;

/// Resources that one query asks for by name.
const IDS_STEP: usize = 1_000;

static RESOURCES_OF: Multi = Multi::new(
    concat!(
        "SELECT ",
        resource_columns!(),
        " FROM {rows} JOIN resources ON kind = v.of_kind AND name = v.of_name AND org = v.of_org AND env = v.of_env"
    ),
    OF_COLUMNS,
);
static MANAGERS: Multi = Multi::new(
    "SELECT DISTINCT r.kind, r.name, r.org, r.env, u.object_id FROM {rows} JOIN units u ON u.object_id = v.object \
     JOIN resources r ON r.id = u.resource_id",
    &[("object", "text")],
);

static UNITS_OF_ALL: Multi = Multi::new(
    concat!(
        units_from!(),
        "JOIN {rows} ON r.kind = v.of_kind AND r.name = v.of_name AND r.org = v.of_org AND r.env = v.of_env \
         ORDER BY u.resource_id, u.unit_key, u.created_at"
    ),
    OF_COLUMNS,
);

/// How to open a state.
#[derive(Clone, Default)]
pub struct Options {
    /// The database file, such as `.berth/state.db`, or a PostgreSQL database.
    pub location: Location,
    pub key: KeySource,
    /// Fail with [`StoreError::Missing`] instead of making a state where there is none.
    pub must_exist: bool,
}

impl Options {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { location: path.into().into(), ..Self::default() }
    }

    /// `sqlite:PATH` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`.
    pub fn url(address: &str) -> Result<Self, StoreError> {
        Ok(Self { location: address.parse()?, ..Self::default() })
    }
}

/// An open state. Reading needs no lock and works beside a run of another process; writing goes through [`Run`].
#[derive(Clone)]
pub struct Store {
    pool: Pool,
    location: Arc<Location>,
    sealer: Arc<Sealer>,
}

impl Store {
    pub async fn open(options: Options) -> Result<Self, StoreError> {
        let location = options.location;
        if let Kind::Sqlite(path) = &location.0 {
            if options.must_exist && !path.exists() {
                return Err(StoreError::Missing { state: location.to_string() });
            }
            db::create_file(path)?;
        }
        // Not from the pool, which waits for a server to come up: here it is better to say at once what is wrong.
        let mut connection = Connection::open(&location).await?;
        schema::migrate(&mut connection, &location, options.must_exist).await?;
        let sealer = unlock::unlock(&mut connection, &options.key, &location).await?;
        let pool = Pool::new(&location);
        pool.warm().await.map_err(|source| StoreError::open(&location, source))?;
        connection.close().await?;
        Ok(Self { pool, location: Arc::new(location), sealer: Arc::new(sealer) })
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn sealer(&self) -> &Arc<Sealer> {
        &self.sealer
    }

    /// Waits for readers and closes their connections. Dropping the store is as safe; this only leaves no files beside a state of SQLite's.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Takes the exclusive right to write, for `what` (the command, shown to others who try).
    pub async fn begin_run(&self, what: &str) -> Result<Run, StoreError> {
        Run::begin(self, what).await
    }

    pub async fn resource(&self, id: &ResourceId) -> Result<Option<StoredResource>, StoreError> {
        self.pool.row(Query::about(sql::RESOURCE, id), rows::resource).await
    }

    /// By kind, name, org and env. One query however many there are.
    pub async fn resources(&self, filter: &Filter) -> Result<Vec<StoredResource>, StoreError> {
        // Only what is asked for: no database finds `$1 IS NULL OR kind = $1` by an index.
        let asked = [("kind", &filter.kind), ("name", &filter.name), ("org", &filter.org), ("env", &filter.env)];
        let mut text = format!("{}TRUE", sql::RESOURCES);
        let mut args: Vec<&str> = Vec::new();
        for (column, value) in asked {
            if let Some(value) = value {
                args.push(value);
                text.push_str(&format!(" AND {column} = ${}", args.len()));
            }
        }
        text.push_str(sql::IN_ORDER);
        self.pool.rows(args.into_iter().fold(Query::built(text), Query::bind), rows::resource).await
    }

    /// All of these kinds, in one query.
    pub async fn resources_of_kinds(&self, kinds: &[&str]) -> Result<Vec<StoredResource>, StoreError> {
        let places: Vec<String> = (1..=kinds.len()).map(|at| format!("${at}")).collect();
        let text = format!("{}kind IN ({}){}", sql::RESOURCES, places.join(", "), sql::IN_ORDER);
        self.pool.rows(kinds.iter().copied().fold(Query::built(text), Query::bind), rows::resource).await
    }

    /// Those of these that there are, in no order.
    pub async fn resources_of(&self, ids: &[ResourceId]) -> Result<Vec<StoredResource>, StoreError> {
        self.many(&RESOURCES_OF, ids, rows::resource).await
    }

    /// The units of these, each resource's together. Without secrets.
    pub async fn units_of_all(&self, ids: &[ResourceId]) -> Result<Vec<UnitState>, StoreError> {
        self.many(&UNITS_OF_ALL, ids, rows::unit).await
    }

    async fn many<T>(
        &self,
        multi: &'static Multi,
        ids: &[ResourceId],
        decode: fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::with_capacity(ids.len());
        for some in ids.chunks(IDS_STEP) {
            let some: Vec<OfRow> = some.iter().map(Into::into).collect();
            let some = serde_json::to_string(&some).map_err(|error| StoreError::Database(error.to_string()))?;
            let dialect = if self.location.is_sqlite() { &sql::SQLITE } else { &sql::POSTGRES };
            found.extend(self.pool.rows(multi.query(dialect, &some), decode).await?);
        }
        Ok(found)
    }

    /// Without secrets; see [`Store::secrets_of`].
    pub async fn units_of(&self, id: &ResourceId) -> Result<Vec<UnitState>, StoreError> {
        self.pool.rows(Query::about(sql::UNITS_OF, id), rows::unit).await
    }

    /// Every unit of every resource, without secrets.
    pub async fn all_units(&self) -> Result<Vec<UnitState>, StoreError> {
        self.pool.rows(Query::new(sql::UNITS), rows::unit).await
    }

    /// Who manages an object of a cloud's.
    pub async fn units_by_object(&self, object_id: &str) -> Result<Vec<UnitState>, StoreError> {
        self.pool.rows(Query::new(sql::UNITS_BY_OBJECT).bind(object_id), rows::unit).await
    }

    /// Everything that an account manages.
    pub async fn units_in(&self, account: &str) -> Result<Vec<UnitState>, StoreError> {
        self.pool.rows(Query::new(sql::UNITS_IN).bind(account), rows::unit).await
    }

    /// Whom the objects belong to that an account manages in an org and env, where that is known.
    pub async fn owners(&self, account: &str, org: &str, env: &str) -> Result<Vec<Identity>, StoreError> {
        let query = Query::new(sql::OWNERS).bind(account).bind(org).bind(env);
        let owners = self.pool.rows(query, |row| Ok(Identity::from_text(row.get::<String>(0)?))).await?;
        Ok(owners.into_iter().flatten().collect())
    }

    /// Whom something belongs to that an account manages in an org and env, where nothing of it belongs to `who`.
    pub async fn other_owner(
        &self,
        account: &str,
        org: &str,
        env: &str,
        who: &Identity,
    ) -> Result<Option<Identity>, StoreError> {
        let query = Query::new(sql::OWNED_BY).bind(account).bind(org).bind(env).bind(who.id());
        if self.pool.row(query, |row| row.get::<i64>(0)).await?.is_some() {
            return Ok(None);
        }
        let query = Query::new(sql::AN_OWNER).bind(account).bind(org).bind(env);
        Ok(self.pool.row(query, |row| row.get::<String>(0)).await?.and_then(Identity::from_text))
    }

    /// Which resources manage these objects of clouds, each object with its resource. What has another object is left out.
    pub async fn managers(&self, objects: &[String]) -> Result<Vec<(String, ResourceId)>, StoreError> {
        let mut found = Vec::new();
        for some in objects.chunks(IDS_STEP) {
            let some: Vec<_> = some.iter().map(|object| serde_json::json!({ "object": object })).collect();
            let some = serde_json::to_string(&some).map_err(|error| StoreError::Database(error.to_string()))?;
            let dialect = if self.location.is_sqlite() { &sql::SQLITE } else { &sql::POSTGRES };
            let decode = |row: &Row| Ok((row.get(4)?, rows::id_at(row, 0)?));
            found.extend(self.pool.rows(MANAGERS.query(dialect, &some), decode).await?);
        }
        Ok(found)
    }

    /// Secret outputs of a unit (of the object in use, not of one that was replaced). Empty when there are none.
    pub async fn secrets_of(&self, id: &ResourceId, key: &str) -> Result<BTreeMap<String, SecretString>, StoreError> {
        let query = Query::about(sql::UNIT_SECRETS, id).bind(key);
        let decode = |row: &Row| Ok((row.get(0)?, row.get(1)?, SealNumber(row.get(2)?)));
        let row: Option<(String, String, SealNumber)> = self.pool.row(query, decode).await?;
        let Some((token, column, number)) = row else { return Ok(BTreeMap::new()) };
        self.sealer.open_all(&column, &format!("{id} {key}"), |name| SealedPlace::unit(id, key, &token, name, number))
    }

    /// Secret outputs of a resource, such as a kubeconfig.
    pub async fn status_secrets(&self, id: &ResourceId) -> Result<BTreeMap<String, SecretString>, StoreError> {
        let decode = |row: &Row| Ok((row.get(0)?, SealNumber(row.get(1)?)));
        let row: Option<(String, SealNumber)> = self.pool.row(Query::about(sql::STATUS_SECRETS, id), decode).await?;
        let Some((column, number)) = row else { return Ok(BTreeMap::new()) };
        self.sealer.open_all(&column, &id.to_string(), |name| SealedPlace::status(id, name, number))
    }

    /// A stored manifest with its secrets opened: for the moment of use only, never to be kept or shown.
    pub fn unseal(&self, resource: &StoredResource) -> Result<Value, StoreError> {
        let mut manifest = resource.sealed_manifest()?;
        for pointer in resource.sealed_paths()? {
            let sealed = || StoreError::Sealed { of: resource.id.to_string() };
            let slot = manifest.pointer_mut(&pointer).ok_or_else(sealed)?;
            let text = slot.as_str().ok_or_else(sealed)?;
            let place = SealedPlace::manifest(&resource.id, &pointer, resource.manifest_seal);
            let clear = self.sealer.open(&place, text, &resource.id.to_string())?;
            *slot = Value::String(clear.expose_secret().to_owned());
        }
        Ok(manifest)
    }

    /// Names this state. Another state has another name; a restored one has the same.
    pub fn state_id(&self) -> &str {
        self.sealer.state_id()
    }

    /// An authentication code for a plan that leaves this state: nobody without the state's key can make one.
    pub fn plan_code(&self, plan: &Value) -> String {
        self.sealer.plan_code(plan)
    }

    /// Whether [`Store::plan_code`] of this state gave this code for exactly this plan.
    pub fn is_plan_code(&self, plan: &Value, code: &str) -> bool {
        self.sealer.is_plan_code(plan, code)
    }

    /// Seals a manifest's secrets for a file outside the state; [`Store::open_sealed`] reads it back.
    pub fn seal(&self, resource: NewResource) -> Result<(Value, Vec<String>), StoreError> {
        let NewResource { id, mut manifest, secrets, .. } = resource;
        for pointer in &secrets {
            let Some(Value::String(clear)) = manifest.pointer_mut(pointer) else {
                return Err(StoreError::Sealed { of: id.to_string() });
            };
            let clear = zeroize::Zeroizing::new(std::mem::take(clear));
            let sealed = self.sealer.seal(&SealedPlace::file(pointer), &clear)?;
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
            let clear = self.sealer.open(&SealedPlace::file(pointer), text, "the plan")?;
            *slot = Value::String(clear.expose_secret().to_owned());
        }
        Ok(manifest)
    }

    /// Changes and events of one resource, newest first; pages start at 0.
    pub async fn history(&self, id: &ResourceId, limit: u32, page: u32) -> Result<Vec<HistoryLine>, StoreError> {
        let limit = i64::from(limit.min(LINES_MAX));
        let query = Query::about(sql::HISTORY, id).bind(limit).bind(limit * i64::from(page));
        self.pool.rows(query, rows::history_line).await
    }

    /// Newest first.
    pub async fn journal(&self, entries: Entries, limit: u32) -> Result<Vec<JournalEntry>, StoreError> {
        let query = match entries {
            Entries::All => sql::JOURNAL,
            Entries::Open => sql::JOURNAL_OPEN,
        };
        self.pool.rows(Query::new(query).bind(i64::from(limit.min(LINES_MAX))), rows::journal_entry).await
    }

    /// Newest first.
    pub async fn events(&self, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.pool.rows(Query::new(sql::EVENTS).bind(i64::from(limit.min(LINES_MAX))), rows::event).await
    }
}
