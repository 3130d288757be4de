//! A backup is everything, as it was at one moment, readable for whom it was made; a restore is all of it or nothing, on
//! either database.

use crate::dump::{columns, fill_all_tables, rows, without_rights};
use crate::rotation::{assert_secrets, ring_path, save_secrets, write_ring};
use crate::*;
use age::secrecy::ExposeSecret;
use berth_engine::record::{Closing, Recorder};
use berth_store::{BackupError, Entries, Filter, Identity, Origin, Recipients, RestoreOptions, Restored, restore};
use secrecy::SecretString;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

on_both! {
    everything_moves_to_another_database,
    a_backup_has_every_table_and_column,
    a_backup_made_while_others_write_is_of_one_moment,
    only_whom_it_was_made_for_opens_it,
    what_is_cut_off_or_changed_is_refused_and_nothing_is_restored,
    what_is_there_is_not_overwritten_unasked,
    keys_come_with_it_or_are_there_already,
    older_schemas_are_upgraded_and_newer_ones_refused,
    what_no_key_of_ours_made_is_refused,
}

/// An identity of age's, and its public key.
pub fn identity() -> (Identity, Recipients) {
    let key = age::x25519::Identity::generate();
    let text = format!("# made for a test\n{}\n", key.to_string().expose_secret());
    (Identity::Keys(SecretString::from(text)), Recipients::Keys(vec![key.to_public().to_string()]))
}

fn reader(identity: &Identity) -> &str {
    match identity {
        Identity::Keys(text) => secrecy::ExposeSecret::expose_secret(text).lines().nth(1).unwrap(),
        Identity::Passphrase(_) => panic!("no key"),
    }
}

fn plain(backup: &[u8], identity: &Identity) -> Vec<u8> {
    let key: age::x25519::Identity = reader(identity).parse().unwrap();
    let decryptor = age::Decryptor::new_buffered(backup).unwrap();
    let mut text = Vec::new();
    decryptor.decrypt(std::iter::once(&key as _)).unwrap().read_to_end(&mut text).unwrap();
    text
}

fn encrypted(plain: &[u8], recipients: &Recipients) -> Vec<u8> {
    let Recipients::Keys(keys) = recipients else { panic!("no key") };
    let key: age::x25519::Recipient = keys[0].parse().unwrap();
    let encryptor = age::Encryptor::with_recipients(std::iter::once(&key as _)).unwrap();
    let mut writer = encryptor.wrap_output(Vec::new()).unwrap();
    writer.write_all(plain).unwrap();
    writer.finish().unwrap()
}

