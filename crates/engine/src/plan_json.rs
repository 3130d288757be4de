//! A plan as programs see it, on the command line and by a server; and back.

use crate::plan::Plan;
use crate::unknown;
use berth_model::case::{camel_case, snake_case};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

impl Plan {
    /// For programs: stable camelCase names; what is known only after apply is said so. Resources are converted one at a
    /// time, so a large plan is not held in memory twice.
    pub fn as_json(&self) -> impl Serialize + '_ {
        PlanJson(self)
    }

    /// The same, whole.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self.as_json()).unwrap_or_default()
    }

    /// Reads what [`Plan::to_json`] wrote.
    pub fn from_json(value: &Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(unknown::from_json(&renamed(value.clone(), &snake_case)))
    }
}

struct PlanJson<'a>(&'a Plan);

impl Serialize for PlanJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Plan { resources, much_gone } = self.0;
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for resource in resources {
            let name = serde_json::to_value(resource.action).map_err(serde::ser::Error::custom)?;
            *counts.entry(name.as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let mut map = serializer.serialize_map(None)?;
        if !much_gone.is_empty() {
            map.serialize_entry("muchGone", &for_programs(much_gone))?;
        }
        map.serialize_entry("resources", &Each(resources))?;
        map.serialize_entry("summary", &counts)?;
        map.end()
    }
}

/// A list whose items are converted as they are written.
struct Each<'a, T>(&'a [T]);

impl<T: Serialize> Serialize for Each<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(for_programs))
    }
}

fn for_programs<T: Serialize>(part: &T) -> Value {
    renamed(unknown::in_json(&serde_json::to_value(part).unwrap_or_default()), &camel_case)
}

/// Values of fields are the cloud's, and stay as they are.
fn renamed(value: Value, rename: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(|item| renamed(item, rename)).collect()),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(name, value)| match name.as_str() {
                    "from" | "to" => (name, value),
                    _ => (rename(&name), renamed(value, rename)),
                })
                .collect(),
        ),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{ChangeEffect, FieldChange};
    use crate::much_gone::GoneCount;
    use crate::plan::{Action, ResourcePlan, UnitPlan};
    use crate::reason::PlanReason;
    use crate::unit::Op;
    use berth_model::ResourceId;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_back() {
        let unit = UnitPlan {
            key: "cluster".into(),
            unit_type: "civo.cluster".into(),
            at: String::new(),
            op: Some(Op::Create),
            changes: vec![FieldChange {
                field: "network_id".into(),
                from: json!({"snake_name": 1, "camelName": 2}),
                to: unknown::unknown(""),
                effect: ChangeEffect::InPlace,
            }],
            reason: Some(PlanReason::BegunNotFound),
            delete_first: true,
            gone: true,
            loses_data: true,
        };
        let plan = Plan {
            resources: vec![ResourcePlan {
                id: ResourceId::new("CivoKubernetesCluster", "shop"),
                action: Action::Create,
                units: vec![unit],
                after: vec![ResourceId::new("CivoVpc", "net")],
                typical_seconds: Some(90),
                strays: vec![],
            }],
            much_gone: vec![GoneCount { account: "main".into(), gone: 4, of: 4 }],
        };
        let json = plan.to_json();
        assert_eq!(json["resources"][0]["typicalSeconds"], 90);
        assert_eq!(json["resources"][0]["units"][0]["unitType"], "civo.cluster");
        assert_eq!(json["resources"][0]["units"][0]["changes"][0]["to"], "(known after apply)");
        assert_eq!(json["resources"][0]["units"][0]["changes"][0]["from"]["snake_name"], 1);
        assert_eq!(json["resources"][0]["units"][0]["reason"], "begun_not_found");
        assert_eq!(json["muchGone"][0]["gone"], 4);
        assert_eq!(json["summary"], json!({"create": 1}));
        assert_eq!(Plan::from_json(&json).unwrap(), plan);
    }
}
