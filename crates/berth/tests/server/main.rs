//! The control plane as it runs: real servers and workers as processes of their own, real databases, and simulated clouds
//! over real HTTP. One test program, so that it is linked once.

mod authentic;
mod belongs;
mod chaos;
mod claims;
mod cli;
mod docs;
mod faults;
mod flood;
mod guard;
mod harness;
mod late;
mod names;
mod own;
mod parties;
#[path = "../../../store/tests/support/postgres.rs"]
mod postgres_server;
mod printed;
mod quickstart;
mod raw;
mod secrets;
#[path = "../support/mod.rs"]
mod support;
mod traces;
mod typed;
mod versions;
mod watch;
mod work;
