//! `/v2/kubernetes/clusters/{id}/pools`, their instances, and recycling a node.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::json;

use super::State;
use super::catalog;
use super::cluster::Cluster;
use super::cluster_calls::{self, alive, find};
use super::errors::{Answer, fail};
use super::node_pool::{Pool, Taint};
use super::shown;
use crate::clock::SimTime;
use crate::http::{Effects, Reply};
use crate::world::{Dice, new_id};

const MAX_NODES_IN_POOL: usize = 512;
const MAX_POOLS: usize = 64;
const MAX_ID_CHARS: usize = 63;

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PoolIn {
    id: Option<String>,
    count: Option<i64>,
    size: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    taints: Option<Vec<Taint>>,
    public_ip_node_pool: Option<bool>,
}

impl PoolIn {
    pub fn plain(count: i64, size: String) -> PoolIn {
        PoolIn { count: Some(count), size: Some(size), ..PoolIn::default() }
    }

    /// A new pool, without nodes yet.
    fn check(self) -> Answer<Pool> {
        let id = self.id.filter(|id| !id.is_empty()).unwrap_or_else(new_id);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if id.len() > MAX_ID_CHARS || !id.chars().all(plain) {
            return fail(400, "parameter_name_invalid", format!("{id} cannot be the id of a pool"));
        }
        let size = self.size.filter(|size| !size.is_empty()).unwrap_or_else(|| catalog::DEFAULT_SIZE.into());
        if catalog::kube_size(&size).is_none() {
            return fail(
                404,
                "database_size_not_found",
                format!("The size {size} is not available for Kubernetes nodes"),
            );
        }
        let taints = self.taints.unwrap_or_default();
        check_taints(&taints)?;
        Ok(Pool {
            id,
            size,
            count: check_count(self.count.unwrap_or(3))?,
            labels: self.labels.unwrap_or_default(),
            taints,
            public_ip: self.public_ip_node_pool.unwrap_or_default(),
            nodes: vec![],
            gone_at: None,
        })
    }

    /// Puts what was sent into an existing pool. Its size is what it is.
    fn apply(self, pool: &mut Pool, cluster: &str, now: SimTime, dice: &mut Dice, stuck: bool) -> Answer<()> {
        if self.size.is_some_and(|size| !size.is_empty() && size != pool.size) {
            return fail(400, "database_kubernetes_cluster_invalid", "The size of an existing pool cannot be changed");
        }
        if let Some(taints) = self.taints {
            check_taints(&taints)?;
            pool.taints = taints;
        }
        if let Some(labels) = self.labels {
            pool.labels = labels;
        }
        if let Some(count) = self.count {
            pool.scale(cluster, check_count(count)?, now, dice, stuck);
        }
        Ok(())
    }
}

pub fn check_count(count: i64) -> Answer<usize> {
    match usize::try_from(count) {
        Ok(count) if (1..=MAX_NODES_IN_POOL).contains(&count) => Ok(count),
        _ => fail(
            400,
            "database_kubernetes_cluster_invalid",
            format!("A pool has 1 to {MAX_NODES_IN_POOL} nodes, not {count}"),
        ),
    }
}

fn check_taints(taints: &[Taint]) -> Answer<()> {
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    match taints.iter().find(|taint| taint.key.is_empty() || !effects.contains(&taint.effect.as_str())) {
        None => Ok(()),
        Some(taint) => {
            let reason = format!("The taint {}={}:{} is not valid", taint.key, taint.value, taint.effect);
            fail(400, "database_kubernetes_cluster_invalid", reason)
        }
    }
}

pub fn check_all(pools: Vec<PoolIn>) -> Answer<Vec<Pool>> {
    if pools.len() > MAX_POOLS {
        return fail(400, "database_kubernetes_cluster_invalid", format!("A cluster has at most {MAX_POOLS} pools"));
    }
    let pools = pools.into_iter().map(PoolIn::check).collect::<Result<Vec<_>, _>>()?;
    let mut seen = HashSet::new();
    match pools.iter().find(|pool| !seen.insert(pool.id.as_str())) {
        None => Ok(pools),
        Some(pool) => duplicate(&pool.id),
    }
}

