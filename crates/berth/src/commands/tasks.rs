//! `berth tasks`: what a server's workers do, did, and are to do.

use crate::args::{Address, ServerArgs, ServerResourceArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::remote::{PAGE, Remote, messages, with_server};
use crate::view::output::{self, Format, OutputArgs, Table};
use crate::view::progress::short;
use crate::view::resource_view::{self, age, or_dash, short_message};
use crate::view::terminal::harmless_line;
use berth_server::pb;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

/// How often a watched task or list is read again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What a resource's open tasks may be: one that changes it, and checks.
const OPEN_MAX: usize = 100;

/// List, follow and cancel what the server's workers do
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth tasks -w\n  berth tasks cancel CivoKubernetesCluster/shop",
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// List tasks, newest first
    #[command(
        before_help = "Examples:\n  berth tasks list --state failed\n  berth tasks list CivoKubernetesCluster/shop -w"
    )]
    List(ListArgs),
    /// Show everything about one task
    #[command(before_help = "Examples:\n  berth tasks show 0192f3…\n  berth tasks show 0192f3… -o json")]
    Show(OneArgs),
    /// Print a task's log
    #[command(before_help = "Examples:\n  berth tasks logs 0192f3…\n  berth tasks logs 0192f3… -w")]
    Logs(LogArgs),
    /// Ask the worker to stop after the call in flight
    #[command(before_help = "Examples:\n  berth tasks cancel 0192f3…\n  berth tasks cancel CivoKubernetesCluster/shop")]
    Cancel(CancelArgs),
}

#[derive(clap::Args, Debug)]
struct ListArgs {
    /// Only those about this resource, as Kind/name, or about a kind
    #[arg(value_name = "KIND[/NAME]")]
    what: Option<String>,
    /// Only those in this state: queued, running, done, failed or cancelled
    #[arg(long, value_name = "STATE", value_parser = ["queued", "running", "done", "failed", "cancelled"], hide_possible_values = true)]
    state: Option<String>,
    /// Only those that do this: apply, delete, drift, plan or import
    #[arg(long, value_name = "OP", value_parser = ["apply", "delete", "drift", "plan", "import"], hide_possible_values = true)]
    op: Option<String>,
    /// Only those of this account
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Go on, with a line whenever something changes
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    resources: ServerResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Debug)]
struct OneArgs {
    /// The task, as `berth tasks` lists it
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Debug)]
struct LogArgs {
    /// The task, as `berth tasks` lists it
    #[arg(value_name = "ID")]
    id: String,
    /// Go on until the task ends
    #[arg(short, long, visible_alias = "follow")]
    watch: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(clap::Args, Debug)]
struct CancelArgs {
    /// The task, or a resource as Kind/name, whose tasks are all meant
    #[arg(value_name = "ID|KIND/NAME")]
    what: String,
    #[command(flatten)]
    resources: ServerResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    match args.what {
        None => list(args.list),
        Some(What::List(list_args)) => list(list_args),
        Some(What::Show(one)) => show(&one),
        Some(What::Logs(log)) => logs(&log),
        Some(What::Cancel(which)) => cancel(&which),
    }
}

fn list(args: ListArgs) -> CommandResult {
    let scope = args.resources.scope()?;
    let address = args.what.as_deref().map(|text| Address::parse(text, &scope)).transpose()?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let request = pb::ListTasksRequest {
        state: text(&args.state),
        op: text(&args.op),
        kind: address.as_ref().map(|a| a.kind.clone()).unwrap_or_default(),
        name: address.as_ref().and_then(|a| a.name.clone()).unwrap_or_default(),
        org: text(&scope.org),
        env: text(&scope.env),
        account: text(&args.account),
        ..Default::default()
    };
    let format = args.output.output;
    with_server(&args.resources.server, async |remote| {
        if args.watch {
            return watch(remote, request, args.limit as usize, format).await;
        }
        let tasks = remote.tasks(request, args.limit as usize).await?;
        if tasks.is_empty() && format.is_for_people() {
            anstream::eprintln!("there are no such tasks");
            return Ok(Exit::Done);
        }
        let value: Vec<Value> = tasks.iter().map(as_json).collect();
        let names = || tasks.iter().map(|task| task.id.clone()).collect();
        output::show(format, &value, |wide| table(&tasks, wide), names)?;
        Ok(Exit::Done)
    })
}

