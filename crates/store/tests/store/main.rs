//! The store against real files and a real PostgreSQL server, one suite for both: what is acknowledged is kept, what is secret is sealed, who is stale is refused.

/// Each of these runs once on SQLite and once on PostgreSQL, in a place of its own.
macro_rules! on_both {
    ($($test:ident,)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::place::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::place::postgres().await).await;
            })*
        }
    };
}

mod backup;
mod bulk;
mod control;
#[path = "../support/desired.rs"]
mod desired;
mod dump;
mod durable;
mod fair;
mod fixtures;
mod listing;
mod moving;
mod opening;
mod parties;
mod place;
mod postgres;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod promises;
mod rotation;
mod secrets;
mod servers;
mod speed;
mod takeover;
mod upgrade;
mod writes;

use berth_engine::ResourceState;
use berth_engine::record::{Intent, Status};
use berth_engine::unit::{Op, Props, UnitState};
use berth_model::ResourceId;
use berth_store::{KeySource, ManifestSource, NewResource, Options, Run, Store, StoreError};
use place::StateLocation;
use secrecy::SecretBox;
use serde_json::{Value, json};
use std::sync::Arc;

pub fn key(byte: u8) -> KeySource {
    KeySource::Given(Arc::new(SecretBox::new(Box::new([byte; 32]))))
}

pub fn options(address: &str) -> Options {
    Options { key: key(1), ..Options::url(address).expect("an address") }
}

pub async fn open(address: &str) -> Store {
    Store::open(options(address)).await.expect("the state opens")
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
        source: ManifestSource { file: "shop/net.yaml".into(), document: 2 },
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
        account: "main".into(),
        identity: None,
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
    Status { state: ResourceState::Ready, outputs: props(outputs), observed_generation: 1, ..Status::default() }
}

/// The error of something that cannot be printed.
pub fn refused<T>(result: Result<T, StoreError>) -> StoreError {
    match result {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error,
    }
}
