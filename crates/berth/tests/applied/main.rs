//! Commands that look at what is applied: the real binary against simulated clouds over real HTTP. One test program, so
//! that it is linked once.

mod asks;
mod drift;
mod guards;
mod log;
mod project;
mod reads;
#[path = "../support/mod.rs"]
mod support;
mod told;

use project::shown;
