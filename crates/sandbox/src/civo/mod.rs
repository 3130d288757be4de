//! Civo's HTTP API.

mod account;
mod catalog;
mod cluster;
mod cluster_calls;
mod errors;
mod firewall;
mod in_cluster;
mod loose_fields;
mod node_pool;
mod node_pool_calls;
mod shown;
mod vpc;

use std::sync::Arc;

use hyper::Method;
use serde_json::{Value, json};

use crate::clock::SimTime;
use crate::http::{Call, Cloud, Refusal, Reply};
use crate::kube::KubeServer;
use crate::registry::{CloudName, CloudStore, SimulatedCloud};
use crate::table::{AnyTable, Table};
use crate::world::{ClusterView, View, World};
use cluster::Cluster;
use errors::{Answer, fail};
use firewall::Firewall;
use vpc::Network;

pub const NAME: CloudName = CloudName("civo");

pub static CLOUD: SimulatedCloud = SimulatedCloud {
    name: NAME,
    title: "Civo",
    port: 7070,
    store: || Box::new(Store::default()),
    api: |world, kube, _| Ok(Arc::new(Civo { world, kube })),
    storage_class: ("civo-volume", "csi.civo.com"),
    clusters: in_cluster::TRAITS,
    client: Some(("civo", |url, token| {
        let config = json!({"meta": {"url": url, "default_region": "FRA1"}});
        format!("echo '{config}' > sandbox.json && CIVO_TOKEN={token} civo --config sandbox.json …")
    })),
    options: &[],
    environment: &[("CIVO_REGION", "FRA1")],
};

type State<'a> = View<'a, Store>;

/// Every Civo object of the sandbox.
#[derive(Default)]
pub struct Store {
    networks: Table<Network>,
    firewalls: Table<Firewall>,
    clusters: Table<Cluster>,
}

impl CloudStore for Store {
    fn tables(&self) -> Vec<&dyn AnyTable> {
        vec![&self.networks, &self.firewalls, &self.clusters]
    }

    fn tables_mut(&mut self) -> Vec<&mut dyn AnyTable> {
        vec![&mut self.networks, &mut self.firewalls, &mut self.clusters]
    }

    fn seed(&mut self, now: SimTime) {
        vpc::seed(self, now);
    }

    fn cluster_view(&self, id: &str, now: SimTime) -> Option<ClusterView> {
        self.clusters.get(id).map(|cluster| cluster.view(now))
    }
}

impl Store {
    fn default_network(&self, region: &str) -> Answer<&Network> {
        match self.networks.first(&format!("name:{region}/default")) {
            Some(network) => Ok(network),
            None => fail(404, "database_network_not_found", "The region has no default network"),
        }
    }

    /// How many clusters use what the key names: those that live, and those that are being deleted.
    fn cluster_users(&self, key: &str) -> (usize, usize) {
        let leaving = self.clusters.find(key).filter(|cluster| cluster.gone_at.is_some()).count();
        (self.clusters.count(key) - leaving, leaving)
    }
}

pub struct Civo {
    pub world: Arc<World>,
    pub kube: Arc<KubeServer>,
}

impl Cloud for Civo {
    fn name(&self) -> CloudName {
        CLOUD.name
    }

    fn handle(&self, call: &Call) -> Reply {
        self.route(call).unwrap_or_else(|failure| failure.reply())
    }

    fn refuse(&self, _: Option<&Call>, refusal: &Refusal) -> Reply {
        errors::refuse(refusal)
    }
}

impl Civo {
    fn route(&self, call: &Call) -> Answer<Reply> {
        let segments = call.segments();
        let mut path: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        if path.first() != Some(&"v2") {
            return self.unknown(call);
        }
        path.remove(0);
        // The two families of paths show the same objects.
        if path.first() == Some(&"vpc") && path.len() > 1 {
            path.remove(0);
        }
        if let (&Method::GET, Some(reply)) = (&call.method, self.plain(&path)) {
            return Ok(reply);
        }
        match path.first() {
            Some(&"networks") => self.networks(call, &path[1..]),
            Some(&"firewalls") => self.firewalls(call, &path[1..]),
            Some(&"kubernetes") if path.get(1) == Some(&"clusters") => self.clusters(call, &path[2..]),
            Some(&"disk_images") if call.method == Method::GET && path.len() == 2 => {
                let images = catalog::disk_images();
                let found =
                    images.as_array().and_then(|all| all.iter().find(|i| i["id"] == path[1] || i["name"] == path[1]));
                match found {
                    Some(image) => Ok(Reply::json(200, image)),
                    None => fail(404, "database_disk_image_not_found", "Failed to find the disk image"),
                }
            }
            Some(&"instances") if call.method == Method::GET && path.len() == 2 => {
                fail(404, "database_instance_not_found", "Failed to find the instance within the internal database")
            }
            _ => self.unknown(call),
        }
    }

    /// Reads that need no region.
    fn plain(&self, path: &[&str]) -> Option<Reply> {
        Some(match path {
            ["regions"] => Reply::json(200, &catalog::regions()),
            ["sizes"] => Reply::json(200, &catalog::sizes()),
            ["kubernetes", "versions"] => Reply::json(200, &catalog::versions()),
            ["kubernetes", "applications"] => Reply::json(200, &catalog::applications()),
            ["quota"] => self.world.with(|state| account::quota(state)),
            ["accounts"] => self.world.with(|state| account::accounts(state)),
            ["organisation"] => self.world.with(|state| account::organisation(state)),
            ["ping"] => Reply::json(200, &json!({"result": "success"})),
            ["disk_images"] => Reply::json(200, &catalog::disk_images()),
            ["volumetypes"] => Reply::json(200, &catalog::volume_types()),
            ["volumes" | "loadbalancers" | "sshkeys" | "dns" | "charges" | "templates" | "snapshots" | "teams"] => {
                account::none()
            }
            ["instances" | "ips" | "databases" | "objectstores" | "kfclusters"] => account::no_pages(),
            ["objectstore", "credentials"] => account::no_pages(),
            _ => return None,
        })
    }

