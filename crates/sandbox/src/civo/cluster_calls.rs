//! `/v2/kubernetes/clusters`: list, create, read, update, delete.

use serde::Deserialize;
use serde_json::json;

use super::State;
use super::catalog;
use super::cluster::{Cluster, Installed};
use super::errors::{Answer, fail};
use super::loose_fields::WordList;
use super::node_pool_calls::{self, PoolIn};
use super::{firewall, shown, vpc};
use crate::clock::SimTime;
use crate::http::{Call, Effects, Refusal, Reply};
use crate::kube::KubeServer;
use crate::world::new_id;

const DEFAULT_PER_PAGE: usize = 20;
const MAX_PER_PAGE: usize = 100;
const MAX_NAME_CHARS: usize = 63;
const DEFAULT_NODES: usize = 3;

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ClusterIn {
    name: Option<String>,
    cluster_type: Option<String>,
    kubernetes_version: Option<String>,
    network_id: Option<String>,
    tags: Option<WordList>,
    num_target_nodes: Option<i64>,
    target_nodes_size: Option<String>,
    node_destroy: Option<String>,
    pools: Option<Vec<PoolIn>>,
    applications: Option<String>,
    instance_firewall: Option<String>,
    firewall_id: Option<String>,
    firewall_rule: Option<String>,
    cni_plugin: Option<String>,
}

pub fn find<'a>(state: &'a State, region: &str, id: &str) -> Answer<&'a Cluster> {
    match state.store.clusters.get(id).filter(|cluster| cluster.region == region) {
        Some(cluster) => Ok(cluster),
        None => fail(
            404,
            "database_kubernetes_cluster_not_found",
            "Failed to find the Kubernetes cluster within the internal database",
        ),
    }
}

pub fn list(state: &State, region: &str, call: &Call, kube: &KubeServer) -> Reply {
    let per_page = call.number("per_page", DEFAULT_PER_PAGE).min(MAX_PER_PAGE);
    let page = call.number("page", 1);
    let key = format!("region:{region}");
    let all = state.store.clusters.behind(&key, call.effects.lag);
    let pages = all.len().div_ceil(per_page).max(1);
    let found = all.into_iter().skip((page - 1).saturating_mul(per_page)).take(per_page);
    let items = found.map(|cluster| shown::cluster(cluster, state.now, kube)).collect();
    Reply::json(200, &shown::Page { page, per_page, pages, items })
}

pub fn get(state: &State, region: &str, id: &str, kube: &KubeServer) -> Answer<Reply> {
    Ok(Reply::json(200, &shown::cluster(find(state, region, id)?, state.now, kube)))
}

pub fn instances(state: &State, region: &str, id: &str) -> Answer<Reply> {
    Ok(Reply::json(200, &shown::instances(find(state, region, id)?, state.now)))
}

pub fn create(
    state: &mut State,
    region: &str,
    input: ClusterIn,
    effects: &Effects,
    kube: &KubeServer,
) -> Answer<Reply> {
    let name = check_name(input.name)?;
    if state.store.clusters.count(&format!("name:{name}")) > 0 {
        let reason = format!("A Kubernetes cluster with the name {name} already exists in your account");
        return fail(409, "database_kubernetes_cluster_duplicate", reason);
    }
    let cluster_type = given(input.cluster_type).unwrap_or_else(|| "k3s".into());
    if !matches!(cluster_type.as_str(), "k3s" | "talos") {
        return fail(400, "database_kubernetes_cluster_invalid", format!("{cluster_type} is not a cluster type"));
    }
    let version = given(input.kubernetes_version).unwrap_or_else(|| catalog::default_version(&cluster_type).into());
    check_version(&version, &cluster_type)?;
    let cni = given(input.cni_plugin).unwrap_or_else(|| "flannel".into()).to_lowercase();
    if !matches!(cni.as_str(), "flannel" | "cilium") {
        return fail(400, "database_kubernetes_cluster_invalid", format!("{cni} is not a CNI plugin: flannel, cilium"));
    }
    let network_id = match given(input.network_id) {
        Some(id) => vpc::find(state, region, &id)?.id.clone(),
        None => state.store.default_network(region)?.id.clone(),
    };
    let firewall_id = match given(input.instance_firewall).or(given(input.firewall_id)) {
        Some(firewall) => Some(firewall_in(state, region, &firewall, &network_id)?),
        None => None,
    };
    let pools = match input.pools.filter(|pools| !pools.is_empty()) {
        Some(pools) => pools,
        None => vec![PoolIn::plain(
            input.num_target_nodes.unwrap_or(DEFAULT_NODES as i64),
            given(input.target_nodes_size).unwrap_or_else(|| catalog::DEFAULT_SIZE.into()),
        )],
    };
    let pools = node_pool_calls::check_all(pools)?;
    let applications = choose(input.applications.as_deref().unwrap_or_default(), true, state.now)?;
    let nodes: u64 = pools.iter().map(|pool| pool.count as u64).sum();
    check_room(state, nodes, 1)?;
    if effects.out_of_capacity(region) {
        return Err(Refusal::NoCapacity { region: region.to_owned() }.into());
    }
    let firewall_id = match (firewall_id, given(input.firewall_rule)) {
        (Some(id), _) => id,
        (None, Some(spec)) => firewall::for_cluster(state, region, &network_id, &name, &spec)?,
        (None, None) => firewall::auto(state, region, &network_id)?,
    };
    let (id, now) = (new_id(), state.now);
    let octet = |at: usize| id.as_bytes().get(at).copied().unwrap_or_default();
    let mut cluster = Cluster {
        master_ip: format!("74.220.{}.{}", 16 + octet(0) % 16, octet(1)),
        id: id.clone(),
        name,
        region: region.to_owned(),
        cluster_type,
        version,
        network_id,
        firewall_id,
        cni,
        tags: input.tags.map(WordList::list).unwrap_or_default(),
        applications,
        created_at: now,
        control_plane_at: now,
        built_at: now,
        upgrade: None,
        pools,
        gone_at: None,
    };
    cluster.schedule(state.dice, effects.stuck);
    let built = cluster.built_at;
    cluster.applications.iter_mut().for_each(|application| application.at = built);
    let reply = Reply::json(200, &shown::cluster(&cluster, now, kube));
    state.store.clusters.insert(cluster);
    Ok(reply)
}