/// The same lines with a header that was changed, and a trailer that fits.
fn forged(plain: &[u8], change: impl Fn(&mut Value)) -> Vec<u8> {
    use sha2::Digest;
    let text = String::from_utf8(plain.to_vec()).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut header: Value = serde_json::from_str(&lines[0]).unwrap();
    change(&mut header);
    lines[0] = header.to_string();
    let mut trailer: Value = serde_json::from_str(&lines.pop().unwrap()).unwrap();
    let mut all = lines.join("\n") + "\n";
    let hash: String = sha2::Sha256::digest(all.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    trailer["sha256"] = hash.into();
    all += &format!("{trailer}\n");
    all.into_bytes()
}

pub async fn make_backup(store: &Store, recipients: &Recipients) -> Vec<u8> {
    store.backup(Vec::new(), recipients, true, |_| ()).await.expect("a backup").0
}

pub fn into(address: &str, ring: &Path, replace: bool) -> RestoreOptions {
    let key = KeySource::File(ring.to_owned());
    RestoreOptions { into: Options { key, ..options(address) }, replace, accept_unauthenticated: true }
}

pub async fn restored(backup: &[u8], identity: &Identity, options: RestoreOptions) -> Result<Restored, BackupError> {
    restore(backup, identity, options, |_| ()).await
}

async fn another(place: &StateLocation) -> StateLocation {
    if place.is_sqlite() { place::sqlite() } else { place::postgres().await }
}

pub async fn other_kind(place: &StateLocation) -> StateLocation {
    if place.is_sqlite() { place::postgres().await } else { place::sqlite() }
}

async fn full(place: &StateLocation) -> Store {
    let ring = ring_path(place);
    write_ring(&ring, &[2, 1]);
    let key = KeySource::File(ring);
    let store = Store::open(Options { key, ..options(&place.address) }).await.unwrap();
    let run = store.begin_run("test").await.unwrap();
    for name in ["one", "two ü \u{1f6a2} \\ \" '", "three"] {
        save_secrets(&run, name, "tok-PLANTED-in-a-backup-83c1").await;
    }
    let id = save(&run, "net").await;
    let mut unit = unit(&id, "network", "t1");
    let entry = run.intent(create(&unit)).await.unwrap();
    unit.id = Some("n-1".into());
    run.close(entry, Closing::Done(Some(Box::new(unit.clone())))).await.unwrap();
    unit.token = "t2".into();
    run.intent(create(&unit)).await.unwrap();
    run.event(&id, "noticed", "line one\nline two").await.unwrap();
    run.set_deleting(&vpc("three")).await.unwrap();
    run.finish().await;
    fill_all_tables(place).await;
    store
}

async fn everything_moves_to_another_database(place: StateLocation) {
    let store = full(&place).await;
    let before = rows(&place).await;
    let (identity, recipients) = identity();
    let backup = make_backup(&store, &recipients).await;
    let text = plain(&backup, &identity);
    let found = |text: &[u8], needle: &str| text.windows(needle.len()).any(|part| part == needle.as_bytes());
    assert!(found(&text, "sealed:v2:key-2:") && found(&text, "object-one"), "the lines are what they should be");
    assert!(!found(&text, "PLANTED") && !found(&backup, "object-one") && !found(&backup, "sealed:"));

    for target in [other_kind(&place).await, another(&place).await] {
        let ring = ring_path(&target);
        let mut told = Vec::new();
        let progress = |progress: berth_store::BackupProgress<'_>| told.push((progress.rows, progress.rows_in_all));
        let done = restore(&backup[..], &identity, into(&target.address, &ring, false), progress).await.unwrap();
        assert_eq!((done.rows, done.secrets), (before.len() as u64, 13));
        assert_eq!(done.source, if place.is_sqlite() { "sqlite" } else { "postgres" });
        assert_eq!(done.keys_written.as_deref(), Some(ring.as_path()));
        assert_eq!(told.last(), Some(&(done.rows, done.rows)));
        assert_eq!(std::fs::read(&ring).unwrap(), std::fs::read(ring_path(&place)).unwrap());
        assert_eq!(without_rights(rows(&target).await), without_rights(before.clone()));

        let key = KeySource::File(ring);
        let moved = Store::open(Options { key, must_exist: true, ..options(&target.address) }).await.unwrap();
        assert_secrets(&moved, "one", "tok-PLANTED-in-a-backup-83c1").await;
        assert_eq!(moved.journal(Entries::Open, 10).await.unwrap().len(), 1, "what was open is open");
        // It goes on: ids are not given twice, and whoever was at work before is fenced off.
        let fence = place.number("SELECT number FROM fence").await;
        let run = moved.begin_run("after").await.unwrap();
        assert!(run.fence() > fence + 1_000_000);
        save_secrets(&run, "four", "new").await;
        let event = moved.events(1).await.unwrap()[0].id;
        run.event(&vpc("four"), "new", "").await.unwrap();
        assert!(
            moved.events(1).await.unwrap()[0].id > event + 1_000_000,
            "no watcher takes it for one that it has seen"
        );
        run.intent(create(&unit(&vpc("four"), "network", "t9"))).await.unwrap();
        assert_eq!(target.number("SELECT COUNT(*) FROM tasks WHERE lease_until > 0").await, 0, "no lease is left");
        run.finish().await;
    }
}

async fn a_backup_has_every_table_and_column(place: StateLocation) {
    let store = full(&place).await;
    let (identity, recipients) = identity();
    let text = plain(&make_backup(&store, &recipients).await, &identity);
    let header: Value = serde_json::from_slice(text.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    let mut listed = BTreeMap::new();
    for table in header["tables"].as_array().unwrap() {
        let names = table["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        assert!(
            table["name"] == "audit" || table["rows"].as_u64().unwrap() > 0,
            "{} is tried with a row",
            table["name"]
        );
        listed.insert(table["name"].as_str().unwrap().to_owned(), names);
    }
    let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (table, columns) in columns(&place).await {
        let mut names: Vec<String> = columns.into_iter().map(|(name, _)| name).collect();
        names.sort();
        known.insert(table, names);
    }
    assert!(known.len() >= 6);
    assert_eq!(listed, known);
}

async fn a_backup_made_while_others_write_is_of_one_moment(place: StateLocation) {
    let store = full(&place).await;
    let (identity, recipients) = identity();
    let run = store.begin_run("server").await.unwrap();
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    let worker = |worker: u32| {
        let (run, stop, written) = (&run, &stop, &written);
        async move {
            let id = vpc(&format!("busy-{worker}"));
            run.save_resource(new_resource(&id, json!({}))).await.unwrap();
            for turn in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // A unit is there from its intent on, and has its object from the entry's end on.
                let mut unit = unit(&id, "network", &format!("{worker}-{turn}"));
                let entry = run.intent(create(&unit)).await.unwrap();
                unit.id = Some(format!("object-{worker}-{turn}"));
                run.close(entry, Closing::Done(Some(Box::new(unit)))).await.unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let backup = async {
        while written.load(Ordering::Relaxed) < 50 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        let backup = make_backup(&store, &recipients).await;
        let until = written.load(Ordering::Relaxed) + 20;
        while written.load(Ordering::Relaxed) < until {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        stop.store(true, Ordering::Relaxed);
        backup
    };
    let (backup, _) = futures::join!(backup, futures::future::join_all((0..4).map(worker)));
    run.finish().await;

    let target = other_kind(&place).await;
    let ring = ring_path(&target);
    restored(&backup, &identity, into(&target.address, &ring, false)).await.unwrap();
    let moved = Store::open(into(&target.address, &ring, false).into).await.unwrap();
    let busy = |token: &str| token.contains('-');
    let units: HashMap<String, Option<String>> = moved
        .all_units()
        .await
        .unwrap()
        .into_iter()
        .filter(|unit| busy(&unit.token))
        .map(|unit| (unit.token, unit.id))
        .collect();
    assert!(units.len() >= 50);
    let journal = moved.journal(Entries::All, 10_000).await.unwrap();
    let journal: Vec<_> = journal.into_iter().filter(|entry| busy(&entry.token)).collect();
    assert_eq!(journal.len(), units.len());
    for entry in journal {
        assert_eq!(entry.ended_at.is_some(), units[&entry.token].is_some(), "{} is torn", entry.token);
    }
}

async fn only_whom_it_was_made_for_opens_it(place: StateLocation) {
    let store = full(&place).await;
    let (one, for_one) = identity();
    let (two, for_two) = identity();
    let (Recipients::Keys(mut keys), Recipients::Keys(more)) = (for_one, for_two) else { panic!() };
    let backup = make_backup(&store, &Recipients::Keys(keys.clone())).await;
    let target = another(&place).await;
    let options = || into(&target.address, &ring_path(&target), false);
    let passphrase = |text: &str| SecretString::from(text.to_owned());
    let wrong = restored(&backup, &two, options()).await.unwrap_err();
    assert!(matches!(wrong, BackupError::WrongIdentity) && !wrong.help().is_empty());
    let other = restored(&backup, &Identity::Passphrase(passphrase("x")), options()).await.unwrap_err();
    assert!(matches!(&other, BackupError::OtherIdentity { .. }), "{other}");
    let none = Identity::Keys(passphrase("# nothing\n"));
    assert!(matches!(restored(&backup, &none, options()).await, Err(BackupError::Identity)));
    restored(&backup, &one, options()).await.unwrap();

    keys.extend(more);
    let for_both = make_backup(&store, &Recipients::Keys(keys)).await;
    for identity in [&one, &two] {
        let target = another(&place).await;
        restored(&for_both, identity, into(&target.address, &ring_path(&target), false)).await.unwrap();
    }
    for bad in ["", "age1qqq", "AGE-SECRET-KEY-1QQQ"] {
        let error = store.backup(Vec::new(), &Recipients::Keys(vec![bad.into()]), true, |_| ()).await.unwrap_err();
        assert!(matches!(&error, BackupError::Recipient(_)) && !error.to_string().contains("SECRET"), "{error}");
    }
    assert!(store.backup(Vec::new(), &Recipients::Keys(Vec::new()), true, |_| ()).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passphrase_opens_what_it_closed() {
    let place = place::sqlite();
    let store = full(&place).await;
    let passphrase = |text: &str| SecretString::from(text.to_owned());
    let backup = make_backup(&store, &Recipients::Passphrase(passphrase("a long one"))).await;
    let target = place::sqlite();
    let options = || into(&target.address, &ring_path(&target), false);
    let wrong = restored(&backup, &Identity::Passphrase(passphrase("another")), options()).await.unwrap_err();
    assert!(matches!(&wrong, BackupError::WrongPassphrase), "{wrong}");
    let other = restored(&backup, &identity().0, options()).await.unwrap_err();
    assert!(matches!(&other, BackupError::OtherIdentity { .. }), "{other}");
    assert!(!target.file().exists(), "nothing is left of an attempt");
    let options = RestoreOptions { accept_unauthenticated: false, ..options() };
    let done = restored(&backup, &Identity::Passphrase(passphrase("a long one")), options).await.unwrap();
    assert_eq!(done.origin, Origin::Passphrase, "who knows it made it");
}

async fn what_is_cut_off_or_changed_is_refused_and_nothing_is_restored(place: StateLocation) {
    let store = full(&place).await;
    let run = store.begin_run("test").await.unwrap();
    for number in 0..300 {
        save_secrets(&run, &format!("n{number}"), &"x".repeat(300)).await;
    }
    run.finish().await;
    let (identity, recipients) = identity();
    let backup = make_backup(&store, &recipients).await;
    assert!(backup.len() > 3 * (64 << 10), "several of age's chunks: {}", backup.len());
    let target = another(&place).await;
    let ring = ring_path(&target);
    let options = || into(&target.address, &ring, false);
    let chunk = (64 << 10) + 16;
    let head = backup.len() % chunk;
    for length in [0, 10, 150, head, head + 1, head + chunk, backup.len() / 2, backup.len() - 1] {
        let error = restored(&backup[..length], &identity, options()).await.unwrap_err();
        let cut = matches!(error, BackupError::Truncated | BackupError::Damaged(_) | BackupError::NotBackup(_));
        assert!(cut, "{length}: {error:?}");
    }
    for at in [5, 60, 200, head + 10, backup.len() / 2, backup.len() - 5] {
        let mut changed = backup.clone();
        changed[at] ^= 1;
        let error = restored(&changed, &identity, options()).await.unwrap_err();
        let told = matches!(
            error,
            BackupError::Damaged(_) | BackupError::NotBackup(_) | BackupError::WrongIdentity | BackupError::Truncated
        );
        assert!(told, "{at}: {error:?}");
    }
    // Whoever knows the public key can write something, too.
    let text = plain(&backup, &identity);
    let lines = String::from_utf8(text.clone()).unwrap();
    let cut: String = lines.lines().take(40).map(|line| format!("{line}\n")).collect();
    let swapped = lines.replacen("object-one", "object-two", 1);
    let more = format!("{lines}[]\n");
    for (odd, what) in
        [(cut, "cut"), (swapped, "swapped"), (more, "more"), ("hello\n".into(), "hello"), ("{}\n".into(), "{}")]
    {
        let error = restored(&encrypted(odd.as_bytes(), &recipients), &identity, options()).await.unwrap_err();
        let told = matches!(error, BackupError::Damaged(_) | BackupError::NotBackup(_) | BackupError::Truncated);
        assert!(told, "{what}: {error:?}");
    }
    for (what, change) in [
        ("a table", (|header| header["tables"][1]["name"] = "cats; DROP TABLE fence".into()) as fn(&mut Value)),
        ("a column", |header| header["tables"][1]["columns"][0] = "cats".into()),
        ("twice", |header| header["tables"][1] = header["tables"][0].clone()),
    ] {
        let odd = encrypted(&forged(&text, change), &recipients);
        let error = restored(&odd, &identity, options()).await.unwrap_err();
        assert!(matches!(&error, BackupError::Damaged(_)), "{what}: {error:?}");
    }
    assert!(matches!(
        restored(b"PK\x03\x04 something else entirely", &identity, options()).await,
        Err(BackupError::NotBackup(_))
    ));
    assert!(!ring.exists(), "no key was written either");
    match target.is_sqlite() {
        true => assert!(!target.file().exists()),
        false => assert_eq!(target.number("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'").await, 0),
    }
    restored(&backup, &identity, options()).await.unwrap();
}

async fn what_is_there_is_not_overwritten_unasked(place: StateLocation) {
    let store = full(&place).await;
    let (identity, recipients) = identity();
    let backup = make_backup(&store, &recipients).await;
    let ring = ring_path(&place);
    let run = store.begin_run("a later run").await.unwrap();
    save(&run, "later").await;
    let error = restored(&backup, &identity, into(&place.address, &ring, true)).await.unwrap_err();
    assert!(matches!(error, BackupError::Store(StoreError::Locked { .. })), "{error}");
    run.finish().await;
    let fence = place.number("SELECT number FROM fence").await;
    let before = rows(&place).await;
    let error = restored(&backup, &identity, into(&place.address, &ring, false)).await.unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
    // Asked for, and then broken off: all of it is as it was.
    let error = restored(&backup[..backup.len() - 9], &identity, into(&place.address, &ring, true)).await.unwrap_err();
    assert!(matches!(error, BackupError::Damaged(_) | BackupError::Truncated), "{error}");
    assert_eq!(without_rights(rows(&place).await), without_rights(before));
    restored(&backup, &identity, into(&place.address, &ring, true)).await.unwrap();
    let after = Store::open(into(&place.address, &ring, false).into).await.unwrap();
    assert!(after.resource(&vpc("later")).await.unwrap().is_none());
    assert_secrets(&after, "one", "tok-PLANTED-in-a-backup-83c1").await;
    assert!(place.number("SELECT number FROM fence").await > fence + 1_000_000);

    let foreign = another(&place).await;
    if foreign.is_sqlite() {
        std::fs::create_dir_all(foreign.file().parent().unwrap()).unwrap();
        std::fs::write(foreign.file(), "").unwrap();
    }
    foreign.sql("CREATE TABLE cats (name TEXT)").await;
    let error = restored(&backup, &identity, into(&foreign.address, &ring, true)).await.unwrap_err();
    assert!(matches!(error, BackupError::Store(StoreError::Foreign { .. })), "{error}");
}

async fn keys_come_with_it_or_are_there_already(place: StateLocation) {
    let store = full(&place).await;
    let (identity, recipients) = identity();
    let (without, made) = store.backup(Vec::new(), &recipients, false, |_| ()).await.unwrap();
    assert!(!made.with_keys);
    let text = plain(&without, &identity);
    let key = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, [2u8; 32]);
    assert!(!text.windows(key.len()).any(|part| part == key.as_bytes()));
    let target = another(&place).await;
    let ring = ring_path(&target);
    let options = || into(&target.address, &ring, false);
    let error = restored(&without, &identity, options()).await.unwrap_err();
    assert!(matches!(error, BackupError::KeyElsewhere { .. }) && !ring.exists(), "{error}");
    write_ring(&ring, &[7]);
    let error = restored(&without, &identity, options()).await.unwrap_err();
    assert!(matches!(error, BackupError::KeyElsewhere { .. }), "{error}");

    // A ring that is there is added to; its own key goes on sealing.
    let with = make_backup(&store, &recipients).await;
    let done = restored(&with, &identity, options()).await.unwrap();
    assert_eq!(done.keys_written.as_deref(), Some(ring.as_path()));
    let moved = Store::open(options().into).await.unwrap();
    assert_eq!(moved.key_ids(), ["key-7", "key-2", "key-1"]);
    assert_secrets(&moved, "one", "tok-PLANTED-in-a-backup-83c1").await;
    let again = another(&place).await;
    let done = restored(&without, &identity, into(&again.address, &ring, false)).await.unwrap();
    assert_eq!(done.keys_written, None, "the ring has them already");

    // A key that is no file cannot be added to.
    let fixed = another(&place).await;
    let given = RestoreOptions { into: Options { key: key_source(9), ..crate::options(&fixed.address) }, ..options() };
    let error = restored(&with, &identity, given).await.unwrap_err();
    assert!(matches!(error, BackupError::RingNotWritable { .. }), "{error}");
}

/// Whoever knows the public key adds an admin's token, with every count and hash right and with keys of their own.
async fn what_no_key_of_ours_made_is_refused(place: StateLocation) {
    let store = full(&place).await;
    let (identity, recipients) = identity();
    let backup = make_backup(&store, &recipients).await;
    let text = String::from_utf8(plain(&backup, &identity)).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let tokens = header["tables"].as_array().unwrap().iter().position(|table| table["name"] == "tokens").unwrap();
    let before: u64 =
        header["tables"].as_array().unwrap()[..tokens].iter().map(|table| table["rows"].as_u64().unwrap()).sum();
    let cell = |name: &Value| match name.as_str().unwrap() {
        "role" => json!("admin"),
        "created_at" => json!(1),
        "expires_at" | "revoked_at" | "used_at" => Value::Null,
        "org" | "env" => json!(""),
        other => json!(format!("forged-{other}")),
    };
    let row = Value::from(header["tables"][tokens]["columns"].as_array().unwrap().iter().map(cell).collect::<Vec<_>>());
    let forge = |keys: Option<&str>, format: u32| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut trailer: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        trailer["rows"] = (trailer["rows"].as_u64().unwrap() + 1).into();
        if format == 1 {
            trailer.as_object_mut().unwrap().retain(|name, _| name != "key" && name != "hmac");
        }
        *lines.last_mut().unwrap() = trailer.to_string();
        if let Some(keys) = keys {
            lines[1] = json!({"keyRing": keys}).to_string();
        }
        lines.insert(2 + before as usize, row.to_string());
        let forged = forged((lines.join("\n") + "\n").as_bytes(), |header| {
            header["format"] = format.into();
            let rows = header["tables"][tokens]["rows"].as_u64().unwrap();
            header["tables"][tokens]["rows"] = (rows + 1).into();
        });
        encrypted(&forged, &recipients)
    };
    let target = another(&place).await;
    let ours = ring_path(&place);
    let strict = |ring: &Path| RestoreOptions { accept_unauthenticated: false, ..into(&target.address, ring, false) };
    let nothing = target.folder.path().join("no-ring");
    for (what, backup, ring) in [
        ("changed", forge(None, 2), &ours),
        ("changed, without a key here", forge(None, 2), &nothing),
        ("without a code", forge(None, 1), &ours),
    ] {
        let error = restored(&backup, &identity, strict(ring)).await.unwrap_err();
        let told = matches!(error, BackupError::Forged { .. } | BackupError::NoCode);
        assert!(told && !error.help().is_empty(), "{what}: {error}");
    }
    // The genuine one: by the key that is kept here, and not by the one that it brings.
    let error = restored(&backup, &identity, strict(&nothing)).await.unwrap_err();
    assert!(matches!(error, BackupError::OtherKey { .. }) && !nothing.exists(), "{error}");
    if target.is_sqlite() {
        assert!(!target.file().exists(), "nothing is left of an attempt");
    }
    let done = restored(&backup, &identity, strict(&ours)).await.unwrap();
    assert_eq!(done.origin, Origin::Key("key-2".into()));
    // Accepted all the same, an old one is told with the access that it brings.
    let open = || RestoreOptions { replace: true, ..into(&target.address, &ours, true) };
    let done = restored(&forge(None, 1), &identity, open()).await.unwrap();
    assert_eq!(done.origin, Origin::Unknown);
    assert!(done.access.iter().any(|token| token.name == "forged-name" && token.role == "admin"), "{:?}", done.access);
    // What a known key says is false is refused even then.
    let error = restored(&forge(None, 2), &identity, open()).await.unwrap_err();
    assert!(matches!(error, BackupError::Forged { .. }), "{error}");
}

fn key_source(byte: u8) -> KeySource {
    crate::key(byte)
}

async fn older_schemas_are_upgraded_and_newer_ones_refused(place: StateLocation) {
    let (identity, recipients) = identity();
    let old = another(&place).await;
    crate::upgrade::make(&old).await;
    // As the Berth of then would have written it.
    let tables = columns(&old).await;
    let mut lines = Vec::new();
    let mut listed = Vec::new();
    for table in ["meta", "fence", "resources", "units", "journal", "events"] {
        let mut names: Vec<String> = tables[table].iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        let prefix = format!("{table} ");
        let rows: Vec<Value> = rows(&old)
            .await
            .iter()
            .filter_map(|row| row.strip_prefix(&prefix))
            .map(|row| serde_json::from_str(row).unwrap())
            .collect();
        listed.push(json!({"name": table, "columns": names, "rows": rows.len()}));
        lines
            .extend(rows.iter().map(|row| Value::from(names.iter().map(|name| row[name].clone()).collect::<Vec<_>>())));
    }
    let ring = format!("{}\n", "11".repeat(32));
    let header = json!({"backup": "berth", "format": 1, "schema": 1, "source": "sqlite", "at": "2026-01-01T00:00:00Z",
        "berth": "0.1.0", "tables": listed});
    let mut text = format!("{header}\n{}\n", json!({"keyRing": ring}));
    let count = lines.len();
    lines.iter().for_each(|line| text += &format!("{line}\n"));
    text += &format!("{}\n", json!({"end": true, "rows": count, "sha256": ""}));
    let text = forged(text.as_bytes(), |_| ());
    let path = ring_path(&place);
    let options = || into(&place.address, &path, false);
    for (field, newer) in [("schema", 99), ("format", 3)] {
        let newer = forged(&text, |header| header[field] = newer.into());
        let error = restored(&encrypted(&newer, &recipients), &identity, options()).await.unwrap_err();
        let told =
            matches!(error, BackupError::NewerSchema { found: 99, .. } | BackupError::NewerFormat { found: 3, .. });
        assert!(told && !error.help().is_empty(), "{error}");
    }
    let done = restored(&encrypted(&text, &recipients), &identity, options()).await.unwrap();
    assert_eq!((done.schema, done.rows), (1, count as u64));
    let store = Store::open(options().into).await.unwrap();
    crate::upgrade::assert_whole(&store).await;
    store.rotate(|_| ()).await.unwrap();
    assert_eq!(store.resources(&Filter::default()).await.unwrap().len(), 3);
}
