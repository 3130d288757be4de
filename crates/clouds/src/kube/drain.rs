//! Moves work off nodes that are about to go: no new pods, then the ones there are asked to leave.

use super::{Kube, Node};
use crate::http::segment;
use berth_engine::handler::{Class, Outcome};
use serde_json::{Value, json};
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

const PAUSE: Duration = Duration::from_millis(500);

impl Kube {
    /// Keeps new pods off the nodes and evicts those on them, respecting disruption budgets, for as long as `limit`.
    /// Pods of daemon sets and static pods belong to their node and stay.
    pub async fn drain(&self, nodes: &[Node], limit: Duration) -> Outcome<Drained> {
        let begun = Instant::now();
        for node in nodes.iter().filter(|node| !node.unschedulable) {
            let path = format!("/api/v1/nodes/{}", segment(&node.name));
            match self.merge(&path, &json!({"spec": {"unschedulable": true}})).await {
                Err(trouble) if !trouble.is_not_found() => return Err(trouble),
                _ => {}
            }
        }
        loop {
            let mut pods = Vec::new();
            for node in nodes {
                pods.extend(self.movable_pods(&node.name).await?);
            }
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
        leaving: metadata.get("deletionTimestamp").is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
