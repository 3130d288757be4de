//! A real server on a real port over TLS, asked by REST and by gRPC.

mod errors;
mod flow;
mod follow;
mod limits;
#[path = "../support/mod.rs"]
mod support;
mod world;

// The same PostgreSQL as the store's tests start.
#[path = "../../../store/tests/support/postgres.rs"]
mod postgres;
