//! What is secret is nowhere in the clear, and opens only where it belongs.

use crate::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use berth_engine::record::{Closing, Recorder, Status};
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;

on_both! {
    no_secret_is_found_in_any_file_of_the_state,
    writing_back_what_was_read_without_secrets_keeps_them,
    a_sealed_value_that_was_moved_does_not_open,
    an_earlier_value_of_the_same_row_does_not_open,
    a_real_manifest_is_sealed_where_its_kind_says,
}

const TOKEN: &str = "tok-4f1c9b7e-planted-in-a-manifest";
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\n# planted-kubeconfig-93ab";
const OLD_TOKEN: &str = "tok-old-planted-and-then-replaced";

fn secret(name: &str, value: &str) -> BTreeMap<String, SecretString> {
    BTreeMap::from([(name.to_owned(), SecretString::from(value))])
}

fn account(token: &str) -> NewResource {
    let id = ResourceId::new("Account", "main");
    let mut account = new_resource(&id, json!({"provider": "civo", "civo": {"token": {"value": token}}}));
    account.secrets = vec!["/spec/civo/token/value".into()];
    account
}

/// The files that have any of the needles in them.
fn search(folder: &std::path::Path, needles: &[&str]) -> String {
    let needles = needles.iter().flat_map(|needle| ["-e", needle]);
    let found = std::process::Command::new("grep").args(["-rlaF"]).args(needles).arg(folder).output().unwrap();
    String::from_utf8(found.stdout).unwrap()
}

async fn no_secret_is_found_in_any_file_of_the_state(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    run.save_resource(account(OLD_TOKEN)).await.unwrap();
    let saved = run.save_resource(account(TOKEN)).await.unwrap();
    assert_eq!(saved.generation, 2, "a changed secret is a changed manifest");
    assert_eq!(run.save_resource(account(TOKEN)).await.unwrap().generation, 2, "the same secret is not");

    let id = save(&run, "shop").await;
    let mut unit = unit(&id, "cluster", "t1");
    let entry = run.intent(create(&unit)).await.unwrap();
    unit.id = Some("obj".into());
    unit.secrets = secret("kubeconfig", KUBECONFIG);
    run.close(entry, Closing::Done(Some(Box::new(unit.clone())))).await.unwrap();
    run.status(&id, Status { secrets: secret("kubeconfig", KUBECONFIG), ..ready(json!({"endpoint": "https://x"})) })
        .await
        .unwrap();

    // All files of the database, its log and its logs of changes among them.
    let folder = match home.place.is_sqlite() {
        true => home.place.file().parent().unwrap().to_owned(),
        false => postgres_server::shared().folder().to_owned(),
    };
    assert!(!home.place.is_sqlite() || folder.join("state.db-wal").exists(), "the log is searched too");
    assert_ne!(search(&folder, &["shop"]), "", "what is not secret is found");
    let planted = [TOKEN, OLD_TOKEN, "planted"].map(str::to_owned).into_iter();
    let encoded = [TOKEN, OLD_TOKEN, KUBECONFIG, "planted"].map(|text| STANDARD_NO_PAD.encode(text));
    let needles: Vec<String> = planted.chain(encoded).collect();
    let needles: Vec<&str> = needles.iter().map(String::as_str).collect();
    assert_eq!(search(&folder, &needles), "");
    if !home.place.is_sqlite() {
        let dump = postgres_server::dump(&home.place.address);
        assert!(dump.contains("shop") && !needles.iter().any(|needle| dump.contains(needle)));
    }
    run.finish().await;
    home.store.close().await;
    assert_eq!(search(&folder, &needles), "");

    // And all of it is there for whoever has the key.
    let store = open(&home.place.address).await;
    let stored = store.resource(&ResourceId::new("Account", "main")).await.unwrap().unwrap();
    let sealed = stored.sealed_manifest().unwrap();
    assert!(sealed["spec"]["civo"]["token"]["value"].as_str().unwrap().starts_with(berth_store::SEALED_PREFIX));
    assert_eq!(store.unseal(&stored).unwrap()["spec"]["civo"]["token"]["value"], TOKEN);
    assert_eq!(store.secrets_of(&id, "cluster").await.unwrap()["kubeconfig"].expose_secret(), KUBECONFIG);
    assert_eq!(store.status_secrets(&id).await.unwrap()["kubeconfig"].expose_secret(), KUBECONFIG);
    assert_eq!(store.resource(&id).await.unwrap().unwrap().secret_names, ["kubeconfig"]);
    assert!(store.units_of(&id).await.unwrap()[0].secrets.is_empty(), "reading units opens nothing");
    assert!(!format!("{stored:?}").contains(TOKEN));
}

