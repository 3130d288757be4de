//! Runs a request with the embedded engine: plan, confirm, converge, and print the result.

use crate::args::address::Names;
use crate::args::{ConfirmArgs, RecreateArgs, RunArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::signals::signal;
use crate::view::confirm::{confirm, confirm_recreate};
use crate::view::output::{self, Format};
use crate::view::plan_view;
use crate::view::progress::{self, Display};
use crate::view::terminal::harmless_line;
use berth_clouds::Clouds;
use berth_engine::handler::{Class, Trouble};
use berth_engine::progress::Watcher;
use berth_engine::unit::Stray;
use berth_engine::{Action, Interrupt, Options, Plan, Planned, Report, Request, converge, managed_already, plan};
use berth_model::annotations::PROTECT;
use berth_model::{Prose, ResourceId};
use berth_store::{Run, Store};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default of `--parallelism`.
const AT_ONCE: u16 = 64;

/// Plans, and reports what prevents it. `place` tells where a resource is declared.
pub async fn make_plan(
    clouds: &Clouds,
    request: &Request,
    store: &Store,
    place: &dyn Fn(&ResourceId) -> Option<String>,
) -> Result<Planned, Failure> {
    let mut planned = progress::patiently("reading the clouds", plan(clouds, request)).await;
    for (id, trouble) in &mut planned.troubles {
        if let Class::Taken { id: Some(object) } = &trouble.class
            && let Some(unit) = store.units_by_object(object).await?.first()
        {
            *trouble = managed_already(id, object, &unit.resource);
        }
    }
    let mut failures = trouble_failures(&planned.troubles, place);
    let Some(last) = failures.pop() else { return Ok(planned) };
    for failure in failures {
        failure.print();
    }
    let count = planned.troubles.len();
    Err(if count > 1 { last.note(format!("{count} resources cannot be planned; nothing was changed")) } else { last })
}

/// At most this many resources with the same problem are named.
const NAMED: usize = 5;

/// What went wrong, each cause once: a bad token is one trouble, however many resources it keeps from going on.
pub fn trouble_failures(
    troubles: &[(ResourceId, Trouble)],
    place: &dyn Fn(&ResourceId) -> Option<String>,
) -> Vec<Failure> {
    let mut groups: Vec<(&Trouble, Vec<&ResourceId>)> = Vec::new();
    for (id, trouble) in troubles {
        match groups.iter_mut().find(|(other, _)| other.is_like(trouble)) {
            Some((_, ids)) => ids.push(id),
            None => groups.push((trouble, vec![id])),
        }
    }
    groups
        .into_iter()
        .map(|(trouble, ids)| match ids.as_slice() {
            [only] => trouble_failure(only, trouble, place),
            _ => {
                let mut failure = Failure::new(trouble.to_string());
                for id in ids.iter().take(NAMED) {
                    let declared = place(id).map(|place| format!(", declared in {place}")).unwrap_or_default();
                    failure = failure.note(format!("{id}{declared}"));
                }
                if ids.len() > NAMED {
                    failure = failure.note(format!("and {} more", ids.len() - NAMED));
                }
                trouble.help_lines().into_iter().fold(failure, Failure::help)
            }
        })
        .collect()
}

fn trouble_failure(id: &ResourceId, trouble: &Trouble, place: &dyn Fn(&ResourceId) -> Option<String>) -> Failure {
    let name = if id.kind.is_empty() { String::new() } else { id.to_string() };
    let mut failure = Failure::new(Prose::from(trouble.to_string()).about(&name));
    if let Some(place) = place(id) {
        failure = failure.note(format!("declared in {place}"));
    }
    trouble.help_lines().into_iter().fold(failure, Failure::help)
}

/// Confirms and carries out. `before` is called once everything is allowed, and before anything is changed.
pub async fn carry_out(
    clouds: &Clouds,
    run: &Run,
    request: &Request,
    planned: Planned,
    args: &RunArgs,
    format: Format,
) -> CommandResult {
    let started = Instant::now();
    let plan = planned.plan.clone();
    let work = plan.resources.iter().filter(|r| r.action != Action::Unchanged).count();
    let display = Arc::new(Display::new(work, Names::of(plan.resources.iter().map(|r| &r.id))));
    let interrupt = Interrupt::default();
    let options =
        Options { parallelism: args.parallelism.unwrap_or(AT_ONCE).into(), timeout: args.timeout, wait: !args.no_wait };
    let stopper = stop_on_signal(interrupt.clone(), display.clone());
    let watcher: &dyn Watcher = &*display;
    let report = converge(clouds, run, watcher, interrupt, &options, request, planned).await;
    stopper.abort();
    _ = stopper.await;
    drop(display);
    run.finish().await;
    tell(&plan, &report, started.elapsed(), clouds.calls(), format)
}

/// The first Ctrl-C or SIGTERM finishes the call in flight, the second one ends at once.
fn stop_on_signal(interrupt: Interrupt, display: Arc<Display>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        if signal().await {
            display.say("stopping after the call in flight …");
            interrupt.set();
        }
        if signal().await {
            std::process::exit(130);
        }
    })
}

