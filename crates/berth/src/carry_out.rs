//! From a request to its end: plan, confirm, converge, and what to say afterwards. Shared by apply and delete.

use crate::confirm::{ConfirmArgs, confirm};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Format;
use crate::progress::Display;
use crate::terminal::harmless_line;
use crate::{output, plan_view};
use berth_clouds::Clouds;
use berth_engine::handler::Trouble;
use berth_engine::progress::Watcher;
use berth_engine::{Action, Interrupt, Options, Plan, Planned, Report, Request, converge, plan};
use berth_model::ResourceId;
use berth_store::Run;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(clap::Args, Clone, Debug)]
pub struct RunArgs {
    /// How many resources to work on at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub parallelism: u16,
    /// How long one resource may take, such as 90s, 20m or 1h; a resource's own `berth.dev/timeout` goes before it
    #[arg(long, value_name = "TIME", default_value = "45m", value_parser = duration)]
    pub timeout: Duration,
    /// Begin the work and do not wait for it to end; `berth wait` waits
    #[arg(long)]
    pub no_wait: bool,
}

pub fn duration(text: &str) -> Result<Duration, String> {
    berth_model::duration(text).ok_or_else(|| format!("`{text}` is not a time; write 90s, 20m or 1h"))
}

/// Plans, and says what stands in the way. `place` tells where a resource is declared.
pub async fn make_plan(
    clouds: &Clouds,
    request: &Request,
    place: &dyn Fn(&ResourceId) -> Option<String>,
) -> Result<Planned, Failure> {
    let planned = plan(clouds, request).await;
    match planned.troubles.len() {
        0 => Ok(planned),
        count => {
            for (id, trouble) in planned.troubles.iter().take(count - 1) {
                trouble_failure(id, trouble, place).print();
            }
            let (id, trouble) = &planned.troubles[count - 1];
            let failure = trouble_failure(id, trouble, place);
            Err(if count > 1 {
                failure.note(format!("{count} resources cannot be planned; nothing was changed"))
            } else {
                failure
            })
        }
    }
}

fn trouble_failure(id: &ResourceId, trouble: &Trouble, place: &dyn Fn(&ResourceId) -> Option<String>) -> Failure {
    let message = if trouble.message.contains(&id.to_string()) {
        trouble.message.clone()
    } else {
        format!("{id}: {}", trouble.message)
    };
    let mut failure = Failure::new(message);
    if let Some(place) = place(id) {
        failure = failure.note(format!("declared in {place}"));
    }
    trouble.help.iter().fold(failure, |failure, line| failure.help(line))
}

/// Confirms and carries out. `before` is called once everything is allowed, and before anything is changed.
pub async fn carry_out(
    clouds: &Clouds,
    run: &Run,
    request: &Request,
    planned: Planned,
    args: &RunArgs,
    format: Format,
) -> Outcome {
    let started = Instant::now();
    let plan = planned.plan.clone();
    let work = plan.resources.iter().filter(|r| r.action != Action::Unchanged).count();
    let display = Arc::new(Display::new(work));
    let interrupt = Interrupt::default();
    let options = Options { parallelism: args.parallelism.into(), timeout: args.timeout, wait: !args.no_wait };
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

async fn signal() -> bool {
    let Ok(mut term) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else { return false };
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.is_ok(),
        _ = term.recv() => true,
    }
}

fn tell(plan: &Plan, report: &Report, took: Duration, calls: u64, format: Format) -> Outcome {
    if format == Format::Json || format == Format::Yaml {
        let value = json!({
            "done": report.done.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "pending": report.pending.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "failed": report.failed.iter().map(|(id, t)| json!({"resource": id.to_string(), "message": t.message, "help": t.help})).collect::<Vec<_>>(),
            "left": report.left.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "skipped": report.skipped.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "interrupted": report.interrupted,
            "plan": plan_view::as_json(plan),
            "seconds": took.as_secs_f64(),
            "calls": calls,
        });
        output::show(format, &value, |_| String::new(), Vec::new)?;
    } else if format == Format::Name {
        output::print(&report.done.iter().map(|id| format!("{id}\n")).collect::<String>())?;
    }
    for (id, trouble) in &report.failed {
        trouble_failure(id, trouble, &|_| None).print();
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
            [first, rest @ ..] => format!("{first} and {} more are still on their way in the cloud, and are recorded", rest.len()),
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
    crate::progress::short(took)
}

/// Asks, unless there is nothing to ask about.
pub fn allowed(plan: &Plan, args: ConfirmArgs, request: &Request) -> Result<bool, Failure> {
    if plan.is_empty() {
        return Ok(false);
    }
    confirm(plan, args, |id| {
        let protects = |annotations: &std::collections::BTreeMap<String, String>| {
            annotations.get("berth.dev/protect").is_some_and(|v| v == "true")
        };
        let wanted = request.wanted.iter().find(|w| w.manifest.id == *id).map(|w| &w.manifest);
        let known = request.known.resources.get(id).map(|k| &k.manifest);
        // Either is enough: taking the protection off is a change of its own, applied before the one it allows.
        wanted.into_iter().chain(known).any(|m| protects(&m.metadata.annotations))
    })?;
    Ok(true)
}
