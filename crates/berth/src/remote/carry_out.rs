//! From manifests to the end of what a server does about them: plan there, show, confirm, apply with what was seen, follow.

use super::follow::{Before, Followed, Goal, Watch, follow};
use super::saved_plan::Promise;
use super::{CLOUDS_WITHIN, Remote, messages};
use crate::args::repeated_flags::{self, complete};
use crate::args::{ConfirmArgs, RecreateArgs};
use crate::backend::{ChangeOptions, Ended, Judgement};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::{moved, print_result, took_text, trouble_failures};
use crate::local::manifests::Loaded;
use crate::view::confirm::{confirm, confirm_recreate};
use crate::view::output::Format;
use crate::view::plan_view;
use crate::view::terminal::harmless_line;
use berth_engine::{Action, Plan, Report};
use berth_model::annotations::PROTECT;
use berth_model::{Manifest, ResourceId};
use berth_server::{Fault, pb};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::time::Instant;
use tonic::Request;

/// What a server would do.
pub struct ServerPlan {
    pub plan: Plan,
    pub verdicts: Vec<pb::Verdict>,
    pub bases: Vec<pb::Base>,
    pub calls: u64,
    /// The plan as the server sent it, with the server's authentication code for it.
    pub sent: Value,
    pub state: String,
    pub code: String,
    /// The server's clouds are simulated.
    pub sandbox: bool,
}

/// What is asked of a server.
pub struct Job<'a> {
    pub files: Vec<pb::ManifestFile>,
    pub delete: Vec<ResourceId>,
    /// Where the files came from, so that what a server finds wrong is shown with its line.
    pub loaded: Option<Loaded>,
    /// What a saved plan said.
    pub promise: Option<&'a Promise>,
    pub options: &'a ChangeOptions<'a>,
}

/// Reports why a request was refused: with the lines of the files where they are the reason.
fn refused(fault: Fault, loaded: Option<&mut Loaded>, format: Format) -> CommandResult {
    match loaded {
        Some(loaded) if fault.problems.iter().any(|problem| !problem.file.is_empty()) => {
            loaded.add_problems(&fault.problems);
            loaded.refuse(format)?;
            Ok(Exit::Failed)
        }
        _ => Err(fault.into()),
    }
}

/// Plans on the server. The inner `Err` is the exit code after problems of the files were printed.
pub async fn make_plan(
    remote: &Remote,
    files: &[pb::ManifestFile],
    delete: &[ResourceId],
    saved: Option<pb::SavedPlan>,
    loaded: Option<&mut Loaded>,
    format: Format,
    recreate: RecreateArgs,
) -> Result<Result<ServerPlan, Exit>, Failure> {
    let delete = delete.iter().map(messages::to_id).collect();
    let allow_recreate = recreate.allow_recreate;
    let mut request = Request::new(pb::PlanRequest { files: files.to_vec(), delete, allow_recreate, saved });
    request.set_timeout(CLOUDS_WITHIN);
    let mut resources = remote.client.resources();
    let answer = match remote.by_worker(resources.plan(request)).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return refused(remote.fault(&status), loaded, format).map(Err),
    };
    let mut failures: Vec<Failure> =
        answer.problems.iter().filter(|problem| problem.severity != "warning").map(messages::trouble).collect();
    if let Some(last) = failures.pop() {
        let count = failures.len() + 1;
        failures.iter().for_each(Failure::print);
        let note = format!("{count} resources cannot be planned; nothing was changed");
        return Err(if count > 1 { last.note(note) } else { last });
    }
    let sent = Value::Object(messages::map(answer.plan.as_ref()));
    let plan = Plan::from_json(&sent).map_err(|error| {
        Failure::caused("the server's plan cannot be read", &error)
            .help("server and command may be of different versions:   berth doctor")
    })?;
    let pb::PlanResponse { verdicts, bases, calls, state, code, sandbox, .. } = answer;
    Ok(Ok(ServerPlan { plan, verdicts, bases, calls, sent, state, code, sandbox }))
}

