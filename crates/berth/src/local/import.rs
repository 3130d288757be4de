//! Objects taken over by the embedded engine.

use super::carry_out::{carry_out, make_plan, print_result};
use super::import_files::{absent, write_new};
use super::workspace::Workspace;
use crate::backend::{ImportJob, Imported};
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::plan_view;
use berth_clouds::Clouds;
use berth_clouds::import::{self, LeftOut, Taken};
use berth_engine::handler::{Catalog, Provider, Raised};
use berth_engine::identity::other_account;
use berth_engine::record::{RecordError, Recorder};
use berth_engine::unit::Identity;
use berth_engine::{Action, Plan, Planned, Report, Request};
use berth_model::{Manifest, ResourceId};
use berth_store::Run;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub async fn import(workspace: &Workspace, job: &ImportJob<'_>) -> Result<Imported, Failure> {
    workspace.begin("import").await?;
    let (org, env) = (&job.org, &job.env);
    let accounts = workspace.accounts(&[]).await?;
    let choice = accounts.choose_for(&job.provider, job.account, org, env)?;
    let clouds = accounts.into_clouds();
    let provider = clouds.provider(&choice.name).await?;
    let identity = provider.identity().await?;
    let owners = workspace.store.owners(&choice.name, org, env).await?;
    if let Some(own) = owners.first().filter(|_| !owners.contains(&identity)) {
        return Err(other_account(&choice.name, own, &identity).into());
    }

    let region = job.region.map(str::to_owned).or(choice.region).unwrap_or_default();
    let (taken, left_out) = match &job.one {
        Some((id, object)) => (vec![take_one(workspace, &*provider, id, object, &region).await?], Vec::new()),
        None => take_all(workspace, &*provider, job).await?,
    };
    if taken.is_empty() {
        anstream::eprintln!("nothing to import: everything that Berth can describe is managed already");
        print_result(&Plan::default(), &Report::default(), Duration::ZERO, clouds.calls(), job.format)?;
        return Ok(Imported { exit: Exit::Done, left_out });
    }
    let files: Vec<PathBuf> = taken.iter().map(|one| job.files.path(&one.id)).collect();
    for file in &files {
        absent(file)?;
    }

    let links = links(workspace, &taken).await?;
    let mut manifests = Vec::with_capacity(taken.len());
    for (one, file) in taken.iter().zip(files) {
        let text = import::manifest_text(one, &links, job.account);
        let manifest = import::read_back(one, &file.display().to_string(), &text)?;
        manifests.push((Arc::new(manifest), text, file));
    }
    let exit = take_over(workspace, job, &taken, &identity, manifests).await?;
    Ok(Imported { exit, left_out })
}

async fn take_one(
    workspace: &Workspace,
    provider: &dyn Provider,
    id: &ResourceId,
    object: &str,
    region: &str,
) -> Result<Taken, Failure> {
    if workspace.store.resource(id).await?.is_some() {
        return Err(Failure::new(format!("{id} is applied already")).help("choose another name for what is imported"));
    }
    if let Some(owner) = workspace.store.units_by_object(object).await?.first() {
        return Err(Failure::new(format!("{object} is managed already, as {}", owner.resource)));
    }
    let raised = provider.raise(&id.kind, object, region).await?;
    Ok(Taken { id: id.clone(), raised })
}

/// Everything that is not managed yet, and what of it cannot be described.
async fn take_all(
    workspace: &Workspace,
    provider: &dyn Provider,
    job: &ImportJob<'_>,
) -> Result<(Vec<Taken>, Vec<LeftOut>), Failure> {
    let mut raised = provider.raise_all().await?;
    if let Some(region) = job.region {
        let is_there = |v: &serde_json::Value| v.as_str().is_some_and(|v| v.eq_ignore_ascii_case(region));
        raised.retain(|r| r.spec.get("region").is_none_or(is_there));
    }
    let named = name_all(workspace, raised, &job.org, &job.env).await?;
    Ok(import::describable(named, job.account))
}

