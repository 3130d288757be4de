//! From kinds to units. Pure.

mod cluster;
mod firewall;
mod node_pool;
mod vpc;

use super::wire::Taint;
use super::{default_pool, normal_form};
use crate::bounds::{Bounds, bounds};
use berth_engine::handler::{LowerInput, Target, Trouble};
use berth_engine::unit::Lowered;
use berth_model::pb::berth::core::v1 as core;
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
    normal_form::taints_value(&taints)
}

/// Default pools of Berth's own are known by their ids: a user's pool must not look like one.
fn check_pool_name(name: &str) -> Result<(), Trouble> {
    match format!("{name}-").starts_with(default_pool::OWN_DEFAULT) {
        true => Err(Trouble::refused(format!("a pool cannot be named `{name}`"))
            .help(format!("names that begin with `{}` are for the default pool", default_pool::OWN_DEFAULT))),
        false => Ok(()),
    }
}

/// Who an autoscaler's bounds belong to.
fn owner(input: &LowerInput<'_>) -> String {
    let id = input.id;
    [id.kind.as_str(), &id.org, &id.env, &id.name].join("/")
}