async fn writing_back_what_was_read_without_secrets_keeps_them(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let id = save(&run, "shop").await;
    run.save_unit(UnitState { secrets: secret("kubeconfig", KUBECONFIG), ..unit(&id, "cluster", "t1") }).await.unwrap();
    run.status(&id, Status { secrets: secret("kubeconfig", KUBECONFIG), ..ready(json!({})) }).await.unwrap();
    let read = home.store.units_of(&id).await.unwrap().remove(0);
    run.save_unit(UnitState { ready: true, ..read }).await.unwrap();
    run.status(&id, ready(json!({"a": "b"}))).await.unwrap();
    assert_eq!(home.store.secrets_of(&id, "cluster").await.unwrap()["kubeconfig"].expose_secret(), KUBECONFIG);
    assert_eq!(home.store.status_secrets(&id).await.unwrap().len(), 1);
    assert_eq!(home.store.resource(&id).await.unwrap().unwrap().secret_names, ["kubeconfig"]);

    // The object in use is asked, not the one that it replaced.
    let old = home.store.units_of(&id).await.unwrap().remove(0);
    run.save_unit(UnitState { deposed: true, ..old }).await.unwrap();
    run.save_unit(UnitState { secrets: secret("kubeconfig", "new"), ..unit(&id, "cluster", "t2") }).await.unwrap();
    assert_eq!(home.store.secrets_of(&id, "cluster").await.unwrap()["kubeconfig"].expose_secret(), "new");
    assert!(home.store.secrets_of(&id, "nothing").await.unwrap().is_empty());
}

async fn a_sealed_value_that_was_moved_does_not_open(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let (mine, theirs) = (save(&run, "mine").await, save(&run, "theirs").await);
    for id in [&mine, &theirs] {
        let secrets = secret("kubeconfig", &format!("of {}", id.name));
        run.save_unit(UnitState { secrets: secrets.clone(), ..unit(id, "cluster", "t") }).await.unwrap();
        run.status(id, Status { secrets, ..ready(json!({})) }).await.unwrap();
    }
    run.save_resource(account(TOKEN)).await.unwrap();
    for statement in [
        "UPDATE units SET secrets = (SELECT u.secrets FROM units u JOIN resources r ON r.id = u.resource_id \
         WHERE r.name = 'theirs') WHERE resource_id = (SELECT id FROM resources WHERE name = 'mine')",
        "UPDATE resources SET secrets = (SELECT secrets FROM resources WHERE name = 'theirs') WHERE name = 'mine'",
        "UPDATE resources SET name = 'other' WHERE name = 'main'",
    ] {
        assert_eq!(home.place.sql(statement).await, 1);
    }
    assert!(matches!(refused(home.store.secrets_of(&mine, "cluster").await), StoreError::Sealed { .. }));
    assert!(matches!(refused(home.store.status_secrets(&mine).await), StoreError::Sealed { .. }));
    let moved = home.store.resource(&ResourceId::new("Account", "other")).await.unwrap().unwrap();
    let error = refused(home.store.unseal(&moved));
    assert!(matches!(error, StoreError::Sealed { .. }) && error.to_string().contains("Account/other"));
    assert_eq!(home.store.secrets_of(&theirs, "cluster").await.unwrap()["kubeconfig"].expose_secret(), "of theirs");
}