pub fn update(
    state: &mut State,
    region: &str,
    id: &str,
    input: ClusterIn,
    effects: &Effects,
    kube: &KubeServer,
) -> Answer<Reply> {
    let mut cluster = alive(find(state, region, id)?)?.clone();
    let now = state.now;
    cluster.prune(now);
    if let Some(name) = input.name.filter(|name| *name != cluster.name && !name.is_empty()) {
        let name = check_name(Some(name))?;
        if state.store.clusters.count(&format!("name:{name}")) > 0 {
            let reason = format!("A Kubernetes cluster with the name {name} already exists in your account");
            return fail(409, "database_kubernetes_cluster_duplicate", reason);
        }
        cluster.name = name;
    }
    for (what, wanted, have) in [
        ("network", given(input.network_id), &cluster.network_id),
        ("CNI plugin", given(input.cni_plugin), &cluster.cni),
        ("cluster type", given(input.cluster_type), &cluster.cluster_type),
    ] {
        if wanted.is_some_and(|wanted| wanted != *have) {
            let reason = format!("The {what} of an existing cluster cannot be changed");
            return fail(400, "database_kubernetes_cluster_invalid", reason);
        }
    }
    if let Some(firewall) = given(input.firewall_id).or(given(input.instance_firewall)) {
        cluster.firewall_id = firewall_in(state, region, &firewall, &cluster.network_id)?;
    }
    if let Some(version) = given(input.kubernetes_version).filter(|version| *version != cluster.version) {
        check_version(&version, &cluster.cluster_type)?;
        if catalog::order(&version) <= catalog::order(&cluster.version) {
            let reason = format!("A cluster at {} cannot go back to {version}", cluster.version);
            return fail(400, "database_kubernetes_cluster_invalid_version", reason);
        }
        cluster.begin_upgrade(&version, now, state.dice);
    }
    if let Some(tags) = input.tags {
        cluster.tags = tags.list();
    }
    if let Some(list) = given(input.applications) {
        for new in choose(&list, false, now.plus_ms(state.dice.seconds(10, 20)))? {
            if !cluster.applications.iter().any(|old| old.name == new.name) {
                cluster.applications.push(new);
            }
        }
    }
    if let Some(count) = input.num_target_nodes {
        let count = node_pool_calls::check_count(count)?;
        let name = cluster.name.clone();
        if let Some(pool) = cluster.pools.iter_mut().find(|pool| pool.gone_at.is_none()) {
            pool.scale(&name, count, now, state.dice, effects.stuck);
        }
    }
    if let Some(hostname) = given(input.node_destroy) {
        node_pool_calls::destroy_node(&mut cluster, &hostname, now, state.dice)?;
    }
    if let Some(pools) = input.pools.filter(|pools| !pools.is_empty()) {
        node_pool_calls::replace_all(&mut cluster, pools, now, state.dice, effects.stuck)?;
    }
    put_back(state, region, cluster, effects, kube)
}

/// Stores a changed cluster when there is room for its nodes, and answers with it.
pub fn put_back(
    state: &mut State,
    region: &str,
    cluster: Cluster,
    effects: &Effects,
    kube: &KubeServer,
) -> Answer<Reply> {
    grow(state, region, &cluster, effects)?;
    let reply = Reply::json(200, &shown::cluster(&cluster, state.now, kube));
    store(state, cluster);
    Ok(reply)
}

