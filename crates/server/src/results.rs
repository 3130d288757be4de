//! What tasks answer, as JSON: plans, drift checks, imports.

use crate::context::CheckRow;
use berth_engine::handler::{Class, Raised, Trouble};
use berth_engine::unit::Identity;
use berth_engine::{Finding, GoneCount, Plan};
use berth_model::ResourceId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What stands in the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TroubleRow {
    pub id: ResourceId,
    pub message: String,
    pub help: Vec<String>,
    /// The object that has the name already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_by: Option<String>,
    /// The lines of `help` that do not name that object, for readers who may not see it; absent from workers of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_help: Option<Vec<String>>,
}

impl TroubleRow {
    pub fn of(id: &ResourceId, trouble: &Trouble) -> Self {
        let taken_by = match &trouble.class {
            Class::Taken { id } => id.clone(),
            _ => None,
        };
        let open_help = taken_by.is_some().then(|| trouble.open_help_lines());
        Self { id: id.clone(), message: trouble.to_string(), help: trouble.help_lines(), taken_by, open_help }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PlanResult {
    pub plan: Plan,
    pub troubles: Vec<TroubleRow>,
    /// Requests that were sent to clouds.
    pub calls: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DriftResult {
    /// How much of each account was looked for and not found.
    #[serde(default)]
    pub counts: Vec<GoneCount>,
    /// What was asked for in place of a comparison.
    #[serde(default)]
    pub located: Option<Located>,
    pub checked: Vec<CheckRow>,
    pub drifted: Vec<DriftedRow>,
    pub troubles: Vec<TroubleRow>,
    pub calls: u64,
}

/// Which objects an account's credentials find by their ids.
#[derive(Debug, Serialize, Deserialize)]
pub struct Located {
    /// Whom the credentials belong to.
    pub identity: Identity,
    /// Tokens of the units whose objects were found.
    pub tokens: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DriftedRow {
    pub id: ResourceId,
    pub generation: i64,
    /// Keys of the units whose objects are not found.
    #[serde(default)]
    pub gone: Vec<String>,
    /// As `ControlMeta::drift` keeps them, too.
    pub differences: Vec<Finding>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ImportResult {
    pub raised: Vec<RaisedRow>,
    /// Whom the credentials belong to that showed the objects; absent from workers of earlier versions.
    #[serde(default)]
    pub identity: Option<Identity>,
    pub calls: u64,
}

/// An object of a cloud, described as a resource.
#[derive(Debug, Serialize, Deserialize)]
pub struct RaisedRow {
    pub kind: String,
    pub name: String,
    #[serde(default)]
    pub object_name: String,
    pub spec: Value,
    pub units: BTreeMap<String, String>,
    pub links: Vec<(String, String, String)>,
}

impl From<Raised> for RaisedRow {
    fn from(raised: Raised) -> Self {
        let Raised { kind, name, object_name, spec, units, links } = raised;
        Self { kind, name, object_name, spec, units, links }
    }
}

impl From<RaisedRow> for Raised {
    fn from(row: RaisedRow) -> Self {
        let RaisedRow { kind, name, object_name, spec, units, links } = row;
        Self { kind, name, object_name, spec, units, links }
    }
}
