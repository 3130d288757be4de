//! The resource types that sandbox clusters know, and the discovery documents made from them.

use serde_json::{Value, json};

/// One resource type of the Kubernetes API. All are served in a single version, as current clusters do.
#[derive(Debug)]
pub struct ResourceType {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub short: &'static [&'static str],
    pub namespaced: bool,
    /// Shown by `kubectl get all`.
    pub in_all: bool,
    pub subresources: &'static [&'static str],
}

const fn cluster(
    (group, version): (&'static str, &'static str),
    (plural, singular, kind): (&'static str, &'static str, &'static str),
    short: &'static [&'static str],
    subresources: &'static [&'static str],
) -> ResourceType {
    ResourceType { group, version, plural, singular, kind, short, namespaced: false, in_all: false, subresources }
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
    resource.in_all = true;
    resource
}

const CORE: (&str, &str) = ("", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const BATCH: (&str, &str) = ("batch", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");
const STORAGE: (&str, &str) = ("storage.k8s.io", "v1");
const NETWORKING: (&str, &str) = ("networking.k8s.io", "v1");
const ADMISSION: (&str, &str) = ("admissionregistration.k8s.io", "v1");

pub static TYPES: &[ResourceType] = &[
    namespaced(CORE, ("configmaps", "configmap", "ConfigMap"), &["cm"], &[]),
    namespaced(CORE, ("endpoints", "endpoints", "Endpoints"), &["ep"], &[]),
    namespaced(CORE, ("events", "event", "Event"), &["ev"], &[]),
    namespaced(CORE, ("limitranges", "limitrange", "LimitRange"), &["limits"], &[]),
    cluster(CORE, ("namespaces", "namespace", "Namespace"), &["ns"], &["finalize", "status"]),
    cluster(CORE, ("nodes", "node", "Node"), &["no"], &["status"]),
    namespaced(
        CORE,
        ("persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim"),
        &["pvc"],
        &["status"],
    ),
    cluster(CORE, ("persistentvolumes", "persistentvolume", "PersistentVolume"), &["pv"], &["status"]),
    in_all(namespaced(CORE, ("pods", "pod", "Pod"), &["po"], &["eviction", "status"])),
    namespaced(CORE, ("resourcequotas", "resourcequota", "ResourceQuota"), &["quota"], &["status"]),
    namespaced(CORE, ("secrets", "secret", "Secret"), &[], &[]),
    namespaced(CORE, ("serviceaccounts", "serviceaccount", "ServiceAccount"), &["sa"], &["token"]),
    in_all(namespaced(CORE, ("services", "service", "Service"), &["svc"], &["status"])),
    cluster(
        ADMISSION,
        ("mutatingwebhookconfigurations", "mutatingwebhookconfiguration", "MutatingWebhookConfiguration"),
        &[],
        &[],
    ),
    cluster(
        ADMISSION,
        ("validatingwebhookconfigurations", "validatingwebhookconfiguration", "ValidatingWebhookConfiguration"),
        &[],
        &[],
    ),
    in_all(namespaced(APPS, ("daemonsets", "daemonset", "DaemonSet"), &["ds"], &["status"])),
    in_all(namespaced(APPS, ("deployments", "deployment", "Deployment"), &["deploy"], &["scale", "status"])),
    in_all(namespaced(APPS, ("replicasets", "replicaset", "ReplicaSet"), &["rs"], &["scale", "status"])),
    in_all(namespaced(APPS, ("statefulsets", "statefulset", "StatefulSet"), &["sts"], &["scale", "status"])),
    in_all(namespaced(
        ("autoscaling", "v2"),
        ("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler"),
        &["hpa"],
        &["status"],
    )),
    in_all(namespaced(BATCH, ("cronjobs", "cronjob", "CronJob"), &["cj"], &["status"])),
    in_all(namespaced(BATCH, ("jobs", "job", "Job"), &[], &["status"])),
    namespaced(("coordination.k8s.io", "v1"), ("leases", "lease", "Lease"), &[], &[]),
    namespaced(("discovery.k8s.io", "v1"), ("endpointslices", "endpointslice", "EndpointSlice"), &[], &[]),
    cluster(NETWORKING, ("ingressclasses", "ingressclass", "IngressClass"), &[], &[]),
    namespaced(NETWORKING, ("ingresses", "ingress", "Ingress"), &["ing"], &["status"]),
    namespaced(NETWORKING, ("networkpolicies", "networkpolicy", "NetworkPolicy"), &["netpol"], &[]),
    namespaced(
        ("policy", "v1"),
        ("poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget"),
        &["pdb"],
        &["status"],
    ),
    cluster(RBAC, ("clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding"), &[], &[]),
    cluster(RBAC, ("clusterroles", "clusterrole", "ClusterRole"), &[], &[]),
    namespaced(RBAC, ("rolebindings", "rolebinding", "RoleBinding"), &[], &[]),
    namespaced(RBAC, ("roles", "role", "Role"), &[], &[]),
    cluster(("scheduling.k8s.io", "v1"), ("priorityclasses", "priorityclass", "PriorityClass"), &["pc"], &[]),
    cluster(STORAGE, ("csidrivers", "csidriver", "CSIDriver"), &[], &[]),
    cluster(STORAGE, ("csinodes", "csinode", "CSINode"), &[], &[]),
    cluster(STORAGE, ("storageclasses", "storageclass", "StorageClass"), &["sc"], &[]),
    cluster(STORAGE, ("volumeattachments", "volumeattachment", "VolumeAttachment"), &[], &["status"]),
];

/// Reviews that are answered and never stored: `kubectl auth can-i` and `kubectl auth whoami`.
pub static REVIEWS: &[(&str, &str, &str)] = &[
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
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

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.into() } else { format!("{group}/{version}") }
}

pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static ResourceType> {
    TYPES.iter().find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
}

pub fn by_qualified(name: &str) -> Option<&'static ResourceType> {
    TYPES.iter().find(|resource| resource.qualified() == name)
}

