//! The documents that tell clients which types there are: discovery and OpenAPI.

use serde_json::{Map, Value, json};

use super::schema::{self, Schema};
use super::types::{METRICS, REVIEWS, ResourceType, TYPES, group_version};

/// The types of one cluster: built in, and defined by its objects with the schema that was given for them.
pub struct Catalog<'a> {
    pub custom: &'a [super::objects::Custom],
}

impl Catalog<'_> {
    fn all(&self) -> impl Iterator<Item = &'static ResourceType> {
        TYPES.iter().chain(METRICS).chain(self.custom.iter().map(|custom| custom.resource))
    }

    /// Named groups with their versions, in the order discovery lists them, the preferred version first.
    pub fn groups(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        let reviews = REVIEWS.iter().map(|(group, _, _)| (*group, "v1"));
        for (group, version) in self.all().map(|r| (r.group, r.version)).chain(reviews).filter(|(g, _)| !g.is_empty()) {
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, versions)) if versions.contains(&version) => {}
                Some((_, versions)) => versions.push(version),
                None => groups.push((group, vec![version])),
            }
        }
        groups.sort_unstable();
        for (_, versions) in &mut groups {
            versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        }
        groups
    }

    pub fn group_list(&self) -> Value {
        let groups: Vec<Value> = self.groups().into_iter().map(|(group, versions)| entry(group, &versions)).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    pub fn group(&self, group: &str) -> Option<Value> {
        let (group, versions) = self.groups().into_iter().find(|(name, _)| *name == group)?;
        let mut entry = entry(group, &versions);
        entry["kind"] = json!("APIGroup");
        entry["apiVersion"] = json!("v1");
        Some(entry)
    }

    pub fn resources(&self, group: &str, version: &str) -> Option<Value> {
        let mut resources = Vec::new();
        for resource in self.all().filter(|r| r.group == group && r.version == version) {
            let verbs = match METRICS.contains(resource) {
                true => json!(["get", "list"]),
                false => json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]),
            };
            let mut entry = json!({
                "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": verbs,
            });
            if !resource.short.is_empty() {
                entry["shortNames"] = json!(resource.short);
            }
            if !resource.categories.is_empty() {
                entry["categories"] = json!(resource.categories);
            }
            resources.push(entry);
            resources.extend(resource.subresources.iter().map(|sub| subresource(resource, sub)));
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
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version),
            "resources": resources,
        }))
    }

    /// The index of OpenAPI documents. The hash changes with the types, so that clients do not keep an old document.
    pub fn openapi_index(&self, prefix: &str) -> Value {
        let mut paths = Map::new();
        let mut add = |path: String, hash: String| {
            let url = format!("{prefix}/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        };
        let release = env!("CARGO_PKG_VERSION");
        add("api/v1".into(), release.to_owned());
        for (group, versions) in self.groups() {
            for version in versions {
                let custom = self.custom.iter().filter(|c| (c.resource.group, c.resource.version) == (group, version));
                let hash = custom
                    .map(|custom| custom.stamp.as_str())
                    .fold(release.to_owned(), |all, one| format!("{all}-{one}"));
                add(format!("apis/{group}/{version}"), hash);
            }
        }
        json!({"paths": paths})
    }

    pub fn openapi(&self, group: &str, version: &str) -> Option<Value> {
        let base = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/{version}") };
        let mut paths = Map::new();
        let (mut names, mut schemas) = (Vec::new(), Map::new());
        for resource in TYPES.iter().filter(|r| r.group == group && r.version == version) {
            let name = schema::definition_name(group, version, resource.kind);
            add_paths(&mut paths, &base, resource, &name);
            names.push(name);
        }
        schemas.append(&mut schema::closure(names));
        for custom in self.custom.iter().filter(|c| c.resource.group == group && c.resource.version == version) {
            let reversed: Vec<&str> = group.split('.').rev().collect();
            let name = format!("{}.{version}.{}", reversed.join("."), custom.resource.kind);
            add_paths(&mut paths, &base, custom.resource, &name);
            schemas.append(&mut schema::closure([schema::OBJECT_META.to_owned()]));
            schemas.insert(name, custom_document(custom.resource, &custom.published));
        }
        if paths.is_empty() && !self.groups().iter().any(|(g, versions)| *g == group && versions.contains(&version)) {
            return None;
        }
        Some(json!({
            "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": paths,
            "components": {"schemas": schemas},
        }))
    }
}

/// `v2` before `v1` before `v1beta1`, as Kubernetes orders versions.
fn priority(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let major = digits(rest);
    match (rest.find("beta"), rest.find("alpha")) {
        (Some(at), _) => (2, major, digits(&rest[at + 4..])),
        (_, Some(at)) => (1, major, digits(&rest[at + 5..])),
        _ => (3, major, 0),
    }
}

pub fn api_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

fn entry(group: &str, versions: &[&str]) -> Value {
    let served: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": group_version(group, version), "version": version}))
        .collect();
    json!({"name": group, "versions": served, "preferredVersion": served.first()})
}

fn subresource(resource: &ResourceType, sub: &str) -> Value {
    let mut entry = json!({
        "name": format!("{}/{sub}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": ["get", "patch", "update"],
    });
    let other = match sub {
        "eviction" => Some(("policy", "v1", "Eviction", json!(["create"]))),
        "token" => Some(("authentication.k8s.io", "v1", "TokenRequest", json!(["create"]))),
        "scale" => Some(("autoscaling", "v1", "Scale", json!(["get", "patch", "update"]))),
        "finalize" => Some(("", "", "Namespace", json!(["update"]))),
        "binding" => Some(("", "", "Binding", json!(["create"]))),
        "log" => Some(("", "", "Pod", json!(["get"]))),
        "exec" | "attach" | "portforward" => Some(("", "", "PodOptions", json!(["create", "get"]))),
        "proxy" => Some(("", "", "ProxyOptions", json!(["create", "delete", "get", "patch", "update"]))),
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

/// What clients look up by path: that PATCH takes `fieldValidation`, and the schema of what a type's path answers with.
fn add_paths(paths: &mut Map<String, Value>, base: &str, resource: &ResourceType, name: &str) {
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let gvk = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let answer = json!({"200": {"description": "OK", "content": {"application/json": {"schema": {
        "$ref": format!("#/components/schemas/{name}")}}}}});
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"]
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
        .collect();
    let operation = |action: &str| {
        json!({
            "operationId": format!("{action}{}", resource.kind), "parameters": parameters, "responses": answer,
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk,
        })
    };
    let one = json!({"get": operation("get"), "patch": operation("patch"), "put": operation("put")});
    paths.insert(format!("{base}{scope}/{}/{{name}}", resource.plural), one);
    let all = json!({"get": operation("list"), "post": operation("post")});
    paths.insert(format!("{base}{scope}/{}", resource.plural), all);
}

/// A custom type's schema with what every object has, as the API server publishes it.
fn custom_document(resource: &ResourceType, published: &Value) -> Value {
    let mut document = if published.is_object() { published.clone() } else { json!({"type": "object"}) };
    let meta = schema::published("io.k8s.api.core.v1.ConfigMap").map(|(schema, _)| schema).unwrap_or_default();
    for field in ["apiVersion", "kind", "metadata"] {
        document["properties"][field] = meta["properties"][field].clone();
    }
    document["x-kubernetes-group-version-kind"] =
        json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
    document
}

pub const OPENAPI_V2_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// An OpenAPI v2 document without types, in protobuf: `swagger` and `info`. Older clients insist on the document and skip
/// validation for types that are not in it.
pub const OPENAPI_V2: &[u8] = b"\x0a\x032.0\x12\x10\x0a\x0aKubernetes\x12\x02v1";

/// The schema of a type in a cluster.
pub fn schema_of<'a>(resource: &ResourceType, custom: &'a [super::objects::Custom]) -> Option<&'a Schema> {
    if resource.custom {
        return custom.iter().find(|custom| custom.resource == resource).map(|custom| &custom.schema);
    }
    schema::of_built_in(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_discoverable_and_has_a_document() {
        let catalog = Catalog { custom: &[] };
        for resource in TYPES {
            let list = catalog.resources(resource.group, resource.version).unwrap();
            let names: Vec<&str> =
                list["resources"].as_array().unwrap().iter().filter_map(|r| r["name"].as_str()).collect();
            assert!(names.contains(&resource.plural), "{names:?}");
            let document = catalog.openapi(resource.group, resource.version).unwrap();
            let name = schema::definition_name(resource.group, resource.version, resource.kind);
            assert!(document["components"]["schemas"][name.as_str()].is_object(), "{name}");
        }
        assert!(catalog.resources("nowhere", "v1").is_none());
        assert!(catalog.openapi("nowhere", "v1").is_none());
        let autoscaling = catalog.group("autoscaling").unwrap();
        assert_eq!(autoscaling["preferredVersion"]["version"], "v2");
        assert!(priority("v1") > priority("v1beta2") && priority("v1beta2") > priority("v1beta1"));
        assert!(priority("v1beta1") > priority("v2alpha1"));
    }
}
