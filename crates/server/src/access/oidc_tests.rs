//! ID tokens against a provider on this machine: good ones, and every way that one can be wrong.

use super::*;
use axum::Router;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{EncodingKey, Header};
use rcgen::{KeyPair, PublicKeyData};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Signer {
    kid: String,
    pair: KeyPair,
}

impl Signer {
    fn new(kid: &str) -> Self {
        Self { kid: kid.into(), pair: KeyPair::generate().unwrap() }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.der_bytes();
        let part = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
        json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.kid, "x": part(1), "y": part(33)})
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.kid.clone()), ..Header::new(Algorithm::ES256) };
        let key = EncodingKey::from_ec_der(&self.pair.serialize_der());
        jsonwebtoken::encode(&header, claims, &key).unwrap()
    }
}

/// A provider's documents, with keys that can be exchanged, and a count of how often they were read.
struct Fake {
    issuer: String,
    keys: Arc<std::sync::Mutex<Vec<Value>>>,
    reads: Arc<AtomicUsize>,
}

impl Fake {
    async fn start(keys: Vec<Value>) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let issuer = format!("http://{}/realm", listener.local_addr().unwrap());
        let keys = Arc::new(std::sync::Mutex::new(keys));
        let reads = Arc::new(AtomicUsize::new(0));
        let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
        let (shown, counted) = (keys.clone(), reads.clone());
        let app =
            Router::new().route("/realm/.well-known/openid-configuration", get(move || async move { document })).route(
                "/realm/keys",
                get(move || async move {
                    counted.fetch_add(1, Ordering::Relaxed);
                    json!({"keys": *shown.lock().unwrap()}).to_string()
                }),
            );
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { issuer, keys, reads }
    }

    fn oidc(&self) -> Oidc {
        let roles = ["platform=admin", "shop=operator:shop", "shop-dev=operator:shop/dev", "lookers=viewer"];
        Oidc::new(OidcConfig {
            issuer: self.issuer.clone(),
            client_id: "berth".into(),
            audience: None,
            groups_claim: "groups".into(),
            roles: roles.iter().map(|role| role.parse().unwrap()).collect(),
            scopes: Vec::new(),
            ca: None,
        })
        .unwrap()
    }

    fn claims(&self) -> Value {
        let now = jiff::Timestamp::now().as_second();
        json!({
            "iss": self.issuer, "aud": "berth", "sub": "f1", "iat": now, "exp": now + 300, "nonce": "n",
            "email": "alice@example.com", "email_verified": true, "preferred_username": "alice", "groups": ["shop"],
        })
    }
}

