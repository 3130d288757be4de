//! What the API server's admission does with an object before it is kept: service accounts, priorities, quotas, default
//! classes and limits, and webhooks that nobody answers for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::objects::{Objects, as_map, meta};
use super::quantity;
use super::select;
use super::status::{self, Answer};
use super::types::ResourceType;

/// What keeps an object until the cluster has cleaned up behind it.
fn protection(resource: &ResourceType) -> Option<&'static str> {
    match (resource.group, resource.kind) {
        ("", "PersistentVolumeClaim") => Some("kubernetes.io/pvc-protection"),
        ("", "PersistentVolume") => Some("kubernetes.io/pv-protection"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Some("customresourcecleanup.apiextensions.k8s.io"),
        _ => None,
    }
}

pub fn on_create(objects: &Objects, resource: &ResourceType, namespace: &str, object: &mut Value) -> Answer<()> {
    if let Some(name) = protection(resource) {
        let list = as_map(&mut object["metadata"]).entry("finalizers").or_insert_with(|| json!([]));
        if let Value::Array(list) = list
            && !list.contains(&json!(name))
        {
            list.push(json!(name));
        }
    }
    match (resource.group, resource.kind) {
        ("", "Pod") => {
            limit_range(objects, namespace, object)?;
            account(objects, resource, namespace, object)?;
            priority(objects, resource, object)?;
            tolerations(object);
            Ok(())
        }
        ("", "Service") if object["spec"].is_object() => service_address(objects, object),
        ("", "PersistentVolumeClaim") if object["spec"].get("storageClassName").is_none_or(Value::is_null) => {
            if let Some(class) =
                default_class(objects, "storage.k8s.io", "storageclasses", "storageclass.kubernetes.io")
            {
                object["spec"]["storageClassName"] = json!(class);
            }
            Ok(())
        }
        ("networking.k8s.io", "Ingress") if object["spec"].get("ingressClassName").is_none_or(Value::is_null) => {
            let annotated = object["metadata"]["annotations"].get("kubernetes.io/ingress.class").is_some();
            let default = default_class(objects, "networking.k8s.io", "ingressclasses", "ingressclass.kubernetes.io");
            if let (false, Some(class)) = (annotated, default) {
                object["spec"]["ingressClassName"] = json!(class);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// An address in the cluster and ports on the nodes that no other service has.
fn service_address(objects: &Objects, service: &mut Value) -> Answer<()> {
    let key = format!("{}/{}", meta(service, "namespace"), meta(service, "name"));
    let hash = key.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let spec = &mut service["spec"];
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    let others = || objects.rows_of("", "services").map(|row| &row.object["spec"]);
    if spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().is_empty() {
        let taken: Vec<&str> = others().filter_map(|other| other["clusterIP"].as_str()).collect();
        let address = |n: u32| {
            let at = hash.wrapping_add(n);
            format!("10.43.{}.{}", at >> 8 & 0xff, (at & 0xff).clamp(11, 254))
        };
        let free = (0..65_536).map(address).find(|ip| !taken.contains(&ip.as_str()));
        spec["clusterIP"] = json!(free.unwrap_or_default());
    }
    let address = spec["clusterIP"].clone();
    spec["clusterIPs"] = json!([address]);
    if spec.get("ipFamilies").is_none() {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if spec.get("ipFamilyPolicy").is_none() {
        spec["ipFamilyPolicy"] = json!("SingleStack");
    }
    node_ports(objects, service);
    Ok(())
}

/// Ports on every node, for the kinds of services that have them.
pub fn node_ports(objects: &Objects, service: &mut Value) {
    let spec = &mut service["spec"];
    let balanced = spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false;
    if !balanced && spec["type"] != "NodePort" {
        return;
    }
    let others =
        objects.rows_of("", "services").flat_map(|row| row.object["spec"]["ports"].as_array().into_iter().flatten());
    let mut taken: Vec<u64> = others.filter_map(|port| port["nodePort"].as_u64()).collect();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if port.get("nodePort").and_then(Value::as_u64).unwrap_or(0) == 0 {
            let first = port["port"].as_u64().unwrap_or(0).wrapping_mul(7919) % 2768;
            let free =
                (0..2768).map(|n| 30_000 + (first + n) % 2768).find(|number| !taken.contains(number)).unwrap_or(30_000);
            port["nodePort"] = json!(free);
            taken.push(free);
        }
    }
}

fn default_class(objects: &Objects, group: &'static str, plural: &'static str, prefix: &str) -> Option<String> {
    let mark = format!("{prefix}/is-default-class");
    let mut marked =
        objects.rows_of(group, plural).filter(|row| row.object["metadata"]["annotations"][mark.as_str()] == "true");
    marked.next().map(|row| meta(&row.object, "name").to_owned())
}

/// A pod runs under an account that must exist, and finds its token in a volume.
fn account(objects: &Objects, resource: &ResourceType, namespace: &str, pod: &mut Value) -> Answer<()> {
    if pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
        return Ok(());
    }
    let spec = &mut pod["spec"];
    let account = spec["serviceAccountName"].as_str().filter(|name| !name.is_empty()).unwrap_or("default").to_owned();
    spec["serviceAccountName"] = json!(account);
    spec["serviceAccount"] = json!(account);
    let Some(found) = objects.peek("", "serviceaccounts", namespace, &account) else {
        let why =
            format!("error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found");
        return Err(status::not_admitted(resource, meta(pod, "name"), &why));
    };
    if spec.get("imagePullSecrets").is_none_or(Value::is_null)
        && let Some(secrets) = found["imagePullSecrets"].as_array().filter(|list| !list.is_empty())
    {
        spec["imagePullSecrets"] = json!(secrets);
    }
    let mounts = spec["automountServiceAccountToken"].as_bool().or(found["automountServiceAccountToken"].as_bool());
    const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let suffix = objects.suffix("kube-api-access-");
    let name = format!("kube-api-access-{suffix}");
    if mounts == Some(false) {
        return Ok(());
    }
    let mut used = false;
    for list in ["initContainers", "containers"] {
        let Some(Value::Array(containers)) = spec.get_mut(list) else { continue };
        for container in containers.iter_mut().filter(|container| container.is_object()) {
            let mounts = as_map(container).entry("volumeMounts").or_insert_with(|| json!([]));
            let Value::Array(mounts) = mounts else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == FOLDER) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": FOLDER}));
                used = true;
            }
        }
    }
    if used {
        let volumes = as_map(spec).entry("volumes").or_insert_with(|| json!([]));
        if let Value::Array(volumes) = volumes {
            volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace",
                                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
            ]}}));
        }
    }
    Ok(())
}

