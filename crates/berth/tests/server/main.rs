//! The control plane as it runs: real servers and workers as processes of their own, real databases, and simulated clouds
//! over real HTTP. One test program, so that it is linked once.

mod chaos;
mod faults;
mod harness;
mod postgres;
mod quickstart;
mod work;
