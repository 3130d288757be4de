//! The store against real files: what is acknowledged is kept, what is secret is sealed, who is stale is refused.

mod bulk;
mod durable;
mod opening;
mod secrets;
mod writes;

use berth_engine::record::{Intent, Status};
use berth_engine::unit::{Op, Props, UnitState};
use berth_model::ResourceId;
use berth_store::{KeySource, NewResource, Options, Run, Source, Store, StoreError};
use secrecy::SecretBox;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub fn key(byte: u8) -> KeySource {
    KeySource::Given(Arc::new(SecretBox::new(Box::new([byte; 32]))))
}

pub fn options(path: &Path) -> Options {
    Options { path: path.into(), key: key(1), must_exist: false }
}

pub async fn open(path: &Path) -> Store {
    Store::open(options(path)).await.expect("the state opens")
}

/// A new state in a folder of its own.
pub struct Home {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    pub store: Store,
}

pub async fn home() -> Home {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(".berth/state.db");
    let store = open(&path).await;
    Home { folder, path, store }
}

pub fn vpc(name: &str) -> ResourceId {
    ResourceId { kind: "CivoVpc".into(), name: name.into(), org: "acme".into(), env: "prod".into() }
}

pub fn new_resource(id: &ResourceId, spec: Value) -> NewResource {
    let manifest = json!({
        "apiVersion": "civo.berth.dev/v1",
        "kind": id.kind,
        "metadata": {"name": id.name, "org": id.org, "env": id.env},
        "spec": spec,
    });
    NewResource {
        id: id.clone(),
        api_version: "civo.berth.dev/v1".into(),
        manifest,
        secrets: Vec::new(),
        source: Source { file: "shop/net.yaml".into(), document: 2 },
    }
}

pub async fn save(run: &Run, name: &str) -> ResourceId {
    let id = vpc(name);
    run.save_resource(new_resource(&id, json!({"region": "fra1"}))).await.expect("saved");
    id
}

pub fn props(value: Value) -> Props {
    value.as_object().cloned().expect("an object")
}

pub fn unit(resource: &ResourceId, key: &str, token: &str) -> UnitState {
    UnitState {
        resource: resource.clone(),
        key: key.into(),
        token: token.into(),
        unit_type: "civo.network".into(),
        scope: "fra1".into(),
        account: "env:civo".into(),
        id: None,
        props: props(json!({"label": resource.name, "cidr": "10.0.0.0/24"})),
        outputs: Props::new(),
        secrets: Default::default(),
        deposed: false,
        ready: false,
        updated_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

pub fn create(unit: &UnitState) -> Intent {
    Intent { op: Op::Create, what: format!("{} {} in fra1", unit.unit_type, unit.resource.name), unit: unit.clone() }
}

pub fn ready(outputs: Value) -> Status {
    Status { state: "Ready".into(), outputs: props(outputs), observed_generation: 1, ..Status::default() }
}

/// The error of something that cannot be printed.
pub fn refused<T>(result: Result<T, StoreError>) -> StoreError {
    match result {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error,
    }
}

/// A connection beside the store's, for looking at the file or damaging it.
pub async fn raw(path: &Path) -> sqlx::SqliteConnection {
    use sqlx::ConnectOptions;
    sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.expect("the file opens")
}
