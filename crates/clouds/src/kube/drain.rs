//! Moves work off nodes that are about to go: no new pods, then the ones there are asked to leave.

use super::{Kube, Node};
use crate::http::segment;
use berth_engine::handler::{Class, Outcome, Trouble};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How far draining came within its time.
#[derive(Debug, PartialEq, Eq)]
pub enum Drained {
    Done,
    /// Pods that are still there, as `namespace/name`; some may be held back by a disruption budget.
    Waiting {
        pods: Vec<String>,
        held_back: bool,
    },
}

/// How many pods a message names.
const PODS_NAMED: usize = 5;
const PAUSE: Duration = Duration::from_millis(500);

impl Drained {
    /// An error that asks to drain a pool again while pods are left.
    pub fn or_again(self, pool: &str) -> Outcome<()> {
        let Self::Waiting { pods, held_back } = self else { return Ok(()) };
        let named: Vec<&str> = pods.iter().map(String::as_str).take(PODS_NAMED).collect();
        let what = format!("draining pool {pool}: {} pods are left ({})", pods.len(), named.join(", "));
        let trouble = Trouble::new(Class::Retry { after: None }, what);
        Err(match held_back {
            true => trouble.help("a PodDisruptionBudget holds some back:   kubectl get poddisruptionbudgets -A"),
            false => trouble.help("see what keeps them:   kubectl get pods -A -o wide"),
        })
    }
}

