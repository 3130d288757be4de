//! Civo's HTTP API.

use std::sync::Arc;

use serde_json::json;

use crate::clock::SimTime;
use crate::http::{Call, Cloud, CloudName, Refusal, Reply};
use crate::kube::KubeServer;
use crate::table::AnyTable;
use crate::world::{ClusterView, World};

#[derive(Default)]
pub struct Store {}

impl Store {
    pub fn tables(&self) -> Vec<&dyn AnyTable> {
        vec![]
    }
    pub fn tables_mut(&mut self) -> Vec<&mut dyn AnyTable> {
        vec![]
    }
    pub fn seed(&mut self, _now: SimTime) {}
    pub fn cluster_view(&self, _id: &str, _now: SimTime) -> Option<ClusterView> {
        None
    }
}

pub struct Civo {
    pub world: Arc<World>,
    pub kube: Arc<KubeServer>,
}

impl Cloud for Civo {
    fn name(&self) -> CloudName {
        CloudName::Civo
    }
    fn handle(&self, _call: &Call) -> Reply {
        self.refuse(&Refusal::UnknownPath)
    }
    fn refuse(&self, refusal: &Refusal) -> Reply {
        Reply::json(refusal.status(), &json!({"code": "x", "reason": refusal.to_string()}))
    }
}
