//! The API over real HTTP, as clients see it.

mod client;
mod clusters;
mod core;
mod faults;
mod networks;
mod phases;
mod pools;
mod state_file;
mod terraform_and_doctl;
