//! Compiles `proto/` in pure Rust: a fresh clone needs no installed `protoc`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    for package in ["core", "civo", "digitalocean"] {
        for entry in std::fs::read_dir(root.join("berth").join(package).join("v1"))? {
            files.push(entry?.path());
        }
    }
    files.sort();

    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(&files)?;
    // Options (rules, references, secrets) live in extensions: only the encoded form keeps them, the typed set does not.
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    prost_build::Config::new()
        .btree_map(["."])
        .include_file("pb.rs")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
