//! What tasks answer, as JSON: plans, drift checks, imports.

use crate::context::CheckRow;
use berth_engine::handler::{Raised, Trouble};
use berth_engine::{Drift, Plan};
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
    pub differences: Vec<DifferenceRow>,
}

/// One difference, as `ControlMeta::drift` keeps it, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DifferenceRow {
    pub unit: String,
    /// Below the spec, such as `default_node_pool.node_count`; empty when the object is gone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    #[serde(default)]
    pub declared: Value,
    #[serde(default)]
    pub found: Value,
}

/// The differences of one resource. Whatever was in an object that is gone went with it.
pub fn differences(drift: &Drift) -> Vec<DifferenceRow> {
    let main = |key: &str| matches!(key, "cluster" | "network" | "pool");
    let whole = drift.gone.iter().find(|gone| main(&gone.key)).map(|gone| gone.key.as_str());
    let gone = drift.gone.iter().filter(|gone| whole.is_none_or(|whole| whole == gone.key));
    let gone = gone.map(|gone| DifferenceRow {
        unit: gone.key.clone(),
        field: String::new(),
        declared: Value::Null,
        found: Value::Null,
    });
    let changed = drift.changed.iter().flat_map(|unit| {
        // Only the additional pools of a cluster stand elsewhere than in the spec itself, and their keys say where.
        let at = unit.key.strip_prefix("pool/").map(|name| format!("additional_node_pools[{name}]."));
        unit.changes.iter().map(move |change| DifferenceRow {
            unit: unit.key.clone(),
            field: format!("{}{}", at.as_deref().unwrap_or_default(), change.field),
            declared: change.to.clone(),
            found: change.from.clone(),
        })
    });
    gone.chain(changed).collect()
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
