//! Changes to node groups: sizes, labels, taints, and a new version of every node.

use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::errors::About;
use super::network::{self, Subnet};
use super::node_group::NodeGroup;
use super::node_group_calls::{Machines, find_in, launch};
use super::updates::{self, Begin, Of};
use super::{find_staying, node_group_checks as checks, versions};
use crate::aws::ask::{Ask, Input, Tags};
use crate::aws::errors::Answer;
use crate::clock::SimTime;

/// A node group that can be updated now, with its cluster.
fn updatable(ask: &Ask, kind: &str) -> Answer<(Cluster, NodeGroup)> {
    let cluster = find_staying(ask, "clusterName")?;
    let group = find_in(ask, &cluster, ask.input.text("nodegroupName").unwrap_or_default())?.clone();
    let (about, now) = (About::node_group(&cluster.name, &group.name), ask.now());
    if let Some(id) = group.spec.updating(now) {
        let message = format!("Cannot {kind} because nodegroup {} currently has update {id} in progress", group.name);
        return Err(about.in_use(message));
    }
    match group.status(now) {
        "ACTIVE" => Ok((cluster, group)),
        status => {
            let message = format!("Nodegroup {} is not in ACTIVE status, its status is {status}", group.name);
            Err(about.in_use(message))
        }
    }
}

pub fn config(ask: &mut Ask) -> Answer<Value> {
    let (cluster, group) = updatable(ask, "update config")?;
    let (about, now) = (About::node_group(&cluster.name, &group.name), ask.now());
    let (mut members, mut params) = (Map::new(), Vec::new());
    let input = ask.input.clone();
    if input.at("scalingConfig").is_some() {
        let sizes = checks::scaling(about, &input, group.spec.get("scalingConfig", now))?;
        for (param, name) in [("MinSize", "minSize"), ("MaxSize", "maxSize"), ("DesiredSize", "desiredSize")] {
            params.push((param, sizes[name].to_string()));
        }
        members.insert("scalingConfig".into(), sizes);
    }
    if input.at("labels").is_some() {
        members.insert("labels".into(), changed_labels(about, &input, group.spec.get("labels", now), &mut params)?);
    }
    if input.at("taints").is_some() {
        members.insert("taints".into(), changed_taints(about, &input, group.spec.get("taints", now), &mut params)?);
    }
    if let Some(config) = checks::update_config(about, &input)? {
        for (param, name) in
            [("MaxUnavailable", "maxUnavailable"), ("MaxUnavailablePercentage", "maxUnavailablePercentage")]
        {
            if config[name].is_i64() {
                params.push((param, config[name].to_string()));
            }
        }
        members.insert("updateConfig".into(), config);
    }
    if let Some(repair) = input.at("nodeRepairConfig") {
        params.push(("NodeRepairEnabled", repair["enabled"].to_string()));
        members.insert("nodeRepairConfig".into(), repair.clone());
    }
    if members.is_empty() {
        return Err(about.bad_parameter("No changes needed: at least one configuration must be given"));
    }
    let before = group.nodes.iter().filter(|node| node.gone_at.is_none()).count();
    let sizes = members.get("scalingConfig").map(|sizes| sizes["desiredSize"].as_u64().unwrap_or(0) as usize);
    let wanted = sizes.unwrap_or(before);
    checks::quota(ask, about, wanted.saturating_sub(before) as u64)?;
    let takes = if wanted > before { (60, 150) } else { (10, 40) };
    let of = Of { node_group: Some(group.name.clone()), addon: None };
    let (id, at, shown) = updates::begin(ask, &cluster, Begin { of, kind: "ConfigUpdate", params, takes });
    let new = match wanted.saturating_sub(before) {
        0 => Vec::new(),
        more => {
            let (subnets, version) = (subnets_of(ask, &group), group.spec.text("version", now).to_owned());
            let (there, joins, version) = ((30, 50), (10, 30), version.as_str());
            let (cluster, subnets) = (&cluster, subnets.as_slice());
            launch(ask, Machines { cluster, subnets, count: more, version, there, joins })
        }
    };
    let drained = ask.in_seconds(20, 40);
    // The youngest leave.
    let staying = group.nodes.iter().rev().filter(|node| node.gone_at.is_none());
    let ended: Vec<String> = staying.take(before.saturating_sub(wanted)).map(|node| node.id.clone()).collect();
    ended.iter().for_each(|id| network::end_instance(ask, id, drained));
    ask.store().eks.node_groups.update(&group.id, |group| {
        group.spec.update(now, &id, at, members);
        group.modified_at = now;
        group.nodes.retain(|node| node.gone_at.is_none_or(|at| at > now));
        let leaving = group.nodes.iter_mut().filter(|node| ended.contains(&node.id));
        leaving.for_each(|node| node.gone_at = Some(drained));
        group.nodes.extend(new);
    });
    Ok(json!({"update": shown}))
}

type Params<'a> = Vec<(&'a str, String)>;

fn changed_labels(about: About, input: &Input, before: &Value, params: &mut Params) -> Answer<Value> {
    let mut labels: Tags = Input(json!({"labels": before})).map("labels");
    let (added, removed) = (input.map("labels.addOrUpdateLabels"), input.texts("labels.removeLabels"));
    labels.retain(|key, _| !removed.contains(&key.as_str()));
    if !added.is_empty() {
        checks::labels(about, &added)?;
        params.push(("LabelsToAdd", json!(added).to_string()));
    }
    if !removed.is_empty() {
        params.push(("LabelsToRemove", json!(removed).to_string()));
    }
    labels.extend(added);
    Ok(json!(labels))
}

