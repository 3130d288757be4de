//! Creating, showing and deleting node groups.

use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::errors::About;
use super::network::{self, Subnet};
use super::node_group::{Node, NodeGroup};
use super::node_group_checks as checks;
use super::spec::Spec;
use super::{access_entry, cluster_checks, find, find_running, page, roles, versions};
use crate::aws::ask::{Ask, Input};
use crate::aws::errors::Answer;
use crate::clock::SimTime;
use crate::world::new_id;

pub fn find_in<'a>(ask: &'a Ask, cluster: &Cluster, name: &str) -> Answer<&'a NodeGroup> {
    let key = format!("name:{}/{name}", cluster.id);
    ask.state.store.eks.node_groups.first(&key).ok_or_else(|| {
        About::node_group(&cluster.name, name).not_found(format!("No node group found for name: {name}."))
    })
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_running(ask, "clusterName")?;
    let name = ask.input.text("nodegroupName").unwrap_or_default().to_owned();
    let about = About::node_group(&cluster.name, &name);
    checks::name(about, &name)?;
    if ask.state.store.eks.node_groups.count(&format!("name:{}/{name}", cluster.id)) > 0 {
        let message = format!("NodeGroup already exists with name {name} and cluster name {}", cluster.name);
        return Err(about.in_use(message));
    }
    let tags = ask.input.map("tags");
    cluster_checks::tags(about, &tags)?;
    let (members, instance_type, subnets) = members(ask, &cluster, about)?;
    let desired = members["scalingConfig"]["desiredSize"].as_u64().unwrap_or(0);
    checks::quota(ask, about, desired)?;
    roles::service_linked(ask, roles::FOR_NODE_GROUPS);
    let role = members["nodeRole"].as_str().unwrap_or_default().to_owned();
    access_entry::for_nodes(ask, &cluster, &role);
    let version = members["version"].as_str().unwrap_or_default().to_owned();
    let now = ask.now();
    let mut group = NodeGroup {
        id: new_id(),
        cluster_id: cluster.id.clone(),
        cluster: cluster.name.clone(),
        region: ask.region.to_owned(),
        account: ask.account.to_owned(),
        name: name.clone(),
        spec: Spec::new(members),
        tags,
        nodes: Vec::new(),
        issue: checks::no_capacity(ask, &subnets, &instance_type),
        instance_type,
        created_at: now,
        modified_at: now,
        active_at: now,
        gone_at: None,
    };
    if ask.effects().stuck {
        group.active_at = SimTime::NEVER;
    } else if group.issue.is_some() {
        group.active_at = ask.in_seconds(900, 1500);
    } else {
        let count = desired as usize;
        let (there, joins) = ((60, 90), (30, 110));
        let version = version.as_str();
        let wanted = Machines { cluster: &cluster, subnets: &subnets, count, version, there, joins };
        group.nodes = launch(ask, wanted);
        let ready = group.nodes.iter().map(|node| node.ready_at).max();
        let empty = ask.in_seconds(90, 120);
        group.active_at = ready.unwrap_or(empty);
    }
    let mut shown = group.shown(now);
    shown["status"] = json!("CREATING");
    ask.store().eks.node_groups.insert(group);
    Ok(json!({"nodegroup": shown}))
}

