//! `berth accounts`: how busy a server keeps each account.

use crate::args::ServerArgs;
use crate::failure::{CommandResult, Exit};
use crate::remote::with_server;
use crate::view::output::{self, OutputArgs, Table};
use crate::view::resource_view::or_dash;
use berth_server::pb;
use serde_json::{Value, json};

/// List accounts and how busy they are
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth accounts\n  berth accounts -o json")]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let accounts = with_server(&args.server, async |remote| {
        let answer = remote.client.tasks().accounts(pb::ListAccountsRequest {}).await;
        Ok(answer.map_err(|status| remote.fail(&status))?.into_inner().accounts)
    })?;
    let format = args.output.output;
    if accounts.is_empty() && format.is_for_people() {
        anstream::eprintln!("no account is in use");
        return Ok(Exit::Done);
    }
    let value: Vec<Value> = accounts.iter().map(as_json).collect();
    let names = || accounts.iter().map(|account| account.account.clone()).collect();
    output::show(format, &value, |_| table(&accounts), names)?;
    Ok(Exit::Done)
}

fn table(accounts: &[pb::AccountLoad]) -> String {
    let mut table = Table::new(["ACCOUNT", "ORG", "RUNNING", "QUEUED"]);
    for account in accounts {
        let running = match account.limit {
            0 => account.running.to_string(),
            limit => format!("{}/{limit}", account.running),
        };
        table.row([or_dash(&account.account), or_dash(&account.org), running, account.queued.to_string()]);
    }
    table.render()
}

fn as_json(account: &pb::AccountLoad) -> Value {
    json!({
        "account": account.account,
        "org": account.org,
        "queued": account.queued,
        "running": account.running,
        "limit": account.limit,
    })
}
