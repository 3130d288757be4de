//! From a request to a cluster's API to its answer.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::access::{User, Wish};
use super::issuer::{self, Issuer, TokenFor};
use super::listen::Wire;
use super::objects::{At, Objects, PatchKind};
use super::print::{self, Include};
use super::proto;
use super::select::Selector;
use super::settle::kubelet_version;
use super::status::{self, Answer};
use super::types::{self, ResourceType};
use super::watch::{self, Watched};
use super::yaml;
use crate::clock::SimTime;
use crate::world::ClusterView;

/// Page size when a client asks for none; larger lists come in several answers only if the client can page.
const MAX_PAGE: usize = 20_000;

const DEFAULT_TOKEN_SECONDS: i64 = 3600;
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

const OPENAPI_V2_PROTOBUF: &str = "com.github.proto-openapi.spec.v2";

pub enum Given {
    Json(u16, Value),
    Text(u16, String),
    /// Content type and bytes.
    Raw(&'static str, Vec<u8>),
    Watch(Watched),
    /// What a real API server answered.
    Forwarded(Wire),
}

/// One request, read to its end, with the cluster's prefix taken off its path.
pub struct Ask<'a> {
    pub method: &'a Method,
    pub path: Vec<&'a str>,
    pub query: Vec<(String, String)>,
    pub accept: &'a str,
    pub content_type: &'a str,
    pub body: &'a Bytes,
    pub view: &'a ClusterView,
    pub address: &'a str,
    pub issuer: &'a Issuer,
    /// Whom the request is made by.
    pub user: &'a User,
    /// Whether that user may do something.
    pub may: &'a (dyn Fn(&Wish) -> bool + Sync),
}

impl Ask<'_> {
    fn query(&self, name: &str) -> &str {
        self.query.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }

    /// Whether nothing can come of it but an answer. A watch needs objects that stay.
    pub fn only_looks(&self) -> bool {
        (self.method == Method::GET || self.method == Method::HEAD) && !self.flag("watch")
    }

    pub fn wish(&self) -> Wish {
        Wish::of(self.method.as_str(), &self.path, self.flag("watch"))
    }

    pub fn allowed(&self) -> bool {
        (self.may)(&self.wish())
    }

    pub fn only_nodes(&self) -> bool {
        matches!(self.path.as_slice(), ["api", "v1", "nodes", ..])
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.query(name), "true" | "1")
    }

    fn dry_run(&self) -> bool {
        self.query("dryRun") == "All"
    }

    fn json(&self) -> Answer<Value> {
        let kind = self.content_type.split(';').next().unwrap_or_default().trim();
        if kind.contains("protobuf") || kind.contains("cbor") {
            return proto::parse(self.body).ok_or_else(|| status::not_acceptable_media(kind));
        }
        match serde_json::from_slice(self.body) {
            Ok(value) => Ok(value),
            Err(_) if kind.contains("yaml") => yaml::parse(self.body).map_err(status::bad_request),
            Err(error) => Err(status::bad_request(format!("the body is not JSON: {error}"))),
        }
    }

    /// The table form, if the client prefers it to the objects themselves.
    fn table(&self) -> Option<Include> {
        let wants = self
            .accept
            .split(',')
            .next()
            .is_some_and(|first| first.contains("as=Table") && first.contains("g=meta.k8s.io"));
        wants.then(|| match self.query("includeObject") {
            "None" => Include::Nothing,
            "Object" => Include::Object,
            _ => Include::Metadata,
        })
    }
}

