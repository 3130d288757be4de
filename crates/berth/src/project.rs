//! Where a project's own files are: the state, and what the sandbox leaves beside it.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Clone, Debug, Default)]
pub struct StateArgs {
    /// State file; by default the one in the project's .berth folder
    #[arg(long, value_name = "PATH", env = "BERTH_STATE")]
    pub state: Option<PathBuf>,
}

impl StateArgs {
    pub fn path(&self) -> Result<PathBuf, Failure> {
        match &self.state {
            Some(path) => Ok(path.clone()),
            None => Ok(berth_store::default_path(&here()?)),
        }
    }
}

/// The folder that belongs to the project: `.berth`, whether it exists yet or not.
pub fn folder() -> Result<PathBuf, Failure> {
    let state = berth_store::default_path(&here()?);
    Ok(state.parent().map_or_else(|| PathBuf::from(".berth"), Path::to_path_buf))
}

fn here() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| Failure::caused("cannot tell the current folder", &error))
}

/// Makes the folder, for its owner alone.
pub fn make(folder: &Path) -> Result<(), Failure> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(folder)
        .map_err(|error| Failure::caused(format!("cannot make the folder {}", folder.display()), &error))
}
