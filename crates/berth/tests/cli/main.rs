//! Runs the real binary and keeps what it prints as snapshots. One test program, so that it is linked once.

mod bad_input;
mod doctor;
mod look_up;
mod policy;
mod sandbox;
mod shop;
#[path = "../support/mod.rs"]
mod support;

/// What a command printed, without what differs from run to run.
fn shown(ran: &support::ran::Ran) -> String {
    ran.printed().replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
}
