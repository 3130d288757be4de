//! From a manifest to Ready and back to nothing, by REST alone; events, plans, secrets.

use crate::postgres;
use crate::world::{World, vpc};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

const CLUSTER: &str = "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {name: shop, labels: {team: shop}}\n\
spec:\n  clusterName: shop\n  region: fra1\n  kubernetesVersion: 1.29.0+k3s1\n  network: {valueFrom: {name: net}}\n  defaultNodePool: {size: g4s.kube.medium, nodeCount: 3}\n";

fn count(body: &Value) -> usize {
    body["resources"].as_array().unwrap().len()
}

/// By kind, label, field, page.
async fn lists_are_selected_and_paged(world: &World) {
    for (query, expected) in [
        ("", 2),
        ("?kind=civovpc", 1),
        ("?labelSelector=team%3Dshop", 1),
        ("?labelSelector=team!%3Dshop", 1),
        ("?fieldSelector=state%3DReady", 2),
        ("?fieldSelector=spec.region%3Dlon1", 0),
        ("?exactScope=true&org=acme", 0),
    ] {
        let (status, body) = world.get(&format!("/v1/resources{query}")).await;
        assert_eq!((status, count(&body)), (200, expected), "{query}: {body:#}");
    }
    let (_, first) = world.get("/v1/resources?pageSize=1").await;
    let (_, second) =
        world.get(&format!("/v1/resources?pageSize=1&pageToken={}", first["nextPageToken"].as_str().unwrap())).await;
    assert_ne!(first["resources"][0]["id"], second["resources"][0]["id"]);
}

/// Hidden, then shown to those who ask by name, and written down.
async fn secrets_are_shown_by_name(world: &World, cluster: &Value) {
    let (_, outputs) = world.get("/v1/resources/CivoKubernetesCluster/shop/outputs").await;
    let secret = cluster["secretOutputs"][0].as_str().unwrap();
    assert_eq!(outputs["outputs"][secret], "(secret)", "{outputs:#}");
    let (_, outputs) = world.get(&format!("/v1/resources/CivoKubernetesCluster/shop/outputs?secrets={secret}")).await;
    assert!(outputs["outputs"][secret].as_str().unwrap().len() > 20);
    let (status, kubeconfig) = world.get("/v1/resources/CivoKubernetesCluster/shop/kubeconfig").await;
    assert_eq!(status, 200, "{kubeconfig:#}");
    assert!(kubeconfig["kubeconfig"].as_str().unwrap().contains("clusters:"));
    let (_, audit) = world.get("/v1/audit").await;
    let actions: Vec<&str> =
        audit["entries"].as_array().unwrap().iter().filter_map(|entry| entry["action"].as_str()).collect();
    for action in ["apply", "outputs", "kubeconfig"] {
        assert!(actions.contains(&action), "{action} is not in {audit:#}");
    }
}

/// What is going on, and what happened.
async fn work_is_told(world: &World) {
    let (_, units) = world.get("/v1/resources/CivoKubernetesCluster/shop/units").await;
    assert!(units["units"][0]["objectId"].as_str().is_some_and(|id| !id.is_empty()), "{units:#}");
    let (_, history) = world.get("/v1/resources/CivoKubernetesCluster/shop/history").await;
    assert!(history["lines"].as_array().unwrap().iter().any(|line| line["outcome"] == "done"), "{history:#}");
    let (_, tasks) = world.get("/v1/tasks?state=done&kind=CivoKubernetesCluster").await;
    let task = &tasks["tasks"][0];
    assert_eq!((&task["op"], &task["resource"]["name"]), (&json!("apply"), &json!("shop")), "{tasks:#}");
    assert_eq!(world.get(&format!("/v1/tasks/{}", task["id"].as_str().unwrap())).await.0, 200);
    assert_eq!(world.get("/v1/tasks/none").await.0, 404);
    let (_, workers) = world.get("/v1/workers").await;
    assert_eq!(workers["workers"].as_array().unwrap().len(), 1, "{workers:#}");
}

