//! What a token can still do once it was revoked, and what cannot be done past the audit log.

use crate::call::Protocol;
use crate::setup::{Fixture, Reach, Server, Who};
use berth_server::access::Role;
use berth_server::client::{Client, Connection};
use berth_server::pb;
use berth_store::{Actor, AuditEntry, AuditNote, AuditQuery};
use prost::Message;
use secrecy::SecretString;
use serde_json::json;
use std::time::{Duration, Instant};

/// From a revocation to the end of everything that was open.
const SOON: Duration = Duration::from_secs(5);

async fn client(server: &Server, token: &str) -> Client {
    let ca = Some(std::fs::read(server.running.ca.as_ref().unwrap()).unwrap());
    let token = SecretString::from(token.to_owned());
    Connection { ca, ..Connection::new(server.running.url(), token) }.connect().await.unwrap()
}

async fn audited(server: &Server) -> Vec<AuditEntry> {
    server.control().audit_entries(&AuditQuery { limit: 1000, ..AuditQuery::default() }).await.unwrap()
}

/// As another server would: nothing in this one is told.
async fn revoke(server: &Server, id: &str) {
    let now = jiff::Timestamp::now();
    server.control().revoke_token(id, &Actor::new("another server"), AuditNote::default(), now).await.unwrap();
}

#[tokio::test]
async fn an_open_stream_ends_soon_after_its_token() {
    let server = Server::start().await;
    Fixture::fill(&server).await;
    let (secret, row) = server.make("follower", Role::Viewer, "", "", 3600).await;
    let client = client(&server, &secret).await;
    let mut events = client.events().watch(pb::WatchRequest::default()).await.unwrap().into_inner();
    assert!(events.message().await.unwrap().is_some(), "it sees what there is");
    let url = format!("{}/v1/events/watch", server.running.url());
    let mut sse = server.http.get(url).header("authorization", format!("Bearer {secret}")).send().await.unwrap();
    assert_eq!(sse.status(), 200);

    let (brief, _) = server.make("brief", Role::Viewer, "", "", 2).await;
    let brief = self::client(&server, &brief).await;
    let mut expires = brief.events().watch(pb::WatchRequest::default()).await.unwrap().into_inner();

    revoke(&server, &row.id).await;
    let began = Instant::now();
    let ended = async {
        loop {
            match events.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it says why it ends"),
                Err(status) => break status,
            }
        }
    };
    let status = tokio::time::timeout(SOON, ended).await.expect("the stream ends");
    assert_eq!(status.code(), tonic::Code::Unauthenticated, "{status:?}");
    let mut text = Vec::new();
    let rest = async {
        while let Ok(Some(part)) = sse.chunk().await {
            text.extend_from_slice(&part);
        }
    };
    tokio::time::timeout(SOON, rest).await.expect("the server-sent events end");
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("event: problem") && text.contains("problems/unauthenticated"), "{text}");
    assert!(began.elapsed() < SOON * 2);
    let ended = async { while let Ok(Some(_)) = expires.message().await {} };
    tokio::time::timeout(SOON, ended).await.expect("an expired token's stream ends, too");
    server.stop().await;
}

#[tokio::test]
async fn a_worker_that_waits_gets_nothing_once_its_token_is_revoked() {
    let server = Server::start().await;
    let (secret, row) = server.make("w", Role::Worker, "", "", 3600).await;
    let client = client(&server, &secret).await;
    let recipient = age::x25519::Identity::generate().to_public().to_string();
    let ask = pb::LeaseRequest {
        protocol: berth_server::worker::PROTOCOL,
        worker: "w".into(),
        changes: 1,
        wait_seconds: 30,
        recipient,
        ..Default::default()
    };
    let mut worker = client.worker();
    let waits = tokio::spawn(async move { worker.lease(ask).await });
    tokio::time::sleep(Duration::from_millis(1200)).await;
    revoke(&server, &row.id).await;
    Fixture::fill(&server).await;
    let answer = tokio::time::timeout(SOON, waits).await.expect("an answer").unwrap();
    assert_eq!(answer.unwrap_err().code(), tonic::Code::Unauthenticated);
    server.stop().await;
}

/// What a client of ours never sends: a message that the log would read otherwise than the method does.
#[tokio::test]
async fn a_secret_is_not_read_past_the_log() {
    let server = Server::start().await;
    let place = Fixture::fill(&server).await;
    let operator = server.token(Who::Has(Role::Operator, Reach::Here), false).await.unwrap();
    let ask = pb::OutputsRequest {
        kind: "CivoKubernetesCluster".into(),
        name: place.network.clone(),
        org: "shop".into(),
        env: "dev".into(),
        secrets: vec!["kubeconfig_b64".into()],
    };
    let frame = |flag: u8, bytes: &[u8]| {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&[flag], &length[..], bytes].concat()
    };
    let plain = ask.encode_to_vec();
    let two = [frame(0, &plain), frame(0, &[])].concat();
    let send = async |method: &str, encoding: &str, body: Vec<u8>| {
        let url = format!("{}/berth.api.v1.Resources/{method}", server.running.url());
        let sent = server.http.post(url).header("content-type", "application/grpc").header("te", "trailers");
        let sent = sent.header("authorization", format!("Bearer {operator}")).header("grpc-encoding", encoding);
        let response = sent.body(body).send().await.unwrap();
        tonic::Status::from_header_map(response.headers()).expect("a status")
    };
    for method in ["Outputs", "Kubeconfig"] {
        let status = send(method, "gzip", frame(1, &plain)).await;
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "compressed: {status:?}");
        let status = send(method, "identity", two.clone()).await;
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "two messages: {status:?}");
    }
    assert!(audited(&server).await.iter().all(|entry| entry.action != "outputs"));
    let status = send("Outputs", "identity", frame(0, &plain)).await;
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "it is not ready: {status:?}");
    let entries = audited(&server).await;
    let entry = entries.iter().find(|entry| entry.action == "outputs").expect("an attempt is written down");
    assert_eq!((entry.detail.as_str(), entry.outcome.as_str()), ("secrets kubeconfig_b64", "refused"));
    server.stop().await;
}

