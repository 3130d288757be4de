//! Kinds, manifests, validation, references. No I/O: everything here takes data and returns data.

/// Message types generated from `proto/`.
#[allow(clippy::all, rustdoc::all)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/pb.rs"));
}

/// The descriptors of every kind, with options and without comments.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub mod annotations;
pub mod case;
mod decode;
mod diagnostic;
mod edit;
mod explain;
mod graph;
mod id;
mod json;
mod manifest;
mod metadata;
mod path;
pub mod phrasing;
mod policy_test;
mod prose;
mod refs;
mod registry;
mod rule;
mod schedule;
mod schema;
mod secrets;
pub mod shape;
mod stack_input;
mod starter;
mod template;
mod validate;
mod visit;
pub mod yaml;

pub use diagnostic::{Diagnostic, Severity, Span, Unresolved};
pub use edit::{EditError, set_list, set_scalar};
pub use explain::{Explanation, NoSuchField, Row, TemplateRow, explain};
pub use graph::{Graph, Need, graph};
pub use id::{ResourceId, is_scope_name};
pub use manifest::{Filled, FromJsonError, Manifest, Source, parse};
pub use policy_test::{MAX_CASES, POLICY_TEST, PolicyCase, policy_tests};
pub use prose::Prose;
pub use refs::{Ref, metadata_value};
pub use registry::{Kind, Registry, add_kinds, registry};
pub use rule::{MAX_RULE_BYTES, RULE_VARIABLES, RuleError, parse_rule, rule_env};
pub use schedule::{SHORTEST_INTERVAL, Schedule, ScheduleError};
pub use schema::{schema, schema_all};
pub use secrets::REDACTED;
pub use stack_input::{ProviderCredential, stack_input};
pub use starter::{StarterError, starter, starter_set};
pub use template::templates;
pub use validate::format::{Format, duration};
pub use yaml::{MAX_FILE_BYTES, too_large};