/// Whoever writes the database puts back what was there before a secret was changed.
async fn an_earlier_value_of_the_same_row_does_not_open(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let id = save(&run, "mine").await;
    let write = async |value: &str| {
        let secrets = secret("kubeconfig", value);
        run.save_unit(UnitState { secrets: secrets.clone(), ..unit(&id, "cluster", "t") }).await.unwrap();
        run.status(&id, Status { secrets, ..ready(json!({})) }).await.unwrap();
        run.save_resource(account(value)).await.unwrap();
    };
    let values = async || {
        let main = home.store.resource(&ResourceId::new("Account", "main")).await.unwrap().unwrap();
        let text = |secrets: Result<BTreeMap<String, SecretString>, StoreError>| {
            secrets.map(|secrets| secrets["kubeconfig"].expose_secret().to_owned())
        };
        [
            home.store
                .unseal(&main)
                .map(|m| m["spec"]["civo"]["token"]["value"].as_str().unwrap_or_default().to_owned()),
            text(home.store.secrets_of(&id, "cluster").await),
            text(home.store.status_secrets(&id).await),
        ]
    };
    write("leaked").await;
    home.place.sql("CREATE TABLE kept AS SELECT * FROM resources").await;
    home.place.sql("CREATE TABLE kept_units AS SELECT * FROM units").await;
    write("renewed").await;
    assert!(values().await.iter().all(|value| value.as_deref().is_ok_and(|value| value == "renewed")));
    let old = |table: &str, column: &str| {
        let (kept, key) = match table {
            "units" => ("kept_units", "resource_id"),
            _ => ("kept", "id"),
        };
        format!("UPDATE {table} SET {column} = (SELECT k.{column} FROM {kept} k WHERE k.{key} = {table}.{key})")
    };
    for (table, column) in [("resources", "manifest"), ("resources", "secrets"), ("units", "secrets")] {
        home.place.sql(&old(table, column)).await;
    }
    for value in values().await {
        assert!(matches!(refused(value), StoreError::Sealed { .. }));
    }
    // With its number an earlier row is whole again: what that takes is a key ring without the key of then.
    for (table, column) in [("resources", "manifest_seal"), ("resources", "secrets_seal"), ("units", "secrets_seal")] {
        home.place.sql(&old(table, column)).await;
    }
    assert!(values().await.iter().all(|value| value.as_deref().is_ok_and(|value| value == "leaked")));
    write("again").await;
    assert!(values().await.iter().all(|value| value.as_deref().is_ok_and(|value| value == "again")));
}

async fn a_real_manifest_is_sealed_where_its_kind_says(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let text = format!(
        "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: main, env: prod}}\n\
         spec: {{provider: civo, civo: {{token: {{value: {TOKEN}}}, region: fra1}}}}\n"
    );
    let (manifests, problems) = berth_model::parse("accounts.yaml", text.as_bytes());
    assert!(problems.is_empty(), "{problems:?}");
    let new = NewResource::of(&manifests[0]).unwrap();
    assert_eq!(new.secrets, ["/spec/civo/token/value"]);
    let saved = run.save_resource(new).await.unwrap();
    assert_eq!((saved.source.file.as_str(), saved.id.env.as_str()), ("accounts.yaml", "prod"));
    assert!(!saved.sealed_manifest().unwrap().to_string().contains(TOKEN));
    assert_eq!(saved.sealed_manifest().unwrap()["spec"]["civo"]["region"], "fra1");
    let back = berth_model::Manifest::from_json(&home.store.unseal(&saved).unwrap()).unwrap();
    assert_eq!(back, manifests[0]);
    assert_eq!(run.save_resource(NewResource::of(&back).unwrap()).await.unwrap().generation, 1);
}
