//! `berth refresh`: what the state remembers of outputs and facts becomes what the clouds show. Clouds are only read.

use crate::args::{ScopeArgs, Which, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::commands::drift::{asked, asked_of_server};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::carry_out::trouble_failures;
use crate::local::stored::{self, value_text};
use crate::local::workspace::Workspace;
use crate::remote::contexts::Target;
use crate::remote::{Remote, messages};
use crate::view::diagnostics::count;
use crate::view::output::{self, Format, OutputArgs};
use crate::view::plan_view::much_gone;
use crate::view::terminal::harmless_line;
use berth_engine::drift;
use berth_engine::handler::Trouble;
use berth_engine::record::{RecordError, Recorder, Status};
use berth_engine::refresh::{status_now, unit_now};
use berth_engine::unit::{Observed, UnitState};
use berth_model::ResourceId;
use berth_store::{Filter, StoredResource};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

/// Read the clouds and bring the state's outputs up to date
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth refresh\n  berth refresh CivoKubernetesCluster/shop")]
pub struct Args {
    /// Kinds, or resources as Kind/name; everything when none is given
    #[arg(value_name = "KIND[/NAME]")]
    what: Vec<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One thing that the state had otherwise.
#[derive(Debug, Serialize)]
struct News {
    resource: ResourceId,
    /// Name of an output or fact, or `state`.
    what: String,
    before: Value,
    now: Value,
    /// The resource failed meanwhile: an object of it is gone.
    #[serde(skip)]
    failed: bool,
}

pub fn run(args: Args) -> CommandResult {
    if let Which::Server(target) = args.workspace.which()? {
        return block_on(Threads::One, on_server(&args, target));
    }
    let threads = Threads::beside(&args.workspace.sandbox);
    block_on(threads, async {
        let workspace = Workspace::open_existing(&args.workspace).await?;
        let result = refresh(&args, &workspace).await;
        workspace.close().await;
        result
    })
}

async fn refresh(args: &Args, workspace: &Workspace) -> CommandResult {
    let started = Instant::now();
    let run = workspace.store.begin_run("refresh").await?;
    let (known, ids) = asked(workspace, &args.what, &args.scope).await?;
    let clouds = workspace.clouds().await?;
    let seen = crate::view::progress::patiently("reading the clouds", drift(&clouds, &known, &ids, true)).await;

    let mut by_resource: BTreeMap<ResourceId, Vec<(UnitState, Option<Observed>)>> = BTreeMap::new();
    anstream::eprint!("{}", much_gone(&seen.much_gone()));
    for unit in &seen.learned {
        run.save_unit(unit.clone()).await.map_err(|error| Failure::new(error.to_string()))?;
    }
    // Where much seems gone, what is not found stays as it was: that is a question, not news.
    for (unit, observed) in seen.believed().cloned() {
        by_resource.entry(unit.resource.clone()).or_default().push((unit, observed));
    }
    let mut news = Vec::new();
    for (id, units) in by_resource {
        let Some(stored) = workspace.store.resource(&id).await? else { continue };
        let failed = |error: RecordError| Failure::new(error.to_string());
        let status = status_now(&clouds, &id, &stored.status, stored.deleting, &units);
        let before = news.len();
        compare(&stored, &status, &mut news);
        for (unit, observed) in units {
            if let Some(unit) = unit_now(unit, observed.as_ref()) {
                run.save_unit(unit).await.map_err(failed)?;
            }
        }
        if news.len() > before {
            let names: Vec<&str> = news[before..].iter().map(|one: &News| one.what.as_str()).collect();
            run.event(&id, "refreshed", &names.join(", ")).await.map_err(failed)?;
            run.status(&id, status).await.map_err(failed)?;
        }
    }
    run.finish().await;
    show(args, &news, ids.len(), clouds.calls(), &seen.troubles, started)
}

/// The same by a server: what its state says before and after.
async fn on_server(args: &Args, target: Target) -> CommandResult {
    let started = Instant::now();
    let remote = Remote::open(target).await?;
    let (mut request, _) = asked_of_server(&remote, &args.what, &args.scope).await?;
    let scope = Filter {
        org: Some(request.org.clone()).filter(|org| !org.is_empty()),
        env: Some(request.env.clone()).filter(|env| !env.is_empty()),
        ..Filter::default()
    };
    let asked: Vec<ResourceId> = request.ids.iter().map(|id| messages::id_of(Some(id))).collect();
    let read = async || -> Result<BTreeMap<ResourceId, StoredResource>, Failure> {
        let found = match asked.is_empty() {
            true => remote.resources(&scope).await?,
            false => {
                let several = remote.several(&asked).await?;
                several.iter().filter_map(|(_, found)| found.as_ref().map(messages::stored)).collect()
            }
        };
        Ok(found.into_iter().map(|stored| (stored.id.clone(), stored)).collect())
    };
    let before = read().await?;
    request.refresh = true;
    let answer = super::drift::compare(&remote, request).await?;
    let after = read().await?;
    let mut news = Vec::new();
    for (id, now) in &after {
        if let Some(before) = before.get(id) {
            compare(before, &now.status, &mut news);
        }
    }
    let seen = super::drift::seen(&answer);
    show(args, &news, seen.checked, answer.calls, &seen.troubles, started)
}

fn show(
    args: &Args,
    news: &[News],
    checked: usize,
    calls: u64,
    troubles: &[(ResourceId, Trouble)],
    started: Instant,
) -> CommandResult {
    let format = args.output.output;
    let value = json!({"changed": news, "checked": checked, "calls": calls});
    let mut names: Vec<String> = news.iter().map(|one| one.resource.to_string()).collect();
    names.dedup();
    output::show(format, &value, |_| text(news), || names)?;
    if matches!(format, Format::Table | Format::Wide) {
        anstream::eprintln!(
            "{} changed in the state; {} read by {} in {:.1} s",
            count(news.len(), "value"),
            count(checked, "resource"),
            count(calls as usize, "API call"),
            started.elapsed().as_secs_f64()
        );
        if let Some(gone) = news.iter().find(|one| one.failed) {
            anstream::eprintln!("  make it again:   {}", stored::command("apply", &gone.resource, &args.workspace));
        }
    }
    for failure in trouble_failures(troubles, &|_| None) {
        failure.note("it could not be read").print();
    }
    Ok(if troubles.is_empty() { Exit::Done } else { Exit::Failed })
}

fn compare(stored: &StoredResource, status: &Status, news: &mut Vec<News>) {
    let news_of = |what: &str, before: Value, now: Value| News {
        resource: stored.id.clone(),
        what: what.to_owned(),
        before,
        now,
        failed: false,
    };
    if stored.status.message != status.message {
        let failed = status.state == berth_engine::ResourceState::Failed;
        news.push(News { failed, ..news_of("state", json!(stored.status.state), json!(status.message)) });
    }
    let mut differ = |what: &str, before: Value, now: Value| {
        if before != now {
            news.push(news_of(what, before, now));
        }
    };
    for (before, now) in [(&stored.status.outputs, &status.outputs), (&stored.status.facts, &status.facts)] {
        for (name, value) in now {
            differ(name, before.get(name).cloned().unwrap_or_default(), value.clone());
        }
    }
}

fn text(news: &[News]) -> String {
    let width = news.iter().map(|one| one.resource.to_string().chars().count()).max().unwrap_or(0);
    let names = news.iter().map(|one| one.what.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for one in news {
        let before = if one.before.is_null() { "-".into() } else { value_text(&one.before) };
        let change = format!("{before} -> {}", value_text(&one.now));
        let resource = one.resource.to_string();
        text.push_str(&format!("  {resource:<width$}  {:<names$}  {}\n", one.what, harmless_line(&change)));
    }
    text
}
