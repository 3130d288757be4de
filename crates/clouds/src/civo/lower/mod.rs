//! From kinds to units. Pure.

mod cluster;
mod firewall;
mod node_pool;
mod vpc;

use super::api::Taint;
use super::pools;
use crate::bounds::{Bounds, bounds};
use berth_engine::handler::{LowerInput, Target, Trouble};
use berth_engine::unit::{Lowered, Props};
use berth_model::pb::berth::core::v1 as core;
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    match input.id.kind.as_str() {
        "CivoVpc" => vpc::lower(input),
        "CivoFirewall" => firewall::lower(input),
        "CivoKubernetesCluster" => cluster::lower(input),
        "CivoKubernetesNodePool" => node_pool::lower(input),
        kind => Err(Trouble::refused(format!("Civo does not know the kind {kind}"))),
    }
}

fn decode<T: Message + Default>(input: &LowerInput<'_>) -> Result<T, Trouble> {
    T::decode(input.spec).map_err(|e| Trouble::refused(format!("the spec of {} cannot be read: {e}", input.id)))
}

/// The resource that a field refers to, found by the field's name as users write it.
fn target<'a>(input: &'a LowerInput<'_>, field: &str) -> Option<&'a Target> {
    input.targets.get(&berth_model::case::camel_case(field)).or_else(|| input.targets.get(field))
}

/// The spec's own region, that of the resource a field refers to, or the account's.
fn region(input: &LowerInput<'_>, own: &str, field: &str) -> Result<String, Trouble> {
    let target = target(input, field).and_then(|target| target.spec.get("region")).and_then(Value::as_str);
    let region = [Some(own), target, input.default_region].into_iter().flatten().find(|region| !region.is_empty());
    region.map(str::to_ascii_lowercase).ok_or_else(|| {
        let other = field.trim_end_matches("_id");
        Trouble::refused(format!("it is not said in which region {} is", input.id)).help(format!(
            "set spec.region, refer to its {other} by valueFrom, or set CIVO_REGION or the Account's region"
        ))
    })
}

/// `berth.dev/ready-gate`, where it asks for something else than the API server's answer.
fn put_ready_gate(input: &LowerInput<'_>, props: &mut Props) {
    if input.metadata.annotations.get("berth.dev/ready-gate").map(String::as_str) == Some("cloud") {
        props.insert("ready_gate".into(), json!("cloud"));
    }
}

/// Labels of a pool's nodes: Berth's own, with the user's over them.
fn labels(input: &LowerInput<'_>, own: &BTreeMap<String, String>) -> Value {
    let mut labels = crate::own_labels(input);
    labels.extend(own.clone());
    json!(labels)
}

/// The bounds of a pool, where it scales by itself.
fn scaled(auto_scale: bool, count: u32, min: Option<u32>, max: u32) -> Result<Option<Bounds>, Trouble> {
    auto_scale.then(|| bounds(count, min, max)).transpose()
}

fn taints(taints: &[core::Taint]) -> Value {
    let taints: Vec<Taint> = taints
        .iter()
        .map(|taint| Taint { key: taint.key.clone(), value: taint.value.clone(), effect: taint.effect.clone() })
        .collect();
    pools::taints_value(&taints)
}

/// Default pools of Berth's own are known by their ids: a user's pool must not look like one.
fn check_pool_name(name: &str) -> Result<(), Trouble> {
    match format!("{name}-").starts_with(pools::OWN_DEFAULT) {
        true => Err(Trouble::refused(format!("a pool cannot be named `{name}`"))
            .help(format!("names that begin with `{}` are for the default pool", pools::OWN_DEFAULT))),
        false => Ok(()),
    }
}

/// Who an autoscaler's bounds belong to.
fn owner(input: &LowerInput<'_>) -> String {
    let id = input.id;
    [id.kind.as_str(), &id.org, &id.env, &id.name].join("/")
}