/// Answers that need no objects: health, version, discovery, reviews.
pub fn fixed(ask: &Ask) -> Option<Answer<Given>> {
    let ok = |value: Value| Some(Ok(Given::Json(200, value)));
    let found =
        |value: Option<Value>| Some(value.map(|value| Given::Json(200, value)).ok_or_else(status::no_such_path));
    if let (&Method::POST, ["apis", group, "v1", plural]) = (ask.method, ask.path.as_slice())
        && types::REVIEWS.iter().any(|(known, name, _)| known == group && name == plural)
    {
        return Some(ask.json().and_then(|body| review(ask, plural, body)));
    }
    let is_fixed = match ask.path.as_slice() {
        [] | ["version" | "healthz" | "livez" | "readyz" | "api" | "apis" | "openapi", ..] => {
            !matches!(ask.path.as_slice(), ["api", _, _, ..] | ["apis", _, _, _, ..])
        }
        _ => return Some(Err(status::no_such_path())),
    };
    if is_fixed && ask.method != Method::GET && ask.method != Method::HEAD {
        return Some(Err(status::method_not_allowed()));
    }
    match ask.path.as_slice() {
        [] => {
            let mut paths = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into()];
            paths.extend(types::groups().into_iter().map(|(group, version)| format!("/apis/{group}/{version}")));
            paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
            ok(json!({"paths": paths}))
        }
        ["version"] => ok(version(ask.view)),
        ["healthz" | "livez" | "readyz", ..] => {
            let name = ask.path[0];
            let verbose = ask.query.iter().any(|(key, _)| key == "verbose");
            let text = if verbose { format!("[+]ping ok\n[+]etcd ok\n{name} check passed\n") } else { "ok".into() };
            Some(Ok(Given::Text(200, text)))
        }
        ["api"] => ok(types::api_versions(ask.address)),
        ["apis"] => ok(types::api_group_list()),
        ["apis", group] => found(types::api_group(group)),
        ["api", version] => found(types::api_resource_list("", version)),
        ["apis", group, version] => found(types::api_resource_list(group, version)),
        ["openapi", "v3"] => ok(types::openapi_index(&format!("/clusters/{}", ask.view.id))),
        ["openapi", "v3", "api", version] => found(types::openapi_document("", version)),
        ["openapi", "v3", "apis", group, version] => found(types::openapi_document(group, version)),
        ["openapi", "v2"] if ask.accept.contains(OPENAPI_V2_PROTOBUF) => {
            Some(Ok(Given::Raw(types::OPENAPI_V2_TYPE, types::OPENAPI_V2.to_vec())))
        }
        ["openapi", "v2"] => {
            ok(json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": {}}))
        }
        ["openapi", ..] => Some(Err(status::no_such_path())),
        _ => None,
    }
}

fn version(view: &ClusterView) -> Value {
    let version = kubelet_version(&view.kubernetes_version);
    let mut numbers = version.trim_start_matches('v').split(['.', '+', '-']);
    let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
    json!({
        "major": major, "minor": minor, "gitVersion": version, "gitCommit": "0".repeat(40), "gitTreeState": "clean",
        "buildDate": "2025-01-01T00:00:00Z", "goVersion": "go1.23.0", "compiler": "gc", "platform": "linux/amd64",
    })
}

fn review(ask: &Ask, plural: &str, mut body: Value) -> Answer<Given> {
    if !body.is_object() {
        return Err(status::bad_request("the body is not an object"));
    }
    body["status"] = if plural == "selfsubjectaccessreviews" {
        let wish = Wish::asked(&body["spec"]);
        match (ask.may)(&wish) {
            true => json!({"allowed": true}),
            false => json!({"allowed": false, "reason": wish.refusal(&ask.user.name)}),
        }
    } else {
        json!({"userInfo": ask.user.info()})
    };
    Ok(Given::Json(201, body))
}

/// Where a request points: a type, a namespace, and perhaps one object and its subresource.
struct Target<'a> {
    resource: &'static ResourceType,
    namespace: &'a str,
    name: &'a str,
    sub: &'a str,
}

fn target<'a>(path: &[&'a str]) -> Answer<Target<'a>> {
    let (group, version, rest) = match path {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Err(status::no_such_path()),
    };
    let find = |plural: &str| types::find(group, version, plural).ok_or_else(status::no_such_path);
    let (namespace, rest) = match rest {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let target = match rest {
        [plural] => Target { resource: find(plural)?, namespace, name: "", sub: "" },
        [plural, name] => Target { resource: find(plural)?, namespace, name, sub: "" },
        [plural, name, sub] => Target { resource: find(plural)?, namespace, name, sub },
        _ => return Err(status::no_such_path()),
    };
    // `/api/v1/pods` lists all namespaces; a single object always needs its own.
    let known_sub = target.sub.is_empty() || target.resource.has(target.sub);
    let scoped =
        target.resource.namespaced != namespace.is_empty() || (target.resource.namespaced && target.name.is_empty());
    if known_sub && scoped { Ok(target) } else { Err(status::no_such_path()) }
}