/// What policies say of a plan, and how to read the one that denies it.
pub fn judgement(verdicts: &[pb::Verdict]) -> Judgement {
    let mut judgement = Judgement::default();
    for verdict in verdicts {
        let about = verdict.id.as_ref().map(|id| format!("{}: ", messages::id_of(Some(id)))).unwrap_or_default();
        let word = if verdict.effect == "deny" { "denied" } else { "warning" };
        let line = format!("{word} by policy {}: {about}{}", verdict.policy, verdict.message);
        judgement.lines.push(harmless_line(&line).into_owned());
        judgement.denied |= verdict.effect == "deny";
    }
    if judgement.denied {
        judgement.lines.push(complete("  to see the policies:   berth get policies"));
    }
    judgement
}

/// Plans, asks, applies and follows. The count of what ended is left to the caller, who knows what it is about.
pub async fn carry_out(remote: &Remote, mut job: Job<'_>) -> Result<Ended, Failure> {
    let started = Instant::now();
    let options = job.options;
    let saved = job.promise.map(|promise| promise.saved.clone());
    let loaded = job.loaded.as_mut();
    let mut ended = Ended { exit: Exit::Done, count: 0, cluster: None, idle: false, began: started, calls: 0 };
    let planned =
        make_plan(remote, &job.files, &job.delete, saved.clone(), loaded, options.format, options.recreate).await?;
    let planned = match planned {
        Ok(planned) => planned,
        Err(exit) => return Ok(Ended { exit, ..ended }),
    };
    ended.calls = planned.calls;
    let plan = &planned.plan;
    ended.cluster = plan.resources.iter().map(|r| &r.id).find(|id| id.kind.ends_with("KubernetesCluster")).cloned();
    let there = permit(remote, &job, &planned).await?;
    if !plan.is_empty() {
        ended.began = Instant::now();
    }
    let since = remote.last_event().await?;
    let request = apply_request(&job, &planned, saved);
    let answer = match remote.client.resources().apply(request.clone()).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => {
            ended.exit = refused(remote.fault(&status), job.loaded.as_mut(), options.format)?;
            return Ok(ended);
        }
    };
    again(remote, &job, plan, request, &answer).await?;
    let goals = goals(plan, &answer.resources, &job.delete, &there);
    // What is as declared already counts as done.
    let same = plan.resources.iter().map(|r| &r.id).filter(|id| !goals.iter().any(|goal| goal.id == **id));
    let same: Vec<ResourceId> = same.cloned().collect();
    let print = |report: &Report| print_result(plan, report, ended.began.elapsed(), planned.calls, options.format);
    if goals.is_empty() {
        if !options.for_people() {
            print(&Report { done: same, ..Report::default() })?;
        }
        return Ok(Ended { idle: true, ..ended });
    }
    if options.run.no_wait {
        let pending = goals.into_iter().map(|goal| goal.id).collect();
        print(&Report { pending, done: same, ..Report::default() })?;
        return Ok(ended);
    }
    let watch = Watch { since, timeout: options.run.timeout, approvals: options.run.wait };
    let mut followed = follow(remote, goals, plan, watch).await?;
    followed.report.done.splice(0..0, same);
    print(&followed.report)?;
    ended.exit = tell(&followed, !job.delete.is_empty(), ended.began);
    Ok(ended)
}

