//! Which resources a command is about, and where they are kept.

use crate::args::{ScopeArgs, ServerArgs, WorkspaceArgs};
use crate::failure::Failure;

/// For commands that the project's own state answers, or a server.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ResourceArgs {
    #[command(flatten)]
    pub scope: ScopeArgs,
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
}

impl ResourceArgs {
    /// The scope as given, else as the context says.
    pub fn scope(&self) -> Result<ScopeArgs, Failure> {
        Ok(self.workspace.which()?.scope(&self.scope))
    }
}

/// For commands that only a server answers.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServerResourceArgs {
    #[command(flatten)]
    pub scope: ScopeArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl ServerResourceArgs {
    /// The scope as given, else as the context says.
    pub fn scope(&self) -> Result<ScopeArgs, Failure> {
        self.server.scope(&self.scope)
    }
}
