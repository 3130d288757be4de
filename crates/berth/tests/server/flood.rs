//! Strangers: idle connections by the hundred, tokens that they make up, bodies that nobody wants. Nobody with a token is
//! kept out by any of it.

use crate::raw::{Raw, Stream, answer, ask};
use crate::support::server::Server;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// As an attacker's and a colleague's addresses, and a proxy's.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

fn raw(server: &Server) -> Raw {
    Raw::new(&server.url, &server.path().join("berth-server/ca.pem"))
}

fn first_token(server: &Server) -> String {
    std::fs::read_to_string(server.path().join("berth-server/admin.token")).unwrap().trim().to_owned()
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// A token that no server made.
fn made_up(number: u32) -> String {
    format!("berth_{number:0>43}")
}

async fn post(stream: &mut Stream, path: &str, headers: &str, body: &str) -> crate::raw::Answer {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: berth\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    ask(stream, &(head + body)).await.expect("an answer")
}

/// More idle connections than the server has places, each answering every sign of life: half of them from one address that
/// a colleague shares, the others each from an address of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_strangers_keep_nobody_out_who_has_a_token() {
    let health = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = Server::start(&[
        "--max-connections",
        "240",
        "--connections-per-address",
        "40",
        "--idle-timeout",
        "10m",
        "--health-listen",
        &health,
    ]);
    let (raw, token) = (raw(&server), first_token(&server));
    let mut known = raw.connect(HERE).await.unwrap();
    let whoami = format!("GET /v1/whoami HTTP/1.1\r\nhost: berth\r\n{}\r\n", bearer(&token));
    assert_eq!(ask(&mut known, &whoami).await.unwrap().status, 200);

    let mut idle = Vec::new();
    for number in 0..300u32 {
        let from = if number % 2 == 0 { HERE } else { Ipv4Addr::new(127, 1, (number >> 8) as u8, number as u8) };
        idle.push(raw.idle(from).await.expect("a newcomer is let in"));
    }
    // A colleague from the same address, with nothing open: the real command line.
    let begun = Instant::now();
    let user = server.admin();
    user.berth(&["whoami"]).ok();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(raw.get(HERE, "/v1/whoami", &bearer(&token)).await.unwrap().status, 200);
    assert_eq!(raw.get(HERE, "/healthz", "").await.unwrap().status, 200);
    assert_eq!(ask(&mut known, &whoami).await.unwrap().status, 200, "whoever has a token stays");
    let plain = reqwest::get(format!("http://{health}/readyz")).await.expect("health has an address of its own");
    assert_eq!(plain.status(), 200);
    let nothing_else = reqwest::get(format!("http://{health}/metrics")).await.unwrap();
    assert_eq!(nothing_else.status(), 404);
    let left = idle.iter().filter(|task| !task.is_finished()).count();
    assert!(left <= 60, "{left} strangers have places, a quarter is theirs");
}

/// Answering pings is not asking for anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_that_asks_nothing_is_let_go_and_a_caller_with_a_token_is_not() {
    let server = Server::start(&["--idle-timeout", "1s"]);
    let (raw, token) = (raw(&server), first_token(&server));
    let mut known = raw.connect(HERE).await.unwrap();
    let whoami = format!("GET /v1/whoami HTTP/1.1\r\nhost: berth\r\n{}\r\n", bearer(&token));
    assert_eq!(ask(&mut known, &whoami).await.unwrap().status, 200);
    let begun = Instant::now();
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(raw.idle(HERE).await.unwrap());
    }
    for task in idle {
        tokio::time::timeout(Duration::from_secs(10), task).await.expect("the server ends it").unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(ask(&mut known, &whoami).await.unwrap().status, 200);
}

/// Logins that are sent a byte at a time, from a shared address and from many others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_sends_slowly_keeps_nobody_from_logging_in() {
    let server = Server::start(&[]);
    let raw = raw(&server);
    let mut slow = Vec::new();
    for number in 0..200u32 {
        let from = if number < 40 { HERE } else { Ipv4Addr::new(127, 2, 0, (number % 20) as u8 + 1) };
        let mut stream = raw.connect(from).await.unwrap();
        let head =
            "POST /v1/login HTTP/1.1\r\nhost: berth\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let login = json!({"idToken": "none", "nonce": "n"}).to_string();
    for from in [HERE, Ipv4Addr::new(127, 2, 0, 3), Ipv4Addr::new(127, 3, 0, 1)] {
        assert_eq!(raw.get(from, "/v1/login", "").await.unwrap().status, 200, "{from}");
        let mut stream = raw.connect(from).await.unwrap();
        let answer = post(&mut stream, "/v1/login", "", &login).await;
        assert!((400..500).contains(&answer.status), "{from}: {answer:?}");
    }
    drop(slow);
}