/// Shows the plan, and returns only when it may be applied: with the resources as they were before.
async fn permit(remote: &Remote, job: &Job<'_>, planned: &ServerPlan) -> Result<There, Failure> {
    let (plan, options) = (&planned.plan, job.options);
    if let Some(promise) = job.promise.filter(|promise| !promise.holds(planned)) {
        return Err(moved(&promise.plan, plan));
    }
    if options.run.parallelism.is_some() {
        anstream::eprintln!(
            "--parallelism has no effect on a server: its workers' --capacity says how much is done at once"
        );
    }
    if options.for_people() && (!plan.is_quiet() || !job.delete.is_empty()) {
        let allowed = options.confirm.allow_replace || job.promise.is_some();
        anstream::eprint!("{}", plan_view::text(plan, options.format == Format::Wide, allowed));
    }
    let judgement = judgement(&planned.verdicts);
    judgement.print();
    if judgement.denied {
        return Err(Failure::new("a policy does not allow this; nothing was changed"));
    }
    let mut ids: Vec<ResourceId> = plan.resources.iter().map(|r| r.id.clone()).collect();
    ids.extend(job.delete.iter().filter(|id| !plan.resources.iter().any(|r| r.id == **id)).cloned());
    let there = known_before(remote, &ids).await?;
    if !plan.is_empty() {
        confirm_recreate(plan, options.recreate)?;
        let declared = job.loaded.as_ref().map(|loaded| loaded.manifests.as_slice()).unwrap_or_default();
        let sandbox = planned.sandbox;
        // A saved plan was confirmed when it was looked at, with what it takes away.
        let confirmation = match job.promise.is_some() {
            true => ConfirmArgs { yes: true, allow_replace: true, sandbox },
            false => ConfirmArgs { sandbox, ..options.confirm },
        };
        confirm(plan, confirmation, |id| is_protected(&there, declared, id))?;
    }
    Ok(there)
}

/// Allows exactly what the plan showed.
fn apply_request(job: &Job<'_>, planned: &ServerPlan, saved: Option<pb::SavedPlan>) -> pb::ApplyRequest {
    let plan = &planned.plan;
    let destructive: Vec<_> = plan.resources.iter().filter(|r| r.takes_away()).collect();
    pb::ApplyRequest {
        files: job.files.clone(),
        bases: planned.bases.clone(),
        allow_replace: !destructive.is_empty(),
        allow_data_loss: destructive.iter().any(|r| r.units.iter().any(|u| u.loses_data)),
        dry_run: false,
        delete: job.delete.iter().map(messages::to_id).collect(),
        // Resources that were named are tried again even if nothing in them changed.
        retry: job.loaded.is_none() && !plan.is_empty(),
        exact: job.promise.is_some(),
        // Confirming the plan also confirmed that missing objects are created again.
        allow_recreate: plan.resources.iter().flat_map(|r| &r.units).any(|u| u.gone)
            || job.options.recreate.allow_recreate,
        saved,
    }
}

/// Applies again the resources whose manifest is unchanged but whose objects in the cloud differ.
async fn again(
    remote: &Remote,
    job: &Job<'_>,
    plan: &Plan,
    request: pb::ApplyRequest,
    answer: &pb::ApplyResponse,
) -> Result<(), Failure> {
    let Some(loaded) = &job.loaded else { return Ok(()) };
    let works = |id: &ResourceId| plan.resources.iter().any(|r| r.id == *id && r.action != Action::Unchanged);
    let unchanged = answer.resources.iter().filter(|one| one.result == "unchanged");
    let stale: HashMap<ResourceId, i64> =
        unchanged.map(|one| (messages::id_of(one.id.as_ref()), one.generation)).filter(|(id, _)| works(id)).collect();
    if stale.is_empty() {
        return Ok(());
    }
    let base =
        |(id, generation): (&ResourceId, &i64)| pb::Base { id: Some(messages::to_id(id)), generation: *generation };
    let request = pb::ApplyRequest {
        files: loaded.files_of(&|id| stale.contains_key(id)),
        bases: stale.iter().map(base).collect(),
        delete: Vec::new(),
        retry: true,
        // The saved plan is for all files, and these are only some of them.
        saved: None,
        ..request
    };
    remote.client.resources().apply(request).await.map_err(|status| remote.fail(&status))?;
    Ok(())
}

