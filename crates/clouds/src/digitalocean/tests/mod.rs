//! Lowering by snapshots, and handlers against the sandbox.

mod errors;
mod faults;
mod import;
mod kube;
mod lower;
mod sandbox;
mod world;
