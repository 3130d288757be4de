//! DigitalOcean's HTTP API on top of the sandbox's core.

use std::sync::Arc;

use serde_json::json;

use crate::clock::SimTime;
use crate::http::{Call, Cloud, CloudName, Refusal, Reply};
use crate::kube::KubeServer;
use crate::table::AnyTable;
use crate::world::{ClusterView, World};

/// Every DigitalOcean object of the sandbox; one `Table` for each type.
#[derive(Default)]
pub struct Store {}

impl Store {
    /// All tables, for persistence, expiry and the ledger.
    pub fn tables(&self) -> Vec<&dyn AnyTable> {
        vec![]
    }

    pub fn tables_mut(&mut self) -> Vec<&mut dyn AnyTable> {
        vec![]
    }

    /// Objects that are there from the start (default VPCs). Called once, only for a fresh world.
    pub fn seed(&mut self, _now: SimTime) {}

    pub fn cluster_view(&self, _id: &str, _now: SimTime) -> Option<ClusterView> {
        None
    }
}

pub struct DigitalOcean {
    pub world: Arc<World>,
    pub kube: Arc<KubeServer>,
}

impl Cloud for DigitalOcean {
    fn name(&self) -> CloudName {
        CloudName::DigitalOcean
    }

    fn handle(&self, _call: &Call) -> Reply {
        self.refuse(&Refusal::UnknownPath)
    }

    fn refuse(&self, refusal: &Refusal) -> Reply {
        Reply::json(refusal.status(), &json!({"id": "not_found", "message": refusal.to_string()}))
    }
}
