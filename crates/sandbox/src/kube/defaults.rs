//! What the API server itself checks and fills in: enough that clients see the objects they expect.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::status::{self, Answer};
use super::types::ResourceType;

const NAME_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                         start and end with an alphanumeric character";

pub fn check_name(resource: &ResourceType, name: &str) -> Answer<()> {
    if name.is_empty() {
        return Err(status::invalid(
            resource,
            name,
            "metadata.name",
            "Required value: name or generateName is required",
        ));
    }
    // RBAC names are path segments, such as `system:node`.
    let rbac = resource.group == "rbac.authorization.k8s.io";
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let plain = name.chars().all(allowed) && name.starts_with(edge) && name.ends_with(edge);
    let short = name.len() <= if matches!(resource.plural, "namespaces" | "services") { 63 } else { 253 };
    if short && (plain || (rbac && !name.contains(['/', '%']) && name != "." && name != "..")) {
        return Ok(());
    }
    Err(status::invalid(resource, name, "metadata.name", &format!("Invalid value: \"{name}\": {NAME_RULE}")))
}

/// Refuses bodies in which a field that is looked into further down is not an object.
pub fn check_shape(object: &Value) -> Answer<()> {
    const OBJECTS: &[&str] = &[
        "",
        "/metadata",
        "/metadata/labels",
        "/metadata/annotations",
        "/data",
        "/stringData",
        "/spec",
        "/spec/selector",
        "/spec/strategy",
        "/spec/template",
        "/spec/template/metadata",
        "/spec/template/spec",
    ];
    for path in OBJECTS {
        if object.pointer(path).is_some_and(|value| !value.is_object() && !value.is_null()) {
            let field =
                if path.is_empty() { "the body".to_owned() } else { path.replacen('/', "", 1).replace('/', ".") };
            return Err(status::bad_request(format!("{field} must be an object")));
        }
    }
    Ok(())
}

fn default(value: &mut Value, field: &str, wanted: Value) {
    if value.get(field).is_none_or(Value::is_null) {
        value[field] = wanted;
    }
}

/// Fills in what the real API server would, for the fields that people and tools look at.
pub fn fill(resource: &ResourceType, object: &mut Value) {
    match resource.kind {
        "Namespace" => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            default(object, "spec", json!({"finalizers": ["kubernetes"]}));
            object["status"] = json!({"phase": "Active"});
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
        "Service" => fill_service(object),
        "Deployment" | "StatefulSet" | "ReplicaSet" if object["spec"].is_object() => {
            default(&mut object["spec"], "replicas", json!(1));
            default(&mut object["spec"], "revisionHistoryLimit", json!(10));
            if resource.kind == "Deployment" {
                default(&mut object["spec"], "progressDeadlineSeconds", json!(600));
                let rolling =
                    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
                default(&mut object["spec"], "strategy", rolling);
            }
            fill_pod(&mut object["spec"]["template"]["spec"], "Always");
        }
        "DaemonSet" if object["spec"].is_object() => fill_pod(&mut object["spec"]["template"]["spec"], "Always"),
        "Job" if object["spec"].is_object() => {
            default(&mut object["spec"], "completions", json!(1));
            default(&mut object["spec"], "parallelism", json!(1));
            default(&mut object["spec"], "backoffLimit", json!(6));
            fill_pod(&mut object["spec"]["template"]["spec"], "Never");
        }
        "Pod" if object["spec"].is_object() => fill_pod(&mut object["spec"], "Always"),
        "StorageClass" => {
            default(object, "reclaimPolicy", json!("Delete"));
            default(object, "volumeBindingMode", json!("Immediate"));
        }
        _ => {}
    }
}

fn fill_service(object: &mut Value) {
    if !object["spec"].is_object() {
        return;
    }
    // A stable address in the service range, so that filling in twice changes nothing.
    let name = format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
    let hash = name.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let address = format!("10.43.{}.{}", hash >> 8 & 0xff, (hash & 0xff).max(2));
    let spec = &mut object["spec"];
    default(spec, "type", json!("ClusterIP"));
    default(spec, "sessionAffinity", json!("None"));
    if spec["type"] != "ExternalName" {
        default(spec, "clusterIP", json!(address));
        let given = spec["clusterIP"].clone();
        default(spec, "clusterIPs", json!([given]));
        default(spec, "ipFamilies", json!(["IPv4"]));
        default(spec, "ipFamilyPolicy", json!("SingleStack"));
    }
    if let Some(Value::Array(ports)) = spec.get_mut("ports") {
        for port in ports.iter_mut().filter(|port| port.is_object()) {
            default(port, "protocol", json!("TCP"));
            let number = port["port"].clone();
            default(port, "targetPort", number);
        }
    }
}