/// Plans change nothing and say what would change; drift finds nothing.
async fn plans_and_drift_are_told(world: &World) {
    let body = json!({"files": [{"name": "a.yaml", "text": CLUSTER.replace("nodeCount: 3", "nodeCount: 5")}]});
    let (status, plan) = world.post("/v1/plans", body).await;
    assert_eq!(status, 200, "{plan:#}");
    assert_eq!(plan["plan"]["summary"]["update"], 1, "{plan:#}");
    assert_eq!(plan["bases"][0]["generation"], 1, "{plan:#}");
    assert!(!plan["digest"].as_str().unwrap().is_empty());
    let (status, last) = world.get("/v1/resources/CivoKubernetesCluster/shop/plan").await;
    assert_eq!(status, 200, "{last:#}");
    let (status, drift) = world.post("/v1/drift", json!({})).await;
    assert_eq!(
        (status, &drift["checked"], drift["drifted"].as_array().unwrap().len()),
        (200, &json!(2), 0),
        "{drift:#}"
    );
}

async fn from_a_manifest_to_ready_and_back(world: World) {
    let text = format!("{}---\n{CLUSTER}", vpc("net"));
    let (status, answer) = world.apply(&text).await;
    assert_eq!(status, 200, "{answer:#}");
    let results: Vec<&Value> = answer["resources"].as_array().unwrap().iter().map(|one| &one["result"]).collect();
    assert_eq!(results, ["created", "created"]);
    let cluster = world.ready("/v1/resources/civokubernetescluster/shop").await;
    assert_eq!((&cluster["generation"], &cluster["observedGeneration"]), (&json!(1), &json!(1)));
    assert_eq!(cluster["appliedBy"], "token:first-admin", "{cluster:#}");
    assert!(cluster["secretOutputs"].to_string().contains("kubeconfig"), "{cluster:#}");

    lists_are_selected_and_paged(&world).await;
    secrets_are_shown_by_name(&world, &cluster).await;
    work_is_told(&world).await;
    plans_and_drift_are_told(&world).await;

    // A parent is not deleted under its children, unless they go with it.
    let (status, refused) = world.delete("/v1/resources/CivoVpc/net").await;
    assert_eq!(status, 409, "{refused:#}");
    assert!(refused["detail"].as_str().unwrap().contains("CivoKubernetesCluster/shop"), "{refused:#}");
    let (status, deleting) = world.delete("/v1/resources/CivoVpc/net?cascade=true").await;
    assert_eq!((status, deleting["deleting"].as_array().unwrap().len()), (200, 2), "{deleting:#}");
    world.until("/v1/resources", |_, body| count(body) == 0).await;
    let metrics = world.http.get(world.url("/metrics")).send().await.unwrap().text().await.unwrap();
    for line in ["berth_requests_total{method=\"Resources.Apply\",protocol=\"rest\",code=\"200\"} 1", "berth_workers 1"]
    {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_manifest_to_ready_and_back_on_sqlite() {
    from_a_manifest_to_ready_and_back(World::busy().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_manifest_to_ready_and_back_on_postgresql() {
    let server = tokio::task::spawn_blocking(postgres::shared).await.unwrap();
    from_a_manifest_to_ready_and_back(World::busy_on(Some(server.database().await)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_a_cloud_is_taken_over_as_it_is() {
    let world = World::busy().await;
    assert_eq!(world.apply(&format!("{}---\n{CLUSTER}", vpc("net"))).await.0, 200);
    world.ready("/v1/resources/CivoKubernetesCluster/shop").await;
    let (_, units) = world.get("/v1/resources/CivoVpc/net/units").await;
    let object = units["units"][0]["objectId"].as_str().unwrap();
    let body = json!({"kind": "CivoVpc", "name": "other", "objectId": object});
    let (status, taken) = world.post("/v1/imports", body).await;
    assert_eq!(status, 409, "{taken:#}");
    // Another server that knows nothing of it, before the same clouds.
    let simulated = world.running.server.config.simulated.clone();
    let other = World::with(|config| config.simulated = simulated).await;
    let (status, imported) = other.post("/v1/imports", json!({"provider": "civo"})).await;
    assert_eq!(status, 200, "{imported:#}");
    let kinds: Vec<&str> =
        imported["resources"].as_array().unwrap().iter().map(|one| one["id"]["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"CivoKubernetesCluster") && kinds.contains(&"CivoVpc"), "{imported:#}");
    for one in imported["resources"].as_array().unwrap() {
        let (kind, name) = (one["id"]["kind"].as_str().unwrap(), one["id"]["name"].as_str().unwrap());
        other.ready(&format!("/v1/resources/{kind}/{name}")).await;
        let (_, applied) = other.apply(one["text"].as_str().unwrap()).await;
        assert_eq!(applied["resources"][0]["result"], "unchanged", "{applied:#}");
    }
    other.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_events_goes_on_where_it_broke_off() {
    let world = World::quiet().await;
    assert_eq!(world.apply(&vpc("one")).await.0, 200);
    let (_, listed) = world.get("/v1/events").await;
    let first = listed["events"][0]["id"].as_i64().unwrap();

    let response = world.request(Method::GET, "/v1/events/watch?after=0").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response;
    let mut seen = String::new();
    while !seen.contains("\"created\"") {
        let bytes = timeout(Duration::from_secs(10), stream.chunk()).await.expect("an event").unwrap().unwrap();
        seen.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(seen.contains(&format!("id: {first}\ndata: {{")), "{seen}");
    // Live.
    assert_eq!(world.apply(&vpc("two")).await.0, 200);
    seen.clear();
    while !seen.contains("\"two\"") {
        let bytes = timeout(Duration::from_secs(10), stream.chunk()).await.expect("an event").unwrap().unwrap();
        seen.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    drop(stream);
    // Resumed: what was seen is not sent again.
    let (_, listed) = world.get("/v1/events?newest=true").await;
    let last = listed["events"][0]["id"].as_i64().unwrap();
    assert_eq!(world.apply(&vpc("three")).await.0, 200);
    let request = world.request(Method::GET, "/v1/events/watch").header("last-event-id", last.to_string());
    let mut stream = request.send().await.unwrap();
    let mut seen = String::new();
    while !seen.contains("\"three\"") {
        let bytes = timeout(Duration::from_secs(10), stream.chunk()).await.expect("an event").unwrap().unwrap();
        seen.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(!seen.contains("\"two\"") && !seen.contains("\"one\""), "{seen}");
    // A server that stops says so, and does not wait for its watchers.
    let rest = tokio::spawn(async move {
        let mut text = String::new();
        while let Ok(Some(bytes)) = stream.chunk().await {
            text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        text
    });
    timeout(Duration::from_secs(10), world.stop()).await.expect("it stops");
    let text = timeout(Duration::from_secs(5), rest).await.expect("the stream ends").unwrap();
    assert!(text.contains("event: problem") && text.contains("/unavailable"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_outside_a_scope_is_not_there() {
    let world = World::quiet().await;
    let text = |env: &str| {
        format!(
            "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net, org: acme, env: {env}}}\nspec: {{networkName: n, region: fra1}}\n"
        )
    };
    for env in ["dev", "prod"] {
        assert_eq!(world.apply(&text(env)).await.0, 200);
    }
    let dev = World { token: world.token("operator", "acme", "dev").await, ..world };
    let (_, list) = dev.get("/v1/resources").await;
    assert_eq!(list["resources"].as_array().unwrap().len(), 1, "{list:#}");
    assert_eq!(dev.get("/v1/resources/CivoVpc/net?org=acme&env=dev").await.0, 200);
    assert_eq!(dev.get("/v1/resources/CivoVpc/net?org=acme&env=prod").await.0, 404);
    assert_eq!(dev.apply(&text("dev")).await.0, 200);
    assert_eq!(dev.apply(&text("prod")).await.0, 403);
    let (_, events) = dev.get("/v1/events").await;
    assert!(!events.to_string().contains("prod"), "{events:#}");
    let account = "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {name: a, org: acme, env: dev}\nspec: {provider: civo, civo: {token: {fromEnv: X}}}\n";
    assert_eq!(dev.apply(account).await.0, 403);
    dev.stop().await;
}
