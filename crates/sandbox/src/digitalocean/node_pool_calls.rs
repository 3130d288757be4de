//! `/v2/kubernetes/clusters/{id}/node_pools`, their nodes, and recycling a node.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::State;
use super::cluster::Cluster;
use super::errors::{self, Answer, ApiError};
use super::node_pool::{Node, Pool, Taint, leave, resize};
use super::{Store, catalog, paging::Page, shown};
use crate::clock::SimTime;
use crate::http::{Call, Reply};
use crate::world::new_id;

const MAX_POOL_NAME: usize = 55;
const MAX_NODES: u32 = 1000;
const MAX_TAG: usize = 255;

/// What a client says of a pool; in an update, what is absent stays.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PoolRequest {
    pub name: Option<String>,
    pub size: Option<String>,
    pub count: Option<i64>,
    pub tags: Option<Vec<String>>,
    pub labels: Option<BTreeMap<String, String>>,
    pub taints: Option<Vec<Taint>>,
    pub auto_scale: Option<bool>,
    pub min_nodes: Option<i64>,
    pub max_nodes: Option<i64>,
}

pub fn list(state: &State, call: &Call, cluster: &str) -> Answer<Reply> {
    let cluster = state.store.live_cluster(cluster)?;
    let pools = state.store.pools.behind(&format!("cluster:{}", cluster.id), call.effects.lag);
    let all = pools.into_iter().map(|pool| shown::pool(pool, state.now)).collect();
    Ok(Reply::json(200, &Page::of(call).cut(call, "node_pools", all)))
}

pub fn get(state: &State, cluster: &str, id: &str) -> Answer<Reply> {
    answer(state, 200, state.store.pool(cluster, id)?)
}

fn answer(state: &State, status: u16, pool: &Pool) -> Answer<Reply> {
    Ok(Reply::json(status, &json!({"node_pool": shown::pool(pool, state.now)})))
}

pub fn create(state: &mut State, call: &Call, cluster: &str) -> Answer<Reply> {
    let wanted: PoolRequest = call.json().map_err(|bad| errors::of(&bad))?;
    let region = state.store.live_cluster(cluster)?.region.clone();
    let mut pool = plan(state.store, cluster, &wanted, 0)?;
    if call.effects.out_of_capacity(&region) {
        return Err(errors::no_capacity(&region));
    }
    check_quota(state, u64::from(pool.count))?;
    let now = state.now;
    (pool.created, pool.updated) = (now, now);
    resize(&mut pool, now, state.dice, call.effects.stuck);
    let reply = answer(state, 201, &pool);
    state.store.pools.insert(pool);
    reply
}

/// A new pool without nodes, checked against the cluster's other pools. `at` is its place in the request.
pub fn plan(store: &Store, cluster: &str, wanted: &PoolRequest, at: usize) -> Answer<Pool> {
    let field = |name: &str| format!("worker_node_pool_specs[{at}].{name}");
    let size = wanted.size.clone().unwrap_or_default();
    if !catalog::has_node_size(&size) {
        return Err(errors::invalid_spec(format!("{}: invalid droplet size \"{size}\"", field("size"))));
    }
    let mut pool = Pool {
        id: new_id(),
        cluster: cluster.to_owned(),
        name: String::new(),
        size,
        count: 0,
        tags: vec![],
        labels: BTreeMap::new(),
        taints: vec![],
        auto_scale: false,
        min_nodes: 0,
        max_nodes: 0,
        created: SimTime(0),
        updated: SimTime(0),
        nodes: vec![],
        gone: None,
    };
    if wanted.auto_scale != Some(true) && (wanted.min_nodes.unwrap_or(0) != 0 || wanted.max_nodes.unwrap_or(0) != 0) {
        return Err(errors::invalid_spec(format!("{}: min_nodes and max_nodes need auto_scale", field("auto_scale"))));
    }
    // An autoscaled pool may leave its first size to the autoscaler.
    let mut wanted = wanted.clone();
    if wanted.auto_scale == Some(true) && wanted.count.is_none() {
        wanted.count = wanted.min_nodes;
    }
    change(store, &mut pool, &wanted, &field(""))?;
    Ok(pool)
}

