//! EC2 as its clients speak to it: forms over HTTP in, XML out.

mod addresses;
mod client;
mod core;
mod endpoints;
mod groups;
mod routes;
mod templates;
mod vpcs;
