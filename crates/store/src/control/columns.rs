//! Resources' ids as columns of statements about many rows.

use berth_model::ResourceId;
use serde::Serialize;

pub(super) const IDS: &[(&str, &str)] = &[("kind", "text"), ("name", "text"), ("org", "text"), ("env", "text")];
/// Columns of [`Numbered`].
pub(super) const NUMBERED: &[(&str, &str)] =
    &[("n", "bigint"), ("kind", "text"), ("name", "text"), ("org", "text"), ("env", "text")];
/// Columns of [`Timed`].
pub(super) const TIMED: &[(&str, &str)] =
    &[("kind", "text"), ("name", "text"), ("org", "text"), ("env", "text"), ("now", "bigint")];

/// An id as the columns of a statement: serde leaves out what is empty, and a missing one would be null.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub(super) struct IdRow<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    pub org: &'a str,
    pub env: &'a str,
}

impl<'a> From<&'a ResourceId> for IdRow<'a> {
    fn from(id: &'a ResourceId) -> Self {
        Self { kind: &id.kind, name: &id.name, org: &id.org, env: &id.env }
    }
}

#[derive(Serialize)]
pub(super) struct Numbered<'a> {
    pub n: i64,
    #[serde(flatten)]
    pub id: IdRow<'a>,
}

#[derive(Serialize)]
pub(super) struct Timed<'a> {
    pub now: i64,
    #[serde(flatten)]
    pub id: IdRow<'a>,
}
