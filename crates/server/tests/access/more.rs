//! What the table does not tell: revocation, limits, what lands in the audit log, and workers' certificates.

use crate::call::Protocol;
use crate::setup::{Fixture, Reach, Server, Who};
use berth_server::access::Role;
use berth_server::client::Connection;
use berth_server::pb;
use berth_store::AuditQuery;
use secrecy::SecretString;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn audited(server: &Server) -> impl Future<Output = Vec<berth_store::AuditEntry>> {
    let control = server.control().clone();
    async move { control.audit_entries(&AuditQuery { limit: 1000, ..AuditQuery::default() }).await.unwrap() }
}

#[tokio::test]
async fn a_token_is_made_used_and_revoked() {
    let server = Server::start().await;
    let admin = std::fs::read_to_string(server.running.first_token.as_ref().unwrap()).unwrap().trim().to_owned();
    let ask = json!({"name": "ci", "role": "operator", "org": "shop", "expiresInSeconds": 3600});
    let made = server.call(Protocol::Rest, "Access.CreateToken", &ask, Some(&admin)).await.unwrap();
    let made: Value = serde_json::from_str(&made.body).unwrap();
    let (secret, id) = (made["secret"].as_str().unwrap().to_owned(), made["token"]["id"].as_str().unwrap().to_owned());
    let me = server.call(Protocol::Rest, "Access.WhoAmI", &json!({}), Some(&secret)).await.unwrap();
    let me: Value = serde_json::from_str(&me.body).unwrap();
    assert_eq!((&me["token"]["name"], &me["token"]["org"]), (&json!("ci"), &json!("shop")));
    server.call(Protocol::Grpc, "Access.RevokeToken", &json!({"id": id}), Some(&admin)).await.unwrap();
    let after = server.call(Protocol::Grpc, "Access.WhoAmI", &json!({}), Some(&secret)).await.unwrap();
    assert_eq!(after.code, "unauthenticated", "a revocation holds at once on the server that made it");
    // Only the hash is kept.
    let state = std::fs::read(server.folder.path().join("server/state.db")).unwrap();
    for token in [&secret, &admin] {
        assert!(!state.windows(token.len()).any(|part| part == token.as_bytes()), "a token is in the database");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_revocation_by_another_server_holds_almost_at_once() {
    let server = Server::start().await;
    let (secret, row) = server.make("ci", Role::Viewer, "", "", 3600).await;
    let nothing = json!({});
    let who = || server.call(Protocol::Grpc, "Access.WhoAmI", &nothing, Some(&secret));
    assert_eq!(who().await.unwrap().code, "ok");
    let actor = berth_store::Actor::new("another server");
    let note = berth_store::AuditNote::default();
    server.control().revoke_token(&row.id, &actor, note, jiff::Timestamp::now()).await.unwrap();
    let began = Instant::now();
    while who().await.unwrap().code == "ok" {
        assert!(began.elapsed() < Duration::from_secs(2), "it still held after two seconds");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn no_token_reaches_further_than_the_one_that_made_it() {
    let server = Server::start().await;
    let (admin, _) = server.make("shop-admin", Role::Admin, "shop", "", 3600).await;
    let ask = |org: &str, env: &str, role: &str, seconds: i64| json!({"name": "x", "role": role, "org": org, "env": env, "expiresInSeconds": seconds});
    for (request, code) in [
        (ask("shop", "", "admin", 60), "ok"),
        (ask("shop", "dev", "operator", 60), "ok"),
        (ask("shop", "", "worker", 60), "ok"),
        (ask("", "", "viewer", 60), "denied"),
        (ask("bank", "", "viewer", 60), "denied"),
        (ask("", "dev", "viewer", 60), "denied"),
        (ask("shop", "", "root", 60), "invalid-argument"),
        (ask("shop", "dev", "worker", 60), "invalid-argument"),
        (ask("shop", "", "viewer", -1), "invalid-argument"),
        (ask("shop", "", "viewer", 367 * 24 * 3600), "invalid-argument"),
        (json!({"name": "oidc:alice@example.com", "role": "viewer", "org": "shop"}), "invalid-argument"),
        (json!({"name": "", "role": "viewer", "org": "shop"}), "invalid-argument"),
    ] {
        let answer = server.call(Protocol::Rest, "Access.CreateToken", &request, Some(&admin)).await.unwrap();
        assert_eq!(answer.code, code, "{request}: {answer:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn only_admins_write_what_decides_about_others() {
    let server = Server::start().await;
    let text = "apiVersion: berth.dev/v1\nkind: Environment\nmetadata: {name: dev, org: shop, env: dev}\nspec: {protected: true}\n";
    let request = json!({"files": [{"name": "e.yaml", "text": text}]});
    for (role, code) in [(Role::Operator, "denied"), (Role::Admin, "ok")] {
        let token = server.token(Who::Has(role, Reach::Here), false).await.unwrap();
        let answer = server.call(Protocol::Grpc, "Resources.Apply", &request, Some(&token)).await.unwrap();
        assert_eq!(answer.code, code, "{role:?}: {answer:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_keeps_a_resource_is_named_to_those_who_may_see_it() {
    let server = Server::start().await;
    let text = "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: held, org: shop, env: dev}\n\
         spec: {networkName: held, region: fra1}\n---\n\
         apiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {name: holder, org: shop, env: prod}\n\
         spec: {name: holder, networkId: {valueFrom: {kind: CivoVpc, name: held, env: dev}}}\n";
    let request = json!({"files": [{"name": "a.yaml", "text": text}]});
    let id = json!({"kind": "CivoVpc", "name": "held", "org": "shop", "env": "dev"});
    let admin = server.token(Who::Has(Role::Admin, Reach::All), false).await.unwrap();
    let answer = server.call(Protocol::Grpc, "Resources.Apply", &request, Some(&admin)).await.unwrap();
    assert_eq!(answer.code, "ok", "{answer:?}");
    let here = server.token(Who::Has(Role::Operator, Reach::Here), false).await.unwrap();
    for (token, code, named) in [(&admin, "refused", true), (&here, "denied", false)] {
        for (method, ask) in [("Resources.Delete", id.clone()), ("Resources.Apply", json!({"delete": [id]}))] {
            let answer = server.call(Protocol::Grpc, method, &ask, Some(token)).await.unwrap();
            assert_eq!(
                (answer.code.as_str(), answer.message.contains("holder")),
                (code, named),
                "{method}: {answer:?}"
            );
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn an_address_that_guesses_waits_and_those_who_were_let_in_do_not() {
    let server = Server::with(|config| config.limits.failed_attempts = 5).await;
    let (good, _) = server.make("good", Role::Viewer, "", "", 3600).await;
    assert_eq!(server.call(Protocol::Grpc, "Access.WhoAmI", &json!({}), Some(&good)).await.unwrap().code, "ok");
    let mut codes = Vec::new();
    for _ in 0..20 {
        let guess = server.token(Who::Unknown, true).await;
        codes.push(server.call(Protocol::Grpc, "Access.WhoAmI", &json!({}), guess.as_deref()).await.unwrap().code);
    }
    assert_eq!(codes[0], "unauthenticated");
    assert!(codes.iter().any(|code| code == "too-many"), "{codes:?}");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for _ in 0..10 {
        let guess = server.token(Who::Unknown, true).await;
        server.call(Protocol::Grpc, "Access.WhoAmI", &json!({}), guess.as_deref()).await.unwrap();
    }
    assert_eq!(server.call(Protocol::Grpc, "Access.WhoAmI", &json!({}), Some(&good)).await.unwrap().code, "ok");
    server.stop().await;
}

#[tokio::test]
async fn what_is_done_and_what_is_refused_lands_in_the_log() {
    let server = Server::start().await;
    let place = Fixture::fill(&server).await;
    let network = json!({"kind": "CivoVpc", "name": place.network, "org": "shop", "env": "dev"});
    let cluster = json!({"kind": "CivoKubernetesCluster", "name": place.network, "org": "shop", "env": "dev"});
    let [viewer, operator, stranger] = [
        Who::Has(Role::Viewer, Reach::Here),
        Who::Has(Role::Operator, Reach::Here),
        Who::Has(Role::Operator, Reach::OtherOrg),
    ];
    for (who, method, request) in [
        (viewer, "Resources.Delete", &network),
        (stranger, "Resources.Delete", &network),
        (stranger, "Resources.Kubeconfig", &cluster),
        (operator, "Resources.Kubeconfig", &cluster),
        (viewer, "Resources.Outputs", &network),
    ] {
        let token = server.token(who, false).await;
        server.call(Protocol::Rest, method, request, token.as_deref()).await.unwrap();
    }
    server.call(Protocol::Rest, "Resources.Delete", &network, None).await.unwrap();
    let entries = audited(&server).await;
    let found = |actor: &str, action: &str| {
        let found: Vec<(&str, &str)> = entries
            .iter()
            .filter(|entry| entry.actor == actor && entry.action == action)
            .map(|entry| (entry.target.as_str(), entry.outcome.as_str()))
            .collect();
        found
    };
    let target = "CivoVpc/only-in-shop-dev (shop/dev)";
    assert_eq!(found("token:Has-Viewer--Here-", "delete"), [(target, "denied")]);
    assert_eq!(found("token:Has-Operator--OtherOrg-", "delete"), [(target, "denied")]);
    let cluster = "CivoKubernetesCluster/only-in-shop-dev (shop/dev)";
    assert_eq!(found("token:Has-Operator--OtherOrg-", "kubeconfig"), [(cluster, "not-found")]);
    assert_eq!(found("token:Has-Operator--Here-", "kubeconfig"), [(cluster, "refused")]);
    assert!(found("token:Has-Viewer--Here-", "outputs").is_empty(), "no secret was asked for");
    let applied = found("token:applier", "apply");
    assert_eq!(applied.len(), 1, "once, by the store, with the change");
    assert!(applied[0].0.contains(target) && applied[0].1 == "ok", "{applied:?}");
    assert!(entries.iter().all(|entry| !entry.actor.contains("anonymous")), "who is not known writes nothing");
    assert!(server.control().verify_audit().await.unwrap().whole);
    server.stop().await;
}

#[tokio::test]
async fn a_login_without_a_provider_is_refused_and_written_down() {
    let server = Server::start().await;
    let answer =
        server.call(Protocol::Rest, "Access.Login", &json!({"idToken": "hush.hush.hush"}), None).await.unwrap();
    assert_eq!(answer.code, "refused");
    let entries = audited(&server).await;
    let login = entries.iter().find(|entry| entry.action == "login").expect("an entry");
    assert_eq!((login.actor.as_str(), login.outcome.as_str()), ("anonymous:127.0.0.1", "refused"));
    assert!(entries.iter().all(|entry| !format!("{entry:?}").contains("hush")));
    server.stop().await;
}

#[tokio::test]
async fn methods_that_are_not_there_are_not_there_for_anyone() {
    let server = Server::start().await;
    let admin = server.token(Who::Has(Role::Admin, Reach::All), false).await.unwrap();
    for path in ["/berth.api.v1.Resources/Nothing", "/berth.api.v1.Nothing/Get", "/grpc.health.v2.Health/Check"] {
        let sent = server.http.post(format!("{}{path}", server.running.url()));
        let sent = sent.header("content-type", "application/grpc").header("authorization", format!("Bearer {admin}"));
        let response = sent.body(vec![0; 5]).send().await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "12", "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn two_authorization_headers_or_another_scheme_are_no_token() {
    let server = Server::start().await;
    let good = server.token(Who::Has(Role::Admin, Reach::All), false).await.unwrap();
    let url = format!("{}/v1/whoami", server.running.url());
    let two = server.http.get(&url).header("authorization", format!("Bearer {good}"));
    assert_eq!(two.header("authorization", "Bearer x").send().await.unwrap().status(), 401);
    for value in [format!("Basic {good}"), good.clone(), format!("Bearer  x {good}"), format!("Bearer {good}\u{7f}x")] {
        let Ok(value) = reqwest::header::HeaderValue::from_bytes(value.as_bytes()) else { continue };
        assert_eq!(server.http.get(&url).header("authorization", value).send().await.unwrap().status(), 401);
    }
    let lower = server.http.get(&url).header("authorization", format!("bearer {good}"));
    assert_eq!(lower.send().await.unwrap().status(), 200);
    server.stop().await;
}

/// An authority, and a certificate of it with its key, as PEM.
fn authority() -> (String, (Vec<u8>, SecretString)) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let own = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["w1".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&own, &issuer).unwrap().pem();
    (pem, (certificate.into_bytes(), SecretString::from(own.serialize_pem())))
}

#[tokio::test]
async fn workers_show_a_certificate_where_an_authority_is_set() {
    let (ca, identity) = authority();
    let (_, stranger) = authority();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clients.pem");
    std::fs::write(&path, ca).unwrap();
    let server = Server::with(|config| config.client_ca = Some(path)).await;
    let (worker, _) = server.make("w1", Role::Worker, "", "", 3600).await;
    let (viewer, _) = server.make("v", Role::Viewer, "", "", 3600).await;
    let connection = |token: &str, identity: Option<(Vec<u8>, SecretString)>| Connection {
        ca: Some(std::fs::read(server.running.ca.as_ref().unwrap()).unwrap()),
        identity,
        ..Connection::new(server.running.url(), SecretString::from(token.to_owned()))
    };
    let lease = async |connection: Connection| {
        let client = connection.connect().await.map_err(|fault| fault.code.name())?;
        let ask = pb::LeaseRequest {
            protocol: berth_server::worker::PROTOCOL,
            worker: "w1".into(),
            draining: true,
            ..Default::default()
        };
        client.worker().lease(ask).await.map(|_| ()).map_err(|status| client.fault(&status).code.name())
    };
    assert_eq!(lease(connection(&worker, Some(identity.clone()))).await, Ok(()));
    assert_eq!(lease(connection(&worker, None)).await, Err("unauthenticated"), "a token alone is not enough");
    assert_eq!(lease(connection(&viewer, Some(identity))).await, Err("denied"), "a certificate alone is no role");
    assert!(lease(connection(&worker, Some(stranger))).await.is_err(), "another authority's certificate");
    let people = connection(&viewer, None).connect().await.unwrap();
    assert!(people.access().who_am_i(pb::WhoAmIRequest {}).await.is_ok(), "people need none");
    server.stop().await;
}

#[tokio::test]
async fn a_worker_of_one_org_holds_no_task_of_another() {
    let server = Server::start().await;
    let place = Fixture::fill(&server).await;
    let [bank, shop] = [Reach::OtherOrg, Reach::Here].map(|reach| Who::Has(Role::Worker, reach));
    let held = json!({"held": [{"task": place.task, "fence": 1}], "worker": "w"});
    let bank = server.token(bank, false).await.unwrap();
    let answer = server.call(Protocol::Grpc, "WorkerService.Heartbeat", &held, Some(&bank)).await.unwrap();
    assert_eq!(answer.code, "conflict", "{answer:?}");
    let shop = server.token(shop, false).await.unwrap();
    let answer = server.call(Protocol::Grpc, "WorkerService.Heartbeat", &held, Some(&shop)).await.unwrap();
    assert_eq!(answer.code, "ok", "it is not kept, and that is no secret: {answer:?}");
    server.stop().await;
}
