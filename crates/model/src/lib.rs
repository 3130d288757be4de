//! Kinds, manifests, validation, references. No I/O: everything here takes data and returns data.

/// Message types generated from `proto/`.
#[allow(clippy::all, rustdoc::all)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/pb.rs"));
}

/// The descriptors of every kind, with comments and options.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

mod id;

pub use id::ResourceId;

/// A reference's value that is only known after apply starts with this, followed by what it will be.
pub const UNKNOWN: &str = "\u{1}known after apply: ";
