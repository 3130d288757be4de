//! Insights: whether a cluster is ready for the next version of Kubernetes.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::errors::About;
use super::{find, page, time, versions};
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;
use crate::clock::SimTime;

/// Name and description of each check.
const CHECKS: [(&str, &str); 3] = [
    (
        "Kubelet version skew",
        "Checks for kubelet versions of worker nodes in the cluster to see if upgrade would cause non compliance with supported \
         Kubernetes kubelet version skew policy.",
    ),
    (
        "EKS add-on version compatibility",
        "Checks version of installed EKS add-ons to ensure they are compatible with the next version of Kubernetes.",
    ),
    (
        "Cluster health issues",
        "Checks for any cluster health issues that prevent successful upgrade to the next Kubernetes version on EKS.",
    ),
];

/// The checks of a cluster for the version after its own. Their ids stay the same.
fn checks(ask: &Ask, cluster: &Cluster) -> Vec<Value> {
    let now = ask.now();
    let current = versions::minor(cluster.version(now));
    let next = format!("1.{}", current + 1);
    let groups = ask.state.store.eks.node_groups.find(&format!("cluster:{}", cluster.id));
    let behind = groups.filter(|group| versions::minor(group.spec.text("version", now)) + 3 < current + 1).count();
    let refreshed = SimTime(now.0 - now.0.rem_euclid(86_400_000)).max(cluster.active_at);
    let check = |(number, (name, description)): (usize, &(&str, &str))| {
        let (status, reason) = match (number, behind) {
            (0, 1..) => {
                ("ERROR", "Node(s) have a kubelet version that is not compatible with the next cluster version.")
            }
            (0, _) => ("PASSING", "Node kubelet versions match the cluster control plane version."),
            (1, _) => ("PASSING", "All installed EKS add-on versions are compatible with next Kubernetes version."),
            _ => ("PASSING", "No cluster health issues detected."),
        };
        let start: String = cluster.id.to_lowercase().chars().take(8).collect();
        json!({
            "id": format!("{start}-0000-4000-8000-{number:012}"), "name": name, "category": "UPGRADE_READINESS", "kubernetesVersion": next,
            "lastRefreshTime": time(refreshed), "lastTransitionTime": time(cluster.active_at), "description": description,
            "insightStatus": {"status": status, "reason": reason},
        })
    };
    match now >= cluster.active_at && versions::find(&next).is_some() {
        true => CHECKS.iter().enumerate().map(check).collect(),
        false => Vec::new(),
    }
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?;
    let fits = |member: &str, value: &Value| {
        let wanted = ask.input.texts(&format!("filter.{member}"));
        wanted.is_empty() || wanted.iter().any(|one| value == *one)
    };
    let mut shown = checks(ask, cluster);
    shown.retain(|one| {
        fits("categories", &one["category"])
            && fits("kubernetesVersions", &one["kubernetesVersion"])
            && fits("statuses", &one["insightStatus"]["status"])
    });
    page(ask, "insights", shown)
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?;
    let id = ask.input.text("id").unwrap_or_default();
    let Some(mut insight) = checks(ask, cluster).into_iter().find(|one| one["id"] == id) else {
        return Err(About::cluster(&cluster.name).not_found(format!("No insight found for id: {id}")));
    };
    insight["recommendation"] = json!("Update what is named before the next update of the cluster's version.");
    insight["additionalInfo"] = json!({});
    insight["resources"] = json!([]);
    insight["categorySpecificSummary"] = json!({"deprecationDetails": [], "addonCompatibilityDetails": []});
    Ok(json!({"insight": insight}))
}

/// Checks are made at every look: a refresh is done as soon as it is asked for.
pub fn start_refresh(ask: &mut Ask) -> Answer<Value> {
    find(ask, "clusterName")?;
    Ok(json!({"message": "Insights refresh started", "status": "IN_PROGRESS"}))
}

pub fn describe_refresh(ask: &mut Ask) -> Answer<Value> {
    let created = find(ask, "clusterName")?.created_at;
    let at = time(created.max(ask.now().plus_ms(-1000)));
    Ok(json!({"message": "Insights refresh completed", "status": "COMPLETED", "startedAt": at, "endedAt": at}))
}
