//! A run: the exclusive right to write, and the recorder that converge uses.

use crate::db::{Connection, Query};
use crate::encode::{Encoder, too_large};
use crate::error::StoreError;
use crate::lock::Lock;
use crate::row_writes::{RowWrite, WriteAnswer};
use crate::rows::{ManifestSource, StoredResource};
use crate::run_writer::RunWriter;
use crate::seal::Sealer;
use crate::sql;
use crate::store::Store;
use async_trait::async_trait;
use berth_engine::ResourceState;
use berth_engine::record::{Closing, EntryId, Intent, RecordError, Recorder, Status};
use berth_engine::unit::{Identity, UnitState};
use berth_model::{Manifest, ResourceId};
use serde_json::Value;
use std::sync::Arc;

/// Journal entries and events that are kept, each; older ones go when a run begins.
const KEPT_MAX: i64 = 100_000;
/// Resources in one call.
const RESOURCES_MAX: usize = 100_000;

/// The exclusive right to write, until it is finished or dropped.
pub struct Run {
    writer: RunWriter,
    sealer: Arc<Sealer>,
    fence: i64,
}

/// A resource to be saved.
pub struct NewResource {
    pub id: ResourceId,
    pub api_version: String,
    /// The whole manifest, secrets in the clear: they are sealed before anything is written.
    pub manifest: Value,
    /// JSON pointers of the strings in it that are secret.
    pub secrets: Vec<String>,
    pub source: ManifestSource,
}

impl NewResource {
    /// The model knows which fields are secret: where the manifest differs from a copy with those replaced, there is one.
    pub fn of(manifest: &Manifest) -> Result<Self, StoreError> {
        let mut masked = manifest.clone();
        let mut any = false;
        masked.map_secrets(|_, secret| {
            any = true;
            if secret == "\0" { String::new() } else { "\0".to_owned() }
        });
        let clear = manifest.to_json();
        let mut secrets = Vec::new();
        if any && !differing_texts(&clear, &masked.to_json(), &mut String::new(), &mut secrets) {
            let cause = "with secrets masked it is not the same manifest".into();
            return Err(StoreError::Corrupt { of: format!("the manifest of {}", manifest.id), cause });
        }
        let source = manifest.source.as_ref().map(|source| ManifestSource {
            file: source.file.to_string(),
            document: u32::try_from(source.document).unwrap_or(u32::MAX),
        });
        Ok(Self {
            id: manifest.id.clone(),
            api_version: manifest.api_version.clone(),
            manifest: clear,
            secrets,
            source: source.unwrap_or_default(),
        })
    }
}

/// JSON pointers of the strings that differ; `false` when anything else does.
fn differing_texts(one: &Value, other: &Value, at: &mut String, found: &mut Vec<String>) -> bool {
    let length = at.len();
    match (one, other) {
        (Value::String(one), Value::String(other)) => {
            if one != other {
                found.push(at.clone());
            }
            true
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).enumerate().all(|(index, (one, other))| {
                    at.push_str(&format!("/{index}"));
                    let same = differing_texts(one, other, at, found);
                    at.truncate(length);
                    same
                })
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| {
                    let Some(other) = other.get(name) else { return false };
                    at.push('/');
                    at.push_str(&name.replace('~', "~0").replace('/', "~1"));
                    let same = differing_texts(one, other, at, found);
                    at.truncate(length);
                    same
                })
        }
        (one, other) => one == other,
    }
}

impl Run {
    pub(crate) async fn begin(store: &Store, what: &str) -> Result<Self, StoreError> {
        // Before the lock, for a message that says what to do; and with it, because only then nobody changes it.
        refuse_servers(store.pool().row(Query::new(sql::MODE), |row| row.get(0)).await?, store)?;
        let (mut connection, lock) = Lock::take(store.location(), what).await?;
        let mode = Query::new(sql::MODE).fetch_optional(&mut connection).await?.map(|row| row.get(0)).transpose()?;
        if let Err(error) = refuse_servers(mode, store) {
            lock.release(connection).await?;
            return Err(error);
        }
        connection.run(connection.dialect().begin).await?;
        lock.sign(&mut connection).await?;
        let (fence, leftovers) = raise_fence(&mut connection).await?;
        connection.run("COMMIT").await?;
        let writer = RunWriter::start(connection, fence, leftovers, lock);
        Ok(Self { writer, sealer: store.sealer().clone(), fence })
    }

    /// The run's number; it grows from run to run.
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// Waits until everything is written and the lock is free. Dropping the run does the same without waiting.
    pub async fn finish(&self) {
        self.writer.finish().await;
    }

    pub async fn save_resource(&self, resource: NewResource) -> Result<StoredResource, StoreError> {
        self.save_resources(vec![resource]).await?.pop().ok_or(StoreError::Ended)
    }

    /// All of them, or none. The generation grows only where the manifest changed.
    pub async fn save_resources(&self, resources: Vec<NewResource>) -> Result<Vec<StoredResource>, StoreError> {
        self.save_rows(resources.into_iter().map(Ok)).await
    }

