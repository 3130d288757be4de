//! A state that an earlier Berth wrote: it opens, nothing in it changes its meaning, and its secrets move on to data keys.

use crate::rotation::{ring_path, write_ring};
use crate::*;
use berth_model::Manifest;
use berth_store::Filter;
use secrecy::ExposeSecret;

on_both! {
    a_state_of_before_data_keys_goes_on,
    a_key_that_came_between_does_not_hide_the_old_one,
}

const STATE: &str = include_str!("fixtures/schema-1.sql");
const ACCOUNT: &str = r#"{"apiVersion":"byoc.berth.dev/v1","kind":"Account","metadata":{"name":"main"},
    "spec":{"provider":"civo","civo":{"token":{"value":"tok-of-a-state-from-before"},"region":"fra1"}}}"#;

/// The state as it was.
pub async fn make(place: &StateLocation) {
    if place.is_sqlite() {
        let file = place.file();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        place.sql(include_str!("../../migrations/sqlite/0001_first.sql")).await;
        place.sql("PRAGMA application_id = 1114797160; PRAGMA user_version = 1").await;
        place.sql(STATE).await;
    } else {
        place.sql(include_str!("../../migrations/postgres/0001_first.sql")).await;
        place.sql("CREATE TABLE berth_schema (version BIGINT NOT NULL)").await;
        place.sql("INSERT INTO berth_schema (version) VALUES (1)").await;
        place.sql(&STATE.replace("/*as is*/", "OVERRIDING SYSTEM VALUE")).await;
        for table in ["resources", "journal"] {
            place.sql(&format!("SELECT setval('{table}_id_seq', (SELECT MAX(id) FROM {table}))")).await;
        }
    }
}

pub async fn assert_whole(store: &Store) {
    let resources = store.resources(&Filter::default()).await.unwrap();
    let names: Vec<String> = resources.iter().map(|resource| resource.id.to_string()).collect();
    assert_eq!(names, ["Account/main", "CivoKubernetesCluster/shop", "CivoVpc/net"]);
    let account = store.unseal(&resources[0]).unwrap();
    assert_eq!(account["spec"]["civo"]["token"]["value"], "tok-of-a-state-from-before");
    let cluster = &resources[1].id;
    for secrets in [store.status_secrets(cluster).await.unwrap(), store.secrets_of(cluster, "cluster").await.unwrap()] {
        assert!(!secrets.is_empty() && secrets.values().all(|secret| secret.expose_secret().len() > 100));
    }
    assert_eq!(store.all_units().await.unwrap().len(), 2);
    assert_eq!(store.journal(berth_store::Entries::All, 10).await.unwrap().len(), 2);
}

async fn a_state_of_before_data_keys_goes_on(place: StateLocation) {
    make(&place).await;
    let open = || Store::open(Options { key: key(0x11), ..options(&place.address) });
    let wrong = refused(Store::open(options(&place.address)).await);
    assert!(matches!(wrong, StoreError::WrongKey { .. }), "{wrong}");
    for turn in 0..2 {
        let store = open().await.unwrap();
        assert_whole(&store).await;
        let by_key = store.sealed_by().await.unwrap();
        assert_eq!(by_key.contains_key(""), turn == 0, "{by_key:?}");
        // The digest of a manifest that nobody changed is the one of before.
        let manifest: Value = serde_json::from_str(ACCOUNT).unwrap();
        let account = NewResource::of(&Manifest::from_json(&manifest).unwrap()).unwrap();
        let run = store.begin_run("test").await.unwrap();
        assert_eq!(run.save_resource(account).await.unwrap().generation, 1, "unchanged is unchanged");
        run.finish().await;
        let done = store.rotate(|_| ()).await.unwrap();
        assert_eq!(done.resealed > 0, turn == 0, "one rotation gives every secret its data key");
        let unbound = "SELECT (SELECT COUNT(*) FROM resources WHERE (sealed_paths <> '' AND manifest_seal = 0) \
             OR (secrets <> '' AND secrets_seal = 0)) + (SELECT COUNT(*) FROM units WHERE secrets <> '' AND secrets_seal = 0)";
        assert_eq!(place.number(unbound).await, 0, "and its seal number");
        assert_whole(&store).await;
        store.close().await;
    }
}

/// The first thing that a new Berth does with an old state may be to read a ring in which the state's key comes second.
async fn a_key_that_came_between_does_not_hide_the_old_one(place: StateLocation) {
    make(&place).await;
    let ring = ring_path(&place);
    write_ring(&ring, &[2, 0x11]);
    let open = || Store::open(Options { key: KeySource::File(ring.clone()), ..options(&place.address) });
    let store = open().await.unwrap();
    store.rotate(|_| ()).await.unwrap();
    write_ring(&ring, &[2]);
    store.close().await;
    let store = open().await.unwrap();
    assert_whole(&store).await;
    let manifest: Value = serde_json::from_str(ACCOUNT).unwrap();
    let account = NewResource::of(&Manifest::from_json(&manifest).unwrap()).unwrap();
    let run = store.begin_run("test").await.unwrap();
    assert_eq!(run.save_resource(account).await.unwrap().generation, 1, "unchanged is unchanged");
}