fn priority(objects: &Objects, resource: &ResourceType, pod: &mut Value) -> Answer<()> {
    let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let found = match class.as_str() {
        "" => None,
        name => match objects.peek("scheduling.k8s.io", "priorityclasses", "", name) {
            Some(class) => Some(class),
            None => {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(status::not_admitted(resource, meta(pod, "name"), &why));
            }
        },
    };
    let global = || {
        objects
            .rows_of("scheduling.k8s.io", "priorityclasses")
            .map(|row| &row.object)
            .find(|class| class["globalDefault"] == true)
    };
    let found = found.or_else(global);
    if let (true, Some(found)) = (class.is_empty(), found) {
        pod["spec"]["priorityClassName"] = found["metadata"]["name"].clone();
    }
    let policy = found.and_then(|class| class["preemptionPolicy"].as_str()).unwrap_or("PreemptLowerPriority");
    pod["spec"]["priority"] = found.map_or_else(|| json!(0), |class| class["value"].clone());
    pod["spec"]["preemptionPolicy"] = json!(policy);
    Ok(())
}

/// Pods stay for five minutes on a node that stopped answering.
fn tolerations(pod: &mut Value) {
    let list = as_map(&mut pod["spec"]).entry("tolerations").or_insert_with(|| json!([]));
    let Value::Array(list) = list else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|one| {
            let here = one["key"] == key || one["key"].as_str().unwrap_or_default().is_empty();
            here && (one["effect"] == "NoExecute" || one["effect"].as_str().unwrap_or_default().is_empty())
        });
        if !tolerated {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}

