//! Requests for objects: one, many, changes and deletions.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::api::{Ask, Given, registered_elsewhere};
use super::change::PatchKind;
use super::convert;
use super::delete::{Deleted, Deletion};
use super::metrics;
use super::objects::{At, Objects, meta};
use super::print;
use super::select::Selector;
use super::status::{self, Answer};
use super::subresources;
use super::types::ResourceType;
use super::watch::{self, Watched};
use crate::clock::SimTime;

/// Page size when a client asks for none; larger lists come in several answers only if the client can page.
const MAX_PAGE: usize = 20_000;

/// Where a request points: a type, a namespace, and perhaps one object and its subresource.
struct Target<'a> {
    resource: &'static ResourceType,
    namespace: &'a str,
    name: &'a str,
    sub: &'a str,
}

fn target<'a>(path: &[&'a str], objects: &Objects) -> Answer<Target<'a>> {
    let (group, version, rest) = match path {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Err(status::no_such_path()),
    };
    let find = |plural: &str| match objects.find(group, version, plural) {
        Some(resource) => Ok(resource),
        None if registered_elsewhere(objects, group, version) => Err(status::service_unavailable()),
        None => Err(status::no_such_path()),
    };
    let (namespace, rest) = match rest {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let target = match rest {
        [plural] => Target { resource: find(plural)?, namespace, name: "", sub: "" },
        [plural, name] => Target { resource: find(plural)?, namespace, name, sub: "" },
        [plural, name, sub, ..] => Target { resource: find(plural)?, namespace, name, sub },
        _ => return Err(status::no_such_path()),
    };
    // `/api/v1/pods` lists all namespaces; a single object always needs its own.
    let known_sub = target.sub.is_empty() || target.resource.has(target.sub);
    let scoped =
        target.resource.namespaced != namespace.is_empty() || (target.resource.namespaced && target.name.is_empty());
    if known_sub && scoped { Ok(target) } else { Err(status::no_such_path()) }
}

pub fn answer(ask: &Ask, objects: &mut Objects, now: SimTime) -> Answer<Given> {
    if let ["apis", "metrics.k8s.io", _, rest @ ..] = ask.path.as_slice() {
        return metrics::answer(ask, objects, rest, now);
    }
    let Target { resource: asked, namespace, name, sub } = target(&ask.path, objects)?;
    let resource = convert::stored(asked);
    let at = At { resource, namespace, name };
    if !sub.is_empty() && sub != "status" {
        return subresources::answer(ask, objects, at, sub, now);
    }
    let only_status = sub == "status";
    let one =
        |objects: &Objects, value: Value, code: u16| Ok(Given::Json(code, shown(ask, objects, asked, &value, now)));
    match (ask.method.as_str(), name.is_empty()) {
        ("GET" | "HEAD", true) => collection(ask, objects, asked, namespace, now),
        ("GET" | "HEAD", false) => one(objects, objects.get(at)?.clone(), 200),
        ("POST", true) if resource.namespaced && namespace.is_empty() => Err(status::method_not_allowed()),
        ("POST", true) => {
            let body = convert::given(asked, ask.json()?);
            let made = objects.create(resource, namespace, &body, &ask.write(now))?;
            one(objects, made, 201)
        }
        ("PUT", false) => {
            let body = convert::given(asked, ask.json()?);
            let put = objects.replace(at, &body, only_status, &ask.write(now))?;
            one(objects, put, 200)
        }
        ("PATCH", false) => {
            let kind = patch_kind(ask)?;
            let body = convert::given(asked, ask.json()?);
            let (object, new) = objects.patch(at, &kind, &body, only_status, &ask.write(now))?;
            one(objects, object, if new { 201 } else { 200 })
        }
        ("DELETE", false) => match objects.delete(at, &deletion(ask), now)? {
            Deleted::Going(object) => Ok(Given::Json(200, convert::shown(asked, &object, now))),
            Deleted::Gone(object) => Ok(Given::Json(200, status::deleted(resource, name, meta(&object, "uid")))),
        },
        ("DELETE", true) => delete_collection(ask, objects, resource, namespace, now),
        _ => Err(status::method_not_allowed()),
    }
}

