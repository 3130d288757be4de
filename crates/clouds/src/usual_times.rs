//! How long clusters and pools usually take to change.

use berth_engine::FieldChange;
use berth_engine::unit::{Op, Typical};
use std::time::Duration;

/// One more or one less node, on any cloud.
const NODE_SECONDS: u64 = 60;
/// Another version of Kubernetes: five to ten minutes.
const UPGRADE_SECONDS: u64 = 450;
/// What is not known, or beyond belief, must not make a wild guess.
const MOST_NODES: u64 = 60;

/// What one cloud takes for one type of unit, in seconds.
pub struct UsualTimes {
    pub create: u64,
    pub replace: u64,
    pub delete: u64,
    /// `None` is not worth telling.
    pub adopt: Option<u64>,
    /// A field whose change neither adds nor removes nodes.
    pub field: u64,
}

impl UsualTimes {
    /// `nodes`: how many a pool has whose size changes.
    pub fn of(&self, op: Op, changes: &[FieldChange], nodes: u64) -> Typical {
        let takes = |change: &FieldChange| match change.field.as_str() {
            "kubernetes_version" => UPGRADE_SECONDS,
            "node_count" | "default_node_pool.node_count" => NODE_SECONDS * nodes_between(change),
            "default_node_pool.size" => NODE_SECONDS * (nodes + 1),
            _ => self.field,
        };
        let seconds = match op {
            Op::Create => self.create,
            Op::Update => changes.iter().map(takes).sum(),
            Op::Replace => self.replace,
            Op::Delete => self.delete,
            Op::Adopt => self.adopt?,
        };
        Some(Duration::from_secs(seconds))
    }
}

/// How many nodes come or go when a number of nodes changes.
fn nodes_between(change: &FieldChange) -> u64 {
    match (change.from.as_u64(), change.to.as_u64()) {
        (Some(from), Some(to)) => from.abs_diff(to).clamp(1, MOST_NODES),
        _ => 1,
    }
}
