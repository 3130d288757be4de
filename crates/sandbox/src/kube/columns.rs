//! The columns that `kubectl get` shows of each kind, and what stands in their cells.

use serde_json::{Value, json};

use crate::clock::SimTime;

/// Name, whether only `-o wide` shows it, and its cell.
pub type Column = (&'static str, bool, fn(&Value, SimTime) -> Value);

const NAME: Column = ("Name", false, |o, _| o["metadata"]["name"].clone());
const AGE: Column = ("Age", false, |o, now| json!(age(o["metadata"]["creationTimestamp"].as_str(), now)));

/// Kinds, and their columns after the name; a kind that is not here shows its age.
static COLUMNS: &[(&[&str], &[Column])] = &[
    (
        &["Node"],
        &[
            ("Status", false, |o, _| json!(node_status(o))),
            ("Roles", false, |o, _| json!(node_roles(o))),
            AGE,
            ("Version", false, |o, _| o["status"]["nodeInfo"]["kubeletVersion"].clone()),
            ("Internal-IP", true, |o, _| json!(address(o, "InternalIP"))),
            ("External-IP", true, |o, _| json!(address(o, "ExternalIP"))),
            ("OS-Image", true, |o, _| o["status"]["nodeInfo"]["osImage"].clone()),
            ("Kernel-Version", true, |o, _| o["status"]["nodeInfo"]["kernelVersion"].clone()),
            ("Container-Runtime", true, |o, _| o["status"]["nodeInfo"]["containerRuntimeVersion"].clone()),
        ],
    ),
    (&["Namespace"], &[("Status", false, |o, _| o["status"]["phase"].clone()), AGE]),
    (
        &["Deployment"],
        &[
            ("Ready", false, |o, _| {
                json!(format!("{}/{}", count(&o["status"]["readyReplicas"]), count(&o["spec"]["replicas"])))
            }),
            ("Up-to-date", false, |o, _| json!(count(&o["status"]["updatedReplicas"]))),
            ("Available", false, |o, _| json!(count(&o["status"]["availableReplicas"]))),
            AGE,
            ("Containers", true, |o, _| json!(containers(o, "name"))),
            ("Images", true, |o, _| json!(containers(o, "image"))),
            ("Selector", true, |o, _| json!(pairs(&o["spec"]["selector"]["matchLabels"]))),
        ],
    ),
    (
        &["StatefulSet"],
        &[
            ("Ready", false, |o, _| {
                json!(format!("{}/{}", count(&o["status"]["readyReplicas"]), count(&o["spec"]["replicas"])))
            }),
            AGE,
            ("Containers", true, |o, _| json!(containers(o, "name"))),
            ("Images", true, |o, _| json!(containers(o, "image"))),
        ],
    ),
    (
        &["ReplicaSet"],
        &[
            ("Desired", false, |o, _| json!(count(&o["spec"]["replicas"]))),
            ("Current", false, |o, _| json!(count(&o["status"]["replicas"]))),
            ("Ready", false, |o, _| json!(count(&o["status"]["readyReplicas"]))),
            AGE,
        ],
    ),
    (
        &["DaemonSet"],
        &[
            ("Desired", false, |o, _| json!(count(&o["status"]["desiredNumberScheduled"]))),
            ("Current", false, |o, _| json!(count(&o["status"]["currentNumberScheduled"]))),
            ("Ready", false, |o, _| json!(count(&o["status"]["numberReady"]))),
            ("Up-to-date", false, |o, _| json!(count(&o["status"]["updatedNumberScheduled"]))),
            ("Available", false, |o, _| json!(count(&o["status"]["numberAvailable"]))),
            ("Node Selector", false, |o, _| json!(pairs(&o["spec"]["template"]["spec"]["nodeSelector"]))),
            AGE,
        ],
    ),
    (
        &["Pod"],
        &[
            ("Ready", false, |o, _| json!(pod_ready(o))),
            ("Status", false, |o, _| o["status"]["phase"].clone()),
            ("Restarts", false, |_, _| json!("0")),
            AGE,
            ("Node", true, |o, _| json!(text(&o["spec"]["nodeName"], "<none>"))),
        ],
    ),
    (
        &["Service"],
        &[
            ("Type", false, |o, _| o["spec"]["type"].clone()),
            ("Cluster-IP", false, |o, _| json!(text(&o["spec"]["clusterIP"], "<none>"))),
            ("External-IP", false, |o, _| json!(external_ip(o))),
            ("Port(s)", false, |o, _| json!(service_ports(o))),
            AGE,
            ("Selector", true, |o, _| json!(pairs(&o["spec"]["selector"]))),
        ],
    ),
    (&["ConfigMap"], &[("Data", false, |o, _| json!(entries(&o["data"]) + entries(&o["binaryData"]))), AGE]),
    (
        &["Secret"],
        &[("Type", false, |o, _| o["type"].clone()), ("Data", false, |o, _| json!(entries(&o["data"]))), AGE],
    ),
    (&["ServiceAccount"], &[("Secrets", false, |o, _| json!(entries(&o["secrets"]))), AGE]),
    (
        &["Event"],
        &[
            ("Last Seen", false, |o, now| {
                json!(age(o["lastTimestamp"].as_str().or(o["metadata"]["creationTimestamp"].as_str()), now))
            }),
            ("Type", false, |o, _| o["type"].clone()),
            ("Reason", false, |o, _| o["reason"].clone()),
            ("Object", false, |o, _| {
                json!(format!(
                    "{}/{}",
                    text(&o["involvedObject"]["kind"], "").to_lowercase(),
                    text(&o["involvedObject"]["name"], "")
                ))
            }),
            ("Message", false, |o, _| o["message"].clone()),
        ],
    ),
    (
        &["PersistentVolumeClaim"],
        &[
            ("Status", false, |o, _| o["status"]["phase"].clone()),
            ("Volume", false, |o, _| json!(text(&o["spec"]["volumeName"], ""))),
            ("Capacity", false, |o, _| json!(text(&o["status"]["capacity"]["storage"], ""))),
            ("StorageClass", false, |o, _| json!(text(&o["spec"]["storageClassName"], ""))),
            AGE,
        ],
    ),
    (
        &["PodDisruptionBudget"],
        &[
            ("Min Available", false, |o, _| json!(scalar(&o["spec"]["minAvailable"]))),
            ("Max Unavailable", false, |o, _| json!(scalar(&o["spec"]["maxUnavailable"]))),
            ("Allowed Disruptions", false, |o, _| json!(count(&o["status"]["disruptionsAllowed"]))),
            AGE,
        ],
    ),
    (
        &["Job"],
        &[
            ("Status", false, |o, _| json!(if o["status"]["succeeded"].is_null() { "Running" } else { "Complete" })),
            ("Completions", false, |o, _| {
                json!(format!("{}/{}", count(&o["status"]["succeeded"]), count(&o["spec"]["completions"])))
            }),
            AGE,
        ],
    ),
    (
        &["CronJob"],
        &[
            ("Schedule", false, |o, _| o["spec"]["schedule"].clone()),
            ("Suspend", false, |o, _| json!(o["spec"]["suspend"].as_bool().unwrap_or(false).to_string())),
            AGE,
        ],
    ),
    (
        &["Ingress"],
        &[
            ("Class", false, |o, _| json!(text(&o["spec"]["ingressClassName"], "<none>"))),
            ("Hosts", false, |o, _| json!(hosts(o))),
            AGE,
        ],
    ),
    (
        &["StorageClass"],
        &[
            ("Provisioner", false, |o, _| o["provisioner"].clone()),
            ("ReclaimPolicy", false, |o, _| o["reclaimPolicy"].clone()),
            ("VolumeBindingMode", false, |o, _| o["volumeBindingMode"].clone()),
            ("AllowVolumeExpansion", false, |o, _| {
                json!(o["allowVolumeExpansion"].as_bool().unwrap_or(false).to_string())
            }),
            AGE,
        ],
    ),
    (&["Role", "ClusterRole"], &[("Created At", false, |o, _| o["metadata"]["creationTimestamp"].clone())]),
    (
        &["RoleBinding", "ClusterRoleBinding"],
        &[
            ("Role", false, |o, _| {
                json!(format!("{}/{}", text(&o["roleRef"]["kind"], ""), text(&o["roleRef"]["name"], "")))
            }),
            AGE,
        ],
    ),
    (&["Lease"], &[("Holder", false, |o, _| json!(text(&o["spec"]["holderIdentity"], ""))), AGE]),
];

pub fn columns_of(kind: &str) -> impl Iterator<Item = Column> {
    let listed = COLUMNS.iter().find(|(kinds, _)| kinds.contains(&kind));
    let columns: &[Column] = listed.map_or(&[AGE], |(_, columns)| columns);
    // Events have no name column, as in the real thing.
    let first: &[Column] = if kind == "Event" { &[] } else { &[NAME] };
    first.iter().chain(columns).copied()
}

/// `45s`, `3m10s`, `2h`, `5d`: the short form that kubectl shows.
fn age(created: Option<&str>, now: SimTime) -> String {
    let Some(created) = created.and_then(|text| text.parse::<jiff::Timestamp>().ok()) else {
        return "<unknown>".into();
    };
    let seconds = (now.0 / 1000 - created.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn text(value: &Value, missing: &str) -> String {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or(missing).to_owned()
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "N/A".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn entries(value: &Value) -> usize {
    value.as_object().map(|map| map.len()).or(value.as_array().map(Vec::len)).unwrap_or(0)
}

fn pairs(value: &Value) -> String {
    let Some(map) = value.as_object().filter(|map| !map.is_empty()) else { return "<none>".into() };
    map.iter().map(|(key, value)| format!("{key}={}", text(value, ""))).collect::<Vec<_>>().join(",")
}

fn containers(object: &Value, field: &str) -> String {
    let list = object["spec"]["template"]["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice);
    list.iter().map(|container| text(&container[field], "")).collect::<Vec<_>>().join(",")
}

fn pod_ready(object: &Value) -> String {
    let all = object["spec"]["containers"].as_array().map_or(0, Vec::len);
    let statuses = object["status"]["containerStatuses"].as_array().map_or(&[][..], Vec::as_slice);
    format!("{}/{all}", statuses.iter().filter(|status| status["ready"] == true).count())
}

fn node_status(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let cordoned = if object["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{}{cordoned}", if ready { "Ready" } else { "NotReady" })
}

fn node_roles(object: &Value) -> String {
    let labels = object["metadata"]["labels"].as_object();
    let roles: Vec<&str> = labels
        .into_iter()
        .flat_map(|map| map.keys())
        .filter_map(|key| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    if roles.is_empty() { "<none>".into() } else { roles.join(",") }
}

fn address(object: &Value, kind: &str) -> String {
    let list = object["status"]["addresses"].as_array().map_or(&[][..], Vec::as_slice);
    list.iter()
        .find(|address| address["type"] == kind)
        .map_or_else(|| "<none>".into(), |found| text(&found["address"], "<none>"))
}

fn external_ip(object: &Value) -> String {
    if object["spec"]["type"] != "LoadBalancer" {
        return text(&object["spec"]["externalName"], "<none>");
    }
    text(&object["status"]["loadBalancer"]["ingress"][0]["ip"], "<pending>")
}

fn service_ports(object: &Value) -> String {
    let ports = object["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let shown: Vec<String> =
        ports.iter().map(|port| format!("{}/{}", count(&port["port"]), text(&port["protocol"], "TCP"))).collect();
    if shown.is_empty() { "<none>".into() } else { shown.join(",") }
}

fn hosts(object: &Value) -> String {
    let rules = object["spec"]["rules"].as_array().map_or(&[][..], Vec::as_slice);
    let shown: Vec<String> = rules.iter().map(|rule| text(&rule["host"], "*")).collect();
    if shown.is_empty() { "*".into() } else { shown.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let now = SimTime(1_700_000_000_000);
        let shown = |seconds: i64| age(Some(&SimTime(now.0 - seconds * 1000).rfc3339()), now);
        let seen: Vec<String> = [5, 119, 130, 600, 7200, 11_000, 90_000, 400_000].map(shown).to_vec();
        assert_eq!(seen, ["5s", "119s", "2m10s", "10m", "120m", "3h3m", "25h", "4d"]);
        assert_eq!(age(None, now), "<unknown>");
    }
}
