//! The add-ons that EKS offers, their versions, and what they run.

use serde_json::{Value, json};

use super::errors::About;
use super::{addon_schema, page, versions};
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;

/// What an add-on runs in its namespace, for the health of the add-on and for the cluster's own objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Pods on every node.
    DaemonSet(&'static str),
    /// So many pods that need a node each to run on.
    Deployment(&'static str, u32),
}

pub struct Offer {
    pub name: &'static str,
    kind: &'static str,
    pub publisher: &'static str,
    pub owner: &'static str,
    pub namespace: &'static str,
    /// The service account that may have a role, and the policies meant for it.
    account: Option<(&'static str, &'static [&'static str])>,
    /// Newest first, from the given Kubernetes version on: the first entry that fits counts.
    versions: &'static [(&'static str, &'static [&'static str])],
    pub runs: &'static [Runs],
}

const EKS: (&str, &str) = ("eks", "aws");
const AWS: (&str, &str) = ("aws", "aws");
const COMMUNITY: (&str, &str) = ("eks", "community");

const fn offer(
    (name, kind, namespace): (&'static str, &'static str, &'static str),
    (publisher, owner): (&'static str, &'static str),
    account: Option<(&'static str, &'static [&'static str])>,
    versions: &'static [(&'static str, &'static [&'static str])],
    runs: &'static [Runs],
) -> Offer {
    Offer { name, kind, publisher, owner, namespace, account, versions, runs }
}

use Runs::{DaemonSet, Deployment};