/// Takes over what is wanted, with every check; `whose` begins the messages.
fn change(store: &Store, pool: &mut Pool, wanted: &PoolRequest, whose: &str) -> Answer<()> {
    let bad = |what: &str| errors::invalid_spec(format!("{whose}{what}"));
    if let Some(name) = wanted.name.as_ref().filter(|name| !name.is_empty()) {
        pool.name = name.clone();
    }
    if pool.name.len() > MAX_POOL_NAME {
        return Err(bad(&format!("pool names cannot be greater than {MAX_POOL_NAME} characters")));
    }
    if !is_dns_label(&pool.name) {
        return Err(bad(&format!("name \"{}\" is not a valid DNS label", pool.name)));
    }
    let others = store.pools.find(&format!("cluster:{}", pool.cluster)).filter(|other| other.gone.is_none());
    if others.into_iter().any(|other| other.id != pool.id && other.name == pool.name) {
        return Err(bad(&format!("a node pool named \"{}\" already exists in this cluster", pool.name)));
    }
    if wanted.size.as_ref().is_some_and(|size| !size.is_empty() && *size != pool.size) {
        return Err(bad("the size of a node pool cannot be changed"));
    }
    if let Some(tags) = &wanted.tags {
        pool.tags = own_tags(tags)?;
    }
    if let Some(labels) = &wanted.labels {
        pool.labels = labels.clone();
    }
    if let Some(taints) = &wanted.taints {
        for taint in taints {
            if taint.key.is_empty() || !matches!(taint.effect.as_str(), "NoSchedule" | "PreferNoSchedule" | "NoExecute")
            {
                return Err(bad(&format!("taint \"{}={}:{}\" is not valid", taint.key, taint.value, taint.effect)));
            }
        }
        pool.taints = taints.clone();
    }
    scale(pool, wanted, &bad)
}

fn scale(pool: &mut Pool, wanted: &PoolRequest, bad: &dyn Fn(&str) -> ApiError) -> Answer<()> {
    let number = |given: Option<i64>, old: u32, name: &str| match given {
        None => Ok(old),
        Some(n) => u32::try_from(n)
            .ok()
            .filter(|n| *n <= MAX_NODES)
            .ok_or_else(|| bad(&format!("{name} must be between 0 and {MAX_NODES}"))),
    };
    pool.auto_scale = wanted.auto_scale.unwrap_or(pool.auto_scale);
    pool.count = number(wanted.count, pool.count, "count")?;
    if !pool.auto_scale {
        (pool.min_nodes, pool.max_nodes) = (0, 0);
        if pool.count == 0 {
            return Err(bad("count must be greater than 0"));
        }
        return Ok(());
    }
    pool.min_nodes = number(wanted.min_nodes, pool.min_nodes, "min_nodes")?;
    pool.max_nodes = number(wanted.max_nodes, pool.max_nodes, "max_nodes")?;
    if pool.max_nodes == 0 || pool.min_nodes > pool.max_nodes {
        return Err(bad("max_nodes must be greater than 0 and not less than min_nodes"));
    }
    // What the autoscaler would do at its next look.
    pool.count = pool.count.clamp(pool.min_nodes, pool.max_nodes);
    Ok(())
}

/// Tags of the user; DigitalOcean's own are added whenever a pool or cluster is shown.
pub fn own_tags(tags: &[String]) -> Answer<Vec<String>> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_');
    let mut own: Vec<String> = Vec::new();
    for tag in tags.iter().filter(|tag| *tag != "k8s" && !tag.starts_with("k8s:")) {
        if tag.is_empty() || tag.len() > MAX_TAG || !tag.chars().all(allowed) {
            let rule = "tags may contain letters, numbers, colons, dashes and underscores, 255 at most";
            return Err(errors::invalid_spec(format!("tag \"{tag}\" is not valid: {rule}")));
        }
        if !own.contains(tag) {
            own.push(tag.clone());
        }
    }
    Ok(own)
}

pub fn is_dns_label(name: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| edge(c) || c == '-';
    !name.is_empty() && name.len() <= 63 && name.chars().all(inner) && name.starts_with(edge) && name.ends_with(edge)
}

