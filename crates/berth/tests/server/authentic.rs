//! What someone does who can write the files or the database and has no key: edit a saved plan, forge a backup, rewrite the audit log,
//! put old rows back. By the real binary, on a server and on a laptop.

use crate::raw::Raw;
use crate::support::folder::Folder;
use crate::support::ran::run;
use crate::support::server::Server;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(60);

fn net(label: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net, org: shop, env: dev, labels: {{port: \"{label}\"}}}}\n\
         spec: {{networkName: net, region: fra1}}\n"
    )
}

/// The file changed as text, by whoever can write it.
fn edit(user: &Folder, from: &str, to: &str, change: impl Fn(&str) -> String) {
    let text = std::fs::read_to_string(user.path().join(from)).unwrap();
    let changed = change(&text);
    assert_ne!(text, changed, "the edit changes something");
    user.write(to, &changed);
}

fn as_json(text: &str, change: impl Fn(&mut Value)) -> String {
    let mut value = serde_json::from_str(text).unwrap();
    change(&mut value);
    value.to_string()
}

#[test]
fn a_saved_plan_that_was_edited_is_refused_on_a_laptop() {
    let user = Folder::of_user();
    let berth = |args: &[&str]| user.berth(&[args, &["--sandbox", "--speed", "max"]].concat());
    user.write("net.yaml", &net("443"));
    berth(&["apply", "-f", "net.yaml", "--yes"]).ok();
    user.write("net.yaml", &net("444"));
    berth(&["plan", "-f", "net.yaml", "--out", "x.plan"]).ok();
    let fence = |user: &Folder| rows(&only_state(user.path()), "SELECT number FROM fence").remove(0);
    let before = fence(&user);
    edit(&user, "x.plan", "port.plan", |text| text.replace("444", "22"));
    edit(&user, "x.plan", "delete.plan", |text| {
        as_json(text, |plan| {
            plan["unwanted"] = json!([{"kind": "CivoVpc", "name": "net", "org": "shop", "env": "dev"}]);
            plan["manifests"] = json!([]);
            plan["plan"]["resources"][0]["action"] = "delete".into();
        })
    });
    edit(&user, "x.plan", "code.plan", |text| as_json(text, |plan| plan["code"] = "00".repeat(32).into()));
    edit(&user, "x.plan", "none.plan", |text| as_json(text, |plan| drop(plan.as_object_mut().unwrap().remove("code"))));
    for plan in ["port.plan", "delete.plan", "code.plan", "none.plan"] {
        berth(&["apply", plan, "--yes"]).exits(1).says("was changed after it was made").says("berth plan -f FILE");
    }
    edit(&user, "x.plan", "old.plan", |text| as_json(text, |plan| plan["berthPlan"] = 1.into()));
    berth(&["apply", "old.plan", "--yes"]).exits(1).says("did not authenticate plans").says("run berth plan again");
    // Another state of the same user, with the same key.
    user.berth(&["apply", "x.plan", "--sandbox", "--state", "other.db", "--yes"])
        .exits(1)
        .says("planned for another state");
    assert_eq!(fence(&user), before, "not even the right to write was taken");
    berth(&["get", "-o", "json"]).ok().says("\"443\"");
    berth(&["apply", "x.plan"]).ok();
    berth(&["get", "-o", "json"]).ok().says("\"444\"");
}

#[test]
fn a_saved_plan_that_was_edited_is_refused_by_the_server() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("net.yaml", &net("443"));
    user.berth(&["apply", "-f", "net.yaml", "--yes"]).ok();
    user.write("net.yaml", &net("444"));
    user.berth(&["plan", "-f", "net.yaml", "--out", "x.plan"]).ok();
    edit(&user, "x.plan", "port.plan", |text| text.replace("444", "22"));
    edit(&user, "x.plan", "action.plan", |text| {
        as_json(text, |plan| plan["plan"]["resources"][0]["action"] = "delete".into())
    });
    edit(&user, "x.plan", "base.plan", |text| as_json(text, |plan| plan["bases"][0][1] = 7.into()));
    for plan in ["port.plan", "action.plan", "base.plan"] {
        user.berth(&["apply", plan, "--yes"]).exits(1).says("the saved plan was changed after it was made");
    }
    edit(&user, "x.plan", "old.plan", |text| as_json(text, |plan| plan["berthServerPlan"] = 1.into()));
    user.berth(&["apply", "old.plan", "--yes"]).exits(1).says("did not authenticate plans");
    let elsewhere = Server::start(&[]);
    let other = elsewhere.admin();
    edit(&user, "x.plan", "moved.plan", |text| text.replace(&server.url, &elsewhere.url));
    std::fs::copy(user.path().join("moved.plan"), other.path().join("moved.plan")).unwrap();
    other.berth(&["apply", "moved.plan", "--yes"]).exits(1).says("made by another server");
    user.berth(&["get", "CivoVpc/net", "--org", "shop", "--env", "dev", "-o", "json"]).ok().says("\"443\"");
    user.berth(&["apply", "x.plan"]).ok();
    user.berth(&["get", "CivoVpc/net", "--org", "shop", "--env", "dev", "-o", "json"]).ok().says("\"444\"");
}

