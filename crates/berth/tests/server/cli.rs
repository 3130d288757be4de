//! Every command of the embedded mode against a server: what it says, how it exits, and that programs see no difference.

use crate::support::folder::Folder;
use crate::support::server::Server;
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

const CLUSTER: &str = "CivoKubernetesCluster/dev";

fn dev() -> String {
    include_str!("../../../../examples/civo/dev.yaml").to_owned()
}

#[test]
fn every_command_works_the_same() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("dev.yaml", &dev());

    // Nothing is there yet.
    user.berth(&["get"]).ok().says("nothing is applied here");
    user.berth(&["validate", "-f", "dev.yaml"]).ok().says("valid");
    user.berth(&["plan", "-f", "dev.yaml", "--detailed-exitcode"]).exits(2).says("4 to create");
    user.berth(&["apply", "-f", "dev.yaml"]).exits(1).says("no terminal to ask on");

    user.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok().says("4 resources Ready").says("berth kubeconfig");
    user.berth(&["get"]).ok().says("dev-net").says(&format!("from {}", server.url));
    let all = user.berth(&["get", "-o", "json"]).ok().json();
    assert_eq!(all.as_array().map(Vec::len), Some(4), "{all}");
    assert!(all.as_array().into_iter().flatten().all(|one| one["status"]["ready"] == true), "{all}");

    user.berth(&["describe", CLUSTER]).ok().says("Refers to").says("CivoVpc/dev-net").says("civo.cluster");
    user.berth(&["outputs", CLUSTER]).ok().says("api_server_endpoint");
    let secret = user.berth(&["outputs", CLUSTER, "kubeconfig_b64"]).exits(1);
    assert!(secret.stderr.contains("is secret"), "{secret:?}");
    user.berth(&["outputs", CLUSTER, "kubeconfig_b64", "--show-secrets"]).ok();
    user.berth(&["kubeconfig", CLUSTER]).ok().says("apiVersion: v1");
    user.berth(&["kubeconfig", "CivoVpc/dev-net"]).exits(1).says("has no kubeconfig");
    user.berth(&["history", CLUSTER]).ok().says("create");
    user.berth(&["history"]).ok().says(CLUSTER);
    user.berth(&["history", "--open"]).ok().says("nothing is open");
    user.berth(&["wait", "--all"]).ok().says("nothing to wait for");
    user.berth(&["graph"]).ok().says("└─");
    user.berth(&["drift"]).ok().says("0 of");
    user.berth(&["refresh"]).ok().says("changed in the state");
    user.berth(&["doctor"]).ok().says("workers").says("trusted").says("answers");

    // The same again: nothing to do.
    user.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok().says("nothing to do: all 4 resources are as declared");
    user.berth(&["plan", "-f", "dev.yaml", "--detailed-exitcode"]).ok().says("4 unchanged");

    // A change, and what is there by name alone.
    user.write("dev.yaml", &dev().replace("nodeCount: 1", "nodeCount: 2"));
    user.berth(&["apply", "-f", "dev.yaml", "--yes", "--no-wait"]).ok().says("begun");
    user.berth(&["wait", "--all"]).ok();
    user.berth(&["get", CLUSTER, "-o", "json"]).ok().says("\"nodeCount\": 2");
    user.berth(&["apply", CLUSTER, "--yes"]).ok();

    user.berth(&["tasks"]).ok().says("apply").says(CLUSTER);
    let tasks = user.berth(&["tasks", "list", "--state", "done", "-o", "json"]).ok().json();
    let task = tasks[0]["id"].as_str().expect("a task").to_owned();
    user.berth(&["tasks", "show", &task]).ok().says("done");
    user.berth(&["tasks", "logs", &task]).ok();
    user.berth(&["tasks", "cancel", &task]).exits(1);
    user.berth(&["tasks", "cancel", CLUSTER]).exits(1).says("nothing is under way");
    user.berth(&["tasks", "show", "nothing-like-it"]).exits(1);
    user.berth(&["events"]).ok().says(CLUSTER);
    user.berth(&["events", "CivoVpc/dev-net", "--after", "0", "-o", "json"]).ok().says("dev-net");
    user.berth(&["workers"]).ok().says("ready");
    user.berth(&["accounts", "-o", "json"]).ok();
    user.berth(&["approve", CLUSTER, "--yes"]).exits(1).says("no plan that waits");
    user.berth(&["watch"]).exits(1).says("watch needs a terminal").says("berth events -f");

    user.berth(&["delete", "CivoVpc/dev-net", "--yes"]).exits(1).says("refers to it");
    user.berth(&["delete", CLUSTER, "--yes", "--cascade"]).exits(1).says("--allow-delete");
    user.berth(&["delete", "-f", "dev.yaml", "--yes", "--allow-delete"]).ok().says("4 deleted");
    user.berth(&["get"]).ok().says("nothing is applied here");
    user.berth(&["get", CLUSTER]).exits(1).says("is not applied");
}

