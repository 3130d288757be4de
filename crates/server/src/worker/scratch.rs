//! A place of its own for each task, wiped at its end; and swept when a worker starts, for those that were killed.

use std::path::{Path, PathBuf};

/// The worker's folder; one for each task is inside.
pub struct Scratch {
    root: PathBuf,
    /// Held while the worker runs: another one of the same name does not sweep under its feet.
    _lock: std::fs::File,
}

/// A task's folder.
pub struct Place {
    path: PathBuf,
}

impl Scratch {
    /// Makes the folder and removes what a killed worker left in it.
    pub fn open(root: PathBuf) -> std::io::Result<Self> {
        make(&root)?;
        let lock = std::fs::File::options().create(true).truncate(false).write(true).open(root.join("lock"))?;
        lock.try_lock().map_err(|_| std::io::Error::other("another worker of this name is running here"))?;
        for entry in std::fs::read_dir(&root)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("task-") {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self { root, _lock: lock })
    }

    pub fn task(&self, id: &str) -> std::io::Result<Place> {
        let name: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
        let path = self.root.join(format!("task-{name}"));
        make(&path)?;
        Ok(Place { path })
    }
}

fn make(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

impl Place {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "a task's folder could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tasks_folder_goes_with_it_and_a_killed_ones_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("w1");
        let scratch = Scratch::open(root.clone()).unwrap();
        let place = scratch.task("a/../b").unwrap();
        assert!(place.path().starts_with(&root) && place.path().ends_with("task-ab"));
        std::fs::write(place.path().join("file"), "x").unwrap();
        drop(place);
        assert!(!root.join("task-ab").exists());
        assert!(Scratch::open(root.clone()).is_err(), "one at a time");
        std::mem::forget(scratch.task("left").unwrap());
        drop(scratch);
        assert!(root.join("task-left").exists());
        Scratch::open(root.clone()).unwrap();
        assert!(!root.join("task-left").exists());
    }
}
