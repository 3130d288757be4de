//! What the version before made keeps working: its state, its databases, its backups, audit logs and saved plans are
//! opened by this one, and workers and servers of the two meet. `tools/old-version` builds that version.

use crate::postgres_server::Postgres;
use crate::support::folder::{Folder, program};
use crate::support::process::Process;
use crate::support::ran::{self, Ran};
use crate::support::server::Server;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const BEFORE: &str = "b4eba10";
const PASSPHRASE: &str = "a passphrase for a backup";

const ACCOUNT: &str = "\
apiVersion: byoc.berth.dev/v1
kind: Account
metadata: {name: civo-main}
spec:
  provider: civo
  civo: {token: {value: token-of-the-account}, region: fra1}
---
apiVersion: civo.berth.dev/v1
kind: CivoVpc
metadata: {name: by-account}
spec: {networkName: by-account, region: fra1, account: civo-main}
";

fn old() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_berth")).parent().and_then(Path::parent).expect("a target folder");
    let path = built.join("old").join(BEFORE).join("berth");
    assert!(path.exists(), "{} is missing: run tools/old-version", path.display());
    path
}

fn new() -> PathBuf {
    env!("CARGO_BIN_EXE_berth").into()
}

/// A folder with the same manifests for either version.
fn user() -> Folder {
    let user = Folder::of_user();
    user.write("civo.yaml", include_str!("../../../../examples/civo/multi-pool.yaml"));
    user.write("digitalocean.yaml", include_str!("../../../../examples/digitalocean/dev.yaml"));
    user.write("account.yaml", ACCOUNT);
    user.write("passphrase", PASSPHRASE);
    user
}

const FILES: [&str; 6] = ["-f", "civo.yaml", "-f", "digitalocean.yaml", "-f", "account.yaml"];

fn run(berth: &Path, user: &Folder, args: &[&str], more: &[&str]) -> Ran {
    let all: Vec<&str> = args.iter().chain(more).copied().collect();
    ran::run(&mut user.equip(program(berth, user.path(), &all)))
}

