//! What Berth put into the clusters themselves.

use crate::support::cloud::{Cloud, wait_for};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const LISTS: [&str; 7] = [
    "/api/v1/namespaces/kube-system/serviceaccounts",
    "/api/v1/namespaces/kube-system/secrets",
    "/apis/apps/v1/namespaces/kube-system/deployments",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings",
];

impl Cloud {
    /// Every object of Berth's in every Civo cluster, sorted. A pool's own id is left out of what an autoscaler is told.
    pub fn inside(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for cluster in self.objects("civo.cluster") {
            let text = |field: &str| cluster[field].as_str().unwrap_or_default().to_owned();
            let path = format!("/v2/kubernetes/clusters/{}?region={}", text("id"), text("region"));
            let shown = self.call(berth_sandbox::civo::NAME, "GET", &path, None);
            let kubeconfig = shown["kubeconfig"].as_str().unwrap_or_default();
            for list in LISTS {
                let found = read(kubeconfig, &format!("{list}?labelSelector=app.kubernetes.io/managed-by%3Dberth"));
                for object in found["items"].as_array().into_iter().flatten() {
                    let kind = list.rsplit('/').next().unwrap_or_default();
                    let args = object.pointer("/spec/template/spec/containers/0/command").and_then(Value::as_array);
                    let args =
                        args.into_iter().flatten().filter_map(Value::as_str).filter(|arg| arg.starts_with("--nodes="));
                    // `--nodes=1:5:web-1a2b3c4d`
                    let args: Vec<&str> =
                        args.map(|arg| arg.rsplit_once('-').map_or(arg, |(bounds, _)| bounds)).collect();
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    lines.push(format!("{}: {kind}/{name} {}", text("name"), args.join(" ")));
                }
            }
        }
        lines.sort();
        lines
    }
}

fn read(kubeconfig: &str, path: &str) -> Value {
    let after = |key: &str| kubeconfig.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
    let data = |key: &str| STANDARD.decode(after(key).unwrap_or_default()).expect("base64");
    let identity = [data("client-certificate-data:"), data("client-key-data:")].concat();
    let client = reqwest::Client::builder()
        .no_proxy()
        .identity(reqwest::Identity::from_pem(&identity).expect("a client's certificate"))
        // The certificate names the cluster, not this address.
        .tls_danger_accept_invalid_certs(true)
        .build()
        .expect("a client");
    let server = after("server:").expect("a server");
    let text = wait_for(async {
        let ask = || client.get(format!("{server}{path}")).send();
        // A read whose connection broke is tried once more, as any client does.
        let answer = match ask().await {
            Ok(answer) => answer,
            Err(_) => ask().await.expect("an answer"),
        };
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.text().await.expect("a body")
    });
    serde_json::from_str(&text).expect("JSON")
}
