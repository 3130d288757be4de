//! What is wrong is told in full, in the form that each caller understands.

use crate::world::{World, read, vpc};
use berth_server::{Code, Fault, pb};
use reqwest::{Method, header};
use serde_json::{Value, json};

fn is_problem(status: u16, body: &Value, code: &str) {
    assert_eq!(body["type"], format!("https://berth.dev/problems/{code}"), "{body:#}");
    assert_eq!(body["status"], status, "{body:#}");
    for field in ["title", "detail", "instance"] {
        assert!(body[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {body:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_has_its_own_answer() {
    let world = World::quiet().await;
    // The body.
    for (body, path) in [
        (json!({"fles": []}), "fles"),
        (json!({"files": [{"name": 1, "text": ""}]}), "files[0].name"),
        (json!({"files": {}}), "files"),
        (json!({"files": [{"name": "a", "text": "b", "mode": 1}]}), "files[0].mode"),
        (json!({"bases": [{"id": {"kind": "A", "name": "b"}, "generation": "1"}]}), "bases[0].generation"),
        (json!({"dryRun": "yes"}), "dryRun"),
        (json!({"files": null}), "files"),
        (json!([]), ""),
    ] {
        let (status, answer) = world.post("/v1/resources", body).await;
        assert_eq!(status, 400, "{answer:#}");
        is_problem(400, &answer, "invalid-argument");
        assert_eq!(answer["problems"][0]["path"], path, "{answer:#}");
    }
    let (_, answer) = world.post("/v1/resources", json!({"fles": []})).await;
    assert!(answer["detail"].as_str().unwrap().contains("did you mean `files`?"), "{answer:#}");
    // The query.
    for (query, path) in [
        ("pageSize=x", "pageSize"),
        ("pageSize=1001", "pageSize"),
        ("pagesize=1", "pagesize"),
        ("exactScope=1", "exactScope"),
        ("kind=A&kind=B", "kind"),
        ("pageToken=zz", "pageToken"),
        ("labelSelector=a%20b", "labelSelector"),
        ("fieldSelector=colour%3Dred", "fieldSelector"),
    ] {
        let (status, answer) = world.get(&format!("/v1/resources?{query}")).await;
        assert_eq!(status, 400, "{query}: {answer:#}");
        assert_eq!(answer["problems"][0]["path"], path, "{query}: {answer:#}");
    }
    // What is not there, and what is not understood.
    let (status, answer) = world.get("/v1/nothing").await;
    is_problem(status, &answer, "not-found");
    let (status, answer) = world.get("/v1/resources/CivoVpc/none").await;
    is_problem(status, &answer, "not-found");
    let response = world.request(Method::PUT, "/v1/resources").send().await.unwrap();
    assert_eq!(response.headers()[header::ALLOW], "POST, GET, HEAD");
    let (status, answer) = read(response).await;
    is_problem(status, &answer, "method-not-allowed");
    let request = world.request(Method::GET, "/v1/resources").header(header::ACCEPT, "text/html");
    let (status, answer) = read(request.send().await.unwrap()).await;
    is_problem(status, &answer, "not-acceptable");
    let request = world.request(Method::POST, "/v1/resources").header(header::CONTENT_TYPE, "text/yaml").body("a: b");
    let (status, answer) = read(request.send().await.unwrap()).await;
    is_problem(status, &answer, "unsupported-media-type");
    let large = world.request(Method::POST, "/v1/resources").header(header::CONTENT_TYPE, "application/json");
    let (status, answer) = read(large.body(vec![b' '; 33 << 20]).send().await.unwrap()).await;
    is_problem(status, &answer, "too-large");
    // Without a token, and with a bad one.
    for token in [None, Some("berth_nonsense")] {
        let mut request = world.http.get(world.url("/v1/resources"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.unwrap();
        assert!(response.headers()[header::WWW_AUTHENTICATE].to_str().unwrap().starts_with("Bearer"));
        let (status, answer) = read(response).await;
        assert_eq!(status, 401);
        is_problem(status, &answer, "unauthenticated");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_refused_with_their_places() {
    let world = World::quiet().await;
    let text =
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: a}\nspec:\n  networkName: a\n  regin: fra1\n";
    let (status, answer) = world.apply(text).await;
    assert_eq!(status, 422, "{answer:#}");
    is_problem(status, &answer, "invalid-manifest");
    let unknown = answer["problems"].as_array().unwrap().iter().find(|one| one["line"] == 6).expect("a place");
    assert_eq!((&unknown["file"], &unknown["column"]), (&json!("a.yaml"), &json!(3)), "{answer:#}");
    assert_eq!(unknown["path"], "spec.regin");

    // What a manifest refers to has to be there; what was meant is said.
    let (status, _) = world.apply(&vpc("shop-net")).await;
    assert_eq!(status, 200);
    let firewall = "apiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {name: fw}\n\
                    spec: {name: fw, networkId: {valueFrom: {name: shop-nett}}}\n";
    let (status, answer) = world.apply(firewall).await;
    assert_eq!(status, 422, "{answer:#}");
    let problem = &answer["problems"][0];
    assert!(problem["message"].as_str().unwrap().starts_with("nothing named `shop-nett`"), "{answer:#}");
    assert!(answer.to_string().contains("shop-net"), "{answer:#}");
    // Nothing was stored of it.
    assert_eq!(world.get("/v1/resources/CivoFirewall/fw").await.0, 404);

    // By gRPC the same.
    let client = world.grpc(&world.token).await;
    let file = pb::ManifestFile { name: "a.yaml".into(), text: text.into() };
    let request = pb::ApplyRequest { files: vec![file], ..Default::default() };
    let fault = Fault::from_status(&client.resources().apply(request).await.unwrap_err());
    assert_eq!(fault.code, Code::InvalidManifest);
    assert!(fault.problems.iter().any(|problem| problem.line == 6 && problem.column == 3), "{fault:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_changes_at_once_are_merged_or_told() {
    let world = World::quiet().await;
    let manifest = |labels: &str, cidr: &str| {
        format!(
            "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net, labels: {{{labels}}}}}\n\
             spec: {{networkName: net, region: fra1, ipRangeCidr: {cidr}}}\n"
        )
    };
    let apply = |text: String, generation: i64| {
        let body = json!({
            "files": [{"name": "a.yaml", "text": text}],
            "bases": [{"id": {"kind": "CivoVpc", "name": "net"}, "generation": generation}],
        });
        world.post("/v1/resources", body)
    };
    let (status, answer) = apply(manifest("a: x", "10.0.0.0/24"), 0).await;
    assert_eq!((status, &answer["resources"][0]["result"]), (200, &json!("created")), "{answer:#}");
    // Someone who did not know of it.
    let (status, answer) = apply(manifest("a: y", "10.0.0.0/24"), 0).await;
    is_problem(status, &answer, "conflict");
    // Two who change different fields.
    assert_eq!(apply(manifest("a: y", "10.0.0.0/24"), 1).await.0, 200);
    let (status, answer) = apply(manifest("a: x", "10.1.0.0/24"), 1).await;
    assert_eq!((status, &answer["resources"][0]["generation"]), (200, &json!(3)), "{answer:#}");
    let (_, stored) = world.get("/v1/resources/CivoVpc/net").await;
    assert_eq!(stored["manifest"]["metadata"]["labels"]["a"], "y", "{stored:#}");
    assert_eq!(stored["manifest"]["spec"]["ipRangeCidr"], "10.1.0.0/24", "{stored:#}");
    // Two who change the same one.
    let (status, answer) = apply(manifest("a: z", "10.0.0.0/24"), 1).await;
    is_problem(status, &answer, "conflict");
    let conflict = &answer["conflicts"][0];
    assert_eq!(
        (&conflict["field"], &conflict["yours"], &conflict["stored"]),
        (&json!("metadata.labels.a"), &json!("z"), &json!("y")),
        "{answer:#}"
    );
    assert!(conflict["by"].as_str().is_some_and(|by| !by.is_empty()), "{answer:#}");
    // Whoever carries out what they saw wants no merge.
    let exact = |labels: &str, bases: serde_json::Value| {
        let files = json!([{"name": "a.yaml", "text": manifest(labels, "10.1.0.0/24")}]);
        world.post("/v1/resources", json!({"files": files, "bases": bases, "exact": true}))
    };
    let base = |generation: i64| json!([{"id": {"kind": "CivoVpc", "name": "net"}, "generation": generation}]);
    let (status, answer) = exact("b: new, a: y", base(2)).await;
    is_problem(status, &answer, "conflict");
    let (status, answer) = exact("b: new, a: y", json!([])).await;
    is_problem(status, &answer, "invalid-argument");
    assert_eq!(exact("b: new, a: y", base(3)).await.0, 200);
    world.stop().await;
}
