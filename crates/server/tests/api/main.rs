//! A real server on a real port over TLS, asked by REST and by gRPC.

mod errors;
mod flow;
mod follow;
mod limits;
mod world;

// The same PostgreSQL as the store's tests start.
#[allow(dead_code)]
#[path = "../../../store/tests/store/server.rs"]
mod postgres;
