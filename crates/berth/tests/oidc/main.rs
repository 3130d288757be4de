//! People's logins against a real Keycloak: `berth server` and `berth login` as they are, Keycloak's own pages driven as a
//! browser would.

mod browser;
mod programs;
#[path = "../support/mod.rs"]
mod support;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use browser::Browser;
use programs::{Keycloak, Server, begin};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};
use support::folder::Folder;

/// How long an ID token of the realm holds, and how far clocks may be apart.
const EXPIRED_AFTER: Duration = Duration::from_secs(5 + 30 + 2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_log_in_by_keycloak() {
    let keycloak = Keycloak::start();
    let server = Server::start(&keycloak.issuer);
    // Its time runs while everything else is tried.
    let (kept, kept_at) = (id_token(&keycloak.issuer).await, Instant::now());

    with_a_browser(&server).await;
    with_a_device(&server).await;
    without_a_group(&server).await;
    by_fingerprint(&server);
    tokens_that_are_refused(&keycloak, &server, &kept, kept_at).await;
    what_was_written_down(&server);
}

/// Authorization code with PKCE, state and nonce.
async fn with_a_browser(server: &Server) {
    let alice = Folder::of_user();
    let mut login = begin(&alice, &["login", &server.url, "--ca", &server.ca, "--no-browser", "--name", "work"]);
    let page = login.line_with("/protocol/openid-connect/auth?").await;
    assert!(page.contains("code_challenge_method=S256") && page.contains("nonce="), "{page}");
    let mut browser = Browser::new();
    let answered = browser.sign_in(&page, "alice", "alice-password").await;
    assert!(answered.starts_with("http://127.0.0.1:") && answered.contains("/callback?"), "{answered}");
    // Someone else's answer is not taken, and does not end the login.
    let forged = format!("{}?state=forged&code=forged", answered.split('?').next().unwrap());
    assert_eq!(browser.get(&forged).await.status(), 404);
    let shown = browser.get(&answered).await;
    assert_eq!(shown.status(), 200);
    assert!(shown.text().await.unwrap().contains("signed in"));
    let said = login.end(0).await;
    assert!(said.contains("as oidc:alice@example.com, admin"), "{said}");

    let me = alice.berth(&["whoami", "-o", "json"]).ok().json();
    assert_eq!((&me["name"], &me["role"], &me["org"]), (&json!("oidc:alice@example.com"), &json!("admin"), &json!("")));
    let until: jiff::Timestamp = me["expiresAt"].as_str().unwrap().parse().unwrap();
    let holds = until.duration_since(jiff::Timestamp::now());
    assert!(holds.as_hours() == 11 || holds.as_hours() == 12, "{holds:?}");
    let listed = alice.berth(&["context", "list", "-o", "json"]).ok().json();
    assert_eq!((&listed[0]["name"], &listed[0]["current"]), (&json!("work"), &json!(true)));
    let config = std::fs::read_to_string(alice.config()).unwrap();
    assert!(config.contains("token: berth_") && !config.contains("eyJ"), "only Berth's own token is kept");
    assert!(!listed.to_string().contains("berth_"));

    // A token for a machine, used and revoked.
    let made = alice
        .berth(&["token", "create", "ci", "--role", "viewer", "--org", "shop", "--expires", "1h", "-o", "json"])
        .ok()
        .json();
    let file = alice.path().join("ci.token");
    std::fs::write(&file, made["secret"].as_str().unwrap()).unwrap();
    let ci = Folder::of_user();
    ci.berth(&["login", &server.url, "--ca", &server.ca, "--token-file", file.to_str().unwrap()]).ok();
    assert_eq!(ci.berth(&["whoami", "-o", "json"]).ok().json()["org"], "shop");
    ci.berth(&["token", "list"]).exits(1).says("needs the role admin");
    alice.berth(&["token", "revoke", "ci"]).ok();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    ci.berth(&["whoami"]).exits(1).says("not valid").says("berth login");

    alice.berth(&["logout"]).ok();
    alice.berth(&["whoami"]).exits(1).says("this needs a token").says("berth login");
}

/// A code entered elsewhere.
async fn with_a_device(server: &Server) {
    let bob = Folder::of_user();
    let mut login = begin(&bob, &["login", &server.url, "--ca", &server.ca, "--device"]);
    let page = login.line_with("user_code=").await;
    let mut browser = Browser::new();
    browser.approve_device(&page, "bob", "bob-password").await;
    let said = login.end(0).await;
    // His address was never checked: it is not his name.
    assert!(said.contains("as oidc:bob#") && said.contains(", operator in org shop"), "{said}");
    let me = bob.berth(&["whoami", "-o", "json"]).ok().json();
    assert_eq!((&me["role"], &me["org"]), (&json!("operator"), &json!("shop")));
    bob.berth(&["audit", "list"]).exits(1).says("needs the role admin");
}

async fn without_a_group(server: &Server) {
    let carol = Folder::of_user();
    let mut login = begin(&carol, &["login", &server.url, "--ca", &server.ca, "--no-browser"]);
    let page = login.line_with("/protocol/openid-connect/auth?").await;
    let mut browser = Browser::new();
    let answered = browser.sign_in(&page, "carol", "carol-password").await;
    assert_eq!(browser.get(&answered).await.status(), 200);
    let said = login.end(1).await;
    assert!(said.contains("carol@example.com is in no group that has a role here"), "{said}");
    assert!(!carol.config().exists(), "nothing is kept of a login that failed");
}

/// Trust in what the server printed, and in nothing else.
fn by_fingerprint(server: &Server) {
    let user = Folder::of_user();
    let token = ["--token-file", &server.admin_token];
    user.berth(&[&["login", &server.url], &token[..]].concat()).exits(1).says("--ca FILE").says("--fingerprint");
    let wrong = format!("sha256:{}", "0".repeat(64));
    let refused = user.berth(&[&["login", &server.url, "--fingerprint", &wrong], &token[..]].concat());
    refused.exits(1).says("nothing that it shows has the fingerprint given");
    user.berth(&[&["login", &server.url, "--fingerprint", &server.fingerprint], &token[..]].concat()).ok();
    assert_eq!(user.berth(&["whoami", "-o", "json"]).ok().json()["name"], "first-admin");
    user.berth(&["login", &server.url, "--token-file", "/dev/null"]).exits(1).says("no token of Berth's");
}

async fn tokens_that_are_refused(keycloak: &Keycloak, server: &Server, kept: &IdToken, kept_at: Instant) {
    let good = id_token(&keycloak.issuer).await;
    let refused = async |token: &str, nonce: &str| {
        let (status, answer) = server.log_in(token, nonce).await;
        assert_eq!(status, 401, "{answer}");
        answer["detail"].as_str().unwrap_or_default().to_owned()
    };
    let parts: Vec<&str> = good.token.split('.').collect();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    assert_eq!(claims["groups"], json!(["platform", "tea-lovers"]));
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let mut later = claims.clone();
    later["exp"] = json!(claims["exp"].as_i64().unwrap() + 86_400);
    let tampered = format!("{}.{}.{}", parts[0], encode(&later), parts[2]);
    assert!(refused(&tampered, &good.nonce).await.contains("signature"));
    let unsigned = format!("{}.{}.", encode(&json!({"alg": "none"})), parts[1]);
    refused(&unsigned, &good.nonce).await;
    assert!(refused(&good.token, "another").await.contains("another login"));
    let other = password_grant(&keycloak.issuer, "other").await;
    assert!(refused(&other, "").await.contains("another application"));
    let (status, answer) = server.log_in(&good.token, &good.nonce).await;
    assert_eq!((status, &answer["token"]["role"]), (200, &json!("admin")), "the same token, untouched: {answer}");
    assert!(refused(&good.token, &good.nonce).await.contains("used to log in already"));

    tokio::time::sleep((kept_at + EXPIRED_AFTER).saturating_duration_since(Instant::now())).await;
    assert!(refused(&kept.token, &kept.nonce).await.contains("expired"));
}

fn what_was_written_down(server: &Server) {
    let admin = Folder::of_user();
    admin.berth(&["login", &server.url, "--ca", &server.ca, "--token-file", &server.admin_token]).ok();
    let entries = admin.berth(&["audit", "list", "--limit", "500", "-o", "json"]).ok().json();
    let found = |actor: &str, action: &str, outcome: &str| {
        let fits = |entry: &&Value| entry["actor"] == actor && entry["action"] == action && entry["outcome"] == outcome;
        entries.as_array().unwrap().iter().filter(fits).count()
    };
    assert_eq!(found("oidc:alice@example.com", "login", "ok"), 2, "{entries:#}");
    let bobs = |entry: &&Value| entry["action"] == "login" && entry["actor"].as_str().unwrap().starts_with("oidc:bob#");
    assert_eq!(entries.as_array().unwrap().iter().filter(bobs).count(), 1);
    assert_eq!(found("anonymous:127.0.0.1", "login", "denied"), 1, "carol");
    assert_eq!(found("anonymous:127.0.0.1", "login", "unauthenticated"), 6);
    assert_eq!(found("oidc:alice@example.com", "logout", "ok"), 1);
    assert_eq!(found("oidc:alice@example.com", "revoke token", "ok"), 1);
    let text = entries.to_string();
    assert!(!text.contains("eyJ") && !text.contains("berth_"), "no token is in the log");
    let state = admin.berth(&["audit", "verify", "-o", "json"]).ok().json();
    assert_eq!(state["whole"], true);
    assert!(!server.log().contains("eyJ"), "no ID token is in the server's log");
}

struct IdToken {
    token: String,
    nonce: String,
}

/// The code flow by hand, for a token to play with.
async fn id_token(issuer: &str) -> IdToken {
    let mut browser = Browser::new();
    let (verifier, nonce) = ("v".repeat(43), "nonce-of-the-test".to_owned());
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    let back = "http://127.0.0.1:9/callback";
    let page = reqwest::Url::parse_with_params(
        &format!("{issuer}/protocol/openid-connect/auth"),
        [
            ("response_type", "code"),
            ("client_id", "berth"),
            ("redirect_uri", back),
            ("scope", "openid profile email"),
            ("state", "s"),
            ("nonce", &nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ],
    );
    let answered = browser.sign_in(page.unwrap().as_str(), "alice", "alice-password").await;
    let answered = reqwest::Url::parse(&answered).unwrap();
    let code = answered.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", "berth"),
        ("redirect_uri", back),
        ("code", &code),
        ("code_verifier", &verifier),
    ];
    let answer = browser.token(issuer, &form).await;
    IdToken { token: answer["id_token"].as_str().expect("an ID token").to_owned(), nonce }
}

async fn password_grant(issuer: &str, client: &str) -> String {
    let form = [
        ("grant_type", "password"),
        ("client_id", client),
        ("username", "alice"),
        ("password", "alice-password"),
        ("scope", "openid"),
    ];
    let answer = Browser::new().token(issuer, &form).await;
    answer["id_token"].as_str().expect("an ID token").to_owned()
}