/// Answers about objects.
pub fn resource(ask: &Ask, objects: &mut Objects, now: SimTime) -> Answer<Given> {
    let Target { resource, namespace, name, sub } = target(&ask.path)?;
    let at = At { resource, namespace, name };
    if !sub.is_empty() && sub != "status" {
        return subresource(ask, objects, at, sub, now);
    }
    let only_status = sub == "status";
    let one = |value: Value, code: u16| Ok(Given::Json(code, shown(ask, resource, &value, now)));
    match (ask.method.as_str(), name.is_empty()) {
        ("GET" | "HEAD", true) => collection(ask, objects, resource, namespace, now),
        ("GET" | "HEAD", false) => one(objects.get(at)?.clone(), 200),
        ("POST", true) if resource.namespaced && namespace.is_empty() => Err(status::method_not_allowed()),
        ("POST", true) => one(objects.create(resource, namespace, &ask.json()?, now, ask.dry_run())?, 201),
        ("PUT", false) => one(objects.replace(at, &ask.json()?, only_status, now, ask.dry_run())?, 200),
        ("PATCH", false) => {
            let kind = patch_kind(ask)?;
            let (object, new) = objects.patch(at, &kind, &ask.json()?, only_status, now, ask.dry_run())?;
            one(object, if new { 201 } else { 200 })
        }
        ("DELETE", false) => {
            let options = if ask.body.is_empty() { Value::Null } else { ask.json()? };
            let dry_run = ask.dry_run() || options["dryRun"][0] == "All";
            let object = objects.delete(at, &options["preconditions"], now, dry_run)?;
            if !dry_run && objects.has(at) {
                return Ok(Given::Json(200, object));
            }
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            Ok(Given::Json(200, status::deleted(resource, name, uid)))
        }
        ("DELETE", true) => delete_collection(ask, objects, resource, namespace, now),
        _ => Err(status::method_not_allowed()),
    }
}

/// One object, as the client wants to see it.
fn shown(ask: &Ask, resource: &'static ResourceType, object: &Value, now: SimTime) -> Value {
    match ask.table() {
        None => object.clone(),
        Some(include) => {
            let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            print::table(resource, &[object], include, now, meta)
        }
    }
}

fn patch_kind(ask: &Ask) -> Answer<PatchKind> {
    match ask.content_type.split(';').next().unwrap_or_default().trim() {
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" => {
            Ok(PatchKind::Apply { manager: ask.query("fieldManager").to_owned(), force: ask.flag("force") })
        }
        other => Err(status::not_acceptable_media(other)),
    }
}

fn collection(
    ask: &Ask,
    objects: &Objects,
    resource: &'static ResourceType,
    namespace: &str,
    now: SimTime,
) -> Answer<Given> {
    let selector = Selector::parse(ask.query("labelSelector"), ask.query("fieldSelector"))?;
    if ask.flag("watch") {
        return Ok(Given::Watch(Watched {
            cluster: ask.view.id.clone(),
            resource,
            namespace: namespace.to_owned(),
            selector,
            version: ask.query("resourceVersion").parse().unwrap_or(0),
            seconds: ask.query("timeoutSeconds").parse().unwrap_or(watch::DEFAULT_SECONDS).min(watch::MAX_SECONDS),
            mark_initial: ask.flag("sendInitialEvents"),
            table: ask.table(),
        }));
    }
    let limit = ask.query("limit").parse().ok().filter(|limit| *limit > 0).unwrap_or(MAX_PAGE);
    let after = cursor(ask.query("continue"))?;
    let key = |object: &Value| {
        let meta = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        (meta("namespace"), meta("name"))
    };
    let mut rest = objects
        .list(resource, namespace, &selector)
        .filter(|object| after.as_ref().is_none_or(|after| key(object) > *after));
    let page: Vec<&Value> = rest.by_ref().take(limit).collect();
    let remaining = rest.count();
    let mut meta = json!({"resourceVersion": objects.version().to_string()});
    if let (true, Some(last)) = (remaining > 0, page.last()) {
        let (namespace, name) = key(last);
        meta["continue"] = json!(URL_SAFE_NO_PAD.encode(format!("{namespace}/{name}")));
        meta["remainingItemCount"] = json!(remaining);
    }
    if let Some(include) = ask.table() {
        return Ok(Given::Json(200, print::table(resource, &page, include, now, meta)));
    }
    Ok(Given::Json(200, list_of(resource, &page, meta)))
}