/// Checks what was asked for and fills in defaults: the members to show, the type of the machines, where they go.
fn members(ask: &Ask, cluster: &Cluster, about: About) -> Answer<(Map<String, Value>, String, Vec<Subnet>)> {
    let (input, now) = (&ask.input, ask.now());
    let role = input.text("nodeRole").unwrap_or_default();
    roles::check_node_role(ask, about, role)?;
    let subnets = checks::subnets(ask, cluster, about)?;
    let template = checks::launch_template(ask, about, "launchTemplate")?;
    let data = Input(template.as_ref().map(|template| template.data.clone()).unwrap_or_default());
    let image = data.text("ImageId");
    let types = checks::instance_types(input, about, &data)?;
    let ami = match (image, input.text("amiType")) {
        (Some(_), _) => "CUSTOM".to_owned(),
        (None, given) => checks::ami_type(about, given, &types)?,
    };
    let version = match input.text("version") {
        Some(version) => checks::version(about, version, cluster.version(now), cluster.version(now))?,
        None => cluster.version(now).to_owned(),
    };
    let release = match (image, input.text("releaseVersion")) {
        (Some(image), _) => image.to_owned(),
        (None, Some(release)) => checks::release(about, release, &version)?,
        (None, None) => versions::release(&version),
    };
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| _ = members.insert(name.to_owned(), value);
    put("version", json!(version));
    put("releaseVersion", json!(release));
    put("nodeRole", json!(role));
    put("subnets", json!(input.texts("subnets")));
    put("amiType", json!(ami));
    put("capacityType", json!(checks::capacity_type(about, input.text("capacityType"))?));
    put("scalingConfig", checks::scaling(about, input, &json!({"minSize": 1, "maxSize": 2, "desiredSize": 2}))?);
    put("updateConfig", checks::update_config(about, input)?.unwrap_or(json!({"maxUnavailable": 1})));
    put("labels", checks::labels(about, &input.map("labels"))?);
    let taints = checks::taints(about, &input.list("taints"))?;
    if !taints.is_empty() {
        put("taints", json!(taints));
    }
    if let Some(repair) = input.at("nodeRepairConfig") {
        put("nodeRepairConfig", repair.clone());
    }
    match &template {
        Some(template) => {
            checks::beside_template(input, about)?;
            put(
                "launchTemplate",
                json!({"id": template.id, "name": template.name, "version": template.version.to_string()}),
            );
            if data.text("InstanceType").is_none() {
                put("instanceTypes", json!(types));
            }
        }
        None => {
            put("instanceTypes", json!(types));
            put("diskSize", json!(input.int("diskSize").unwrap_or(20)));
            if let Some(access) = input.at("remoteAccess") {
                put("remoteAccess", access.clone());
            }
        }
    }
    Ok((members, types.first().cloned().unwrap_or_default(), subnets))
}

/// Machines to launch: in turn over the subnets, there after `there` seconds, ready after `joins` more.
pub struct Machines<'a> {
    pub cluster: &'a Cluster,
    pub subnets: &'a [Subnet],
    pub count: usize,
    pub version: &'a str,
    pub there: (u32, u32),
    pub joins: (u32, u32),
}

/// Launches machines. Where a subnet has no address left, there are fewer.
pub fn launch(ask: &mut Ask, wanted: Machines) -> Vec<Node> {
    let mut nodes = Vec::with_capacity(wanted.count);
    for number in 0..wanted.count {
        let Some(subnet) = wanted.subnets.get(number % wanted.subnets.len().max(1)) else { break };
        let created_at = ask.in_seconds(wanted.there.0, wanted.there.1);
        let ready_at = created_at.plus_ms(ask.state.dice.seconds(wanted.joins.0, wanted.joins.1));
        let Some((id, address)) = network::launch_instance(ask, &wanted, subnet) else { continue };
        nodes.push(Node {
            id,
            address,
            zone: subnet.zone.clone(),
            version: wanted.version.to_owned(),
            created_at,
            ready_at,
            gone_at: None,
        });
    }
    nodes
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?;
    let group = find_in(ask, cluster, ask.input.text("nodegroupName").unwrap_or_default())?;
    Ok(json!({"nodegroup": group.shown(ask.now())}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let key = format!("cluster:{}", find(ask, "clusterName")?.id);
    let rows = ask.rows(|store| &store.eks.node_groups, &key);
    let mut names: Vec<&str> = rows.iter().map(|group| group.name.as_str()).collect();
    names.sort_unstable();
    let names = names.into_iter().map(Value::from).collect();
    page(ask, "nodegroups", names)
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?.clone();
    let group = find_in(ask, &cluster, ask.input.text("nodegroupName").unwrap_or_default())?.clone();
    let now = ask.now();
    if group.gone_at.is_none() {
        let about = About::node_group(&cluster.name, &group.name);
        if let Some(id) = group.spec.updating(now) {
            let message = format!(
                "Nodegroup cannot be deleted as it is currently being updated: update {id} of {} is in progress",
                group.name
            );
            return Err(about.in_use(message));
        }
        let (gone_at, drained) = (ask.in_seconds(180, 480), ask.in_seconds(60, 150));
        for node in &group.nodes {
            network::end_instance(ask, &node.id, drained.min(gone_at));
        }
        ask.store().eks.node_groups.update(&group.id, |group| {
            group.gone_at = Some(gone_at);
            group.modified_at = now;
            group.nodes.iter_mut().for_each(|node| node.gone_at = Some(node.gone_at.unwrap_or(drained).min(gone_at)));
        });
        access_entry::nodes_left(ask, &cluster, &group);
    }
    let mut shown = group.shown(now);
    shown["status"] = json!("DELETING");
    Ok(json!({"nodegroup": shown}))
}
