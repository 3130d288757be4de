//! When a resource is next compared with its cloud, and what happens then.

use crate::fault::Fault;
use berth_model::ResourceId;
use berth_store::Control;
use jiff::Timestamp;

/// Reads what decides about drift checks; for one batch.
pub struct Schedules<'a> {
    control: &'a Control,
}

impl<'a> Schedules<'a> {
    pub fn new(control: &'a Control) -> Self {
        Self { control }
    }

    /// The next check, and whether drift is repaired.
    pub async fn of(&mut self, id: &ResourceId, now: Timestamp) -> Result<(Option<Timestamp>, bool), Fault> {
        let Some(stored) = self.control.store().resource(id).await? else { return Ok((None, false)) };
        let manifest = stored.sealed_manifest()?;
        let policy = manifest.pointer("/metadata/annotations/berth.dev~1drift-policy").and_then(|v| v.as_str());
        let meta = self.control.meta(std::slice::from_ref(id)).await?;
        let every = meta.first().and_then(|meta| meta.drift_every);
        let next = every.and_then(|every| now.checked_add(every).ok());
        Ok((next, policy == Some("repair")))
    }
}
