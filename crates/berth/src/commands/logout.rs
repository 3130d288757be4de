//! `berth logout`: ends a person's login at the server, and forgets the token. A token that came from a file is not a login: others
//! may use it, and the first admin's may be the only one.

use crate::cli::{Threads, block_on};
use crate::commands::token::brief;
use crate::failure::{CommandResult, Exit, Failure};
use crate::remote::contexts::{ContextArg, Contexts};
use berth_server::access::principal::PERSON;
use berth_server::{Code, pb};

/// Log out: a login is ended at the server, and its token forgotten here
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth logout\n  berth logout --context prod")]
pub struct Args {
    #[command(flatten)]
    context: ContextArg,
    /// Also revoke a token that is no login, such as one from a file: for everyone who uses it
    #[arg(long, conflicts_with = "forget")]
    revoke: bool,
    /// Forget the token though the server cannot be told; it stays valid there until it expires
    #[arg(long)]
    forget: bool,
}

pub fn run(args: Args) -> CommandResult {
    let target = args.context.target()?;
    if target.context.token.is_none() {
        return Err(Failure::new(format!("there is no login at {} to end", target.context.server)));
    }
    let mut left = None;
    if !args.forget {
        left = block_on(Threads::One, async {
            let client =
                args.context.client().await.map_err(|failure| {
                    failure.help("to forget the token here all the same:   berth logout --forget")
                })?;
            let over = |status: &tonic::Status| match client.fault(status) {
                // The login has already ended.
                fault if fault.code == Code::Unauthenticated => Ok(None),
                fault => Err(Failure::from(fault)),
            };
            let token = match client.access().who_am_i(pb::WhoAmIRequest {}).await {
                Ok(answer) => answer.into_inner().token.unwrap_or_default(),
                Err(status) => return over(&status),
            };
            if !args.revoke && !token.name.starts_with(PERSON) {
                return Ok(Some(token));
            }
            match client.access().logout(pb::LogoutRequest {}).await {
                Ok(_) => Ok(None),
                Err(status) => over(&status),
            }
        })?;
    }
    let mut known = Contexts::load()?;
    if let Some(context) = known.contexts.get_mut(&target.name) {
        context.token = None;
        known.save()?;
    }
    anstream::eprintln!("logged out of {}", target.context.server);
    if let Some(token) = left {
        let until = brief(&token.expires_at);
        anstream::eprintln!(
            "the token {} is forgotten here and valid until {until}; an admin ends it with:   berth token revoke {}",
            token.name,
            token.id
        );
    }
    Ok(Exit::Done)
}
