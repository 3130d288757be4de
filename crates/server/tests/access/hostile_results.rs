//! What a hostile worker answers when it is asked for something: drift, plans, imports.

use crate::call::Protocol;
use crate::hostile::{Worker, account, apply, deep, footprint, is_refusal, network_of, two_orgs, with_network};
use crate::setup::Server;
use berth_model::ResourceId;
use berth_server::access::Role;
use serde_json::{Value, json};
use std::sync::Arc;

fn id(kind: &str, name: &str, org: &str, env: &str) -> Value {
    json!({"kind": kind, "name": name, "org": org, "env": env})
}

/// Someone in org shop asks for something; the answer comes from the worker.
async fn asks(server: &Arc<Server>, method: &'static str, request: Value) -> tokio::task::JoinHandle<(u16, Value)> {
    let (operator, _) = server.make(&format!("op-{}", uuid::Uuid::now_v7()), Role::Operator, "shop", "dev", 3600).await;
    let url = format!("{}/v1/{method}", server.running.url());
    let sent = server.http.post(url).bearer_auth(operator).json(&request).send();
    tokio::spawn(async move {
        let answer = sent.await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    })
}

#[tokio::test]
async fn an_import_brings_what_was_asked_for_and_nothing_else() {
    let server = Arc::new(two_orgs().await);
    let (worker, _) = with_network(&server).await;
    let before = footprint(server.control()).await;
    let raised = |kind: &str, spec: Value| json!({"kind": kind, "name": "x", "spec": spec, "units": {"network": "n"}, "links": []});
    let vpc = |change: Value| {
        let mut spec = json!({"networkName": "x", "region": "fra1"});
        spec.as_object_mut().unwrap().extend(change.as_object().cloned().unwrap());
        raised("CivoVpc", spec)
    };
    let policy = json!({"kind": "Policy", "name": "open", "spec": {"rules": []}, "units": {}, "links": []});
    for (what, kind, rows) in [
        ("a Policy", "", json!([policy])),
        ("an Environment", "", json!([raised("Environment", json!({}))])),
        ("an Account", "", json!([raised("Account", json!({"provider": "civo"}))])),
        ("a kind of another cloud", "", json!([raised("DigitalOceanVpc", json!({"region": "fra1"}))])),
        ("no kind", "", json!([raised("Nothing", json!({}))])),
        ("another account", "", json!([vpc(json!({"account": "civo-main"}))])),
        ("another account by its older name", "", json!([vpc(json!({"civoCredentialId": "civo-main"}))])),
        ("a reference", "", json!([vpc(json!({"description": {"valueFrom": {"name": "net"}}}))])),
        ("another account by another spelling", "", json!([vpc(json!({"civo_credential_id": "civo-main"}))])),
        ("a reference by another spelling", "", json!([vpc(json!({"description": {"value_from": {"name": "net"}}}))])),
        ("a spec that has no end", "", json!([vpc(json!({"description": deep(40)}))])),
        ("a Policy in place of a network", "CivoVpc", json!([policy])),
        ("another kind", "CivoVpc", json!([raised("CivoFirewall", json!({}))])),
        ("another object", "CivoVpc", json!([vpc(json!({}))])),
        ("more than was asked for", "CivoVpc", json!([vpc(json!({})), vpc(json!({}))])),
        ("not a result", "", json!(7)),
    ] {
        let one = if kind.is_empty() { json!({}) } else { json!({"kind": kind, "name": "taken", "objectId": "asked"}) };
        let mut request = json!({"provider": "civo", "org": "shop", "env": "dev", "account": "civo"});
        request.as_object_mut().unwrap().extend(one.as_object().cloned().unwrap());
        let asked = asks(&server, "imports", request).await;
        let leased = worker.lease_until(|leased| leased.op == "import").await;
        let fault = worker.report(&leased.held, "done", &json!({"raised": rows, "calls": 1})).await.expect_err(what);
        assert!(is_refusal(&fault), "{what}: {fault}");
        worker.report(&leased.held, "failed", &Value::Null).await.unwrap();
        let (status, body) = asked.await.unwrap();
        assert_ne!(status, 200, "{what}: {body}");
        assert_eq!(footprint(server.control()).await, before, "{what}");
    }
}

