//! Sandbox clusters as the real kubectl and HTTP clients see them.

mod behaving;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{Config, Sandbox, Speed};

/// A sandbox with one running cluster, and files to run kubectl with.
struct Lab {
    sandbox: Sandbox,
    cluster: String,
    folder: tempfile::TempDir,
}

const MANIFEST: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: agent, namespace: kube-system}
---
apiVersion: v1
kind: Secret
metadata: {name: agent, namespace: kube-system}
stringData: {key: value}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: agent, namespace: kube-system}
data: {a: "1", b: "2"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: agent, namespace: kube-system, labels: {app: agent}}
spec:
  replicas: 2
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      serviceAccountName: agent
      tolerations: [{key: only, operator: Exists}]
      containers:
      - {name: main, image: "example.com/agent:1", env: [{name: A, value: "1"}, {name: B, value: "2"}], ports: [{containerPort: 80}]}
"#;

impl Lab {
    async fn start() -> Lab {
        Lab::with(Config { speed: Speed::Instant, ..Config::default() }).await
    }

    async fn with(config: Config) -> Lab {
        let sandbox = Sandbox::start(config).await.unwrap();
        let body = json!({
            "name": "lab", "region": "fra1", "version": "1.33.1-do.0",
            "node_pools": [{"name": "main", "size": "s-2vcpu-4gb", "count": 2, "labels": {"tier": "web"},
                            "taints": [{"key": "only", "value": "us", "effect": "NoSchedule"}]}],
        });
        let url = format!("{}/v2/kubernetes/clusters", sandbox.url(crate::digitalocean::NAME));
        let made: Value = reqwest::Client::new().post(url).json(&body).send().await.unwrap().json().await.unwrap();
        let cluster = made["kubernetes_cluster"]["id"].as_str().unwrap().to_owned();
        let folder = tempfile::tempdir().unwrap();
        let lab = Lab { sandbox, cluster, folder };
        std::fs::write(lab.file("kubeconfig"), super::kubeconfig(&lab.sandbox.kube, &lab.cluster, "lab")).unwrap();
        std::fs::write(lab.file("manifest.yaml"), MANIFEST).unwrap();
        lab
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs kubectl, which must be installed: the sandbox promises to work with it.
    async fn try_kubectl(&self, arguments: &str) -> (bool, String) {
        let arguments = arguments.split_whitespace();
        let run = Command::new("kubectl")
            .args(arguments)
            .env("KUBECONFIG", self.file("kubeconfig"))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_secs(60), run)
            .await
            .expect("kubectl took too long")
            .expect("kubectl is installed");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), text)
    }

    async fn kubectl(&self, arguments: &str) -> String {
        let (ok, text) = self.try_kubectl(arguments).await;
        assert!(ok, "kubectl {arguments}: {text}");
        text
    }

    /// An HTTP client that shows the administrator's certificate, and the cluster's address.
    fn client(&self) -> (reqwest::Client, String) {
        let kube = &self.sandbox.kube;
        let (certificate, key) = kube.client_pem();
        let identity = reqwest::Identity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap();
        (trusting(kube.ca_pem()).identity(identity).build().unwrap(), super::endpoint(kube, &self.cluster))
    }

    async fn nodes(&self) -> Vec<String> {
        let names = self.kubectl("get nodes -o name").await;
        names.lines().map(|line| line.trim_start_matches("node/").to_owned()).collect()
    }
}

