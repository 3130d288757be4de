use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use crate::client::{Cloud, cloud, failing, refused, text};

async fn post_network(cloud: &Cloud, label: &str) -> reqwest::Result<reqwest::Response> {
    let body = json!({"label": label, "region": "FRA1"});
    cloud.request(Method::POST, "/v2/networks").json(&body).timeout(Duration::from_secs(5)).send().await
}

async fn labels(cloud: &Cloud) -> Vec<String> {
    let ledger = cloud.admin("ledger").await;
    let objects = ledger["objects"].as_array().expect("objects").iter();
    objects.filter(|o| o["type"] == "civo.network" && o["default"] == false).map(|o| text(&o["name"])).collect()
}

#[tokio::test]
async fn a_status_code_comes_with_the_clouds_own_body() {
    let cloud = failing(&["POST /v2/networks civo 503 times=1", "GET /v2/networks 429 retry-after=1 nth=2"]).await;
    refused(&cloud.post("/v2/networks", json!({"label": "a"})).await, 503, "service_unavailable");
    cloud.network("a").await;
    assert_eq!(cloud.get("/v2/networks").await.0, 200);
    let response = cloud.request(Method::GET, "/v2/networks?region=FRA1").send().await.expect("an answer");
    assert_eq!(response.headers().get("retry-after").map(|v| v.as_bytes()), Some(&b"1"[..]));
    assert_eq!(response.status(), 429);
    assert_eq!(cloud.get("/v2/networks").await.0, 200);
    assert_eq!(labels(&cloud).await, ["a"]);
}

