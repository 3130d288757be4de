//! A resource belongs to the account it was made in, whichever worker has its task; much gone at once is held back.

use crate::guard::Person;
use crate::harness::*;
use berth_sandbox::{Config, Sandbox};
use berth_server::pb;
use std::time::{Duration, Instant};

fn network(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}{annotations}}}\n\
         spec: {{networkName: {name}, region: fra1}}\n"
    )
}

fn networks(count: usize, annotations: &str) -> String {
    (0..count).map(|n| network(&format!("n{n}"), annotations)).collect::<Vec<_>>().join("---\n")
}

const REPAIR: &str = ", annotations: {berth.dev/drift-policy: repair}";

/// As the cloud itself tells it, with a client that knows nothing of Berth.
async fn civo(sandbox: &Sandbox, method: &str, path: &str) -> serde_json::Value {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let request =
        client.request(method, format!("{}{path}", sandbox.url(berth_sandbox::civo::NAME))).bearer_auth(CLOUD_TOKEN);
    let answer = request.send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {answer:?}");
    answer.json().await.unwrap()
}

async fn account(sandbox: &Sandbox) -> String {
    civo(sandbox, "GET", "/v2/quota").await["id"].as_str().unwrap().to_owned()
}

async fn live(sandbox: &Sandbox) -> Vec<(String, String)> {
    let listed = civo(sandbox, "GET", "/v2/networks?region=FRA1").await;
    let own = listed.as_array().unwrap().iter().filter(|network| network["default"] != true);
    let text = |network: &serde_json::Value, name: &str| network[name].as_str().unwrap().to_owned();
    own.map(|network| (text(network, "label"), text(network, "id"))).collect()
}

async fn delete_outside(sandbox: &Sandbox, names: &[&str]) {
    for (_, id) in live(sandbox).await.iter().filter(|(name, _)| names.contains(&name.as_str())) {
        civo(sandbox, "DELETE", &format!("/v2/networks/{id}?region=FRA1")).await;
    }
}

async fn elsewhere() -> Sandbox {
    let config = Config { speed: Speed::Instant, token: Some(CLOUD_TOKEN.into()), ..Config::default() };
    Sandbox::start(config).await.expect("the sandbox starts")
}