fn duplicate<T>(id: &str) -> Answer<T> {
    fail(409, "database_cluster_pool_duplicate", format!("A pool with the id {id} already exists in this cluster"))
}

/// The `pools` of a cluster update are all its pools: missing ones go, unknown ones come.
pub fn replace_all(
    cluster: &mut Cluster,
    wanted: Vec<PoolIn>,
    now: SimTime,
    dice: &mut Dice,
    stuck: bool,
) -> Answer<()> {
    let ids: HashSet<String> = wanted.iter().filter_map(|pool| pool.id.clone()).collect();
    let name = cluster.name.clone();
    for pool in wanted {
        let known = cluster.pools.iter_mut().find(|p| p.gone_at.is_none() && pool.id.as_deref() == Some(&p.id));
        match known {
            Some(known) => pool.apply(known, &name, now, dice, stuck)?,
            None => add(cluster, pool, now, dice, stuck)?,
        }
    }
    // Pools without an id are new, and no client knows them yet.
    let stays = |pool: &Pool| ids.contains(&pool.id) || pool.nodes.iter().all(|node| node.created_at == now);
    cluster
        .pools
        .iter_mut()
        .filter(|pool| pool.gone_at.is_none() && !stays(pool))
        .for_each(|pool| pool.remove(now, dice));
    Ok(())
}

fn add(cluster: &mut Cluster, input: PoolIn, now: SimTime, dice: &mut Dice, stuck: bool) -> Answer<()> {
    let mut pool = input.check()?;
    if cluster.pools.iter().any(|other| other.id == pool.id) {
        return duplicate(&pool.id);
    }
    if cluster.pools.len() >= MAX_POOLS {
        return fail(400, "database_kubernetes_cluster_invalid", format!("A cluster has at most {MAX_POOLS} pools"));
    }
    let count = pool.count;
    pool.scale(&cluster.name, count, now, dice, stuck);
    cluster.pools.push(pool);
    Ok(())
}

/// A copy of the cluster without what is gone, ready to be changed.
fn editable(state: &State, region: &str, id: &str) -> Answer<Cluster> {
    let mut cluster = alive(find(state, region, id)?)?.clone();
    cluster.prune(state.now);
    Ok(cluster)
}

fn find_pool<'a>(cluster: &'a Cluster, pid: &str, now: SimTime) -> Answer<&'a Pool> {
    match cluster.pools_at(now).find(|pool| pool.id == pid) {
        Some(pool) => Ok(pool),
        None => fail(404, "database_cluster_pool_not_found", "Failed to find the pool within the internal database"),
    }
}

fn staying_mut<'a>(cluster: &'a mut Cluster, pid: &str) -> Answer<&'a mut Pool> {
    match cluster.pools.iter_mut().find(|pool| pool.id == pid && pool.gone_at.is_none()) {
        Some(pool) => Ok(pool),
        None => fail(404, "database_cluster_pool_not_found", "Failed to find the pool within the internal database"),
    }
}

pub fn list(state: &State, region: &str, id: &str) -> Answer<Reply> {
    let cluster = find(state, region, id)?;
    let pools: Vec<_> = cluster.pools_at(state.now).map(|pool| shown::pool(cluster, pool, state.now)).collect();
    Ok(Reply::json(200, &pools))
}

pub fn get(state: &State, region: &str, id: &str, pid: &str) -> Answer<Reply> {
    let cluster = find(state, region, id)?;
    Ok(Reply::json(200, &shown::pool(cluster, find_pool(cluster, pid, state.now)?, state.now)))
}

pub fn create(state: &mut State, region: &str, id: &str, input: PoolIn, effects: &Effects) -> Answer<Reply> {
    let mut cluster = editable(state, region, id)?;
    add(&mut cluster, input, state.now, state.dice, effects.stuck)?;
    let pid = cluster.pools.last().map(|pool| pool.id.clone()).unwrap_or_default();
    cluster_calls::grow(state, region, &cluster, effects)?;
    cluster_calls::store(state, cluster);
    Ok(Reply::json(200, &json!({"id": pid, "result": "success"})))
}

