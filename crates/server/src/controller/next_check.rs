//! The next drift check of a stored resource, and whether drift is repaired, from its annotations and its Environment.

use crate::drift_schedule::{drift_settings, next_check};
use crate::environment::{DriftPolicy, Environment};
use crate::fault::Fault;
use berth_model::ResourceId;
use berth_store::{Control, Filter};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// For one batch of resources: Environments are read once.
pub struct NextChecks<'a> {
    control: &'a Control,
    environments: Option<Vec<Environment>>,
}

impl<'a> NextChecks<'a> {
    pub fn new(control: &'a Control) -> Self {
        Self { control, environments: None }
    }

    async fn environments(&mut self) -> Result<&[Environment], Fault> {
        if self.environments.is_none() {
            let filter = Filter { kind: Some("Environment".into()), ..Filter::default() };
            let mut all = Vec::new();
            for stored in self.control.store().resources(&filter).await? {
                all.push(Environment::of(&stored.id, &stored.sealed_manifest().unwrap_or_default()));
            }
            self.environments = Some(all);
        }
        Ok(self.environments.as_deref().unwrap_or_default())
    }

    /// The next check, and whether drift is repaired.
    pub async fn of(&mut self, id: &ResourceId, now: Timestamp) -> Result<(Option<Timestamp>, bool), Fault> {
        let Some(stored) = self.control.store().resource(id).await? else { return Ok((None, false)) };
        let manifest = stored.sealed_manifest()?;
        let annotations: BTreeMap<String, String> = manifest
            .pointer("/metadata/annotations")
            .and_then(|annotations| serde_json::from_value(annotations.clone()).ok())
            .unwrap_or_default();
        let environment = Environment::for_resource(id, self.environments().await?);
        let rule = drift_settings(&annotations, &id.kind, environment.as_ref());
        let seed = format!("{}/{}/{}/{}", id.org, id.env, id.kind, id.name);
        Ok((next_check(&rule.schedule, now, &seed), rule.policy == DriftPolicy::Repair))
    }
}