/// What a server says is what the embedded engine says, name by name.
#[test]
fn programs_see_the_same_shapes() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("dev.yaml", &dev());
    let both = |args: &[&str], code: i32| -> (Value, Value) {
        let by_server = user.berth(args).exits(code).json();
        let mut local = args.to_vec();
        local.push("--sandbox");
        // The server's clouds take no time: neither do these, so that both have no estimates to show.
        if args[0] == "plan" || args[0] == "apply" {
            local.extend(["--speed", "max"]);
        }
        (by_server, user.berth(&local).exits(code).json())
    };
    let same = |args: &[&str]| {
        let (by_server, embedded) = both(args, 0);
        assert_eq!(shape(&by_server), shape(&embedded), "berth {}", args.join(" "));
    };
    same(&["plan", "-f", "dev.yaml", "-o", "json"]);
    user.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok();
    user.berth(&["apply", "-f", "dev.yaml", "--yes", "--sandbox", "--speed", "max"]).ok();
    same(&["get", "-o", "json"]);
    same(&["get", CLUSTER, "-o", "json"]);
    same(&["outputs", CLUSTER, "-o", "json"]);
    same(&["plan", "-f", "dev.yaml", "-o", "json"]);
    same(&["drift", "-o", "json"]);
    same(&["refresh", "-o", "json"]);
    same(&["apply", "-f", "dev.yaml", "--yes", "-o", "json"]);
    same(&["validate", "-f", "dev.yaml", "-o", "json"]);
    // A server's history knows more, such as who applied; its lines are the same.
    let (by_server, embedded) = both(&["history", CLUSTER, "-o", "json"], 0);
    let names = |value: &Value| value[0].as_object().map(|line| line.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(&by_server), names(&embedded));
    // Sections of `describe` are the same as well; ids and times are not.
    let sections = |text: &str| {
        text.lines().filter(|l| !l.starts_with(' ') && !l.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let by_server = user.berth(&["describe", CLUSTER]).ok();
    let embedded = user.berth(&["describe", CLUSTER, "--sandbox"]).ok();
    assert_eq!(sections(&by_server.stdout), sections(&embedded.stdout));
}

#[test]
fn mistakes_are_shown_at_their_place_and_change_nothing() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("dev.yaml", &dev().replace("name: dev-net}", "name: dev-nett}"));
    let run = user.berth(&["apply", "-f", "dev.yaml", "--yes"]).exits(1).says("dev-nett").says("dev.yaml:");
    assert!(run.stderr.contains('^'), "{run:?}");
    user.berth(&["get"]).ok().says("nothing is applied here");
    for (args, text) in [
        (&["get", "--context", "nobody"][..], "there is no context named `nobody`"),
        (&["get", "--context", "nobody", "--local"], "cannot be used with"),
        (&["get", "--context", "nobody", "--sandbox"], "--sandbox"),
        (&["events", "--local"], "needs a server"),
        (&["tasks", "--state", "lazy"], "invalid value 'lazy'"),
        (&["tasks", "show"], "ID"),
        (&["approve"], "KIND/NAME"),
        (&["apply", "--stack-input", "dev.yaml"], "stack input"),
    ] {
        user.berth(args).exits(1).says(text);
    }
    // Without a server, commands of a server say what to do; the others are as they were.
    let alone = Folder::of_user();
    for command in ["tasks", "events", "workers", "accounts", "watch"] {
        alone.berth(&[command]).exits(1).says("berth login");
    }
    alone.berth(&["approve", CLUSTER]).exits(1).says("berth login");
    // A server that is gone.
    drop(server);
    user.berth(&["get"]).exits(1).says("cannot reach the server").says("berth server");
    user.berth(&["doctor"]).exits(1).says("nothing answers there");
    user.berth(&["get", "--local"]).exits(1).says("there is no state");
}

/// Two ways to change the same thing end in one, or in an error that says who and what.
#[test]
fn what_is_taken_away_is_allowed_first() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("dev.yaml", &dev());
    user.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok();
    // Another size of a pool replaces it.
    user.write("dev.yaml", &dev().replace("size: g4s.kube.medium", "size: g4s.kube.large"));
    user.berth(&["apply", "-f", "dev.yaml", "--yes"]).exits(1).says("--allow-replace");
    user.berth(&["apply", "-f", "dev.yaml", "--yes", "--allow-replace"]).ok();
    let pool = user.berth(&["get", "CivoKubernetesNodePool/dev-builds", "-o", "json"]).ok().json();
    assert_eq!(pool["spec"]["size"], "g4s.kube.large");
}

