//! What ARCHITECTURE.md says of the layers, and how long and how often things may stand, checked on the sources and on
//! Cargo's own graph.

mod claims;
mod cloud_names;
mod dependencies;
mod prose;
mod structure;

use std::path::PathBuf;

/// The sources of a crate, without its tests.
fn product_sources(name: &str) -> Vec<PathBuf> {
    let folder = structure::root().join("crates").join(name).join("src");
    let mut files = structure::rust_files(&folder);
    files.retain(|path| {
        let below = path.strip_prefix(&folder).expect("below the folder");
        !below.iter().any(|part| part == "tests" || part.to_string_lossy().ends_with("tests.rs"))
    });
    assert!(files.len() > 5, "{name} was not read");
    files
}
