//! Runs the real binary and keeps what it prints as snapshots. One test program, so that it is linked once.

mod bad_input;
mod common;
mod doctor;
mod look_up;
mod policy;
mod sandbox;