#[test]
fn events_are_followed_until_told_to_stop() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("dev.yaml", &dev());
    let log = std::fs::File::create(user.path().join("events.log")).unwrap();
    let mut command = user.command(&["events", "-f", "--after", "0", "-o", "json"]);
    let mut child = command.stdin(Stdio::null()).stdout(log).spawn().unwrap();
    user.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok();
    let until = Instant::now() + Duration::from_secs(30);
    let ready = |text: &str| {
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|event| event["what"] == "Ready").count()
    };
    loop {
        let text = std::fs::read_to_string(user.path().join("events.log")).unwrap();
        if ready(&text) >= 4 {
            let ids: Vec<i64> =
                text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["id"].as_i64()).collect();
            assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "each once, in order: {ids:?}");
            break;
        }
        assert!(Instant::now() < until, "{text}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_saved_plan_is_carried_out_exactly_or_refused() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("dev.yaml", &dev());
    user.berth(&["plan", "-f", "dev.yaml", "--out", "x.plan"]).ok().says("berth apply x.plan");
    user.berth(&["apply", "x.plan", "--env", "dev"]).exits(1).says("carried out whole");
    user.berth(&["apply", "x.plan", "--sandbox"]).exits(1).says("not by the embedded engine");
    user.berth(&["apply", "x.plan", "--parallelism", "2"]).ok().says("4 resources Ready").says("--capacity");
    user.berth(&["apply", "x.plan"]).exits(1).says("the world moved since this plan was made");

    // Someone else changes another field: a merge would go well, and would not be what was shown.
    user.write("dev.yaml", &dev().replace("nodeCount: 1", "nodeCount: 2"));
    user.berth(&["plan", "-f", "dev.yaml", "--out", "x.plan"]).ok().says("to update");
    let other = server.admin();
    other.write("dev.yaml", &dev().replace("label: HTTPS", "label: Web"));
    other.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok();
    user.berth(&["apply", "x.plan"]).exits(1).says("the world moved").says("nothing was changed");
    user.berth(&["get", CLUSTER, "-o", "json"]).ok().says("\"nodeCount\": 1");
    user.berth(&["plan", "-f", "dev.yaml", "--out", "x.plan"]).ok();
    user.berth(&["apply", "x.plan"]).ok();
    user.berth(&["get", CLUSTER, "-o", "json"]).ok().says("\"nodeCount\": 2");

    // What takes something away was looked at, and needs no second word.
    user.write("dev.yaml", &dev().replace("g4s.kube.medium", "g4s.kube.large").replace("nodeCount: 1", "nodeCount: 2"));
    user.berth(&["plan", "-f", "dev.yaml", "--out", "x.plan"]).ok().says("replace");
    user.berth(&["apply", "x.plan"]).ok();

    user.berth(&["plan", "-f", "dev.yaml", "--sandbox", "--out", "y.plan"]).ok();
    user.berth(&["apply", "y.plan"]).exits(1).says("planned by the embedded engine");
    let elsewhere = Server::start(&[]).admin();
    std::fs::copy(user.path().join("x.plan"), elsewhere.path().join("x.plan")).unwrap();
    elsewhere.berth(&["apply", "x.plan"]).exits(1).says(&format!("was planned by {}", server.url));
    let account = "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {name: main}\n\
                   spec: {provider: civo, civo: {token: {value: hush-hush-hush}}}\n";
    user.write("account.yaml", account);
    user.berth(&["plan", "-f", "account.yaml", "--out", "z.plan"]).exits(1).says("holds a secret");
    assert!(!user.path().join("z.plan").exists());
}

/// A server that has lost its state finds everything again in the clouds.
#[test]
fn what_is_in_a_cloud_is_imported() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("dev.yaml", &dev());
    user.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok();
    let outputs = user.berth(&["outputs", "CivoVpc/dev-net", "-o", "json"]).ok().json();
    let object = outputs["network_id"].as_str().expect("an id").to_owned();
    user.berth(&["import", "CivoVpc/again", &object]).exits(1).says("managed already, as CivoVpc/dev-net");
    let folder = server.stop();
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        _ = std::fs::remove_file(folder.path().join("berth-server").join(name));
    }
    let server = Server::start_in(folder, &[]);
    let user = server.admin();
    user.berth(&["get"]).ok().says("nothing is applied here");
    user.berth(&["import", "CivoVpc/net", "no-such-id"]).exits(1).says("no-such-id");
    user.berth(&["import", "CivoVpc/net", &object])
        .ok()
        .says("civovpc-net.yaml")
        .says("nothing in the cloud was changed");
    user.berth(&["plan", "-f", "civovpc-net.yaml", "--detailed-exitcode"]).ok().says("1 unchanged");
    user.berth(&["import", "CivoVpc/net", &object]).exits(1).says("exists already");
    user.berth(&["import", "--all", "--provider", "civo", "--out", "found"]).ok().says("imported");
    user.berth(&["plan", "-f", "found", "--detailed-exitcode"]).ok().says("unchanged");
    user.berth(&["get", "civokubernetescluster"]).ok().says("dev");
    user.berth(&["audit", "--action", "import"]).ok().says("CivoVpc/net");
}

