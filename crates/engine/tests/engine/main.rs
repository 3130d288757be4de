//! The engine against a small cloud in memory: whatever fails and whenever the process dies, one more run makes it right.

mod catalog;
mod cloud;
mod histories;
mod history_steps;
mod laws;
mod lifecycle;
mod memory;
mod order;
mod promises;
mod schedules;
mod waits;
mod world;
