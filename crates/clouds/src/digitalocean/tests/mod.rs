//! Lowering by snapshots, and handlers against the sandbox.

mod faults;
mod lower;
mod refusals;
mod sandbox;
mod world;
