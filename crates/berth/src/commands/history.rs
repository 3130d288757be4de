//! `berth history`: changes in clouds and events, newest first.

use crate::args::{ScopeArgs, WorkspaceArgs};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::stored::{self, or_dash};
use crate::remote::{Remote, messages};
use crate::source::Source;
use crate::view::output::{self, Format, OutputArgs, Table};
use crate::view::progress::short;
use berth_engine::ResourceState;
use berth_model::ResourceId;
use berth_server::pb;
use berth_store::{Entries, HistoryLine, Store};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// Resources of a server whose changes are asked for, one by one.
const RESOURCES_MAX: usize = 200;

/// Show what was done, newest first
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth history\n  berth history CivoKubernetesCluster/shop --limit 50")]
pub struct Args {
    /// One resource, as Kind/name; all when it is left out
    #[arg(value_name = "KIND/NAME")]
    what: Option<String>,
    /// How many lines
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only changes that were begun and that nobody knows the end of
    #[arg(long, conflicts_with = "what")]
    open: bool,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One line, whoever it is about.
struct Line {
    at: Timestamp,
    resource: ResourceId,
    op: String,
    unit: String,
    what: String,
    outcome: String,
    detail: String,
    took: Option<Duration>,
}

pub fn run(args: Args) -> CommandResult {
    let lines = block_on(Threads::One, async {
        let scope = args.workspace.which()?.scope(&args.scope);
        let source = stored::open(&args.workspace).await?;
        let mut lines = match (&args.what, &source) {
            (Some(text), _) => of_one(&source, text, &args, &scope).await?,
            (None, Source::Local(store)) => of_all(store, &args).await?,
            (None, Source::Server(remote)) => of_server(remote, &args).await?,
        };
        whole(&mut lines);
        lines.retain(|line| scope.matches(&line.resource));
        source.close().await;
        Ok(lines)
    })?;
    let format = args.output.output;
    if lines.is_empty() && matches!(format, Format::Table | Format::Wide) {
        anstream::eprintln!(
            "{}",
            if args.open { "nothing is open: every change is known to its end" } else { "nothing was done yet" }
        );
        return Ok(Exit::Done);
    }
    let value: Vec<Value> = lines.iter().map(as_json).collect();
    let names = || lines.iter().map(|line| line.resource.to_string()).collect();
    output::show(format, &value, |wide| table(&lines, args.what.is_none(), wide), names)?;
    Ok(Exit::Done)
}

async fn of_one(source: &Source, text: &str, args: &Args, scope: &ScopeArgs) -> Result<Vec<Line>, Failure> {
    let address = crate::args::address::Address::parse(text, scope)?;
    // What was deleted has a history, too, and is not in the state any more.
    let id = match (stored::one(source, text, scope).await, &address.name) {
        (Ok(stored), _) => stored.id,
        (Err(failure), Some(name)) => {
            let id = ResourceId {
                kind: address.kind.clone(),
                name: name.clone(),
                org: scope.org.clone().unwrap_or_default(),
                env: scope.env.clone().unwrap_or_default(),
            };
            if source.history(&id, 1).await?.is_empty() {
                return Err(failure);
            }
            id
        }
        (Err(failure), None) => return Err(failure),
    };
    Ok(source.history(&id, args.limit).await?.into_iter().map(|line| of_history(&id, line)).collect())
}

fn of_history(id: &ResourceId, line: HistoryLine) -> Line {
    let (op, unit, outcome, ended) = match line.change {
        Some(change) => (change.op, change.unit, change.outcome, change.ended_at),
        None => (String::new(), String::new(), String::new(), None),
    };
    let took = ended.map(|ended| between(line.at, ended)).filter(|_| !op.is_empty());
    Line { at: line.at, resource: id.clone(), op, unit, what: line.what, outcome, detail: line.detail, took }
}

async fn of_all(store: &Store, args: &Args) -> Result<Vec<Line>, Failure> {
    let entries = if args.open { Entries::Open } else { Entries::All };
    let mut lines: Vec<Line> = store
        .journal(entries, args.limit)
        .await?
        .into_iter()
        .map(|entry| Line {
            at: entry.started_at,
            took: entry.ended_at.map(|ended| between(entry.started_at, ended)),
            resource: entry.resource,
            op: entry.op,
            unit: entry.unit,
            what: entry.what,
            outcome: entry.outcome,
            detail: entry.detail,
        })
        .collect();
    if !args.open {
        lines.extend(store.events(args.limit).await?.into_iter().map(|event| Line {
            at: event.at,
            resource: event.resource,
            op: String::new(),
            unit: String::new(),
            what: event.what,
            outcome: String::new(),
            detail: event.detail,
            took: None,
        }));
        // Stable, so that changes of one instant stay in the journal's order.
        lines.sort_by_key(|line| std::cmp::Reverse(line.at));
        lines.truncate(args.limit as usize);
    }
    Ok(lines)
}

/// A server gives the changes of one resource at a time: of those that something happened to lately, or that are under way.
async fn of_server(remote: &Remote, args: &Args) -> Result<Vec<Line>, Failure> {
    let mut ids = BTreeSet::new();
    let mut events = Vec::new();
    if args.open {
        for state in ["running", "queued"] {
            let request = pb::ListTasksRequest { state: state.into(), ..Default::default() };
            let tasks = remote.tasks(request, RESOURCES_MAX).await?;
            ids.extend(
                tasks.iter().filter(|task| task.resource.is_some()).map(|task| messages::id_of(task.resource.as_ref())),
            );
        }
    } else {
        events = remote.newest_events(args.limit).await?;
        ids.extend(events.iter().map(|event| messages::id_of(event.resource.as_ref())));
    }
    let ids: Vec<ResourceId> = ids.into_iter().filter(|id| !id.kind.is_empty()).take(RESOURCES_MAX).collect();
    let mut lines = Vec::new();
    let mut told = HashSet::new();
    for (id, history) in remote.histories(ids, args.limit).await? {
        if !history.is_empty() {
            told.insert(id.clone());
        }
        lines.extend(history.into_iter().map(|line| of_history(&id, line)));
    }
    // Of what is gone, the events are left.
    let gone = events.into_iter().map(|event| (messages::id_of(event.resource.as_ref()), event));
    lines.extend(gone.filter(|(id, _)| !told.contains(id)).map(|(resource, event)| Line {
        at: messages::time(&event.at),
        resource,
        op: String::new(),
        unit: String::new(),
        what: event.what,
        outcome: String::new(),
        detail: event.detail,
        took: None,
    }));
    if args.open {
        lines.retain(|line| !line.op.is_empty() && line.outcome.is_empty());
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.at));
    lines.truncate(args.limit as usize);
    Ok(lines)
}

