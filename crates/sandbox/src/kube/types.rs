//! The resource types that sandbox clusters know.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock};

/// One version of a resource type of the Kubernetes API. Versions of a type share their objects.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ResourceType {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub short: &'static [&'static str],
    pub namespaced: bool,
    /// Names under which `kubectl get` shows several types, such as `all`.
    pub categories: &'static [&'static str],
    pub subresources: &'static [&'static str],
    /// Defined by an object of the cluster.
    pub custom: bool,
}

const fn cluster(
    (group, version): (&'static str, &'static str),
    (plural, singular, kind): (&'static str, &'static str, &'static str),
    short: &'static [&'static str],
    subresources: &'static [&'static str],
) -> ResourceType {
    let categories = &[];
    ResourceType {
        group,
        version,
        plural,
        singular,
        kind,
        short,
        namespaced: false,
        categories,
        subresources,
        custom: false,
    }
}

const fn namespaced(
    group: (&'static str, &'static str),
    names: (&'static str, &'static str, &'static str),
    short: &'static [&'static str],
    subresources: &'static [&'static str],
) -> ResourceType {
    let mut resource = cluster(group, names, short, subresources);
    resource.namespaced = true;
    resource
}

const fn in_all(mut resource: ResourceType) -> ResourceType {
    resource.categories = &["all"];
    resource
}

const fn extension(mut resource: ResourceType) -> ResourceType {
    resource.categories = &["api-extensions"];
    resource
}