/// Defaults for containers, and the most that one may ask for.
fn limit_range(objects: &Objects, namespace: &str, pod: &mut Value) -> Answer<()> {
    let ranges: Vec<&Value> = objects
        .rows_of("", "limitranges")
        .filter(|row| meta(&row.object, "namespace") == namespace)
        .flat_map(|row| row.object["spec"]["limits"].as_array().into_iter().flatten())
        .filter(|limit| limit["type"] == "Container")
        .collect();
    let name = meta(pod, "name").to_owned();
    for limit in ranges {
        let Some(Value::Array(containers)) = pod["spec"].get_mut("containers") else { continue };
        for container in containers.iter_mut().filter(|container| container.is_object()) {
            for (from, into) in [("default", "limits"), ("defaultRequest", "requests")] {
                for (resource, amount) in limit[from].as_object().into_iter().flatten() {
                    let target = as_map(as_map(&mut container["resources"]).entry(into).or_insert_with(|| json!({})));
                    target.entry(resource.clone()).or_insert_with(|| amount.clone());
                }
            }
            for (resource, most) in limit["max"].as_object().into_iter().flatten() {
                let given = &container["resources"]["limits"][resource.as_str()];
                if quantity::parse(given) > quantity::parse(most) {
                    let why = format!(
                        "maximum {resource} usage per Container is {}, but limit is {}",
                        quantity::text(most),
                        quantity::text(given)
                    );
                    return Err(status::not_admitted_name("pods", &name, &why));
                }
            }
        }
    }
    Ok(())
}

/// Counts what a namespace's quotas limit, and refuses what would exceed them.
pub fn quota(objects: &Objects, resource: &ResourceType, namespace: &str, object: &Value) -> Answer<()> {
    if !resource.namespaced {
        return Ok(());
    }
    for quota in objects.rows_of("", "resourcequotas").filter(|row| meta(&row.object, "namespace") == namespace) {
        let asked = usage(resource.group, resource.plural, object);
        let used = used(objects, namespace);
        for (name, hard) in quota.object["spec"]["hard"].as_object().into_iter().flatten() {
            let (Some(more), hard_amount) = (asked.get(name), quantity::parse(hard)) else { continue };
            let before = used.get(name).copied().unwrap_or(0);
            if *more > 0 && before + more > hard_amount {
                let shown = |amount: i128| quantity::show(name, amount);
                let why = format!(
                    "exceeded quota: {}, requested: {name}={}, used: {name}={}, limited: {name}={}",
                    meta(&quota.object, "name"),
                    shown(*more),
                    shown(before),
                    quantity::text(hard)
                );
                return Err(status::not_admitted(resource, meta(object, "name"), &why));
            }
        }
    }
    Ok(())
}

/// What everything in a namespace uses, by the names that quotas have for it.
pub fn used(objects: &Objects, namespace: &str) -> BTreeMap<String, i128> {
    let mut all = BTreeMap::new();
    for ((group, plural, home, _), row) in objects.all_rows() {
        if home == namespace {
            for (name, amount) in usage(group, plural, &row.object) {
                *all.entry(name).or_insert(0) += amount;
            }
        }
    }
    all
}

fn usage(group: &str, plural: &str, object: &Value) -> BTreeMap<String, i128> {
    let mut usage = BTreeMap::new();
    let thousand = 1000;
    let over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if plural == "pods" && group.is_empty() && over {
        return usage;
    }
    let counted = if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") };
    usage.insert(counted, thousand);
    if group.is_empty() {
        usage.insert(plural.to_owned(), thousand);
    }
    let kind = object["spec"]["type"].as_str();
    match (group, plural) {
        ("", "services") if kind == Some("LoadBalancer") => {
            usage.insert("services.loadbalancers".into(), thousand);
        }
        ("", "services") if kind == Some("NodePort") => {
            usage.insert("services.nodeports".into(), thousand);
        }
        ("", "persistentvolumeclaims") => {
            let size = quantity::parse(&object["spec"]["resources"]["requests"]["storage"]);
            usage.insert("requests.storage".into(), size);
        }
        ("", "pods") => {
            for part in ["requests", "limits"] {
                for resource in ["cpu", "memory"] {
                    let amount = quantity::of_pod(&object["spec"], part, resource);
                    usage.insert(format!("{part}.{resource}"), amount);
                    if part == "requests" {
                        usage.insert(resource.into(), amount);
                    }
                }
            }
        }
        _ => {}
    }
    usage
}