/// Either manifest can protect: removing the protection is a separate change.
pub fn is_protected(there: &There, declared: &[Manifest], id: &ResourceId) -> bool {
    let stored = there.get(id).and_then(Option::as_ref).map(|r| messages::map(r.manifest.as_ref()));
    let stored = stored.as_ref().and_then(|m| m.get("metadata")?.get("annotations")?.get(PROTECT)?.as_str());
    let mine = declared.iter().find(|m| m.id == *id).and_then(|m| m.metadata.annotations.get(PROTECT));
    stored == Some("true") || mine.is_some_and(|value| value == "true")
}

type There = HashMap<ResourceId, Option<pb::Resource>>;

pub async fn known_before(remote: &Remote, ids: &[ResourceId]) -> Result<There, Failure> {
    Ok(remote.several(ids).await?.into_iter().collect())
}

/// The resources to watch: those that the plan changes and those that the server stored.
fn goals(plan: &Plan, applied: &[pb::Applied], delete: &[ResourceId], there: &There) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut seen = HashSet::new();
    let before = |id: &ResourceId| Before::of(there.get(id).and_then(Option::as_ref));
    for one in applied {
        let id = messages::id_of(one.id.as_ref());
        let planned = plan.resources.iter().find(|r| r.id == id);
        let works = planned.is_some_and(|r| r.action != Action::Unchanged);
        if (one.result == "unchanged" && !works) || !seen.insert(id.clone()) {
            continue;
        }
        let gone = one.result == "deleting" || delete.contains(&id);
        goals.push(Goal { before: Some(before(&id)), generation: one.generation, gone, id });
    }
    for id in delete.iter().filter(|id| !seen.contains(*id)) {
        goals.push(Goal { id: id.clone(), gone: true, generation: 0, before: Some(before(id)) });
    }
    goals
}

/// Prints the result of a watch.
pub fn tell(followed: &Followed, gone: bool, started: Instant) -> Exit {
    let report = &followed.report;
    for failure in trouble_failures(&report.failed, &|_| None) {
        failure.help("the server tries again by itself where that can help; to try at once, apply again").print();
    }
    for (id, why) in &followed.blocked {
        Failure::new(format!("{id} is blocked: {why}"))
            .help(format!("to see its plan and history:   {}", repeated_flags::command("describe", id)))
            .print();
    }
    let waiting = if gone { "wait --for deleted" } else { "wait" };
    for id in &followed.awaiting {
        anstream::eprintln!(
            "{} waits for approval by someone else than who applied it",
            harmless_line(&id.to_string())
        );
        anstream::eprintln!("  someone else approves it with:   {}", repeated_flags::command("approve", id));
        anstream::eprintln!("  to wait until then:              {}", repeated_flags::command(waiting, id));
    }
    if report.interrupted || followed.timed_out {
        let many = match report.left.as_slice() {
            [only] => only.to_string(),
            left => format!("{} resources", left.len()),
        };
        let why = if report.interrupted { "no longer watching" } else { "time is over" };
        anstream::eprintln!("{why}: the server goes on with {}", harmless_line(&many));
        let first = report.left.first();
        let cancel = first.map(|id| repeated_flags::command("tasks cancel", id)).unwrap_or_default();
        anstream::eprintln!("{}", complete("  to follow it:   berth wait --all"));
        anstream::eprintln!("  to stop it:     {}", harmless_line(&cancel));
        return Exit::Failed;
    }
    let stopped = report.failed.len() + followed.blocked.len();
    if stopped > 0 {
        let skipped = match report.skipped.len() {
            0 => String::new(),
            skipped => format!(", {skipped} not tried"),
        };
        anstream::eprintln!(
            "{stopped} failed{skipped}, {} done in {}",
            report.done.len(),
            took_text(started.elapsed())
        );
        return Exit::Failed;
    }
    if followed.awaiting.is_empty() { Exit::Done } else { Exit::Pending }
}