#[tokio::test]
async fn a_rotation_is_written_down_once() {
    let server = Server::start().await;
    let admin = server.token(Who::Has(Role::Admin, Reach::All), false).await.unwrap();
    let answer = server.call(Protocol::Rest, "Access.RotateKeys", &json!({}), Some(&admin)).await.unwrap();
    assert_eq!(answer.code, "ok");
    let found = audited(&server).await.into_iter().filter(|entry| entry.action == "rotate keys").count();
    assert_eq!(found, 1);
    server.stop().await;
}

#[tokio::test]
async fn whoever_has_no_token_sends_little() {
    let server = Server::start().await;
    let text = "x".repeat(300 << 10);
    for protocol in [Protocol::Grpc, Protocol::Rest] {
        let answer = server.call(protocol, "Access.Login", &json!({"idToken": text}), None).await.unwrap();
        assert_eq!(answer.code, "too-large", "{protocol:?}: {}", answer.message);
    }
    server.stop().await;
}

#[tokio::test]
async fn one_token_follows_events_a_limited_number_of_times() {
    let server = Server::start().await;
    let (secret, _) = server.make("many", Role::Viewer, "", "", 3600).await;
    let (other, _) = server.make("other", Role::Viewer, "", "", 3600).await;
    // Two connections: one has room for 256 requests.
    let clients = [client(&server, &secret).await, client(&server, &secret).await];
    let mut open = Vec::new();
    let watch = pb::WatchRequest { after: -1, ..Default::default() };
    for n in 0..256 {
        open.push(clients[n % 2].events().watch(watch.clone()).await.unwrap());
    }
    let status = clients[0].events().watch(watch.clone()).await.expect_err("no more");
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert!(client(&server, &other).await.events().watch(watch.clone()).await.is_ok(), "another token's are its own");
    open.clear();
    let began = Instant::now();
    while clients[0].events().watch(watch.clone()).await.is_err() {
        assert!(began.elapsed() < SOON, "places are given back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.stop().await;
}

/// Whoever sends a login slowly, and often, keeps nobody with a token out.
#[tokio::test]
async fn slow_strangers_keep_nobody_out() {
    let server = Server::with(|config| config.limits.requests = 64).await;
    let (good, _) = server.make("good", Role::Viewer, "", "", 3600).await;
    let url = format!("{}/v1/login", server.running.url());
    let mut slow = Vec::new();
    for _ in 0..128 {
        // A body that never ends.
        let (keep, body) = tokio::sync::mpsc::channel::<Result<bytes::Bytes, std::io::Error>>(1);
        let stream = tokio_stream::wrappers::ReceiverStream::new(body);
        let body = reqwest::Body::wrap(http_body_util::StreamBody::new(futures::StreamExt::map(stream, |part| {
            part.map(hyper::body::Frame::data)
        })));
        let sent = server.http.post(&url).header("content-type", "application/json").body(body).send();
        slow.push((keep, tokio::spawn(sent)));
    }
    let began = Instant::now();
    // An address has sixteen places for them: the others have made way.
    while slow.iter().filter(|(_, sent)| sent.is_finished()).count() < 128 - 16 {
        let answer = server.call(Protocol::Rest, "Access.WhoAmI", &json!({}), Some(&good)).await.unwrap();
        assert_eq!(answer.code, "ok", "{answer:?}");
        assert_eq!(server.http.get(&url).send().await.unwrap().status(), 200, "others log in");
        assert!(began.elapsed() < SOON, "strangers have a limit");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for (_, sent) in slow.iter_mut().filter(|(_, sent)| sent.is_finished()) {
        assert_eq!(sent.await.unwrap().unwrap().status(), 503);
    }
    slow.clear();
    server.stop().await;
}

#[tokio::test]
async fn strangers_do_not_fill_the_audit_log() {
    let server = Server::with(|config| config.limits.failed_attempts = 5).await;
    for _ in 0..30 {
        let answer = server.call(Protocol::Grpc, "Access.Login", &json!({"idToken": "x"}), None).await.unwrap();
        assert!(["refused", "too-many"].contains(&answer.code.as_str()), "{answer:?}");
    }
    let written = audited(&server).await.into_iter().filter(|entry| entry.action == "login").count();
    assert!((5..15).contains(&written), "{written}");
    server.stop().await;
}

#[tokio::test]
async fn a_worker_of_another_org_has_no_name() {
    let server = Server::start().await;
    let draining = json!({"worker": "banks-own-worker", "draining": true, "protocol": berth_server::worker::PROTOCOL});
    let bank = server.token(Who::Has(Role::Worker, Reach::OtherOrg), false).await;
    server.call(Protocol::Grpc, "WorkerService.Lease", &draining, bank.as_deref()).await.unwrap();
    for (reach, named) in [(Reach::All, true), (Reach::Here, false)] {
        let viewer = server.token(Who::Has(Role::Viewer, reach), false).await;
        let answer = server.call(Protocol::Rest, "Tasks.Workers", &json!({}), viewer.as_deref()).await.unwrap();
        assert_eq!(answer.body.contains("banks-own-worker"), named, "{reach:?}: {answer:?}");
        assert!(answer.body.contains("seenAt"), "that there is one is no secret: {answer:?}");
    }
    server.stop().await;
}