fn applied(text: &str) -> pb::ApplyRequest {
    let files = vec![pb::ManifestFile { name: "test.yaml".into(), text: text.into() }];
    pb::ApplyRequest { files, retry: true, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_other_credentials_looks_at_nothing_and_makes_nothing() {
    let mut plane = Plane::start(Setup::default()).await;
    let other = elsewhere().await;
    let (own, others) = (account(&plane.sandbox).await, account(&other).await);
    plane.apply(&networks(2, "")).await;
    plane.until_ready().await;
    assert!(plane.workers[0].stop(LONGEST));
    plane.add_worker_for("stranger", &other);

    let client = plane.client(0).await;
    let refused = |text: &str| text.contains(&own) && text.contains(&others) && text.contains("belong to");
    let drift = client.resources().drift(pb::DriftRequest::default()).await.expect("a check").into_inner();
    assert!(drift.drifted.is_empty() && drift.problems.len() == 2, "{drift:?}");
    assert!(drift.problems.iter().all(|problem| refused(&problem.message)), "{drift:?}");
    let files = applied(&networks(2, "")).files;
    let plan = client.resources().plan(pb::PlanRequest { files, ..Default::default() }).await.unwrap().into_inner();
    assert!(plan.problems.len() == 2 && plan.problems.iter().all(|problem| refused(&problem.message)), "{plan:?}");
    assert!(plan.problems[0].help.iter().any(|line| line.contains("berth account move env:civo")), "{plan:?}");
    let import = pb::ImportRequest { provider: "civo".into(), ..Default::default() };
    let import = client.resources().import(import).await.expect_err("another account's objects");
    assert!(refused(import.message()), "{import}");

    // Worked on again, made anew, deleted: each fails, and says why.
    client.resources().apply(applied(&networks(2, ""))).await.unwrap();
    client.resources().apply(applied(&network("new", ""))).await.unwrap();
    let failed = |r: &pb::Resource| r.state == "Failed" && refused(&r.message);
    plane.until("refused", LONGEST, |all| all.len() == 3 && all.iter().all(failed)).await;
    plane.delete("CivoVpc", "n1", "", false).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    plane.until("not forgotten", LONGEST, |all| all.len() == 3 && all.iter().all(|r| refused(&r.message))).await;
    let made = other.world().traffic(berth_sandbox::civo::NAME).mutating();
    assert_eq!((made, live(&other).await.len(), live(&plane.sandbox).await.len()), (0, 0, 2), "{}", plane.told());

    // The right worker takes over what the other one could not do.
    assert!(plane.workers[1].stop(LONGEST));
    plane.workers[0].start_again();
    plane.until("all done", LONGEST, |all| all.len() == 2 && all.iter().all(|r| r.state == "Ready")).await;
    let mut names: Vec<String> = live(&plane.sandbox).await.into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!((names, live(&other).await.len()), (vec!["n0".to_owned(), "new".to_owned()], 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_is_moved_by_an_admin_and_what_is_missing_is_made_there() {
    let mut plane = Plane::start(Setup { postgres: true, ..Setup::default() }).await;
    let other = elsewhere().await;
    let others = account(&other).await;
    plane.apply(&networks(2, "")).await;
    plane.until_ready().await;
    assert!(plane.workers[0].stop(LONGEST));
    plane.add_worker_for("stranger", &other);
    let (operator, admin) = (Person::new(&plane, "olga", "operator").await, Person::new(&plane, "ann", "admin").await);

    operator.berth(&["account", "move", "env:civo", "--forget-missing", "--yes"]).exits(1).says("admin");
    admin.berth(&["account", "move", "env:civo", "--yes"]).exits(1).says_all(&["2 of 2 objects not found", &others]);
    admin.berth(&["account", "move", "env:civo", "--forget-missing", "--dry-run"]).ok().says("forgotten");
    assert_eq!(plane.list(0).await.unwrap().iter().filter(|r| r.state == "Ready").count(), 2, "nothing was done");
    let moved = admin.berth(&["account", "move", "env:civo", "--forget-missing", "--yes"]);
    moved.ok().says_all(&["0 of 2 objects moved", "2 forgotten", &others]);
    admin.apply(&networks(2, "")).ok();
    assert_eq!((live(&other).await.len(), live(&plane.sandbox).await.len()), (2, 2));
    admin.berth(&["account", "move", "env:civo", "--yes"]).ok().says("nothing to move");
    admin.berth(&["account", "move", "nowhere", "--yes"]).exits(1).says("nothing is managed");
    admin.berth(&["audit"]).ok().says("move account");
}

async fn events(plane: &Plane) -> Vec<pb::Event> {
    let request = pb::ListEventsRequest { newest: true, page_size: 1000, ..Default::default() };
    plane.client(0).await.events().list(request).await.unwrap().into_inner().events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repairs_are_held_when_much_is_gone_at_once() {
    let plane = Plane::start(Setup::default()).await;
    let (olga, ben) = (Person::new(&plane, "olga", "operator").await, Person::new(&plane, "ben", "operator").await);
    olga.apply(&networks(8, REPAIR)).ok();
    let gone = ["n0", "n1", "n2", "n3", "n4"];
    delete_outside(&plane.sandbox, &gone).await;
    olga.berth(&["drift"]).exits(2).says("5 of 8 objects of account env:civo seem gone");
    let until = Instant::now() + LONGEST;
    while events(&plane).await.iter().filter(|event| event.what == "repair held").count() < 5 {
        assert!(Instant::now() < until, "{}", plane.told());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(live(&plane.sandbox).await.len(), 3, "nothing is made again by itself");

    // Worked on without a word: the plan waits, and says why.
    let client = plane.client(0).await;
    client.resources().apply(applied(&network("n0", REPAIR))).await.unwrap();
    let waits = |all: &[pb::Resource]| {
        all.iter().any(|r| name(r) == "n0" && r.state == "AwaitingApproval" && r.message.contains("--allow-recreate"))
    };
    plane.until("held", LONGEST, waits).await;
    ben.berth(&["approve", "CivoVpc/n0", "--yes"]).ok().says("approved");
    plane.until("approved", LONGEST, |all| all.iter().all(|r| name(r) != "n0" || r.state == "Ready")).await;
    assert_eq!(live(&plane.sandbox).await.len(), 4);

    std::fs::write(plane.folder.path().join("all.yaml"), networks(8, REPAIR)).unwrap();
    olga.berth(&["plan", "-f", "all.yaml"]).ok().says("4 of 8 objects of account env:civo seem gone");
    olga.berth(&["apply", "-f", "all.yaml", "--yes"]).exits(1).says("--allow-recreate");
    assert_eq!(live(&plane.sandbox).await.len(), 4);
    olga.berth(&["apply", "-f", "all.yaml", "--yes", "--allow-recreate"]).ok();
    assert_eq!(live(&plane.sandbox).await.len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_one_by_one_is_counted_together() {
    let plane = Plane::start(Setup { postgres: true, ..Setup::default() }).await;
    plane.apply(&networks(6, "")).await;
    plane.until_ready().await;
    let client = plane.client(0).await;
    for (n, expected) in ["Ready", "Ready", "Ready", "AwaitingApproval"].into_iter().enumerate() {
        let one = format!("n{n}");
        delete_outside(&plane.sandbox, &[&one]).await;
        client.resources().apply(applied(&network(&one, ""))).await.unwrap();
        let settled = |r: &pb::Resource| name(r) == one && r.state == expected;
        plane.until("settled", LONGEST, |all| all.iter().any(settled)).await;
    }
    assert_eq!(live(&plane.sandbox).await.len(), 5, "{}", plane.told());
}