/// A call that a cloud takes is answered at once, and what it asked for takes its time: a change is over when its resource is
/// Ready after it. Deletions are journaled until the object is gone. Newest first.
fn whole(lines: &mut [Line]) {
    let mut ready: HashMap<ResourceId, Timestamp> = HashMap::new();
    for line in lines {
        match (line.op.as_str(), ResourceState::parse(&line.what)) {
            ("", Some(ResourceState::Ready)) => _ = ready.insert(line.resource.clone(), line.at),
            ("", Some(ResourceState::Failed)) => _ = ready.remove(&line.resource),
            ("create" | "update", _) if line.outcome == "done" => {
                line.took = ready.get(&line.resource).map(|at| between(line.at, *at));
            }
            _ => {}
        }
    }
}

fn between(start: Timestamp, end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(start)).unwrap_or_default()
}

fn table(lines: &[Line], all: bool, wide: bool) -> String {
    let mut columns = vec!["WHEN"];
    if all {
        columns.push("RESOURCE");
    }
    columns.extend(["OP", "UNIT", "OUTCOME", "TOOK", "WHAT"]);
    let mut table = Table::new(columns);
    for line in lines {
        let mut row = vec![stored::time(line.at)];
        if all {
            row.push(line.resource.to_string());
        }
        row.extend([or_dash(&line.op), or_dash(&line.unit), outcome(line).to_owned(), took(line)]);
        let said = line.detail.is_empty() || (!wide && line.outcome == "done");
        row.push(if said { line.what.clone() } else { format!("{}: {}", line.what, line.detail) });
        table.row(row);
    }
    table.render()
}

fn outcome(line: &Line) -> &str {
    match (line.op.as_str(), line.outcome.as_str()) {
        ("", _) => "-",
        (_, "") => "open",
        (_, outcome) => outcome,
    }
}

fn took(line: &Line) -> String {
    match line.took {
        Some(took) if took < Duration::from_secs(1) => format!("{}ms", took.as_millis()),
        Some(took) => short(took),
        None => "-".into(),
    }
}

fn as_json(line: &Line) -> Value {
    json!({
        "at": stored::time(line.at),
        "resource": line.resource,
        "op": line.op,
        "unit": line.unit,
        "what": line.what,
        "outcome": if line.op.is_empty() { "event" } else { outcome(line) },
        "detail": line.detail,
        "seconds": line.took.map(|took| took.as_secs_f64()),
    })
}

/// A few lines for people, for `describe`.
pub fn brief(id: &ResourceId, lines: Vec<HistoryLine>) -> String {
    let mut lines: Vec<Line> = lines.into_iter().map(|line| of_history(id, line)).collect();
    whole(&mut lines);
    table(&lines, false, false)
}
