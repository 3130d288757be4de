//! The programs that a real control plane is made of, in one folder.

use std::path::{Path, PathBuf};

use crate::SandboxError;

pub const ETCD: &str = "etcd";
pub const API_SERVER: &str = "kube-apiserver";
pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";
pub const SCHEDULER: &str = "kube-scheduler";
pub const KWOK: &str = "kwok";

const ALL: [&str; 5] = [ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK];

/// A folder that holds all of them.
#[derive(Clone, Debug)]
pub struct Programs(PathBuf);

impl Programs {
    /// Looked for when the sandbox starts: a missing program is told then, not at some cluster's first call.
    pub fn find(folder: &Path) -> Result<Programs, SandboxError> {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let missing: Vec<&str> = ALL.into_iter().filter(|name| !runnable(&folder.join(name))).collect();
        match missing.is_empty() {
            true => Ok(Programs(folder)),
            false => Err(SandboxError::KubePrograms { folder, missing: missing.join(", ") }),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn runnable(file: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(file) else { return false };
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_run = true;
    meta.is_file() && may_run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_folder_without_all_programs_is_refused_by_their_names() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        for name in ALL {
            std::fs::write(folder.path().join(name), "").unwrap();
            let mode = if name == KWOK { 0o644 } else { 0o755 };
            std::fs::set_permissions(folder.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::remove_file(folder.path().join(ETCD)).unwrap();
        let error = Programs::find(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("does not have these programs: etcd, kwok"), "{error}");
    }
}
