//! Arguments that several commands have.

pub mod address;
mod audit_args;
pub mod change_args;
mod database_args;
mod oidc_args;
pub mod repeated_flags;
mod resource_args;
pub mod sandbox_ports;
mod server_args;
pub mod workspace_args;

pub use address::{Address, ScopeArgs};
pub use audit_args::AuditArgs;
pub use change_args::{ChangeArgs, ConfirmArgs, RecreateArgs, RunArgs};
pub use database_args::{DatabaseArgs, KeyArgs};
pub use oidc_args::OidcArgs;
pub use resource_args::{ResourceArgs, ServerResourceArgs};
pub use server_args::{ServerArgs, Which};
pub use workspace_args::{LookArgs, SandboxArgs, StateArgs, WorkspaceArgs};
