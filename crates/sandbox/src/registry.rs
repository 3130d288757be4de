//! The clouds that a sandbox simulates. Everything outside a cloud's own folder goes through this list.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::Value;

use crate::clock::SimTime;
use crate::http::Cloud;
use crate::kube::KubeServer;
use crate::table::AnyTable;
use crate::world::{ClusterView, World};
use crate::{aws, civo, digitalocean};

static BUILT_IN: [&SimulatedCloud; 3] = [&civo::CLOUD, &digitalocean::CLOUD, &aws::CLOUD];
static ADDED: OnceLock<Vec<&'static SimulatedCloud>> = OnceLock::new();

/// The name of a cloud: in fault rules, in addresses, in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct CloudName(pub &'static str);

impl CloudName {
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for CloudName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Address and token in, what to type out.
pub type CallWith = fn(&str, &str) -> String;

/// A setting that only one cloud has.
pub struct CloudOption {
    pub name: &'static str,
    pub help: &'static str,
    /// What stands for its value in help; a switch has none.
    pub value: Option<&'static str>,
}

/// The options that were given, by name; a switch has an empty value.
pub type CloudOptions = BTreeMap<&'static str, String>;

/// How Services of type LoadBalancer are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalancers {
    Addresses,
    /// Names that end so, after the region.
    Names(&'static str),
}

/// What the clusters of one cloud are like inside, besides what all clusters are.
pub struct ClusterTraits {
    /// The objects that the cloud puts into a new cluster: kube-system's workloads and what belongs to them.
    pub system_objects: fn(&ClusterView) -> Vec<Value>,
    pub load_balancers: LoadBalancers,
    /// As nodes report it.
    pub node_os: &'static str,
}

impl ClusterTraits {
    /// Nothing of its own.
    pub const PLAIN: ClusterTraits =
        ClusterTraits { system_objects: |_| Vec::new(), load_balancers: LoadBalancers::Addresses, node_os: "Linux" };
}

/// A cloud's API, on these objects and with these options.
pub type MakeApi = fn(Arc<World>, Arc<KubeServer>, &CloudOptions) -> Result<Arc<dyn Cloud>, String>;

/// What the sandbox knows of one cloud.
pub struct SimulatedCloud {
    pub name: CloudName,
    /// As people write it.
    pub title: &'static str,
    /// The usual port of `berth sandbox`.
    pub port: u16,
    /// No objects yet.
    pub store: fn() -> Box<dyn CloudStore>,
    /// Answers what is wrong with the options, if anything.
    pub api: MakeApi,
    /// What can be asked of this cloud alone: `--NAME-OPTION`.
    pub options: &'static [CloudOption],
    /// The storage class of its clusters, and what provisions its volumes.
    pub storage_class: (&'static str, &'static str),
    /// What its clusters are like inside.
    pub clusters: ClusterTraits,
    /// The cloud's own command-line program, and how it is called with this address and token.
    pub client: Option<(&'static str, CallWith)>,
    /// What else its tools want in their environment, such as a region.
    pub environment: &'static [(&'static str, &'static str)],
}

/// Every object of one cloud.
pub trait CloudStore: Any + Send {
    /// All tables, for persistence, expiry and the ledger.
    fn tables(&self) -> Vec<&dyn AnyTable>;

    fn tables_mut(&mut self) -> Vec<&mut dyn AnyTable>;

    /// Makes the objects that an account has from the start.
    fn seed(&mut self, now: SimTime);

    /// What a cluster looks like from inside.
    fn cluster_view(&self, id: &str, now: SimTime) -> Option<ClusterView>;
}

/// Adds clouds to the list; has an effect once, before a sandbox was started.
pub fn add(clouds: Vec<&'static SimulatedCloud>) -> bool {
    ADDED.set(clouds).is_ok()
}

/// All of them, in the order in which they are shown.
pub fn clouds() -> impl Iterator<Item = &'static SimulatedCloud> {
    BUILT_IN.into_iter().chain(ADDED.get_or_init(Vec::new).iter().copied())
}

/// By its name, in any case.
pub fn find(name: &str) -> Option<&'static SimulatedCloud> {
    clouds().find(|cloud| cloud.name.0.eq_ignore_ascii_case(name))
}

/// One thing for each cloud.
pub(crate) fn for_each_cloud<T>(mut make: impl FnMut(&'static SimulatedCloud) -> T) -> BTreeMap<CloudName, T> {
    clouds().map(|cloud| (cloud.name, make(cloud))).collect()
}