fn fill_pod(spec: &mut Value, restart: &str) {
    if !spec.is_object() {
        return;
    }
    default(spec, "restartPolicy", json!(restart));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "schedulerName", json!("default-scheduler"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "securityContext", json!({}));
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        default(spec, "serviceAccount", account);
    }
    for list in ["containers", "initContainers"] {
        let Some(Value::Array(containers)) = spec.get_mut(list) else { continue };
        for container in containers.iter_mut().filter(|container| container.is_object()) {
            let image = container["image"].as_str().unwrap_or_default();
            let tagged = image.rsplit('/').next().is_some_and(|last| last.contains(':') && !last.ends_with(":latest"));
            default(container, "imagePullPolicy", json!(if tagged { "IfNotPresent" } else { "Always" }));
            default(container, "resources", json!({}));
            default(container, "terminationMessagePath", json!("/dev/termination-log"));
            default(container, "terminationMessagePolicy", json!("File"));
            if let Some(Value::Array(ports)) = container.get_mut("ports") {
                ports
                    .iter_mut()
                    .filter(|port| port.is_object())
                    .for_each(|port| default(port, "protocol", json!("TCP")));
            }
        }
    }
}

/// The mistakes that people make most, refused in the API server's words.
pub fn validate(resource: &ResourceType, object: &Value) -> Answer<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |field: &str, why: &str| Err(status::invalid(resource, name, field, why));
    for map in ["labels", "annotations"] {
        if let Some(Value::Object(pairs)) = object["metadata"].get(map)
            && let Some((key, _)) = pairs.iter().find(|(_, value)| !value.is_string())
        {
            return Err(status::bad_request(format!("metadata.{map}.{key}: the value must be a string")));
        }
    }
    let spec = &object["spec"];
    match resource.kind {
        "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet" => {
            let Some(Value::Object(selector)) = spec["selector"].get("matchLabels") else {
                if spec["selector"]["matchExpressions"].is_array() {
                    return containers(resource, name, &spec["template"]["spec"], "spec.template.spec");
                }
                return refuse("spec.selector", "Required value");
            };
            let labels = &spec["template"]["metadata"]["labels"];
            if selector.iter().any(|(key, value)| labels.get(key) != Some(value)) {
                return refuse(
                    "spec.template.metadata.labels",
                    "Invalid value: `selector` does not match template `labels`",
                );
            }
            if spec["replicas"].as_i64().is_some_and(|count| count < 0) {
                return refuse("spec.replicas", "Invalid value: must be greater than or equal to 0");
            }
            containers(resource, name, &spec["template"]["spec"], "spec.template.spec")
        }
        "Job" => containers(resource, name, &spec["template"]["spec"], "spec.template.spec"),
        "Pod" => containers(resource, name, spec, "spec"),
        "RoleBinding" | "ClusterRoleBinding" if object["roleRef"]["name"].as_str().unwrap_or_default().is_empty() => {
            refuse("roleRef.name", "Required value")
        }
        "StorageClass" if object["provisioner"].as_str().unwrap_or_default().is_empty() => {
            refuse("provisioner", "Required value")
        }
        _ => Ok(()),
    }
}

fn containers(resource: &ResourceType, name: &str, spec: &Value, path: &str) -> Answer<()> {
    let Some(list) = spec["containers"].as_array().filter(|list| !list.is_empty()) else {
        return Err(status::invalid(resource, name, &format!("{path}.containers"), "Required value"));
    };
    for (at, container) in list.iter().enumerate() {
        for field in ["name", "image"] {
            if container[field].as_str().unwrap_or_default().is_empty() {
                return Err(status::invalid(
                    resource,
                    name,
                    &format!("{path}.containers[{at}].{field}"),
                    "Required value",
                ));
            }
        }
    }
    Ok(())
}
