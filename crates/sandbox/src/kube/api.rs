//! From a request to a cluster's API to its answer.

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::access::{User, Wish};
use super::change::{Validation, Write};
use super::controllers::kubelet_version;
use super::discovery::{self, Catalog};
use super::issuer::Issuer;
use super::listen::Wire;
use super::logs::LogAsk;
use super::objects::Objects;
use super::print::Include;
use super::proto;
use super::resources;
use super::status::{self, Answer};
use super::types;
use super::watch::Watched;
use super::yaml;
use crate::clock::SimTime;
use crate::world::ClusterView;

const OPENAPI_V2_PROTOBUF: &str = "com.github.proto-openapi.spec.v2";

pub enum Given {
    Json(u16, Value),
    Text(u16, String),
    /// Content type and bytes.
    Raw(&'static str, Vec<u8>),
    Watch(Watched),
    /// What a real API server answered.
    Forwarded(Wire),
    Log(LogAsk),
    /// An answer that the client is to be warned along with.
    Warned(Vec<String>, Box<Given>),
}

/// How much of a cluster an answer is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Nodes,
    /// The types that it knows.
    Types,
    Everything,
}

/// One request, read to its end, with the cluster's prefix taken off its path.
pub struct Ask<'a> {
    pub method: &'a Method,
    pub path: Vec<&'a str>,
    pub query: Vec<(String, String)>,
    pub accept: &'a str,
    pub content_type: &'a str,
    pub user_agent: &'a str,
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
    pub fn query(&self, name: &str) -> &str {
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

    pub fn needs(&self) -> Need {
        match self.path.as_slice() {
            ["api", "v1", "nodes", ..] => Need::Nodes,
            [] | ["api" | "apis" | "openapi"] | ["apis", _] | ["api", _] | ["apis", _, _] | ["openapi", ..] => {
                Need::Types
            }
            _ => Need::Everything,
        }
    }

    /// Who owns the fields that this call sets, and how strict it is about fields that do not exist.
    pub fn write(&self, now: SimTime) -> Write<'_> {
        let program = self.user_agent.split('/').next().filter(|name| !name.is_empty()).unwrap_or("unknown");
        let manager = Some(self.query("fieldManager")).filter(|name| !name.is_empty()).unwrap_or(program);
        let validation = match self.query("fieldValidation") {
            "Strict" => Validation::Strict,
            "Ignore" => Validation::Ignore,
            _ => Validation::Warn,
        };
        Write { now, dry_run: self.dry_run(), manager, validation }
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.query(name), "true" | "1")
    }

    pub fn dry_run(&self) -> bool {
        self.query("dryRun") == "All"
    }

    pub fn json(&self) -> Answer<Value> {
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
    pub fn table(&self) -> Option<Include> {
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

impl Ask<'_> {
    /// Only the metadata of objects, as clients ask that do not know a type.
    pub fn only_metadata(&self) -> bool {
        self.accept.split(',').next().is_some_and(|first| first.contains("as=PartialObjectMetadata"))
    }
}

/// Answers that need no objects: health, version, reviews.
pub fn fixed(ask: &Ask) -> Option<Answer<Given>> {
    let path = ask.path.as_slice();
    if let (&Method::POST, ["apis", group, "v1", plural]) = (ask.method, path)
        && types::REVIEWS.iter().any(|(known, name, _)| known == group && name == plural)
    {
        return Some(ask.json().and_then(|body| review(ask, plural, body)));
    }
    let known = matches!(path, [] | ["version" | "healthz" | "livez" | "readyz" | "api" | "apis" | "openapi", ..]);
    if !known {
        return Some(Err(status::no_such_path()));
    }
    let is_document = !matches!(path, ["api", _, _, ..] | ["apis", _, _, _, ..]);
    if is_document && ask.method != Method::GET && ask.method != Method::HEAD {
        return Some(Err(status::method_not_allowed()));
    }
    match path {
        ["version"] => Some(Ok(Given::Json(200, version(ask.view)))),
        ["healthz" | "livez" | "readyz", ..] => {
            let name = ask.path[0];
            let verbose = ask.query.iter().any(|(key, _)| key == "verbose");
            let text = if verbose { format!("[+]ping ok\n[+]etcd ok\n{name} check passed\n") } else { "ok".into() };
            Some(Ok(Given::Text(200, text)))
        }
        ["api"] => Some(Ok(Given::Json(200, discovery::api_versions(ask.address)))),
        ["openapi", "v2"] if ask.accept.contains(OPENAPI_V2_PROTOBUF) => {
            Some(Ok(Given::Raw(discovery::OPENAPI_V2_TYPE, discovery::OPENAPI_V2.to_vec())))
        }
        ["openapi", "v2"] => {
            let empty = json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": {}});
            Some(Ok(Given::Json(200, empty)))
        }
        _ => None,
    }
}

/// Which types there are; nothing for paths of objects.
fn documents(ask: &Ask, objects: &Objects) -> Option<Answer<Given>> {
    let catalog = Catalog { custom: &objects.custom };
    let found =
        |value: Option<Value>| Some(value.map(|value| Given::Json(200, value)).ok_or_else(status::no_such_path));
    match ask.path.as_slice() {
        [] => {
            let mut paths = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into()];
            for (group, versions) in catalog.groups() {
                paths.push(format!("/apis/{group}"));
                paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
            }
            paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
            found(Some(json!({"paths": paths})))
        }
        ["apis"] => found(Some(catalog.group_list())),
        ["apis", group] => found(catalog.group(group)),
        ["api", version] => found(catalog.resources("", version)),
        ["apis", group, version] => match registered_elsewhere(objects, group, version) {
            true => Some(Err(status::service_unavailable())),
            false => found(catalog.resources(group, version)),
        },
        ["openapi", "v3"] => found(Some(catalog.openapi_index(&format!("/clusters/{}", ask.view.id)))),
        ["openapi", "v3", "api", version] => found(catalog.openapi("", version)),
        ["openapi", "v3", "apis", group, version] => found(catalog.openapi(group, version)),
        ["openapi", ..] => Some(Err(status::no_such_path())),
        _ => None,
    }
}

/// Whether an APIService sends the group to a service, which nobody answers for here.
pub fn registered_elsewhere(objects: &Objects, group: &str, version: &str) -> bool {
    let name = format!("{version}.{group}");
    group != "metrics.k8s.io"
        && objects
            .peek("apiregistration.k8s.io", "apiservices", "", &name)
            .is_some_and(|service| service["spec"]["service"].is_object())
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
    body["status"] = match plural {
        "selfsubjectaccessreviews" => {
            let wish = Wish::asked(&body["spec"]);
            match (ask.may)(&wish) {
                true => json!({"allowed": true}),
                false => json!({"allowed": false, "reason": wish.refusal(&ask.user.name)}),
            }
        }
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}], "incomplete": false,
        }),
        _ => json!({"userInfo": ask.user.info()}),
    };
    Ok(Given::Json(201, body))
}

/// Answers that are made from objects, with what the client is to be warned of.
pub fn answer(ask: &Ask, objects: &mut Objects, now: SimTime) -> Answer<Given> {
    if let Some(found) = documents(ask, objects) {
        return found;
    }
    objects.warnings.clear();
    let given = resources::answer(ask, objects, now)?;
    let warnings = std::mem::take(&mut objects.warnings);
    Ok(if warnings.is_empty() { given } else { Given::Warned(warnings, Box::new(given)) })
}
