//! Compiles `proto/` in pure Rust: a fresh clone needs no installed `protoc`.

use prost::Message;
use std::path::{Path, PathBuf};

/// Folders with kinds: everything but the API itself, which has none.
fn packages(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "api") {
            folders.push(path.join("v1"));
        }
    }
    folders.sort();
    Ok(folders)
}

/// The starters and templates that stand beside the protos: (package, starter, templates).
fn beside(packages: &[PathBuf]) -> std::io::Result<String> {
    let mut rows = String::new();
    for folder in packages {
        let name = folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let text = |file: &str| match folder.join(file) {
            path if path.exists() => std::fs::read_to_string(path),
            _ => Ok(String::new()),
        };
        rows.push_str(&format!("({name:?}, {:?}, {:?}),\n", text("starter.yaml")?, text("templates.txt")?));
    }
    Ok(format!("&[\n{rows}]\n"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    let packages = packages(&root.join("berth"))?;
    let mut files = Vec::new();
    for folder in &packages {
        for entry in std::fs::read_dir(folder)? {
            files.push(entry?.path());
        }
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    std::fs::write(out.join("beside.rs"), beside(&packages)?)?;

    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(false);
    compiler.open_files(&files)?;
    // Options (rules, references, secrets) live in extensions: only the encoded form keeps them, the typed set does not.
    std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(&files)?;
    // Comments are most of the bytes and needed only by those who read about kinds: apart, they cost a start nothing.
    let mut comments = compiler.file_descriptor_set();
    comments.file.retain(|file| file.name().starts_with("berth/"));
    for file in &mut comments.file {
        let (name, info) = (file.name.take(), file.source_code_info.take());
        *file = Default::default();
        (file.name, file.source_code_info) = (name, info);
    }
    std::fs::write(out.join("comments.bin"), comments.encode_to_vec())?;
    prost_build::Config::new().btree_map(["."]).include_file("pb.rs").compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
