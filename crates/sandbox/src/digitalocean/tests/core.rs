//! What is on offer, pages, and the rate limit.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::client::*;
use crate::{Config, Quota, Speed};

#[tokio::test]
async fn what_is_on_offer_can_be_listed() {
    let cloud = Cloud::instant().await;
    assert_eq!(cloud.get("/v2/account").await["account"]["status"], "active");
    let options = cloud.get("/v2/kubernetes/options").await;
    let slugs = |list: &Value| {
        list.as_array().unwrap().iter().map(|o| o["slug"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(slugs(&options["options"]["versions"]).contains(&"1.33.1-do.0".to_owned()));
    assert_eq!(options["options"]["versions"][0]["kubernetes_version"], "1.33.4");
    let regions = cloud.get("/v2/regions?per_page=200").await;
    assert_eq!(slugs(&regions["regions"]).len(), slugs(&options["options"]["regions"]).len());
    let sizes = cloud.get("/v2/sizes?per_page=200").await;
    assert!(slugs(&sizes["sizes"]).contains(&"s-1vcpu-2gb".to_owned()));
    assert_eq!(cloud.call(Method::GET, "/v2/nothing", None).await.0, 404);
    assert_eq!(cloud.call(Method::GET, "/v1/account", None).await.0, 404);
}

#[tokio::test]
async fn answers_carry_request_ids_and_the_state_of_the_rate_limit() {
    let cloud = Cloud::instant().await;
    let response = cloud.raw(Method::GET, "/v2/account", None).await;
    for header in ["x-request-id", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"] {
        assert!(response.headers().contains_key(header), "{header}");
    }
    let response = cloud.raw(Method::GET, "/v2/vpcs/none", None).await;
    let header = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["request_id"], header);
    assert_eq!(body["id"], "not_found");
}

#[tokio::test]
async fn a_spent_rate_limit_answers_429_until_the_minute_is_over() {
    let quota = Quota { requests_per_hour: 5_000, requests_per_minute: 3, ..Quota::default() };
    let cloud = Cloud::start(Config { quota, speed: Speed::Times(60.0), ..Config::default() }).await;
    for left in ["4999", "4998", "4997"] {
        let response = cloud.raw(Method::GET, "/v2/account", None).await;
        assert_eq!(response.headers()["ratelimit-remaining"], left);
    }
    let response = cloud.raw(Method::GET, "/v2/account", None).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["ratelimit-remaining"], "0");
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(response.json::<Value>().await.unwrap()["id"], "too_many_requests");
    tokio::time::sleep(std::time::Duration::from_secs(wait.min(2))).await;
    assert_eq!(cloud.call(Method::GET, "/v2/account", None).await.0, 200);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let cloud = Cloud::instant().await;
    for n in 0..5 {
        cloud.cluster(&format!("c{n}")).await;
    }
    let first = cloud.get("/v2/kubernetes/clusters?per_page=2").await;
    assert_eq!(first["kubernetes_clusters"].as_array().unwrap().len(), 2);
    assert_eq!(first["meta"]["total"], 5);
    assert!(first["links"]["pages"]["next"].as_str().unwrap().contains("page=2&per_page=2"), "{first}");
    assert!(first["links"]["pages"].get("prev").is_none());
    let last = cloud.get("/v2/kubernetes/clusters?page=3&per_page=2").await;
    assert_eq!(last["kubernetes_clusters"][0]["name"], "c4");
    assert!(last["links"]["pages"].get("next").is_none() && last["links"]["pages"]["prev"].is_string());
    let beyond = cloud.get("/v2/kubernetes/clusters?page=9&per_page=2").await;
    assert_eq!(beyond["kubernetes_clusters"], json!([]));
    let all = cloud.get("/v2/kubernetes/clusters?per_page=9999").await;
    assert_eq!((all["kubernetes_clusters"].as_array().unwrap().len(), &all["links"]), (5, &json!({})));
}
