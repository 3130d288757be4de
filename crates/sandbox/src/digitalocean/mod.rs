//! DigitalOcean's HTTP API on top of the sandbox's core.

mod account;
mod catalog;
mod cluster;
mod cluster_calls;
mod errors;
mod in_cluster;
mod node_pool;
mod node_pool_calls;
mod paging;
mod rate_limit;
mod shown;
#[cfg(test)]
mod tests;
mod vpc;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::Method;
use serde_json::{Value, json};

use crate::clock::SimTime;
use crate::http::{Call, Cloud, Refusal, Reply};
use crate::kube::KubeServer;
use crate::registry::{CloudName, CloudStore, SimulatedCloud};
use crate::table::{AnyTable, Table};
use crate::world::{ClusterView, View, World, new_id};
use errors::{Answer, ApiError};
use paging::Page;
use rate_limit::{Meter, Rate};

pub const NAME: CloudName = CloudName("digitalocean");

pub static CLOUD: SimulatedCloud = SimulatedCloud {
    name: NAME,
    title: "DigitalOcean",
    port: 7071,
    store: || Box::new(Store::default()),
    api: |world, kube, _| Ok(Arc::new(DigitalOcean { world, kube })),
    storage_class: ("do-block-storage", "dobs.csi.digitalocean.com"),
    clusters: in_cluster::TRAITS,
    client: Some(("doctl", |url, token| format!("doctl --api-url {url} --access-token {token} …"))),
    options: &[],
    environment: &[],
};

type State<'a> = View<'a, Store>;

/// Every DigitalOcean object of the sandbox; one `Table` for each type.
#[derive(Default)]
pub struct Store {
    vpcs: Table<vpc::Vpc>,
    clusters: Table<cluster::Cluster>,
    pools: Table<node_pool::Pool>,
    rate: Rate,
}

impl CloudStore for Store {
    fn tables(&self) -> Vec<&dyn AnyTable> {
        vec![&self.vpcs, &self.clusters, &self.pools]
    }

    fn tables_mut(&mut self) -> Vec<&mut dyn AnyTable> {
        vec![&mut self.vpcs, &mut self.clusters, &mut self.pools]
    }

    /// A default network in each region.
    fn seed(&mut self, now: SimTime) {
        vpc::seed(self, now);
    }

    fn cluster_view(&self, id: &str, now: SimTime) -> Option<ClusterView> {
        cluster::view(self, id, now)
    }
}

pub struct DigitalOcean {
    pub world: Arc<World>,
    pub kube: Arc<KubeServer>,
}

impl Cloud for DigitalOcean {
    fn name(&self) -> CloudName {
        CLOUD.name
    }

    fn handle(&self, call: &Call) -> Reply {
        let (meter, answer) = self.world.with(|state: &mut State<'_>| {
            let quota = state.quota;
            let now = state.now;
            let meter = state.store.rate.count(now, quota.requests_per_hour, quota.requests_per_minute);
            let answer = match meter.refused_for_ms {
                Some(_) => Err(ApiError { status: 429, message: "API Rate limit exceeded.".into() }),
                None => route(state, &self.kube, call),
            };
            (meter, answer)
        });
        let reply = stamp(answer.unwrap_or_else(|no| no.reply()));
        self.metered(reply, meter)
    }

    fn refuse(&self, _: Option<&Call>, refusal: &Refusal) -> Reply {
        stamp(errors::of(refusal).reply())
    }
}

impl DigitalOcean {
    /// Waiting times are in real seconds, which is what a client waits.
    fn metered(&self, reply: Reply, meter: Meter) -> Reply {
        let clock = self.world.clock();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let reset = wall + clock.real(meter.resets_in_ms).as_secs().max(1);
        let reply = reply
            .header("ratelimit-limit", meter.limit.to_string())
            .header("ratelimit-remaining", meter.remaining.to_string())
            .header("ratelimit-reset", reset.to_string());
        match meter.refused_for_ms {
            Some(wait) => reply.header("retry-after", clock.real(wait).as_secs().max(1).to_string()),
            None => reply,
        }
    }
}

/// Every answer carries the id of its request, errors in the body as well.
fn stamp(mut reply: Reply) -> Reply {
    let id = new_id();
    if !reply.ok()
        && let Ok(Value::Object(mut body)) = serde_json::from_slice(&reply.body)
    {
        body.insert("request_id".into(), json!(id));
        reply.body = Value::Object(body).to_string().into();
    }
    reply.header("x-request-id", id)
}