#[tokio::test]
async fn a_dropped_connection_gets_no_answer() {
    let cloud = failing(&["POST /v2/networks drop-before nth=1", "POST /v2/networks drop-after nth=1"]).await;
    let error = post_network(&cloud, "before").await.expect_err("no answer");
    assert!(error.is_request() && error.status().is_none() && !error.is_timeout(), "{error:?}");
    assert!(labels(&cloud).await.is_empty(), "dropped before: nothing happened");
    let error = post_network(&cloud, "after").await.expect_err("no answer");
    assert!(!error.is_timeout(), "{error:?}");
    assert_eq!(labels(&cloud).await, ["after"], "dropped after: it happened");
    assert_eq!(post_network(&cloud, "third").await.expect("an answer").status(), 200);

    let events = cloud.admin("events").await;
    let brief: Vec<_> = events["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|e| (e["status"].as_u64(), e["took_effect"] == true))
        .collect();
    assert_eq!(brief, [(None, false), (None, true), (Some(200), true)]);
    assert_eq!(
        (&events["events"][1]["fault"], &events["events"][1]["path"]),
        (&json!("drop-after"), &json!("/v2/networks"))
    );
}

#[tokio::test]
async fn a_held_call_is_counted_until_its_client_goes_away() {
    let cloud = failing(&["mutating hold-after nth=1", "mutating hold-before nth=1"]).await;
    assert_eq!(cloud.admin("held").await["held"], 0);
    let (http, url) = (cloud.http.clone(), cloud.url.clone());
    let body = json!({"label": "held", "region": "FRA1"});
    let client = tokio::spawn(async move { http.post(format!("{url}/v2/networks")).json(&body).send().await.is_ok() });
    assert_eq!(cloud.admin("held?wait=10").await["held"], 1);
    assert_eq!(labels(&cloud).await, ["held"], "held after: it happened");
    client.abort();
    let begun = Instant::now();
    while cloud.admin("held").await["held"] != 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "still held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let wait = Duration::from_millis(200);
    let held = cloud.request(Method::DELETE, "/v2/networks/x?region=FRA1").timeout(wait).send().await;
    assert!(held.is_err_and(|e| e.is_timeout()), "held before: no answer");
    cloud.network("free").await;
}

#[tokio::test]
async fn a_delay_delays() {
    let cloud = failing(&["GET /v2/regions delay=150ms times=1"]).await;
    let begun = Instant::now();
    assert_eq!(cloud.get("/v2/regions").await.0, 200);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    let begun = Instant::now();
    assert_eq!(cloud.get("/v2/regions").await.0, 200);
    assert!(begun.elapsed() < Duration::from_millis(140));
}

#[tokio::test]
async fn quota_and_capacity_are_refused_in_the_clouds_words() {
    let cloud = failing(&["/v2/kubernetes/clusters quota times=1", "no-capacity=fra1"]).await;
    refused(&cloud.post("/v2/kubernetes/clusters", json!({"name": "a"})).await, 403, "quota_limit_reached");
    refused(&cloud.post("/v2/kubernetes/clusters", json!({"name": "a"})).await, 422, "out_of_capacity");
    let (status, _) = cloud.post("/v2/kubernetes/clusters", json!({"name": "a", "region": "LON1"})).await;
    assert_eq!(status, 200, "another region has room");
    cloud.network("a network needs no nodes").await;
}

#[tokio::test]
async fn a_stuck_cluster_stays_building() {
    let cloud = failing(&["POST /v2/kubernetes/clusters stuck nth=1"]).await;
    let (stuck, fine) = (cloud.cluster("stuck").await, cloud.cluster("fine").await);
    let shown = cloud.show(&stuck).await;
    assert_eq!(
        (&shown["status"], &shown["ready"], &shown["kubeconfig"]),
        (&json!("BUILDING"), &json!(false), &json!(""))
    );
    assert!(!cloud.sandbox.world().cluster_view(&stuck).expect("a view").api_up);
    assert_eq!(cloud.show(&fine).await["status"], "ACTIVE");
    assert_eq!(cloud.delete(&format!("/v2/kubernetes/clusters/{stuck}")).await.0, 200, "it can be deleted");
}

#[tokio::test]
async fn rules_are_replaced_while_it_runs() {
    let cloud = cloud().await;
    let faults = format!("{}/_sandbox/faults", cloud.url);
    let (status, set) =
        cloud.send(cloud.http.post(&faults).body("# one\nGET /v2/regions 500\n\nmutating delay=1ms\n")).await;
    assert_eq!((status, &set["faults"][0]["rule"]), (200, &json!("GET /v2/regions 500")));
    let (status, body) = cloud.get("/v2/regions").await;
    assert_eq!((status, &body["status"]), (500, &json!(500)));
    let (status, error) = cloud.send(cloud.http.post(&faults).body("GET /v2/regions 500\nexplode")).await;
    assert!(status == 400 && error.as_str().is_some_and(|e| e.contains("`explode` is not known")), "{error}");
    assert_eq!(cloud.admin("faults").await["faults"][0]["struck"], 1, "a wrong set changes nothing");
    assert_eq!(cloud.send(cloud.http.delete(&faults)).await.1, json!({"faults": []}));
    assert_eq!(cloud.get("/v2/regions").await.0, 200);
}

/// A client that looks before it tries again gets through any storm, and finds each object once.
#[tokio::test]
async fn random_failures_lose_and_double_nothing() {
    let cloud = failing(&["random=0.3"]).await;
    for n in 0..30 {
        let label = format!("n{n}");
        let mut tries = 0;
        loop {
            tries += 1;
            assert!(tries < 50, "{label} never got through");
            let url = "/v2/networks?region=FRA1";
            let Ok(response) = cloud.request(Method::GET, url).send().await else { continue };
            if response.status() != 200 {
                continue;
            }
            let Ok(list) = response.json::<serde_json::Value>().await else { continue };
            if list.as_array().is_some_and(|l| l.iter().any(|n| n["label"] == label.as_str())) {
                break;
            }
            let _ = post_network(&cloud, &label).await;
        }
    }
    let mut found = labels(&cloud).await;
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 30);
    assert_eq!(cloud.admin("ledger").await["totals"]["civo.network"]["created"], 36);
}
