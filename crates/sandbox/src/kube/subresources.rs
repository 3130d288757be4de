//! Parts of objects that have paths of their own: scale, eviction, logs, tokens.

use serde_json::{Value, json};

use super::api::{Ask, Given};
use super::change::PatchKind;
use super::controllers;
use super::delete::Deletion;
use super::issuer::{self, TokenFor};
use super::logs;
use super::objects::{At, Objects, meta};
use super::patch;
use super::status::{self, Answer};
use crate::clock::SimTime;

const DEFAULT_TOKEN_SECONDS: i64 = 3600;
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

pub fn answer(ask: &Ask, objects: &mut Objects, at: At, sub: &str, now: SimTime) -> Answer<Given> {
    match (ask.method.as_str(), sub) {
        ("POST", "eviction") => evict(ask, objects, at, now),
        ("POST", "token") => {
            let uid = meta(objects.get(at)?, "uid");
            token_request(ask, at, uid)
        }
        ("POST", "binding") => {
            let node = ask.json()?["target"]["name"].as_str().unwrap_or_default().to_owned();
            objects.get(at)?;
            objects.set(at, |pod| pod["spec"]["nodeName"] = json!(node));
            Ok(Given::Json(201, status::success(201)))
        }
        ("PUT", "finalize") => {
            let body = ask.json()?;
            let object = objects.get(at)?.clone();
            let done = body["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
            if done && object["metadata"].get("deletionTimestamp").is_some() {
                objects.forget(at);
            }
            Ok(Given::Json(200, object))
        }
        ("GET", "scale") => {
            let object = objects.get(at)?;
            Ok(Given::Json(200, scale(object, &paths(objects, at))))
        }
        ("PUT" | "PATCH", "scale") => set_scale(ask, objects, at, now),
        ("GET", "log") => logs::answer(ask, objects, at, now),
        ("PUT" | "PATCH", "approval" | "ephemeralcontainers" | "resize") => {
            let kind = if ask.method == "PUT" { None } else { Some(PatchKind::Strategic) };
            let body = ask.json()?;
            let changed = match kind {
                None => objects.replace(at, &body, sub == "approval", &ask.write(now))?,
                Some(kind) => objects.patch(at, &kind, &body, sub == "approval", &ask.write(now))?.0,
            };
            Ok(Given::Json(200, changed))
        }
        (_, "exec" | "attach" | "portforward" | "proxy") => {
            objects.get(at)?;
            Err(status::not_simulated(sub))
        }
        _ => Err(status::method_not_allowed()),
    }
}

/// A pod is evicted as long as its disruption budget allows it.
fn evict(ask: &Ask, objects: &mut Objects, at: At, now: SimTime) -> Answer<Given> {
    let pod = objects.get(at)?;
    let body = ask.json().unwrap_or_default();
    let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
    let leaving = pod["metadata"].get("deletionTimestamp").is_some();
    if !over
        && !leaving
        && let Some(budget) = controllers::forbids(objects, pod)
    {
        let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
        // A pod that is not ready may go as long as enough others are.
        let ready = controllers::is_ready(pod);
        if ready || number("currentHealthy") < number("desiredHealthy") {
            return Err(status::too_disruptive(
                meta(budget, "name"),
                number("desiredHealthy"),
                number("currentHealthy"),
            ));
        }
    }
    let mut deletion = Deletion::parse(&body["deleteOptions"]);
    deletion.dry_run = deletion.dry_run || ask.dry_run();
    objects.delete(at, &deletion, now)?;
    Ok(Given::Json(201, status::success(201)))
}

/// Where a type keeps what scale shows: wanted replicas, replicas there are, selector.
fn paths(objects: &Objects, at: At) -> [String; 3] {
    let custom = objects.custom.iter().find(|custom| custom.resource == at.resource);
    let path = |field: &str, usual: &str| {
        let given = custom.and_then(|custom| custom.scale[field].as_str()).map(|path| path.replace('.', "/"));
        given.unwrap_or_else(|| usual.to_owned())
    };
    [
        path("specReplicasPath", "/spec/replicas"),
        path("statusReplicasPath", "/status/replicas"),
        path("labelSelectorPath", ""),
    ]
}

fn scale(object: &Value, [wanted, there, selector]: &[String; 3]) -> Value {
    let labels = object["spec"]["selector"]["matchLabels"].as_object();
    let pairs: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let by_path = object.pointer(selector).and_then(Value::as_str).map(str::to_owned);
    let mut metadata = object["metadata"].clone();
    if let Some(map) = metadata.as_object_mut() {
        map.retain(|field, _| {
            matches!(field.as_str(), "name" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp")
        });
    }
    let number = |path: &str| object.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {"replicas": number(wanted)},
        "status": {"replicas": number(there), "selector": by_path.unwrap_or_else(|| pairs.join(","))},
    })
}

fn set_scale(ask: &Ask, objects: &mut Objects, at: At, now: SimTime) -> Answer<Given> {
    let paths = paths(objects, at);
    let body = ask.json()?;
    let mut wanted = scale(objects.get(at)?, &paths);
    if body.is_array() {
        patch::json_patch(&mut wanted, &body).map_err(|why| status::invalid(at.resource, at.name, "patch", &why))?;
    } else {
        let version = meta(&body, "resourceVersion");
        if !version.is_empty() && version != meta(&wanted, "resourceVersion") {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(status::conflict(at.resource, at.name, why));
        }
        patch::merge(&mut wanted, &body);
    }
    let replicas = wanted["spec"]["replicas"].clone();
    if !replicas.is_u64() {
        let why = format!("Invalid value: {replicas}: must be greater than or equal to 0");
        return Err(status::invalid(at.resource, at.name, "spec.replicas", &why));
    }
    let change =
        paths[0].split('/').filter(|part| !part.is_empty()).rev().fold(replicas, |inner, part| json!({part: inner}));
    let (object, _) = objects.patch(at, &PatchKind::Merge, &change, false, &ask.write(now))?;
    Ok(Given::Json(200, scale(&object, &paths)))
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