/// Named groups with their version, in the order discovery lists them.
pub fn groups() -> Vec<(&'static str, &'static str)> {
    let mut groups: Vec<(&str, &str)> = TYPES.iter().map(|r| (r.group, r.version)).collect();
    groups.extend(REVIEWS.iter().map(|(group, _, _)| (*group, "v1")));
    groups.retain(|(group, _)| !group.is_empty());
    groups.sort_unstable();
    groups.dedup();
    groups
}

pub fn api_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

pub fn api_group_list() -> Value {
    let groups: Vec<Value> = groups().into_iter().map(|(group, version)| group_entry(group, version)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub fn api_group(group: &str) -> Option<Value> {
    let (group, version) = groups().into_iter().find(|(name, _)| *name == group)?;
    let mut entry = group_entry(group, version);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

fn group_entry(group: &str, version: &str) -> Value {
    let served = json!({"groupVersion": group_version(group, version), "version": version});
    json!({"name": group, "versions": [served], "preferredVersion": served})
}

pub fn api_resource_list(group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in TYPES.iter().filter(|r| r.group == group && r.version == version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        });
        if !resource.short.is_empty() {
            entry["shortNames"] = json!(resource.short);
        }
        if resource.in_all {
            entry["categories"] = json!(["all"]);
        }
        resources.push(entry);
        for sub in resource.subresources {
            resources.push(subresource_entry(resource, sub));
        }
    }
    for (_, plural, kind) in REVIEWS.iter().filter(|(g, _, _)| *g == group && version == "v1") {
        resources.push(json!({
            "name": plural, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind, "verbs": ["create"],
        }));
    }
    if resources.is_empty() {
        return None;
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version), "resources": resources,
    }))
}

fn subresource_entry(resource: &ResourceType, sub: &str) -> Value {
    let mut entry = json!({
        "name": format!("{}/{sub}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": ["get", "patch", "update"],
    });
    let other = match sub {
        "eviction" => Some(("policy", "v1", "Eviction", json!(["create"]))),
        "token" => Some(("authentication.k8s.io", "v1", "TokenRequest", json!(["create"]))),
        "scale" => Some(("autoscaling", "v1", "Scale", json!(["get", "patch", "update"]))),
        "finalize" => Some(("", "", "Namespace", json!(["update"]))),
        _ => None,
    };
    if let Some((group, version, kind, verbs)) = other {
        if !group.is_empty() {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
        entry["kind"] = json!(kind);
        entry["verbs"] = verbs;
    }
    entry
}

/// The index of OpenAPI documents. Clients only follow what is here.
pub fn openapi_index(prefix: &str) -> Value {
    let mut paths = serde_json::Map::new();
    let mut add = |path: String| {
        let url = format!("{prefix}/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
        paths.insert(path, json!({"serverRelativeURL": url}));
    };
    add("api/v1".into());
    groups().into_iter().for_each(|(group, version)| add(format!("apis/{group}/{version}")));
    json!({"paths": paths})
}

pub const OPENAPI_V2_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// An OpenAPI v2 document without types, in protobuf: `swagger` and `info`. Older clients insist on the document and skip
/// validation for types that are not in it.
pub const OPENAPI_V2: &[u8] = b"\x0a\x032.0\x12\x10\x0a\x0aKubernetes\x12\x02v1";

/// The least that tells kubectl and Helm "validate on the server": each type's PATCH takes `fieldValidation`. No schemas
/// are offered; for the built-in types that clusters have, clients carry their own.
pub fn openapi_document(group: &str, version: &str) -> Option<Value> {
    let base = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/{version}") };
    let mut paths = serde_json::Map::new();
    for resource in TYPES.iter().filter(|r| r.group == group && r.version == version) {
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        paths.insert(
            format!("{base}{scope}/{}/{{name}}", resource.plural),
            json!({"patch": {
                "operationId": format!("patch{}", resource.kind),
                "parameters": [
                    {"name": "dryRun", "in": "query", "schema": {"type": "string"}},
                    {"name": "fieldManager", "in": "query", "schema": {"type": "string"}},
                    {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": resource.kind},
            }}),
        );
    }
    if paths.is_empty() && !groups().contains(&(group, version)) {
        return None;
    }
    Some(json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": paths}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_discoverable_and_has_a_document() {
        for resource in TYPES {
            let list = api_resource_list(resource.group, resource.version).unwrap();
            let names: Vec<&str> =
                list["resources"].as_array().unwrap().iter().filter_map(|r| r["name"].as_str()).collect();
            assert!(names.contains(&resource.plural), "{names:?}");
            assert!(openapi_document(resource.group, resource.version).is_some());
            assert_eq!(by_qualified(&resource.qualified()).unwrap().kind, resource.kind);
        }
        assert!(api_resource_list("nowhere", "v1").is_none());
        assert!(openapi_document("nowhere", "v1").is_none());
    }
}
