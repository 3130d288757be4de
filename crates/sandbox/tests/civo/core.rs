use berth_sandbox::{Config, Sandbox, SandboxError, Speed};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{cloud, refused, start};

#[tokio::test]
async fn only_loopback_is_listened_on() {
    let everywhere = "0.0.0.0:0".parse().expect("an address");
    for config in [
        Config { clouds: [(berth_sandbox::civo::NAME, everywhere)].into(), ..Config::default() },
        Config { clouds: [(berth_sandbox::digitalocean::NAME, everywhere)].into(), ..Config::default() },
        Config { kube: everywhere, ..Config::default() },
    ] {
        let refused = Sandbox::start(config).await.err();
        assert!(matches!(refused, Some(SandboxError::NotLoopback { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let cloud = cloud().await;
    let taken = cloud.url.trim_start_matches("http://").parse().expect("an address");
    let error = Sandbox::start(Config { clouds: [(berth_sandbox::civo::NAME, taken)].into(), ..Config::default() })
        .await
        .err()
        .expect("an error");
    assert_eq!(error.to_string(), format!("cannot listen on {taken}"));
}

#[tokio::test]
async fn a_token_is_checked_when_asked_for() {
    let cloud = start(Config { speed: Speed::Instant, token: Some("s3cret".into()), ..Config::default() }).await;
    let path = format!("{}/v2/regions", cloud.url);
    refused(&cloud.send(cloud.http.get(&path)).await, 401, "database_account_not_found");
    refused(&cloud.get("/v2/regions").await, 401, "database_account_not_found");
    for scheme in ["bearer", "Bearer"] {
        let request = cloud.http.get(&path).header("Authorization", format!("{scheme} s3cret"));
        assert_eq!(cloud.send(request).await.0, 200);
    }
    assert_eq!(cloud.admin("calls").await["total"], 4, "the sandbox's own paths need no token and are not counted");
}

#[tokio::test]
async fn unknown_paths_are_refused_in_the_clouds_shape() {
    let cloud = cloud().await;
    for path in ["/", "/v1/regions", "/v2/nothing", "/v2/kubernetes", "/v2/vpc", "/v2/networks/a/b/c"] {
        refused(&cloud.get(path).await, 404, "not_found");
    }
    let patch = cloud.request(Method::PATCH, "/v2/networks/x?region=FRA1");
    refused(&cloud.send(patch).await, 404, "not_found");
    assert_eq!(cloud.send(cloud.http.get(format!("{}/_sandbox/nope", cloud.url))).await.0, 404);
}

#[tokio::test]
async fn bodies_are_limited_and_claims_of_gzip_ignored() {
    let cloud = cloud().await;
    let big = json!({"label": "x".repeat(2 << 20), "region": "FRA1"}).to_string();
    let request = cloud.request(Method::POST, "/v2/networks").body(big);
    refused(&cloud.send(request).await, 413, "parameter_too_large");
    let request = cloud.request(Method::POST, "/v2/networks").header("Content-Encoding", "gzip");
    assert_eq!(cloud.send(request.body(r#"{"label": "plain", "region": "FRA1"}"#)).await.0, 200);
}

#[tokio::test]
async fn calls_are_counted_and_the_ledger_keeps_what_lives() {
    let cloud = cloud().await;
    let network = cloud.network("shop").await;
    cloud.get("/v2/networks").await;
    cloud.get("/v2/networks").await;
    cloud.delete(&format!("/v2/networks/{network}")).await;
    let calls = cloud.admin("calls").await;
    assert_eq!(calls, json!({"total": 4, "mutating": 2, "late": 0, "by_method": {"GET": 2, "POST": 1, "DELETE": 1}}));
    cloud.send(cloud.http.post(format!("{}/_sandbox/calls/reset", cloud.url))).await;
    assert_eq!(cloud.admin("calls").await["total"], 0);

    let cluster = cloud.cluster("shop").await;
    let ledger = cloud.admin("ledger").await;
    assert_eq!(ledger["totals"]["civo.network"], json!({"created": 7, "deleted": 1, "live": 6}));
    let row =
        ledger["objects"].as_array().expect("objects").iter().find(|o| o["id"] == cluster.as_str()).expect("a row");
    assert_eq!((&row["type"], &row["name"], &row["region"]), (&json!("civo.cluster"), &json!("shop"), &json!("FRA1")));
    assert_eq!((&row["pools"][0]["count"], &row["version"]), (&json!(2), &json!("1.29.0-k3s1")));
    let own = ledger["objects"].as_array().expect("objects").iter();
    let own = own.filter(|o| o["default"] != true).find(|o| o["type"] == "civo.firewall");
    assert_eq!(own.map(|f| &f["auto"]), Some(&json!(true)), "a cluster without a firewall gets the cloud's own");
}

#[tokio::test]
async fn one_connection_serves_many_calls() {
    let cloud = cloud().await;
    let address = cloud.url.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    for _ in 0..3 {
        let request = format!("GET /v2/ping HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = vec![0; 4096];
        let read = stream.read(&mut answer).await.expect("read");
        assert!(String::from_utf8_lossy(&answer[..read]).starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn a_stopped_sandbox_lets_go_of_its_port() {
    let cloud = cloud().await;
    let address = cloud.url.trim_start_matches("http://").parse().expect("an address");
    cloud.sandbox.stop().await;
    let again = start(Config { clouds: [(berth_sandbox::civo::NAME, address)].into(), ..Config::default() }).await;
    assert_eq!(again.url, cloud.url);
}