/// Writes manifests and state, shows that the plan is empty, and settles what was taken over.
async fn take_over(
    workspace: &Workspace,
    job: &ImportJob<'_>,
    taken: &[Taken],
    identity: &Identity,
    manifests: Vec<(Arc<Manifest>, String, PathBuf)>,
) -> CommandResult {
    let run = workspace.begin("import").await?;
    let all: Vec<Arc<Manifest>> = manifests.iter().map(|(m, ..)| m.clone()).collect();
    let (request, clouds) = workspace.request(&all, Vec::new()).await?;
    run.save_manifests(all.iter().map(|manifest| &**manifest)).await?;
    let checked = match adopt(run, &request, taken, identity, &clouds).await {
        Ok(()) => nothing_changes(workspace, &all).await,
        Err(failure) => Err(failure),
    };
    let (request, clouds, planned) = match checked {
        Ok(checked) => checked,
        Err(failure) => {
            // Nothing was changed in the cloud; what was saved in the state is removed again.
            for one in taken {
                run.forget_resource(&one.id).await.map_err(|error| Failure::new(error.to_string()))?;
            }
            return Err(failure);
        }
    };
    for (_, text, file) in &manifests {
        write_new(file, text)?;
    }
    let exit = carry_out(&clouds, run, &request, planned, job.run, job.format).await?;
    if exit == Exit::Done && job.format.is_for_people() {
        for (manifest, _, file) in &manifests {
            anstream::eprintln!("{} imported; its manifest is {}", manifest.id, file.display());
        }
        anstream::eprintln!("the plan is empty: nothing in the cloud was changed");
    }
    Ok(exit)
}

/// The plan of what was taken over; an error where it would change something.
async fn nothing_changes(workspace: &Workspace, all: &[Arc<Manifest>]) -> Result<(Request, Clouds, Planned), Failure> {
    let (request, clouds) = workspace.request(all, Vec::new()).await?;
    let planned = make_plan(&clouds, &request, &workspace.store, &|_| None).await?;
    let changes = planned.plan.resources.iter().find(|r| !matches!(r.action, Action::Unchanged | Action::Resume));
    let Some(resource) = changes else { return Ok((request, clouds, planned)) };
    anstream::eprint!("{}", plan_view::text(&planned.plan, false, true));
    Err(Failure::new(format!("{} would be changed by the manifest made from it; nothing was imported", resource.id))
        .help("this is a mistake of Berth's: please report it with the plan above"))
}

/// Binds the objects to the units that the manifests lower to.
async fn adopt(
    run: &Run,
    request: &Request,
    taken: &[Taken],
    identity: &Identity,
    clouds: &Clouds,
) -> Result<(), Failure> {
    let failed = |error: RecordError| Failure::new(error.to_string());
    for row in import::rows(clouds, request, taken, Some(identity))? {
        run.save_unit(row).await.map_err(failed)?;
    }
    for one in taken {
        run.event(&one.id, "imported", "").await.map_err(failed)?;
    }
    Ok(())
}

/// Names for everything that is not managed yet.
async fn name_all(workspace: &Workspace, raised: Vec<Raised>, org: &str, env: &str) -> Result<Vec<Taken>, Failure> {
    let managed: HashSet<String> = workspace.store.all_units().await?.into_iter().filter_map(|u| u.id).collect();
    let mut used: HashSet<ResourceId> =
        workspace.store.resources(&Default::default()).await?.into_iter().map(|r| r.id).collect();
    Ok(import::name_all(raised, &managed, &mut used, org, env))
}

/// Which resource manages, or will manage, an object that others name by id.
async fn links(workspace: &Workspace, taken: &[Taken]) -> Result<HashMap<String, ResourceId>, Failure> {
    let mut links = import::own_links(taken);
    for (_, _, object) in taken.iter().flat_map(|t| &t.raised.links) {
        if !links.contains_key(object)
            && let Some(unit) = workspace.store.units_by_object(object).await?.into_iter().next()
        {
            links.insert(object.clone(), unit.resource);
        }
    }
    Ok(links)
}