/// Claims with some of them put in place of others; null takes one away.
fn with(mut claims: Value, others: Value) -> Value {
    for (name, value) in others.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

#[tokio::test]
async fn a_good_token_gives_a_name_and_a_role() {
    let signer = Signer::new("a");
    let fake = Fake::start(vec![json!({"kty": "quantum", "kid": "q"}), signer.jwk()]).await;
    let oidc = fake.oidc();
    let person = oidc.person(&signer.sign(&fake.claims()), "n").await.unwrap();
    assert_eq!((person.name.as_str(), person.subject.as_str()), ("oidc:alice@example.com", "f1"));
    assert_eq!((person.role, person.org.as_str(), person.env.as_str()), (Role::Operator, "shop", ""));
    for (groups, role, org) in [
        (json!(["lookers", "shop"]), Role::Operator, "shop"),
        (json!(["shop-dev", "shop"]), Role::Operator, "shop"),
        (json!(["shop", "platform"]), Role::Admin, ""),
        (json!("lookers"), Role::Viewer, ""),
    ] {
        let claims = with(fake.claims(), json!({"groups": groups}));
        let person = oidc.person(&signer.sign(&claims), "n").await.unwrap();
        assert_eq!((person.role, person.org.as_str()), (role, org), "{groups}");
    }
    // An address that nobody checked is nobody's name.
    let claims = with(fake.claims(), json!({"email_verified": false}));
    let person = oidc.person(&signer.sign(&claims), "n").await.unwrap();
    assert_eq!((person.name.as_str(), person.identity), ("oidc:alice#f1", format!("{}#f1", fake.issuer)));
    assert_eq!(fake.reads.load(Ordering::Relaxed), 1, "keys are read once");
}

#[tokio::test]
async fn every_way_to_be_wrong_is_refused() {
    let (signer, stranger) = (Signer::new("a"), Signer::new("a"));
    let fake = Fake::start(vec![signer.jwk()]).await;
    let oidc = fake.oidc();
    let now = jiff::Timestamp::now().as_second();
    for (wrong, why) in [
        (json!({"exp": now - 60}), "expired"),
        (json!({"exp": null}), "missing"),
        (json!({"nbf": now + 600}), "not valid yet"),
        (json!({"iat": now + 600}), "not valid yet"),
        (json!({"iat": now - 7200}), "expired"),
        (json!({"iat": null}), "missing"),
        (json!({"aud": "other"}), "another application"),
        (json!({"aud": null}), "missing"),
        (json!({"aud": ["berth", "other"]}), "does not say which application"),
        (json!({"aud": ["berth", "other"], "azp": "other"}), "another application"),
        (json!({"azp": "other"}), "another application"),
        (json!({"iss": "https://evil.example.com"}), "another provider"),
        (json!({"nonce": "m"}), "another login"),
        (json!({"nonce": null}), "another login"),
        (json!({"sub": null}), "missing"),
        (json!({"email": "a b"}), "names nobody"),
    ] {
        let fault = oidc.person(&signer.sign(&with(fake.claims(), wrong.clone())), "n").await.unwrap_err();
        assert_eq!(fault.code, Code::Unauthenticated, "{wrong}");
        assert!(fault.message.contains(why), "{wrong}: {}", fault.message);
    }
    let fine = signer.sign(&with(fake.claims(), json!({"aud": ["berth", "other"], "azp": "berth"})));
    assert!(oidc.person(&fine, "n").await.is_ok());
    for groups in [json!(null), json!([]), json!(["shoppers"]), json!([["shop"]]), json!({"shop": true})] {
        let fault = oidc.person(&signer.sign(&with(fake.claims(), json!({"groups": groups}))), "n").await.unwrap_err();
        assert_eq!(fault.code, Code::Denied, "{groups}");
    }
    assert!(oidc.person(&stranger.sign(&fake.claims()), "n").await.unwrap_err().message.contains("signature"));
}

#[tokio::test]
async fn signatures_that_a_public_text_suffices_for_are_none() {
    let signer = Signer::new("a");
    let fake = Fake::start(vec![signer.jwk()]).await;
    let oidc = fake.oidc();
    let header = Header { kid: Some("a".into()), ..Header::new(Algorithm::HS256) };
    let by_public = EncodingKey::from_secret(signer.pair.der_bytes());
    let shared = jsonwebtoken::encode(&header, &fake.claims(), &by_public).unwrap();
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let none = format!("{}.{}.", part(json!({"alg": "none"})), part(fake.claims()));
    let good = signer.sign(&fake.claims());
    let (head, rest) = good.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let admin = part(with(fake.claims(), json!({"groups": ["platform"]})));
    let tampered = format!("{head}.{admin}.{signature}");
    for bad in [shared, none, tampered, String::new(), "a.b.c".into(), "x".repeat(70_000)] {
        let fault = oidc.person(&bad, "n").await.unwrap_err();
        assert_eq!(fault.code, Code::Unauthenticated, "{bad:.60}");
    }
    assert!(oidc.person(&good, "n").await.is_ok());
}

#[tokio::test]
async fn new_keys_are_found_and_unknown_ones_do_not_make_the_provider_busy() {
    let (old, new, stranger) = (Signer::new("old"), Signer::new("new"), Signer::new("stranger"));
    let fake = Fake::start(vec![old.jwk()]).await;
    let oidc = fake.oidc();
    oidc.person(&old.sign(&fake.claims()), "n").await.unwrap();
    *fake.keys.lock().unwrap() = vec![old.jwk(), new.jwk()];
    for _ in 0..20 {
        oidc.person(&stranger.sign(&fake.claims()), "n").await.unwrap_err();
    }
    assert_eq!(fake.reads.load(Ordering::Relaxed), 1, "just read, and not again for each unknown key");
    let mut keys = oidc.keys.lock().await;
    keys.as_mut().unwrap().at = Instant::now().checked_sub(KEYS_AGAIN + Duration::from_secs(1)).unwrap();
    drop(keys);
    oidc.person(&new.sign(&fake.claims()), "n").await.unwrap();
    assert_eq!(fake.reads.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_provider_that_is_away_or_another_lets_nobody_in() {
    let signer = Signer::new("a");
    let fake = Fake::start(vec![signer.jwk()]).await;
    let mut config = fake.oidc().config;
    config.issuer = fake.issuer.replace("/realm", "/nowhere");
    let away = Oidc::new(config.clone()).unwrap();
    assert_eq!(away.person(&signer.sign(&fake.claims()), "n").await.unwrap_err().code, Code::Unavailable);
    config.issuer = format!("{}/", fake.issuer);
    let other = Oidc::new(config).unwrap();
    assert_eq!(other.person(&signer.sign(&fake.claims()), "n").await.unwrap_err().code, Code::Unavailable);
}

#[test]
fn providers_speak_https_or_are_on_this_machine() {
    for good in
        ["https://login.example.com/realms/x", "http://127.0.0.1:8080/x", "http://localhost:1/x", "http://[::1]/"]
    {
        assert!(check_address(good).is_ok(), "{good}");
    }
    for bad in ["http://login.example.com", "http://127.0.0.1.example.com", "login", "ftp://127.0.0.1", "https://u@h/"]
    {
        assert!(check_address(bad).is_err(), "{bad}");
    }
}

#[test]
fn groups_are_given_roles() {
    let of = |text: &str| text.parse::<GroupRole>();
    let role = of("cn=a,ou=b=operator:shop/dev").unwrap();
    assert_eq!(
        (role.group.as_str(), role.role, role.org.as_str(), role.env.as_str()),
        ("cn=a,ou=b", Role::Operator, "shop", "dev")
    );
    assert_eq!(of("x=admin").unwrap().org, "");
    for bad in [
        "x",
        "=admin",
        "x=root",
        "x=worker",
        "x=admin:",
        "x=admin:/dev",
        "x=admin:a/b/c",
        "x=admin:shop/",
        "x=admin:sh op",
    ] {
        assert!(of(bad).is_err(), "{bad}");
    }
    let claims = json!({"realm_access": {"roles": ["a"]}, "https://x.y/groups": ["b"]});
    let claims = claims.as_object().unwrap();
    assert_eq!(groups(claims, "realm_access.roles"), ["a"]);
    assert_eq!(groups(claims, "https://x.y/groups"), ["b"]);
}
