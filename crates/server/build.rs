//! Compiles the API in pure Rust: a fresh clone needs no installed `protoc`.

use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("../../proto");
    println!("cargo:rerun-if-changed={}/berth/api", root.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root.join("berth/api/v1"))? {
        files.push(entry?.path());
    }
    files.sort();
    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(&files)?;
    // Methods' options live in extensions, and comments become the OpenAPI document's texts: the encoded form keeps both.
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("api.bin"), compiler.encode_file_descriptor_set())?;
    let mut config = prost_build::Config::new();
    config.btree_map(["."]);
    // Secrets are in these: they must not be printed by accident.
    config.skip_debug([
        ".berth.api.v1.UnitRow",
        ".berth.api.v1.StatusRow",
        ".berth.api.v1.KubeconfigResponse",
        ".berth.api.v1.CreateTokenResponse",
        ".berth.api.v1.LoginRequest",
        ".berth.api.v1.ManifestFile",
        ".berth.api.v1.OutputsResponse",
        ".berth.api.v1.LeasedTask",
    ]);
    tonic_prost_build::configure()
        .include_file("api.rs")
        .compile_fds_with_config(compiler.file_descriptor_set(), config)?;
    Ok(())
}
