//! A plan by the embedded engine.

use super::carry_out::{is_protected, make_plan};
use super::manifests::Loaded;
use super::policies;
use super::saved_plan::SavedPlan;
use super::workspace::Workspace;
use crate::backend::{PlanOptions, Proposal};
use crate::failure::Failure;
use crate::view::confirm::protected;
use berth_model::ResourceId;
use std::sync::Arc;

pub async fn plan(workspace: &Workspace, loaded: Loaded, options: &PlanOptions<'_>) -> Result<Proposal, Failure> {
    let manifests = loaded.into_manifests();
    let place = |id: &ResourceId| manifests.iter().find(|m| m.id == *id).and_then(|m| m.place());
    let (mut request, clouds) = workspace.request(&manifests, Vec::new()).await?;
    request.allow_recreate = options.recreate.allow_recreate;
    let plan = Arc::unwrap_or_clone(make_plan(&clouds, &request, &workspace.store, &place).await?.plan);
    if let Some(path) = options.out {
        SavedPlan::save(&workspace.store, &manifests, &[], &plan, path)?;
    }
    let judgement = policies::judgement(&workspace.store, &request, &plan).await?;
    let protected = protected(&plan, |id| is_protected(&request, id));
    Ok(Proposal { plan, judgement, protected })
}
