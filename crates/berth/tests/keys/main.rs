//! `berth key`, `berth backup` and `berth restore` by the real binary, on files and on a real PostgreSQL server: keys change
//! and states move while someone writes, and a killed command leaves nothing half done.

#[path = "../../../store/tests/support/postgres.rs"]
mod postgres_server;
#[path = "../support/mod.rs"]
mod support;

use berth_engine::ResourceState;
use berth_engine::record::{Recorder, Status};
use berth_model::ResourceId;
use berth_store::{KeySource, ManifestSource, NewResource, Options, Run, Store};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::folder::Folder;
use support::ran::{self, Ran, start};

const SECRET: &str = "PLANTED-in-a-state-5b1d77e0c94a";

/// A folder with a database of its own.
struct Home {
    folder: Folder,
    db: String,
}

impl Home {
    fn new(folder: Folder, db: String) -> Self {
        let ring = folder.path().join("ring");
        // The database is named by the environment, where a password belongs.
        let folder = folder.and_env("BERTH_DB", &db).and_env("BERTH_KEY_FILE", ring);
        Self { folder: folder.and_env("PATH", std::env::var_os("PATH").unwrap_or_default()), db }
    }

    fn sqlite() -> Self {
        let folder = Folder::new();
        let db = format!("sqlite:{}", folder.path().join("server/state.db").display());
        Self::new(folder, db)
    }

    async fn postgres() -> Self {
        let server = tokio::task::spawn_blocking(postgres_server::shared).await.unwrap();
        Self::new(Folder::new(), server.database().await)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ring(&self) -> PathBuf {
        self.path("ring")
    }

    #[track_caller]
    fn berth(&self, args: &[&str]) -> Ran {
        shows_no_secret(self.folder.berth(args))
    }

    async fn open(&self) -> Store {
        let key = KeySource::File(self.ring());
        Store::open(Options { key, ..Options::url(&self.db).unwrap() }).await.expect("the state opens")
    }
}

#[track_caller]
fn shows_no_secret(ran: Ran) -> Ran {
    assert!(!ran.text().contains(SECRET), "{}", ran.line);
    assert!(!ran.stderr.contains(postgres_server::PASSWORD), "{}", ran.line);
    ran
}

fn account(name: &str) -> NewResource {
    let id = ResourceId::new("Account", name);
    NewResource {
        manifest: json!({"apiVersion": "byoc.berth.dev/v1", "kind": "Account", "metadata": {"name": name},
            "spec": {"provider": "civo", "civo": {"token": {"value": format!("{SECRET}-{name}")}}}}),
        id,
        api_version: "byoc.berth.dev/v1".into(),
        secrets: vec!["/spec/civo/token/value".into()],
        source: ManifestSource::default(),
    }
}

async fn fill(run: &Run, accounts: u32) {
    let names: Vec<String> = (0..accounts).map(|number| format!("a{number}")).collect();
    run.save_resources(names.iter().map(|name| account(name)).collect()).await.unwrap();
    for name in names.iter().take(50) {
        let secrets = BTreeMap::from([("kubeconfig".to_owned(), SecretString::from(format!("{SECRET} of {name}")))]);
        let status = Status { state: ResourceState::Ready, secrets, ..Status::default() };
        run.status(&ResourceId::new("Account", name), status).await.unwrap();
    }
}

async fn assert_whole(store: &Store, accounts: u32) {
    for number in [0, accounts / 2, accounts - 1] {
        let id = ResourceId::new("Account", format!("a{number}"));
        let stored = store.resource(&id).await.unwrap().expect("it is there");
        assert_eq!(store.unseal(&stored).unwrap()["spec"]["civo"]["token"]["value"], format!("{SECRET}-a{number}"));
    }
    let secrets = store.status_secrets(&ResourceId::new("Account", "a7")).await.unwrap();
    assert_eq!(secrets["kubeconfig"].expose_secret(), format!("{SECRET} of a7"));
}

macro_rules! on_both {
    ($($test:ident,)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Home::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Home::postgres().await).await;
            })*
        }
    };
}

on_both! {
    a_key_is_made_used_everywhere_and_the_old_one_retired,
    a_rotation_that_is_killed_is_gone_on_with,
    a_state_moves_to_the_other_database_and_back,
}

