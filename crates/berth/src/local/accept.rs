//! Accepted drift in the project's own state.

use super::workspace::Workspace;
use crate::backend::accept::Accepted;
use crate::failure::Failure;
use crate::view::resource_view::{self, DRIFT};
use berth_clouds::units::summary_facts_of;
use berth_engine::Finding;
use berth_engine::handler::SummaryFacts;
use berth_engine::record::Recorder;
use berth_store::{NewResource, Run};
use serde_json::Value;

pub async fn accept(workspace: &Workspace, accepted: Vec<Accepted<'_>>) -> Result<(), Failure> {
    let run = workspace.begin("drift --accept").await?;
    for one in accepted {
        record(workspace, run, one).await?;
    }
    run.finish().await;
    Ok(())
}

async fn record(workspace: &Workspace, run: &Run, one: Accepted<'_>) -> Result<(), Failure> {
    let Accepted { stored, manifest, findings, .. } = one;
    let failed = |error: berth_engine::record::RecordError| Failure::new(error.to_string());
    let was_settled = stored.settled();
    let mut new = NewResource::of(&manifest)?;
    new.source = stored.source.clone();
    run.save_resource(new).await?;
    for mut unit in workspace.store.units_of(&stored.id).await? {
        let mine: Vec<&&Finding> =
            findings.iter().filter(|finding| finding.unit == unit.key && !unit.deposed).collect();
        if mine.is_empty() {
            continue;
        }
        for finding in mine {
            unit.props.insert(finding.property.clone(), finding.found.clone());
        }
        run.save_unit(unit).await.map_err(failed)?;
    }
    let mut status = stored.status.clone();
    status.facts.remove(DRIFT);
    for finding in &findings {
        let facts_with = |value: &Value| summary_facts_of(&finding.unit_type, &finding.property, value);
        SummaryFacts::replace_in(&mut status.facts, facts_with(&finding.declared), facts_with(&finding.found));
    }
    // A resource that was up to date remains so: the cloud already has the accepted values.
    if was_settled {
        status.observed_generation = 0;
    }
    run.status(&stored.id, status).await.map_err(failed)?;
    let fields: Vec<String> = findings
        .iter()
        .map(|finding| format!("{} = {}", finding.field, resource_view::value_text(&finding.found)))
        .collect();
    run.event(&stored.id, "drift accepted", &fields.join(", ")).await.map_err(failed)
}