/// Calls no webhook: a service that has ready pods is taken to allow everything, one that has none fails as its policy says.
pub fn webhooks(
    objects: &Objects,
    operation: &str,
    resource: &ResourceType,
    namespace: &str,
    object: &Value,
    dry_run: bool,
) -> Answer<Vec<String>> {
    if resource.group == "admissionregistration.k8s.io" || resource.kind == "Event" {
        return Ok(Vec::new());
    }
    for plural in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        for configuration in objects.rows_of("admissionregistration.k8s.io", plural) {
            for webhook in configuration.object["webhooks"].as_array().into_iter().flatten() {
                if !concerns(objects, webhook, operation, resource, namespace, object) {
                    continue;
                }
                let name = webhook["name"].as_str().unwrap_or_default();
                if dry_run && !matches!(webhook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")) {
                    let why = format!("admission webhook \"{name}\" does not support dry run");
                    return Err(status::bad_request(why));
                }
                let Some(why) = unanswered(objects, webhook) else { continue };
                if webhook["failurePolicy"] != "Ignore" {
                    return Err(status::internal(&format!(
                        "failed calling webhook \"{name}\": failed to call webhook: {why}"
                    )));
                }
            }
        }
    }
    Ok(Vec::new())
}

fn concerns(
    objects: &Objects,
    webhook: &Value,
    operation: &str,
    resource: &ResourceType,
    namespace: &str,
    object: &Value,
) -> bool {
    let has = |list: &Value, wanted: &str| list.as_array().into_iter().flatten().any(|one| one == wanted || one == "*");
    let exact = webhook["matchPolicy"] == "Exact";
    let rules = webhook["rules"].as_array().into_iter().flatten().any(|rule| {
        let scope = match rule["scope"].as_str() {
            Some("Namespaced") => resource.namespaced,
            Some("Cluster") => !resource.namespaced,
            _ => true,
        };
        let all = has(&rule["resources"], "*/*");
        scope
            && has(&rule["operations"], operation)
            && has(&rule["apiGroups"], resource.group)
            && (!exact || has(&rule["apiVersions"], resource.version) || !resource.custom)
            && (all || has(&rule["resources"], resource.plural))
    });
    if !rules {
        return false;
    }
    let home = if resource.kind == "Namespace" { meta(object, "name") } else { namespace };
    let labels = objects.peek("", "namespaces", "", home).map(|home| home["metadata"]["labels"].clone());
    let labels =
        if resource.kind == "Namespace" { object["metadata"]["labels"].clone() } else { labels.unwrap_or_default() };
    let by_namespace = (!resource.namespaced && resource.kind != "Namespace")
        || select::label_selector(&webhook["namespaceSelector"], &labels);
    by_namespace && select::label_selector(&webhook["objectSelector"], &object["metadata"]["labels"])
}

/// Why a webhook cannot be reached, in the words of the API server; nothing if it can.
fn unanswered(objects: &Objects, webhook: &Value) -> Option<String> {
    let seconds = webhook["timeoutSeconds"].as_u64().unwrap_or(10);
    let config = &webhook["clientConfig"];
    if let Some(url) = config["url"].as_str() {
        let host = url.split("//").nth(1).and_then(|rest| rest.split(['/', ':']).next()).unwrap_or_default();
        return Some(format!("Post \"{url}?timeout={seconds}s\": dial tcp: lookup {host}: no such host"));
    }
    let service = &config["service"];
    let (name, namespace) =
        (service["name"].as_str().unwrap_or_default(), service["namespace"].as_str().unwrap_or_default());
    let path = service["path"].as_str().unwrap_or("/");
    let port = service["port"].as_u64().unwrap_or(443);
    let post = format!("Post \"https://{name}.{namespace}.svc:{port}{path}?timeout={seconds}s\"");
    if objects.peek("", "services", namespace, name).is_none() {
        return Some(format!("{post}: service \"{name}\" not found"));
    }
    let ready = objects
        .peek("", "endpoints", namespace, name)
        .and_then(|endpoints| endpoints["subsets"].as_array())
        .is_some_and(|subsets| {
            subsets.iter().any(|subset| subset["addresses"].as_array().is_some_and(|list| !list.is_empty()))
        });
    if ready { None } else { Some(format!("{post}: no endpoints available for service \"{name}\"")) }
}