async fn a_key_is_made_used_everywhere_and_the_old_one_retired(home: Home) {
    home.berth(&["key", "rotate"]).exits(1).says("there is no");
    let ring = home.ring();
    let old = home.berth(&["key", "new"]).ok().words().remove(0);
    let store = home.open().await;
    let run = store.begin_run("a server").await.unwrap();
    fill(&run, 60).await;

    let listed = home.berth(&["key", "list", "-o", "json"]).ok().stdout;
    assert!(listed.contains(&old) && listed.contains("\"secrets\": 114"), "{listed}");
    home.berth(&["key", "retire", &old, "--yes"]).exits(1).says("the only key");
    let new = home.berth(&["key", "new"]).ok().words().remove(0);
    assert_ne!(new, old);
    assert_eq!(home.berth(&["key", "list", "-o", "name"]).ok().words(), [new.clone(), old.clone()]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&ring).unwrap().permissions().mode() & 0o777, 0o600);
    }
    home.berth(&["key", "retire", &old, "--yes"]).exits(1).says("114 secrets");
    home.berth(&["key", "retire", &new, "--yes"]).exits(1).says("the key that seals");
    home.berth(&["key", "retire", "other", "--yes"]).exits(1).says("no key `other`");
    // The run goes on all the while.
    let done = home.berth(&["key", "rotate"]).ok();
    assert!(done.stderr.contains(&format!("everything is sealed with {new}")), "{}", done.stderr);
    run.save_resource(account("later")).await.unwrap();
    home.berth(&["key", "retire", &old]).exits(1).says("not confirmed");
    home.berth(&["key", "retire", &old, "--yes"]).ok();
    assert_eq!(home.berth(&["key", "list", "-o", "name"]).ok().words(), std::slice::from_ref(&new));
    run.finish().await;
    store.close().await;
    let store = home.open().await;
    assert_whole(&store, 60).await;
    store.close().await;

    // A key that waits until all servers have it.
    let standby = home.berth(&["key", "new", "--standby"]).ok().words().remove(0);
    assert_eq!(home.berth(&["key", "list", "-o", "name"]).ok().words(), [new.clone(), standby.clone()]);
    home.berth(&["key", "use", &standby]).ok();
    assert_eq!(home.berth(&["key", "list", "-o", "name"]).ok().words(), [standby.clone(), new.clone()]);

    // The same ring by a command, which berth cannot change.
    let line = format!("cat {}", ring.display());
    let by_command = |args: &[&str]| {
        let mut command = home.folder.command(args);
        shows_no_secret(ran::run(command.env_remove("BERTH_KEY_FILE").env("BERTH_KEY_COMMAND", &line)))
    };
    let rotated = by_command(&["key", "rotate"]).ok();
    assert!(rotated.stderr.contains(&standby), "{}", rotated.stderr);
    by_command(&["key", "new"]).exits(1).says("not in a file");
    let wrong = home.berth(&["key", "rotate", "--key-command", "echo hush-not-a-key"]).exits(1).says("key command");
    assert!(!wrong.stderr.contains("hush"), "{}", wrong.stderr);
}

async fn a_rotation_that_is_killed_is_gone_on_with(home: Home) {
    const ACCOUNTS: u32 = 4000;
    home.berth(&["key", "new", "--key-file", home.ring().to_str().unwrap()]).ok();
    let store = home.open().await;
    let run = store.begin_run("fill").await.unwrap();
    fill(&run, ACCOUNTS).await;
    run.finish().await;
    let new = home.berth(&["key", "new"]).ok().words().remove(0);
    let all: u64 = store.sealed_by().await.unwrap().values().sum();
    let mut kills = 0;
    let done = loop {
        let mut rotation = start(&mut home.folder.command(&["key", "rotate"]));
        // A little later each time, so that it is hit wherever it is.
        let until = Instant::now() + Duration::from_millis(60 + 40 * kills);
        while !rotation.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let by_key = store.sealed_by().await.unwrap();
        let sealed = by_key.get(&new).copied().unwrap_or(0);
        if rotation.has_ended() || kills == 60 {
            break rotation.has_ended();
        }
        rotation.kill();
        kills += 1;
        assert_eq!(by_key.values().sum::<u64>(), all);
        if sealed > all / 2 {
            break false;
        }
    };
    assert!(!done && kills > 0, "it was killed {kills} times");
    let half = store.sealed_by().await.unwrap();
    assert!(half.len() <= 2 && half.contains_key(&new), "{half:?}");
    assert_whole(&store, ACCOUNTS).await;
    home.berth(&["key", "rotate"]).ok();
    assert_eq!(store.sealed_by().await.unwrap(), BTreeMap::from([(new, all)]));
    assert_whole(&store, ACCOUNTS).await;
}