/// Key and effect tell taints apart.
fn changed_taints(about: About, input: &Input, before: &Value, params: &mut Params) -> Answer<Value> {
    let mut taints = before.as_array().cloned().unwrap_or_default();
    let added = checks::taints(about, &input.list("taints.addOrUpdateTaints"))?;
    let removed = checks::taints(about, &input.list("taints.removeTaints"))?;
    let same = |one: &Value, other: &Value| one["key"] == other["key"] && one["effect"] == other["effect"];
    taints.retain(|taint| !removed.iter().chain(&added).any(|other| same(taint, other)));
    if !added.is_empty() {
        params.push(("TaintsToAdd", json!(added).to_string()));
    }
    if !removed.is_empty() {
        params.push(("TaintsToRemove", json!(removed).to_string()));
    }
    taints.extend(added);
    Ok(if taints.is_empty() { Value::Null } else { json!(taints) })
}

fn subnets_of(ask: &Ask, group: &NodeGroup) -> Vec<Subnet> {
    let ids = group.spec.get("subnets", ask.now()).as_array().into_iter().flatten().filter_map(Value::as_str);
    ids.filter_map(|id| network::subnet(ask, id)).collect()
}

pub fn version(ask: &mut Ask) -> Answer<Value> {
    let (cluster, group) = updatable(ask, "update version")?;
    let (about, now) = (About::node_group(&cluster.name, &group.name), ask.now());
    let template = checks::launch_template(ask, about, "launchTemplate")?;
    let own = group.spec.text("version", now).to_owned();
    let version = match (ask.input.text("version"), &template) {
        (Some(wanted), _) => checks::version(about, wanted, cluster.version(now), &own)?,
        (None, Some(_)) => own.clone(),
        (None, None) => cluster.version(now).to_owned(),
    };
    let image = template.as_ref().and_then(|template| template.data["ImageId"].as_str());
    let release = match (image, ask.input.text("releaseVersion")) {
        (Some(image), _) => image.to_owned(),
        (None, Some(release)) => checks::release(about, release, &version)?,
        (None, None) => versions::release(&version),
    };
    let mut params = vec![("Version", version.clone()), ("ReleaseVersion", release.clone())];
    let mut members =
        Map::from_iter([("version".to_owned(), json!(version)), ("releaseVersion".to_owned(), json!(release))]);
    if let Some(template) = &template {
        let before = group.spec.get("launchTemplate", now);
        if before.is_null() {
            let message = "You cannot specify a launch template for a nodegroup that was created without one";
            return Err(about.bad_parameter(message));
        }
        if before["id"] != template.id.as_str() {
            let message = "You cannot change the launch template of a nodegroup, only its version";
            return Err(about.bad_parameter(message));
        }
        let number = template.version.to_string();
        params.push(("LaunchTemplateName", template.name.clone()));
        params.push(("LaunchTemplateVersion", number.clone()));
        let shown = json!({"id": template.id, "name": template.name, "version": number});
        members.insert("launchTemplate".into(), shown);
    }
    let of = Of { node_group: Some(group.name.clone()), addon: None };
    let takes = (120 + 30 * group.nodes.len().min(100) as u32, 180 + 60 * group.nodes.len().min(100) as u32);
    let (id, at, shown) = updates::begin(ask, &cluster, Begin { of, kind: "VersionUpdate", params, takes });
    if at != SimTime::NEVER {
        replace_nodes(ask, &cluster, &group, &version, at);
    }
    ask.store().eks.node_groups.update(&group.id, |group| {
        group.spec.update(now, &id, at, members);
        group.modified_at = now;
    });
    Ok(json!({"update": shown}))
}

/// One new node after the other, each followed by the leaving of an old one, all done at `at`.
fn replace_nodes(ask: &mut Ask, cluster: &Cluster, group: &NodeGroup, version: &str, at: SimTime) {
    let now = ask.now();
    let count = group.nodes.iter().filter(|node| node.gone_at.is_none()).count();
    let subnets = subnets_of(ask, group);
    let (there, joins, subnets) = ((0, 0), (0, 0), subnets.as_slice());
    let mut new = launch(ask, Machines { cluster, subnets, count, version, there, joins });
    let span = at.0.saturating_sub(now.0);
    let step = |number: usize| now.plus_ms(span * (number as i64 + 1) / (count as i64 + 1));
    for (number, node) in new.iter_mut().enumerate() {
        node.created_at = now.plus_ms(span * number as i64 / (count as i64 + 1));
        node.ready_at = step(number);
    }
    let old = group.nodes.iter().filter(|node| node.gone_at.is_none());
    for (number, node) in old.enumerate() {
        network::end_instance(ask, &node.id, step(number));
    }
    ask.store().eks.node_groups.update(&group.id, |group| {
        group.nodes.retain(|node| node.gone_at.is_none_or(|at| at > now));
        let old = group.nodes.iter_mut().filter(|node| node.gone_at.is_none());
        old.enumerate().for_each(|(number, node)| node.gone_at = Some(step(number)));
        group.nodes.extend(new);
    });
}
