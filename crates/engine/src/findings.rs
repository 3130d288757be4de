//! Drift for people: what was declared, what was found, what applying again would do about it.

use crate::diff::Takes;
use crate::drift::Drift;
use crate::handler::Catalog;
use crate::unit::UnitState;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Key of the unit in its resource.
    pub unit: String,
    #[serde(rename = "type", default)]
    pub unit_type: String,
    /// Below the spec, such as `default_node_pool.node_count`; empty when the object is gone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The unit's own name of the property.
    #[serde(skip)]
    pub property: String,
    #[serde(default)]
    pub gone: bool,
    #[serde(default)]
    pub declared: Value,
    #[serde(default)]
    pub found: Value,
    /// Id of another object that the unit's create made; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stray: String,
    /// What apply would do about it.
    #[serde(default)]
    pub apply: String,
    /// Apply would not put it back.
    #[serde(default)]
    pub refused: bool,
    /// What the spec would say to declare what was found, where that is not `field` itself: its fields and their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub declares: BTreeMap<String, Value>,
}

/// Where in the spec a unit's properties stand. Lowering knows it, and the state does not keep it; a check of thousands of
/// units must not lower their resources for it. Only the additional pools of a CivoKubernetesCluster stand elsewhere than in
/// the spec itself, and their keys, which never change meaning, say where.
pub fn place_in_spec(key: &str) -> Option<String> {
    key.strip_prefix("pool/").map(|name| format!("additional_node_pools[{name}]"))
}

/// The unit that a resource is about, as opposed to what it has besides.
pub fn is_main(key: &str) -> bool {
    matches!(key, "cluster" | "network" | "pool")
}

/// The findings of one resource.
pub async fn findings(catalog: &dyn Catalog, units: &[UnitState], drift: &Drift) -> Vec<Finding> {
    let mut found = Vec::new();
    let whole = drift.gone.iter().find(|gone| is_main(&gone.key));
    for gone in &drift.gone {
        // Whatever was in a cluster went with it.
        if whole.is_some_and(|main| main.key != gone.key) {
            continue;
        }
        found.push(Finding {
            unit: gone.key.clone(),
            unit_type: gone.unit_type.clone(),
            field: String::new(),
            property: String::new(),
            gone: true,
            declared: Value::Null,
            found: Value::Null,
            stray: String::new(),
            apply: if gone.unit_type.ends_with(".cluster") {
                "apply would make a new one, without what ran in it".into()
            } else {
                "apply would make it again".into()
            },
            refused: false,
            declares: BTreeMap::new(),
        });
    }
    for changed in &drift.changed {
        let account = units.iter().find(|unit| unit.key == changed.key).map(|unit| unit.account.as_str());
        let provider = match account {
            Some(account) => catalog.provider(account).await.ok(),
            None => None,
        };
        let handler = provider.as_deref().and_then(|provider| provider.handler(&changed.unit_type));
        for change in &changed.changes {
            let refusal = handler.and_then(|h| h.refuse_change(&change.field, &change.from, &change.to));
            let refused = refusal.is_some();
            let apply = match (refusal, change.takes) {
                (Some(why), _) => format!("apply would refuse to put it back: {why}"),
                (None, Takes::InPlace) => "apply would put it back in place".into(),
                (None, Takes::Roll) => {
                    "apply would put it back with new nodes first, the old ones drained after".into()
                }
                (None, Takes::Replace) => "apply would replace it, which needs --allow-replace".into(),
            };
            let prefix = place_in_spec(&changed.key).map(|at| format!("{at}.")).unwrap_or_default();
            found.push(Finding {
                unit: changed.key.clone(),
                unit_type: changed.unit_type.clone(),
                field: format!("{prefix}{}", change.field),
                property: change.field.clone(),
                gone: false,
                declared: change.to.clone(),
                found: change.from.clone(),
                stray: String::new(),
                apply,
                refused,
                declares: handler.map(|h| h.declares(&change.field, &change.from)).unwrap_or_default(),
            });
        }
    }
    for (key, stray) in &drift.strays {
        found.push(Finding {
            unit: key.clone(),
            unit_type: stray.unit_type.clone(),
            field: String::new(),
            property: String::new(),
            gone: false,
            declared: Value::Null,
            found: Value::Null,
            stray: stray.id.clone(),
            apply: format!("apply would leave it alone; to delete it:   {}", stray.remove),
            refused: true,
            declares: BTreeMap::new(),
        });
    }
    found
}
