//! One file for each command: its arguments, then what it does.

pub mod completion;
pub mod doctor;
pub mod graph;
pub mod kinds;
pub mod man;
pub mod sandbox;
pub mod validate;
