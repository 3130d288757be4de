//! Services: endpoints of ready pods, node ports, and addresses from the cloud's load balancers.

use serde_json::{Value, json};

use super::{Change, Scene, due_change, is_leaving, is_true, kind, owner_reference, spread, tell};
use crate::kube::objects::{Stored, meta};
use crate::registry::{self, LoadBalancers};

/// From a load balancer asked for to one that has an address.
const BALANCER_MS: (i64, i64) = (30_000, 60_000);
const WHO: &str = "service-controller";

pub fn run(scene: &Scene) -> Vec<Change> {
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("", "services").filter(|row| !is_leaving(&row.object)) {
        endpoints(scene, &row.object, &mut changes);
        balancer(scene, row, &mut changes);
    }
    orphans(scene, &mut changes);
    changes
}

/// The number behind a target port, in one pod.
fn port_in(pod: &Value, target: &Value, number: &Value) -> Option<u64> {
    match target {
        Value::Number(port) => port.as_u64(),
        Value::String(name) => {
            let containers = pod["spec"]["containers"].as_array()?;
            let ports = containers.iter().flat_map(|container| container["ports"].as_array().into_iter().flatten());
            ports.into_iter().find(|port| port["name"] == *name).and_then(|port| port["containerPort"].as_u64())
        }
        _ => number.as_u64(),
    }
}

fn endpoints(scene: &Scene, service: &Value, changes: &mut Vec<Change>) {
    let Some(selector) = service["spec"]["selector"].as_object().filter(|selector| !selector.is_empty()) else {
        return;
    };
    if service["spec"]["type"] == "ExternalName" {
        return;
    }
    let (namespace, name) = (meta(service, "namespace"), meta(service, "name"));
    let all = service["spec"]["publishNotReadyAddresses"] == true;
    let chosen: Vec<&Value> = scene
        .objects
        .rows_of("", "pods")
        .map(|row| &row.object)
        .filter(|pod| meta(pod, "namespace") == namespace && pod["status"]["podIP"].is_string())
        .filter(|pod| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")))
        .filter(|pod| selector.iter().all(|(key, value)| pod["metadata"]["labels"].get(key) == Some(value)))
        .collect();
    let ports: Vec<Value> = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|port| {
            let numbers = chosen.iter().find_map(|pod| port_in(pod, &port["targetPort"], &port["port"]));
            let number = numbers.or_else(|| port["targetPort"].as_u64())?;
            let mut made = json!({"port": number, "protocol": port["protocol"]});
            if let Some(name) = port["name"].as_str() {
                made["name"] = json!(name);
            }
            Some(made)
        })
        .collect();
    let reference = |pod: &Value| json!({"kind": "Pod", "namespace": namespace, "name": meta(pod, "name"), "uid": meta(pod, "uid")});
    let address = |pod: &&Value| json!({"ip": pod["status"]["podIP"], "nodeName": pod["spec"]["nodeName"], "targetRef": reference(pod)});
    let is_up = |pod: &Value| all || (is_true(pod, "Ready") && !is_leaving(pod));
    let (up, down): (Vec<&Value>, Vec<&Value>) = chosen.iter().copied().partition(|pod| is_up(pod));
    let mut subset = json!({"ports": ports});
    if !up.is_empty() {
        subset["addresses"] = up.iter().map(address).collect();
    }
    let down: Vec<Value> = down.iter().filter(|pod| !is_leaving(pod)).map(address).collect();
    if !down.is_empty() {
        subset["notReadyAddresses"] = json!(down);
    }
    let mut body = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": labelled(service, name)});
    if subset.get("addresses").is_some() || subset.get("notReadyAddresses").is_some() {
        body["subsets"] = json!([subset]);
    }
    keep(scene, "", "endpoints", body, &["subsets"], changes);
    slice(scene, service, &chosen, &ports, is_up, changes);
}

fn labelled(service: &Value, name: &str) -> Value {
    let mut labels = service["metadata"]["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    labels["endpoints.kubernetes.io/managed-by"] = json!("endpoint-controller");
    json!({"name": name, "namespace": meta(service, "namespace"), "labels": labels})
}

fn slice(
    scene: &Scene,
    service: &Value,
    chosen: &[&Value],
    ports: &[Value],
    is_up: impl Fn(&Value) -> bool,
    changes: &mut Vec<Change>,
) {
    let (namespace, name) = (meta(service, "namespace"), meta(service, "name"));
    let reference = |pod: &Value| json!({"kind": "Pod", "namespace": namespace, "name": meta(pod, "name"), "uid": meta(pod, "uid")});
    let list: Vec<Value> = chosen
        .iter()
        .map(|pod| {
            let (ready, leaving) = (is_up(pod), is_leaving(pod));
            json!({"addresses": [pod["status"]["podIP"]], "nodeName": pod["spec"]["nodeName"], "targetRef": reference(pod),
                   "conditions": {"ready": ready, "serving": ready, "terminating": leaving}})
        })
        .collect();
    let mut named: Vec<Value> = ports.to_vec();
    for port in &mut named {
        if port["name"].is_null() {
            port["name"] = json!("");
        }
    }
    let mut metadata = labelled(service, name);
    metadata["labels"]["endpointslice.kubernetes.io/managed-by"] = json!("endpointslice-controller.k8s.io");
    metadata["labels"]["kubernetes.io/service-name"] = json!(name);
    metadata["labels"].as_object_mut().map(|labels| labels.remove("endpoints.kubernetes.io/managed-by"));
    metadata["name"] = json!(format!(
        "{name}-{}",
        crate::kube::objects::safe_letters(meta(service, "uid").as_bytes().get(..5).unwrap_or(b"abcde"))
    ));
    metadata["generateName"] = json!(format!("{name}-"));
    metadata["ownerReferences"] = owner_reference(kind("", "services"), service);
    let body = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                      "addressType": "IPv4", "endpoints": list, "ports": named});
    keep(scene, "discovery.k8s.io", "endpointslices", body, &["endpoints", "ports"], changes);
}

