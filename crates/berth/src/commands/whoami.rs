//! `berth whoami`: whose token commands are sent with.

use crate::cli::{Threads, block_on};
use crate::commands::login::reach;
use crate::commands::token::as_json;
use crate::failure::{CommandResult, Exit, Failure};
use crate::remote::contexts::ContextArg;
use crate::view::output::{self, OutputArgs};
use berth_server::pb;
use serde_json::Value;

/// Show who you are to the server
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth whoami\n  berth whoami -o json")]
pub struct Args {
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let server = args.context.target()?.context.server;
    let token = block_on(Threads::One, async {
        let client = args.context.client().await?;
        let answer = client.access().who_am_i(pb::WhoAmIRequest {}).await;
        Ok(answer.map_err(|status| Failure::from(client.fault(&status)))?.into_inner().token.unwrap_or_default())
    })?;
    let mut value = as_json(&token);
    value["server"] = Value::String(server.clone());
    let text = |_| {
        let until = if token.expires_at.is_empty() { String::new() } else { format!(", until {}", token.expires_at) };
        format!("{}: {} at {server}{until}\n", token.name, reach(&token))
    };
    output::show(args.output.output, &value, text, || vec![token.name.clone()])?;
    Ok(Exit::Done)
}
