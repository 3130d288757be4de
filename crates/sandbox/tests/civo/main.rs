//! The simulated Civo and the sandbox's core, over real HTTP.

mod client;
mod clusters;
mod core;
mod faults;
mod firewalls;
mod fleet;
mod networks;
mod phases;
mod pools;
mod state_file;