/// Makes the object, or brings the given parts of it up.
fn keep(
    scene: &Scene,
    group: &'static str,
    plural: &'static str,
    body: Value,
    parts: &[&str],
    changes: &mut Vec<Change>,
) {
    let resource = kind(group, plural);
    let (namespace, name) = (meta(&body, "namespace").to_owned(), meta(&body, "name").to_owned());
    let Some(known) = scene.objects.peek(group, plural, &namespace, &name) else {
        changes.push(Change::Create { resource, namespace, body });
        return;
    };
    if parts.iter().all(|part| known.get(part) == body.get(part)) {
        return;
    }
    let mut object = known.clone();
    for part in parts {
        match body.get(part) {
            Some(value) => object[*part] = value.clone(),
            None => drop(object.as_object_mut().map(|map| map.remove(*part))),
        }
    }
    changes.push(Change::Set { resource, object, due: None });
}

/// Endpoints without a service go; slices have it as their owner.
fn orphans(scene: &Scene, changes: &mut Vec<Change>) {
    for row in scene.objects.rows_of("", "endpoints") {
        let (namespace, name) = (meta(&row.object, "namespace"), meta(&row.object, "name"));
        let ours = row.object["metadata"]["labels"].get("endpoints.kubernetes.io/managed-by").is_some();
        if ours && scene.objects.peek("", "services", namespace, name).is_none() {
            changes.push(super::delete(kind("", "endpoints"), &row.object));
        }
    }
}

fn balancer(scene: &Scene, row: &Stored, changes: &mut Vec<Change>) {
    let (services, service) = (kind("", "services"), &row.object);
    let has = service["status"]["loadBalancer"]["ingress"].is_array();
    let class = service["spec"]["loadBalancerClass"].as_str().is_some_and(|class| !class.is_empty());
    if service["spec"]["type"] != "LoadBalancer" || class {
        if has || service["status"].get("loadBalancer").is_none() {
            let mut object = service.clone();
            object["status"] = json!({"loadBalancer": {}});
            changes.push(Change::Set { resource: services, object, due: None });
        }
        return;
    }
    if has {
        return;
    }
    match row.due {
        None => {
            if service["status"].get("loadBalancer").is_none() {
                let mut object = service.clone();
                object["status"] = json!({"loadBalancer": {}});
                changes.push(Change::Set { resource: services, object, due: None });
            }
            let wait = spread(meta(service, "uid"), BALANCER_MS.0, BALANCER_MS.1);
            changes.push(tell(service, WHO, "EnsuringLoadBalancer", "Ensuring load balancer".into()));
            changes.push(due_change(services, service, Some(scene.pace.after(scene.now, wait))));
        }
        Some(due) if due <= scene.now => {
            let mut object = service.clone();
            object["status"] = json!({"loadBalancer": {"ingress": [ingress(scene, service)]}});
            changes.push(Change::Set { resource: services, object, due: None });
            changes.push(tell(service, WHO, "EnsuredLoadBalancer", "Ensured load balancer".into()));
        }
        Some(_) => {}
    }
}

/// An address that no other service of the cluster has, as the cloud gives them out.
fn ingress(scene: &Scene, service: &Value) -> Value {
    let kind_of = registry::find(scene.view.cloud.as_str())
        .map_or(LoadBalancers::Addresses, |cloud| cloud.clusters.load_balancers);
    let uid = meta(service, "uid").replace('-', "");
    if let LoadBalancers::Names(suffix) = kind_of {
        let id = spread(&uid, 100_000_000, 2_000_000_000);
        let name: String = uid.chars().take(31).collect();
        let region = scene.view.nodes.iter().find_map(|node| node.labels.get("topology.kubernetes.io/region"));
        let region = region.map_or_else(|| "us-east-1".to_owned(), Clone::clone);
        return json!({"hostname": format!("a{name}-{id}.{region}.{suffix}")});
    }
    if let Some(asked) = service["spec"]["loadBalancerIP"].as_str().filter(|ip| !ip.is_empty()) {
        return json!({"ip": asked, "ipMode": "VIP"});
    }
    let taken: Vec<&str> = scene
        .objects
        .rows_of("", "services")
        .filter_map(|row| row.object["status"]["loadBalancer"]["ingress"][0]["ip"].as_str())
        .collect();
    let first = spread(&uid, 0, 253);
    let free =
        (0..254).map(|n| format!("203.0.113.{}", 1 + (first + n) % 254)).find(|ip| !taken.contains(&ip.as_str()));
    json!({"ip": free.unwrap_or_else(|| "203.0.113.254".into()), "ipMode": "VIP"})
}