fn trusting(ca: &str) -> reqwest::ClientBuilder {
    reqwest::Client::builder().add_root_certificate(reqwest::Certificate::from_pem(ca.as_bytes()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_looks_around() {
    let lab = Lab::start().await;
    let version = lab.kubectl("version").await;
    assert!(version.contains("Server Version: v1.33.1"), "{version}");
    let nodes = lab.kubectl("get nodes").await;
    assert!(nodes.starts_with("NAME") && nodes.matches(" Ready ").count() == 2 && nodes.contains("v1.33.1"), "{nodes}");
    let wide = lab.kubectl("get nodes -o wide").await;
    assert!(wide.contains("CONTAINER-RUNTIME") && wide.contains("containerd://"), "{wide}");
    let all: Value = serde_json::from_str(&lab.kubectl("get nodes -l tier=web -o json").await).unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    assert_eq!(all["items"][0]["spec"]["taints"], json!([{"key": "only", "value": "us", "effect": "NoSchedule"}]));
    assert!(lab.kubectl("get nodes -o yaml").await.contains("kubeletVersion: v1.33.1"));
    let node = lab.nodes().await.remove(0);
    let described = lab.kubectl(&format!("describe node {node}")).await;
    assert!(described.contains("KubeletReady") && described.contains("only=us:NoSchedule"), "{described}");
    let info = lab.kubectl("cluster-info").await;
    assert!(info.contains("Kubernetes control plane") && info.contains("CoreDNS"), "{info}");
    assert!(lab.kubectl("get ns").await.contains("kube-system"));
    let resources = lab.kubectl("api-resources").await;
    assert!(
        resources.contains("deployments")
            && resources.contains("poddisruptionbudgets")
            && resources.contains("storageclasses")
    );
    for path in ["/readyz", "/livez", "/healthz"] {
        assert_eq!(lab.kubectl(&format!("get --raw {path}")).await, "ok");
    }
    assert!(lab.kubectl("get --raw /version").await.contains("\"gitVersion\":\"v1.33.1\""));
    assert!(lab.kubectl("auth can-i create deployments").await.contains("yes"));
    assert!(lab.kubectl("auth whoami").await.contains("system:masters"));
    assert!(lab.kubectl("get all -A").await.contains("deployment.apps/coredns"));
    let (ok, text) = lab.try_kubectl("get pod nothing").await;
    assert!(!ok && text.contains("pods \"nothing\" not found"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_applies_changes_and_deletes() {
    let lab = Lab::start().await;
    let applied = lab.kubectl("apply -f manifest.yaml").await;
    assert_eq!(applied.matches(" created").count(), 5, "{applied}");
    let again = lab.kubectl("apply -f manifest.yaml").await;
    // kubectl sends stringData again each time, so a secret may show as configured.
    assert!(again.matches(" unchanged").count() >= 4, "{again}");
    let deployment = lab.kubectl("get deploy agent -n kube-system").await;
    assert!(deployment.contains("2/2"), "{deployment}");
    lab.kubectl("rollout status deployment/agent -n kube-system --timeout=20s").await;
    lab.kubectl("wait --for=condition=Available deployment/agent -n kube-system --timeout=20s").await;
    assert_eq!(lab.kubectl("get secret agent -n kube-system -o jsonpath={.data.key}").await, "dmFsdWU=");

    // A changed manifest takes away what it no longer says, and keeps what others set.
    lab.kubectl("annotate deployment agent -n kube-system note=mine").await;
    std::fs::write(lab.file("manifest.yaml"), MANIFEST.replace("{name: B, value: \"2\"}", "{name: C, value: \"3\"}"))
        .unwrap();
    assert!(lab.kubectl("apply -f manifest.yaml").await.contains("deployment.apps/agent configured"));
    let changed: Value = serde_json::from_str(&lab.kubectl("get deploy agent -n kube-system -o json").await).unwrap();
    let names: Vec<&str> = changed["spec"]["template"]["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["A", "C"]);
    assert_eq!(changed["metadata"]["annotations"]["note"], "mine");
    assert_eq!(changed["metadata"]["generation"], 2);

    lab.kubectl("scale deployment agent -n kube-system --replicas=3").await;
    assert!(lab.kubectl("get deploy -n kube-system").await.contains("3/3"));
    lab.kubectl("apply --server-side --force-conflicts -f manifest.yaml").await;
    assert!(lab.kubectl("get deploy -n kube-system").await.contains("2/2"));
    lab.kubectl("create namespace shop").await;
    lab.kubectl("create configmap c -n shop --from-literal=a=b").await;
    lab.kubectl("create secret generic s -n shop --from-literal=a=b").await;
    lab.kubectl("create serviceaccount sa -n shop").await;
    lab.kubectl("create deployment web -n shop --image=nginx:1.27 --replicas=2 --port=80").await;
    lab.kubectl("create clusterrolebinding sa --clusterrole=view --serviceaccount=shop:sa").await;
    assert_eq!(lab.kubectl("get secret s -n shop -o jsonpath={.data.a}").await, "Yg==");
    // The nodes are kept for pods that tolerate their taint.
    assert!(lab.kubectl("get deploy web -n shop").await.contains("0/2"));
    let why = lab.kubectl("describe pods -n shop").await;
    assert!(why.contains("0/2 nodes are available: 2 node(s) had untolerated taint {only: us}."), "{why}");
    assert!(lab.kubectl("get clusterrolebinding sa -o wide").await.contains("ClusterRole/view"));
    let (ok, text) = lab.try_kubectl("create namespace shop").await;
    assert!(!ok && text.contains("already exists"), "{text}");
    lab.kubectl("delete namespace shop").await;
    let (ok, _) = lab.try_kubectl("get configmap c -n shop").await;
    assert!(!ok);
    let deleted = lab.kubectl("delete -f manifest.yaml").await;
    assert_eq!(deleted.matches(" deleted").count(), 5, "{deleted}");
    let (ok, text) = lab.try_kubectl("get deploy agent -n kube-system").await;
    assert!(!ok && text.contains("NotFound"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_works_on_nodes() {
    let lab = Lab::start().await;
    let node = lab.nodes().await.remove(0);
    lab.kubectl(&format!("cordon {node}")).await;
    assert!(lab.kubectl(&format!("get node {node}")).await.contains("Ready,SchedulingDisabled"));
    let placed = format!("{{\"spec\":{{\"nodeName\":\"{node}\"}}}}");
    lab.kubectl(&format!("run web --image=nginx:1.27 --overrides={placed}")).await;
    let drained = lab.kubectl(&format!("drain {node} --force --ignore-daemonsets --timeout=30s")).await;
    assert!(drained.contains("pod/web evicted") && drained.contains("drained"), "{drained}");
    lab.kubectl(&format!("uncordon {node}")).await;
    lab.kubectl(&format!("label node {node} disk=fast tier=db --overwrite")).await;
    lab.kubectl(&format!("taint node {node} mine=1:NoExecute")).await;
    let seen: Value = serde_json::from_str(&lab.kubectl(&format!("get node {node} -o json")).await).unwrap();
    assert_eq!(seen["metadata"]["labels"]["disk"], "fast");
    let keys: Vec<&str> =
        seen["spec"]["taints"].as_array().unwrap().iter().map(|t| t["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"only") && keys.contains(&"mine"), "{keys:?}");

    // What the cloud removes goes from the cluster; what it adds comes.
    let pools =
        format!("{}/v2/kubernetes/clusters/{}/node_pools", lab.sandbox.url(crate::digitalocean::NAME), lab.cluster);
    let client = reqwest::Client::new();
    let list: Value = client.get(&pools).send().await.unwrap().json().await.unwrap();
    let pool = format!("{pools}/{}", list["node_pools"][0]["id"].as_str().unwrap());
    client.put(&pool).json(&json!({"count": 3, "labels": {"tier": "api"}})).send().await.unwrap();
    let after: Value = serde_json::from_str(&lab.kubectl("get nodes -o json").await).unwrap();
    assert_eq!(after["items"].as_array().unwrap().len(), 3);
    assert!(after["items"].as_array().unwrap().iter().all(|node| node["metadata"]["labels"]["tier"] == "api"));
    client.put(&pool).json(&json!({"count": 1})).send().await.unwrap();
    assert_eq!(lab.nodes().await.len(), 1);
}

#[tokio::test]
async fn strangers_are_turned_away() {
    let lab = Lab::start().await;
    let (client, endpoint) = lab.client();
    let stranger = trusting(lab.sandbox.kube.ca_pem()).build().unwrap();
    let response = stranger.get(format!("{endpoint}/api/v1/nodes")).send().await.unwrap();
    assert_eq!(response.status(), 401);
    let body: Value = response.json().await.unwrap();
    assert_eq!(
        (body["kind"].as_str(), body["reason"].as_str(), body["code"].as_u64()),
        (Some("Status"), Some("Unauthorized"), Some(401))
    );
    let token = lab.sandbox.kube.token(&lab.cluster);
    let ask = |token: String| stranger.get(format!("{endpoint}/readyz")).bearer_auth(token).send();
    assert_eq!(ask(token).await.unwrap().status(), 200);
    assert_eq!(ask(lab.sandbox.kube.token("another")).await.unwrap().status(), 401);
    let other = endpoint.replace(&lab.cluster, "another");
    let response = client.get(format!("{other}/readyz")).send().await.unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(response.json::<Value>().await.unwrap()["kind"], "Status");
    assert!(
        reqwest::Client::new().get(format!("{endpoint}/readyz")).send().await.is_err(),
        "an unknown authority must not be trusted"
    );
}

#[tokio::test]
async fn a_control_plane_that_is_not_there_answers_503() {
    let lab = Lab::with(Config { speed: Speed::Times(1.0), ..Config::default() }).await;
    let (client, endpoint) = lab.client();
    let response = client.get(format!("{endpoint}/readyz")).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.json::<Value>().await.unwrap()["reason"], "ServiceUnavailable");
}

#[tokio::test]
async fn objects_follow_the_rules_of_the_api() {
    let lab = Lab::start().await;
    let (client, endpoint) = lab.client();
    let maps = format!("{endpoint}/api/v1/namespaces/default/configmaps");
    let post = |body: Value| client.post(&maps).json(&body).send();
    let made: Value = post(json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v"}}))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert!(made["metadata"]["uid"].is_string() && made["metadata"]["creationTimestamp"].is_string(), "{made}");
    for (body, status) in [
        (json!({"metadata": {"name": "a"}}), 409),
        (json!({"metadata": {"name": "Not_Valid"}}), 422),
        (json!({"metadata": {}}), 422),
        (json!({"metadata": {"name": "b", "namespace": "other"}}), 400),
        (json!({"kind": "Secret", "metadata": {"name": "b"}}), 400),
        (json!({"metadata": "text"}), 400),
        (json!([]), 400),
    ] {
        assert_eq!(post(body.clone()).await.unwrap().status(), status, "{body}");
    }
    let elsewhere = client.post(maps.replace("default", "nowhere")).json(&json!({"metadata": {"name": "a"}}));
    assert_eq!(elsewhere.send().await.unwrap().status(), 404);

    let one = format!("{maps}/a");
    let stale = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "data": {}});
    assert_eq!(client.put(&one).json(&stale).send().await.unwrap().status(), 409);
    let fresh =
        json!({"metadata": {"name": "a", "resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"k": "2"}});
    let put: Value = client.put(&one).json(&fresh).send().await.unwrap().json().await.unwrap();
    assert_ne!(put["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    assert_eq!(put["metadata"]["uid"], made["metadata"]["uid"]);
    let dry = client.delete(format!("{one}?dryRun=All")).send().await.unwrap();
    assert_eq!(dry.status(), 200);
    let wrong = json!({"preconditions": {"uid": "other"}});
    assert_eq!(client.delete(&one).json(&wrong).send().await.unwrap().status(), 409);
    let gone: Value = client.delete(&one).send().await.unwrap().json().await.unwrap();
    assert_eq!((gone["status"].as_str(), &gone["details"]["uid"]), (Some("Success"), &made["metadata"]["uid"]));
    assert_eq!(client.get(&one).send().await.unwrap().status(), 404);
    assert_eq!(client.get(format!("{endpoint}/api/v1/unknowns")).send().await.unwrap().status(), 404);
    assert_eq!(client.post(format!("{endpoint}/version")).send().await.unwrap().status(), 405);
    let old = client
        .get(format!("{endpoint}/openapi/v2"))
        .header("accept", super::discovery::OPENAPI_V2_TYPE)
        .send()
        .await
        .unwrap();
    assert_eq!(
        (old.status().as_u16(), old.headers()["content-type"].to_str().unwrap()),
        (200, super::discovery::OPENAPI_V2_TYPE)
    );
    let large = client.post(&maps).body(vec![b' '; (3 << 20) + 1]).send().await.unwrap();
    assert_eq!(large.status(), 413);
}

#[tokio::test]
async fn looking_twice_shows_the_same_objects() {
    let lab = Lab::start().await;
    let (client, endpoint) = lab.client();
    let uids = |path: &str| {
        let request = client.get(format!("{endpoint}{path}"));
        async move {
            let list: Value = request.send().await.unwrap().json().await.unwrap();
            let items = list["items"].as_array().unwrap().clone();
            assert!(!items.is_empty(), "{list}");
            items.iter().map(|item| item["metadata"]["uid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    let (nodes, deployments) = (uids("/api/v1/nodes").await, uids("/apis/apps/v1/deployments").await);
    assert_eq!(uids("/api/v1/nodes").await, nodes);
    let made =
        client.post(format!("{endpoint}/api/v1/namespaces")).json(&json!({"metadata": {"name": "x"}})).send().await;
    assert_eq!(made.unwrap().status(), 201);
    assert_eq!(uids("/api/v1/nodes").await, nodes);
    assert_eq!(uids("/apis/apps/v1/deployments").await, deployments);
}

#[tokio::test]
async fn lists_are_limited_and_selected() {
    let lab = Lab::start().await;
    let (client, endpoint) = lab.client();
    let maps = format!("{endpoint}/api/v1/namespaces/default/configmaps");
    for n in 0..5 {
        let body = json!({"metadata": {"name": format!("c{n}"), "labels": {"odd": (n % 2 == 1).to_string()}}});
        assert_eq!(client.post(&maps).json(&body).send().await.unwrap().status(), 201);
    }
    let get = |query: String| {
        let request = client.get(format!("{maps}?{query}"));
        async move { request.send().await.unwrap().json::<Value>().await.unwrap() }
    };
    let first = get("limit=2".into()).await;
    assert_eq!((first["items"].as_array().unwrap().len(), &first["metadata"]["remainingItemCount"]), (2, &json!(4)));
    let next = get(format!("limit=9&continue={}", first["metadata"]["continue"].as_str().unwrap())).await;
    assert_eq!(
        (next["items"].as_array().unwrap().len(), &next["items"][0]["metadata"]["name"]),
        (4, &json!("c2")),
        "with the certificate that every namespace holds"
    );
    assert_eq!(get("labelSelector=odd%3Dtrue".into()).await["items"].as_array().unwrap().len(), 2);
    assert_eq!(get("fieldSelector=metadata.name%3Dc4".into()).await["items"].as_array().unwrap().len(), 1);
    assert_eq!(get("labelSelector=a%20b%20c".into()).await["code"], 400);
    let deleted = client.delete(format!("{maps}?labelSelector=odd%3Dtrue")).send().await.unwrap();
    assert_eq!(deleted.status(), 200);
    assert_eq!(get(String::new()).await["items"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn server_side_apply_keeps_managers_apart() {
    let lab = Lab::start().await;
    let (client, endpoint) = lab.client();
    let one = format!("{endpoint}/api/v1/namespaces/default/configmaps/a");
    let apply = |manager: &str, force: bool, body: &str| {
        let url = format!("{one}?fieldManager={manager}&force={force}");
        let request = client.patch(url).header("content-type", "application/apply-patch+yaml").body(body.to_owned());
        async move {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.json::<Value>().await.unwrap())
        }
    };
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    assert_eq!(apply("one", false, &format!("{head}data: {{a: '1', b: '1'}}\n")).await.0, 201);
    assert_eq!(apply("two", false, &format!("{head}data: {{c: '2'}}\n")).await.0, 200);
    let (status, clash) = apply("two", false, &format!("{head}data: {{b: '2', c: '2'}}\n")).await;
    assert_eq!(status, 409);
    assert!(clash["message"].as_str().unwrap().contains(".data.b"), "{clash}");
    assert_eq!(
        apply("two", true, &format!("{head}data: {{b: '2', c: '2'}}\n")).await.1["data"],
        json!({"a": "1", "b": "2", "c": "2"})
    );
    let (_, left) = apply("one", true, &format!("{head}data: {{a: '1'}}\n")).await;
    assert_eq!(left["data"], json!({"a": "1", "b": "2", "c": "2"}));
    let (_, left) = apply("two", false, &format!("{head}data: {{c: '2'}}\n")).await;
    assert_eq!(left["data"], json!({"a": "1", "c": "2"}));
    assert_eq!(apply("", false, head).await.0, 400);
    assert_eq!(apply("one", false, "a: [").await.0, 400);
    let plain = client.patch(&one).header("content-type", "text/plain").body("{}").send().await.unwrap();
    assert_eq!(plain.status(), 415);
}

#[tokio::test]
async fn a_watch_tells_of_changes_and_ends_in_time() {
    let lab = Lab::start().await;
    let (client, endpoint) = lab.client();
    let maps = format!("{endpoint}/api/v1/namespaces/default/configmaps");
    let list: Value = client.get(&maps).send().await.unwrap().json().await.unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let url = format!("{maps}?watch=true&timeoutSeconds=3&resourceVersion={version}");
    let watching = tokio::spawn(client.get(url).send());
    tokio::time::sleep(Duration::from_millis(300)).await;
    client.post(&maps).json(&json!({"metadata": {"name": "w"}})).send().await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let patch = client.patch(format!("{maps}/w")).header("content-type", "application/merge-patch+json");
    patch.body(r#"{"data": {"a": "b"}}"#).send().await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    client.delete(format!("{maps}/w")).send().await.unwrap();
    let response = watching.await.unwrap().unwrap();
    let text = tokio::time::timeout(Duration::from_secs(10), response.text()).await.unwrap().unwrap();
    let kinds: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED"]);
}

#[tokio::test]
async fn identity_port_and_objects_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { speed: Speed::Instant, state: Some(folder.path().join("state")), ..Config::default() };
    let lab = Lab::with(config.clone()).await;
    let (client, endpoint) = lab.client();
    let maps = format!("{endpoint}/api/v1/namespaces/default/configmaps");
    client.post(&maps).json(&json!({"metadata": {"name": "kept"}})).send().await.unwrap();
    let old = super::kubeconfig(&lab.sandbox.kube, &lab.cluster, "lab");
    lab.sandbox.stop().await;
    let sandbox = Sandbox::start(config.clone()).await.unwrap();
    assert_eq!(super::kubeconfig(&sandbox.kube, &lab.cluster, "lab"), old);
    assert_eq!(client.get(format!("{maps}/kept")).send().await.unwrap().status(), 200);
    #[cfg(unix)]
    for file in ["identity.json", &format!("cluster-{}.json", lab.cluster)] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.path().join("state.kube").join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    // A cluster that is gone leaves no file behind.
    let url = format!("{}/v2/kubernetes/clusters/{}", sandbox.url(crate::digitalocean::NAME), lab.cluster);
    reqwest::Client::new().delete(url).send().await.unwrap();
    assert_eq!(client.get(format!("{maps}/kept")).send().await.unwrap().status(), 404);
    assert!(!folder.path().join("state.kube").join(format!("cluster-{}.json", lab.cluster)).exists());
    sandbox.stop().await;
}
