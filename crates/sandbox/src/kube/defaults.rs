//! What the API server fills in: enough that clients see the objects they expect, and that an object made here is the one that a
//! real cluster would show.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::definitions;
use super::types::ResourceType;

fn default(value: &mut Value, field: &str, wanted: Value) {
    if value.get(field).is_none_or(Value::is_null) {
        value[field] = wanted;
    }
}

fn each<'a>(value: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().filter(|item| item.is_object())
}

/// Fields that are null are fields that are not there.
pub fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Fills in what the real API server would.
pub fn fill(resource: &ResourceType, object: &mut Value) {
    if resource.custom {
        return;
    }
    without_nulls(object);
    match resource.kind {
        "Namespace" => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            default(object, "spec", json!({"finalizers": ["kubernetes"]}));
            default(object, "status", json!({"phase": "Active"}));
        }
        "Secret" => {
            default(object, "type", json!("Opaque"));
            let plain = object.as_object_mut().and_then(|map| map.remove("stringData"));
            if let Some(Value::Object(plain)) = plain {
                for (key, value) in plain {
                    object["data"][key] = json!(STANDARD.encode(value.as_str().unwrap_or_default()));
                }
            }
        }
        "Service" if object["spec"].is_object() => fill_service(&mut object["spec"]),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet" if object["spec"].is_object() => {
            fill_workload(resource.kind, object);
        }
        "Job" if object["spec"].is_object() => fill_job(&mut object["spec"]),
        "CronJob" if object["spec"].is_object() => {
            let spec = &mut object["spec"];
            default(spec, "concurrencyPolicy", json!("Allow"));
            default(spec, "suspend", json!(false));
            default(spec, "successfulJobsHistoryLimit", json!(3));
            default(spec, "failedJobsHistoryLimit", json!(1));
            fill_pod(&mut spec["jobTemplate"]["spec"]["template"]["spec"]);
        }
        "Pod" if object["spec"].is_object() => {
            fill_pod(&mut object["spec"]);
            default(&mut object["spec"], "enableServiceLinks", json!(true));
        }
        "StorageClass" => {
            default(object, "reclaimPolicy", json!("Delete"));
            default(object, "volumeBindingMode", json!("Immediate"));
        }
        "PersistentVolumeClaim" if object["spec"].is_object() => {
            default(&mut object["spec"], "volumeMode", json!("Filesystem"));
            default(object, "status", json!({"phase": "Pending"}));
        }
        "PersistentVolume" if object["spec"].is_object() => {
            default(&mut object["spec"], "volumeMode", json!("Filesystem"));
            default(&mut object["spec"], "persistentVolumeReclaimPolicy", json!("Retain"));
        }
        "CustomResourceDefinition" if object["spec"].is_object() => definitions::fill(object),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => fill_webhooks(resource.kind, object),
        "RoleBinding" | "ClusterRoleBinding" => {
            for subject in each(object, "subjects") {
                let group = if subject["kind"] == "ServiceAccount" { "" } else { "rbac.authorization.k8s.io" };
                if !group.is_empty() {
                    default(subject, "apiGroup", json!(group));
                }
            }
        }
        "NetworkPolicy" if object["spec"].is_object() => {
            let egress = object["spec"].get("egress").is_some();
            let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            default(&mut object["spec"], "policyTypes", types);
        }
        "HorizontalPodAutoscaler" if object["spec"].is_object() => {
            default(&mut object["spec"], "minReplicas", json!(1))
        }
        "PriorityClass" => default(object, "preemptionPolicy", json!("PreemptLowerPriority")),
        _ => {}
    }
}

fn fill_workload(kind: &str, object: &mut Value) {
    let spec = &mut object["spec"];
    if kind != "DaemonSet" {
        default(spec, "replicas", json!(1));
    }
    if kind != "ReplicaSet" {
        default(spec, "revisionHistoryLimit", json!(10));
    }
    match kind {
        "Deployment" => {
            default(spec, "progressDeadlineSeconds", json!(600));
            default(spec, "strategy", json!({}));
            let strategy = &mut spec["strategy"];
            default(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                default(strategy, "rollingUpdate", json!({}));
                default(&mut strategy["rollingUpdate"], "maxSurge", json!("25%"));
                default(&mut strategy["rollingUpdate"], "maxUnavailable", json!("25%"));
            }
        }
        "DaemonSet" => {
            default(spec, "updateStrategy", json!({}));
            let strategy = &mut spec["updateStrategy"];
            default(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                default(strategy, "rollingUpdate", json!({}));
                default(&mut strategy["rollingUpdate"], "maxSurge", json!(0));
                default(&mut strategy["rollingUpdate"], "maxUnavailable", json!(1));
            }
        }
        "StatefulSet" => {
            default(spec, "podManagementPolicy", json!("OrderedReady"));
            default(spec, "updateStrategy", json!({}));
            default(&mut spec["updateStrategy"], "type", json!("RollingUpdate"));
            if spec["updateStrategy"]["type"] == "RollingUpdate" {
                default(&mut spec["updateStrategy"], "rollingUpdate", json!({"partition": 0}));
            }
            let keep = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            default(spec, "persistentVolumeClaimRetentionPolicy", keep);
            for claim in each(spec, "volumeClaimTemplates") {
                default(claim, "apiVersion", json!("v1"));
                default(claim, "kind", json!("PersistentVolumeClaim"));
                default(&mut claim["spec"], "volumeMode", json!("Filesystem"));
                default(claim, "status", json!({"phase": "Pending"}));
            }
        }
        _ => {}
    }
    fill_pod(&mut spec["template"]["spec"]);
}