#[rustfmt::skip]
static OFFERS: &[Offer] = &[
    offer(("vpc-cni", "networking", "kube-system"), EKS,
        Some(("aws-node", &["arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"])),
        &[("1.29", &["v1.20.4-eksbuild.1", "v1.20.3-eksbuild.1", "v1.20.1-eksbuild.3", "v1.19.6-eksbuild.7", "v1.19.2-eksbuild.1", "v1.18.5-eksbuild.1"])],
        &[DaemonSet("aws-node")]),
    offer(("coredns", "networking", "kube-system"), EKS, None,
        &[("1.33", &["v1.12.4-eksbuild.1", "v1.12.3-eksbuild.1", "v1.12.2-eksbuild.4", "v1.12.1-eksbuild.2"]),
          ("1.29", &["v1.11.4-eksbuild.24", "v1.11.4-eksbuild.22", "v1.11.4-eksbuild.14", "v1.11.4-eksbuild.2", "v1.11.3-eksbuild.2", "v1.11.1-eksbuild.9"])],
        &[Deployment("coredns", 2)]),
    offer(("kube-proxy", "networking", "kube-system"), EKS, None,
        &[("1.34", &["v1.34.1-eksbuild.2", "v1.34.0-eksbuild.4", "v1.34.0-eksbuild.2"]),
          ("1.33", &["v1.33.5-eksbuild.2", "v1.33.3-eksbuild.10", "v1.33.0-eksbuild.2"]),
          ("1.32", &["v1.32.9-eksbuild.2", "v1.32.6-eksbuild.12", "v1.32.0-eksbuild.2"]),
          ("1.31", &["v1.31.13-eksbuild.2", "v1.31.10-eksbuild.12", "v1.31.2-eksbuild.3"]),
          ("1.30", &["v1.30.14-eksbuild.20", "v1.30.14-eksbuild.8", "v1.30.6-eksbuild.3"]),
          ("1.29", &["v1.29.15-eksbuild.26", "v1.29.15-eksbuild.16", "v1.29.10-eksbuild.3"])],
        &[DaemonSet("kube-proxy")]),
    offer(("aws-ebs-csi-driver", "storage", "kube-system"), EKS,
        Some(("ebs-csi-controller-sa", &["arn:aws:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy"])),
        &[("1.29", &["v1.52.1-eksbuild.1", "v1.51.1-eksbuild.1", "v1.48.0-eksbuild.2", "v1.44.0-eksbuild.1", "v1.38.1-eksbuild.2"])],
        &[Deployment("ebs-csi-controller", 2), DaemonSet("ebs-csi-node")]),
    offer(("aws-efs-csi-driver", "storage", "kube-system"), EKS,
        Some(("efs-csi-controller-sa", &["arn:aws:iam::aws:policy/service-role/AmazonEFSCSIDriverPolicy"])),
        &[("1.29", &["v2.1.14-eksbuild.1", "v2.1.13-eksbuild.1", "v2.1.8-eksbuild.1"])],
        &[Deployment("efs-csi-controller", 2), DaemonSet("efs-csi-node")]),
    offer(("aws-mountpoint-s3-csi-driver", "storage", "kube-system"), EKS,
        Some(("s3-csi-driver-sa", &["arn:aws:iam::aws:policy/AmazonS3FullAccess"])),
        &[("1.29", &["v2.2.0-eksbuild.1", "v2.1.0-eksbuild.1", "v1.15.0-eksbuild.1"])],
        &[DaemonSet("s3-csi-node")]),
    offer(("snapshot-controller", "storage", "kube-system"), EKS, None,
        &[("1.29", &["v8.3.0-eksbuild.1", "v8.2.0-eksbuild.1"])],
        &[Deployment("snapshot-controller", 2)]),
    offer(("eks-pod-identity-agent", "security", "kube-system"), EKS, None,
        &[("1.29", &["v1.3.10-eksbuild.1", "v1.3.9-eksbuild.5", "v1.3.8-eksbuild.2", "v1.3.4-eksbuild.1"])],
        &[DaemonSet("eks-pod-identity-agent")]),
    offer(("eks-node-monitoring-agent", "observability", "kube-system"), EKS, None,
        &[("1.29", &["v1.4.2-eksbuild.1", "v1.4.1-eksbuild.1"])],
        &[DaemonSet("eks-node-monitoring-agent")]),
    offer(("metrics-server", "observability", "kube-system"), COMMUNITY, None,
        &[("1.29", &["v0.8.0-eksbuild.3", "v0.8.0-eksbuild.2", "v0.7.2-eksbuild.4"])],
        &[Deployment("metrics-server", 2)]),
    offer(("kube-state-metrics", "observability", "kube-state-metrics"), COMMUNITY, None,
        &[("1.29", &["v2.17.0-eksbuild.4", "v2.16.0-eksbuild.1"])],
        &[Deployment("kube-state-metrics", 1)]),
    offer(("prometheus-node-exporter", "observability", "prometheus-node-exporter"), COMMUNITY, None,
        &[("1.29", &["v1.10.2-eksbuild.1", "v1.9.1-eksbuild.4"])],
        &[DaemonSet("prometheus-node-exporter")]),
    offer(("cert-manager", "security", "cert-manager"), COMMUNITY, None,
        &[("1.29", &["v1.19.1-eksbuild.1", "v1.18.2-eksbuild.2"])],
        &[Deployment("cert-manager", 1), Deployment("cert-manager-cainjector", 1), Deployment("cert-manager-webhook", 1)]),
    offer(("external-dns", "networking", "external-dns"), COMMUNITY,
        Some(("external-dns", &["arn:aws:iam::aws:policy/AmazonRoute53FullAccess"])),
        &[("1.29", &["v0.19.0-eksbuild.3", "v0.18.0-eksbuild.1"])],
        &[Deployment("external-dns", 1)]),
    offer(("amazon-cloudwatch-observability", "observability", "amazon-cloudwatch"), AWS,
        Some(("cloudwatch-agent", &["arn:aws:iam::aws:policy/CloudWatchAgentServerPolicy"])),
        &[("1.29", &["v4.6.0-eksbuild.1", "v4.5.0-eksbuild.1"])],
        &[Deployment("amazon-cloudwatch-observability-controller-manager", 1), DaemonSet("cloudwatch-agent"), DaemonSet("fluent-bit")]),
    offer(("aws-guardduty-agent", "security", "amazon-guardduty"), AWS, None,
        &[("1.29", &["v1.12.1-eksbuild.2", "v1.11.0-eksbuild.4"])],
        &[DaemonSet("aws-guardduty-agent")]),
    offer(("adot", "observability", "opentelemetry-operator-system"), AWS, None,
        &[("1.29", &["v0.131.0-eksbuild.1", "v0.117.0-eksbuild.1"])],
        &[Deployment("opentelemetry-operator", 1)]),
];

pub fn find(name: &str) -> Option<&'static Offer> {
    OFFERS.iter().find(|offer| offer.name == name)
}

