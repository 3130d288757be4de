//! How long clusters usually take to change; alike on all clouds.

use berth_engine::FieldChange;

/// One more or one less node.
pub const NODE_SECONDS: u64 = 60;
/// Another version of Kubernetes: five to ten minutes.
pub const UPGRADE_SECONDS: u64 = 450;
/// What is not known, or beyond belief, must not make a wild guess.
const MOST_NODES: u64 = 60;

/// How many nodes come or go when a number of nodes changes.
pub fn nodes_between(change: &FieldChange) -> u64 {
    match (change.from.as_u64(), change.to.as_u64()) {
        (Some(from), Some(to)) => from.abs_diff(to).clamp(1, MOST_NODES),
        _ => 1,
    }
}
