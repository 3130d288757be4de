//! Whether a pod may run on a node: taints, selectors, affinity, room. Pure functions over specs.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kube::objects::meta;
use crate::kube::quantity;
use crate::kube::select::label_selector;

/// Whether one of the pod's tolerations is for the taint.
pub fn tolerates<'a>(spec: &'a Value, taint: &Value) -> Option<&'a Value> {
    spec["tolerations"].as_array()?.iter().find(|one| {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        let effect = text("effect").is_empty() || one["effect"] == taint["effect"];
        let key = text("key").is_empty() && text("operator") == "Exists" || one["key"] == taint["key"];
        let value = text("operator") == "Exists" || text("value") == taint["value"].as_str().unwrap_or_default();
        effect && key && value
    })
}

/// The first taint with one of the effects that the pod does not tolerate.
pub fn untolerated<'a>(spec: &Value, node: &'a Value, effects: &[&str]) -> Option<&'a Value> {
    node["spec"]["taints"].as_array()?.iter().find(|taint| {
        effects.contains(&taint["effect"].as_str().unwrap_or_default()) && tolerates(spec, taint).is_none()
    })
}

pub fn fits_node(spec: &Value, node: &Value, effects: &[&str]) -> bool {
    untolerated(spec, node, effects).is_none()
}

/// The node selector, and the required part of the node affinity.
pub fn matches_node_affinity(spec: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let selected =
        spec["nodeSelector"].as_object().into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let affine = required.as_array().is_none_or(|terms| terms.iter().any(|term| matches_term(term, node)));
    selected && affine
}

fn matches_term(term: &Value, node: &Value) -> bool {
    let expressions = term["matchExpressions"].as_array().into_iter().flatten();
    let fields = term["matchFields"].as_array().into_iter().flatten();
    let by_labels = expressions.clone().all(|one| {
        let value = node["metadata"]["labels"].get(one["key"].as_str().unwrap_or_default()).and_then(Value::as_str);
        matches_expression(one, value)
    });
    let by_fields = fields.clone().all(|one| matches_expression(one, Some(meta(node, "name"))));
    // A term that says nothing fits nothing.
    let says_something = expressions.count() + fields.count() > 0;
    says_something && by_labels && by_fields
}

fn matches_expression(one: &Value, value: Option<&str>) -> bool {
    let values: Vec<&str> = one["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let number = |text: &str| text.parse::<i64>().ok();
    match one["operator"].as_str().unwrap_or_default() {
        "In" => value.is_some_and(|value| values.contains(&value)),
        "NotIn" => !value.is_some_and(|value| values.contains(&value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.and_then(number) > values.first().and_then(|text| number(text)) && value.is_some(),
        "Lt" => value.and_then(number).zip(values.first().and_then(|text| number(text))).is_some_and(|(a, b)| a < b),
        _ => false,
    }
}

/// How well the preferred part of the node affinity fits.
pub fn preference(spec: &Value, node: &Value) -> i64 {
    let preferred = &spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let fits = preferred.as_array().into_iter().flatten().filter(|one| matches_term(&one["preference"], node));
    fits.map(|one| one["weight"].as_i64().unwrap_or(0)).sum()
}

/// What is free on a node.
#[derive(Debug, Clone, Default)]
pub struct NodeRoom {
    /// In thousandths, by resource.
    pub free: BTreeMap<String, i128>,
    pub capacity: BTreeMap<String, i128>,
    pub host_ports: Vec<(u64, String)>,
}

impl NodeRoom {
    pub fn of(node: &Value) -> NodeRoom {
        let all: BTreeMap<String, i128> = node["status"]["allocatable"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, amount)| (name.clone(), quantity::parse(amount)))
            .collect();
        NodeRoom { free: all.clone(), capacity: all, host_ports: Vec::new() }
    }

    pub fn take(&mut self, spec: &Value) {
        for name in asked(spec) {
            let amount = quantity::of_pod(spec, "requests", &name);
            *self.free.entry(name).or_insert(0) -= amount;
        }
        *self.free.entry("pods".into()).or_insert(0) -= 1000;
        self.host_ports.extend(host_ports(spec));
    }

    /// What is missing for a pod, in the scheduler's words.
    pub fn missing(&self, spec: &Value) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.free.get("pods").copied().unwrap_or(0) < 1000 {
            reasons.push("Too many pods".to_owned());
        }
        for name in asked(spec) {
            let amount = quantity::of_pod(spec, "requests", &name);
            if amount > 0 && amount > self.free.get(&name).copied().unwrap_or(0) {
                reasons.push(format!("Insufficient {name}"));
            }
        }
        reasons
    }

    /// The share of processors and memory that is free, in thousandths.
    pub fn freedom(&self) -> i128 {
        let share = |name: &str| {
            let all = self.capacity.get(name).copied().unwrap_or(0).max(1);
            self.free.get(name).copied().unwrap_or(0) * 1000 / all
        };
        (share("cpu") + share("memory")) / 2
    }
}

/// The resources that a pod asks for.
fn asked(spec: &Value) -> Vec<String> {
    let mut names: Vec<String> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .flat_map(|container| ["requests", "limits"].map(|part| container["resources"][part].as_object()))
        .flatten()
        .flat_map(|map| map.keys().cloned())
        .collect();
    names.sort();
    names.dedup();
    names
}

pub fn host_ports(spec: &Value) -> Vec<(u64, String)> {
    let host_network = spec["hostNetwork"] == true;
    spec["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .filter_map(|port| {
            let own = port["hostPort"].as_u64().filter(|port| *port > 0);
            let number = own.or_else(|| port["containerPort"].as_u64().filter(|_| host_network))?;
            Some((number, port["protocol"].as_str().unwrap_or("TCP").to_owned()))
        })
        .collect()
}

