//! People who log in: whom the identity provider says they are, whatever name they show.

use crate::call::Protocol;
use crate::setup::Server;
use axum::Router;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use berth_server::access::oidc::{Oidc, OidcConfig};
use berth_store::{LeaseAsk, PlanDecision, SubmittedPlan};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PublicKeyData};
use serde_json::{Value, json};
use std::time::Duration;

/// An identity provider that signs what it is told to.
struct Provider {
    issuer: String,
    pair: KeyPair,
}

impl Provider {
    async fn start() -> Self {
        let pair = KeyPair::generate().unwrap();
        let point = pair.der_bytes().to_vec();
        let part = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
        let key =
            json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k", "x": part(1), "y": part(33)});
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let issuer = format!("http://{}/realm", listener.local_addr().unwrap());
        let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
        let keys = json!({"keys": [key]}).to_string();
        let app = Router::new()
            .route("/realm/.well-known/openid-configuration", get(move || async move { document }))
            .route("/realm/keys", get(move || async move { keys }));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { issuer, pair }
    }

    fn config(&self, groups_claim: &str, role: &str) -> OidcConfig {
        OidcConfig {
            issuer: self.issuer.clone(),
            client_id: "berth".into(),
            audience: None,
            groups_claim: groups_claim.into(),
            roles: vec![role.parse().unwrap()],
            scopes: Vec::new(),
            ca: None,
        }
    }

    /// An ID token; `more` goes over what everyone has.
    fn token(&self, subject: &str, more: Value) -> String {
        let now = Timestamp::now().as_second();
        let mut claims = json!({
            "iss": self.issuer, "aud": "berth", "sub": subject, "iat": now, "exp": now + 300, "nonce": "n",
            "jti": uuid::Uuid::now_v7().to_string(), "groups": ["staff"],
        });
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let header = Header { kid: Some("k".into()), ..Header::new(Algorithm::ES256) };
        let key = EncodingKey::from_ec_der(&self.pair.serialize_der());
        jsonwebtoken::encode(&header, &claims, &key).unwrap()
    }
}

async fn log_in(server: &Server, id_token: &str) -> (String, Value) {
    let request = json!({"idToken": id_token, "nonce": "n"});
    let answer = server.call(Protocol::Rest, "Access.Login", &request, None).await.unwrap();
    (answer.code.clone(), serde_json::from_str(&answer.body).unwrap_or(json!(answer.message)))
}

fn secret(answer: &(String, Value)) -> String {
    assert_eq!(answer.0, "ok", "{answer:?}");
    answer.1["secret"].as_str().unwrap().to_owned()
}

