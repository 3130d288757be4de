//! The project's own state with the embedded engine, and the files of the machine that commands run on.

mod accept;
mod account_move;
mod apply;
mod backend;
pub mod carry_out;
mod delete;
mod drift;
pub mod files;
mod import;
pub mod import_files;
mod kubeconfig;
pub mod kubeconfig_file;
pub mod manifest_edit;
pub mod manifests;
mod plan;
mod policies;
pub mod project;
mod refresh;
pub mod sandbox;
pub mod saved_plan;
pub mod stack_input;
mod wait;
pub mod workspace;
