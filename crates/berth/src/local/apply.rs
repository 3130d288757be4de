//! Manifests applied by the embedded engine.

use super::carry_out::{allowed, carry_out, make_plan, moved};
use super::policies;
use super::workspace::Workspace;
use crate::args::{Address, ConfirmArgs};
use crate::backend::{ApplySource, ChangeOptions, Ended, SavedFile, lookup};
use crate::failure::{Exit, Failure};
use crate::view::output::Format;
use crate::view::plan_view;
use berth_engine::{Plan, Request};
use berth_model::{Manifest, ResourceId};
use berth_store::{Filter, Run};
use std::sync::Arc;
use std::time::Instant;

/// What is to be made so, and the saved plan that says how.
#[derive(Default)]
struct Given {
    manifests: Vec<Arc<Manifest>>,
    /// Resources to delete, and the plan that was saved.
    promise: Option<(Vec<ResourceId>, Plan)>,
}

pub async fn apply(workspace: &Workspace, source: ApplySource, options: &ChangeOptions<'_>) -> Result<Ended, Failure> {
    let started = Instant::now();
    // Checked before anything else: a saved plan that was modified is refused.
    let (mut given, stored) = read(workspace, source)?;
    // Taken before the plan is made, so that no other command changes what the plan is made from.
    let run = workspace.begin("apply").await?;
    if let Some(addresses) = stored {
        given.manifests = applied(workspace, &addresses).await?;
    }
    let Given { manifests, promise } = given;
    let unwanted = promise.as_ref().map(|(ids, _)| ids.clone()).unwrap_or_default();
    let place = |id: &ResourceId| manifests.iter().find(|m| m.id == *id).and_then(|m| m.place());
    let (mut request, clouds) = workspace.request(&manifests, unwanted).await?;
    request.allow_recreate = options.recreate.allow_recreate;
    let planned = make_plan(&clouds, &request, &workspace.store, &place).await?;
    if let Some((_, promise)) = &promise
        && !promise.does_what(&planned.plan)
    {
        return Err(moved(promise, &planned.plan));
    }
    if options.for_people() && !planned.plan.is_quiet() {
        let allowed = options.confirm.allow_replace || promise.is_some();
        anstream::eprint!("{}", plan_view::text(&planned.plan, options.format == Format::Wide, allowed));
    }
    policies::check(&workspace.store, &request, &planned.plan).await?;
    // A saved plan was confirmed when it was looked at, with what it takes away.
    let sandbox = workspace.args.sandbox.sandbox;
    let confirm = match promise.is_some() {
        true => ConfirmArgs { yes: true, allow_replace: true, sandbox },
        false => ConfirmArgs { sandbox, ..options.confirm },
    };
    let work = allowed(&planned.plan, confirm, &request)?;
    let began = if work { Instant::now() } else { started };
    let settled = save(run, &mut request).await?;
    let mut ended = Ended {
        exit: Exit::Done,
        count: manifests.len(),
        cluster: None,
        idle: !work && settled,
        began,
        calls: clouds.calls(),
    };
    if ended.idle && options.for_people() {
        run.finish().await;
        return Ok(ended);
    }
    ended.count = planned.plan.resources.len();
    ended.cluster =
        planned.plan.resources.iter().map(|r| &r.id).find(|id| id.kind.ends_with("KubernetesCluster")).cloned();
    ended.exit = carry_out(&clouds, run, &request, planned, options.run, options.format).await?;
    Ok(ended)
}

/// The manifests, or the addresses of those that are in the state.
fn read(workspace: &Workspace, source: ApplySource) -> Result<(Given, Option<Vec<Address>>), Failure> {
    Ok(match source {
        ApplySource::Files(loaded) => (Given { manifests: loaded.into_manifests(), promise: None }, None),
        ApplySource::StackInput(manifest, credentials) => {
            workspace.give(credentials);
            (Given { manifests: vec![manifest], promise: None }, None)
        }
        ApplySource::Stored(addresses) => (Given::default(), Some(addresses)),
        ApplySource::Saved(SavedFile::Local(saved)) => {
            let opened = saved.open(&workspace.store)?;
            (Given { manifests: opened.manifests, promise: Some((opened.unwanted, opened.plan)) }, None)
        }
        ApplySource::Saved(SavedFile::Server(_)) => return Err(Failure::new("the plan was made by a server")),
    })
}

/// Manifests that are written in one transaction: a fleet's are not held in memory as rows all at once.
const SAVED_AT_ONCE: usize = 2_000;

/// Writes the desired state, before anything is done about it. Answers whether all of it was carried out before.
async fn save(run: &Run, request: &mut Request) -> Result<bool, Failure> {
    let Request { wanted, known, .. } = request;
    let mut all = true;
    for part in wanted.chunks(SAVED_AT_ONCE) {
        for stored in run.save_manifests(part.iter().map(|wanted| &*wanted.manifest)).await? {
            let is_settled = stored.settled();
            all &= is_settled;
            if let Some(known) = known.resources.get_mut(&stored.id) {
                known.settled = is_settled;
            }
        }
    }
    Ok(all)
}

/// Manifests of what is applied already.
async fn applied(workspace: &Workspace, addresses: &[Address]) -> Result<Vec<Arc<Manifest>>, Failure> {
    let mut manifests = Vec::new();
    let all = workspace.store.resources(&Filter::default()).await?;
    for address in addresses {
        let before = manifests.len();
        for stored in all.iter().filter(|stored| address.matches(&stored.id)) {
            manifests.push(Arc::new(stored.manifest(&workspace.store.unseal(stored)?)?));
        }
        if manifests.len() == before {
            return Err(lookup::not_applied(workspace, address).await?);
        }
    }
    Ok(manifests)
}
