//! `berth drift`: what differs between what was applied and what the clouds show. Reads clouds by lists, changes nothing.

use crate::args::{ScopeArgs, Which, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::accept::{self, Place};
use crate::local::carry_out::trouble_failures;
use crate::local::stored::{self, DRIFT};
use crate::local::workspace::Workspace;
use crate::remote::contexts::Target;
use crate::remote::{CLOUDS_WITHIN, Remote, messages};
use crate::source::Source;
use crate::view::drift_view::{self, Finding, Findings};
use crate::view::output::{self, Format, OutputArgs};
use crate::view::plan_view::much_gone;
use crate::view::progress;
use berth_engine::record::{Recorder, Status};
use berth_engine::unit::UnitState;
use berth_engine::{Drifted, Known, drift};
use berth_model::ResourceId;
use berth_server::pb;
use berth_store::{Store, StoredResource};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Findings that are kept with the resources, for `get`; a fleet that drifted as a whole needs no line for each.
const KEPT_MAX: usize = 1000;
/// How many events are looked through for findings of earlier checks that no longer hold.
const EVENTS_MAX: u32 = 2000;
const FOUND: &str = "drift found";
const ENDED: &str = "drift ended";

/// Show what was changed outside of Berth
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth drift\n  berth drift --accept CivoKubernetesCluster/shop",
    after_help = "Exit codes: 0 no drift, 1 failed, 2 drift was found"
)]
pub struct Args {
    /// Kinds, or resources as Kind/name; everything when none is given
    #[arg(value_name = "KIND[/NAME]")]
    what: Vec<String>,
    /// Keep what was found: write it into the manifests' files and the state
    #[arg(long)]
    accept: bool,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    if let Which::Server(target) = args.workspace.which()? {
        return block_on(Threads::One, on_server(&args, target));
    }
    // One thread is cheaper; simulated clouds inside this process need another.
    let threads = Threads::beside(&args.workspace.sandbox);
    block_on(threads, async {
        let workspace = Workspace::open_existing(&args.workspace).await?;
        let result = check(&args, &workspace).await;
        workspace.close().await;
        result
    })
}

/// What was asked for: these resources' units, or all. Manifests are not needed, so that none is parsed.
pub async fn asked(
    workspace: &Workspace,
    what: &[String],
    scope: &ScopeArgs,
) -> Result<(Known, Vec<ResourceId>), Failure> {
    let addresses = stored::addresses(what, scope)?;
    let narrowed = !addresses.is_empty() || scope.org.is_some() || scope.env.is_some();
    let ids = match narrowed {
        true => {
            let found = stored::find(&workspace.source(), &addresses, scope).await?;
            Some(found.into_iter().map(|stored| stored.id).collect::<Vec<_>>())
        }
        false => None,
    };
    let known = workspace.known_units(ids.as_deref()).await?;
    let mut ids = ids.unwrap_or_else(|| known.units.keys().cloned().collect());
    ids.sort();
    Ok((known, ids))
}

async fn check(args: &Args, workspace: &Workspace) -> CommandResult {
    let started = Instant::now();
    let (known, ids) = asked(workspace, &args.what, &args.scope).await?;
    if ids.is_empty() {
        return nothing(args);
    }
    let clouds = workspace.clouds().await?;
    let seen = progress::patiently("reading the clouds", drift(&clouds, &known, &ids, false)).await;
    learn(&workspace.store, &seen.learned).await?;
    let findings = drift_view::findings(&clouds, &known, &seen).await;
    if !args.accept {
        remember(&workspace.store, &ids, &findings, &seen).await?;
    }
    show(args, &findings, &seen, ids.len(), clouds.calls(), started)?;
    if args.accept && !findings.is_empty() {
        let place = Place::State(workspace, &known);
        let left = accept::accept(place, &args.workspace, &findings, args.output.output).await?;
        return Ok(ended(!seen.troubles.is_empty(), left));
    }
    Ok(ended(!seen.troubles.is_empty(), !findings.is_empty()))
}

/// The same by a server, which reads the clouds and keeps what it found.
async fn on_server(args: &Args, target: Target) -> CommandResult {
    let started = Instant::now();
    let remote = Remote::open(target).await?;
    let (request, ids) = asked_of_server(&remote, &args.what, &args.scope).await?;
    if ids == Some(0) {
        return nothing(args);
    }
    let answer = compare(&remote, request).await?;
    let seen = seen(&answer);
    if seen.checked == 0 && seen.troubles.is_empty() {
        return nothing(args);
    }
    let mut findings = Findings::new();
    for one in &answer.drifted {
        findings.insert(messages::id_of(one.id.as_ref()), one.differences.iter().map(messages::finding).collect());
    }
    show(args, &findings, &seen, ids.unwrap_or(seen.checked), answer.calls, started)?;
    if args.accept && !findings.is_empty() {
        let left = accept::accept(Place::Server(&remote), &args.workspace, &findings, args.output.output).await?;
        return Ok(ended(!seen.troubles.is_empty(), left));
    }
    Ok(ended(!seen.troubles.is_empty(), !findings.is_empty()))
}

/// What a server is to compare, and how many that is, where that is known.
pub async fn asked_of_server(
    remote: &Remote,
    what: &[String],
    scope: &ScopeArgs,
) -> Result<(pb::DriftRequest, Option<usize>), Failure> {
    let scope = Which::Server((*remote.target).clone()).scope(scope);
    let addresses = stored::addresses(what, &scope)?;
    let mut request = pb::DriftRequest {
        org: scope.org.clone().unwrap_or_default(),
        env: scope.env.clone().unwrap_or_default(),
        ..Default::default()
    };
    if addresses.is_empty() {
        return Ok((request, None));
    }
    let found = stored::find(&Source::Server(remote.clone()), &addresses, &scope).await?;
    request.ids = found.iter().map(|stored| messages::to_id(&stored.id)).collect();
    let count = request.ids.len();
    Ok((request, Some(count)))
}