pub fn check_quota(state: &State, more: u64) -> Answer<()> {
    if state.store.pools.weight().saturating_add(more) > state.quota.nodes {
        return Err(errors::invalid_spec(format!(
            "desired nodes exceed limits, {more} additional nodes but not enough available droplet limit"
        )));
    }
    Ok(())
}

pub fn update(state: &mut State, call: &Call, cluster: &str, id: &str) -> Answer<Reply> {
    let wanted: PoolRequest = call.json().map_err(|bad| errors::of(&bad))?;
    let region = state.store.live_cluster(cluster)?.region.clone();
    let mut pool = state.store.live_pool(cluster, id)?.clone();
    let before = pool.count;
    change(state.store, &mut pool, &wanted, "")?;
    if pool.count > before {
        if call.effects.out_of_capacity(&region) {
            return Err(errors::no_capacity(&region));
        }
        check_quota(state, u64::from(pool.count - before))?;
    }
    let now = state.now;
    pool.updated = now;
    resize(&mut pool, now, state.dice, call.effects.stuck);
    let reply = answer(state, 202, &pool);
    state.store.pools.update(id, |old| *old = pool);
    reply
}

pub fn delete(state: &mut State, cluster: &str, id: &str) -> Answer<Reply> {
    let store = &mut *state.store;
    let pool = store.pool(cluster, id)?;
    if pool.gone.is_none() {
        let others =
            store.pools.find(&format!("cluster:{cluster}")).filter(|other| other.gone.is_none() && other.id != id);
        if others.count() == 0 {
            return Err(errors::invalid_spec("a cluster must have at least one node pool"));
        }
        let gone = state.now.plus_ms(state.dice.seconds(60, 90));
        store.pools.update(id, |pool| leave(pool, gone));
    }
    Ok(Reply::empty(204))
}

pub fn delete_node(state: &mut State, call: &Call, cluster: &str, id: &str, node: &str) -> Answer<Reply> {
    let replace = matches!(call.query("replace"), Some("1" | "true"));
    let mut pool = state.store.live_pool(cluster, id)?.clone();
    let now = state.now;
    let found = pool.nodes.iter_mut().find(|n| n.id == node && n.gone.is_none()).ok_or_else(errors::not_found)?;
    if !replace && pool.count <= 1 && !pool.auto_scale {
        return Err(errors::invalid_spec("the last node of a node pool cannot be deleted without replacing it"));
    }
    found.gone = Some(now.plus_ms(state.dice.seconds(30, 60)));
    if !replace {
        pool.count -= 1;
    }
    pool.updated = now;
    resize(&mut pool, now, state.dice, call.effects.stuck);
    state.store.pools.update(id, |old| *old = pool);
    Ok(Reply::empty(202))
}

/// The older way to replace nodes; answers with an empty body.
pub fn recycle(state: &mut State, call: &Call, cluster: &str, id: &str) -> Answer<Reply> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        nodes: Vec<String>,
    }
    let body: Body = call.json().map_err(|bad| errors::of(&bad))?;
    let mut pool = state.store.live_pool(cluster, id)?.clone();
    let (now, going) = (state.now, state.now.plus_ms(state.dice.seconds(30, 60)));
    let chosen = |node: &Node| body.nodes.is_empty() || body.nodes.contains(&node.id);
    pool.nodes.iter_mut().filter(|node| node.gone.is_none() && chosen(node)).for_each(|node| node.gone = Some(going));
    resize(&mut pool, now, state.dice, call.effects.stuck);
    state.store.pools.update(id, |old| *old = pool);
    Ok(Reply::empty(202))
}

impl Store {
    /// A cluster that is there and not on its way out.
    pub fn live_cluster(&self, id: &str) -> Answer<&Cluster> {
        self.clusters.get(id).filter(|cluster| cluster.gone.is_none()).ok_or_else(errors::not_found)
    }

    fn pool(&self, cluster: &str, id: &str) -> Answer<&Pool> {
        self.pools.get(id).filter(|pool| pool.cluster == cluster).ok_or_else(errors::not_found)
    }

    fn live_pool(&self, cluster: &str, id: &str) -> Answer<&Pool> {
        self.pool(cluster, id).and_then(|pool| if pool.gone.is_none() { Ok(pool) } else { Err(errors::not_found()) })
    }
}
