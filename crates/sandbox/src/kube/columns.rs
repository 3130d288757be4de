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
            ("Containers", true, |o, _| json!(containers(o, "name"))),
            ("Images", true, |o, _| json!(containers(o, "image"))),
            ("Selector", true, |o, _| json!(pairs(&o["spec"]["selector"]["matchLabels"]))),
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
            ("Status", false, |o, _| json!(pod_status(o))),
            ("Restarts", false, |o, now| json!(pod_restarts(o, now))),
            AGE,
            ("IP", true, |o, _| json!(text(&o["status"]["podIP"], "<none>"))),
            ("Node", true, |o, _| json!(text(&o["spec"]["nodeName"], "<none>"))),
            ("Nominated Node", true, |_, _| json!("<none>")),
            ("Readiness Gates", true, |_, _| json!("<none>")),
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
            ("Status", false, |o, _| json!(phase(o))),
            ("Volume", false, |o, _| json!(text(&o["spec"]["volumeName"], ""))),
            ("Capacity", false, |o, _| json!(text(&o["status"]["capacity"]["storage"], ""))),
            ("Access Modes", false, |o, _| json!(modes(&o["status"]["accessModes"]))),
            ("StorageClass", false, |o, _| json!(text(&o["spec"]["storageClassName"], ""))),
            ("VolumeAttributesClass", false, |_, _| json!("<unset>")),
            AGE,
            ("VolumeMode", true, |o, _| o["spec"]["volumeMode"].clone()),
        ],
    ),
    (
        &["PersistentVolume"],
        &[
            ("Capacity", false, |o, _| json!(text(&o["spec"]["capacity"]["storage"], ""))),
            ("Access Modes", false, |o, _| json!(modes(&o["spec"]["accessModes"]))),
            ("Reclaim Policy", false, |o, _| o["spec"]["persistentVolumeReclaimPolicy"].clone()),
            ("Status", false, |o, _| json!(phase(o))),
            ("Claim", false, |o, _| json!(claim(&o["spec"]["claimRef"]))),
            ("StorageClass", false, |o, _| json!(text(&o["spec"]["storageClassName"], ""))),
            ("VolumeAttributesClass", false, |_, _| json!("<unset>")),
            ("Reason", false, |_, _| json!("")),
            AGE,
        ],
    ),
    (
        &["HorizontalPodAutoscaler"],
        &[
            ("Reference", false, |o, _| {
                let target = &o["spec"]["scaleTargetRef"];
                json!(format!("{}/{}", text(&target["kind"], ""), text(&target["name"], "")))
            }),
            ("Targets", false, |o, _| json!(targets(o))),
            ("MinPods", false, |o, _| json!(count(&o["spec"]["minReplicas"]).to_string())),
            ("MaxPods", false, |o, _| json!(count(&o["spec"]["maxReplicas"]))),
            ("Replicas", false, |o, _| json!(count(&o["status"]["currentReplicas"]))),
            AGE,
        ],
    ),
    (&["Endpoints"], &[("Endpoints", false, |o, _| json!(addresses(o))), AGE]),
    (
        &["EndpointSlice"],
        &[
            ("AddressType", false, |o, _| o["addressType"].clone()),
            ("Ports", false, |o, _| {
                let ports = o["ports"].as_array().into_iter().flatten().map(|port| count(&port["port"]).to_string());
                json!(joined(ports, "<unset>"))
            }),
            ("Endpoints", false, |o, _| {
                let all = o["endpoints"].as_array().into_iter().flatten();
                json!(joined(all.map(|one| text(&one["addresses"][0], "")), "<unset>"))
            }),
            AGE,
        ],
    ),
    (&["CustomResourceDefinition"], &[("Created At", false, |o, _| o["metadata"]["creationTimestamp"].clone())]),
    (
        &["APIService"],
        &[
            ("Service", false, |o, _| {
                let service = &o["spec"]["service"];
                json!(if service.is_object() {
                    format!("{}/{}", text(&service["namespace"], ""), text(&service["name"], ""))
                } else {
                    "Local".into()
                })
            }),
            ("Available", false, |o, _| {
                let one = &o["status"]["conditions"][0];
                let why =
                    if one["status"] == "True" { String::new() } else { format!(" ({})", text(&one["reason"], "")) };
                json!(format!("{}{why}", text(&one["status"], "Unknown")))
            }),
            AGE,
        ],
    ),
    (
        &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
        &[("Webhooks", false, |o, _| json!(entries(&o["webhooks"]))), AGE],
    ),
    (
        &["PriorityClass"],
        &[
            ("Value", false, |o, _| o["value"].clone()),
            ("Global-Default", false, |o, _| json!(o["globalDefault"].as_bool().unwrap_or(false))),
            AGE,
            ("PreemptionPolicy", true, |o, _| o["preemptionPolicy"].clone()),
        ],
    ),
    (
        &["ControllerRevision"],
        &[
            ("Controller", false, |o, _| {
                let owner = &o["metadata"]["ownerReferences"][0];
                json!(format!("{}.apps/{}", text(&owner["kind"], "").to_lowercase(), text(&owner["name"], "")))
            }),
            ("Revision", false, |o, _| o["revision"].clone()),
            AGE,
        ],
    ),
    (
        &["NetworkPolicy"],
        &[("Pod-Selector", false, |o, _| json!(pairs(&o["spec"]["podSelector"]["matchLabels"]))), AGE],
    ),
    (
        &["IngressClass"],
        &[
            ("Controller", false, |o, _| o["spec"]["controller"].clone()),
            ("Parameters", false, |_, _| json!("<none>")),
            AGE,
        ],
    ),
    (
        &["ResourceQuota"],
        &[("Request", false, |o, _| json!(quota(o, false))), ("Limit", false, |o, _| json!(quota(o, true))), AGE],
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
            ("Status", false, |o, _| json!(job_status(o))),
            ("Completions", false, |o, _| {
                json!(format!("{}/{}", count(&o["status"]["succeeded"]), count(&o["spec"]["completions"]).max(1)))
            }),
            ("Duration", false, |o, now| {
                let end = o["status"]["completionTime"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
                let end = end.map_or(now, |end| SimTime(end.as_millisecond()));
                json!(o["status"]["startTime"].as_str().map_or_else(String::new, |start| age(Some(start), end)))
            }),
            AGE,
            ("Containers", true, |o, _| json!(containers(o, "name"))),
            ("Images", true, |o, _| json!(containers(o, "image"))),
        ],
    ),
    (
        &["CronJob"],
        &[
            ("Schedule", false, |o, _| o["spec"]["schedule"].clone()),
            ("Timezone", false, |o, _| json!(text(&o["spec"]["timeZone"], "<none>"))),
            ("Suspend", false, |o, _| json!(if o["spec"]["suspend"] == true { "True" } else { "False" })),
            ("Active", false, |o, _| json!(entries(&o["status"]["active"]))),
            ("Last Schedule", false, |o, now| {
                json!(
                    o["status"]["lastScheduleTime"]
                        .as_str()
                        .map_or_else(|| "<none>".into(), |last| age(Some(last), now))
                )
            }),
            AGE,
        ],
    ),
    (
        &["Ingress"],
        &[
            ("Class", false, |o, _| json!(text(&o["spec"]["ingressClassName"], "<none>"))),
            ("Hosts", false, |o, _| json!(hosts(o))),
            ("Address", false, |o, _| json!(balancer(o, ""))),
            ("Ports", false, |o, _| json!(if o["spec"]["tls"].is_array() { "80, 443" } else { "80" })),
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
pub fn age(created: Option<&str>, now: SimTime) -> String {
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

/// What `kubectl get pods` says of a pod: why it waits or ended, rather than its phase.
fn pod_status(object: &Value) -> String {
    let mut shown = text(&object["status"]["reason"], &text(&object["status"]["phase"], "Unknown"));
    let gated =
        object["status"]["conditions"].as_array().into_iter().flatten().any(|one| one["reason"] == "SchedulingGated");
    if gated {
        shown = "SchedulingGated".into();
    }
    let init = object["status"]["initContainerStatuses"].as_array().map_or(&[][..], Vec::as_slice);
    let waiting_init = init.iter().position(|one| {
        !(one["state"]["terminated"]["exitCode"] == 0 || (one["started"] == true && one["ready"] == true))
    });
    if let Some(at) = waiting_init.filter(|_| object["status"]["phase"] == "Pending") {
        let reason = text(&init[at]["state"]["waiting"]["reason"], "PodInitializing");
        shown =
            if reason == "PodInitializing" { format!("Init:{at}/{}", init.len()) } else { format!("Init:{reason}") };
    } else {
        for one in object["status"]["containerStatuses"].as_array().into_iter().flatten().rev() {
            if let Some(reason) = one["state"]["waiting"]["reason"].as_str() {
                shown = reason.to_owned();
            } else if let Some(reason) = one["state"]["terminated"]["reason"].as_str() {
                shown = reason.to_owned();
            }
        }
    }
    if object["metadata"].get("deletionTimestamp").is_some() {
        shown = "Terminating".into();
    }
    shown
}

fn pod_restarts(object: &Value, now: SimTime) -> String {
    let statuses = || object["status"]["containerStatuses"].as_array().into_iter().flatten();
    let total: u64 = statuses().map(|one| count(&one["restartCount"])).sum();
    let last = statuses().filter_map(|one| one["lastState"]["terminated"]["finishedAt"].as_str()).max();
    match last.filter(|_| total > 0) {
        Some(last) => format!("{total} ({} ago)", age(Some(last), now)),
        None => total.to_string(),
    }
}

fn phase(object: &Value) -> String {
    let leaving = object["metadata"].get("deletionTimestamp").is_some();
    if leaving { "Terminating".into() } else { text(&object["status"]["phase"], "") }
}

fn modes(value: &Value) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    value.as_array().into_iter().flatten().map(short).collect::<Vec<_>>().join(",")
}

fn claim(reference: &Value) -> String {
    if reference.is_object() {
        format!("{}/{}", text(&reference["namespace"], ""), text(&reference["name"], ""))
    } else {
        String::new()
    }
}

fn joined(parts: impl Iterator<Item = String>, missing: &str) -> String {
    let all: Vec<String> = parts.collect();
    let more = if all.len() > 3 { format!(" + {} more...", all.len() - 3) } else { String::new() };
    if all.is_empty() {
        missing.to_owned()
    } else {
        format!("{}{more}", all.iter().take(3).cloned().collect::<Vec<_>>().join(","))
    }
}

fn addresses(object: &Value) -> String {
    let subsets = object["subsets"].as_array().into_iter().flatten();
    let all = subsets.flat_map(|subset| {
        let ports: Vec<u64> =
            subset["ports"].as_array().into_iter().flatten().map(|port| count(&port["port"])).collect();
        let ips = subset["addresses"].as_array().into_iter().flatten();
        ips.flat_map(move |ip| ports.clone().into_iter().map(move |port| format!("{}:{port}", text(&ip["ip"], ""))))
    });
    joined(all, "<none>")
}

fn targets(object: &Value) -> String {
    let metrics = object["spec"]["metrics"].as_array().into_iter().flatten();
    let shown = metrics.map(|metric| {
        let target = &metric["resource"]["target"];
        format!("{}: <unknown>/{}%", text(&metric["resource"]["name"], "metric"), count(&target["averageUtilization"]))
    });
    joined(shown, "<none>")
}

fn quota(object: &Value, limits: bool) -> String {
    let hard = object["spec"]["hard"].as_object().into_iter().flatten();
    let shown = hard
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, most)| format!("{name}: {}/{}", text(&object["status"]["used"][name], "0"), scalar(most)));
    shown.collect::<Vec<_>>().join(", ")
}

fn job_status(object: &Value) -> &'static str {
    let has = |kind: &str| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|one| one["type"] == kind && one["status"] == "True")
    };
    match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if object["metadata"].get("deletionTimestamp").is_some() => "Terminating",
        () if has("Suspended") => "Suspended",
        () => "Running",
    }
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
    balancer(object, "<pending>")
}

/// The address of a load balancer, or its name.
fn balancer(object: &Value, missing: &str) -> String {
    let first = &object["status"]["loadBalancer"]["ingress"][0];
    text(&first["ip"], &text(&first["hostname"], missing))
}

fn service_ports(object: &Value) -> String {
    let ports = object["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let shown: Vec<String> = ports
        .iter()
        .map(|port| {
            let node = port["nodePort"].as_u64().map_or_else(String::new, |node| format!(":{node}"));
            format!("{}{node}/{}", count(&port["port"]), text(&port["protocol"], "TCP"))
        })
        .collect();
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