/// From one address, behind which the admin sits too: hundreds of made-up tokens, and one wrong token again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_tokens_lock_nobody_out_and_cost_the_database_little() {
    let server = Server::start(&["--failed-attempts", "5"]);
    let (raw, token) = (raw(&server), first_token(&server));
    let mut admin = raw.connect(HERE).await.unwrap();
    let mut stranger = raw.connect(HERE).await.unwrap();
    let mut try_token = async |token: String| {
        let request = format!("GET /v1/whoami HTTP/1.1\r\nhost: berth\r\n{}\r\n", bearer(&token));
        ask(&mut stranger, &request).await.unwrap().status
    };
    // One failure, however often it is tried.
    for _ in 0..50 {
        assert_eq!(try_token(made_up(0)).await, 401);
    }
    let before = lookups(&raw).await;
    let mut seen = Vec::new();
    for number in 1..=200 {
        seen.push(try_token(made_up(number)).await);
    }
    // Two are forgiven each second.
    assert!(seen.contains(&401) && seen.iter().filter(|status| **status == 429).count() > 50, "{seen:?}");
    // Tokens that the server has not seen in use, the first admin's and a new one, from the same address.
    let created = post(&mut admin, "/v1/tokens", &bearer(&token), r#"{"name": "ci", "role": "viewer"}"#).await;
    assert_eq!(created.status, 200, "{created:?}");
    let created: Value = serde_json::from_str(&created.body).unwrap();
    assert_eq!(try_token(created["secret"].as_str().unwrap().to_owned()).await, 200);
    assert_ne!(try_token(made_up(1_000)).await, 200);
    let spent = lookups(&raw).await - before;
    assert!(spent < 100, "{spent} looks for 200 made-up tokens");
    // Logging in is not closed to the address either.
    assert_eq!(raw.get(HERE, "/v1/login", "").await.unwrap().status, 200);
}

