//! `berth history`: changes in clouds and events, newest first.

use crate::args::{Address, ResourceArgs, ScopeArgs};
use crate::backend::{Access, Backend, lookup, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::output::{self, OutputArgs, Table};
use crate::view::progress::short;
use crate::view::resource_view::{self, or_dash};
use berth_engine::ResourceState;
use berth_model::ResourceId;
use berth_store::HistoryLine;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

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
    resources: ResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One line of the history.
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
    let scope = args.resources.scope()?;
    let lines = with_backend(&args.resources.workspace, Access::Read, async |backend| {
        let mut lines = match &args.what {
            Some(text) => of_one(backend, text, &args, &scope).await?,
            None => {
                let all = backend.recent_history(args.open, args.limit).await?;
                all.into_iter().map(|(id, line)| Line::new(id, line)).collect()
            }
        };
        whole(&mut lines);
        lines.retain(|line| scope.matches(&line.resource));
        Ok(lines)
    })?;
    let format = args.output.output;
    if lines.is_empty() && format.is_for_people() {
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

async fn of_one(backend: &dyn Backend, text: &str, args: &Args, scope: &ScopeArgs) -> Result<Vec<Line>, Failure> {
    let address = Address::parse(text, scope)?;
    // A deleted resource has a history although it is not in the state any more.
    let id = match (lookup::one(backend, text, scope).await, &address.name) {
        (Ok(stored), _) => stored.id,
        (Err(failure), Some(name)) => {
            let id = ResourceId {
                kind: address.kind.clone(),
                name: name.clone(),
                org: scope.org.clone().unwrap_or_default(),
                env: scope.env.clone().unwrap_or_default(),
            };
            if backend.history(&id, 1).await?.is_empty() {
                return Err(failure);
            }
            id
        }
        (Err(failure), None) => return Err(failure),
    };
    Ok(backend.history(&id, args.limit).await?.into_iter().map(|line| Line::new(id.clone(), line)).collect())
}

impl Line {
    fn new(resource: ResourceId, line: HistoryLine) -> Self {
        let (op, unit, outcome, ended) = match line.change {
            Some(change) => (change.op, change.unit, change.outcome, change.ended_at),
            None => (String::new(), String::new(), String::new(), None),
        };
        let took = ended.map(|ended| between(line.at, ended)).filter(|_| !op.is_empty());
        Self { at: line.at, resource, op, unit, what: line.what, outcome, detail: line.detail, took }
    }
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
        let mut row = vec![resource_view::time(line.at)];
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
        "at": resource_view::time(line.at),
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
    let mut lines: Vec<Line> = lines.into_iter().map(|line| Line::new(id.clone(), line)).collect();
    whole(&mut lines);
    table(&lines, false, false)
}