#[tokio::test]
async fn a_check_or_plan_answers_for_what_was_asked() {
    let server = Arc::new(two_orgs().await);
    let (worker, leased) = with_network(&server).await;
    network_of(&worker, &leased, "net-1").await;
    let before = footprint(server.control()).await;
    let treasure = id("CivoVpc", "treasure", "acme", "prod");
    let net = id("CivoVpc", "net", "shop", "dev");

    let asked = asks(&server, "drift", json!({"ids": [net]})).await;
    let drift = worker.lease_until(|leased| leased.op == "drift").await;
    let difference = json!({"unit": "network", "field": "label", "declared": "a", "found": "b", "unit_type": "civo.network",
                            "apply": "", "refused": false});
    let row = |id: &Value| json!({"id": id, "generation": 1});
    let drifted = |id: &Value| json!({"id": id, "generation": 1, "differences": [difference]});
    let trouble = |id: &Value| json!({"id": id, "message": "x", "help": []});
    for (what, checked, found, troubles) in [
        ("checked", json!([row(&treasure)]), json!([]), json!([])),
        ("drifted", json!([row(&net)]), json!([drifted(&treasure)]), json!([])),
        ("troubled", json!([row(&net)]), json!([]), json!([trouble(&treasure)])),
    ] {
        let result = json!({"checked": checked, "drifted": found, "troubles": troubles, "calls": 0});
        let fault = worker.report(&drift.held, "done", &result).await.expect_err(what);
        assert!(is_refusal(&fault), "{what}: {fault}");
    }
    // A check that was not asked to write anything down writes nothing, whatever it saw.
    for write in [
        json!({"saveUnit": {"key": "network", "token": "t1", "unitType": "civo.network", "scope": "fra1",
                            "account": "shop/dev/civo", "objectId": "net-1", "props": "{}", "outputs": "{}"}}),
        json!({"forgetUnit": {"key": "network", "token": "t1"}}),
        json!({"status": {"state": "Ready", "observedGeneration": "1"}}),
        json!({"status": {"state": "Failed", "observedGeneration": "1"}}),
        json!({"event": {"what": "refreshed"}}),
        json!({"forgetResource": true}),
    ] {
        let fault = worker.record_of(&drift.held, &net, write.clone()).await.expect_err("a check");
        assert!(is_refusal(&fault), "{write}: {fault}");
    }
    assert_eq!(footprint(server.control()).await, before);
    worker.report(&drift.held, "failed", &Value::Null).await.unwrap();
    assert_ne!(asked.await.unwrap().0, 200);

    let text = "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: new, org: shop, env: dev}\n\
                spec: {networkName: new, region: fra1, account: civo}\n";
    let asked = asks(&server, "plans", json!({"files": [{"name": "a.yaml", "text": text}]})).await;
    let plan = worker.lease_until(|leased| leased.op == "plan").await;
    assert!(plan.credentials.contains("shop-cloud-token"));
    let about = |id: &Value| json!({"plan": {"resources": [{"id": id, "action": "delete", "units": []}]}, "troubles": [], "calls": 0});
    for result in [
        about(&treasure),
        about(&net),
        json!({"plan": {"resources": []}, "troubles": [trouble(&treasure)], "calls": 0}),
    ] {
        let fault = worker.report(&plan.held, "done", &result).await.expect_err("another's plan");
        assert!(is_refusal(&fault), "{fault}");
    }
    assert!(is_refusal(&worker.submit(&plan.held, &json!({"resources": []})).await.expect_err("a plan is no change")));
    worker.report(&plan.held, "failed", &Value::Null).await.unwrap();
    assert_ne!(asked.await.unwrap().0, 200);
    assert_eq!(footprint(server.control()).await, before);
}

/// An Account without an org is for nobody's resources but those without one, unless it says so; and for no confined worker.
#[tokio::test]
async fn an_account_without_org_serves_whom_it_names_and_no_confined_worker() {
    let server = Server::start().await;
    let shared = |more: &str| account("platform", "", "", "shared-cloud-token-0123456789", more);
    let net = "---\napiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net, org: shop, env: dev}\n\
               spec: {networkName: net, region: fra1, account: platform}\n";
    apply(&server, shared("")).await;
    let (admin, _) = server.make("shop-admin", Role::Admin, "shop", "", 3600).await;
    let request = json!({"files": [{"name": "a.yaml", "text": net}]});
    let answer = server.call(Protocol::Rest, "Resources.Apply", &request, Some(&admin)).await.unwrap();
    assert_eq!(answer.code, "invalid-manifest", "{answer:?}");
    assert!(answer.body.contains("is not for org shop") && answer.body.contains("allowedOrgs"), "{answer:?}");

    apply(&server, shared(", allowedOrgs: [bank, shop]")).await;
    let answer = server.call(Protocol::Rest, "Resources.Apply", &request, Some(&admin)).await.unwrap();
    assert_eq!(answer.code, "ok", "{answer:?}");
    let everywhere = Worker::new(&server, "").await;
    let own = everywhere.lease_until(|leased| leased.is_about("Account", "platform")).await;
    everywhere.make_ready(&own).await;
    let confined = Worker::new(&server, "shop").await;
    let wanted = ResourceId { org: "shop".into(), env: "dev".into(), ..ResourceId::new("CivoVpc", "net") };
    let query = berth_store::TaskQuery { name: Some(wanted.name.clone()), open: true, limit: 9, ..Default::default() };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while server.control().tasks(&query).await.unwrap().is_empty() {
        assert!(std::time::Instant::now() < end);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(confined.lease().await.is_empty(), "its org's task, and not its org's account");
    let task = everywhere.lease_until(|leased| leased.is_about("CivoVpc", "net")).await;
    assert!(task.credentials.contains("shared-cloud-token"));
    everywhere.report(&task.held, "failed", &Value::Null).await.unwrap();

    // Taken back: what is stored already gets nothing any more.
    apply(&server, shared(", allowedOrgs: [bank]")).await;
    let again = everywhere.lease_until(|leased| leased.is_about("Account", "platform")).await;
    everywhere.make_ready(&again).await;
    while server.control().store().resource(&wanted).await.unwrap().unwrap().status.message
        != "Account/platform is not for org shop"
    {
        assert!(std::time::Instant::now() < end);
        for leased in everywhere.lease().await {
            assert!(!leased.is_about("CivoVpc", "net"), "{}", leased.context);
        }
    }
    server.stop().await;
}
