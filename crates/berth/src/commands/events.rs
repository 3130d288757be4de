//! `berth events`: what happened on a server, and what happens.

use crate::args::{Address, ServerResourceArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::remote::event_stream::{StreamItem, subscribe};
use crate::remote::{PAGE, Remote, messages, with_server};
use crate::view::output::{self, Format, OutputArgs, Table};
use crate::view::resource_view;
use crate::view::terminal::harmless_line;
use berth_server::pb;
use serde_json::{Value, json};

/// Shown before new ones, where nobody says from where.
const SHOWN_FIRST: u32 = 20;

/// Show what happened on the server
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth events\n  berth events -f --after 1200 -o json")]
pub struct Args {
    /// One resource, as Kind/name, or a kind; all when it is left out
    #[arg(value_name = "KIND[/NAME]")]
    what: Option<String>,
    /// Go on with new events as they come; a broken connection is taken up again without loss
    #[arg(short, long)]
    follow: bool,
    /// Only events after this number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    after: Option<i64>,
    /// How many, without --follow
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    resources: ServerResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let scope = args.resources.scope()?;
    let address = args.what.as_deref().map(|text| Address::parse(text, &scope)).transpose()?;
    with_server(&args.resources.server, async |remote| {
        let part = |part: Option<&String>| part.cloned().unwrap_or_default();
        let filter = pb::WatchRequest {
            after: args.after.unwrap_or(-1),
            kind: part(address.as_ref().map(|a| &a.kind)),
            name: part(address.as_ref().and_then(|a| a.name.as_ref())),
            org: part(scope.org.as_ref()),
            env: part(scope.env.as_ref()),
        };
        match args.follow {
            true => follow(&args, remote, filter).await,
            false => list(&args, remote, &filter).await,
        }
    })
}

/// In the order in which they happened.
async fn read(remote: &Remote, filter: &pb::WatchRequest, limit: u32) -> Result<Vec<pb::Event>, Failure> {
    let newest = filter.after < 0;
    let mut request = pb::ListEventsRequest {
        after: filter.after.max(0),
        kind: filter.kind.clone(),
        name: filter.name.clone(),
        org: filter.org.clone(),
        env: filter.env.clone(),
        page_size: limit.min(PAGE),
        newest,
    };
    let mut events: Vec<pb::Event> = Vec::new();
    loop {
        let answer = remote.client.events().list(request.clone()).await.map_err(|s| remote.fail(&s))?;
        let page = answer.into_inner().events;
        let whole = page.len() == request.page_size as usize;
        events.extend(page);
        let left = (limit as usize).saturating_sub(events.len());
        // The newest events are read in one page.
        if newest || !whole || left == 0 {
            break;
        }
        request.after = events.last().map_or(0, |event| event.id);
        request.page_size = u32::try_from(left).unwrap_or(PAGE).min(PAGE);
    }
    if newest {
        events.reverse();
    }
    Ok(events)
}

async fn list(args: &Args, remote: &Remote, filter: &pb::WatchRequest) -> CommandResult {
    let events = read(remote, filter, args.limit).await?;
    let format = args.output.output;
    if events.is_empty() && format.is_for_people() {
        anstream::eprintln!("nothing happened yet");
        return Ok(Exit::Done);
    }
    let value: Vec<Value> = events.iter().map(as_json).collect();
    let names = || events.iter().map(|event| messages::id_of(event.resource.as_ref()).to_string()).collect();
    let table = |wide: bool| {
        let mut columns = vec!["ID", "WHEN", "RESOURCE", "WHAT"];
        if wide {
            columns.insert(3, "TASK");
        }
        let mut table = Table::new(columns).sandbox(events.iter().any(|event| event.sandbox));
        for event in &events {
            let (id, at) = (event.id.to_string(), resource_view::time(messages::time(&event.at)));
            let mut row = vec![id, at, resource(event), what(event)];
            if wide {
                row.insert(3, resource_view::or_dash(&event.task));
            }
            table.row(row);
        }
        table.render()
    };
    output::show(format, &value, table, names)?;
    Ok(Exit::Done)
}

async fn follow(args: &Args, remote: &Remote, mut filter: pb::WatchRequest) -> CommandResult {
    let format = args.output.output;
    if filter.after < 0 {
        for event in read(remote, &filter, SHOWN_FIRST).await? {
            filter.after = event.id;
            print(&event, format)?;
        }
    }
    let mut stream = subscribe(remote, filter);
    let stop = crate::signals::signal();
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            _ = &mut stop => return Ok(Exit::Done),
            item = stream.next() => match item {
                Some(StreamItem::Event(event)) => print(&event, format)?,
                Some(StreamItem::Disconnected(fault)) => anstream::eprintln!("{}; trying again", harmless_line(&fault.message)),
                Some(StreamItem::Reconnected) => anstream::eprintln!("connected again; nothing was missed"),
                Some(StreamItem::Ended(fault)) => return Err(fault.into()),
                None => return Ok(Exit::Done),
            },
        }
    }
}

/// One line for each event, also as JSON, so that a stream can be read by lines.
fn print(event: &pb::Event, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => output::print(&format!("{}\n", as_json(event))),
        Format::Yaml => output::print(&format!("---\n{}", crate::view::yaml::to_yaml(&as_json(event)))),
        Format::Name => {
            let id = messages::id_of(event.resource.as_ref());
            output::print(&format!("{}\n", harmless_line(&id.to_string())))
        }
        Format::Table | Format::Wide => {
            let at = resource_view::time(messages::time(&event.at));
            let clouds = if event.sandbox { "  sandbox" } else { "" };
            let line = format!("{:>6}  {at}  {}{clouds}  {}", event.id, resource(event), what(event));
            output::print(&format!("{}\n", harmless_line(&line)))
        }
    }
}

fn resource(event: &pb::Event) -> String {
    match event.resource.as_ref().filter(|id| !id.kind.is_empty()) {
        Some(id) => crate::args::address::placed(&messages::id_of(Some(id))),
        None => "-".into(),
    }
}

pub fn what(event: &pb::Event) -> String {
    if event.detail.is_empty() { event.what.clone() } else { format!("{}: {}", event.what, event.detail) }
}

fn as_json(event: &pb::Event) -> Value {
    json!({
        "id": event.id,
        "at": event.at,
        "resource": event.resource.as_ref().map(|id| messages::id_of(Some(id))),
        "what": event.what,
        "detail": event.detail,
        "task": event.task,
        "sandbox": event.sandbox,
    })
}