fn list_of(resource: &ResourceType, items: &[&Value], meta: Value) -> Value {
    json!({"kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(), "metadata": meta, "items": items})
}

fn cursor(text: &str) -> Answer<Option<(String, String)>> {
    if text.is_empty() {
        return Ok(None);
    }
    let decoded = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = decoded.as_deref().and_then(|text| text.split_once('/'));
    let (namespace, name) = pair.ok_or_else(|| status::bad_request("continue key is not valid"))?;
    Ok(Some((namespace.to_owned(), name.to_owned())))
}

fn delete_collection(
    ask: &Ask,
    objects: &mut Objects,
    resource: &'static ResourceType,
    namespace: &str,
    now: SimTime,
) -> Answer<Given> {
    let selector = Selector::parse(ask.query("labelSelector"), ask.query("fieldSelector"))?;
    let chosen: Vec<Value> = objects.list(resource, namespace, &selector).cloned().collect();
    for object in &chosen {
        let meta = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let at = At { resource, namespace: meta("namespace"), name: meta("name") };
        // One may have gone already, with the owner deleted just before it.
        if objects.has(at) {
            objects.delete(at, &Value::Null, now, ask.dry_run())?;
        }
    }
    let meta = json!({"resourceVersion": objects.version().to_string()});
    Ok(Given::Json(200, list_of(resource, &chosen.iter().collect::<Vec<_>>(), meta)))
}

fn subresource(ask: &Ask, objects: &mut Objects, at: At, sub: &str, now: SimTime) -> Answer<Given> {
    match (ask.method.as_str(), sub) {
        ("POST", "eviction") => {
            objects.delete(at, &Value::Null, now, ask.dry_run())?;
            Ok(Given::Json(201, status::success(201)))
        }
        ("POST", "token") => {
            let uid = objects.get(at)?["metadata"]["uid"].as_str().unwrap_or_default();
            token_request(ask, at, uid)
        }
        ("PUT", "finalize") => Ok(Given::Json(200, objects.get(at)?.clone())),
        ("GET", "scale") => Ok(Given::Json(200, scale(objects.get(at)?))),
        ("PUT" | "PATCH", "scale") => {
            let replicas = ask.json()?["spec"]["replicas"].clone();
            if !replicas.is_u64() {
                return Err(status::invalid(
                    at.resource,
                    at.name,
                    "spec.replicas",
                    "Invalid value: must be a whole number, 0 or more",
                ));
            }
            let change = json!({"spec": {"replicas": replicas}});
            let (object, _) = objects.patch(at, &PatchKind::Merge, &change, false, now, ask.dry_run())?;
            Ok(Given::Json(200, scale(&object)))
        }
        _ => Err(status::method_not_allowed()),
    }
}

/// A token of a service account, for the audiences and the time that were asked for.
fn token_request(ask: &Ask, at: At, uid: &str) -> Answer<Given> {
    let mut body = ask.json()?;
    if !body.is_object() {
        return Err(status::bad_request("the body is not an object"));
    }
    let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_TOKEN_SECONDS);
    if !(MIN_TOKEN_SECONDS..=MAX_TOKEN_SECONDS).contains(&seconds) {
        let why = "Invalid value: may not specify a duration less than 10 minutes or larger than 2^32 seconds";
        return Err(status::invalid(at.resource, at.name, "spec.expirationSeconds", why));
    }
    let given = body["spec"]["audiences"].as_array().filter(|list| !list.is_empty());
    let audiences = match given {
        Some(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => vec![issuer::API_AUDIENCE.to_owned()],
    };
    body["spec"]["audiences"] = json!(audiences);
    body["spec"]["expirationSeconds"] = json!(seconds);
    let wanted = TokenFor { cluster: &ask.view.id, namespace: at.namespace, account: at.name, uid, audiences, seconds };
    let Some((token, expires)) = ask.issuer.sign(&wanted) else {
        return Err(status::bad_request("the cluster has no key for tokens"));
    };
    body["status"] = json!({"token": token, "expirationTimestamp": SimTime(expires * 1000).rfc3339()});
    Ok(Given::Json(201, body))
}

fn scale(object: &Value) -> Value {
    let labels = object["spec"]["selector"]["matchLabels"].as_object();
    let selector: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let mut metadata = object["metadata"].clone();
    if let Some(map) = metadata.as_object_mut() {
        map.retain(|field, _| {
            matches!(field.as_str(), "name" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp")
        });
    }
    let replicas = object["status"]["replicas"].as_u64().unwrap_or(0);
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": object["spec"]["replicas"]}, "status": {"replicas": replicas, "selector": selector.join(",")},
    })
}
