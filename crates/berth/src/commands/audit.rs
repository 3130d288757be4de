//! `berth audit`: who did what, and whether the log of it is whole.

use crate::cli::{Threads, block_on};
use crate::commands::token::brief;
use crate::failure::{CommandResult, Exit, Failure};
use crate::remote::contexts::ContextArg;
use crate::remote::kept_heads;
use crate::view::output::{self, OutputArgs, Table};
use crate::view::resource_view::or_dash;
use berth_server::client::Client;
use berth_server::pb;
use serde_json::{Value, json};
use std::path::PathBuf;

const PAGE: u32 = 1000;

/// Show who did what, and check that nothing was taken from the log
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth audit list --actor oidc:alice@example.com\n  berth audit verify --since kept-heads",
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
    #[command(before_help = "Examples:\n  berth audit verify\n  berth audit verify --since kept-heads")]
    Verify(Verify),
    /// Print the log's head: its newest entry's number and hash, to be kept elsewhere
    #[command(before_help = "Examples:\n  berth audit head >> kept-heads\n  berth audit head -o json")]
    Head(Head),
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
    /// Heads that were kept elsewhere, as `berth audit head` or a server's --audit-head-file wrote them: the log must still hold each of them
    #[arg(long, value_name = "FILE")]
    since: Option<PathBuf>,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Debug)]
struct Head {
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    match args.what {
        Some(What::List(args)) => list(args),
        Some(What::Verify(args)) => verify(args),
        Some(What::Head(args)) => head(args),
        None => list(args.list),
    }
}

fn list(args: List) -> CommandResult {
    let entries = block_on(Threads::One, async { read(&args.context.client().await?, &args).await })?;
    let format = args.output.output;
    if entries.is_empty() && format.is_for_people() {
        anstream::eprintln!("nothing of that kind was done");
        return Ok(Exit::Done);
    }
    let value: Vec<Value> = entries.iter().map(as_json).collect();
    let table = |wide| {
        let mut columns = vec!["NR", "WHEN", "ACTOR", "ACTION", "OUTCOME", "TARGET"];
        if wide {
            columns.extend(["ID", "DETAIL", "HASH"]);
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
                row.extend([or_dash(&entry.actor_id), or_dash(&entry.detail), entry.hash.clone()]);
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
        let page =
            client.access().audit(request).await.map_err(|status| Failure::from(client.fault(&status)))?.into_inner();
        let last = page.entries.len() < size as usize;
        entries.extend(page.entries);
        if last {
            return Ok(entries);
        }
    }
}

fn head(args: Head) -> CommandResult {
    let head = block_on(Threads::One, async {
        let client = args.context.client().await?;
        let answer = client.access().audit_head(pb::AuditHeadRequest {}).await;
        Ok(answer.map_err(|status| Failure::from(client.fault(&status)))?.into_inner())
    })?;
    let line = format!("{} {}", head.id, head.hash);
    output::show(
        args.output.output,
        &json!({"id": head.id, "hash": head.hash}),
        |_| format!("{line}\n"),
        || vec![line.clone()],
    )?;
    Ok(Exit::Done)
}

fn verify(args: Verify) -> CommandResult {
    let kept = args.since.as_deref().map(kept_heads::read).transpose()?;
    let (state, missing) = block_on(Threads::One, async {
        let client = args.context.client().await?;
        let mut state = recompute(&client, pb::VerifyAuditRequest::default()).await?;
        let Some(kept) = &kept else { return Ok((state, None)) };
        let missing = kept_heads::missing(&client, kept).await?;
        // What was lost before the oldest head that was kept was looked into before that was kept.
        if let Some(oldest) = kept.first().filter(|head| state.reason == "head-lost" && state.broken_at <= head.id) {
            let from = pb::VerifyAuditRequest { after: oldest.id, hash: oldest.hash.clone() };
            state = recompute(&client, from).await?;
        }
        Ok((state, missing))
    })?;
    let good = state.whole && missing.is_none();
    let broken = if state.whole { Value::Null } else { json!(state.broken_at) };
    let value = json!({
        "whole": good,
        "entries": state.entries,
        "brokenAt": broken,
        "reason": state.reason,
        "head": state.head,
        "last": state.last,
        "since": kept.as_ref().map(|kept| json!({
            "heads": kept.len(),
            "missing": missing.as_ref().map(|missing| json!({"id": missing.head.id, "reason": missing.reason.name()})),
        })),
    });
    let text = |_| {
        let mut text = match (state.whole, state.reason.as_str()) {
            (true, _) => format!(
                "whole: {} entries, each follows from the one before it\nhead   {} {}\n",
                state.entries, state.last, state.head
            ),
            (false, "head") => {
                "broken: the entries follow from each other, and are not those that the server's key vouches for: \
                 the log, or its head, was written by someone without the key\n"
                    .into()
            }
            (false, "head-lost") => format!(
                "broken at entry {}: the server found the log's head gone, forged or not at its end there; nothing vouches for the entries before it\n",
                state.broken_at
            ),
            (false, "added") => format!(
                "broken at entry {}: the log's head does not vouch for it; it was added by someone without the key\n",
                state.broken_at
            ),
            _ => format!("broken at entry {}: it, or one before it, was changed or removed\n", state.broken_at),
        };
        if let (Some(kept), None) = (&kept, &missing) {
            text.push_str(&format!("all {} heads that were kept are in it\n", kept.len()));
        }
        if let Some(missing) = &missing {
            text.push_str(&missing.text());
        }
        text
    };
    output::show(args.output.output, &value, text, || vec![state.head.clone()])?;
    Ok(if good { Exit::Done } else { Exit::Failed })
}

/// As the server does it, from this entry on.
async fn recompute(client: &Client, mut request: pb::VerifyAuditRequest) -> Result<pb::VerifyAuditResponse, Failure> {
    let mut entries = 0;
    loop {
        let answer = client.access().verify_audit(request).await;
        let mut part = answer.map_err(|status| Failure::from(client.fault(&status)))?.into_inner();
        entries += part.entries;
        if !part.more {
            part.entries = entries;
            return Ok(part);
        }
        request = pb::VerifyAuditRequest { after: part.last, hash: part.head };
    }
}

fn as_json(entry: &pb::AuditEntry) -> Value {
    json!({
        "id": entry.id,
        "at": entry.at,
        "actor": entry.actor,
        "actorId": entry.actor_id,
        "action": entry.action,
        "target": entry.target,
        "detail": entry.detail,
        "outcome": entry.outcome,
        "hash": entry.hash,
        "previous": entry.previous,
    })
}
