//! What an org, an env or an Account of one's own does not give: others' objects by their ids, addresses inside, a controller for
//! oneself.

use crate::call::{Answer, Protocol};
use crate::hostile::{Leased, Worker, account, apply, network, unit};
use crate::setup::Server;
use berth_model::ResourceId;
use berth_server::access::Role;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

async fn applied(server: &Server, token: &str, text: &str) -> Answer {
    let request = json!({"files": [{"name": "all.yaml", "text": text}]});
    server.call(Protocol::Rest, "Resources.Apply", &request, Some(token)).await.unwrap()
}

async fn token(server: &Server, name: &str, role: Role, org: &str, env: &str) -> String {
    server.make(name, role, org, env, 3600).await.0
}

async fn state_of(server: &Server, id: &ResourceId) -> (String, String) {
    let stored = server.control().store().resource(id).await.unwrap().expect("it is stored");
    (stored.status.state.to_string(), stored.status.message)
}

async fn until_state(server: &Server, id: &ResourceId, state: &str) -> String {
    let end = Instant::now() + SOON;
    loop {
        let (found, message) = state_of(server, id).await;
        if found == state {
            return message;
        }
        assert!(Instant::now() < end, "{id} is {found}: {message}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn id(kind: &str, name: &str, org: &str, env: &str) -> ResourceId {
    ResourceId { org: org.into(), env: env.into(), ..ResourceId::new(kind, name) }
}

/// A plan that makes one object, as an honest worker hands it in.
fn plan(leased: &Leased, key: &str, kind: &str, changes: Value) -> Value {
    let units = json!([{"key": key, "unit_type": kind, "op": "create", "changes": changes}]);
    json!({"resources": [{"id": leased.context["resource"], "action": "create", "units": units}]})
}

/// As an honest worker would: the network of that name is made, and is this object.
async fn make_network(worker: &Worker<'_>, name: &str, object: &str) {
    let leased = worker.lease_until(|leased| leased.is_about("CivoVpc", name)).await;
    worker.submit(&leased.held, &plan(&leased, "network", "civo.network", json!([]))).await.unwrap();
    let own = |more: Value| {
        let mut row = unit(json!({"account": "shop//civo"}));
        row.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        row
    };
    let intent = json!({"intent": {"op": "create", "what": "a network", "unit": own(json!({}))}});
    let entry = worker.record(&leased, intent).await.unwrap()["entry"].clone();
    let made = own(json!({"objectId": object, "ready": true}));
    worker.record(&leased, json!({"close": {"entry": entry, "outcome": "done", "unit": made}})).await.unwrap();
    let outputs = json!({"network_id": object}).to_string();
    let generation = leased.context["generation"].as_i64().unwrap().to_string();
    let status = json!({"state": "Ready", "outputs": outputs, "observedGeneration": generation});
    worker.record(&leased, json!({ "status": status })).await.unwrap();
    worker.report(&leased.held, "done", &Value::Null).await.unwrap();
}

fn firewall(name: &str, env: &str, network: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {{name: {name}, org: shop, env: {env}}}\n\
         spec: {{name: {name}, networkId: {{value: {network}}}, account: civo}}\n"
    )
}

#[tokio::test]
async fn a_plain_id_is_under_the_scope_and_approval_of_what_it_is() {
    let server = Server::start().await;
    let environment = "---\napiVersion: berth.dev/v1\nkind: Environment\nmetadata: {name: prod, org: shop}\nspec: {protected: true}\n";
    let account = account("civo", "shop", "", "shop-cloud-token-0123456789", "");
    let quiet = network("quiet", "shop", "prod", "civo");
    apply(&server, [account, quiet].concat()).await;
    let worker = Worker::new(&server, "").await;
    let own = worker.lease_until(|leased| leased.is_about("Account", "civo")).await;
    worker.make_ready(&own).await;
    make_network(&worker, "quiet", "9d1f0000-prod").await;
    apply(&server, environment.into()).await;

    // By its id, and without a word of what it is.
    let dev = token(&server, "dev", Role::Operator, "shop", "dev").await;
    let text = firewall("door", "dev", "9d1f0000-prod");
    for method in ["Resources.Apply", "Resources.Plan"] {
        let request = json!({"files": [{"name": "all.yaml", "text": text}]});
        let answer = server.call(Protocol::Rest, method, &request, Some(&dev)).await.unwrap();
        assert_eq!(answer.code, "invalid-manifest", "{method}: {answer:?}");
        assert!(answer.body.contains("spec.networkId") && !answer.body.contains("quiet"), "{method}: {answer:?}");
    }
    assert!(server.control().store().resource(&id("CivoFirewall", "door", "shop", "dev")).await.unwrap().is_none());

    // Whoever may change both may use it, and waits for approval as prod does, by somebody who may change both.
    let both = token(&server, "both", Role::Operator, "shop", "").await;
    assert_eq!(applied(&server, &both, &text).await.code, "ok");
    let door = id("CivoFirewall", "door", "shop", "dev");
    let leased = worker.lease_until(|leased| leased.is_about("CivoFirewall", "door")).await;
    let handed = plan(&leased, "firewall", "civo.firewall", json!([]));
    assert_ne!(worker.submit(&leased.held, &handed).await.unwrap()["proceed"], true);
    until_state(&server, &door, "AwaitingApproval").await;
    let digest = server.control().meta(std::slice::from_ref(&door)).await.unwrap().remove(0).plan_digest;
    let approve = json!({"kind": "CivoFirewall", "name": "door", "org": "shop", "env": "dev", "digest": digest});
    let answer = server.call(Protocol::Rest, "Resources.Approve", &approve, Some(&dev)).await.unwrap();
    assert_eq!(answer.code, "denied", "{answer:?}");
    let other = token(&server, "other", Role::Operator, "shop", "").await;
    let answer = server.call(Protocol::Rest, "Resources.Approve", &approve, Some(&other)).await.unwrap();
    assert_eq!(answer.code, "ok", "{answer:?}");
    // It stays while it is used.
    let delete = json!({"kind": "CivoVpc", "name": "quiet", "org": "shop", "env": "prod"});
    let answer = server.call(Protocol::Rest, "Resources.Delete", &delete, Some(&other)).await.unwrap();
    assert_eq!(answer.code, "refused", "{answer:?}");

    // An id that became another's after it was applied, or that a name leads to: the gate sees it in the plan.
    assert_eq!(applied(&server, &dev, &firewall("window", "dev", "by-some-name")).await.code, "ok");
    let leased = worker.lease_until(|leased| leased.is_about("CivoFirewall", "window")).await;
    let changes = json!([{"field": "network_id", "from": null, "to": "9d1f0000-prod", "takes": "in_place"}]);
    let handed = plan(&leased, "firewall", "civo.firewall", changes);
    assert_ne!(worker.submit(&leased.held, &handed).await.unwrap()["proceed"], true);
    let message = until_state(&server, &id("CivoFirewall", "window", "shop", "dev"), "Blocked").await;
    assert!(message.contains("another org or env") && !message.contains("quiet"), "{message}");
    server.stop().await;
}

/// Clouds may take a UUID in any spelling: each is the same object.
#[tokio::test]
async fn another_spelling_of_an_id_is_no_other_object() {
    const OBJECT: &str = "9d1f00aa-0000-4000-8000-0000000000ab";
    let server = Server::start().await;
    let account = account("civo", "shop", "", "shop-cloud-token-0123456789", "");
    apply(&server, [account, network("quiet", "shop", "prod", "civo")].concat()).await;
    let worker = Worker::new(&server, "").await;
    let own = worker.lease_until(|leased| leased.is_about("Account", "civo")).await;
    worker.make_ready(&own).await;
    make_network(&worker, "quiet", OBJECT).await;
    let dev = token(&server, "dev", Role::Operator, "shop", "dev").await;
    let (upper, bare) = (OBJECT.to_uppercase(), OBJECT.replace('-', ""));
    let braced = format!("'{{{OBJECT}}}'");
    for spelling in
        [&upper, &bare, &braced, &format!("' {OBJECT}'"), &format!("'{OBJECT} '"), &format!("urn:uuid:{OBJECT}")]
    {
        let answer = applied(&server, &dev, &firewall("door", "dev", spelling)).await;
        assert_eq!(answer.code, "invalid-manifest", "{spelling}: {answer:?}");
        assert!(answer.body.contains("spec.networkId"), "{spelling}: {answer:?}");
        let import = json!({"provider": "civo", "kind": "CivoVpc", "name": "mine", "org": "shop", "env": "dev",
                            "account": "civo", "objectId": spelling.trim_matches('\'')});
        let answer = server.call(Protocol::Rest, "Resources.Import", &import, Some(&dev)).await.unwrap();
        assert!(answer.code == "refused" && answer.message.contains("managed already"), "{spelling}: {answer:?}");
    }
    assert_eq!(applied(&server, &dev, &firewall("window", "dev", "by-some-name")).await.code, "ok");
    let leased = worker.lease_until(|leased| leased.is_about("CivoFirewall", "window")).await;
    let changes = json!([{"field": "network_id", "from": null, "to": upper, "takes": "in_place"}]);
    let handed = plan(&leased, "firewall", "civo.firewall", changes);
    assert_ne!(worker.submit(&leased.held, &handed).await.unwrap()["proceed"], true);
    until_state(&server, &id("CivoFirewall", "window", "shop", "dev"), "Blocked").await;
    server.stop().await;
}

/// An account that several envs share has objects in what is others': the rest is taken, and what is not is told.
#[tokio::test]
async fn an_import_of_all_leaves_out_what_lies_in_others_objects() {
    let server = std::sync::Arc::new(Server::start().await);
    let account = account("civo", "shop", "", "shop-cloud-token-0123456789", "");
    apply(&server, [account, network("quiet", "shop", "prod", "civo")].concat()).await;
    let worker = Worker::new(&server, "").await;
    let own = worker.lease_until(|leased| leased.is_about("Account", "civo")).await;
    worker.make_ready(&own).await;
    make_network(&worker, "quiet", "net-of-prod").await;
    let dev = token(&server, "dev", Role::Operator, "shop", "dev").await;
    let request = json!({"provider": "civo", "org": "shop", "env": "dev", "account": "civo"});
    let url = format!("{}/v1/imports", server.running.url());
    let sent = server.http.post(url).bearer_auth(dev).json(&request).send();
    let asked = tokio::spawn(async move { sent.await.unwrap().json::<Value>().await.unwrap() });
    let leased = worker.lease_until(|leased| leased.op == "import").await;
    let spec = json!({"name": "door", "networkId": {"value": "net-of-prod"}, "region": "fra1"});
    let links = json!([["networkId", "CivoVpc", "net-of-prod"]]);
    let door = json!({"kind": "CivoFirewall", "name": "door", "object_name": "door", "spec": spec,
                      "units": {"firewall": "f-1"}, "links": links});
    let free = json!({"kind": "CivoVpc", "name": "free", "object_name": "free", "units": {"network": "n-1"}, "links": [],
                      "spec": {"networkName": "free", "region": "fra1"}});
    worker.report(&leased.held, "done", &json!({"raised": [door, free], "calls": 1})).await.unwrap();
    let leased = worker.lease_until(|leased| leased.op == "plan").await;
    let own = json!({"kind": "CivoVpc", "name": "free", "org": "shop", "env": "dev"});
    let same = json!({"resources": [{"id": own, "action": "unchanged", "units": []}]});
    worker.report(&leased.held, "done", &json!({"plan": same, "troubles": [], "calls": 1})).await.unwrap();
    let answer = asked.await.unwrap();
    assert_eq!(answer["resources"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(
        (&answer["resources"][0]["id"]["name"], &answer["leftOut"][0]["objectId"]),
        (&json!("free"), &json!("f-1"))
    );
    assert!(answer["leftOut"][0]["reason"].as_str().unwrap().starts_with("spec.networkId"), "{answer}");
    assert!(!answer.to_string().contains("quiet"), "{answer}");
    assert!(server.control().store().resource(&id("CivoFirewall", "door", "shop", "dev")).await.unwrap().is_none());
}

/// Where orgs and envs are named beside `metadata`, they are named by the same rules: a name that only looks like one's own
/// would be taken for it.
#[tokio::test]
async fn scopes_are_named_as_orgs_and_envs_are() {
    let server = Server::start().await;
    let admin = token(&server, "admin", Role::Admin, "", "").await;
    let policy = |env: &str| {
        format!(
            "apiVersion: berth.dev/v1\nkind: Policy\nmetadata: {{name: p, org: shop}}\n\
             spec: {{rule: \"true\", effect: deny, message: no, envs: [\"{env}\"]}}\n"
        )
    };
    for odd in ["Shop", "shop ", "\u{455}hop", "sh/op", "sh.op", "-shop", "*", "sh\u{200b}op", &"s".repeat(64)] {
        let more = format!(", allowedOrgs: [\"{odd}\"]");
        let text = account("platform", "", "", "shared-cloud-token-0123456789", &more);
        assert_eq!(applied(&server, &admin, &text).await.code, "invalid-manifest", "{odd:?}");
        assert_eq!(applied(&server, &admin, &policy(odd)).await.code, "invalid-manifest", "{odd:?}");
        for scope in [json!({"org": odd}), json!({"org": "shop", "env": odd})] {
            let mut request = json!({"name": "ci", "role": "viewer"});
            request.as_object_mut().unwrap().extend(scope.as_object().cloned().unwrap());
            let answer = server.call(Protocol::Rest, "Access.CreateToken", &request, Some(&admin)).await.unwrap();
            assert_eq!(answer.code, "invalid-argument", "{odd:?}: {answer:?}");
        }
    }
    assert_eq!(applied(&server, &admin, &policy("prod")).await.code, "ok");

    // What is stored under an older name can be reached by whom it is given to.
    apply(&server, network("old", "shop", "dev", "civo").replace(", account: civo", "")).await;
    let path = server.folder.path().join("server/state.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).busy_timeout(SOON);
    let mut raw = <sqlx::SqliteConnection as sqlx::Connection>::connect_with(&options).await.unwrap();
    sqlx::query("UPDATE resources SET org = 'Shop' WHERE name = 'old'").execute(&mut raw).await.unwrap();
    let request = json!({"name": "old", "role": "viewer", "org": "Shop"});
    let answer = server.call(Protocol::Rest, "Access.CreateToken", &request, Some(&admin)).await.unwrap();
    assert_eq!(answer.code, "ok", "{answer:?}");
    server.stop().await;
}

fn account_at(url: &str) -> String {
    format!(
        "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: inside, org: shop}}\n\
         spec:\n  provider: civo\n  civo:\n    token: {{value: shop-cloud-token}}\n    apiUrl: \"{url}\"\n"
    )
}

#[tokio::test]
async fn an_account_names_no_address_that_the_server_does_not_allow() {
    let allowed = "https://civo.internal.example:8443";
    let server = Server::with(|config| {
        config.allow_api_urls = vec![allowed.into(), "http://127.0.0.1:9".into(), "http://localhost:9".into()];
    })
    .await;
    let admin = token(&server, "admin", Role::Admin, "shop", "").await;
    for url in [
        "http://127.0.0.1:9",
        "http://localhost:9",
        "http://2130706433:9",
        "http://[::1]:9",
        "http://[::ffff:127.0.0.1]:9",
        "http://169.254.169.254",
        "http://[fe80::1]",
        "http://0.0.0.0:9",
    ] {
        let answer = applied(&server, &admin, &account_at(url)).await;
        assert_eq!(answer.code, "invalid-manifest", "{url}: {answer:?}");
        assert!(answer.body.contains("spec.civo.apiUrl") && answer.body.contains("which no Account may name"), "{url}");
    }
    for url in [
        "https://evil.example",
        "http://10.0.0.7",
        "http://civo.internal.example:8443",
        "https://civo.internal.example",
    ] {
        let answer = applied(&server, &admin, &account_at(url)).await;
        assert_eq!(answer.code, "invalid-manifest", "{url}: {answer:?}");
        assert!(answer.body.contains(&format!("--allow-api-url {url}")), "{url}: {answer:?}");
    }
    for url in ["https://api.civo.com", "https://api.civo.com/", allowed] {
        assert_eq!(applied(&server, &admin, &account_at(url)).await.code, "ok", "{url}");
    }
    server.stop().await;
}

/// One that is stored from before there was a list goes nowhere either.
#[tokio::test]
async fn a_stored_account_with_another_address_gets_no_token() {
    let server = Server::start().await;
    apply(&server, account("inside", "shop", "", "shop-cloud-token", "")).await;
    let path = server.folder.path().join("server/state.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).busy_timeout(SOON);
    let mut raw = <sqlx::SqliteConnection as sqlx::Connection>::connect_with(&options).await.unwrap();
    let put = "UPDATE resources SET manifest = json_set(manifest, '$.spec.civo.apiUrl', 'http://127.0.0.1:9')";
    assert_eq!(sqlx::query(put).execute(&mut raw).await.unwrap().rows_affected(), 1);
    let worker = Worker::new(&server, "shop").await;
    let inside = id("Account", "inside", "shop", "");
    let end = Instant::now() + SOON;
    while state_of(&server, &inside).await.0 != "Failed" {
        assert!(worker.lease().await.is_empty(), "nothing is handed out");
        assert!(Instant::now() < end);
    }
    assert!(state_of(&server, &inside).await.1.contains("which no Account may name"));
    server.stop().await;
}

/// Neither the rounds of the controller nor the ends of leases wait for what cannot be decrypted.
#[tokio::test]
async fn an_unreadable_account_is_its_own_failure() {
    let server = Server::with(|config| config.lease = Duration::from_secs(2)).await;
    let text = [
        account("civo", "acme", "prod", "acme-cloud-token", ""),
        account("civo", "shop", "dev", "shop-cloud-token", ""),
    ];
    apply(&server, text.concat()).await;
    let worker = Worker::new(&server, "").await;
    let shop = worker.lease_until(|leased| leased.context["resource"]["org"] == "shop").await;
    worker.make_ready(&shop).await;
    let path = server.folder.path().join("server/state.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).busy_timeout(SOON);
    let mut raw = <sqlx::SqliteConnection as sqlx::Connection>::connect_with(&options).await.unwrap();
    // A sealed value of another row's does not open here.
    let damage = "UPDATE resources SET manifest = json_set(manifest, '$.spec.civo.token.value', \
                  (SELECT json_extract(o.manifest, '$.spec.civo.token.value') FROM resources o WHERE o.org = 'shop' AND o.kind = 'Account')), \
                  state = 'Ready', observed_generation = generation WHERE org = 'acme'";
    assert_eq!(sqlx::query(damage).execute(&mut raw).await.unwrap().rows_affected(), 1);
    let text = [
        network("treasure", "acme", "prod", "civo"),
        network("net", "shop", "dev", "civo"),
        network("other", "shop", "dev", "civo"),
    ];
    apply(&server, text.concat()).await;

    // Acme's fails with the reason; shop's comes, and comes again when its lease ended.
    let first = worker.lease_until(|leased| leased.is_about("CivoVpc", "net")).await;
    let message = until_state(&server, &id("CivoVpc", "treasure", "acme", "prod"), "Failed").await;
    assert!(message.contains("cannot be decrypted"), "{message}");
    let again = worker.lease_until(|leased| leased.is_about("CivoVpc", "net")).await;
    assert_eq!(first.held["task"], again.held["task"]);
    assert_ne!(first.held["fence"], again.held["fence"]);
    let url = format!("{}/readyz", server.running.url());
    assert_eq!(server.http.get(url).send().await.unwrap().status(), 200);
    // Others apply and plan as before.
    let operator = token(&server, "op", Role::Operator, "shop", "dev").await;
    assert_eq!(applied(&server, &operator, &network("third", "shop", "dev", "civo")).await.code, "ok");
    server.stop().await;
}