#[test]
fn a_laptops_state_opens_and_plans_empty() {
    let user = user();
    let before = |args: &[&str], more: &[&str]| run(&old(), &user, args, more);
    let now = |args: &[&str], more: &[&str]| run(&new(), &user, args, more);
    before(&["apply", "--sandbox", "--speed", "max", "--yes"], &FILES).ok();
    before(&["plan", "--sandbox", "--out", "empty.plan"], &FILES).ok();
    user.write("more.yaml", &ACCOUNT.replace("by-account", "one-more"));
    before(&["plan", "--sandbox", "--out", "more.plan", "-f", "more.yaml"], &[]).ok();
    let backup = ["backup", "--state", ".berth/sandbox-state.db", "--out", "b.age", "--passphrase-file", "passphrase"];
    before(&backup, &[]).ok();

    let shown = before(&["get", "--sandbox", "-o", "json"], &[]).ok().json();
    now(&["plan", "--sandbox", "--detailed-exitcode"], &FILES[..4]).ok();
    // Whether a token in a manifest is the stored one is not looked up for a plan on a laptop: an Account is written again.
    let own = now(&["plan", "--sandbox", "-f", "account.yaml", "-o", "json"], &[]).ok().json();
    assert_eq!(own["summary"], serde_json::json!({"unchanged": 1, "update": 1}), "{own}");
    let shown_now = now(&["get", "--sandbox", "-o", "json"], &[]).ok().json();
    let ids = |all: &serde_json::Value| {
        let one = |r: &serde_json::Value| format!("{} {} {}", r["kind"], r["metadata"]["name"], r["status"]["ready"]);
        all.as_array().expect("resources").iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(ids(&shown), ids(&shown_now));
    now(&["drift", "--sandbox"], &[]).ok();
    now(&["apply", "--sandbox", "--speed", "max", "--yes"], &FILES[..4]).ok().says("nothing to do");

    // Nothing says who wrote an old plan.
    for plan in ["empty.plan", "more.plan"] {
        now(&["apply", plan, "--sandbox", "--yes"], &[]).exits(1).says("berth plan");
    }
    let restore = ["restore", "b.age", "--db", "sqlite:copy/state.db", "--passphrase-file", "passphrase"];
    now(&restore, &[]).exits(1).says("--accept-unauthenticated");
    now(&restore, &["--accept-unauthenticated"]).ok();
    now(&["delete", "--sandbox", "--speed", "max", "--yes", "--allow-delete"], &FILES).ok();
    now(&["get", "--sandbox"], &[]).ok().says("nothing is applied here");
}

fn a_servers_database(dir: Arc<TempDir>, more: &[&str]) {
    let serve = |berth: &Path| {
        let mut args = vec!["--sandbox", "--speed", "max"];
        args.extend(more);
        Server::run_command(dir.clone(), program(berth, dir.path(), &[]), &args)
    };
    let user = user();
    let log_in = |server: &Server| {
        ran::run(user.equip(program(&new(), server.path(), &["login"])).args(server.login())).ok();
    };
    let server = serve(&old());
    log_in(&server);
    run(&old(), &user, &["apply", "--yes"], &FILES).ok();
    run(&old(), &user, &["token", "create", "ci", "--role", "operator"], &[]).ok();
    run(&old(), &user, &["plan", "--out", "empty.plan"], &FILES[..4]).ok();
    let entries = run(&old(), &user, &["audit", "list", "-o", "json"], &[]).ok().json();
    server.stop();

    let server = serve(&new());
    log_in(&server);
    let now = |args: &[&str], more: &[&str]| run(&new(), &user, args, more);
    now(&["plan", "--detailed-exitcode"], &FILES).ok();
    now(&["drift"], &[]).ok();
    now(&["apply", "--yes"], &FILES).ok().says("nothing to do");
    now(&["token", "list"], &[]).ok().says("ci");
    now(&["audit", "verify"], &[]).ok();
    let all = now(&["audit", "list", "--limit", "1000", "-o", "json"], &[]).ok().json();
    let numbers = |all: &serde_json::Value| {
        all.as_array().expect("entries").iter().map(|entry| entry["seq"].clone()).collect::<Vec<_>>()
    };
    let kept = numbers(&all);
    assert!(!numbers(&entries).is_empty() && numbers(&entries).iter().all(|seq| kept.contains(seq)), "{all}");
    now(&["apply", "empty.plan", "--yes"], &[]).exits(1).says("berth plan");
    now(&["delete", "--yes", "--allow-delete"], &FILES).ok();
    now(&["audit", "verify"], &[]).ok();
    server.stop();
}

#[test]
fn a_servers_sqlite_database_opens_and_plans_empty() {
    a_servers_database(Arc::new(tempfile::tempdir().expect("a folder")), &[]);
}

#[test]
fn a_servers_postgresql_database_opens_and_plans_empty() {
    let postgres = Postgres::start();
    a_servers_database(Arc::new(tempfile::tempdir().expect("a folder")), &["--db", &postgres.url()]);
}

/// A worker of one version at a server of the other: it says what to upgrade, and ends.
fn meet(server: &Path, worker: &Path, cure: &str) {
    let dir = Arc::new(tempfile::tempdir().expect("a folder"));
    let there = Server::run_command(dir.clone(), program(server, dir.path(), &[]), &["--no-worker"]);
    let user = user();
    ran::run(user.equip(program(server, there.path(), &["login"])).args(there.login())).ok();
    let made = run(server, &user, &["token", "create", "w", "--role", "worker"], &[]).ok();
    let secret = made.stdout.split_whitespace().find(|word| word.starts_with("berth_")).expect("a token").to_owned();
    user.write("worker.token", &secret);
    let ca = dir.path().join("berth-server/ca.pem");
    let ca = ca.to_str().expect("text");
    let args = ["worker", "--server", &there.url, "--token-file", "worker.token", "--ca", ca, "--name", "w"];
    let mut command = program(worker, user.path(), &args);
    command.env("TMPDIR", user.path());
    let mut worker = Process::start("worker", user.path(), command);
    worker.until_says(cure);
    // It ends by itself, so that whoever runs it sees why, and never asks for tasks.
    assert_eq!(worker.until_ended(), Some(1));
}

#[test]
fn a_worker_of_before_is_told_to_upgrade() {
    meet(&new(), &old(), "upgrade the worker");
}

#[test]
fn a_server_of_before_is_not_worked_for() {
    meet(&old(), &new(), "upgrade the server");
}