pub async fn compare(remote: &Remote, request: pb::DriftRequest) -> Result<pb::DriftResponse, Failure> {
    let mut request = tonic::Request::new(request);
    request.set_timeout(CLOUDS_WITHIN);
    let mut resources = remote.client.resources();
    let answer = remote.by_worker(resources.drift(request)).await;
    Ok(answer.map_err(|status| remote.fail(&status))?.into_inner())
}

/// How many were compared, and what could not be.
pub fn seen(answer: &pb::DriftResponse) -> Drifted {
    let troubles = answer.problems.iter().map(messages::resource_trouble).collect();
    let counts = answer.much_gone.iter().map(messages::much_gone).collect();
    Drifted { checked: answer.checked as usize, troubles, counts, ..Drifted::default() }
}

fn nothing(args: &Args) -> CommandResult {
    anstream::eprintln!("nothing is applied here");
    let none = Drifted::default();
    let value = drift_view::as_json(&BTreeMap::new(), &none, 0, 0.0);
    output::show(args.output.output, &value, |_| String::new(), Vec::new)?;
    Ok(Exit::Done)
}

fn show(
    args: &Args,
    findings: &Findings,
    seen: &Drifted,
    asked: usize,
    calls: u64,
    started: Instant,
) -> Result<(), Failure> {
    let seconds = started.elapsed().as_secs_f64();
    let format = args.output.output;
    let value = drift_view::as_json(findings, seen, calls, seconds);
    let names = || findings.keys().map(ToString::to_string).collect();
    let mut text = String::new();
    if matches!(format, Format::Table | Format::Wide) {
        text = much_gone(&seen.much_gone());
        text.push_str(&drift_view::text(findings, format == Format::Wide));
        text.push_str(&format!(
            "{} of {} drifted; {} checked by {} in {seconds:.1} s\n",
            findings.len(),
            drift_view::count(asked, "resource"),
            seen.checked - seen.troubles.len().min(seen.checked),
            drift_view::count(calls as usize, "API call"),
        ));
        if !args.accept {
            text.push_str(&drift_view::commands(findings, &args.workspace));
        }
    }
    output::show(format, &value, |_| text, names)?;
    for failure in trouble_failures(&seen.troubles, &|_| None) {
        failure.note("it could not be checked").print();
    }
    Ok(())
}

/// Units of an earlier version's were found by their id: the state remembers from now on which account they are in. Where
/// another run is writing, the next one learns it.
async fn learn(store: &Store, learned: &[UnitState]) -> Result<(), Failure> {
    if learned.is_empty() {
        return Ok(());
    }
    let Ok(run) = store.begin_run("drift").await else { return Ok(()) };
    for unit in learned {
        run.save_unit(unit.clone()).await.map_err(|error| Failure::new(error.to_string()))?;
    }
    run.finish().await;
    Ok(())
}

fn ended(failed: bool, drifted: bool) -> Exit {
    match (failed, drifted) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::Pending,
        (false, false) => Exit::Done,
    }
}

/// Leaves the findings with the resources, for `get` and `history`. Only news are written, so that a check that finds
/// nothing new never stands in the way of an apply; and where another run is writing, it simply is not noted.
async fn remember(
    store: &Store,
    ids: &[ResourceId],
    findings: &BTreeMap<ResourceId, Vec<Finding>>,
    seen: &Drifted,
) -> Result<(), Failure> {
    let blind: BTreeSet<&ResourceId> = seen.troubles.iter().map(|(id, _)| id).collect();
    let mut news: Vec<(StoredResource, Option<String>)> = Vec::new();
    for (id, found) in findings.iter().take(KEPT_MAX) {
        let Some(stored) = store.resource(id).await? else { continue };
        let line = drift_view::short(found);
        if stored.status.facts.get(DRIFT).and_then(Value::as_str) != Some(&line) {
            news.push((stored, Some(line)));
        }
    }
    // Who may carry a finding that no longer holds is known from the events, without reading every resource.
    let mut earlier: BTreeMap<ResourceId, bool> = BTreeMap::new();
    for event in store.events(EVENTS_MAX).await? {
        if event.what == FOUND || event.what == ENDED {
            earlier.entry(event.resource).or_insert(event.what == FOUND);
        }
    }
    for (id, _) in earlier.iter().filter(|(id, open)| **open && !findings.contains_key(id) && !blind.contains(id)) {
        if ids.binary_search(id).is_err() {
            continue;
        }
        let Some(stored) = store.resource(id).await? else { continue };
        if stored.status.facts.contains_key(DRIFT) {
            news.push((stored, None));
        }
    }
    if news.is_empty() {
        return Ok(());
    }
    let Ok(run) = store.begin_run("drift").await else { return Ok(()) };
    for (stored, line) in news {
        let (what, detail) = match &line {
            Some(line) => (FOUND, line.as_str()),
            None => (ENDED, ""),
        };
        let status = with_drift(&stored, line.as_deref());
        let written = async {
            run.status(&stored.id, status).await?;
            run.event(&stored.id, what, detail).await
        };
        written.await.map_err(|error| Failure::new(error.to_string()))?;
    }
    run.finish().await;
    Ok(())
}

/// The status as it is, with the finding in its facts or without any.
pub fn with_drift(stored: &StoredResource, line: Option<&str>) -> Status {
    let mut status = stored.status.clone();
    match line {
        Some(line) => _ = status.facts.insert(DRIFT.into(), json!(line)),
        None => _ = status.facts.remove(DRIFT),
    }
    status
}