pub fn store(state: &mut State, changed: Cluster) {
    let id = changed.id.clone();
    state.store.clusters.update(&id, |cluster| *cluster = changed);
}

/// Refuses more nodes than the quota or the region has room for.
pub fn grow(state: &State, region: &str, cluster: &Cluster, effects: &Effects) -> Answer<()> {
    use crate::table::Object;
    let before = state.store.clusters.get(&cluster.id).map_or(0, Object::weight);
    let more = cluster.weight().saturating_sub(before);
    if more > 0 {
        check_room(state, more, 0)?;
        if effects.out_of_capacity(region) {
            return Err(Refusal::NoCapacity { region: region.to_owned() }.into());
        }
    }
    Ok(())
}

pub fn delete(state: &mut State, region: &str, id: &str) -> Answer<Reply> {
    if find(state, region, id)?.gone_at.is_none() {
        let gone_at = state.now.plus_ms(state.dice.seconds(60, 90));
        state.store.clusters.update(id, |cluster| cluster.gone_at = Some(gone_at));
    }
    Ok(Reply::json(200, &json!({"id": id, "result": "success"})))
}

/// What is being deleted takes no more changes.
pub fn alive(cluster: &Cluster) -> Answer<&Cluster> {
    match cluster.gone_at {
        None => Ok(cluster),
        Some(_) => fail(409, "database_kubernetes_cluster_invalid", "The Kubernetes cluster is being deleted"),
    }
}

fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn check_room(state: &State, nodes: u64, clusters: u64) -> Answer<()> {
    let store = &state.store.clusters;
    if store.len() as u64 + clusters > state.quota.clusters || store.weight() + nodes > state.quota.nodes {
        return Err(Refusal::Quota.into());
    }
    Ok(())
}

fn check_name(name: Option<String>) -> Answer<String> {
    let name = name.unwrap_or_default();
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if name.len() <= MAX_NAME_CHARS
        && name.chars().all(inside)
        && edge(name.chars().next())
        && edge(name.chars().last())
    {
        return Ok(name);
    }
    fail(
        400,
        "kubernetes_cluster_invalid_name",
        format!(
            "The name must be 1 to {MAX_NAME_CHARS} letters, digits, hyphens and dots, and start and end with a letter or digit"
        ),
    )
}

fn check_version(version: &str, cluster_type: &str) -> Answer<()> {
    if catalog::find_version(version, cluster_type).is_some() {
        return Ok(());
    }
    let reason = format!("The version {version} is not available for {cluster_type} clusters");
    fail(400, "database_kubernetes_cluster_invalid_version", reason)
}

/// The id of a firewall, given by id or name, that is in a cluster's network.
fn firewall_in(state: &State, region: &str, given: &str, network_id: &str) -> Answer<String> {
    let firewall = firewall::find(state, region, given)?;
    if firewall.network_id != network_id {
        return fail(400, "database_firewall_mismatch", "The firewall is not part of the cluster's network");
    }
    Ok(firewall.id.clone())
}

/// `Name`, `Name:Plan` and `-Name`, separated by commas. A new cluster gets the default applications too,
/// unless the list names one of them itself, as Civo's CLI does.
fn choose(list: &str, with_defaults: bool, at: SimTime) -> Answer<Vec<Installed>> {
    let (mut chosen, mut removed): (Vec<Installed>, Vec<&str>) = (vec![], vec![]);
    let mut defaults = with_defaults;
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (minus, word) = word.strip_prefix('-').map_or((false, word), |rest| (true, rest));
        let (name, plan) = word.split_once(':').map_or((word, None), |(name, plan)| (name, Some(plan)));
        let Some(known) = catalog::find_application(name) else {
            let reason = format!("The application {name} is not in the marketplace");
            return fail(404, "database_kubernetes_application_not_found", reason);
        };
        if minus {
            removed.push(known.name);
            continue;
        }
        defaults &= !known.default;
        let plan = match plan.map(|plan| catalog::find_plan(known, plan).ok_or(plan)) {
            Some(Err(plan)) => {
                let reason = format!("The application {} has no plan {plan}", known.name);
                return fail(400, "database_kubernetes_application_invalid_plan", reason);
            }
            Some(Ok(plan)) => Some(plan.to_owned()),
            None => known.plans.first().map(|plan| (*plan).to_owned()),
        };
        if !chosen.iter().any(|installed| installed.name == known.name) {
            chosen.push(Installed { name: known.name.into(), plan, at });
        }
    }
    if defaults {
        let missing = catalog::APPLICATIONS.iter().filter(|a| a.default && !removed.contains(&a.name));
        chosen.splice(0..0, missing.map(|a| Installed { name: a.name.into(), plan: None, at }));
    }
    Ok(chosen)
}
