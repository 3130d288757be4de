//! What is read of resources: lists, outputs, kubeconfigs, history, units.

use crate::access::Principal;
use crate::access::principal::absent;
use crate::api::arguments::{check_text, invalid_argument};
use crate::api::messages::{self, time};
use crate::api::{ServerState, page, select};
use crate::fault::{Code, Fault};
use crate::pb;
use crate::values::to_struct;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_engine::unit::UnitState;
use berth_model::{REDACTED, ResourceId, phrasing, registry};
use berth_store::{ListQuery, StoredResource};
use prost_types::Struct;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::collections::BTreeMap;

pub async fn list(
    server: &ServerState,
    caller: &Principal,
    request: pb::ListRequest,
) -> Result<pb::ListResponse, Fault> {
    let pb::ListRequest { kind, name, org, env, label_selector, field_selector, page_size, page_token, exact_scope } =
        request;
    for (field, text) in [("kind", &kind), ("name", &name), ("org", &org), ("env", &env)] {
        check_text(field, text)?;
    }
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let exact = |text: String| if exact_scope { Some(text) } else { given(text) };
    let query = ListQuery {
        kind: given(kind).map(|kind| registry().find(&kind).map_or(kind, |found| found.name.clone())),
        name: given(name),
        org: exact(org),
        env: exact(env),
        scope_org: caller.scope_org(),
        scope_env: caller.scope_env(),
        labels: select::labels(&label_selector)?,
        fields: select::fields(&field_selector)?,
        after: page::after(&page_token)?,
        limit: page::size(page_size)?,
    };
    let found = server.control.list(&query).await?;
    let resources = found
        .resources
        .iter()
        .map(|listed| messages::resource(&listed.resource, Some(&listed.meta), server.is_sandbox()))
        .collect::<Result<_, _>>()?;
    let next_page_token = found.next.as_ref().map(page::token).unwrap_or_default();
    Ok(pb::ListResponse { resources, next_page_token })
}

/// All outputs; a secret one shows a word in its place unless it is among `secrets`.
pub fn outputs(stored: &StoredResource, secrets: &BTreeMap<String, SecretString>) -> Struct {
    let mut outputs = stored.status.outputs.clone();
    for name in &stored.secret_names {
        let shown = secrets.get(name).map_or(REDACTED, |secret| secret.expose_secret());
        outputs.insert(name.clone(), Value::from(shown));
    }
    to_struct(&outputs)
}

/// Only names of secret outputs may be asked for.
pub fn known_secrets(stored: &StoredResource, asked: &[String]) -> Result<(), Fault> {
    for name in asked {
        if stored.secret_names.contains(name) {
            continue;
        }
        let kind = registry().kind(&stored.id.kind);
        let all: Vec<&str> = kind.map(|kind| kind.secret_outputs().collect()).unwrap_or_default();
        if all.contains(&name.as_str()) {
            return Err(Fault::new(Code::Refused, format!("{} has no {name} yet: {}", stored.id, phase(stored)))
                .help("wait until it is Ready"));
        }
        let fault = invalid_argument("secrets", &format!("a {} has no secret output of that name", stored.id.kind));
        return Err(match phrasing::nearest(name, all.iter().copied()) {
            Some(near) => fault.help(format!("did you mean `{near}`?")),
            None if all.is_empty() => fault,
            None => fault.help(format!("it has {}", phrasing::either(&all))),
        });
    }
    Ok(())
}

fn phase(stored: &StoredResource) -> String {
    let state = stored.status.state;
    match stored.status.message.as_str() {
        "" => format!("it is {state}"),
        message => format!("it is {state}: {message}"),
    }
}

/// Which output holds the kubeconfig; an error for what is no cluster, or not ready.
pub fn kubeconfig_name(stored: &StoredResource) -> Result<&'static str, Fault> {
    let id = &stored.id;
    let kind = registry().kind(&id.kind);
    let Some(name) = kind.and_then(|kind| kind.secret_outputs().find(|name| name.starts_with("kubeconfig"))) else {
        let fault = Fault::new(Code::Refused, format!("a {} has no kubeconfig", id.kind));
        let manifest = stored.manifest(&stored.sealed_manifest()?)?;
        let cluster = berth_engine::parents(&manifest).into_iter().find(|to| to.kind.ends_with("KubernetesCluster"));
        return Err(match cluster {
            Some(cluster) => fault.help(format!("{id} belongs to {cluster}, which has")),
            None => fault.help("only clusters have"),
        });
    };
    if !stored.secret_names.iter().any(|known| known == name) {
        return Err(Fault::new(
            Code::Refused,
            format!("{id} is not ready, and has no kubeconfig yet; {}", phase(stored)),
        )
        .help("wait until it is Ready"));
    }
    Ok(name)
}

/// Decoded; clouds and state keep it in base64.
pub async fn kubeconfig(server: &ServerState, stored: &StoredResource, name: &str) -> Result<String, Fault> {
    let secrets = server.control.store().status_secrets(&stored.id).await?;
    let secret = secrets.get(name).ok_or_else(|| absent(&stored.id))?;
    let damaged = || Fault::new(Code::Internal, format!("the kubeconfig that is kept of {} is damaged", stored.id));
    let bytes = STANDARD.decode(secret.expose_secret().trim()).map_err(|_| damaged())?;
    let mut text = String::from_utf8(bytes).map_err(|_| damaged())?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

pub async fn history(
    server: &ServerState,
    id: &ResourceId,
    page_size: u32,
    page_token: &str,
) -> Result<pb::HistoryResponse, Fault> {
    const PAGES_MAX: u32 = 1_000_000;
    let limit = page::size(page_size)?;
    let at: u32 = page::position(page_token)?.unwrap_or_default();
    if at > PAGES_MAX {
        return Err(invalid_argument("pageToken", "it is not one that this list gave"));
    }
    let lines = server.control.store().history(id, limit, at).await?;
    if lines.is_empty() && at == 0 && server.control.store().resource(id).await?.is_none() {
        return Err(absent(id));
    }
    let next_page_token = if lines.len() == limit as usize { page::token(&(at + 1)) } else { String::new() };
    let lines = lines
        .into_iter()
        .map(|line| {
            let mut shown = pb::HistoryLine {
                at: time(line.at),
                what: line.what,
                detail: line.detail,
                ..pb::HistoryLine::default()
            };
            if let Some(change) = line.change {
                shown.op = change.op;
                shown.unit = change.unit;
                shown.outcome = change.outcome;
                shown.ended_at = change.ended_at.map(time).unwrap_or_default();
            }
            shown
        })
        .collect();
    Ok(pb::HistoryResponse { lines, next_page_token })
}

pub fn unit(unit: &UnitState) -> pb::Unit {
    pb::Unit {
        key: unit.key.clone(),
        unit_type: unit.unit_type.clone(),
        scope: unit.scope.clone(),
        account: unit.account.clone(),
        object_id: unit.id.clone().unwrap_or_default(),
        props: Some(to_struct(&unit.props)),
        outputs: Some(to_struct(&unit.outputs)),
        deposed: unit.deposed,
        ready: unit.ready,
        updated_at: time(unit.updated_at),
        identity: unit.identity.as_ref().map(|identity| identity.text().to_owned()).unwrap_or_default(),
    }
}
