//! Keys change while others write: nothing is lost, nothing is overwritten, and in the end nothing needs the old key.

use crate::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_engine::record::{Closing, Recorder, Status};
use berth_store::{Filter, RotateFrom, RotateStep};
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

on_both! {
    keys_are_rotated_while_others_write,
    a_rotation_that_was_killed_goes_on,
    a_rotation_in_parts_ends,
    a_changed_ring_is_noticed_without_a_restart,
    an_unchanged_manifest_stays_unchanged_under_new_keys,
    what_cannot_be_opened_is_told_and_the_rest_is_done,
    sealed_text_is_only_where_rotation_looks,
}

/// A ring of these keys, the first one first.
pub fn write_ring(path: &Path, bytes: &[u8]) {
    let line = |byte: &u8| format!("key-{byte} {}\n", STANDARD.encode([*byte; 32]));
    let half = path.with_extension("half");
    std::fs::write(&half, bytes.iter().map(line).collect::<String>()).unwrap();
    std::fs::set_permissions(&half, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::rename(half, path).unwrap();
}

pub fn ring_path(place: &StateLocation) -> PathBuf {
    place.folder.path().join("ring")
}

async fn open_with(place: &StateLocation, ring: &Path) -> Store {
    let options = Options { key: KeySource::File(ring.to_owned()), ..options(&place.address) };
    Store::open(options).await.expect("the state opens")
}

pub fn account(name: &str, token: &str) -> NewResource {
    let id = ResourceId::new("Account", name);
    let mut account = new_resource(&id, json!({"provider": "civo", "civo": {"token": {"value": token}}}));
    account.secrets = vec!["/spec/civo/token/value".into()];
    account
}

pub fn secret(value: &str) -> BTreeMap<String, SecretString> {
    BTreeMap::from([("kubeconfig".to_owned(), SecretString::from(value))])
}

/// An account and a cluster with secrets in every column that has some.
pub async fn save_secrets(run: &Run, name: &str, value: &str) {
    run.save_resource(account(name, value)).await.unwrap();
    let id = save(run, name).await;
    let mut unit = unit(&id, "cluster", "t1");
    unit.id = Some(format!("object-{name}"));
    unit.secrets = secret(value);
    run.save_unit(unit).await.unwrap();
    run.status(&id, Status { secrets: secret(value), ..ready(json!({})) }).await.unwrap();
}

#[track_caller]
fn text(secrets: &BTreeMap<String, SecretString>) -> &str {
    secrets["kubeconfig"].expose_secret()
}

pub async fn assert_secrets(store: &Store, name: &str, value: &str) {
    let stored = store.resource(&ResourceId::new("Account", name)).await.unwrap().expect("the account is there");
    assert_eq!(store.unseal(&stored).unwrap()["spec"]["civo"]["token"]["value"], *value);
    assert_eq!(text(&store.secrets_of(&vpc(name), "cluster").await.unwrap()), value);
    assert_eq!(text(&store.status_secrets(&vpc(name)).await.unwrap()), value);
}

async fn keys_are_rotated_while_others_write(place: StateLocation) {
    let ring = ring_path(&place);
    write_ring(&ring, &[1]);
    let server = open_with(&place, &ring).await;
    let run = server.begin_run("server").await.unwrap();
    for resting in 0..150 {
        save_secrets(&run, &format!("resting-{resting}"), &format!("value-{resting}")).await;
    }
    let stop = AtomicBool::new(false);
    let writes = AtomicU64::new(0);
    let writer = |number: u32| {
        let (run, stop, writes) = (&run, &stop, &writes);
        async move {
            let name = format!("busy-{number}");
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                save_secrets(run, &name, &format!("turn-{turn}")).await;
                writes.fetch_add(1, Ordering::Relaxed);
            }
            (name, format!("turn-{turn}"))
        }
    };
    let rotation = async {
        while writes.load(Ordering::Relaxed) < 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // As another process would.
        let other = open_with(&place, &ring).await;
        write_ring(&ring, &[2, 1]);
        let before = writes.load(Ordering::Relaxed);
        let mut told = 0;
        let done = other.rotate(|progress| {
            assert!(!progress.place.is_empty());
            told += 1;
        });
        let done = done.await.unwrap();
        assert_eq!(done.key_id, "key-2");
        assert!(done.resealed >= 450 && told > 4, "{done:?}");
        assert!(writes.load(Ordering::Relaxed) > before, "others wrote meanwhile");
        stop.store(true, Ordering::Relaxed);
        other
    };
    let writers = futures::future::join_all((0..4).map(writer));
    let (other, last) = futures::join!(rotation, writers);
    let by_key = other.sealed_by().await.unwrap();
    assert_eq!(by_key.keys().collect::<Vec<_>>(), ["key-2"], "{by_key:?}");
    run.finish().await;

    // The old key is gone for good, and everything opens: what rested, and the last of what was written.
    write_ring(&ring, &[2]);
    let after = open_with(&place, &ring).await;
    assert_eq!(after.key_ids(), ["key-2"]);
    for (name, value) in &last {
        assert_secrets(&after, name, value).await;
    }
    for resting in 0..150 {
        assert_secrets(&after, &format!("resting-{resting}"), &format!("value-{resting}")).await;
    }
    assert_eq!(after.check_secrets().await.unwrap(), by_key["key-2"]);
    write_ring(&ring, &[1]);
    let error = refused(Store::open(Options { key: KeySource::File(ring), ..options(&place.address) }).await);
    assert!(matches!(error, StoreError::WrongKey { .. }), "{error}");
}