impl Offer {
    /// The versions for a version of Kubernetes, newest first.
    pub fn versions(&self, kubernetes: &str) -> &'static [&'static str] {
        let fits = |(from, _): &&(&str, _)| versions::minor(from) <= versions::minor(kubernetes);
        self.versions.iter().find(fits).map_or(&[], |(_, list)| *list)
    }

    /// The one that is taken where none is named: not yet the newest, as a rule.
    pub fn default_version(&self, kubernetes: &str) -> Option<&'static str> {
        let list = self.versions(kubernetes);
        list.get(1).or_else(|| list.first()).copied()
    }

    fn every_version(&self) -> Vec<&'static str> {
        let mut all: Vec<&str> = self.versions.iter().flat_map(|(_, list)| *list).copied().collect();
        let mut seen = std::collections::HashSet::new();
        all.retain(|version| seen.insert(*version));
        all
    }

    /// Where an add-on has parts that wait for a node to run on.
    pub fn needs_node(&self) -> bool {
        self.runs.iter().any(|runs| matches!(runs, Deployment(..)))
    }

    fn shown(&self, kubernetes: Option<&str>) -> Value {
        let compatible = |version: &str| -> Vec<Value> {
            versions::names()
                .filter(|name| kubernetes.is_none_or(|wanted| wanted == *name))
                .filter(|name| self.versions(name).contains(&version))
                .map(|name| {
                    let default = self.default_version(name) == Some(version);
                    json!({"clusterVersion": name, "platformVersions": ["*"], "defaultVersion": default})
                })
                .collect()
        };
        let shown: Vec<Value> = self
            .every_version()
            .into_iter()
            .map(|version| (version, compatible(version)))
            .filter(|(_, compatible)| !compatible.is_empty())
            .map(|(version, compatible)| {
                json!({
                    "addonVersion": version, "architecture": ["amd64", "arm64"], "compatibilities": compatible,
                    "computeTypes": ["ec2", "auto", "hybrid"], "requiresConfiguration": false,
                    "requiresIamPermissions": self.account.is_some(),
                })
            })
            .collect();
        json!({
            "addonName": self.name, "type": self.kind, "addonVersions": shown, "publisher": self.publisher, "owner": self.owner,
            "defaultNamespace": self.namespace,
        })
    }
}

pub fn describe_versions(ask: &mut Ask) -> Answer<Value> {
    let input = &ask.input;
    let kubernetes = input.text("kubernetesVersion");
    if let Some(version) = kubernetes.filter(|version| versions::find(version).is_none()) {
        return Err(About::default().bad_parameter(format!("unsupported Kubernetes version: {version}")));
    }
    let name = input.text("addonName");
    if let Some(name) = name.filter(|name| find(name).is_none()) {
        let message = "Addon specified is not supported";
        return Err(About { addon: Some(name), ..About::default() }.not_found(message));
    }
    let (types, publishers, owners) = (input.texts("types"), input.texts("publishers"), input.texts("owners"));
    let fits = |wanted: &[&str], own: &str| wanted.is_empty() || wanted.contains(&own);
    let shown = OFFERS
        .iter()
        .filter(|offer| name.is_none_or(|name| name == offer.name))
        .filter(|o| fits(&types, o.kind) && fits(&publishers, o.publisher) && fits(&owners, o.owner))
        .map(|offer| offer.shown(kubernetes))
        .filter(|shown| shown["addonVersions"].as_array().is_some_and(|list| !list.is_empty()))
        .collect();
    page(ask, "addons", shown)
}

pub fn describe_configuration(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.text("addonName").unwrap_or_default();
    let version = ask.input.text("addonVersion").unwrap_or_default();
    let about = About { addon: Some(name), ..About::default() };
    let Some(offer) = find(name) else { return Err(about.not_found("Addon specified is not supported")) };
    if !offer.every_version().contains(&version) {
        return Err(about.bad_parameter("Addon version specified is not supported"));
    }
    let mut shown =
        json!({"addonName": name, "addonVersion": version, "configurationSchema": addon_schema::of(name).to_string()});
    if let Some((account, policies)) = offer.account {
        shown["podIdentityConfiguration"] =
            json!([{"serviceAccount": account, "recommendedManagedPolicies": policies}]);
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offer_has_versions_for_every_kubernetes() {
        for offer in OFFERS {
            for kubernetes in versions::names() {
                let default = offer.default_version(kubernetes);
                assert!(
                    default.is_some_and(|one| offer.versions(kubernetes).contains(&one)),
                    "{} {kubernetes}",
                    offer.name
                );
            }
            let shown = offer.shown(None);
            assert_eq!(shown["addonVersions"][0]["addonVersion"], offer.versions("1.34")[0], "newest first");
        }
    }
}
