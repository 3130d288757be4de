//! `metrics.k8s.io`: what pods and nodes use. Made up from what they ask for, a little different every half minute.

use serde_json::{Value, json};

use super::api::{Ask, Given};
use super::objects::{Objects, meta};
use super::quantity;
use super::select::Selector;
use super::status::{self, Answer};
use crate::clock::SimTime;

const WINDOW_MS: i64 = 30_000;

pub fn answer(ask: &Ask, objects: &Objects, rest: &[&str], now: SimTime) -> Answer<Given> {
    let selector = Selector::parse(ask.query("labelSelector"), ask.query("fieldSelector"))?;
    let list = |kind: &str, items: Vec<Value>| json!({"kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items});
    let pods = |namespace: &str| -> Vec<&Value> {
        let all = objects.rows_of("", "pods").map(|row| &row.object);
        all.filter(|pod| {
            (namespace.is_empty() || meta(pod, "namespace") == namespace) && pod["status"]["phase"] == "Running"
        })
        .collect()
    };
    let answer = match rest {
        ["nodes"] => {
            let nodes = objects.rows_of("", "nodes").map(|row| &row.object).filter(|node| selector.matches(node));
            list("NodeMetricsList", nodes.map(|node| node_metrics(objects, node, now)).collect())
        }
        ["nodes", name] => match objects.peek("", "nodes", "", name) {
            Some(node) => node_metrics(objects, node, now),
            None => return Err(status::not_found(&super::types::METRICS[0], name)),
        },
        ["pods"] => list(
            "PodMetricsList",
            pods("").into_iter().filter(|pod| selector.matches(pod)).map(|pod| pod_metrics(pod, now)).collect(),
        ),
        ["namespaces", namespace, "pods"] => list(
            "PodMetricsList",
            pods(namespace).into_iter().filter(|pod| selector.matches(pod)).map(|pod| pod_metrics(pod, now)).collect(),
        ),
        ["namespaces", namespace, "pods", name] => {
            match pods(namespace).into_iter().find(|pod| meta(pod, "name") == *name) {
                Some(pod) => pod_metrics(pod, now),
                None => return Err(status::not_found(&super::types::METRICS[1], name)),
            }
        }
        _ => return Err(status::no_such_path()),
    };
    Ok(Given::Json(200, answer))
}

/// Between 10 and 60 hundredths, changing with time.
fn load(text: &str, now: SimTime) -> i128 {
    let key = format!("{text}/{}", now.0 / WINDOW_MS);
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    10 + i128::from(hash % 50)
}

/// Thousandths of a processor, and bytes.
fn usage(pod: &Value, container: &Value, now: SimTime) -> (i128, i128) {
    let name = container["name"].as_str().unwrap_or_default();
    let share = load(&format!("{}/{name}", meta(pod, "uid")), now);
    let asked = |resource: &str| container["resources"]["requests"].get(resource).map_or(0, quantity::parse);
    let cpu = asked("cpu").max(20) * share / 100;
    let memory = (asked("memory") / 1000).max(40 << 20) * (40 + share) / 100;
    (cpu.max(1), memory)
}

fn shown((cpu, memory): (i128, i128)) -> Value {
    json!({"cpu": format!("{}n", cpu * 1_000_000), "memory": format!("{}Ki", memory / 1024)})
}

fn stamp(now: SimTime) -> (String, &'static str) {
    (SimTime(now.0 - now.0.rem_euclid(WINDOW_MS)).rfc3339(), "30s")
}

fn pod_metrics(pod: &Value, now: SimTime) -> Value {
    let containers: Vec<Value> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| json!({"name": container["name"], "usage": shown(usage(pod, container, now))}))
        .collect();
    let (timestamp, window) = stamp(now);
    json!({"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1", "timestamp": timestamp, "window": window,
           "metadata": {"name": meta(pod, "name"), "namespace": meta(pod, "namespace"), "labels": pod["metadata"]["labels"],
                        "creationTimestamp": now.rfc3339()},
           "containers": containers})
}

/// What its pods use, and a share of the machine for itself.
fn node_metrics(objects: &Objects, node: &Value, now: SimTime) -> Value {
    let name = meta(node, "name");
    let own = |resource: &str, share: i128| quantity::parse(&node["status"]["capacity"][resource]) * share / 100;
    let mut total = (own("cpu", 3), own("memory", 12) / 1000);
    let here = objects
        .rows_of("", "pods")
        .map(|row| &row.object)
        .filter(|pod| pod["spec"]["nodeName"] == name && pod["status"]["phase"] == "Running");
    for pod in here {
        for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
            let (cpu, memory) = usage(pod, container, now);
            total = (total.0 + cpu, total.1 + memory);
        }
    }
    let (timestamp, window) = stamp(now);
    json!({"kind": "NodeMetrics", "apiVersion": "metrics.k8s.io/v1beta1", "timestamp": timestamp, "window": window,
           "metadata": {"name": name, "labels": node["metadata"]["labels"], "creationTimestamp": now.rfc3339()},
           "usage": shown(total)})
}