pub fn update(state: &mut State, region: &str, id: &str, pid: &str, input: PoolIn, effects: &Effects) -> Answer<Reply> {
    let mut cluster = editable(state, region, id)?;
    let (now, name) = (state.now, cluster.name.clone());
    input.apply(staying_mut(&mut cluster, pid)?, &name, now, state.dice, effects.stuck)?;
    cluster_calls::grow(state, region, &cluster, effects)?;
    let reply = Reply::json(200, &shown::pool(&cluster, find_pool(&cluster, pid, now)?, now));
    cluster_calls::store(state, cluster);
    Ok(reply)
}

pub fn delete(state: &mut State, region: &str, id: &str, pid: &str) -> Answer<Reply> {
    let mut cluster = editable(state, region, id)?;
    let leaving = find_pool(&cluster, pid, state.now)?.gone_at.is_some();
    if !leaving {
        if cluster.pools.iter().filter(|pool| pool.gone_at.is_none()).count() < 2 {
            return fail(400, "database_kubernetes_cluster_no_pools", "A cluster cannot be without a pool");
        }
        staying_mut(&mut cluster, pid)?.remove(state.now, state.dice);
        cluster_calls::store(state, cluster);
    }
    Ok(Reply::json(200, &json!({"id": pid, "result": "success"})))
}

pub fn delete_instance(state: &mut State, region: &str, id: &str, pid: &str, instance: &str) -> Answer<Reply> {
    let mut cluster = editable(state, region, id)?;
    let pool = staying_mut(&mut cluster, pid)?;
    let Some(node) = pool.nodes.iter().find(|node| node.id == instance || node.name == instance) else {
        let reason = "Failed to find the instance within the pool";
        return fail(404, "database_cluster_pool_instance_not_found", reason);
    };
    let hostname = node.name.clone();
    destroy_node(&mut cluster, &hostname, state.now, state.dice)?;
    cluster_calls::store(state, cluster);
    Ok(Reply::json(200, &json!({"id": instance, "result": "success"})))
}

/// Takes one node out; its pool is one smaller afterwards.
pub fn destroy_node(cluster: &mut Cluster, hostname: &str, now: SimTime, dice: &mut Dice) -> Answer<()> {
    let pool = pool_of(cluster, hostname)?;
    if pool.count < 2 {
        let reason = "The pool has no other instance to keep it going";
        return fail(400, "database_cluster_pool_no_sufficient_instances_available", reason);
    }
    pool.count -= 1;
    leave(pool, hostname, now, dice);
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct RecycleIn {
    hostname: String,
}

/// Replaces a node by a new one of the same pool.
pub fn recycle(state: &mut State, region: &str, id: &str, input: &RecycleIn) -> Answer<Reply> {
    let mut cluster = editable(state, region, id)?;
    let (now, name) = (state.now, cluster.name.clone());
    let pool = pool_of(&mut cluster, &input.hostname)?;
    let count = pool.count;
    leave(pool, &input.hostname, now, state.dice);
    pool.scale(&name, count, now, state.dice, false);
    cluster_calls::store(state, cluster);
    Ok(Reply::json(200, &json!({"id": id, "result": "success"})))
}

fn pool_of<'a>(cluster: &'a mut Cluster, hostname: &str) -> Answer<&'a mut Pool> {
    let has = |pool: &&mut Pool| pool.nodes.iter().any(|node| node.name == hostname && node.gone_at.is_none());
    match cluster.pools.iter_mut().find(has) {
        Some(pool) => Ok(pool),
        None => fail(404, "database_kubernetes_node_not_found", format!("The cluster has no node {hostname}")),
    }
}

fn leave(pool: &mut Pool, hostname: &str, now: SimTime, dice: &mut Dice) {
    let gone_at = now.plus_ms(dice.seconds(25, 35));
    pool.nodes.iter_mut().filter(|node| node.name == hostname).for_each(|node| node.gone_at = Some(gone_at));
}
