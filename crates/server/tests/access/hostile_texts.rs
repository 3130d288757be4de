//! What a hostile worker writes where a text, a name or JSON is expected: nothing of it keeps others from what is theirs.

use crate::call::Protocol;
use crate::hostile::{Worker, deep, footprint, intent, is_refusal, network_plan, two_orgs, unit, with_network};
use berth_server::access::Role;
use serde_json::{Value, json};

/// Clients of gRPC read no more than a hundred messages in one another, and no list is larger than what is in it.
#[tokio::test]
async fn nothing_that_a_worker_writes_keeps_lists_from_others() {
    let server = two_orgs().await;
    let (worker, leased) = with_network(&server).await;
    let mut plan = network_plan(&leased);
    plan["resources"][0]["units"][0]["changes"] =
        json!([{"field": "label", "from": null, "to": deep(60), "takes": "in_place"}]);
    assert!(is_refusal(&worker.submit(&leased.held, &plan).await.expect_err("a plan without bottom")));
    worker.submit(&leased.held, &network_plan(&leased)).await.unwrap();
    worker.record(&leased, intent("create", json!({}))).await.unwrap();
    let before = footprint(server.control()).await;
    let outputs =
        |value: Value| json!({"status": {"state": "Pending", "outputs": json!({"network_id": value}).to_string()}});
    let bottomless = json!({"a": deep(60)}).to_string();
    for (what, write) in [
        ("an output without bottom", outputs(deep(60))),
        ("an output that is an object", outputs(json!({"a": "b"}))),
        ("an output that is a number", outputs(json!(1e308))),
        ("a list of lists", outputs(json!([["a"]]))),
        ("an output without end", outputs(json!("x".repeat(1 << 20)))),
        ("facts without bottom", json!({"status": {"state": "Pending", "facts": bottomless}})),
        ("properties without bottom", json!({"saveUnit": unit(json!({"props": bottomless}))})),
        ("outputs of a unit without bottom", json!({"saveUnit": unit(json!({"outputs": bottomless}))})),
        ("an id with a NUL", json!({"saveUnit": unit(json!({"objectId": "a\0b"}))})),
        ("an id that moves the cursor", json!({"saveUnit": unit(json!({"objectId": "a\u{1b}[2J"}))})),
        ("an identity of two lines", json!({"saveUnit": unit(json!({"identity": "a\nb"}))})),
        ("a token with a NUL", intent("create", json!({"token": "a\0b"}))),
        ("a key with a NUL", json!({"forgetUnit": {"key": "network\0", "token": "t1"}})),
    ] {
        let fault = worker.record(&leased, write).await.expect_err(what);
        assert!(is_refusal(&fault), "{what}: {fault}");
        assert_eq!(footprint(server.control()).await, before, "{what}");
    }
    let write = json!({"held": leased.held, "resource": leased.context["resource"], "key": "a\0b", "event": {"what": "refreshed"}});
    assert!(is_refusal(&worker.call("Record", write).await.expect_err("a key with a NUL")));
    for held in [json!({"task": "\0", "fence": "1"}), json!({"task": "a\nb", "fence": "1"})] {
        let fault =
            worker.call("Heartbeat", json!({"worker": "evil", "held": [held]})).await.expect_err("a task with a NUL");
        assert!(is_refusal(&fault), "{fault}");
    }
    worker.record(&leased, outputs(json!(["a", "b"]))).await.expect("a list of texts is an output");

    // Help has an end, too.
    let end = json!({"held": leased.held, "outcome": "failed", "message": "m\nReady\r\nx", "help": vec!["h".repeat(100_000); 25]});
    worker.call("Report", end).await.unwrap();
    let id = leased.held["task"].as_str().unwrap().to_owned();
    let task = server.control().task(&berth_store::TaskId(id)).await.unwrap().unwrap();
    assert!(task.help.len() <= 20 && task.help.iter().all(|line| line.len() < 20_000), "{}", task.help.len());
    assert_eq!(task.message, "m Ready  x", "a message is one line");
    let (viewer, _) = server.make("viewer", Role::Viewer, "", "", 3600).await;
    for protocol in [Protocol::Rest, Protocol::Grpc] {
        let answer = server.call(protocol, "Resources.List", &json!({}), Some(&viewer)).await.unwrap();
        assert_eq!(answer.code, "ok");
        assert!(answer.body.len() < 20_000, "{}", answer.body.len());
    }
    server.stop().await;
}

/// A name is a worker's own among those of its org.
#[tokio::test]
async fn a_worker_of_one_org_speaks_for_no_other_worker() {
    let server = two_orgs().await;
    let recipient = age::x25519::Identity::generate().to_public().to_string();
    let lease = |name: &str, more: Value| {
        let mut request = json!({"worker": name, "recipient": recipient, "version": "1", "capacity": 3, "simulated": false,
                                 "protocol": berth_server::worker::PROTOCOL});
        request.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        request
    };
    let (honest, evil) = (Worker::new(&server, "").await, Worker::new(&server, "shop").await);
    honest.call("Lease", lease("honest", json!({}))).await.unwrap();
    let row = || async {
        let all = server.control().workers().await.unwrap();
        let row = all.into_iter().find(|worker| worker.name == "honest").expect("it did not leave");
        (row.capacity, row.version, row.draining, row.seen_at)
    };
    let before = row().await;
    for more in [json!({"draining": true, "capacity": 0}), json!({"leaving": true}), json!({"version": "0"})] {
        evil.call("Lease", lease("honest", more.clone())).await.unwrap();
        assert_eq!(row().await, before, "{more}");
    }
    evil.call("Heartbeat", json!({"worker": "honest"})).await.unwrap();
    assert_eq!(row().await, before);
    for name in ["ev\0il", "ev\nil", "\u{1b}[2J"] {
        assert!(is_refusal(&evil.call("Lease", lease(name, json!({}))).await.expect_err(name)), "{name:?}");
        assert!(is_refusal(&evil.call("Heartbeat", json!({"worker": name})).await.expect_err(name)), "{name:?}");
    }
    let fault =
        evil.call("Lease", lease("evil", json!({"version": "1\n2"}))).await.expect_err("a version of two lines");
    assert!(is_refusal(&fault), "{fault}");
    server.stop().await;
}
