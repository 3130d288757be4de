use std::collections::HashSet;

use serde_json::json;

use crate::client::{cloud, text};

const FLEET: usize = 5_000;

/// Work is bounded by pages, not by the fleet: counted in calls and bytes, not in time.
#[tokio::test]
async fn a_fleet_is_listed_page_by_page() {
    let cloud = cloud().await;
    for n in 0..FLEET {
        let body = json!({"name": format!("c{n}"), "pools": [{"id": "main", "count": 1, "size": "g4s.kube.small"}]});
        let (status, _) = cloud.post("/v2/kubernetes/clusters", body).await;
        assert_eq!(status, 200);
    }
    cloud.sandbox.world().traffic(berth_sandbox::civo::NAME).reset();
    let (mut seen, mut page, mut pages) = (HashSet::new(), 1, 1);
    while page <= pages {
        let (_, listed) = cloud.get(&format!("/v2/kubernetes/clusters?page={page}&per_page=100")).await;
        let items = listed["items"].as_array().expect("items");
        assert_eq!((items.len(), &listed["page"], &listed["per_page"]), (100, &json!(page), &json!(100)));
        assert_eq!(items[0]["name"], format!("c{}", (page - 1) * 100), "oldest first");
        seen.extend(items.iter().map(|item| text(&item["id"])));
        pages = listed["pages"].as_u64().expect("pages");
        page += 1;
    }
    assert_eq!((seen.len(), pages), (FLEET, 50));
    assert_eq!(cloud.sandbox.world().traffic(berth_sandbox::civo::NAME).total(), 50);

    let (_, greedy) = cloud.get("/v2/kubernetes/clusters?per_page=5000").await;
    assert_eq!(greedy["items"].as_array().map(Vec::len), Some(100), "a page has at most 100");
    let (_, beyond) = cloud.get("/v2/kubernetes/clusters?page=51&per_page=100").await;
    assert_eq!((beyond["items"].as_array().map(Vec::len), &beyond["pages"]), (Some(0), &json!(50)));
    let (_, odd) = cloud.get("/v2/kubernetes/clusters?page=-3&per_page=x").await;
    assert_eq!((&odd["page"], &odd["per_page"]), (&json!(1), &json!(20)));
    let (_, last) = cloud.get("/v2/kubernetes/clusters?page=18446744073709551615&per_page=100").await;
    assert_eq!(last["items"], json!([]));
}