fn sql(database: &Path, statements: &[&str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(database);
        let mut one = options.connect().await.unwrap();
        for statement in statements {
            one.execute(AssertSqlSafe((*statement).to_owned())).await.unwrap();
        }
    });
}

/// Each row's columns as text.
fn rows(database: &Path, query: &str) -> Vec<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(database);
        let mut one = options.connect().await.unwrap();
        let rows = sqlx::query(AssertSqlSafe(query.to_owned())).fetch_all(&mut one).await.unwrap();
        let text = |row: &sqlx::sqlite::SqliteRow, at| {
            row.try_get::<String, _>(at)
                .or_else(|_| row.try_get::<i64, _>(at).map(|number| number.to_string()))
                .unwrap()
        };
        rows.iter().map(|row| (0..row.len()).map(|at| text(row, at)).collect()).collect()
    })
}

/// The state of a laptop, wherever its commands keep it.
fn only_state(folder: &Path) -> std::path::PathBuf {
    fn find(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => find(&path, found),
                path if path.to_string_lossy().ends_with("state.db") => found.push(path),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    find(folder, &mut found);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// All hashes computed again after a change, as the log computes them.
fn rewrite(database: &Path, change: &str) {
    sql(database, &[change]);
    let mut previous = String::new();
    for row in rows(database, "SELECT id, at, actor, action, target, detail, outcome, actor_id FROM audit ORDER BY id")
    {
        let mut sha = Sha256::new();
        let mut feed = |part: &[u8]| {
            sha.update((part.len() as u64).to_le_bytes());
            sha.update(part);
        };
        feed(previous.as_bytes());
        row[..2].iter().for_each(|number| feed(&number.parse::<i64>().unwrap().to_le_bytes()));
        row[2..7].iter().chain(row[7..].iter().filter(|id| !id.is_empty())).for_each(|text| feed(text.as_bytes()));
        previous = sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        sql(database, &[&format!("UPDATE audit SET hash = '{previous}' WHERE id = {}", row[0])]);
    }
}

#[test]
fn an_audit_log_that_was_rewritten_or_cut_shows() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.berth(&["token", "create", "one", "--role", "viewer", "--out", "one.token"]).ok();
    let early = user.berth(&["audit", "head"]).ok().stdout;
    user.write("early", &early);
    let database = server.path().join("berth-server/state.db");
    let sealed_early = rows(&database, "SELECT value FROM meta WHERE name = 'audit_head'").remove(0).remove(0);
    user.berth(&["token", "create", "two", "--role", "admin", "--out", "two.token"]).ok();
    let kept = user.berth(&["audit", "head", "-o", "json"]).ok().json();
    user.write("kept", &format!("# by hand\n{early}{kept}\n"));
    user.berth(&["audit", "verify"]).ok().says("whole");
    user.berth(&["audit", "verify", "--since", "kept"]).ok().says("all 2 heads");
    user.berth(&["audit", "verify", "--since", "nothing"]).exits(1).says("cannot read the heads");

    // The end cut off, and the head of then put back: the chain is whole, and shorter than the one that was kept.
    let folder = server.stop();
    sql(&database, &["CREATE TABLE kept_audit AS SELECT * FROM audit", "CREATE TABLE kept_meta AS SELECT * FROM meta"]);
    let cut = early.split(' ').next().unwrap();
    sql(
        &database,
        &[
            &format!("DELETE FROM audit WHERE id > {cut}"),
            &format!("UPDATE meta SET value = '{sealed_early}' WHERE name = 'audit_head'"),
        ],
    );
    let server = Server::start_in(folder, &[]);
    let again = server.admin();
    for name in ["kept", "early"] {
        std::fs::copy(user.path().join(name), again.path().join(name)).unwrap();
    }
    again.berth(&["audit", "verify"]).ok();
    again.berth(&["audit", "verify", "--since", "early"]).ok();
    again.berth(&["audit", "verify", "--since", "kept"]).exits(1).says("cut off: entry");

    // Written anew: who made the token is someone else now, and every hash fits.
    let folder = server.stop();
    sql(
        &database,
        &[
            "DELETE FROM audit",
            "INSERT INTO audit SELECT * FROM kept_audit",
            "DELETE FROM meta",
            "INSERT INTO meta SELECT * FROM kept_meta",
        ],
    );
    rewrite(&database, "UPDATE audit SET detail = 'role viewer' WHERE detail LIKE 'role admin%'");
    let server = Server::start_in(folder, &[]);
    let third = server.admin();
    std::fs::copy(user.path().join("kept"), third.path().join("kept")).unwrap();
    third.berth(&["audit", "verify"]).exits(1).says("without the key");
    let told = third.berth(&["audit", "verify", "--since", "kept", "-o", "json"]).exits(1).json();
    assert_eq!((&told["reason"], &told["since"]["missing"]["reason"]), (&json!("head"), &json!("changed")));
}

fn metric(server: &Server, name: &str) -> String {
    let raw = Raw::new(&server.url, &server.path().join("berth-server/ca.pem"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let text = runtime.block_on(raw.get(Ipv4Addr::LOCALHOST, "/metrics", "")).unwrap().body;
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect("it is shown");
    line.rsplit(' ').next().unwrap().to_owned()
}

/// While a server runs, without any place outside: what was put behind the log's end shows, and its metric stays for
/// whoever looks later.
#[test]
fn an_entry_that_no_server_wrote_shows() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.berth(&["token", "create", "one", "--role", "viewer", "--out", "one.token"]).ok();
    user.berth(&["audit", "verify"]).ok();
    let head = user.berth(&["audit", "head", "-o", "json"]).ok().json()["id"].as_i64().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(metric(&server, "berth_audit_broken"), "0");
    let database = server.path().join("berth-server/state.db");
    sql(
        &database,
        &[&format!(
            "INSERT INTO audit (id, at, actor, actor_id, action, target, detail, outcome, hash) \
             SELECT id + 1, at, 'token:ann', '', 'approve', 'CivoVpc/net', '', 'ok', 'ab' FROM audit WHERE id = {head}"
        )],
    );
    let told = user.berth(&["audit", "verify", "-o", "json"]).exits(1).json();
    assert_eq!((&told["reason"], told["brokenAt"].as_i64()), (&json!("added"), Some(head + 1)));
    user.berth(&["audit", "verify"]).exits(1).says("added by someone without the key");
    let until = Instant::now() + WITHIN;
    while metric(&server, "berth_audit_broken") != "1" {
        assert!(Instant::now() < until, "the metric does not show it");
        std::thread::sleep(Duration::from_millis(100));
    }
    // The log goes on.
    user.berth(&["token", "create", "two", "--role", "viewer", "--out", "two.token"]).ok();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(metric(&server, "berth_audit_broken"), "1");
    user.berth(&["audit", "verify"]).exits(1).says("broken at entry");
}

/// The next line that a place got, with the head that it holds.
fn next_head(lines: &mpsc::Receiver<String>, at_least: i64) -> Value {
    let until = Instant::now() + WITHIN;
    loop {
        let line = lines.recv_timeout(until.saturating_duration_since(Instant::now())).expect("a head is offered");
        let head: Value = serde_json::from_str(&line[line.find('{').expect("JSON")..]).expect(&line);
        if head["id"].as_i64().unwrap() >= at_least {
            return head;
        }
    }
}

#[test]
fn the_head_is_offered_outside_as_it_moves() {
    let dir = tempfile::tempdir().unwrap();
    let socket = std::os::unix::net::UnixDatagram::bind(dir.path().join("log")).unwrap();
    let (send, syslog) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0u8; 4096];
        while let Ok(size) = socket.recv(&mut buffer) {
            _ = send.send(String::from_utf8_lossy(&buffer[..size]).into_owned());
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = format!("http://{}/heads", listener.local_addr().unwrap());
    let (send, webhook) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let (mut stream, mut text) = (stream, Vec::new());
            let mut buffer = [0u8; 4096];
            while !text.ends_with(b"}") {
                match stream.read(&mut buffer) {
                    Ok(size) if size > 0 => text.extend(&buffer[..size]),
                    _ => break,
                }
            }
            // The first is refused, and must be tried again.
            let status = if number == 0 { "503 Later" } else { "204 Thanks" };
            _ = stream
                .write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").as_bytes());
            if number > 0 {
                _ = send.send(String::from_utf8_lossy(&text).into_owned());
            }
        }
    });
    let (file, log) = (dir.path().join("heads"), format!("unix:{}", dir.path().join("log").display()));
    let flags =
        ["--audit-head-file", file.to_str().unwrap(), "--audit-head-syslog", &log, "--audit-head-webhook", &hook];
    let server = Server::start(&flags);
    let user = server.admin();
    user.berth(&["token", "create", "one", "--role", "viewer", "--out", "one.token"]).ok();
    let head = user.berth(&["audit", "head", "-o", "json"]).ok().json();
    let id = head["id"].as_i64().unwrap();
    for place in [&syslog, &webhook] {
        let offered = next_head(place, id);
        assert_eq!((&offered["id"], &offered["hash"]), (&head["id"], &head["hash"]));
    }
    let until = Instant::now() + WITHIN;
    while !std::fs::read_to_string(&file).unwrap_or_default().contains(head["hash"].as_str().unwrap()) {
        assert!(Instant::now() < until, "the head is not in the file");
        std::thread::sleep(Duration::from_millis(100));
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    user.berth(&["audit", "verify", "--since", file.to_str().unwrap()]).ok().says("heads that were kept");
    // A place that cannot take it holds up nobody: the writes above went well while the webhook said no.
    user.berth(&["token", "create", "two", "--role", "viewer", "--out", "two.token"]).ok();
    next_head(&webhook, id + 1);
}

