//! Graph, plan, converge, journal, drift, import. Knows units, knows no cloud.

pub mod handler;
pub mod progress;
pub mod record;
pub mod unit;