async fn lookups(raw: &Raw) -> u64 {
    let text = raw.get(HERE, "/metrics", "").await.unwrap().body;
    let line = text.lines().find(|line| line.starts_with("berth_token_lookups_total")).expect("it is counted");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Who failed to log in, by the audit log.
async fn failed_logins(raw: &Raw, token: &str, own: Ipv4Addr, before_tls: &str) -> Vec<String> {
    let mut stream = raw.tcp(own).await.unwrap();
    stream.write_all(before_tls.as_bytes()).await.unwrap();
    let mut stream = raw.over(stream).await.unwrap();
    let request = format!("GET /v1/audit HTTP/1.1\r\nhost: berth\r\n{}\r\n", bearer(token));
    let answer = ask(&mut stream, &request).await.unwrap();
    let audit: Value = serde_json::from_str(&answer.body).unwrap();
    let entries = audit["entries"].as_array().cloned().unwrap_or_default();
    let mut actors: Vec<String> = entries
        .iter()
        .filter(|entry| entry["action"] == "login")
        .map(|entry| entry["actor"].as_str().unwrap_or_default().to_owned())
        .collect();
    actors.reverse();
    actors
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_trusted_proxy_says_whose_address_a_caller_has() {
    let login = json!({"idToken": "none", "nonce": "n"}).to_string();
    // By the PROXY protocol, in both its versions.
    let server = Server::start(&["--trusted-proxies", "127.0.0.9", "--proxy-protocol"]);
    let (raw, token) = (raw(&server), first_token(&server));
    let first = "PROXY TCP4 203.0.113.7 127.0.0.1 4711 443\r\n";
    let second = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x08\x7f\0\0\x01\x12\x67\x01\xbb".as_slice();
    for start in [first.as_bytes(), second] {
        let mut stream = raw.tcp(PROXY).await.unwrap();
        stream.write_all(start).await.unwrap();
        let mut stream = raw.over(stream).await.unwrap();
        let forged = "x-forwarded-for: 198.51.100.1\r\n";
        assert_ne!(post(&mut stream, "/v1/login", forged, &login).await.status, 200);
    }
    // A proxy that says nothing is not let in, nor is a stranger who says it.
    let silent = raw.connect(PROXY).await;
    assert!(silent.is_err());
    let mut liar = raw.tcp(HERE).await.unwrap();
    liar.write_all(first.as_bytes()).await.unwrap();
    assert!(raw.over(liar).await.is_err());
    let seen = failed_logins(&raw, &token, HERE, "").await;
    assert_eq!(seen, ["anonymous:203.0.113.7", "anonymous:203.0.113.8"]);
    drop(server);

    // By the header.
    let server = Server::start(&["--trusted-proxies", "127.0.0.8/31"]);
    let (raw, token) = (self::raw(&server), first_token(&server));
    for from in [PROXY, HERE] {
        let mut stream = raw.connect(from).await.unwrap();
        let header = "x-forwarded-for: 198.51.100.1, 203.0.113.9, 127.0.0.8\r\n";
        assert_ne!(post(&mut stream, "/v1/login", header, &login).await.status, 200);
    }
    let seen = failed_logins(&raw, &token, HERE, "").await;
    assert_eq!(seen, ["anonymous:203.0.113.9", "anonymous:127.0.0.1"]);
}

/// Senders that read nothing before they have sent all: as most clients do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_answered_and_not_cut_off() {
    const BYTES: usize = 40 << 20;
    let server = Server::start(&[]);
    let (raw, token) = (raw(&server), first_token(&server));
    let part = vec![b' '; 1 << 20];
    for (path, credentials, expected) in [
        ("/v1/resources", bearer(&token), 413),
        ("/v1/resources", bearer(&made_up(7)), 401),
        ("/v1/login", String::new(), 413),
    ] {
        for chunked in [false, true] {
            let mut stream = raw.connect(HERE).await.unwrap();
            let length =
                if chunked { "transfer-encoding: chunked".to_owned() } else { format!("content-length: {BYTES}") };
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: berth\r\ncontent-type: application/json\r\n{length}\r\n{credentials}\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..BYTES / part.len() {
                if chunked {
                    stream.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await.unwrap();
                }
                stream.write_all(&part).await.expect("it is not cut off while it sends");
                if chunked {
                    stream.write_all(b"\r\n").await.unwrap();
                }
            }
            if chunked {
                stream.write_all(b"0\r\n\r\n").await.unwrap();
            }
            let answer = answer(&mut stream).await.expect("an answer");
            assert_eq!(answer.status, expected, "{path} chunked={chunked} {answer:?}");
        }
    }
    // The same by HTTP/2.
    let ca = std::fs::read(server.path().join("berth-server/ca.pem")).unwrap();
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
        .no_proxy()
        .build()
        .unwrap();
    let answer = client
        .post(format!("{}/v1/resources", server.url))
        .bearer_auth(&token)
        .header("content-type", "application/json")
        .body(vec![b' '; BYTES])
        .send()
        .await
        .expect("an answer");
    assert_eq!((answer.version(), answer.status().as_u16()), (reqwest::Version::HTTP_2, 413));
}

/// Streams of events that came and went leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_goes_back_when_streams_of_events_end() {
    const STREAMS: usize = 240;
    let server = Server::start(&[]);
    let (raw, token) = (raw(&server), first_token(&server));
    let watch = format!("GET /v1/events/watch HTTP/1.1\r\nhost: berth\r\n{}\r\n", bearer(&token));
    let follow = async |count: usize| {
        let mut open = Vec::with_capacity(count);
        for _ in 0..count {
            let mut stream = raw.connect(HERE).await.unwrap();
            assert_eq!(ask(&mut stream, &watch).await.unwrap().status, 200);
            open.push(stream);
        }
        server.memory()
    };
    follow(8).await;
    let before = server.memory();
    let most = follow(STREAMS).await;
    let grew = most.saturating_sub(before);
    assert!(grew > 4 << 10, "{before} KiB before, {most} with {STREAMS} streams: nothing to give back");
    let until = Instant::now() + Duration::from_secs(15);
    loop {
        let after = server.memory();
        if after.saturating_sub(before) * 3 < grew {
            break;
        }
        assert!(Instant::now() < until, "{before} KiB before, {most} with {STREAMS} streams, {after} after");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
