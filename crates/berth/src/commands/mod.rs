//! One file for each command: its arguments, then what it does.

pub mod apply;
pub mod completion;
pub mod context;
pub mod delete;
pub mod describe;
pub mod doctor;
pub mod drift;
pub mod explain;
pub mod get;
pub mod graph;
pub mod history;
pub mod import;
pub mod init;
pub mod kinds;
pub mod kubeconfig;
pub mod man;
pub mod outputs;
pub mod plan;
pub mod refresh;
pub mod sandbox;
pub mod schema;
pub mod validate;
pub mod wait;