/// A pod that is placed, as the terms of others see it.
pub struct Placed<'a> {
    pub pod: &'a Value,
    pub node: &'a Value,
}

fn topology<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    node["metadata"]["labels"].get(key).and_then(Value::as_str)
}

/// Whether a term of pod affinity is about a pod.
fn concerns(term: &Value, home: &str, pod: &Value) -> bool {
    let named = term["namespaces"].as_array().filter(|list| !list.is_empty());
    let everywhere = term["namespaceSelector"].is_object();
    let here = match named {
        Some(list) => list.iter().any(|name| name == meta(pod, "namespace")),
        None => everywhere || meta(pod, "namespace") == home,
    };
    here && term["labelSelector"].is_object() && label_selector(&term["labelSelector"], &pod["metadata"]["labels"])
}

fn required<'a>(spec: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    spec["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten()
}

/// Why affinity between pods keeps one from a node.
pub fn affinity_between(pod: &Value, node: &Value, placed: &[Placed]) -> Option<&'static str> {
    let home = meta(pod, "namespace");
    let near = |key: &str, other: &Placed| {
        topology(other.node, key).is_some() && topology(other.node, key) == topology(node, key)
    };
    for term in required(&pod["spec"], "podAffinity") {
        let key = term["topologyKey"].as_str().unwrap_or_default();
        let any = placed.iter().any(|other| concerns(term, home, other.pod));
        // The first of a group that wants to be together has nobody to be with.
        let first = !any && concerns(term, home, pod);
        let fits = topology(node, key).is_some()
            && (first || placed.iter().any(|other| near(key, other) && concerns(term, home, other.pod)));
        if !fits {
            return Some("node(s) didn't match pod affinity rules");
        }
    }
    for term in required(&pod["spec"], "podAntiAffinity") {
        let key = term["topologyKey"].as_str().unwrap_or_default();
        if placed.iter().any(|other| near(key, other) && concerns(term, home, other.pod)) {
            return Some("node(s) didn't match pod anti-affinity rules");
        }
    }
    for other in placed {
        for term in required(&other.pod["spec"], "podAntiAffinity") {
            let key = term["topologyKey"].as_str().unwrap_or_default();
            if near(key, other) && concerns(term, meta(other.pod, "namespace"), pod) {
                return Some("node(s) didn't satisfy existing pods anti-affinity rules");
            }
        }
    }
    None
}