fn fill_job(spec: &mut Value) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        default(spec, "completions", json!(1));
    }
    default(spec, "parallelism", json!(1));
    default(spec, "backoffLimit", json!(6));
    default(spec, "completionMode", json!("NonIndexed"));
    default(spec, "suspend", json!(false));
    default(spec, "manualSelector", json!(false));
    default(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
    fill_pod(&mut spec["template"]["spec"]);
}

/// The selector and labels of a job's pods follow from its uid.
pub fn with_uid(resource: &ResourceType, object: &mut Value) {
    if resource.kind != "Job" || object["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    let spec = &mut object["spec"];
    spec["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    for prefix in ["batch.kubernetes.io/", ""] {
        spec["template"]["metadata"]["labels"][format!("{prefix}controller-uid")] = uid.clone();
        spec["template"]["metadata"]["labels"][format!("{prefix}job-name")] = name.clone();
    }
}

fn fill_service(spec: &mut Value) {
    default(spec, "type", json!("ClusterIP"));
    default(spec, "sessionAffinity", json!("None"));
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if kind != "ExternalName" {
        default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        default(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    for port in each(spec, "ports") {
        default(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        default(port, "targetPort", number);
    }
}

fn fill_webhooks(kind: &str, object: &mut Value) {
    for webhook in each(object, "webhooks") {
        default(webhook, "failurePolicy", json!("Fail"));
        default(webhook, "matchPolicy", json!("Equivalent"));
        default(webhook, "namespaceSelector", json!({}));
        default(webhook, "objectSelector", json!({}));
        default(webhook, "timeoutSeconds", json!(10));
        if kind == "MutatingWebhookConfiguration" {
            default(webhook, "reinvocationPolicy", json!("Never"));
        }
        if webhook["clientConfig"]["service"].is_object() {
            default(&mut webhook["clientConfig"]["service"], "port", json!(443));
        }
        each(webhook, "rules").for_each(|rule| default(rule, "scope", json!("*")));
    }
}

fn fill_pod(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    default(spec, "restartPolicy", json!("Always"));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "schedulerName", json!("default-scheduler"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "securityContext", json!({}));
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        default(spec, "serviceAccount", account);
    }
    let host_network = spec["hostNetwork"] == true;
    for volume in each(spec, "volumes") {
        fill_volume(volume);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        each(spec, list).for_each(|container| fill_container(container, host_network));
    }
}

fn fill_volume(volume: &mut Value) {
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if volume[source].is_object() {
            default(&mut volume[source], "defaultMode", json!(420));
        }
    }
    if volume["hostPath"].is_object() {
        default(&mut volume["hostPath"], "type", json!(""));
    }
    if let Some(map) = volume.as_object_mut() {
        map.retain(|_, source| !source.is_null());
    }
}

fn fill_container(container: &mut Value, host_network: bool) {
    let image = container["image"].as_str().unwrap_or_default();
    let tagged = image.rsplit('/').next().is_some_and(|last| last.contains([':', '@']) && !last.ends_with(":latest"));
    default(container, "imagePullPolicy", json!(if tagged { "IfNotPresent" } else { "Always" }));
    default(container, "resources", json!({}));
    default(container, "terminationMessagePath", json!("/dev/termination-log"));
    default(container, "terminationMessagePolicy", json!("File"));
    // A limit without a request is the request too.
    if let Some(Value::Object(limits)) = container["resources"].get("limits").cloned() {
        for (name, amount) in limits {
            if container["resources"]["requests"].get(&name).is_none() {
                container["resources"]["requests"][name] = amount;
            }
        }
    }
    for port in each(container, "ports") {
        default(port, "protocol", json!("TCP"));
        if host_network {
            let number = port["containerPort"].clone();
            default(port, "hostPort", number);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container.get(probe).is_some_and(Value::is_object) {
            let probe = &mut container[probe];
            default(probe, "timeoutSeconds", json!(1));
            default(probe, "periodSeconds", json!(10));
            default(probe, "successThreshold", json!(1));
            default(probe, "failureThreshold", json!(3));
            if probe.get("httpGet").is_some_and(Value::is_object) {
                default(&mut probe["httpGet"], "scheme", json!("HTTP"));
            }
        }
    }
    for variable in each(container, "env") {
        if variable["valueFrom"]["fieldRef"].is_object() {
            default(&mut variable["valueFrom"]["fieldRef"], "apiVersion", json!("v1"));
        } else {
            // Looking for a source must not leave an empty one behind.
            without_nulls(variable);
        }
    }
}