    /// The same of manifests. Each is encoded before the next is read, so that thousands need little memory.
    pub async fn save_manifests<'m>(
        &self,
        manifests: impl IntoIterator<Item = &'m Manifest>,
    ) -> Result<Vec<StoredResource>, StoreError> {
        self.save_rows(manifests.into_iter().map(NewResource::of)).await
    }

    async fn save_rows(
        &self,
        resources: impl Iterator<Item = Result<NewResource, StoreError>>,
    ) -> Result<Vec<StoredResource>, StoreError> {
        let rows = resources.map(|one| self.encoder().resource(one?)).collect::<Result<Vec<_>, _>>()?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        if rows.len() > RESOURCES_MAX {
            return Err(too_large("the list of resources", rows.len(), RESOURCES_MAX));
        }
        match self.writer.write(RowWrite::SaveResources(rows)).await? {
            WriteAnswer::Saved(saved) => Ok(saved),
            WriteAnswer::Done | WriteAnswer::Entry(_) => Err(StoreError::Ended),
        }
    }

    /// Marks that a delete was begun, so that an interrupted one is gone on with.
    pub async fn set_deleting(&self, id: &ResourceId) -> Result<(), StoreError> {
        self.writer.write(RowWrite::SetDeleting(id.clone())).await.map(|_| ())
    }

    /// Says that a unit's object belongs to another account than the state remembers.
    pub async fn move_unit(&self, unit: &UnitState, identity: &Identity) -> Result<(), StoreError> {
        let UnitState { resource, key, token, .. } = unit.clone();
        let write = RowWrite::MoveUnit { resource, key, token, identity: identity.text().to_owned() };
        self.writer.write(write).await.map(|_| ())
    }

    fn encoder(&self) -> Encoder<'_> {
        Encoder { sealer: &self.sealer }
    }

    async fn done(&self, write: Result<RowWrite, StoreError>) -> Result<(), RecordError> {
        let write = write.map_err(record_error)?;
        self.writer.write(write).await.map(|_| ()).map_err(record_error)
    }
}

fn refuse_servers(mode: Option<String>, store: &Store) -> Result<(), StoreError> {
    match mode.as_deref() {
        Some("server") => Err(StoreError::Server { state: store.location().to_string() }),
        _ => Ok(()),
    }
}

/// Its rollback on error is the connection's drop.
async fn raise_fence(connection: &mut Connection) -> Result<(i64, bool), StoreError> {
    let fence = Query::new(sql::NEXT_FENCE).fetch_one(connection).await?.get(0)?;
    Query::new(sql::PRUNE_JOURNAL).bind(KEPT_MAX).execute(connection).await?;
    Query::new(sql::PRUNE_EVENTS).bind(KEPT_MAX).execute(connection).await?;
    let open: i64 = Query::new(sql::COUNT_OPEN).fetch_one(connection).await?.get(0)?;
    Ok((fence, open > 0))
}

#[async_trait]
impl Recorder for Run {
    async fn intent(&self, intent: Intent) -> Result<EntryId, RecordError> {
        let write = self.encoder().intent(intent).map_err(record_error)?;
        match self.writer.write(write).await.map_err(record_error)? {
            WriteAnswer::Entry(entry) => Ok(EntryId(entry)),
            WriteAnswer::Done | WriteAnswer::Saved(_) => Err(record_error(StoreError::Ended)),
        }
    }

    async fn close(&self, entry: EntryId, closing: Closing) -> Result<(), RecordError> {
        self.done(self.encoder().close(entry, closing)).await
    }

    async fn save_unit(&self, unit: UnitState) -> Result<(), RecordError> {
        self.done(self.encoder().unit(&unit).map(RowWrite::SaveUnit)).await
    }

    async fn forget_unit(&self, resource: &ResourceId, key: &str, token: &str) -> Result<(), RecordError> {
        self.done(Ok(RowWrite::ForgetUnit { resource: resource.clone(), key: key.into(), token: token.into() })).await
    }

    async fn status(&self, resource: &ResourceId, status: Status) -> Result<(), RecordError> {
        self.done(self.encoder().status(resource, &status)).await
    }

    async fn forget_resource(&self, resource: &ResourceId) -> Result<(), RecordError> {
        self.done(Ok(RowWrite::ForgetResource(resource.clone()))).await
    }

    async fn event(&self, resource: &ResourceId, what: &str, detail: &str) -> Result<(), RecordError> {
        self.done(Ok(self.encoder().event(resource, what, detail))).await
    }

    async fn ended(&self, resource: &ResourceId, state: ResourceState, message: &str) -> Result<(), RecordError> {
        self.event(resource, state.as_str(), message).await
    }
}

fn record_error(error: StoreError) -> RecordError {
    match error {
        StoreError::Fenced => RecordError::Fenced,
        StoreError::Database(cause) => RecordError::Failed(cause),
        other => RecordError::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_where_the_masked_manifest_differs() {
        let clear = json!({"a/b": {"t~": "hush"}, "list": ["x", {"v": "hush too"}], "n": 1});
        let masked = json!({"a/b": {"t~": "\0"}, "list": ["x", {"v": "\0"}], "n": 1});
        let mut found = Vec::new();
        assert!(differing_texts(&clear, &masked, &mut String::new(), &mut found));
        assert_eq!(found, ["/a~1b/t~0", "/list/1/v"]);
        assert!(found.iter().all(|pointer| clear.pointer(pointer).is_some_and(Value::is_string)));
        for other in [json!({}), json!({"a/b": {"t~": 1}, "list": [], "n": 1})] {
            assert!(!differing_texts(&clear, &other, &mut String::new(), &mut Vec::new()));
        }
    }
}
