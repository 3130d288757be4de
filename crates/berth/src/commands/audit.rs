//! `berth audit`: who did what, and whether the log of it is whole.

use crate::cli::{Threads, block_on};
use crate::commands::token::brief;
use crate::contexts::{ContextArg, told};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, Format, OutputArgs, Table};
use crate::stored::or_dash;
use berth_server::client::Client;
use berth_server::pb;
use serde_json::{Value, json};

const PAGE: u32 = 1000;

/// Show who did what, and check that nothing was taken from the log
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth audit list --actor oidc:alice@example.com\n  berth audit verify",
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    list: List,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// List what was done, newest first
    #[command(
        before_help = "Examples:\n  berth audit list\n  berth audit list --action kubeconfig --limit 500 -o json"
    )]
    List(List),
    /// Recompute the chain of hashes: a changed or removed entry shows
    #[command(before_help = "Examples:\n  berth audit verify\n  berth audit verify -o json")]
    Verify(Verify),
}

#[derive(clap::Args, Debug)]
struct List {
    /// Only what this one did, such as token:ci
    #[arg(long, value_name = "ACTOR", default_value = "", hide_default_value = true)]
    actor: String,
    /// Only this, such as apply or kubeconfig
    #[arg(long, value_name = "ACTION", default_value = "", hide_default_value = true)]
    action: String,
    /// How many entries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Debug)]
struct Verify {
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> Outcome {
    match args.what {
        Some(What::List(args)) => list(args),
        Some(What::Verify(args)) => verify(args),
        None => list(args.list),
    }
}

fn list(args: List) -> Outcome {
    let entries = block_on(Threads::One, async { read(&args.context.client().await?, &args).await })?;
    let format = args.output.output;
    if entries.is_empty() && matches!(format, Format::Table | Format::Wide) {
        anstream::eprintln!("nothing of that kind was done");
        return Ok(Exit::Done);
    }
    let value: Vec<Value> = entries.iter().map(as_json).collect();
    let table = |wide| {
        let mut columns = vec!["NR", "WHEN", "ACTOR", "ACTION", "OUTCOME", "TARGET"];
        if wide {
            columns.extend(["DETAIL", "HASH"]);
        }
        let mut table = Table::new(columns).text_columns(if wide { 0 } else { 1 });
        for entry in &entries {
            let mut row = vec![
                entry.id.to_string(),
                brief(&entry.at),
                entry.actor.clone(),
                entry.action.clone(),
                entry.outcome.clone(),
                or_dash(&entry.target),
            ];
            if wide {
                row.extend([or_dash(&entry.detail), entry.hash.clone()]);
            }
            table.row(row);
        }
        table.render()
    };
    output::show(format, &value, table, || entries.iter().map(|entry| entry.id.to_string()).collect())?;
    Ok(Exit::Done)
}

async fn read(client: &Client, args: &List) -> Result<Vec<pb::AuditEntry>, Failure> {
    let mut entries: Vec<pb::AuditEntry> = Vec::new();
    loop {
        let left = args.limit - u32::try_from(entries.len()).unwrap_or(args.limit).min(args.limit);
        let size = left.min(PAGE);
        if size == 0 {
            return Ok(entries);
        }
        let request = pb::AuditRequest {
            before: entries.last().map_or(0, |entry| entry.id),
            page_size: size,
            actor: args.actor.clone(),
            action: args.action.clone(),
        };
        let page = client.access().audit(request).await.map_err(|status| told(client.fault(&status)))?.into_inner();
        let last = page.entries.len() < size as usize;
        entries.extend(page.entries);
        if last {
            return Ok(entries);
        }
    }
}

fn verify(args: Verify) -> Outcome {
    let state = block_on(Threads::One, async {
        let client = args.context.client().await?;
        let (mut request, mut entries) = (pb::VerifyAuditRequest::default(), 0);
        loop {
            let answer = client.access().verify_audit(request).await;
            let mut part = answer.map_err(|status| told(client.fault(&status)))?.into_inner();
            entries += part.entries;
            if !part.more {
                part.entries = entries;
                return Ok(part);
            }
            request = pb::VerifyAuditRequest { after: part.last, hash: part.head };
        }
    })?;
    let broken = if state.whole { Value::Null } else { json!(state.broken_at) };
    let value = json!({"whole": state.whole, "entries": state.entries, "brokenAt": broken, "head": state.head});
    let text = |_| match state.whole {
        true => {
            format!("whole: {} entries, each follows from the one before it\nhead   {}\n", state.entries, state.head)
        }
        false => format!("broken at entry {}: it, or one before it, was changed or removed\n", state.broken_at),
    };
    output::show(args.output.output, &value, text, || vec![state.head.clone()])?;
    Ok(if state.whole { Exit::Done } else { Exit::Failed })
}

fn as_json(entry: &pb::AuditEntry) -> Value {
    json!({
        "id": entry.id,
        "at": entry.at,
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "detail": entry.detail,
        "outcome": entry.outcome,
        "hash": entry.hash,
        "previous": entry.previous,
    })
}
