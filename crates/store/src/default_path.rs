//! The default path of the state.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

const FOLDER: &str = ".berth";
const FILE: &str = "state.db";

/// The nearest folder upwards that has a `.berth` folder; else this one, where it can be written; else the user's data
/// folder. Creates nothing.
pub fn default_path(cwd: &Path) -> PathBuf {
    for folder in cwd.ancestors() {
        let candidate = folder.join(FOLDER);
        if candidate.is_dir() {
            return candidate.join(FILE);
        }
    }
    match data_folder(|name| std::env::var_os(name)) {
        Some(data) if !writable(cwd) => data.join(FILE),
        _ => cwd.join(FOLDER).join(FILE),
    }
}

/// Berth's own folder in the user's data folder: `$XDG_DATA_HOME/berth`, or `~/.local/share/berth`.
pub(crate) fn data_folder(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local").join("share")))
        .or_else(|| absolute("LOCALAPPDATA"))?;
    Some(data.join("berth"))
}

#[cfg(unix)]
fn writable(folder: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
fn writable(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|meta| !meta.permissions().readonly())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_project_folder_wins() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(default_path(&deep), deep.join(".berth/state.db"));
        std::fs::create_dir(root.path().join("a/.berth")).unwrap();
        assert_eq!(default_path(&deep), root.path().join("a/.berth/state.db"));
        std::fs::write(root.path().join("a/b/.berth"), "a file is not a project folder").unwrap();
        assert_eq!(default_path(&deep), root.path().join("a/.berth/state.db"));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_left_alone() {
        let nowhere = Path::new("/no/such/folder/anywhere");
        if let Some(data) = data_folder(|name| std::env::var_os(name)) {
            assert_eq!(default_path(nowhere), data.join("state.db"));
        }
    }

    #[test]
    fn data_folder_follows_xdg() {
        let with = |pairs: &'static [(&str, &str)]| {
            data_folder(move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(with(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")]), Some("/x/berth".into()));
        assert_eq!(with(&[("XDG_DATA_HOME", "relative"), ("HOME", "/h")]), Some("/h/.local/share/berth".into()));
        assert_eq!(with(&[]), None);
    }
}