/// Why spreading over a topology keeps a pod from a node.
pub fn spread_over(pod: &Value, node: &Value, nodes: &[&Value], placed: &[Placed]) -> Option<&'static str> {
    for rule in pod["spec"]["topologySpreadConstraints"].as_array().into_iter().flatten() {
        if rule["whenUnsatisfiable"] == "ScheduleAnyway" {
            continue;
        }
        let key = rule["topologyKey"].as_str().unwrap_or_default();
        let Some(domain) = topology(node, key) else {
            return Some("node(s) didn't match pod topology spread constraints (missing required label)");
        };
        let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
        for other in nodes.iter().filter(|other| matches_node_affinity(&pod["spec"], other)) {
            if let Some(domain) = topology(other, key) {
                counts.entry(domain).or_insert(0);
            }
        }
        for other in placed.iter().filter(|other| meta(other.pod, "namespace") == meta(pod, "namespace")) {
            if let Some(domain) = topology(other.node, key)
                && label_selector(&rule["labelSelector"], &other.pod["metadata"]["labels"])
                && let Some(count) = counts.get_mut(domain)
            {
                *count += 1;
            }
        }
        let domains = counts.len() as i64;
        let least = counts.values().min().copied().unwrap_or(0);
        let least = if domains < rule["minDomains"].as_i64().unwrap_or(1) { 0 } else { least };
        let own = i64::from(label_selector(&rule["labelSelector"], &pod["metadata"]["labels"]));
        if counts.get(domain).copied().unwrap_or(0) + own - least > rule["maxSkew"].as_i64().unwrap_or(1) {
            return Some("node(s) didn't match pod topology spread constraints");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, zone: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"zone": zone, "kubernetes.io/hostname": name, "cores": "4"}},
               "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "2"}}})
    }

    #[test]
    fn taints_need_a_toleration() {
        let node = json!({"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}});
        let fits = |tolerations: Value| fits_node(&json!({"tolerations": tolerations}), &node, &["NoSchedule"]);
        assert!(!fits(json!([])) && !fits(json!([{"key": "a", "value": "c"}])));
        assert!(fits(json!([{"key": "a", "value": "b"}])) && fits(json!([{"operator": "Exists"}])));
        assert!(fits(json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}])));
        assert!(!fits(json!([{"key": "a", "operator": "Exists", "effect": "NoExecute"}])));
    }

    #[test]
    fn selectors_and_affinity_choose_nodes() {
        let one = node("n1", "z1");
        let required = |expression: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
        };
        assert!(matches_node_affinity(&json!({"nodeSelector": {"zone": "z1"}}), &one));
        assert!(!matches_node_affinity(&json!({"nodeSelector": {"zone": "z2"}}), &one));
        assert!(matches_node_affinity(&required(json!({"key": "zone", "operator": "In", "values": ["z1"]})), &one));
        assert!(!matches_node_affinity(&required(json!({"key": "zone", "operator": "NotIn", "values": ["z1"]})), &one));
        assert!(matches_node_affinity(&required(json!({"key": "cores", "operator": "Gt", "values": ["3"]})), &one));
        assert!(!matches_node_affinity(&required(json!({"key": "cores", "operator": "Lt", "values": ["3"]})), &one));
    }

    #[test]
    fn room_is_taken_and_runs_out() {
        let mut room = NodeRoom::of(&node("n1", "z1"));
        let spec = json!({"containers": [{"resources": {"requests": {"cpu": "600m"}}}]});
        assert!(room.missing(&spec).is_empty());
        room.take(&spec);
        assert_eq!(room.missing(&spec), ["Insufficient cpu"]);
        room.take(&json!({"containers": []}));
        assert_eq!(room.missing(&spec), ["Too many pods", "Insufficient cpu"]);
    }

    #[test]
    fn pods_keep_apart_and_spread() {
        let (a, b) = (node("n1", "z1"), node("n2", "z2"));
        let pod = |extra: Value| json!({"metadata": {"namespace": "x", "labels": {"app": "web"}}, "spec": extra});
        let apart = pod(json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}}));
        let other = pod(json!({}));
        let placed = [Placed { pod: &other, node: &a }];
        assert!(affinity_between(&apart, &a, &placed).is_some() && affinity_between(&apart, &b, &placed).is_none());
        let even = pod(json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]}));
        assert!(spread_over(&even, &a, &[&a, &b], &placed).is_some());
        assert!(spread_over(&even, &b, &[&a, &b], &placed).is_none());
    }
}
