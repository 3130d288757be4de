//! Graph, plan, converge, journal, drift. Knows units, knows no cloud.

mod diff;
mod graph;
pub mod handler;
mod observe;
pub mod progress;
pub mod record;
pub mod unit;

pub use diff::{FieldChange, Takes, diff, fill, is_unknown, op_for};
pub use graph::{Graph, Walk};
pub use observe::{observe, read_one};
