//! A plan by a server.

use super::Remote;
use super::carry_out::{is_protected, judgement, known_before, make_plan};
use super::saved_plan::SavedServerPlan;
use crate::backend::{PlanOptions, Proposal};
use crate::failure::{Exit, Failure};
use crate::local::manifests::Loaded;
use crate::local::saved_plan;
use crate::view::confirm::protected;
use berth_model::ResourceId;

pub async fn plan(
    remote: &Remote,
    mut loaded: Loaded,
    options: &PlanOptions<'_>,
) -> Result<Result<Proposal, Exit>, Failure> {
    let files = loaded.files();
    let planned = make_plan(remote, &files, &[], None, Some(&mut loaded), options.format, options.recreate).await?;
    let planned = match planned {
        Ok(planned) => planned,
        Err(exit) => return Ok(Err(exit)),
    };
    if let Some(path) = options.out {
        saved_plan::write(&SavedServerPlan::new(remote.url(), &loaded, &planned)?, path)?;
    }
    let plan = planned.plan;
    let ids: Vec<ResourceId> = plan.resources.iter().map(|r| r.id.clone()).collect();
    let there = known_before(remote, &ids).await?;
    let protected = protected(&plan, |id| is_protected(&there, &loaded.manifests, id));
    Ok(Ok(Proposal { plan, judgement: judgement(&planned.verdicts), protected }))
}
