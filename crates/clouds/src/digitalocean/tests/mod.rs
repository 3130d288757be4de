//! Lowering by snapshots, and handlers against the sandbox.

mod lower;
mod refusals;
mod sandbox;
