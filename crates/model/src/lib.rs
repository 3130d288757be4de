//! Kinds, manifests, validation, references. No I/O: everything here takes data and returns data.

/// Message types generated from `proto/`.
#[allow(clippy::all, rustdoc::all)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/pb.rs"));
}

/// The descriptors of every kind, with comments and options.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub mod annotations;
mod decode;
mod diagnostic;
mod graph;
mod id;
mod json;
mod manifest;
mod path;
mod refs;
mod registry;
mod secrets;
pub mod shape;
mod template;
mod validate;
pub mod words;
pub mod yaml;

pub use diagnostic::{Diagnostic, Severity, Span};
pub use graph::{Graph, Need, graph};
pub use id::ResourceId;
pub use manifest::{Filled, FromJsonError, Manifest, Source, parse};
pub use refs::{Ref, metadata_value};
pub use registry::{Kind, Registry, registry};
pub use secrets::REDACTED;
pub use template::templates;
pub use validate::format::{Format, duration};
pub use yaml::{MAX_FILE_BYTES, too_large};

/// A reference's value that is only known after apply starts with this, followed by what it will be.
pub const UNKNOWN: &str = "\u{1}known after apply: ";
