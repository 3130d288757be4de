//! What one caller may take, and what needs no token.

use crate::world::{World, read};
use berth_server::limits::Limits;
use reqwest::Method;
use std::num::NonZeroU32;

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_its_share_and_no_more() {
    let most = NonZeroU32::new(20);
    let limits = Limits { requests_per_second: most, ..Limits::default() };
    let world = World::with(|config| {
        config.worker = None;
        config.limits = limits;
    })
    .await;
    let mut refused = 0;
    for _ in 0..60 {
        let response = world.request(Method::GET, "/v1/whoami").send().await.unwrap();
        if response.status() == 429 {
            assert_eq!(response.headers()["retry-after"], "1");
            refused += 1;
        }
    }
    assert!(refused > 5, "{refused}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_tells_how_it_is_without_a_token() {
    let world = World::quiet().await;
    for (path, expected) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let response = world.http.get(world.url(path)).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, expected));
    }
    let (status, document) = read(world.http.get(world.url("/openapi.json")).send().await.unwrap()).await;
    assert_eq!((status, &document["openapi"]), (200, &serde_json::json!("3.1.0")));
    let (status, _) = read(world.http.get(world.url("/v1/login")).send().await.unwrap()).await;
    assert_eq!(status, 200);
    // HTTP/2 by ALPN for those who can, HTTP/1.1 for the others.
    let response = world.http.get(world.url("/healthz")).send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    let ca = std::fs::read(world.folder.path().join("server/ca.pem")).unwrap();
    let old = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
        .http1_only()
        .build()
        .unwrap();
    let response = old.get(world.url("/healthz")).send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_11);
    // Without TLS there is nothing.
    let plain = reqwest::get(world.url("/healthz").replace("https:", "http:")).await;
    assert!(plain.is_err() || plain.unwrap().status().is_client_error());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_grpc_find_their_way() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    let world = World::quiet().await;
    let ca = std::fs::read(world.folder.path().join("server/ca.pem")).unwrap();
    let tls = tonic::transport::ClientTlsConfig::new().ca_certificate(tonic::transport::Certificate::from_pem(ca));
    let channel = tonic::transport::Endpoint::from_shared(world.running.url())
        .unwrap()
        .tls_config(tls)
        .unwrap()
        .connect()
        .await
        .unwrap();
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(health.into_inner().status, 1);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = ServerReflectionClient::new(channel.clone())
        .server_reflection_info(tokio_stream::iter([ask]))
        .await
        .unwrap()
        .into_inner();
    let answer = format!("{:?}", answers.message().await.unwrap());
    assert!(answer.contains("berth.api.v1.Resources") && answer.contains("berth.api.v1.WorkerService"), "{answer}");
    // The version before, which is all that many tools ask for.
    use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient as OldClient;
    use tonic_reflection::pb::v1alpha::server_reflection_request::MessageRequest as OldRequest;
    let ask = tonic_reflection::pb::v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(OldRequest::FileContainingSymbol("berth.api.v1.Resources".into())),
    };
    let answers = OldClient::new(channel).server_reflection_info(tokio_stream::iter([ask])).await;
    let answer = format!("{:?}", answers.unwrap().into_inner().message().await.unwrap());
    assert!(answer.contains("FileDescriptorResponse"), "{answer}");
    world.stop().await;
}
