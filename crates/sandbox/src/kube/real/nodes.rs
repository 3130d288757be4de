//! Keeps the cluster's Node objects as the cloud shows its nodes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::{Api, Change};
use super::error::RealError;
use super::kwok::READY_ANNOTATION;
use crate::kube::controllers::nodes as simulated;
use crate::world::{ClusterView, NodeView, TaintView};

/// On every node that the sandbox made: what the cloud showed of it when it was last written, so that labels and taints that
/// are gone from the cloud go from the node, and those that people set stay.
const SHOWN_ANNOTATION: &str = "sandbox.berth.dev/cloud";
const KWOK_ANNOTATION: &str = "kwok.x-k8s.io/node";

/// The nodes that were written last, by name.
#[derive(Default)]
pub struct NodeSync {
    /// Unknown until the cluster's own list was read once.
    written: Option<BTreeMap<String, NodeView>>,
    kubelet_port: u16,
}

impl NodeSync {
    pub fn new(kubelet_port: u16) -> NodeSync {
        NodeSync { written: None, kubelet_port }
    }

    /// Whether the cloud shows its nodes as they were when they were last written.
    pub fn current(&self, view: &ClusterView) -> bool {
        self.written.as_ref().is_some_and(|written| {
            written.len() == view.nodes.len() && view.nodes.iter().all(|node| written.get(&node.name) == Some(node))
        })
    }

    /// Writes what changed. A node that was deleted from the cluster by hand stays away, as one would whose machine was left
    /// running: it comes back with the control plane.
    pub async fn sync(&mut self, api: &Api, view: &ClusterView) -> Result<(), RealError> {
        if self.written.is_none() {
            self.remove_unknown(api, view).await?;
            self.written = Some(BTreeMap::new());
        }
        let port = self.kubelet_port;
        let Some(written) = &mut self.written else { return Ok(()) };
        let gone: Vec<String> =
            written.keys().filter(|name| !view.nodes.iter().any(|node| node.name == **name)).cloned().collect();
        for name in gone {
            remove(api, &name).await?;
            written.remove(&name);
        }
        for (number, node) in view.nodes.iter().enumerate() {
            let before = written.get(&node.name);
            if before == Some(node) {
                continue;
            }
            write(api, view, node, before.is_none().then_some((number, port))).await?;
            written.insert(node.name.clone(), node.clone());
        }
        Ok(())
    }

    /// Nodes of an earlier run that the cloud no longer has.
    async fn remove_unknown(&self, api: &Api, view: &ClusterView) -> Result<(), RealError> {
        for node in api.list("/api/v1/nodes").await? {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let ours = node["metadata"]["annotations"][SHOWN_ANNOTATION].is_string();
            if ours && !view.nodes.iter().any(|node| node.name == name) {
                remove(api, name).await?;
            }
        }
        Ok(())
    }
}

/// Makes the node, or brings it up to date. `place` is given once in a run: its number in the cluster and kwok's port.
async fn write(api: &Api, view: &ClusterView, node: &NodeView, place: Option<(usize, u16)>) -> Result<(), RealError> {
    let path = format!("/api/v1/nodes/{}", node.name);
    let fresh = declared(view, node);
    match api.get(&path).await? {
        None if place.is_some() => drop(api.change(Change::Create, "/api/v1/nodes", &fresh).await?),
        None => return Ok(()),
        Some(old) => drop(api.change(Change::Merge, &path, &update(&old, &fresh)).await?),
    }
    let Some((number, port)) = place else { return Ok(()) };
    let mut reported = json!({});
    simulated::report(&mut reported, view, node, number);
    let mut status = reported["status"].take();
    if let Some(fields) = status.as_object_mut() {
        // The conditions are kwok's.
        fields.remove("conditions");
    }
    if let Some(addresses) = status["addresses"].as_array_mut() {
        addresses.push(json!({"type": "InternalDNS", "address": "localhost"}));
    }
    status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
    api.change(Change::Merge, &format!("{path}/status"), &json!({"status": status})).await.map(drop)
}

fn declared(view: &ClusterView, node: &NodeView) -> Value {
    let mut body = simulated::declared(view, node);
    let labels: Vec<&String> = node.labels.keys().collect();
    let shown = json!({"labels": labels, "taints": node.taints.iter().map(taint).collect::<Vec<_>>()});
    body["metadata"]["annotations"] = json!({
        KWOK_ANNOTATION: "fake",
        READY_ANNOTATION: node.ready.to_string(),
        SHOWN_ANNOTATION: shown.to_string(),
    });
    body
}

fn taint(taint: &TaintView) -> Value {
    json!({"key": taint.key, "effect": taint.effect})
}

/// The merge patch that makes an existing node show what the cloud shows now.
fn update(old: &Value, fresh: &Value) -> Value {
    let shown = old["metadata"]["annotations"][SHOWN_ANNOTATION].as_str().unwrap_or_default();
    let shown: Value = serde_json::from_str(shown).unwrap_or_default();
    let mut labels = fresh["metadata"]["labels"].clone();
    for label in shown["labels"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if labels.get(label).is_none() {
            labels[label] = Value::Null;
        }
    }
    let same = |one: &Value, other: &Value| one["key"] == other["key"] && one["effect"] == other["effect"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (earlier, now) = (list(&shown["taints"]), list(&fresh["spec"]["taints"]));
    // Taints that neither the cloud had nor has now are those of the cluster's own controllers and of people.
    let mut taints: Vec<Value> = list(&old["spec"]["taints"])
        .into_iter()
        .filter(|taint| !earlier.iter().chain(&now).any(|other| same(taint, other)))
        .collect();
    taints.extend(now);
    json!({
        "metadata": {
            "resourceVersion": old["metadata"]["resourceVersion"],
            "labels": labels, "annotations": fresh["metadata"]["annotations"],
        },
        "spec": {"taints": taints},
    })
}

/// With a machine go its pods, at once: their replacements need not wait until the cluster misses them.
async fn remove(api: &Api, name: &str) -> Result<(), RealError> {
    api.delete(&format!("/api/v1/nodes/{name}")).await?;
    for pod in api.list(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")).await? {
        let meta = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        api.delete(&format!("/api/v1/namespaces/{}/pods/{}", meta("namespace"), meta("name"))).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cloud_no_longer_shows_goes_and_what_others_set_stays() {
        let shown = json!({"labels": ["pool", "tier"], "taints": [{"key": "gpu", "effect": "NoSchedule"}]}).to_string();
        let old = json!({
            "metadata": {"resourceVersion": "7", "labels": {"pool": "a", "tier": "1", "mine": "x"},
                         "annotations": {SHOWN_ANNOTATION: shown}},
            "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"},
                                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        });
        let fresh = json!({
            "metadata": {"labels": {"pool": "b"}, "annotations": {}},
            "spec": {"taints": [{"key": "spot", "value": "yes", "effect": "NoExecute"}]},
        });
        let patch = update(&old, &fresh);
        assert_eq!(patch["metadata"]["labels"], json!({"pool": "b", "tier": null}));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let taints = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                            {"key": "spot", "value": "yes", "effect": "NoExecute"}]);
        assert_eq!(patch["spec"]["taints"], taints);
    }
}