    fn networks(&self, call: &Call, path: &[&str]) -> Answer<Reply> {
        let region = region_of(call)?;
        match (call.method.as_str(), path) {
            ("GET", []) => Ok(self.world.with(|state| vpc::list(state, region, call.effects.lag))),
            ("GET", [id]) => self.world.with(|state| vpc::get(state, region, id)),
            ("GET", [id, "subnets"]) => self.world.with(|state| vpc::find(state, region, id).map(|_| account::none())),
            (method, [id, "subnets", ..]) => {
                self.world.with(|state| vpc::find(state, region, id).map(|_| ()))?;
                match method {
                    "POST" => fail(403, "subnet_create_unavailable", "The sandbox does not simulate subnets"),
                    _ => {
                        fail(404, "database_subnet_not_found", "Failed to find the subnet within the internal database")
                    }
                }
            }
            ("POST", []) => {
                let input = call.json()?;
                self.world.with(|state| vpc::create(state, region, input))
            }
            ("PUT", [id]) => {
                let input = call.json()?;
                self.world.with(|state| vpc::update(state, region, id, input))
            }
            ("DELETE", [id]) => self.world.with(|state| vpc::delete(state, region, id)),
            _ => self.unknown(call),
        }
    }

    fn firewalls(&self, call: &Call, path: &[&str]) -> Answer<Reply> {
        let region = region_of(call)?;
        match (call.method.as_str(), path) {
            ("GET", []) => Ok(self.world.with(|state| firewall::list(state, region, call.effects.lag))),
            ("GET", [id]) => self.world.with(|state| firewall::get(state, region, id)),
            ("POST", []) => {
                let input = call.json()?;
                self.world.with(|state| firewall::create(state, region, input))
            }
            ("PUT", [id]) => {
                let input = call.json()?;
                self.world.with(|state| firewall::update(state, region, id, input))
            }
            ("DELETE", [id]) => self.world.with(|state| firewall::delete(state, region, id)),
            ("GET", [id, "rules"]) => self.world.with(|state| firewall::list_rules(state, region, id)),
            ("GET", [id, "rules", rule]) => self.world.with(|state| firewall::get_rule(state, region, id, rule)),
            ("POST", [id, "rules"]) => {
                let input = call.json()?;
                self.world.with(|state| firewall::create_rule(state, region, id, input))
            }
            ("DELETE", [id, "rules", rule]) => self.world.with(|state| firewall::delete_rule(state, region, id, rule)),
            _ => self.unknown(call),
        }
    }

    fn clusters(&self, call: &Call, path: &[&str]) -> Answer<Reply> {
        let region = region_of(call)?;
        let (kube, effects) = (&*self.kube, &call.effects);
        match (call.method.as_str(), path) {
            ("GET", []) => Ok(self.world.with(|state| cluster_calls::list(state, region, call, kube))),
            ("GET", [id]) => self.world.with(|state| cluster_calls::get(state, region, id, kube)),
            ("GET", [id, "instances"]) => self.world.with(|state| cluster_calls::instances(state, region, id)),
            ("POST", []) => {
                let input = call.json()?;
                self.world.with(|state| cluster_calls::create(state, region, input, effects, kube))
            }
            ("PUT", [id]) => {
                let input = call.json()?;
                self.world.with(|state| cluster_calls::update(state, region, id, input, effects, kube))
            }
            ("DELETE", [id]) => self.world.with(|state| cluster_calls::delete(state, region, id)),
            ("POST", [id, "recycle"]) => {
                let input = call.json()?;
                self.world.with(|state| node_pool_calls::recycle(state, region, id, &input))
            }
            ("GET", [id, "pools"]) => self.world.with(|state| node_pool_calls::list(state, region, id)),
            ("GET", [id, "pools", pid]) => self.world.with(|state| node_pool_calls::get(state, region, id, pid)),
            ("POST", [id, "pools"]) => {
                let input = call.json()?;
                self.world.with(|state| node_pool_calls::create(state, region, id, input, effects))
            }
            ("PUT", [id, "pools", pid]) => {
                let input = call.json()?;
                self.world.with(|state| node_pool_calls::update(state, region, id, pid, input, effects))
            }
            ("DELETE", [id, "pools", pid]) => self.world.with(|state| node_pool_calls::delete(state, region, id, pid)),
            ("DELETE", [id, "pools", pid, "instances", instance]) => {
                self.world.with(|state| node_pool_calls::delete_instance(state, region, id, pid, instance))
            }
            _ => self.unknown(call),
        }
    }

    fn unknown(&self, call: &Call) -> Answer<Reply> {
        tracing::warn!(method = %call.method, path = call.path, "the sandbox's Civo does not know this path");
        Err(Refusal::UnknownPath.into())
    }
}

/// The region stands in the query of reads and deletes and in the body of creates and updates.
fn region_of(call: &Call) -> Answer<&'static str> {
    let mut code = call.query("region").unwrap_or_default().to_owned();
    if code.is_empty() {
        let body: Value = call.json()?;
        code = body.get("region").and_then(Value::as_str).unwrap_or_default().to_owned();
    }
    match catalog::find_region(&code) {
        Some(region) => Ok(region.code),
        None if code.is_empty() => fail(400, "region_unavailable", "The region is missing"),
        None => fail(404, "region_unavailable", format!("The region {code} is not available")),
    }
}
