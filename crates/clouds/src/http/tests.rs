//! The client against a server that answers as it is told.

use super::*;
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap as Headers;
use axum::response::IntoResponse;
use reqwest::header::HeaderMap;
use std::sync::Arc;

struct Plain;

impl Dialect for Plain {
    fn cloud(&self) -> &'static str {
        "Cloud"
    }
    fn read(&self, body: &[u8]) -> (String, String) {
        ("some_code".into(), String::from_utf8_lossy(body).into_owned())
    }
}

fn settings(base_url: String) -> Settings {
    Settings {
        base_url,
        foreign: false,
        authorization: SecretString::from("bearer tok-secret".to_owned()),
        requests_per_second: 1000.0,
        burst: 100,
        timeout: Duration::from_secs(5),
        dialect: &Plain,
    }
}

type Answer = (u16, &'static [(&'static str, &'static str)], Vec<u8>);

/// Answers with these, one after the other, and then with the last again.
async fn serve(answers: Vec<Answer>) -> (Http, Arc<AtomicU64>) {
    let seen = Arc::new(AtomicU64::new(0));
    let answer = |State((seen, answers)): State<(Arc<AtomicU64>, Arc<Vec<_>>)>, sent: Headers| async move {
        assert_eq!(sent["authorization"], "bearer tok-secret");
        assert!(sent["user-agent"].to_str().unwrap().starts_with("berth/"));
        let index = (seen.fetch_add(1, Ordering::SeqCst) as usize).min(answers.len() - 1);
        let (status, extra, body): &Answer = &answers[index];
        let mut headers = Headers::new();
        for (name, value) in *extra {
            headers.insert(*name, value.parse().unwrap());
        }
        (axum::http::StatusCode::from_u16(*status).unwrap(), headers, body.clone()).into_response()
    };
    let app = Router::new().fallback(answer).with_state((seen.clone(), Arc::new(answers)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (Http::new(settings(base_url)).unwrap(), seen)
}

#[tokio::test]
async fn reads_are_tried_again_and_changes_are_not() {
    let (http, seen) =
        serve(vec![(503, &[], b"busy".to_vec()), (429, &[("retry-after", "0")], vec![]), (200, &[], b"[1]".to_vec())])
            .await;
    assert_eq!(http.get::<Vec<u32>>("/v2/x", &[("a", "b c")]).await.unwrap(), [1]);
    assert_eq!((http.calls(), seen.load(Ordering::SeqCst)), (3, 3));

    let (http, seen) = serve(vec![(503, &[("retry-after", "7")], b"busy".to_vec())]).await;
    let trouble = http.change(Method::POST, "/v2/x", &[], Some(&vec![1])).await.unwrap_err();
    assert_eq!(trouble.class, Class::Retry { after: Some(Duration::from_secs(7)) });
    assert_eq!(trouble.to_string(), "POST /v2/x: Cloud answered 503 some_code: busy");
    assert_eq!(seen.load(Ordering::SeqCst), 1);

    // A pause that long is not waited for, and whoever asks is told when to come back.
    let (http, seen) = serve(vec![(429, &[("retry-after", "3600")], vec![])]).await;
    let trouble = http.get_bytes("/v2/x", &[]).await.unwrap_err();
    assert_eq!(trouble.class, Class::Retry { after: Some(Duration::from_secs(3600)) });
    assert!(
        trouble.help.len() == 1 && trouble.help_lines()[0].starts_with("Cloud takes calls again in 1h00m, at "),
        "{trouble:?}"
    );
    assert_eq!(seen.load(Ordering::SeqCst), 1);

    // Nor does any other call of the account go out.
    for trouble in [
        http.get_bytes("/v2/y", &[]).await.unwrap_err(),
        http.change(Method::DELETE, "/v2/y", &[], None).await.unwrap_err(),
    ] {
        assert!(
            trouble.is_retry() && trouble.to_string().contains("/v2/y: not sent: Cloud asked for a pause of "),
            "{trouble}"
        );
    }
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn all_calls_of_an_account_keep_a_pause_that_one_was_asked_for() {
    let ok = || (200, &[] as &[_], b"1".to_vec());
    let refused: [Answer; 3] = [
        (429, &[("retry-after", "2")], vec![]),
        (503, &[("retry-after", "2")], vec![]),
        (200, &[("ratelimit-remaining", "0"), ("retry-after", "2")], b"1".to_vec()),
    ];
    for first in refused {
        let what = first.0;
        let (http, seen) = serve(vec![first, ok()]).await;
        let start = std::time::Instant::now();
        let retried = http.get::<u32>("/v2/x", &[]);
        let other = async {
            while seen.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // The answer has gone out by now.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let change = http.change(Method::POST, "/v2/y", &[], None).await;
            assert!(matches!(change.unwrap_err().class, Class::Retry { after: Some(_) }), "{what}");
            assert_eq!(seen.load(Ordering::SeqCst), 1, "{what}: sent in the pause");
            let answer = http.get::<u32>("/v2/y", &[]).await;
            (answer, start.elapsed())
        };
        let (retried, (other, took)) = tokio::join!(retried, other);
        assert_eq!((retried.unwrap(), other.unwrap()), (1, 1));
        assert!(start.elapsed() >= Duration::from_secs(2) && took >= Duration::from_secs(2), "{what}: {took:?}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_counts_as_lost() {
    let (http, _) = serve(vec![(200, &[], b"<html>".to_vec())]).await;
    let trouble = http.send::<u32>(Method::POST, "/v2/x", &[], None).await.unwrap_err();
    assert_eq!(trouble.class, Class::Unanswered);
    let trouble = http.send::<u32>(Method::PUT, "/v2/x", &[], None).await.unwrap_err();
    assert!(
        trouble.class == Class::Retry { after: None }
            && trouble.to_string().starts_with("PUT /v2/x: Cloud's answer could not be understood"),
        "{trouble}"
    );
}

#[tokio::test]
async fn a_create_that_may_have_taken_effect_is_told_from_one_that_surely_did_not() {
    for (status, class) in [
        (429, Class::Retry { after: None }),
        (503, Class::Retry { after: None }),
        (500, Class::Unanswered),
        (502, Class::Unanswered),
        (504, Class::Unanswered),
    ] {
        let (http, _) = serve(vec![(status, &[], vec![])]).await;
        assert_eq!(http.change(Method::POST, "/v2/x", &[], None).await.unwrap_err().class, class, "{status}");
        let (http, _) = serve(vec![(status, &[], vec![])]).await;
        let change = http.change(Method::PUT, "/v2/x", &[], None).await.unwrap_err();
        assert_eq!(change.class, Class::Retry { after: None }, "{status}");
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = settings(format!("http://{}", listener.local_addr().unwrap()));
    drop(listener);
    let never_sent = Http::new(settings).unwrap().change(Method::POST, "/v2/x", &[], None).await.unwrap_err();
    assert_eq!(never_sent.class, Class::Retry { after: None }, "{never_sent}");
}

#[tokio::test]
async fn an_answer_without_end_is_given_up_on() {
    let (http, _) = serve(vec![(200, &[], vec![b' '; MAX_BODY_BYTES + 1])]).await;
    let trouble = http.get_bytes("/v2/x", &[]).await.unwrap_err();
    assert_eq!(trouble.to_string(), "GET /v2/x: Cloud's answer is larger than 64 MiB");
}

#[tokio::test]
async fn long_words_are_cut_and_redirects_are_not_followed() {
    let (http, _) = serve(vec![(302, &[("location", "http://127.0.0.1:1/")], vec![b'x'; 10_000])]).await;
    let trouble = http.get_bytes("/v2/x", &[]).await.unwrap_err();
    assert!(trouble.class == Class::Refused && trouble.to_string().chars().count() < 500, "{trouble}");
    assert!(!format!("{trouble:?}").contains("tok-secret"));
}

#[test]
fn pauses_are_read_in_every_form() {
    let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let pause = |pairs: &[(&'static str, &str)]| {
        let headers: HeaderMap = pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
        asked_pause(&headers, now).0.map(|pause| pause.as_secs())
    };
    assert_eq!(pause(&[("retry-after", "12")]), Some(12));
    assert_eq!(pause(&[("retry-after", "Thu, 01 Jan 2026 00:01:00 GMT")]), Some(60));
    assert_eq!(pause(&[("retry-after", "Wed, 31 Dec 2025 00:00:00 GMT")]), Some(0));
    assert_eq!(pause(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "1767225630")]), Some(30));
    assert_eq!(pause(&[("ratelimit-remaining", "99"), ("ratelimit-reset", "1767225630")]), None);
    assert_eq!(pause(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "4102444800")]), Some(24 * 3600));
    assert_eq!(pause(&[("retry-after", "1e30")]), Some(24 * 3600));
    for odd in ["soon", "-1", "NaN", ""] {
        assert_eq!(pause(&[("retry-after", odd)]), None, "{odd}");
    }
}

#[test]
fn segments_cannot_leave_their_place() {
    assert_eq!(segment("a/../b?c#d"), "a%2F..%2Fb%3Fc%23d");
    assert_eq!(segment(".."), "%2E%2E");
    assert_eq!(segment("batch-1_x.y"), "batch-1_x.y");
}

#[test]
fn bad_addresses_and_tokens_are_told_without_the_token() {
    let settings = |base_url: &str, token: &str| Settings {
        base_url: base_url.into(),
        foreign: false,
        authorization: SecretString::from(token.to_owned()),
        requests_per_second: 0.0,
        burst: 0,
        timeout: CALL_TIMEOUT,
        dialect: &Plain,
    };
    assert!(Http::new(settings("ftp://x", "t")).is_err());
    assert!(Http::new(settings("not an address", "t")).is_err());
    let trouble = Http::new(settings("https://x", "tok\nsecret")).err().unwrap();
    assert!(trouble.class == Class::Unauthorized && !format!("{trouble:?}").contains("secret"), "{trouble:?}");
    assert_eq!(limit("http://127.0.0.1:7070", 0, 20.0, 100).0, 100_000.0);
    assert_eq!(limit("https://api.civo.com", 0, 20.0, 100), (20.0, 100));
    assert_eq!(limit("http://127.0.0.1:7070", 5, 20.0, 100), (5.0, 5));
}