fn route(state: &mut State, kube: &KubeServer, call: &Call) -> Answer<Reply> {
    const GET: &Method = &Method::GET;
    const POST: &Method = &Method::POST;
    const PUT: &Method = &Method::PUT;
    const PATCH: &Method = &Method::PATCH;
    const DELETE: &Method = &Method::DELETE;
    let segments = call.segments();
    let path: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    let Some(("v2", path)) = path.split_first().map(|(first, rest)| (*first, rest)) else {
        return Err(errors::not_found());
    };
    let method = &call.method;
    let ok = |value: &Value| Ok(Reply::json(200, value));
    let paged = |root: &str, all: Vec<Value>| Ok(Reply::json(200, &Page::of(call).cut(call, root, all)));
    match path {
        ["account"] if method == GET => ok(&account::account(state.account)),
        ["regions"] if method == GET => paged("regions", catalog::regions()),
        ["sizes"] if method == GET => paged("sizes", catalog::sizes()),
        ["1-clicks"] if method == GET => ok(&json!({"1_clicks": []})),
        ["vpcs"] if method == GET => vpc::list(state, call),
        ["vpcs"] if method == POST => vpc::create(state, call),
        ["vpcs", id] if method == GET => vpc::get(state, id),
        ["vpcs", id] if method == PUT => vpc::update(state, call, id, true),
        ["vpcs", id] if method == PATCH => vpc::update(state, call, id, false),
        ["vpcs", id] if method == DELETE => vpc::delete(state, id),
        ["vpcs", id, "members"] if method == GET => vpc::members(state, call, id),
        ["kubernetes", rest @ ..] => kubernetes(state, kube, call, rest),
        _ => account::route(state, call, path).unwrap_or_else(|| Err(errors::not_found())),
    }
}

fn kubernetes(state: &mut State, kube: &KubeServer, call: &Call, path: &[&str]) -> Answer<Reply> {
    match (call.method.as_str(), path) {
        ("GET", ["options"]) => Ok(Reply::json(200, &catalog::options())),
        ("POST", ["registry"]) => cluster_calls::registry(state, call, true),
        ("DELETE", ["registry"]) => cluster_calls::registry(state, call, false),
        ("GET", ["clusters"]) => cluster_calls::list(state, kube, call),
        ("POST", ["clusters"]) => cluster_calls::create(state, kube, call),
        ("GET", ["clusters", id]) => cluster_calls::get(state, kube, id),
        ("PUT", ["clusters", id]) => cluster_calls::update(state, kube, call, id),
        ("DELETE", ["clusters", id]) => cluster_calls::delete(state, id),
        ("GET", ["clusters", id, "kubeconfig"]) => cluster_calls::kubeconfig(state, kube, id),
        ("GET", ["clusters", id, "credentials"]) => cluster_calls::credentials(state, kube, call, id),
        ("GET", ["clusters", id, "user"]) => cluster_calls::user(state, id),
        ("GET", ["clusters", id, "status_messages"]) => cluster_calls::messages(state, id),
        ("GET", ["clusters", id, "upgrades"]) => cluster_calls::upgrades(state, id),
        ("POST", ["clusters", id, "upgrade"]) => cluster_calls::upgrade(state, call, id),
        ("GET", ["clusters", id, "destroy_with_associated_resources"]) => cluster_calls::associated(state, id),
        ("DELETE", ["clusters", id, "destroy_with_associated_resources", "selective" | "dangerous"]) => {
            cluster_calls::delete(state, id)
        }
        ("GET", ["clusters", id, "node_pools"]) => node_pool_calls::list(state, call, id),
        ("POST", ["clusters", id, "node_pools"]) => node_pool_calls::create(state, call, id),
        ("GET", ["clusters", id, "node_pools", pool]) => node_pool_calls::get(state, id, pool),
        ("PUT", ["clusters", id, "node_pools", pool]) => node_pool_calls::update(state, call, id, pool),
        ("DELETE", ["clusters", id, "node_pools", pool]) => node_pool_calls::delete(state, id, pool),
        ("POST", ["clusters", id, "node_pools", pool, "recycle"]) => node_pool_calls::recycle(state, call, id, pool),
        ("DELETE", ["clusters", id, "node_pools", pool, "nodes", node]) => {
            node_pool_calls::delete_node(state, call, id, pool, node)
        }
        _ => Err(errors::not_found()),
    }
}
