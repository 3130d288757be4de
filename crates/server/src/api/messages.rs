//! The API's messages about stored resources and tasks.

use crate::pb;
use crate::values::{object_to_struct, to_struct, to_value};
use berth_model::REDACTED;
use berth_store::{AppliedResult, ControlMeta, StoreError, StoredResource, Task};
use jiff::Timestamp;
use serde_json::Value;

pub fn time(at: Timestamp) -> String {
    at.to_string()
}

fn maybe_time(at: Option<Timestamp>) -> String {
    at.map(time).unwrap_or_default()
}

/// A resource to show: secrets are replaced by a word.
pub fn resource(
    stored: &StoredResource,
    meta: Option<&ControlMeta>,
    sandbox: bool,
) -> Result<pb::Resource, StoreError> {
    let mut manifest = stored.sealed_manifest()?;
    for pointer in stored.sealed_paths()? {
        if let Some(slot) = manifest.pointer_mut(&pointer) {
            *slot = Value::from(REDACTED);
        }
    }
    let drift = meta.filter(|meta| !meta.drift.is_empty()).map(|meta| differences(&meta.drift)).unwrap_or_default();
    let status = &stored.status;
    Ok(pb::Resource {
        id: Some((&stored.id).into()),
        api_version: stored.api_version.clone(),
        generation: stored.generation,
        observed_generation: status.observed_generation,
        manifest: Some(object_to_struct(&manifest)),
        state: status.state.to_string(),
        message: status.message.clone(),
        outputs: Some(to_struct(&status.outputs)),
        secret_outputs: stored.secret_names.clone(),
        facts: Some(to_struct(&status.facts)),
        deleting: stored.deleting,
        created_at: time(stored.created_at),
        updated_at: time(stored.updated_at),
        status_at: maybe_time(stored.status_at),
        applied_by: meta.map(|meta| meta.applied_by.clone()).unwrap_or_default(),
        source_file: stored.source.file.clone(),
        source_document: stored.source.document,
        drift_checked_at: meta.map(|meta| maybe_time(meta.drift_checked_at)).unwrap_or_default(),
        drift,
        sandbox,
    })
}

/// What a drift check left: a list of differences as JSON.
pub fn differences(text: &str) -> Vec<pb::Difference> {
    let Ok(Value::Array(rows)) = serde_json::from_str(text) else { return Vec::new() };
    rows.iter().map(difference).collect()
}

pub fn difference(row: &Value) -> pb::Difference {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let shown = |name: &str| row.get(name).filter(|json| !json.is_null()).map(to_value);
    pb::Difference {
        unit: text("unit"),
        field: text("field"),
        declared: shown("declared"),
        found: shown("found"),
        unit_type: text("type"),
        apply: text("apply"),
        refused: row["refused"].as_bool().unwrap_or_default(),
        stray: text("stray"),
        property: text("property"),
        besides: row["besides"].as_bool().unwrap_or_default(),
        declares: row.get("declares").map(object_to_struct),
    }
}

pub fn task(task: &Task, sandbox: bool) -> pb::Task {
    pb::Task {
        id: task.id.0.clone(),
        op: task.op.as_str().into(),
        resource: task.resource.as_ref().map(Into::into),
        resources: u32::try_from(task.resources.len()).unwrap_or(u32::MAX).max(task.resource.is_some().into()),
        service: task.service.clone(),
        account: task.account.clone(),
        state: task.state.as_str().into(),
        worker: task.worker.clone(),
        attempts: task.attempts,
        created_at: time(task.created_at),
        started_at: maybe_time(task.started_at),
        ended_at: maybe_time(task.ended_at),
        lease_until: maybe_time(task.lease_until),
        run_after: time(task.run_after),
        message: task.message.clone(),
        fence: task.fence,
        priority: task.priority,
        cancelling: task.cancelling,
        generation: task.generation,
        help: task.help.clone(),
        sandbox,
    }
}

pub fn applied(applied: &berth_store::Applied) -> pb::Applied {
    let result = match applied.result {
        AppliedResult::Created => "created",
        AppliedResult::Updated => "updated",
        AppliedResult::Unchanged => "unchanged",
        AppliedResult::Deleting => "deleting",
    };
    pb::Applied { id: Some((&applied.id).into()), generation: applied.generation, result: result.into() }
}
