//! Numbers that follow from other objects: disruption budgets, autoscalers, quotas.

use serde_json::{Value, json};

use super::{Change, Scene, condition, controller_of, is_leaving, is_true, kind, set_status, share};
use crate::kube::admission;
use crate::kube::objects::{Objects, Stored, meta};
use crate::kube::quantity;
use crate::kube::select::label_selector;

pub fn run(scene: &Scene) -> Vec<Change> {
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("policy", "poddisruptionbudgets") {
        let status = budget(scene.objects, &row.object, scene);
        changes.extend(set_status(kind("policy", "poddisruptionbudgets"), row, status, None));
    }
    for row in scene.objects.rows_of("autoscaling", "horizontalpodautoscalers") {
        autoscaler(scene, row, &mut changes);
    }
    for row in scene.objects.rows_of("", "resourcequotas") {
        let used = admission::used(scene.objects, meta(&row.object, "namespace"));
        let shown: serde_json::Map<String, Value> = row.object["spec"]["hard"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| (name.clone(), json!(quantity::show(name, used.get(name).copied().unwrap_or(0)))))
            .collect();
        let status = json!({"hard": row.object["spec"]["hard"], "used": shown});
        changes.extend(set_status(kind("", "resourcequotas"), row, status, None));
    }
    changes
}

fn pods_of<'a>(objects: &'a Objects, budget: &'a Value) -> impl Iterator<Item = &'a Value> {
    let selector = &budget["spec"]["selector"];
    objects.rows_of("", "pods").map(|row| &row.object).filter(move |pod| {
        meta(pod, "namespace") == meta(budget, "namespace")
            && selector.is_object()
            && label_selector(selector, &pod["metadata"]["labels"])
            && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    })
}

/// How many pods are expected: what manages them says, else as many as there are.
fn expected(objects: &Objects, pods: &[&Value]) -> i64 {
    let mut seen: Vec<&Value> = Vec::new();
    let mut total = 0;
    for pod in pods {
        let Some(owner) = controller_of(pod) else {
            total += 1;
            continue;
        };
        if seen.contains(&&owner["uid"]) {
            continue;
        }
        seen.push(&owner["uid"]);
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let found = objects.by_kind(text("apiVersion"), text("kind")).and_then(|resource| {
            let here = objects.stored(resource).map(|row| &row.object);
            here.into_iter().find(|object| meta(object, "uid") == text("uid"))
        });
        let own =
            pods.iter().filter(|other| controller_of(other).is_some_and(|by| by["uid"] == owner["uid"])).count() as i64;
        total += found.and_then(|object| object["spec"]["replicas"].as_i64()).unwrap_or(own);
    }
    total
}

fn budget(objects: &Objects, budget: &Value, scene: &Scene) -> Value {
    let pods: Vec<&Value> = pods_of(objects, budget).collect();
    let expected = expected(objects, &pods);
    let healthy = pods.iter().filter(|pod| is_true(pod, "Ready") && !is_leaving(pod)).count() as i64;
    let spec = &budget["spec"];
    let desired = if spec["maxUnavailable"].is_null() {
        share(&spec["minAvailable"], expected, true)
    } else {
        (expected - share(&spec["maxUnavailable"], expected, true)).max(0)
    };
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let (word, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut one = condition(&budget["status"], "DisruptionAllowed", word, reason, "", scene.now);
    one["message"] = json!("");
    one["observedGeneration"] = budget["metadata"]["generation"].clone();
    json!({
        "observedGeneration": budget["metadata"]["generation"], "disruptionsAllowed": allowed, "currentHealthy": healthy,
        "desiredHealthy": desired, "expectedPods": expected, "conditions": [one],
    })
}

/// The budget that does not allow a pod to be evicted now.
pub fn forbids<'a>(objects: &'a Objects, pod: &Value) -> Option<&'a Value> {
    objects.rows_of("policy", "poddisruptionbudgets").map(|row| &row.object).find(|budget| {
        meta(budget, "namespace") == meta(pod, "namespace")
            && budget["spec"]["selector"].is_object()
            && label_selector(&budget["spec"]["selector"], &pod["metadata"]["labels"])
            && budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) <= 0
    })
}

/// Sees to it that there are as many replicas as its bounds allow; load does not change here.
fn autoscaler(scene: &Scene, row: &Stored, changes: &mut Vec<Change>) {
    let object = &row.object;
    let target = &object["spec"]["scaleTargetRef"];
    let text = |field: &str| target[field].as_str().unwrap_or_default();
    let Some(resource) = scene.objects.by_kind(text("apiVersion"), text("kind")) else { return };
    let at = crate::kube::objects::At { resource, namespace: meta(object, "namespace"), name: text("name") };
    let scalers = kind("autoscaling", "horizontalpodautoscalers");
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        condition(&object["status"], kind, status, reason, message, scene.now)
    };
    let Ok(scaled) = scene.objects.get(at) else {
        let why = format!(
            "the HPA controller was unable to get the target's current scale: {} \"{}\" not found",
            resource.qualified(),
            text("name")
        );
        let status = json!({"desiredReplicas": 0, "currentReplicas": 0, "currentMetrics": null,
                            "conditions": [condition("AbleToScale", "False", "FailedGetScale", &why)]});
        changes.extend(set_status(scalers, row, status, None));
        return;
    };
    let now = scaled["spec"]["replicas"].as_i64().unwrap_or(1);
    let least = object["spec"]["minReplicas"].as_i64().unwrap_or(1);
    let most = object["spec"]["maxReplicas"].as_i64().unwrap_or(i64::MAX);
    let wanted = if now == 0 { 0 } else { now.clamp(least, most.max(least)) };
    if wanted != now {
        let mut object = scaled.clone();
        object["spec"]["replicas"] = json!(wanted);
        let due = scene.objects.row(at).and_then(|row| row.due);
        changes.push(Change::Set { resource, object, due });
    }
    let status = json!({
        "observedGeneration": object["metadata"]["generation"], "currentReplicas": scaled["status"]["replicas"].as_i64().unwrap_or(0),
        "desiredReplicas": wanted, "currentMetrics": null,
        "conditions": [
            condition("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
            condition("ScalingActive", "True", "ValidMetricFound", "the HPA was able to successfully calculate a replica count"),
            condition("ScalingLimited", "False", "DesiredWithinRange", "the desired count is within the acceptable range"),
        ],
    });
    changes.extend(set_status(scalers, row, status, None));
}