/// What the body and the query of a DELETE ask for. A body in a form that is not read says nothing.
pub fn deletion(ask: &Ask) -> Deletion {
    let mut deletion = Deletion::parse(&ask.json().unwrap_or_default());
    if let Ok(seconds) = ask.query("gracePeriodSeconds").parse() {
        deletion.grace_seconds = Some(seconds);
    }
    if !ask.query("propagationPolicy").is_empty() {
        deletion.propagation = Some(ask.query("propagationPolicy").to_owned());
    }
    deletion.dry_run = deletion.dry_run || ask.dry_run();
    deletion
}

/// One object, as the client wants to see it.
fn shown(ask: &Ask, objects: &Objects, asked: &'static ResourceType, object: &Value, now: SimTime) -> Value {
    let object = convert::shown(asked, object, now);
    match ask.table() {
        None if ask.only_metadata() => partial(&object),
        None => object,
        Some(include) => {
            let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            print::table(asked, &objects.custom, &[&object], include, now, meta)
        }
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn patch_kind(ask: &Ask) -> Answer<PatchKind> {
    match ask.content_type.split(';').next().unwrap_or_default().trim() {
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" if ask.query("fieldManager").is_empty() => {
            let why =
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
            Err(status::bad_request(why))
        }
        "application/apply-patch+yaml" => Ok(PatchKind::Apply { force: ask.flag("force") }),
        other => Err(status::not_acceptable_media(other)),
    }
}

fn collection(
    ask: &Ask,
    objects: &Objects,
    asked: &'static ResourceType,
    namespace: &str,
    now: SimTime,
) -> Answer<Given> {
    let selector = Selector::parse(ask.query("labelSelector"), ask.query("fieldSelector"))?;
    if ask.flag("watch") {
        return Ok(Given::Watch(Watched {
            cluster: ask.view.id.clone(),
            resource: asked,
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
    let key = |object: &Value| (meta(object, "namespace").to_owned(), meta(object, "name").to_owned());
    let resource = convert::stored(asked);
    let mut rest = objects
        .list(resource, namespace, &selector)
        .filter(|object| after.as_ref().is_none_or(|after| key(object) > *after));
    let page: Vec<&Value> = rest.by_ref().take(limit).collect();
    let remaining = rest.count();
    let mut list_meta = json!({"resourceVersion": objects.version().max(1).to_string()});
    if let (true, Some(last)) = (remaining > 0, page.last()) {
        let (namespace, name) = key(last);
        list_meta["continue"] = json!(URL_SAFE_NO_PAD.encode(format!("{namespace}/{name}")));
        list_meta["remainingItemCount"] = json!(remaining);
    }
    let converted: Vec<Value>;
    let page = if convert::is_plain(asked) {
        page
    } else {
        converted = page.iter().map(|object| convert::shown(asked, object, now)).collect();
        converted.iter().collect()
    };
    if let Some(include) = ask.table() {
        return Ok(Given::Json(200, print::table(asked, &objects.custom, &page, include, now, list_meta)));
    }
    if ask.only_metadata() {
        let items: Vec<Value> = page.iter().map(|object| partial(object)).collect();
        let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "items": items});
        return Ok(Given::Json(200, list));
    }
    Ok(Given::Json(200, list_of(asked, &page, list_meta)))
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
    let deletion = deletion(ask);
    let chosen: Vec<Value> = objects.list(resource, namespace, &selector).cloned().collect();
    for object in &chosen {
        let at = At { resource, namespace: meta(object, "namespace"), name: meta(object, "name") };
        objects.delete(at, &deletion, now)?;
    }
    let meta = json!({"resourceVersion": objects.version().to_string()});
    Ok(Given::Json(200, list_of(resource, &chosen.iter().collect::<Vec<_>>(), meta)))
}