/// A line for each task that is new or changed, until Ctrl-C.
async fn watch(remote: &Remote, request: pb::ListTasksRequest, limit: usize, format: Format) -> CommandResult {
    let mut known: HashMap<String, (String, String)> = HashMap::new();
    let stop = crate::signals::signal();
    let mut stop = std::pin::pin!(stop);
    loop {
        let mut tasks = remote.tasks(request.clone(), limit).await?;
        tasks.reverse();
        for task in &tasks {
            let now = (task.state.clone(), task.message.clone());
            if known.get(&task.id) == Some(&now) {
                continue;
            }
            known.insert(task.id.clone(), now);
            match format {
                Format::Json => output::print(&format!("{}\n", as_json(task)))?,
                Format::Yaml => output::print(&format!("---\n{}", crate::view::yaml::to_yaml(&as_json(task))))?,
                Format::Name => output::print(&format!("{}\n", harmless_line(&task.id)))?,
                Format::Table | Format::Wide => {
                    let line = format!(
                        "{}  {:<9}  {:<6}  {}  {}",
                        task.id,
                        state(task),
                        task.op,
                        about(task),
                        task.message.lines().next().unwrap_or_default()
                    );
                    output::print(&format!("{}\n", harmless_line(line.trim_end())))?;
                }
            }
        }
        let listed: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        known.retain(|id, _| listed.contains(&id.as_str()));
        tokio::select! {
            _ = &mut stop => return Ok(Exit::Done),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

fn table(tasks: &[pb::Task], wide: bool) -> String {
    let mut columns = vec!["ID", "OP", "RESOURCE", "STATE", "AGE", "TOOK", "WORKER", "DOING"];
    if wide {
        columns.splice(7..7, ["ACCOUNT", "TRIES", "PRIORITY", "NOT BEFORE"]);
    }
    let mut table = Table::new(columns).sandbox(tasks.iter().any(|task| task.sandbox));
    let now = Timestamp::now();
    for task in tasks {
        let mut row = vec![
            task.id.clone(),
            task.op.clone(),
            about(task),
            state(task).to_owned(),
            age(messages::time(&task.created_at), now),
            took(task, now),
            or_dash(&task.worker),
        ];
        if wide {
            row.extend([or_dash(&task.account), task.attempts.to_string(), task.priority.to_string()]);
            row.push(or_dash(&task.run_after));
        }
        row.push(if wide { or_dash(&task.message) } else { or_dash(&short_message(&task.message)) });
        table.row(row);
    }
    table.render()
}

/// What a task is about.
pub fn about(task: &pb::Task) -> String {
    match task.resource.as_ref().filter(|id| !id.kind.is_empty()) {
        Some(id) => crate::args::address::placed(&messages::id_of(Some(id))),
        None if task.resources > 0 => crate::view::diagnostics::count(task.resources as usize, "resource"),
        None => "-".into(),
    }
}

pub fn state(task: &pb::Task) -> &str {
    if task.cancelling && task.state == "running" { "cancelling" } else { &task.state }
}

/// From its begin to its end, or to now.
pub fn took(task: &pb::Task, now: Timestamp) -> String {
    let Some(started) = messages::maybe_time(&task.started_at) else { return "-".into() };
    let ended = messages::maybe_time(&task.ended_at).unwrap_or(now);
    short(Duration::try_from(ended.duration_since(started)).unwrap_or_default())
}

fn as_json(task: &pb::Task) -> Value {
    json!({
        "id": task.id,
        "sandbox": task.sandbox,
        "op": task.op,
        "resource": task.resource.as_ref().filter(|id| !id.kind.is_empty()).map(|id| messages::id_of(Some(id))),
        "resources": task.resources,
        "service": task.service,
        "account": task.account,
        "state": task.state,
        "cancelling": task.cancelling,
        "worker": task.worker,
        "attempts": task.attempts,
        "priority": task.priority,
        "generation": task.generation,
        "createdAt": task.created_at,
        "startedAt": task.started_at,
        "endedAt": task.ended_at,
        "leaseUntil": task.lease_until,
        "runAfter": task.run_after,
        "message": task.message,
        "help": task.help,
    })
}

/// Everything about a task, name by name.
pub fn details(task: &pb::Task, now: Timestamp) -> Vec<(&'static str, String)> {
    let ago = |text: &str| match messages::maybe_time(text) {
        Some(at) => format!("{} ({} ago)", resource_view::time(at), age(at, now)),
        None => "-".into(),
    };
    vec![
        ("task", task.id.clone()),
        ("does", task.op.clone()),
        ("about", about(task)),
        ("state", state(task).to_owned()),
        ("doing", or_dash(&task.message)),
        ("helps", or_dash(&task.help.join("; "))),
        ("worker", or_dash(&task.worker)),
        ("account", or_dash(&task.account)),
        ("tries", task.attempts.to_string()),
        ("made", ago(&task.created_at)),
        ("begun", ago(&task.started_at)),
        ("ended", ago(&task.ended_at)),
        ("took", took(task, now)),
        ("lease until", or_dash(&task.lease_until)),
        ("not before", or_dash(&task.run_after)),
        ("generation", task.generation.to_string()),
    ]
}

fn show(args: &OneArgs) -> CommandResult {
    let task = with_server(&args.server, async |remote| get(remote, &args.id).await)?;
    let text = |_| {
        let rows = details(&task, Timestamp::now());
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        rows.iter().map(|(name, value)| format!("{name:<width$}  {}\n", harmless_line(value))).collect()
    };
    output::show(args.output.output, &as_json(&task), text, || vec![task.id.clone()])?;
    Ok(Exit::Done)
}

async fn get(remote: &Remote, id: &str) -> Result<pb::Task, Failure> {
    let request = pb::GetTaskRequest { id: id.to_owned() };
    Ok(remote.client.tasks().get(request).await.map_err(|s| remote.fail(&s))?.into_inner())
}

fn logs(args: &LogArgs) -> CommandResult {
    with_server(&args.server, async |remote| {
        let mut page_token = String::new();
        let mut seen = 0;
        let stop = crate::signals::signal();
        let mut stop = std::pin::pin!(stop);
        loop {
            // Asked before the lines are read: a task that is over by then writes no more.
            let over = !args.watch || is_over(&get(remote, &args.id).await?);
            loop {
                let request =
                    pb::TaskLogsRequest { id: args.id.clone(), page_size: PAGE, page_token: page_token.clone() };
                let page = remote.client.tasks().logs(request).await.map_err(|s| remote.fail(&s))?.into_inner();
                // The last page has no token, and may grow: what was shown of it is not shown again.
                for line in page.lines.iter().skip(seen) {
                    let text = format!("{}  {}", resource_view::time(messages::time(&line.at)), line.text);
                    output::print(&format!("{}\n", harmless_line(&text)))?;
                }
                seen = page.lines.len().max(seen);
                if page.next_page_token.is_empty() {
                    break;
                }
                page_token = page.next_page_token;
                seen = 0;
            }
            if over {
                return Ok(Exit::Done);
            }
            tokio::select! {
                _ = &mut stop => return Ok(Exit::Done),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    })
}

fn is_over(task: &pb::Task) -> bool {
    !matches!(task.state.as_str(), "queued" | "running")
}

fn cancel(args: &CancelArgs) -> CommandResult {
    let scope = args.resources.scope()?;
    let address = match args.what.contains('/') {
        true => Some(Address::parse(&args.what, &scope)?),
        false => None,
    };
    let tasks = with_server(&args.resources.server, async |remote| {
        let ids = match &address {
            None => vec![args.what.clone()],
            Some(address) => open(remote, address).await?,
        };
        let mut tasks = Vec::new();
        for id in ids {
            let request = pb::CancelTaskRequest { id };
            tasks.push(remote.client.tasks().cancel(request).await.map_err(|s| remote.fail(&s))?.into_inner());
        }
        Ok(tasks)
    })?;
    let text = |_| {
        let line = |task: &pb::Task| match task.state.as_str() {
            "running" => format!("{} {} stops after the call in flight\n", task.op, about(task)),
            _ => format!("{} {} is {}\n", task.op, about(task), task.state),
        };
        tasks.iter().map(|task| harmless_line(line(task).trim_end()).into_owned() + "\n").collect()
    };
    let value: Vec<Value> = tasks.iter().map(as_json).collect();
    output::show(args.output.output, &value, text, || tasks.iter().map(|task| task.id.clone()).collect())?;
    Ok(Exit::Done)
}

/// The ids of a resource's tasks that are not over.
async fn open(remote: &Remote, address: &Address) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::new();
    for state in ["running", "queued"] {
        let request = pb::ListTasksRequest {
            state: state.into(),
            kind: address.kind.clone(),
            name: address.name.clone().unwrap_or_default(),
            org: address.org.clone().unwrap_or_default(),
            env: address.env.clone().unwrap_or_default(),
            ..Default::default()
        };
        ids.extend(remote.tasks(request, OPEN_MAX).await?.into_iter().map(|task| task.id));
    }
    if ids.is_empty() {
        return Err(Failure::new(format!("nothing is under way for {address}"))
            .help(format!("to see what was:   berth tasks list {address}{}", address.flags())));
    }
    Ok(ids)
}
