//! Objects taken over by a server: it keeps them, and their manifests are written here.

use super::carry_out::tell;
use super::follow::{Goal, Watch, follow};
use super::{CLOUDS_WITHIN, Remote, messages};
use crate::backend::{ImportJob, Imported};
use crate::failure::{Exit, Failure};
use crate::local::carry_out::print_result;
use crate::local::import_files::{absent, write_new};
use berth_clouds::import::LeftOut;
use berth_engine::{Action, Plan, Report, ResourcePlan};
use berth_server::pb;
use std::time::{Duration, Instant};

pub async fn import(remote: &Remote, job: &ImportJob<'_>) -> Result<Imported, Failure> {
    let started = Instant::now();
    if let Some((id, _)) = &job.one {
        absent(&job.files.path(id))?;
    }
    let since = remote.last_event().await?;
    let pb::ImportResponse { resources: imported, left_out } = ask(remote, job).await?;
    let left_out: Vec<LeftOut> = left_out
        .into_iter()
        .map(|one| LeftOut { kind: one.kind, name: one.name, object: one.object_id, reason: one.reason })
        .collect();
    if imported.is_empty() {
        anstream::eprintln!("nothing to import: everything that Berth can describe is managed already");
        print_result(&Plan::default(), &Report::default(), Duration::ZERO, 0, job.format)?;
        return Ok(Imported { exit: Exit::Done, left_out });
    }
    let (plan, goals) = write_manifests(job, &imported)?;
    if job.run.no_wait {
        let pending = goals.into_iter().map(|goal| goal.id).collect();
        print_result(&plan, &Report { pending, ..Report::default() }, started.elapsed(), 0, job.format)?;
        return Ok(Imported { exit: Exit::Done, left_out });
    }
    let watch = Watch { since, timeout: job.run.timeout, approvals: job.run.wait };
    let followed = follow(remote, goals, &plan, watch).await?;
    print_result(&plan, &followed.report, started.elapsed(), 0, job.format)?;
    let exit = tell(&followed, false, started);
    if exit == Exit::Done && job.format.is_for_people() {
        anstream::eprintln!("nothing in the cloud was changed");
    }
    Ok(Imported { exit, left_out })
}

async fn ask(remote: &Remote, job: &ImportJob<'_>) -> Result<pb::ImportResponse, Failure> {
    let (id, object) = job.one.clone().unzip();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let mut request = tonic::Request::new(pb::ImportRequest {
        provider: job.provider.clone(),
        kind: id.as_ref().map(|id| id.kind.clone()).unwrap_or_default(),
        name: id.map(|id| id.name).unwrap_or_default(),
        org: job.org.clone(),
        env: job.env.clone(),
        object_id: object.unwrap_or_default(),
        account: text(job.account),
        region: text(job.region),
    });
    request.set_timeout(CLOUDS_WITHIN);
    let mut resources = remote.client.resources();
    let answer = remote.by_worker(resources.import(request)).await;
    Ok(answer.map_err(|status| remote.fail(&status))?.into_inner())
}

/// What is imported is in the server by now: a manifest must not be lost because its file exists.
fn write_manifests(job: &ImportJob<'_>, imported: &[pb::Imported]) -> Result<(Plan, Vec<Goal>), Failure> {
    let mut plan = Plan::default();
    let mut goals = Vec::new();
    for one in imported {
        let id = messages::id_of(one.id.as_ref());
        let file = job.files.free_path(&id);
        write_new(&file, &one.text)?;
        if job.format.is_for_people() {
            anstream::eprintln!("{id} imported; its manifest is {}", file.display());
        }
        plan.resources.push(ResourcePlan {
            id: id.clone(),
            action: Action::Resume,
            units: Vec::new(),
            after: Vec::new(),
            typical_seconds: None,
            strays: Vec::new(),
        });
        goals.push(Goal { id, gone: false, generation: 1, before: None });
    }
    Ok((plan, goals))
}
