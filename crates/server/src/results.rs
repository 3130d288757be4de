//! What tasks answer, as JSON: plans, drift checks, imports.

use crate::context::CheckRow;
use berth_engine::handler::{Raised, Trouble};
use berth_engine::{Finding, Plan};
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
}

impl TroubleRow {
    pub fn of(id: &ResourceId, trouble: &Trouble) -> Self {
        Self { id: id.clone(), message: trouble.message.clone(), help: trouble.help.clone() }
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
    pub checked: Vec<CheckRow>,
    pub drifted: Vec<DriftedRow>,
    pub troubles: Vec<TroubleRow>,
    pub calls: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DriftedRow {
    pub id: ResourceId,
    pub generation: i64,
    /// As `ControlMeta::drift` keeps them, too.
    pub differences: Vec<Finding>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ImportResult {
    pub raised: Vec<RaisedRow>,
    pub calls: u64,
}

/// An object of a cloud, described as a resource.
#[derive(Debug, Serialize, Deserialize)]
pub struct RaisedRow {
    pub kind: String,
    pub name: String,
    pub spec: Value,
    pub units: BTreeMap<String, String>,
    pub links: Vec<(String, String, String)>,
}

impl From<Raised> for RaisedRow {
    fn from(raised: Raised) -> Self {
        let Raised { kind, name, spec, units, links } = raised;
        Self { kind, name, spec, units, links }
    }
}

impl From<RaisedRow> for Raised {
    fn from(row: RaisedRow) -> Self {
        let RaisedRow { kind, name, spec, units, links } = row;
        Self { kind, name, spec, units, links }
    }
}
