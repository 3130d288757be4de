//! Namespaces: what every one of them holds, and their end.

use serde_json::{Value, json};

use super::{Change, Scene, condition, is_leaving, kind, set_status};
use crate::kube::objects::{Key, meta};

pub fn run(scene: &Scene) -> Vec<Change> {
    let (namespaces, mut changes) = (kind("", "namespaces"), Vec::new());
    for row in scene.objects.rows_of("", "namespaces") {
        let name = meta(&row.object, "name");
        if is_leaving(&row.object) {
            empty(scene, name, &mut changes);
            let left = scene.objects.all_rows().filter(|(key, _)| key.2 == name).count();
            let finalizers = row.object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
            if left == 0 && !finalizers {
                changes.push(Change::Forget { resource: namespaces, namespace: String::new(), name: name.to_owned() });
            } else {
                let held = held(scene, name);
                let mut status = json!({"phase": "Terminating"});
                if !held.is_empty() {
                    let why = format!("Some content in the namespace has finalizers remaining: {}", held.join(", "));
                    let one = condition(
                        &row.object["status"],
                        "NamespaceFinalizersRemaining",
                        "True",
                        "SomeFinalizersRemain",
                        &why,
                        scene.now,
                    );
                    status["conditions"] = json!([one]);
                }
                changes.extend(set_status(namespaces, row, status, None));
            }
            continue;
        }
        let has = |plural: &str, wanted: &str| scene.objects.peek("", plural, name, wanted).is_some();
        let mut make = |plural: &str, body: Value| {
            changes.push(Change::Create { resource: kind("", plural), namespace: name.to_owned(), body });
        };
        if !has("serviceaccounts", "default") {
            make("serviceaccounts", json!({"metadata": {"name": "default"}}));
        }
        if !has("configmaps", "kube-root-ca.crt") {
            let note = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
            make(
                "configmaps",
                json!({"metadata": {"name": "kube-root-ca.crt", "annotations": {"kubernetes.io/description": note}},
                                      "data": {"ca.crt": ""}}),
            );
        }
    }
    changes
}

fn empty(scene: &Scene, name: &str, changes: &mut Vec<Change>) {
    let inside: Vec<&Key> = scene
        .objects
        .all_rows()
        .filter(|(key, row)| key.2 == name && !is_leaving(&row.object))
        .map(|(key, _)| key)
        .collect();
    for (group, plural, namespace, name) in inside {
        let Some(resource) = scene.objects.by_plural(group, plural) else { continue };
        changes.push(Change::Delete {
            resource,
            namespace: namespace.clone(),
            name: name.clone(),
            grace: None,
            foreground: false,
        });
    }
}

/// The finalizers that keep things in a namespace, and how many each.
fn held(scene: &Scene, name: &str) -> Vec<String> {
    let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for (_, row) in scene.objects.all_rows().filter(|(key, _)| key.2 == name) {
        for finalizer in row.object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
        {
            *counts.entry(finalizer).or_insert(0) += 1;
        }
    }
    counts.into_iter().map(|(finalizer, count)| format!("{finalizer} in {count} resource instances")).collect()
}
