//! Where a project's own files are: the state, and what the sandbox leaves beside it.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// The state of what is applied to real clouds.
pub fn state() -> Result<PathBuf, Failure> {
    Ok(berth_store::default_path(&here()?))
}

/// Where what is applied to simulated clouds is remembered.
pub fn sandbox_state() -> Result<PathBuf, Failure> {
    Ok(folder()?.join("sandbox-state.db"))
}

/// The folder that belongs to the project: `.berth`, whether it exists yet or not.
pub fn folder() -> Result<PathBuf, Failure> {
    let state = state()?;
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

/// Writes a file that is its owner's alone, whole or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    use std::io::Write;
    let cannot = |error: std::io::Error| Failure::caused(format!("cannot write {}", path.display()), &error);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let half = folder.join(format!(".{name}.{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let write = || {
        let mut file = options.open(&half)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&half, path)
    };
    write().inspect_err(|_| _ = std::fs::remove_file(&half)).map_err(cannot)
}
