//! A folder for each task. It is removed when the task ends; folders of killed workers are removed when a worker starts.

use std::path::{Path, PathBuf};

/// The worker's folder; one for each task is inside.
pub struct Scratch {
    root: PathBuf,
    /// Held while the worker runs, so that no other worker removes its folders.
    _lock: std::fs::File,
}

/// A task's folder.
pub struct TaskFolder {
    path: PathBuf,
}

impl Scratch {
    /// Makes the worker's folder inside `base`, and removes what killed workers left there, this one and others.
    pub fn open(base: &Path, name: &str) -> std::io::Result<Self> {
        make(base)?;
        let root = base.join(format!("worker-{}", harmless(name)));
        make(&root)?;
        let lock =
            lock_of(&root)?.ok_or_else(|| std::io::Error::other("another worker of this name is running here"))?;
        for entry in std::fs::read_dir(&root)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("task-") {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        for entry in std::fs::read_dir(base)?.flatten().filter(|entry| entry.path() != root) {
            let other = entry.path();
            if entry.file_name().to_string_lossy().starts_with("worker-")
                && other.join("lock").is_file()
                && let Ok(Some(_unused)) = lock_of(&other)
                && let Err(error) = std::fs::remove_dir_all(&other)
            {
                tracing::debug!(%error, path = %other.display(), "what a killed worker left stays");
            }
        }
        Ok(Self { root, _lock: lock })
    }

    pub fn task(&self, id: &str) -> std::io::Result<TaskFolder> {
        let path = self.root.join(format!("task-{}", harmless(id)));
        make(&path)?;
        Ok(TaskFolder { path })
    }
}

/// The name without characters that could lead out of the folder.
fn harmless(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(128).collect()
}

/// `None` while another process has it. It ends with the process, however that ends.
fn lock_of(folder: &Path) -> std::io::Result<Option<std::fs::File>> {
    let lock = std::fs::File::options().create(true).truncate(false).write(true).open(folder.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

fn make(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

impl TaskFolder {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TaskFolder {
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
        let (base, root) = (dir.path().join("work"), dir.path().join("work/worker-w1"));
        let scratch = Scratch::open(&base, "w1").unwrap();
        let folder = scratch.task("a/../b").unwrap();
        assert!(folder.path().starts_with(&root) && folder.path().ends_with("task-ab"));
        std::fs::write(folder.path().join("file"), "x").unwrap();
        drop(folder);
        assert!(!root.join("task-ab").exists());
        assert!(Scratch::open(&base, "w1").is_err(), "one at a time");
        std::mem::forget(scratch.task("left").unwrap());
        let other = Scratch::open(&base, "w2").unwrap();
        assert!(root.join("task-left").exists(), "a running worker's folder is its own");
        drop((scratch, other));
        Scratch::open(&base, "w1").unwrap();
        assert!(!root.join("task-left").exists() && !base.join("worker-w2").exists());
    }
}
