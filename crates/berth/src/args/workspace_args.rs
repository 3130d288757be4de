//! Which state and which clouds a command uses.

use crate::args::{ServerArgs, Which};
use crate::failure::Failure;
use crate::local::project;
use berth_sandbox::Speed;
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct StateArgs {
    /// State file; by default the one in the project's .berth folder
    #[arg(long, value_name = "PATH", env = "BERTH_STATE", hide_env_values = true)]
    pub state: Option<PathBuf>,
}

impl StateArgs {
    pub fn path(&self) -> Result<PathBuf, Failure> {
        match &self.state {
            Some(path) => Ok(path.clone()),
            None => project::state(),
        }
    }

    /// What is applied to simulated clouds is kept apart from what is applied to real ones.
    fn path_for(&self, sandbox: bool) -> Result<PathBuf, Failure> {
        match (&self.state, sandbox) {
            (None, true) => project::sandbox_state(),
            _ => self.path(),
        }
    }

    /// The flag that selects the project's own state.
    fn asked(&self, sandbox: bool) -> Option<&'static str> {
        if sandbox { Some("--sandbox") } else { self.state.as_ref().map(|_| "--state") }
    }
}

/// For commands that look into the state and talk to no cloud.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct LookArgs {
    #[command(flatten)]
    pub state: StateArgs,
    /// Look at what is applied to the simulated clouds
    #[arg(long)]
    pub sandbox: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl LookArgs {
    /// The same selection as `WorkspaceArgs`.
    pub fn workspace(&self) -> WorkspaceArgs {
        let sandbox = SandboxArgs { sandbox: self.sandbox, speed: None };
        WorkspaceArgs { state: self.state.clone(), sandbox, server: self.server.clone() }
    }

    /// The state that is meant, or a server.
    pub fn which(&self) -> Result<Which, Failure> {
        self.workspace().which()
    }
}

/// For `--sandbox` on any command.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SandboxArgs {
    /// Use simulated clouds, no account needed
    #[arg(long)]
    pub sandbox: bool,
    /// How much faster than real time the simulated clouds run, or `max`
    #[arg(long, value_name = "N", value_parser = speed, requires = "sandbox")]
    pub speed: Option<Speed>,
}

/// `60`, `2.5x`, or `max` for no provisioning time at all.
pub fn speed(text: &str) -> Result<Speed, String> {
    if text.eq_ignore_ascii_case("max") { Ok(Speed::Instant) } else { text.parse() }
}

#[derive(clap::Args, Clone, Debug, Default)]
pub struct WorkspaceArgs {
    #[command(flatten)]
    pub state: StateArgs,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl WorkspaceArgs {
    pub fn state_path(&self) -> Result<PathBuf, Failure> {
        self.state.path_for(self.sandbox.sandbox)
    }

    /// The project's own state, or a server: `--state` and `--sandbox` select the former.
    pub fn which(&self) -> Result<Which, Failure> {
        self.server.which(self.state_path()?, self.state.asked(self.sandbox.sandbox))
    }
}
