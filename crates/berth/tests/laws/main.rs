//! What Berth promises, proved on the real binary against simulated clouds over real HTTP. One test program, so that it is
//! linked once.

mod accounts;
mod belongs;
mod declared;
mod examples;
mod faults;
mod full_disk;
mod harness;
mod inside;
mod interrupt;
mod kill;
mod kill_cases;
mod late;
mod ledger;
mod names;
mod other_tools;
mod outside;
mod refusals;
mod secrets;
#[path = "../support/mod.rs"]
mod support;
