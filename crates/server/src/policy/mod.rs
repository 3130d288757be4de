//! Policies: CEL over a plan, with an effect where it is true.

mod facts;
mod rule;

pub use facts::Facts;
pub use rule::{MAX_STEPS, MAX_TIME, Rule};

use berth_model::{ResourceId, RuleError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    Deny,
    Warn,
}

impl Effect {
    pub fn name(self) -> &'static str {
        match self {
            Effect::Deny => "deny",
            Effect::Warn => "warn",
        }
    }
}

/// What a policy says of one resource's plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub policy: String,
    pub effect: Effect,
    pub message: String,
    pub id: ResourceId,
}

/// `no-public-api-in-prod denies it: the API server must not be public in prod`.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = match self.effect {
            Effect::Deny => "denies it",
            Effect::Warn => "warns",
        };
        write!(f, "policy {} {does}: {}", self.policy, self.message)
    }
}

#[derive(Clone, Debug)]
pub struct Policy {
    pub name: String,
    /// Empty: of every org.
    pub org: String,
    pub effect: Effect,
    pub message: String,
    /// Empty: of every kind.
    pub kinds: Vec<String>,
    /// Empty: in every env.
    pub envs: Vec<String>,
    /// One that cannot be read counts as one that cannot be run.
    rule: Result<Rule, RuleError>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    rule: String,
    effect: String,
    message: String,
    kinds: Vec<String>,
    envs: Vec<String>,
}

impl Policy {
    /// From the manifest as JSON. It was checked before it was stored; if a newer Berth wrote something else, the policy
    /// denies what it concerns, rather than being silent.
    pub fn of(id: &ResourceId, manifest: &Value) -> Self {
        let spec = manifest.get("spec").cloned().unwrap_or_default();
        let (spec, unread) = match serde_json::from_value::<Spec>(spec) {
            Ok(spec) => (spec, None),
            Err(error) => (Spec::default(), Some(RuleError { message: error.to_string(), at: None, label: None })),
        };
        let mut envs = spec.envs;
        // A policy that belongs to an env is about that env.
        if !id.env.is_empty() && (envs.is_empty() || envs.contains(&id.env)) {
            envs = vec![id.env.clone()];
        }
        Self {
            name: id.name.clone(),
            org: id.org.clone(),
            effect: if spec.effect == "warn" { Effect::Warn } else { Effect::Deny },
            message: spec.message,
            kinds: spec.kinds,
            envs,
            rule: unread.map_or_else(|| Rule::new(&spec.rule), Err),
        }
    }

    /// Policies guard what runs in clouds, never the guardrails: a policy must not keep its own mending out.
    pub fn concerns(&self, id: &ResourceId) -> bool {
        let holds = |list: &[String], value: &str| list.is_empty() || list.iter().any(|entry| entry == value);
        !["Environment", "Policy"].contains(&id.kind.as_str())
            && (self.org.is_empty() || self.org == id.org)
            && holds(&self.kinds, &id.kind)
            && holds(&self.envs, &id.env)
    }

    /// What it says of a plan; nothing where its rule does not hold. A rule that cannot be run has its effect: a guard
    /// that fails must not open the gate.
    pub fn judge(&self, facts: &Facts) -> Option<Verdict> {
        let held = match &self.rule {
            Ok(rule) => rule.holds(facts).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let message = match held {
            Ok(false) => return None,
            Ok(true) if self.message.is_empty() => "its rule holds".to_owned(),
            Ok(true) => self.message.clone(),
            Err(error) => format!("its rule could not be evaluated: {error}"),
        };
        Some(Verdict { policy: self.name.clone(), effect: self.effect, message, id: facts.id().clone() })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