#[test]
fn a_lost_token_is_replaced_by_whoever_holds_database_and_key() {
    let server = Server::start(&[]);
    let folder = server.stop();
    let user = Folder::of_user();
    let state = folder.path().join("berth-server/state.db");
    let db = format!("sqlite:{}", state.display());
    user.berth(&["token", "recover"]).exits(1).says("which database?");
    user.berth(&["key", "new", "--key-file", "other"]).ok();
    user.berth(&["token", "recover", "--db", &db, "--key-file", "other"]).exits(1).says("key");
    std::fs::remove_file(folder.path().join("berth-server/admin.token")).unwrap();
    user.berth(&["token", "recover", "--db", &db, "--out", "new.token", "--expires", "1h"])
        .ok()
        .says("recovered-admin");
    let server = Server::start_in(folder, &[]);
    let held = user.berth(&["token", "recover", "--db", &db]).exits(1);
    assert!(held.stderr.contains("berth server") || held.stderr.contains("in use"), "{held:?}");
    let ca = server.path().join("berth-server/ca.pem");
    user.berth(&["login", &server.url, "--ca", ca.to_str().unwrap(), "--token-file", "new.token"]).ok().says("admin");
    user.berth(&["audit"]).ok().says("recover token").says("database");
    user.berth(&["audit", "verify"]).ok().says("whole");
    user.berth(&["token", "list"]).ok().says("recovered-admin");
}

#[test]
fn a_plan_without_a_worker_says_what_it_waits_for() {
    let server = Server::without_worker();
    let user = server.admin();
    user.write("dev.yaml", &dev());
    let log = std::fs::File::create(user.path().join("plan.log")).unwrap();
    let mut child = user.command(&["plan", "-f", "dev.yaml"]).stdin(Stdio::null()).stderr(log).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !std::fs::read_to_string(user.path().join("plan.log")).unwrap().contains("no worker is running") {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn whoever_logs_out_ends_no_token_that_others_use() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.berth(&["token", "create", "ci", "--role", "viewer", "--out", "ci.token"]).ok();
    let ca = server.path().join("berth-server/ca.pem");
    let login = ["login", &server.url, "--ca", ca.to_str().unwrap(), "--token-file", "ci.token", "--name", "ci"];
    user.berth(&login).ok();
    user.berth(&["logout"]).ok().says("the token ci is forgotten here and valid until");
    user.berth(&["get"]).exits(1).says("berth login");
    user.berth(&login).ok();
    user.berth(&["logout", "--revoke"]).ok().says("logged out");
    user.berth(&login).exits(1).says("not valid");
}

#[test]
fn the_same_name_in_two_orgs_is_told_apart() {
    let server = Server::start(&[]);
    let user = server.admin();
    for org in ["bank", "shop"] {
        let text = format!(
            "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net, org: {org}, env: dev}}\n\
             spec: {{networkName: {org}-net, region: fra1}}\n"
        );
        user.write(&format!("{org}.yaml"), &text);
        user.berth(&["apply", "-f", &format!("{org}.yaml"), "--yes"]).ok();
    }
    user.berth(&["get"]).ok().says("ORG").says("bank").says("shop");
    user.berth(&["describe", "CivoVpc/net"]).exits(1).says("--org");
    user.berth(&["describe", "CivoVpc/net", "--org", "shop"]).ok().says("shop-net");
    user.berth(&["tasks"]).ok().says("CivoVpc/net (bank, dev)");
    user.berth(&["events"]).ok().says("CivoVpc/net (shop, dev)");
}

/// The names and types of a value, without its values. Lists are as their items, put together.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(items) => {
            let mut shapes: Vec<Value> = Vec::new();
            for one in items.iter().map(shape) {
                if !shapes.contains(&one) {
                    shapes.push(one);
                }
            }
            shapes.sort_by_key(ToString::to_string);
            Value::Array(shapes)
        }
        Value::Object(map) => Value::Object(map.iter().map(|(name, value)| (name.clone(), shape(value))).collect()),
    }
}
