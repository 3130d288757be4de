//! Drift for people: what was declared, what was found, what applying again would do about it.

use crate::diff::ChangeEffect;
use crate::drift::Drift;
use crate::handler::{Catalog, Provider};
use crate::unit::UnitState;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub property: String,
    #[serde(default)]
    pub gone: bool,
    /// It is not what the resource is about, but something that the resource has besides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub besides: bool,
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

/// The handler of a unit, where its account can be connected to.
async fn provider_of(catalog: &dyn Catalog, units: &[UnitState], key: &str) -> Option<Arc<dyn Provider>> {
    let unit = units.iter().find(|unit| unit.key == key)?;
    catalog.provider(&unit.account).await.ok()
}

/// The findings of one resource.
pub async fn findings(catalog: &dyn Catalog, units: &[UnitState], drift: &Drift) -> Vec<Finding> {
    let mut found = Vec::new();
    let kind = units.first().map_or("", |unit| unit.resource.kind.as_str());
    let is_main = |key: &str| catalog.main_unit(kind) == Some(key);
    let whole = drift.gone.iter().find(|gone| is_main(&gone.key));
    for gone in &drift.gone {
        // Whatever was in a cluster went with it.
        if whole.is_some_and(|main| main.key != gone.key) {
            continue;
        }
        let provider = provider_of(catalog, units, &gone.key).await;
        let handler = provider.as_deref().and_then(|provider| provider.handler(&gone.unit_type));
        found.push(Finding {
            unit: gone.key.clone(),
            unit_type: gone.unit_type.clone(),
            field: String::new(),
            property: String::new(),
            gone: true,
            declared: Value::Null,
            found: Value::Null,
            stray: String::new(),
            besides: !is_main(&gone.key),
            apply: if handler.is_some_and(|handler| handler.holds_data()) {
                "apply would make a new one, without what ran in it".into()
            } else {
                "apply would make it again".into()
            },
            refused: false,
            declares: BTreeMap::new(),
        });
    }
    for changed in &drift.changed {
        let provider = provider_of(catalog, units, &changed.key).await;
        let handler = provider.as_deref().and_then(|provider| provider.handler(&changed.unit_type));
        for change in &changed.changes {
            let refusal = handler.and_then(|h| h.refuse_change(&change.field, &change.from, &change.to));
            let refused = refusal.is_some();
            let apply = match (refusal, change.effect) {
                (Some(why), _) => format!("apply would refuse to put it back: {why}"),
                (None, ChangeEffect::InPlace) => "apply would put it back in place".into(),
                (None, ChangeEffect::Roll) => {
                    "apply would put it back with new nodes first, the old ones drained after".into()
                }
                (None, ChangeEffect::Replace) => "apply would replace it, which needs --allow-replace".into(),
            };
            let prefix = catalog.place_in_spec(kind, &changed.key).map(|at| format!("{at}.")).unwrap_or_default();
            found.push(Finding {
                unit: changed.key.clone(),
                unit_type: changed.unit_type.clone(),
                field: format!("{prefix}{}", change.field),
                property: change.field.clone(),
                gone: false,
                besides: !is_main(&changed.key),
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
            besides: !is_main(key),
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
