//! The exclusive right to write, as converge uses it.

use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::lock::Lock;
use crate::rows::{Source, StoredResource};
use crate::seal::{Place, Sealer};
use crate::sql;
use crate::store::Store;
use crate::writer::{After, Answer, ResourceRow, StatusRow, UnitRow, Write, Writer};
use async_trait::async_trait;
use berth_engine::record::{Closing, EntryId, Intent, RecordError, Recorder, Status};
use berth_engine::unit::{Op, Props, UnitState};
use berth_model::{Manifest, ResourceId};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Journal entries and events that are kept, each; older ones go when a run begins.
const KEPT_MAX: i64 = 100_000;
/// JSON of one manifest, or of one unit's properties.
const JSON_BYTES_MAX: usize = 4 << 20;
/// One secret; kubeconfigs are some 10 KiB.
const SECRET_BYTES_MAX: usize = 1 << 20;
/// Texts for people are cut, not refused: losing the write would be worse.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Resources in one call.
const RESOURCES_MAX: usize = 100_000;

/// The exclusive right to write, until it is finished or dropped.
pub struct Run {
    writer: Writer,
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
    pub source: Source,
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
        let source = manifest.source.as_ref().map(|source| Source {
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
        let (mut connection, lock) = Lock::take(store.location(), what).await?;
        connection.run(connection.dialect().begin).await?;
        lock.sign(&mut connection).await?;
        let (fence, leftovers) = raise_fence(&mut connection).await?;
        connection.run("COMMIT").await?;
        let writer = Writer::start(connection, fence, leftovers, lock);
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
        if resources.is_empty() {
            return Ok(Vec::new());
        }
        if resources.len() > RESOURCES_MAX {
            return Err(too_large("the list of resources", resources.len(), RESOURCES_MAX));
        }
        let rows = resources.into_iter().map(|one| self.resource_row(one)).collect::<Result<Vec<_>, _>>()?;
        match self.writer.write(Write::SaveResources(rows)).await? {
            Answer::Saved(saved) => Ok(saved),
            Answer::Done | Answer::Entry(_) => Err(StoreError::Ended),
        }
    }

    /// Marks that a delete was begun, so that an interrupted one is gone on with.
    pub async fn set_deleting(&self, id: &ResourceId) -> Result<(), StoreError> {
        self.writer.write(Write::SetDeleting(id.clone())).await.map(|_| ())
    }

    fn resource_row(&self, resource: NewResource) -> Result<ResourceRow, StoreError> {
        let NewResource { id, api_version, mut manifest, secrets, source } = resource;
        let digest = self.sealer.digest(&manifest);
        for pointer in &secrets {
            match manifest.pointer_mut(pointer) {
                Some(Value::String(clear)) => {
                    check(&id, "a secret", clear.len(), SECRET_BYTES_MAX)?;
                    let sealed = self.sealer.seal(&Place::manifest(&id, pointer), clear)?;
                    drop(Zeroizing::new(std::mem::replace(clear, sealed)));
                }
                // Writing on would leave a secret in the clear that the caller believes to be sealed.
                _ => {
                    return Err(StoreError::Corrupt {
                        of: format!("the manifest of {id}"),
                        cause: format!("no text at {pointer}, where a secret should be"),
                    });
                }
            }
        }
        let sealed_paths = if secrets.is_empty() { String::new() } else { Value::from(secrets).to_string() };
        let manifest = manifest.to_string();
        check(&id, "the manifest", manifest.len(), JSON_BYTES_MAX)?;
        Ok(ResourceRow {
            api_version,
            manifest,
            sealed_paths,
            digest,
            source_file: source.file,
            source_document: source.document,
            id,
        })
    }

    fn unit_row(&self, unit: &UnitState) -> Result<Box<UnitRow>, StoreError> {
        let id = &unit.resource;
        let secrets = self.seal(id, &unit.secrets, |name| Place::unit(id, &unit.key, &unit.token, name))?;
        Ok(Box::new(UnitRow {
            resource: id.clone(),
            key: unit.key.clone(),
            token: unit.token.clone(),
            unit_type: unit.unit_type.clone(),
            scope: unit.scope.clone(),
            account: unit.account.clone(),
            object_id: unit.id.clone(),
            deposed: unit.deposed,
            ready: unit.ready,
            props: json(id, &unit.props)?,
            outputs: json(id, &unit.outputs)?,
            secrets,
        }))
    }

    fn seal(
        &self,
        id: &ResourceId,
        secrets: &BTreeMap<String, SecretString>,
        place: impl Fn(&str) -> Place,
    ) -> Result<String, StoreError> {
        for (name, secret) in secrets {
            check(id, name, secret.expose_secret().len(), SECRET_BYTES_MAX)?;
        }
        self.sealer.seal_all(secrets, place)
    }

    async fn done(&self, write: Write) -> Result<(), RecordError> {
        self.writer.write(write).await.map(|_| ()).map_err(record_error)
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

/// Empty secrets in a unit or status mean "as they are": bulk reads leave them out, so writing such a unit back must not
/// lose them.
#[async_trait]
impl Recorder for Run {
    async fn intent(&self, intent: Intent) -> Result<EntryId, RecordError> {
        let unit = self.unit_row(&intent.unit).map_err(record_error)?;
        let creates = intent.unit.id.is_none() && matches!(intent.op, Op::Create | Op::Replace | Op::Adopt);
        let write = Write::Intent { op: op_name(intent.op), creates, what: cut(intent.what), unit };
        match self.writer.write(write).await.map_err(record_error)? {
            Answer::Entry(entry) => Ok(EntryId(entry)),
            Answer::Done | Answer::Saved(_) => Err(record_error(StoreError::Ended)),
        }
    }

    async fn close(&self, entry: EntryId, closing: Closing) -> Result<(), RecordError> {
        let (outcome, detail, after) = match closing {
            Closing::Done(Some(unit)) => {
                ("done", String::new(), After::Save(self.unit_row(&unit).map_err(record_error)?))
            }
            Closing::Done(None) => ("done", String::new(), After::Gone),
            Closing::Failed(detail) => ("failed", cut(detail), After::Keep),
            Closing::Refused(detail) => ("refused", cut(detail), After::Undo),
        };
        self.done(Write::Close { entry: entry.0, outcome, detail, after }).await
    }

    async fn save_unit(&self, unit: UnitState) -> Result<(), RecordError> {
        self.done(Write::SaveUnit(self.unit_row(&unit).map_err(record_error)?)).await
    }

    async fn forget_unit(&self, resource: &ResourceId, key: &str, token: &str) -> Result<(), RecordError> {
        self.done(Write::ForgetUnit { resource: resource.clone(), key: key.into(), token: token.into() }).await
    }

    async fn status(&self, resource: &ResourceId, status: Status) -> Result<(), RecordError> {
        let row = || -> Result<StatusRow, StoreError> {
            let names: Vec<&String> = status.secrets.keys().collect();
            Ok(StatusRow {
                secret_names: serde_json::to_string(&names).map_err(|error| StoreError::Database(error.to_string()))?,
                secrets: self.seal(resource, &status.secrets, |name| Place::status(resource, name))?,
                outputs: json(resource, &status.outputs)?,
                facts: json(resource, &status.facts)?,
                state: status.state.clone(),
                message: cut(status.message.clone()),
                observed_generation: status.observed_generation,
            })
        };
        let status = Box::new(row().map_err(record_error)?);
        self.done(Write::Status { resource: resource.clone(), status }).await
    }

    async fn forget_resource(&self, resource: &ResourceId) -> Result<(), RecordError> {
        self.done(Write::ForgetResource(resource.clone())).await
    }

    async fn event(&self, resource: &ResourceId, what: &str, detail: &str) -> Result<(), RecordError> {
        let (what, detail) = (cut(what.into()), cut(detail.into()));
        self.done(Write::Event { resource: resource.clone(), what, detail }).await
    }
}

fn record_error(error: StoreError) -> RecordError {
    match error {
        StoreError::Fenced => RecordError::Fenced,
        StoreError::Database(cause) => RecordError::Failed(cause),
        other => RecordError::Failed(other.to_string()),
    }
}

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Create => "create",
        Op::Update => "update",
        Op::Replace => "replace",
        Op::Delete => "delete",
        Op::Adopt => "adopt",
    }
}

fn json(id: &ResourceId, props: &Props) -> Result<String, StoreError> {
    let text = serde_json::to_string(props).map_err(|error| StoreError::Database(error.to_string()))?;
    check(id, "a unit's or status's properties", text.len(), JSON_BYTES_MAX)?;
    Ok(text)
}

fn check(id: &ResourceId, what: &str, bytes: usize, limit: usize) -> Result<(), StoreError> {
    if bytes > limit { Err(too_large(&format!("{what} of {id}"), bytes, limit)) } else { Ok(()) }
}

fn too_large(what: &str, bytes: usize, limit: usize) -> StoreError {
    StoreError::TooLarge { what: what.to_owned(), bytes, limit }
}

fn cut(mut text: String) -> String {
    // PostgreSQL keeps none in a text.
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}");
    }
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
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

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short".into()), "short");
        let long = cut("ü".repeat(TEXT_BYTES_MAX));
        assert!(long.len() <= TEXT_BYTES_MAX && long.ends_with('ü'));
        assert_eq!(cut("a\0b".into()), "a\u{fffd}b");
    }
}
