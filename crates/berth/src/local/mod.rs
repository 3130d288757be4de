//! The project's own state, and the files of the machine that commands run on.

pub mod accept;
pub mod carry_out;
pub mod files;
pub mod kubeconfig_file;
pub mod manifests;
pub mod policies;
pub mod project;
pub mod sandbox;
pub mod saved_plan;
pub mod stack_input;
pub mod stored;
pub mod workspace;