/// A network whose plan waits for approval, applied by the holder of a token. Its digest is `d`.
async fn waiting(server: &Server, token: &str, name: &str) -> Value {
    let text = format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}}}\nspec: {{networkName: {name}, region: fra1}}\n"
    );
    let request = json!({"files": [{"name": "a.yaml", "text": text}]});
    let answer = server.call(Protocol::Rest, "Resources.Apply", &request, Some(token)).await.unwrap();
    assert_eq!(answer.code, "ok", "{answer:?}");
    let control = server.control();
    for _ in 0..200 {
        let ask = LeaseAsk { worker: "w".into(), changes: 1, lease: Duration::from_secs(30), ..LeaseAsk::default() };
        let leased = control.lease(ask, Timestamp::now()).await.unwrap().pop();
        if let Some(leased) = leased.filter(|leased| leased.task.resource.as_ref().is_some_and(|id| id.name == name)) {
            let decision = PlanDecision::AwaitApproval;
            let plan =
                SubmittedPlan { text: "{\"resources\":[]}".into(), digest: "d".into(), ..SubmittedPlan::default() };
            control.submit_plan(&leased.held, plan, decision, Timestamp::now()).await.unwrap();
            return json!({"kind": "CivoVpc", "name": name, "digest": "d"});
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no task for {name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_makes_nobody_another_and_another_name_nobody_else() {
    let provider = Provider::start().await;
    let config = provider.config("groups", "staff=admin");
    let server = Server::with(|server| server.oidc = Some(config)).await;
    let email = |address: &str| json!({"email": address, "email_verified": true});
    let alice = secret(&log_in(&server, &provider.token("1", email("alice@example.com"))).await);
    let again = secret(&log_in(&server, &provider.token("1", email("bob@example.com"))).await);
    let bob = secret(&log_in(&server, &provider.token("2", email("bob@example.com"))).await);
    let chosen = json!({"preferred_username": "alice@example.com", "email": "alice@example.com"});
    let mallory = secret(&log_in(&server, &provider.token("3", chosen)).await);
    let made = json!({"name": "ci", "role": "admin"});
    let made = server.call(Protocol::Rest, "Access.CreateToken", &made, Some(&alice)).await.unwrap();
    let alices_token = serde_json::from_str::<Value>(&made.body).unwrap()["secret"].as_str().unwrap().to_owned();

    let plan = waiting(&server, &alice, "one").await;
    for (token, code) in [(&again, "denied"), (&alices_token, "denied"), (&alice, "denied"), (&bob, "ok")] {
        for protocol in [Protocol::Rest, Protocol::Grpc] {
            let answer = server.call(protocol, "Resources.Approve", &plan, Some(token)).await.unwrap();
            assert_eq!(answer.code, code, "{answer:?}");
            if code == "ok" {
                break;
            }
            assert!(answer.message.contains("somebody else"), "{answer:?}");
        }
    }
    // By a token of one's own, and approved by oneself.
    let plan = waiting(&server, &alices_token, "two").await;
    let answer = server.call(Protocol::Rest, "Resources.Approve", &plan, Some(&alice)).await.unwrap();
    assert_eq!(answer.code, "denied", "{answer:?}");
    // Whoever chose a colleague's name is somebody else, and looks it.
    let answer = server.call(Protocol::Rest, "Resources.Approve", &plan, Some(&mallory)).await.unwrap();
    assert_eq!(answer.code, "ok", "{answer:?}");
    let answer = server.call(Protocol::Rest, "Access.Audit", &json!({}), Some(&alice)).await.unwrap();
    let audit: Value = serde_json::from_str(&answer.body).unwrap();
    let entry = |action: &str| audit["entries"].as_array().unwrap().iter().find(|entry| entry["action"] == action);
    let approved = entry("approve").unwrap();
    assert_eq!(approved["actor"], "oidc:alice@example.com#3");
    assert_eq!(approved["actorId"], format!("{}#3", provider.issuer));
    let created = entry("create token").unwrap();
    assert_eq!(created["actorId"], format!("{}#1", provider.issuer));
    let apply = entry("apply").unwrap();
    assert_eq!(apply["actor"], "token:ci");
    assert!(apply["actorId"].as_str().unwrap().starts_with("token:0"), "{apply}");
    server.stop().await;
}

/// The other signature of the same message that the same key gives: s and the group's order without s.
fn other_signature(token: &str) -> String {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa, 0xad,
        0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ];
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let mut borrow = 0;
    for at in (0..32).rev() {
        let left = i16::from(ORDER[at]) - i16::from(signature[32 + at]) - borrow;
        borrow = i16::from(left < 0);
        signature[32 + at] = left.rem_euclid(256) as u8;
    }
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_token_logs_in_once() {
    let provider = Provider::start().await;
    let config = provider.config("groups", "staff=viewer");
    let server = Server::with(|server| server.oidc = Some(config)).await;
    let token = provider.token("1", json!({}));
    let other = other_signature(&token);
    assert_ne!(token, other);
    // Either is the provider's signature.
    let (first, second) = (provider.token("2", json!({})), provider.token("3", json!({})));
    assert_eq!(log_in(&server, &other_signature(&first)).await.0, "ok");
    assert_eq!(log_in(&server, &second).await.0, "ok");
    assert_eq!(log_in(&server, &token).await.0, "ok");
    for again in [&token, &other, &first] {
        let refused = log_in(&server, again).await;
        assert_eq!(refused.0, "unauthenticated", "{refused:?}");
        assert!(refused.1.to_string().contains("used to log in already"), "{refused:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_nobody_checked_gives_no_role() {
    let provider = Provider::start().await;
    let config = provider.config("email", "alice@example.com=admin");
    let server = Server::with(|server| server.oidc = Some(config)).await;
    let claims = |verified: Value| json!({"email": "alice@example.com", "email_verified": verified});
    assert_eq!(log_in(&server, &provider.token("1", claims(json!(true)))).await.0, "ok");
    for verified in [json!(false), json!(null), json!("yes")] {
        assert_eq!(log_in(&server, &provider.token("2", claims(verified.clone()))).await.0, "denied", "{verified}");
    }
    let two_lines = provider.token("1\n2", claims(json!(true)));
    assert_eq!(log_in(&server, &two_lines).await.0, "unauthenticated", "a subject is one line in the audit log");
    // A name that people choose cannot give roles at all.
    let refused = Oidc::new(provider.config("preferred_username", "alice=admin"));
    assert!(refused.err().is_some_and(|error| error.to_string().contains("choose")));
    server.stop().await;
}
