//! A plan as programs see it, on the command line and by a server; and back.

use crate::plan::Plan;
use crate::unknown;
use berth_model::case::{camel_case, snake_case};
use serde_json::{Map, Value, json};

impl Plan {
    /// Stable camelCase names; what is known only after apply is said so.
    pub fn to_json(&self) -> Value {
        let plan = serde_json::to_value(self).unwrap_or_default();
        let mut value = renamed(unknown::in_json(&plan), &camel_case);
        let mut counts = Map::new();
        for resource in &self.resources {
            let name = serde_json::to_value(resource.action).ok().and_then(|v| v.as_str().map(str::to_owned));
            let name = name.unwrap_or_default();
            let count = counts.get(&name).and_then(Value::as_u64).unwrap_or(0);
            counts.insert(name, json!(count + 1));
        }
        value["summary"] = Value::Object(counts);
        value
    }

    /// Reads what [`Plan::to_json`] wrote.
    pub fn from_json(value: &Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(unknown::from_json(&renamed(value.clone(), &snake_case)))
    }
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