impl Kube {
    /// Keeps new pods off the nodes and evicts those on them, respecting disruption budgets, for as long as `limit`.
    /// Pods of daemon sets and static pods belong to their node and stay. So do pods that come after the nodes were closed: they
    /// tolerate it, and would come back for ever.
    pub async fn drain(&self, nodes: &[Node], limit: Duration) -> Outcome<Drained> {
        let begun = Instant::now();
        for node in nodes.iter().filter(|node| !node.unschedulable) {
            let path = format!("/api/v1/nodes/{}", segment(&node.name));
            match self.merge(&path, &json!({"spec": {"unschedulable": true}})).await {
                Err(trouble) if !trouble.is_not_found() => return Err(trouble),
                _ => {}
            }
        }
        let mut first: Option<HashSet<String>> = None;
        loop {
            let mut pods = Vec::new();
            for node in nodes {
                pods.extend(self.movable_pods(&node.name).await?);
            }
            let first = first.get_or_insert_with(|| pods.iter().map(|pod| pod.uid.clone()).collect());
            pods.retain(|pod| first.contains(&pod.uid));
            if pods.is_empty() {
                return Ok(Drained::Done);
            }
            let mut held_back = false;
            for pod in pods.iter().filter(|pod| !pod.leaving) {
                held_back |= !self.evict(pod).await?;
            }
            if begun.elapsed() >= limit {
                return Ok(Drained::Waiting {
                    pods: pods.iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect(),
                    held_back,
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn movable_pods(&self, node: &str) -> Outcome<Vec<Pod>> {
        let selector = format!("spec.nodeName={node}");
        let pods = self.list("/api/v1/pods", &[("fieldSelector", &selector)]).await?;
        Ok(pods.iter().filter_map(movable).collect())
    }

    /// Whether the pod was asked to leave; `false` when a disruption budget holds it back for now.
    async fn evict(&self, pod: &Pod) -> Outcome<bool> {
        let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", segment(&pod.namespace), segment(&pod.name));
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
        });
        match self.create(&path, &eviction).await {
            Ok(_) => Ok(true),
            Err(trouble) if trouble.is_not_found() => Ok(true),
            Err(trouble) => match trouble.class {
                Class::Retry { .. } => Ok(false),
                _ => Err(trouble),
            },
        }
    }
}

struct Pod {
    namespace: String,
    name: String,
    uid: String,
    leaving: bool,
}

/// The pod, unless it belongs to its node or has finished.
fn movable(object: &Value) -> Option<Pod> {
    let metadata = object.get("metadata")?;
    let owners = metadata.get("ownerReferences").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if owners.iter().any(|owner| owner["kind"] == "DaemonSet" || owner["kind"] == "Node") {
        return None;
    }
    if metadata.pointer("/annotations/kubernetes.io~1config.mirror").is_some() {
        return None;
    }
    if matches!(object.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed")) {
        return None;
    }
    Some(Pod {
        namespace: metadata.get("namespace")?.as_str()?.to_owned(),
        name: metadata.get("name")?.as_str()?.to_owned(),
        uid: metadata.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned(),
        leaving: metadata.get("deletionTimestamp").is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::{Method, StatusCode, Uri};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn pods_that_belong_to_their_node_stay() {
        let pod = |metadata: Value, phase: &str| {
            movable(&json!({"metadata": metadata, "status": {"phase": phase}})).is_some()
        };
        assert!(pod(json!({"namespace": "a", "name": "b"}), "Running"));
        assert!(pod(json!({"namespace": "a", "name": "b", "ownerReferences": [{"kind": "ReplicaSet"}]}), "Pending"));
        assert!(!pod(json!({"namespace": "a", "name": "b", "ownerReferences": [{"kind": "DaemonSet"}]}), "Running"));
        assert!(!pod(
            json!({"namespace": "a", "name": "b", "annotations": {"kubernetes.io/config.mirror": "x"}}),
            "Running"
        ));
        assert!(!pod(json!({"namespace": "a", "name": "b"}), "Succeeded"));
    }

    /// A cluster with one node and two pods, of which `web` is held back by a disruption budget so many times and comes back after it
    /// was evicted.
    async fn cluster(held_back: u64) -> (Kube, Arc<AtomicU64>) {
        let evictions = Arc::new(AtomicU64::new(0));
        let counter = evictions.clone();
        let app = Router::new().fallback(move |method: Method, uri: Uri| {
            let counter = counter.clone();
            async move {
                let tried = counter.load(Ordering::SeqCst);
                let (status, body) = match (method.as_str(), uri.path()) {
                    ("PATCH", "/api/v1/nodes/n1") => (200, json!({})),
                    ("GET", "/api/v1/pods") => {
                        assert_eq!(uri.query(), Some("fieldSelector=spec.nodeName%3Dn1&limit=500"));
                        let daemon = json!({"metadata": {"namespace": "a", "name": "daemon", "ownerReferences": [{"kind": "DaemonSet"}]}});
                        // One that tolerates a closed node comes back at once, as another pod.
                        let uid = if tried > held_back { "second" } else { "first" };
                        let web = json!({"metadata": {"namespace": "a", "name": "web", "uid": uid}});
                        (200, json!({"items": [daemon, web]}))
                    }
                    ("POST", "/api/v1/namespaces/a/pods/web/eviction") => {
                        counter.fetch_add(1, Ordering::SeqCst);
                        if tried < held_back {
                            (429, json!({"reason": "TooManyRequests", "message": "Cannot evict pod as it would violate the budget."}))
                        } else {
                            (201, json!({}))
                        }
                    }
                    other => panic!("{other:?}"),
                };
                (StatusCode::from_u16(status).unwrap(), axum::Json(body))
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (Kube { client: reqwest::Client::new(), server, token: None }, evictions)
    }

    #[tokio::test]
    async fn a_budget_is_waited_for() {
        let node = Node { name: "n1".into(), ready: true, unschedulable: false, labels: Default::default() };
        let (kube, evictions) = cluster(2).await;
        assert_eq!(kube.drain(std::slice::from_ref(&node), Duration::from_secs(20)).await.unwrap(), Drained::Done);
        assert_eq!(evictions.load(Ordering::SeqCst), 3);

        let (kube, _) = cluster(1000).await;
        let waiting = kube.drain(&[node], Duration::from_millis(700)).await.unwrap();
        assert_eq!(waiting, Drained::Waiting { pods: vec!["a/web".into()], held_back: true });
    }
}
