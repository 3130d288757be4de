//! The files that manifests of imported objects are written to.

use crate::failure::Failure;
use berth_model::ResourceId;
use std::path::{Path, PathBuf};

/// Where a manifest is written: one file for one, a folder for all.
pub struct ImportFiles {
    pub out: Option<PathBuf>,
    pub all: bool,
}

impl ImportFiles {
    pub fn path(&self, id: &ResourceId) -> PathBuf {
        match (&self.out, self.all) {
            (Some(file), false) => file.clone(),
            (None, false) => file_name(id),
            (out, true) => out.clone().unwrap_or_else(|| PathBuf::from("imported")).join(file_name(id)),
        }
    }

    /// The same, with a number where that file exists.
    pub fn free_path(&self, id: &ResourceId) -> PathBuf {
        let mut file = self.path(id);
        let mut number = 2;
        while file.exists() {
            file.set_file_name(format!("{}-{}-{number}.yaml", id.kind.to_ascii_lowercase(), id.name));
            number += 1;
        }
        file
    }
}

fn file_name(id: &ResourceId) -> PathBuf {
    PathBuf::from(format!("{}-{}.yaml", id.kind.to_ascii_lowercase(), id.name))
}

pub fn absent(file: &Path) -> Result<(), Failure> {
    if file.exists() {
        return Err(Failure::new(format!("{} exists already; nothing was imported", file.display()))
            .help("choose another place with --out"));
    }
    Ok(())
}

/// Never replaces a file.
pub fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let cannot = |error: std::io::Error| Failure::caused(format!("cannot write {}", path.display()), &error);
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    let mut file = std::fs::File::create_new(path).map_err(cannot)?;
    file.write_all(text.as_bytes()).map_err(cannot)
}
