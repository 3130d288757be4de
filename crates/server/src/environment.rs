//! What an Environment says of the resources in it: whether plans wait for an approval, and when drift is looked for.

use berth_model::{ResourceId, Schedule};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriftPolicy {
    /// Drift is told.
    #[default]
    Observe,
    /// What is declared is put back.
    Repair,
}

/// When to look for drift and what to do about it, where it is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriftRule {
    pub schedule: Option<Schedule>,
    pub policy: Option<DriftPolicy>,
}

impl DriftRule {
    /// What this does not say, another does.
    pub fn or(&self, other: &DriftRule) -> DriftRule {
        DriftRule {
            schedule: self.schedule.clone().or_else(|| other.schedule.clone()),
            policy: self.policy.or(other.policy),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    pub name: String,
    /// Empty: of every org.
    pub org: String,
    pub protected: bool,
    pub drift: DriftRule,
    pub kinds: BTreeMap<String, DriftRule>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    protected: bool,
    drift: Rule,
    kinds: Vec<KindRule>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Rule {
    schedule: String,
    policy: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KindRule {
    kind: String,
    schedule: String,
    policy: String,
}

/// Values were checked when the manifest was read; one that a newer Berth wrote says nothing here.
fn rule(schedule: &str, policy: &str) -> DriftRule {
    DriftRule {
        schedule: Schedule::parse(schedule).ok(),
        policy: match policy {
            "observe" => Some(DriftPolicy::Observe),
            "repair" => Some(DriftPolicy::Repair),
            _ => None,
        },
    }
}

impl Environment {
    /// From the manifest as JSON. One that cannot be read protects, since its author had a reason to write it.
    pub fn of(id: &ResourceId, manifest: &Value) -> Self {
        let spec = manifest.get("spec").cloned().unwrap_or_default();
        let spec: Spec = match spec {
            Value::Null => Spec::default(),
            spec => serde_json::from_value(spec).unwrap_or_else(|_| Spec { protected: true, ..Spec::default() }),
        };
        let kinds = spec.kinds.iter().map(|k| (k.kind.clone(), rule(&k.schedule, &k.policy))).collect();
        Self {
            name: id.name.clone(),
            org: id.org.clone(),
            protected: spec.protected,
            drift: rule(&spec.drift.schedule, &spec.drift.policy),
            kinds,
        }
    }

    fn concerns(&self, id: &ResourceId) -> bool {
        self.name == id.env && (self.org.is_empty() || self.org == id.org)
    }

    /// What holds for a resource: its own org's Environment before the one of all orgs; any of them protects.
    pub fn for_resource(id: &ResourceId, all: &[Environment]) -> Option<Environment> {
        let mut found: Vec<&Environment> = all.iter().filter(|environment| environment.concerns(id)).collect();
        found.sort_by_key(|environment| environment.org.is_empty());
        let (first, rest) = found.split_first()?;
        Some(rest.iter().fold((*first).clone(), |mut merged, other| {
            merged.protected |= other.protected;
            merged.drift = merged.drift.or(&other.drift);
            for (kind, rule) in &other.kinds {
                let own = merged.kinds.entry(kind.clone()).or_default();
                *own = own.or(rule);
            }
            merged
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn environment(org: &str, spec: Value) -> Environment {
        let id = ResourceId { org: org.into(), ..ResourceId::new("Environment", "prod") };
        Environment::of(&id, &json!({"spec": spec}))
    }

    #[test]
    fn an_org_cannot_take_protection_off_that_all_orgs_have() {
        let all = [
            environment("", json!({"protected": true, "drift": {"schedule": "1h", "policy": "repair"}})),
            environment(
                "acme",
                json!({"drift": {"schedule": "10m"}, "kinds": [{"kind": "CivoVpc", "schedule": "off"}]}),
            ),
        ];
        let cluster =
            |org: &str, env: &str| ResourceId { org: org.into(), env: env.into(), ..ResourceId::new("CivoVpc", "a") };
        let acme = Environment::for_resource(&cluster("acme", "prod"), &all).unwrap();
        assert!(acme.protected);
        assert_eq!(acme.drift.schedule, Some(Schedule::parse("10m").unwrap()));
        assert_eq!(acme.drift.policy, Some(DriftPolicy::Repair));
        assert_eq!(acme.kinds["CivoVpc"].schedule, Some(Schedule::Off));
        let other = Environment::for_resource(&cluster("other", "prod"), &all).unwrap();
        assert_eq!(other.drift.schedule, Some(Schedule::parse("1h").unwrap()));
        assert_eq!(Environment::for_resource(&cluster("acme", "dev"), &all), None);
    }

    #[test]
    fn what_cannot_be_read_protects() {
        assert!(environment("", json!({"protected": "perhaps"})).protected);
        assert!(!environment("", json!({})).protected);
    }
}
