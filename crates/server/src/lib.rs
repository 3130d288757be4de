//! The control plane: the API, the controller, the task manager, and the workers that carry tasks out.
//!
//! Servers keep nothing that is not in the store; any number of them may share one. Workers need no database.

/// Message types and services generated from `proto/berth/api`.
#[allow(clippy::all, rustdoc::all)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/api.rs"));
    pub use berth::api::v1::*;
}

/// The descriptors of the API, with options and comments.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/api.bin"));

pub mod access;
pub mod address;
pub mod api;
pub mod client;
mod connection_slots;
pub mod context;
pub mod controller;
mod debug;
pub mod drift_schedule;
pub mod environment;
pub mod fault;
pub mod gate;
pub mod limits;
pub mod merge;
pub mod metrics;
pub mod policy;
mod policy_cache;
pub mod policy_check;
mod record_messages;
pub mod rest;
pub mod results;
mod saved_plan;
pub mod serve;
pub mod start;
pub mod tasks;
pub mod telemetry;
pub mod tls;
mod tracked_body;
pub mod values;
pub mod worker;

pub use fault::{Code, Fault};
