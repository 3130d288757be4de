//! What the API server refuses: bad names, missing parts, and changes of what cannot change.

use serde_json::{Value, json};

use super::definitions;
use super::quantity;
use super::status::{self, Answer};
use super::types::ResourceType;

const NAME_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                         start and end with an alphanumeric character";

pub fn name(resource: &ResourceType, name: &str) -> Answer<()> {
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
pub fn shape(object: &Value) -> Answer<()> {
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

/// The mistakes that people make most, refused in the API server's words.
pub fn object(resource: &ResourceType, object: &Value) -> Answer<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |field: &str, why: &str| Err(status::invalid(resource, name, field, why));
    text_maps(object)?;
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
        "Job" => {
            if spec["template"]["spec"]["restartPolicy"] == "Always" {
                return refuse(
                    "spec.template.spec.restartPolicy",
                    "Required value: valid values: \"OnFailure\", \"Never\"",
                );
            }
            containers(resource, name, &spec["template"]["spec"], "spec.template.spec")
        }
        "CronJob" => {
            let schedule = spec["schedule"].as_str().unwrap_or_default();
            if super::controllers::Schedule::parse(schedule).is_none() {
                return refuse(
                    "spec.schedule",
                    &format!("Invalid value: \"{schedule}\": not a schedule of five fields"),
                );
            }
            let template = &spec["jobTemplate"]["spec"]["template"]["spec"];
            containers(resource, name, template, "spec.jobTemplate.spec.template.spec")
        }
        "CustomResourceDefinition" => match definitions::wrong(object) {
            Some((field, why)) => refuse(field, &why),
            None => Ok(()),
        },
        "Service"
            if spec["type"] != "ExternalName"
                && spec["clusterIP"] != "None"
                && spec["ports"].as_array().is_none_or(Vec::is_empty) =>
        {
            refuse("spec.ports", "Required value")
        }
        "PersistentVolumeClaim" => {
            if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
                return refuse("spec.accessModes", "Required value: at least 1 access mode is required");
            }
            if spec["resources"]["requests"]["storage"].is_null() {
                return refuse("spec.resources[storage]", "Required value");
            }
            Ok(())
        }
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

fn text_maps(object: &Value) -> Answer<()> {
    for map in ["labels", "annotations"] {
        if let Some(Value::Object(pairs)) = object["metadata"].get(map)
            && let Some((key, _)) = pairs.iter().find(|(_, value)| !value.is_string())
        {
            return Err(status::bad_request(format!("metadata.{map}.{key}: the value must be a string")));
        }
    }
    Ok(())
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

/// Refuses changes of what is fixed once an object is made.
pub fn update(resource: &ResourceType, old: &Value, new: &mut Value) -> Answer<()> {
    let name = old["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let refuse = |field: &str, why: &str| Err(status::invalid(resource, &name, field, why));
    let immutable = |value: &Value| format!("Invalid value: {value}: field is immutable");
    match resource.kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" if new["spec"]["selector"] != old["spec"]["selector"] => {
            refuse("spec.selector", &immutable(&new["spec"]["selector"]))
        }
        "StatefulSet" => {
            let fixed = |object: &Value| {
                let mut spec = object["spec"].clone();
                for field in [
                    "replicas",
                    "ordinals",
                    "template",
                    "updateStrategy",
                    "revisionHistoryLimit",
                    "persistentVolumeClaimRetentionPolicy",
                    "minReadySeconds",
                ] {
                    spec.as_object_mut().map(|spec| spec.remove(field));
                }
                spec
            };
            if fixed(old) == fixed(new) {
                return Ok(());
            }
            refuse(
                "spec",
                "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            )
        }
        "Job" => {
            for field in ["template", "selector", "completionMode"] {
                if new["spec"][field] != old["spec"][field] {
                    return refuse(&format!("spec.{field}"), &immutable(&new["spec"][field]));
                }
            }
            Ok(())
        }
        "Service" => service_update(resource, &name, old, new),
        "PersistentVolumeClaim" => claim_update(resource, &name, old, new),
        "Pod" => pod_update(resource, &name, old, new),
        "RoleBinding" | "ClusterRoleBinding" if new["roleRef"] != old["roleRef"] => {
            refuse("roleRef", &format!("Invalid value: {}: cannot change roleRef", new["roleRef"]))
        }
        "ConfigMap" | "Secret" if old["immutable"] == true => {
            for field in ["data", "binaryData", "immutable"] {
                if new[field] != old[field] {
                    return refuse(field, "Forbidden: field is immutable when `immutable` is set");
                }
            }
            Ok(())
        }
        "Secret" if new["type"] != old["type"] => refuse("type", &immutable(&new["type"])),
        _ => Ok(()),
    }
}

/// What was allocated stays; a changed address is refused.
fn service_update(resource: &ResourceType, name: &str, old: &Value, new: &mut Value) -> Answer<()> {
    let external = |object: &Value| object["spec"]["type"] == "ExternalName";
    if !external(old) && !external(new) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if new["spec"].get(field).is_none_or(Value::is_null) {
                new["spec"][field] = old["spec"][field].clone();
            }
        }
        if new["spec"]["clusterIP"] != old["spec"]["clusterIP"] {
            let why = format!("Invalid value: [{}]: may not change once set", new["spec"]["clusterIP"]);
            return Err(status::invalid(resource, name, "spec.clusterIPs[0]", &why));
        }
    }
    let wants_ports = matches!(new["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer"));
    let before = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
    for port in new["spec"]["ports"].as_array_mut().into_iter().flatten() {
        let same = before.iter().find(|known| known["port"] == port["port"] && known["protocol"] == port["protocol"]);
        if let (true, true, Some(known)) =
            (wants_ports, port["nodePort"].is_null(), same.and_then(|known| known.get("nodePort")))
        {
            port["nodePort"] = known.clone();
        }
    }
    Ok(())
}

fn claim_update(resource: &ResourceType, name: &str, old: &Value, new: &Value) -> Answer<()> {
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        spec["resources"] = json!(null);
        spec["volumeName"] = json!(null);
        spec
    };
    if old["spec"]["volumeName"].is_string() && fixed(old) != fixed(new) {
        let why = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        return Err(status::invalid(resource, name, "spec", why));
    }
    let size = |object: &Value| quantity::parse(&object["spec"]["resources"]["requests"]["storage"]);
    if size(new) < size(old) {
        let why = "Forbidden: field can not be less than status.capacity";
        return Err(status::invalid(resource, name, "spec.resources.requests.storage", why));
    }
    Ok(())
}

fn pod_update(resource: &ResourceType, name: &str, old: &Value, new: &Value) -> Answer<()> {
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        for field in ["tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates"] {
            spec.as_object_mut().map(|spec| spec.remove(field));
        }
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                container["image"] = json!("");
            }
        }
        if spec["initContainers"].is_null() {
            spec.as_object_mut().map(|spec| spec.remove("initContainers"));
        }
        spec
    };
    if fixed(old) == fixed(new) {
        return Ok(());
    }
    let why = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
               `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
               tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    Err(status::invalid(resource, name, "spec", why))
}
