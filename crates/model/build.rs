//! Compiles `proto/` in pure Rust: a fresh clone needs no installed `protoc`.

use prost::Message;
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

    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
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