async fn a_state_moves_to_the_other_database_and_back(home: Home) {
    const ACCOUNTS: u32 = 500;
    home.berth(&["key", "new", "--key-file", home.ring().to_str().unwrap()]).ok();
    let store = home.open().await;
    let run = store.begin_run("a server").await.unwrap();
    fill(&run, ACCOUNTS).await;
    let identity = age::x25519::Identity::generate();
    std::fs::write(home.path("me.txt"), identity.to_string().expose_secret()).unwrap();
    let public = identity.to_public().to_string();
    // The run goes on meanwhile.
    let backup = ["backup", "--out", "one.age", "--recipient", &public];
    let made = home.berth(&backup).ok();
    assert!(made.stderr.contains("the keys are in it"), "{}", made.stderr);
    home.berth(&backup).exits(1).says("exists");
    run.save_resource(account("later")).await.unwrap();
    run.finish().await;
    assert_eq!(
        std::fs::read_dir(home.folder.path())
            .unwrap()
            .flatten()
            .filter(|entry| { entry.file_name().to_string_lossy().ends_with(".part") })
            .count(),
        0
    );

    let there = match home.db.starts_with("sqlite:") {
        true => Home::postgres().await,
        false => Home::sqlite(),
    };
    let at = |home: &Home, file: &Path, more: &[&str]| {
        let (ring, file) = (home.ring(), file.to_owned());
        let mut args = vec!["restore", file.to_str().unwrap(), "--key-file", ring.to_str().unwrap()];
        args.extend(more);
        home.berth(&args)
    };
    let (one, me) = (home.path("one.age"), home.path("me.txt"));
    let me = ["--identity", me.to_str().unwrap()];
    let phrase = home.path("phrase.txt");
    std::fs::write(&phrase, "correct horse battery staple\n").unwrap();
    at(&there, &one, &["--passphrase-file", phrase.to_str().unwrap()]).exits(1).says("opened with an identity");
    let other = home.path("other.txt");
    std::fs::write(&other, age::x25519::Identity::generate().to_string().expose_secret()).unwrap();
    at(&there, &one, &["--identity", other.to_str().unwrap()]).exits(1).says("the identity does not open");
    let bytes = std::fs::read(&one).unwrap();
    let cut = home.path("cut.age");
    std::fs::write(&cut, &bytes[..bytes.len() - 1000]).unwrap();
    at(&there, &cut, &me).exits(1).says("cut off");
    // Its keys came with it: they prove nothing about who made it.
    at(&there, &one, &me).exits(1).says("nothing shows who made the backup");
    let moved = at(&there, &one, &[&me[..], &["--accept-unauthenticated"]].concat()).ok();
    assert!(moved.stderr.contains("secrets open") && moved.stderr.contains("the keys are in"), "{}", moved.stderr);
    let store_there = there.open().await;
    assert_whole(&store_there, ACCOUNTS).await;
    assert!(store_there.resource(&ResourceId::new("Account", "later")).await.unwrap().is_none());
    store_there.close().await;

    // And back, over what is there, which is asked for twice.
    let args = ["backup", "--out", "two.age", "--passphrase-file", phrase.to_str().unwrap()];
    let made = there.berth(&[&args[..], &["--without-key"]].concat()).ok();
    assert!(made.stderr.contains("not in it"), "{}", made.stderr);
    let two = there.path("two.age");
    let by_phrase = ["--passphrase-file", phrase.to_str().unwrap()];
    at(&home, &two, &by_phrase).exits(1).says("not empty");
    at(&home, &two, &[&by_phrase[..], &["--replace"]].concat()).exits(1).says("not confirmed");
    let run = store.begin_run("a server").await.unwrap();
    at(&home, &two, &[&by_phrase[..], &["--replace", "--yes"]].concat()).exits(1).says("in use by");
    run.finish().await;
    store.close().await;
    at(&home, &two, &[&by_phrase[..], &["--replace", "--yes"]].concat()).ok();
    let store = home.open().await;
    assert_whole(&store, ACCOUNTS).await;
    assert!(store.resource(&ResourceId::new("Account", "later")).await.unwrap().is_none(), "it was made later");
}