#[test]
fn a_backup_that_no_key_of_the_state_made_is_refused() {
    let server = Server::start(&[]);
    let folder = server.stop();
    let state = folder.path().join("berth-server");
    let user = Folder::of_user();
    let (db, key) = (format!("sqlite:{}", state.join("state.db").display()), state.join("key").display().to_string());
    let identity = age::x25519::Identity::generate();
    user.write("me.txt", age::secrecy::ExposeSecret::expose_secret(&identity.to_string()));
    let public = identity.to_public().to_string();
    user.berth(&["backup", "--db", &db, "--key-file", &key, "--out", "b.age", "--recipient", &public]).ok();
    let mut plain = String::new();
    let file = std::io::BufReader::new(std::fs::File::open(user.path().join("b.age")).unwrap());
    let decryptor = age::Decryptor::new_buffered(file).unwrap();
    decryptor.decrypt(std::iter::once(&identity as _)).unwrap().read_to_string(&mut plain).unwrap();
    let forge = |name: &str, format: u32| {
        let mut lines: Vec<String> = plain.lines().map(str::to_owned).collect();
        let mut header: Value = serde_json::from_str(&lines[0]).unwrap();
        header["format"] = format.into();
        lines[0] = header.to_string();
        // The first admin's token is known by another hash: the forger's.
        let row = lines
            .iter()
            .position(|line| line.contains("\"admin\"") && line.contains("first"))
            .expect("the first token");
        let mut cells: Vec<Value> = serde_json::from_str(&lines[row]).unwrap();
        for cell in &mut cells {
            if cell.as_str().is_some_and(|text| text.len() == 64) {
                *cell = "ab".repeat(32).into();
            }
        }
        lines[row] = Value::from(cells).to_string();
        let mut trailer: Value = serde_json::from_str(&lines.pop().unwrap()).unwrap();
        let body = lines.join("\n") + "\n";
        trailer["sha256"] =
            Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        if format == 1 {
            trailer.as_object_mut().unwrap().retain(|name, _| name != "key" && name != "hmac");
        }
        let recipient = identity.to_public();
        let encryptor = age::Encryptor::with_recipients(std::iter::once(&recipient as _)).unwrap();
        let mut out = encryptor.wrap_output(std::fs::File::create(user.path().join(name)).unwrap()).unwrap();
        out.write_all(format!("{body}{trailer}\n").as_bytes()).unwrap();
        out.finish().unwrap();
    };
    forge("forged.age", 2);
    forge("old.age", 1);
    let restore = |file: &str, to: &str, more: &[&str]| {
        let to = format!("sqlite:{to}");
        user.berth(&[&["restore", file, "--db", &to, "--identity", "me.txt"], more].concat())
    };
    restore("forged.age", "a.db", &["--key-file", &key]).exits(1).says("changed or forged");
    restore("forged.age", "a.db", &["--key-file", &key, "--accept-unauthenticated"]).exits(1).says("changed or forged");
    restore("old.age", "a.db", &["--key-file", &key])
        .exits(1)
        .says("did not authenticate")
        .says("--accept-unauthenticated");
    // Its own keys prove nothing.
    restore("b.age", "a.db", &["--key-file", "new.key"]).exits(1).says("nothing shows who made").says("--key-file");
    assert!(!user.path().join("a.db").exists() && !user.path().join("new.key").exists(), "nothing is left");
    restore("b.age", "a.db", &["--key-file", &key]).ok().says("which is in the key ring here");
    let told = restore("old.age", "b.db", &["--key-file", &key, "--accept-unauthenticated"]).ok();
    told.says("warning: nothing shows who made this backup").says("admin ").says("berth token revoke");
}

