//! Access policies: what a principal with an access entry may do in a cluster, or in some of its namespaces.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::access_entry::{AccessEntry, check_mode, find_in};
use super::errors::About;
use super::{find, find_staying, page, time};
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;
use crate::clock::SimTime;
use crate::kube::access::{Grant, Role};

const PREFIX: &str = "arn:aws:eks::aws:cluster-access-policy/";

/// Their names, and what they allow where people use them.
const POLICIES: [(&str, Option<Role>); 22] = [
    ("AmazonAIOpsAssistantPolicy", Some(Role::View)),
    ("AmazonARCRegionSwitchScalingPolicy", None),
    ("AmazonEKSACKPolicy", Some(Role::ClusterAdmin)),
    ("AmazonEKSAdminPolicy", Some(Role::Admin)),
    ("AmazonEKSAdminViewPolicy", Some(Role::AdminView)),
    ("AmazonEKSAutoNodePolicy", None),
    ("AmazonEKSBlockStorageClusterPolicy", None),
    ("AmazonEKSBlockStoragePolicy", None),
    ("AmazonEKSClusterAdminPolicy", Some(Role::ClusterAdmin)),
    ("AmazonEKSClusterInsightsPolicy", Some(Role::View)),
    ("AmazonEKSComputeClusterPolicy", None),
    ("AmazonEKSComputePolicy", None),
    ("AmazonEKSEditPolicy", Some(Role::Edit)),
    ("AmazonEKSEventPolicy", None),
    ("AmazonEKSHybridPolicy", None),
    ("AmazonEKSLoadBalancingClusterPolicy", None),
    ("AmazonEKSLoadBalancingPolicy", None),
    ("AmazonEKSNetworkingClusterPolicy", None),
    ("AmazonEKSNetworkingPolicy", None),
    ("AmazonEKSSecretReaderPolicy", Some(Role::SecretReader)),
    ("AmazonEKSViewPolicy", Some(Role::View)),
    ("AmazonSagemakerHyperpodClusterPolicy", None),
];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Associated {
    pub arn: String,
    /// Only in these; in the whole cluster where there are none.
    pub namespaces: Vec<String>,
    associated_at: SimTime,
    modified_at: SimTime,
}

impl Associated {
    pub fn cluster_wide(name: &str, now: SimTime) -> Associated {
        Associated { arn: format!("{PREFIX}{name}"), namespaces: vec![], associated_at: now, modified_at: now }
    }

    fn shown(&self) -> Value {
        let kind = if self.namespaces.is_empty() { "cluster" } else { "namespace" };
        json!({
            "policyArn": self.arn, "accessScope": {"type": kind, "namespaces": self.namespaces},
            "associatedAt": time(self.associated_at), "modifiedAt": time(self.modified_at),
        })
    }
}

/// What an entry's policies allow.
pub fn grants(entry: &AccessEntry) -> Vec<Grant> {
    let grant = |associated: &Associated| {
        let name = associated.arn.strip_prefix(PREFIX)?;
        let (_, role) = POLICIES.iter().find(|(known, _)| *known == name)?;
        Some(Grant { role: (*role)?, namespaces: associated.namespaces.clone() })
    };
    entry.policies.iter().filter_map(grant).collect()
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let shown = POLICIES.iter().map(|(name, _)| json!({"name": name, "arn": format!("{PREFIX}{name}")})).collect();
    page(ask, "accessPolicies", shown)
}

pub fn associate(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_staying(ask, "clusterName")?;
    check_mode(ask, &cluster)?;
    let (about, now) = (About::cluster(&cluster.name), ask.now());
    let entry = find_in(ask, &cluster)?.clone();
    let arn = ask.input.text("policyArn").unwrap_or_default().to_owned();
    let known = arn.strip_prefix(PREFIX).is_some_and(|name| POLICIES.iter().any(|(known, _)| *known == name));
    if !known {
        return Err(about.bad_parameter("The specified policyArn is invalid: policyArn is not valid"));
    }
    if entry.kind != "STANDARD" && entry.kind != "EC2" {
        let message = format!("Access policies cannot be associated with access entries of type {}", entry.kind);
        return Err(about.bad_request(message));
    }
    let given: Vec<String> = ask.input.texts("accessScope.namespaces").into_iter().map(str::to_owned).collect();
    let namespaces = match (ask.input.text("accessScope.type"), given.is_empty()) {
        (Some("cluster"), true) => vec![],
        (Some("namespace"), false) => given,
        (Some("cluster"), false) => {
            return Err(about.bad_parameter("Namespaces cannot be specified with a cluster access scope"));
        }
        (Some("namespace"), true) => {
            return Err(about.bad_parameter("Namespaces must be specified with a namespace access scope"));
        }
        _ => return Err(about.bad_parameter("The accessScope type must be one of [cluster, namespace]")),
    };
    let shown = ask.store().eks.access_entries.update(&entry.id, |entry| {
        let before = entry.policies.iter().find(|policy| policy.arn == arn).map(|policy| policy.associated_at);
        entry.policies.retain(|policy| policy.arn != arn);
        let policy = Associated { arn, namespaces, associated_at: before.unwrap_or(now), modified_at: now };
        let shown = policy.shown();
        entry.policies.push(policy);
        shown
    });
    Ok(json!({"clusterName": cluster.name, "principalArn": entry.principal, "associatedAccessPolicy": shown}))
}

pub fn list_associated(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?;
    check_mode(ask, cluster)?;
    let entry = find_in(ask, cluster)?;
    let shown = entry.policies.iter().map(Associated::shown).collect();
    let mut answer = page(ask, "associatedAccessPolicies", shown)?;
    answer["clusterName"] = json!(cluster.name);
    answer["principalArn"] = json!(entry.principal);
    Ok(answer)
}

pub fn disassociate(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_staying(ask, "clusterName")?;
    check_mode(ask, &cluster)?;
    let entry = find_in(ask, &cluster)?.clone();
    let arn = ask.input.text("policyArn").unwrap_or_default().to_owned();
    if !entry.policies.iter().any(|policy| policy.arn == arn) {
        let message = format!("The specified policyArn {arn} is not associated with principalArn {}", entry.principal);
        return Err(About::cluster(&cluster.name).not_found(message));
    }
    ask.store().eks.access_entries.update(&entry.id, |entry| entry.policies.retain(|policy| policy.arn != arn));
    Ok(json!({}))
}