async fn a_rotation_that_was_killed_goes_on(place: StateLocation) {
    let ring = ring_path(&place);
    write_ring(&ring, &[1]);
    let store = open_with(&place, &ring).await;
    let run = store.begin_run("test").await.unwrap();
    for number in 0..250 {
        save_secrets(&run, &format!("n{number}"), "hush").await;
    }
    run.finish().await;
    write_ring(&ring, &[2, 1]);
    let all: u64 = store.sealed_by().await.unwrap().values().sum();
    assert_eq!(all, 754, "with the four of the state itself");
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let rotating = store.clone();
    let rotation = tokio::spawn(async move { rotating.rotate(move |progress| _ = told.send(progress.resealed)).await });
    while hears.recv().await.expect("it goes on") < 150 {}
    rotation.abort();
    assert!(rotation.await.unwrap_err().is_cancelled());

    let half = store.sealed_by().await.unwrap();
    let (new, old) = (half["key-2"], half["key-1"]);
    assert!(new >= 150 && old > 0 && new + old == all, "{half:?}");
    for number in [0, 100, 249] {
        assert_secrets(&store, &format!("n{number}"), "hush").await;
    }
    // Another process, which knows nothing of the first.
    let again = open_with(&place, &ring).await;
    let done = again.rotate(|_| ()).await.unwrap();
    assert!(done.resealed <= old && done.resealed > 0, "only what was left: {done:?} of {half:?}");
    assert_eq!(again.sealed_by().await.unwrap(), BTreeMap::from([("key-2".to_owned(), all)]));
    assert_eq!(again.rotate(|_| ()).await.unwrap().resealed, 0, "a second time there is nothing to do");
}

async fn a_changed_ring_is_noticed_without_a_restart(place: StateLocation) {
    let ring = ring_path(&place);
    write_ring(&ring, &[1]);
    let server = open_with(&place, &ring).await;
    let run = server.begin_run("server").await.unwrap();
    save_secrets(&run, "first", "hush").await;
    // This server's ring is elsewhere, and newer.
    let elsewhere = place.folder.path().join("elsewhere");
    write_ring(&elsewhere, &[2, 1]);
    let other = open_with(&place, &elsewhere).await;
    other.rotate(|_| ()).await.unwrap();
    let error = server.status_secrets(&vpc("first")).await.unwrap_err();
    assert!(matches!(&error, StoreError::KeyUnknown { key, .. } if key == "key-2"), "{error}");
    assert!(!error.help().is_empty());

    write_ring(&ring, &[2, 1]);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_secrets(&server, "first", "hush").await;
    save_secrets(&run, "second", "hush").await;
    assert_eq!(other.sealed_by().await.unwrap().keys().collect::<Vec<_>>(), ["key-2"]);

    // A ring that has nothing to do with the one in use, or is none at all, changes nothing.
    write_ring(&ring, &[9]);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    save_secrets(&run, "third", "hush").await;
    std::fs::write(&ring, "half written").unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    save_secrets(&run, "fourth", "hush").await;
    assert_eq!(server.key_ids(), ["key-2", "key-1"]);
    assert!(matches!(server.rotate(|_| ()).await, Err(StoreError::Key { .. })));
    assert_eq!(other.sealed_by().await.unwrap().keys().collect::<Vec<_>>(), ["key-2"]);
}

