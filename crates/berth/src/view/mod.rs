//! What people and programs are shown, and what people are asked.

pub mod confirm;
pub mod diagnostics;
pub mod drift_view;
pub mod graph;
pub mod output;
pub mod plan_view;
pub mod progress;
pub mod resource_view;
pub mod terminal;
pub mod watch;
pub mod yaml;