const CORE: (&str, &str) = ("", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const BATCH: (&str, &str) = ("batch", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");
const STORAGE: (&str, &str) = ("storage.k8s.io", "v1");
const NETWORKING: (&str, &str) = ("networking.k8s.io", "v1");
const ADMISSION: (&str, &str) = ("admissionregistration.k8s.io", "v1");

const EXTENSIONS: (&str, &str) = ("apiextensions.k8s.io", "v1");
const POD_SUBRESOURCES: &[&str] = &[
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "log",
    "portforward",
    "proxy",
    "resize",
    "status",
];
const WEBHOOKS: [(&str, &str, &str); 2] = [
    ("mutatingwebhookconfigurations", "mutatingwebhookconfiguration", "MutatingWebhookConfiguration"),
    ("validatingwebhookconfigurations", "validatingwebhookconfiguration", "ValidatingWebhookConfiguration"),
];
const POLICIES: [(&str, &str, &str); 2] = [
    ("validatingadmissionpolicies", "validatingadmissionpolicy", "ValidatingAdmissionPolicy"),
    ("validatingadmissionpolicybindings", "validatingadmissionpolicybinding", "ValidatingAdmissionPolicyBinding"),
];
const CLAIM: (&str, &str, &str) = ("persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim");
const AUTOSCALER: (&str, &str, &str) =
    ("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler");
const BUDGET: (&str, &str, &str) = ("poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget");
const DEFINITION: (&str, &str, &str) =
    ("customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition");
const SIGNING: (&str, &str, &str) =
    ("certificatesigningrequests", "certificatesigningrequest", "CertificateSigningRequest");

/// Of two versions of a type the first is preferred.
pub static TYPES: &[ResourceType] = &[
    namespaced(CORE, ("configmaps", "configmap", "ConfigMap"), &["cm"], &[]),
    namespaced(CORE, ("endpoints", "endpoints", "Endpoints"), &["ep"], &[]),
    namespaced(CORE, ("events", "event", "Event"), &["ev"], &[]),
    namespaced(CORE, ("limitranges", "limitrange", "LimitRange"), &["limits"], &[]),
    cluster(CORE, ("namespaces", "namespace", "Namespace"), &["ns"], &["finalize", "status"]),
    cluster(CORE, ("nodes", "node", "Node"), &["no"], &["proxy", "status"]),
    namespaced(CORE, CLAIM, &["pvc"], &["status"]),
    cluster(CORE, ("persistentvolumes", "persistentvolume", "PersistentVolume"), &["pv"], &["status"]),
    in_all(namespaced(CORE, ("pods", "pod", "Pod"), &["po"], POD_SUBRESOURCES)),
    namespaced(CORE, ("podtemplates", "podtemplate", "PodTemplate"), &[], &[]),
    namespaced(CORE, ("resourcequotas", "resourcequota", "ResourceQuota"), &["quota"], &["status"]),
    namespaced(CORE, ("secrets", "secret", "Secret"), &[], &[]),
    namespaced(CORE, ("serviceaccounts", "serviceaccount", "ServiceAccount"), &["sa"], &["token"]),
    in_all(namespaced(CORE, ("services", "service", "Service"), &["svc"], &["proxy", "status"])),
    extension(cluster(ADMISSION, WEBHOOKS[0], &[], &[])),
    extension(cluster(ADMISSION, POLICIES[0], &[], &["status"])),
    extension(cluster(ADMISSION, POLICIES[1], &[], &[])),
    extension(cluster(ADMISSION, WEBHOOKS[1], &[], &[])),
    extension(cluster(EXTENSIONS, DEFINITION, &["crd", "crds"], &["status"])),
    extension(cluster(("apiregistration.k8s.io", "v1"), ("apiservices", "apiservice", "APIService"), &[], &["status"])),
    namespaced(APPS, ("controllerrevisions", "controllerrevision", "ControllerRevision"), &[], &[]),
    in_all(namespaced(APPS, ("daemonsets", "daemonset", "DaemonSet"), &["ds"], &["status"])),
    in_all(namespaced(APPS, ("deployments", "deployment", "Deployment"), &["deploy"], &["scale", "status"])),
    in_all(namespaced(APPS, ("replicasets", "replicaset", "ReplicaSet"), &["rs"], &["scale", "status"])),
    in_all(namespaced(APPS, ("statefulsets", "statefulset", "StatefulSet"), &["sts"], &["scale", "status"])),
    in_all(namespaced(("autoscaling", "v2"), AUTOSCALER, &["hpa"], &["status"])),
    in_all(namespaced(("autoscaling", "v1"), AUTOSCALER, &["hpa"], &["status"])),
    in_all(namespaced(BATCH, ("cronjobs", "cronjob", "CronJob"), &["cj"], &["status"])),
    in_all(namespaced(BATCH, ("jobs", "job", "Job"), &[], &["status"])),
    cluster(("certificates.k8s.io", "v1"), SIGNING, &["csr"], &["approval", "status"]),
    namespaced(("coordination.k8s.io", "v1"), ("leases", "lease", "Lease"), &[], &[]),
    namespaced(("discovery.k8s.io", "v1"), ("endpointslices", "endpointslice", "EndpointSlice"), &[], &[]),
    cluster(NETWORKING, ("ingressclasses", "ingressclass", "IngressClass"), &[], &[]),
    namespaced(NETWORKING, ("ingresses", "ingress", "Ingress"), &["ing"], &["status"]),
    namespaced(NETWORKING, ("networkpolicies", "networkpolicy", "NetworkPolicy"), &["netpol"], &[]),
    cluster(("node.k8s.io", "v1"), ("runtimeclasses", "runtimeclass", "RuntimeClass"), &[], &[]),
    namespaced(("policy", "v1"), BUDGET, &["pdb"], &["status"]),
    cluster(RBAC, ("clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding"), &[], &[]),
    cluster(RBAC, ("clusterroles", "clusterrole", "ClusterRole"), &[], &[]),
    namespaced(RBAC, ("rolebindings", "rolebinding", "RoleBinding"), &[], &[]),
    namespaced(RBAC, ("roles", "role", "Role"), &[], &[]),
    cluster(("scheduling.k8s.io", "v1"), ("priorityclasses", "priorityclass", "PriorityClass"), &["pc"], &[]),
    cluster(STORAGE, ("csidrivers", "csidriver", "CSIDriver"), &[], &[]),
    cluster(STORAGE, ("csinodes", "csinode", "CSINode"), &[], &[]),
    namespaced(STORAGE, ("csistoragecapacities", "csistoragecapacity", "CSIStorageCapacity"), &[], &[]),
    cluster(STORAGE, ("storageclasses", "storageclass", "StorageClass"), &["sc"], &[]),
    cluster(STORAGE, ("volumeattachments", "volumeattachment", "VolumeAttachment"), &[], &["status"]),
];

/// What a metrics server serves: made from the pods when it is asked for, never stored.
pub static METRICS: &[ResourceType] = &[
    cluster(("metrics.k8s.io", "v1beta1"), ("nodes", "", "NodeMetrics"), &[], &[]),
    namespaced(("metrics.k8s.io", "v1beta1"), ("pods", "", "PodMetrics"), &[], &[]),
];

/// Reviews that are answered and never stored: `kubectl auth can-i` and `kubectl auth whoami`.
pub static REVIEWS: &[(&str, &str, &str)] = &[
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
];

impl ResourceType {
    pub fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// `deployments.apps`, as messages name a type.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.into() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub fn has(&self, subresource: &str) -> bool {
        self.subresources.contains(&subresource)
    }
}

pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.into() } else { format!("{group}/{version}") }
}

/// By group and plural, in the preferred version.
pub fn built_in(group: &str, plural: &str) -> Option<&'static ResourceType> {
    TYPES.iter().find(|resource| resource.group == group && resource.plural == plural)
}

/// A type that an object of a cluster defines. The same definition in many clusters is one type, which is never let go of: how
/// many there are is bounded by how many different definitions were ever made.
pub fn intern(resource: ResourceType) -> &'static ResourceType {
    static KNOWN: OnceLock<Mutex<HashSet<&'static ResourceType>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(same) = known.get(&resource) {
        return same;
    }
    let kept: &'static ResourceType = Box::leak(Box::new(resource));
    known.insert(kept);
    kept
}

/// A text that lives as long as the types that are named by it.
pub fn intern_text(text: &str) -> &'static str {
    static KNOWN: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(same) = known.get(text) {
        return same;
    }
    let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
    known.insert(kept);
    kept
}