async fn an_unchanged_manifest_stays_unchanged_under_new_keys(place: StateLocation) {
    let ring = ring_path(&place);
    for keys in [&[1][..], &[2, 1], &[3, 2, 1], &[3]] {
        write_ring(&ring, keys);
        let store = open_with(&place, &ring).await;
        let run = store.begin_run("test").await.unwrap();
        let saved = run.save_resource(account("main", "hush")).await.unwrap();
        assert_eq!(saved.generation, 1, "with {keys:?}");
        run.finish().await;
        store.rotate(|_| ()).await.unwrap();
        let run = store.begin_run("test").await.unwrap();
        assert_eq!(run.save_resource(account("main", "hush")).await.unwrap().generation, 1, "with {keys:?}, rotated");
        run.finish().await;
        store.close().await;
    }
    let store = open_with(&place, &ring).await;
    let run = store.begin_run("test").await.unwrap();
    assert_eq!(run.save_resource(account("main", "other")).await.unwrap().generation, 2);
}

async fn what_cannot_be_opened_is_told_and_the_rest_is_done(place: StateLocation) {
    let ring = ring_path(&place);
    write_ring(&ring, &[1]);
    let store = open_with(&place, &ring).await;
    let run = store.begin_run("test").await.unwrap();
    for name in ["one", "two", "three"] {
        save_secrets(&run, name, "hush").await;
    }
    run.finish().await;
    let moved = "UPDATE resources SET secrets = (SELECT secrets FROM resources WHERE kind = 'CivoVpc' AND name = 'one') \
                 WHERE kind = 'CivoVpc' AND name = 'two'";
    assert_eq!(place.sql(moved).await, 1);
    write_ring(&ring, &[2, 1]);
    let error = store.rotate(|_| ()).await.unwrap_err();
    let StoreError::NotRotated { count: 1, first } = &error else { panic!("{error}") };
    assert!(first.contains("two") && !error.help().is_empty(), "{first}");
    assert_eq!(store.sealed_by().await.unwrap()["key-1"], 1, "all others are sealed anew");
    assert!(matches!(store.check_secrets().await, Err(StoreError::Sealed { .. })));
}

/// A column that holds sealed text and is not in rotation's list would keep an old key alive for ever.
async fn sealed_text_is_only_where_rotation_looks(place: StateLocation) {
    let ring = ring_path(&place);
    write_ring(&ring, &[1]);
    let store = open_with(&place, &ring).await;
    let run = store.begin_run("test").await.unwrap();
    save_secrets(&run, "one", "hush").await;
    let id = vpc("one");
    let mut unit = unit(&id, "pool", "t2");
    let entry = run.intent(create(&unit)).await.unwrap();
    unit.secrets = secret("hush");
    run.close(entry, Closing::Done(Some(Box::new(unit)))).await.unwrap();
    run.finish().await;
    assert_eq!(store.resources(&Filter::default()).await.unwrap().len(), 2);
    write_ring(&ring, &[2, 1]);
    store.rotate(|_| ()).await.unwrap();
    let everything = crate::dump::all_rows(&place).await;
    assert!(everything.contains("sealed:v2:key-2:"), "{everything}");
    assert!(!everything.contains("key-1") && !everything.contains("sealed:v1"), "{everything}");
}

/// For callers that cannot wait for all of it: each part is short, the word between them survives being written down.
async fn a_rotation_in_parts_ends(place: StateLocation) {
    let ring = ring_path(&place);
    write_ring(&ring, &[1]);
    let store = open_with(&place, &ring).await;
    let run = store.begin_run("server").await.unwrap();
    for n in 0..150 {
        save_secrets(&run, &format!("one-{n}"), "value").await;
    }
    write_ring(&ring, &[2, 1]);
    let (mut from, mut parts) = (RotateFrom::default(), 0);
    let done = loop {
        match store.rotate_on(from, Duration::ZERO, |_| ()).await.unwrap() {
            RotateStep::Done(done) => break done,
            RotateStep::More(next) => from = RotateFrom::parse(&next.to_string()).expect("its own word"),
        }
        parts += 1;
        // One that comes when its column was gone through is found by the next pass.
        if parts == 5 {
            save_secrets(&run, "late", "value").await;
        }
        assert!(parts < 200, "it does not end");
    };
    assert!(parts > 10, "{parts}");
    assert_eq!(done.key_id, "key-2");
    assert!(done.resealed >= 450, "{done:?}");
    assert_eq!(store.sealed_by().await.unwrap().into_keys().collect::<Vec<_>>(), ["key-2"]);
    assert_secrets(&store, "one-7", "value").await;
    for word in ["", "x", "{\"column\":99}", "{\"pass\":0}", "{\"after\":[]}", "{\"after\":[1]}"] {
        assert!(RotateFrom::parse(word).is_none(), "{word}");
    }
    run.finish().await;
}