#[test]
fn a_key_file_that_others_may_read_is_refused() {
    let user = Folder::of_user();
    user.berth(&["key", "new", "--key-file", "ring"]).ok();
    let mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(user.path().join("ring"), permissions).unwrap();
    };
    for open in [0o644, 0o640, 0o660, 0o604] {
        mode(open);
        let refused = user.berth(&["key", "list", "--key-file", "ring"]).exits(1).says("can be read by others");
        refused.says("chmod 600 ring");
        let mut server = user.command(&["server", "--listen", "127.0.0.1:0", "--no-worker"]);
        run(server.env("BERTH_KEY_FILE", "ring")).exits(1).says("chmod 600 ring");
    }
    mode(0o600);
    user.berth(&["key", "list", "--key-file", "ring"]).ok();
}

/// A state that holds what the names of before allowed.
fn under_a_bad_name(database: &Path) {
    for table in ["resources", "journal", "events"] {
        sql(database, &[&format!("UPDATE {table} SET env = 'Prod ', org = 'Ѕhop/x' WHERE env = 'dev'")]);
    }
    sql(
        database,
        &["UPDATE resources SET manifest = replace(replace(manifest, '\"env\":\"dev\"', '\"env\":\"Prod \"'), \
          '\"org\":\"shop\"', '\"org\":\"Ѕhop/x\"')"],
    );
}