#[derive(Serialize)]
struct ResultJson<'a, P> {
    calls: u64,
    done: &'a [ResourceId],
    failed: Vec<Value>,
    interrupted: bool,
    left: &'a [ResourceId],
    pending: &'a [ResourceId],
    plan: P,
    seconds: f64,
    skipped: &'a [ResourceId],
    strays: Vec<Value>,
}

/// The result for programs, also where there was nothing to do.
pub fn print_result(plan: &Plan, report: &Report, took: Duration, calls: u64, format: Format) -> Result<(), Failure> {
    let failed = |(id, trouble): &(ResourceId, Trouble)| json!({"resource": id, "message": trouble.to_string(), "help": trouble.help_lines()});
    let stray = |(id, stray): &(ResourceId, Stray)| json!({"resource": id, "id": stray.id, "remove": stray.remove});
    let value = ResultJson {
        calls,
        done: &report.done,
        failed: report.failed.iter().map(failed).collect(),
        interrupted: report.interrupted,
        left: &report.left,
        pending: &report.pending,
        plan: plan.as_json(),
        seconds: took.as_secs_f64(),
        skipped: &report.skipped,
        strays: report.strays.iter().map(stray).collect(),
    };
    let names = || report.done.iter().map(ToString::to_string).collect();
    output::show(format, &value, |_| String::new(), names)
}

fn tell(plan: &Plan, report: &Report, took: Duration, calls: u64, format: Format) -> CommandResult {
    print_result(plan, report, took, calls, format)?;
    for failure in trouble_failures(&report.failed, &|_| None) {
        failure.print();
    }
    for (id, stray) in &report.strays {
        anstream::eprintln!("warning: {}: {}", harmless_line(&id.to_string()), plan_view::stray_text(stray));
        anstream::eprintln!("  to delete it:   {}", harmless_line(&stray.remove));
    }
    if let Some(error) = &report.record {
        return Err(
            Failure::new(error.to_string()).help("run the same command again: what was begun is found and taken up")
        );
    }
    if report.interrupted {
        let left = match report.left.as_slice() {
            [] => "nothing was left half done".to_owned(),
            [only] => format!("{only} is still on its way in the cloud, and is recorded"),
            [first, rest @ ..] => {
                format!("{first} and {} more are still on their way in the cloud, and are recorded", rest.len())
            }
        };
        anstream::eprintln!("interrupted: {}. Run the same command to go on.", harmless_line(&left));
        return Ok(Exit::Failed);
    }
    if !report.failed.is_empty() {
        let skipped =
            if report.skipped.is_empty() { String::new() } else { format!(", {} not tried", report.skipped.len()) };
        anstream::eprintln!(
            "{} failed{skipped}, {} done in {}",
            report.failed.len(),
            report.done.len(),
            took_text(took)
        );
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}

pub fn took_text(took: Duration) -> String {
    crate::view::progress::short(took)
}

/// Asks, unless there is nothing to ask about.
pub fn allowed(plan: &Plan, args: ConfirmArgs, request: &Request) -> Result<bool, Failure> {
    if plan.is_empty() {
        return Ok(false);
    }
    confirm_recreate(plan, RecreateArgs { allow_recreate: request.allow_recreate })?;
    confirm(plan, args, |id| is_protected(request, id))?;
    Ok(true)
}

/// Either manifest is enough: taking the protection off is a change of its own, applied before the one it allows.
pub fn is_protected(request: &Request, id: &ResourceId) -> bool {
    let wanted = request.wanted.iter().find(|w| w.manifest.id == *id).map(|w| &w.manifest);
    let known = request.known.resources.get(id).map(|k| &k.manifest);
    wanted.into_iter().chain(known).any(|m| m.metadata.annotations.get(PROTECT).is_some_and(|v| v == "true"))
}

/// A saved plan that is not what would be done now.
pub fn moved(promise: &Plan, now: &Plan) -> Failure {
    let differs = now
        .resources
        .iter()
        .find(|r| !promise.resources.iter().any(|other| other.does_what(r)))
        .or_else(|| promise.resources.iter().find(|r| !now.resources.iter().any(|other| other.does_what(r))));
    let what = differs.map_or_else(String::new, |r| format!(": {} differs", r.id));
    Failure::new(format!("the world moved since this plan was made{what}; nothing was changed"))
        .help("plan again, look at it, then apply that plan")
}
