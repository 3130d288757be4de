//! Folders and files that only their owner can read.

use crate::error::StoreError;
use std::fs::{DirBuilder, File, OpenOptions};
use std::path::Path;

/// Makes the folder of `path`, and those above it, for the owner alone. Folders that exist stay as they are.
pub(crate) fn private_parent(path: &Path) -> Result<(), StoreError> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder).map_err(|source| StoreError::File {
        doing: "create the folder",
        path: folder.into(),
        source,
    })
}

/// Options to create a file for the owner alone.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}

/// Makes a folder's new names durable.
pub(crate) fn sync_folder(path: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}
