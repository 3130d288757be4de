//! Definitions of types that become served, API services that somebody else would have to answer for, and addresses.

use serde_json::json;

use super::{Change, Scene, condition, is_leaving, kind, set_status};
use crate::kube::definitions;
use crate::kube::objects::meta;

pub fn run(scene: &Scene) -> Vec<Change> {
    let (resource, mut changes) = (kind("apiextensions.k8s.io", "customresourcedefinitions"), Vec::new());
    for row in scene.objects.rows_of("apiextensions.k8s.io", "customresourcedefinitions") {
        if is_leaving(&row.object) {
            end(scene, &row.object, &mut changes);
            continue;
        }
        let status = definitions::status(&row.object, &scene.now.rfc3339());
        changes.extend(set_status(resource, row, status, None));
    }
    let services = kind("apiregistration.k8s.io", "apiservices");
    for row in scene.objects.rows_of("apiregistration.k8s.io", "apiservices") {
        let service = &row.object["spec"]["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default();
        let (word, reason, message) = if service.is_null() {
            ("True", "Local", "Local APIServices are always available".to_owned())
        } else if scene.objects.peek("", "services", text("namespace"), text("name")).is_none() {
            let why = format!("service/{} in \"{}\" is not present", text("name"), text("namespace"));
            ("False", "ServiceNotFound", why)
        } else {
            let ready = scene.objects.peek("", "endpoints", text("namespace"), text("name")).is_some_and(|endpoints| {
                endpoints["subsets"].as_array().into_iter().flatten().any(|subset| subset["addresses"].is_array())
            });
            let served = row.object["spec"]["group"] == "metrics.k8s.io";
            match (ready, served) {
                (true, true) => ("True", "Passed", "all checks passed".to_owned()),
                (true, false) => {
                    let why = format!(
                        "failing or missing response from https://{}.{}.svc:443: connection refused",
                        text("name"),
                        text("namespace")
                    );
                    ("False", "FailedDiscoveryCheck", why)
                }
                (false, _) => {
                    let why = format!(
                        "endpoints for service/{} in \"{}\" have no addresses with port name \"https\"",
                        text("name"),
                        text("namespace")
                    );
                    ("False", "MissingEndpoints", why)
                }
            }
        };
        let one = condition(&row.object["status"], "Available", word, reason, &message, scene.now);
        changes.extend(set_status(services, row, json!({"conditions": [one]}), None));
    }
    changes
}

/// Objects of a type that is no longer defined go with its definition.
fn end(scene: &Scene, definition: &serde_json::Value, changes: &mut Vec<Change>) {
    let text = |path: &str| definition.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let mut left = 0;
    for (key, row) in scene.objects.all_rows().filter(|(key, _)| key.0 == group && key.1 == plural) {
        left += 1;
        if let Some(resource) = definitions::type_of(definition).filter(|_| !is_leaving(&row.object)) {
            changes.push(Change::Delete {
                resource,
                namespace: key.2.clone(),
                name: key.3.clone(),
                grace: None,
                foreground: false,
            });
        }
    }
    if left == 0 {
        let name = meta(definition, "name").to_owned();
        changes.push(Change::Forget {
            resource: kind("apiextensions.k8s.io", "customresourcedefinitions"),
            namespace: String::new(),
            name,
        });
    }
}