#[test]
fn what_is_stored_under_a_bad_name_stays_readable_and_is_deleted() {
    let scope = ["--org", "Ѕhop/x", "--env", "Prod "];
    let look = |user: &Folder, more: &[&str]| {
        let run = |args: &[&str]| user.berth(&[args, more].concat());
        run(&["get"]).ok().says("Prod ");
        run(&[&["get", "CivoVpc/net", "-o", "json"], &scope[..]].concat()).ok().says("Prod ");
        run(&[&["describe", "CivoVpc/net"], &scope[..]].concat()).ok().says("net");
        run(&[&["history", "CivoVpc/net"], &scope[..]].concat()).ok();
        for (org, env, place) in
            [("shop", "Prod ", "env"), ("shop", "Prod", "env"), ("Ѕhop", "dev", "org"), ("shop", "a/b", "env")]
        {
            user.write(
                "bad.yaml",
                &net("1")
                    .replace("org: shop", &format!("org: \"{org}\""))
                    .replace("env: dev", &format!("env: \"{env}\"")),
            );
            run(&["apply", "-f", "bad.yaml", "--yes"])
                .exits(1)
                .says(&format!("metadata.{place}"))
                .says("lower-case letters");
        }
        run(&[&["delete", "CivoVpc/net", "--yes", "--allow-delete"], &scope[..]].concat()).ok();
        run(&["get"]).ok().says("nothing is applied here");
    };
    let user = Folder::of_user();
    user.write("net.yaml", &net("443"));
    user.berth(&["apply", "-f", "net.yaml", "--yes", "--sandbox"]).ok();
    under_a_bad_name(&only_state(user.path()));
    look(&user, &["--sandbox", "--speed", "max"]);

    let server = Server::start(&[]);
    let user = server.admin();
    user.write("net.yaml", &net("443"));
    user.berth(&["apply", "-f", "net.yaml", "--yes"]).ok();
    let folder = server.stop();
    under_a_bad_name(&folder.path().join("berth-server/state.db"));
    let server = Server::start_in(folder, &[]);
    look(&server.admin(), &[]);
}
