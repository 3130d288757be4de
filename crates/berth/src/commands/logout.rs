//! `berth logout`: ends a login at the server, and forgets its token.

use crate::cli::{Threads, block_on};
use crate::contexts::{ContextArg, Contexts, told};
use crate::failure::{Exit, Failure, Outcome};
use berth_server::{Code, pb};

/// Log out: the token is revoked, and forgotten
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth logout\n  berth logout --context prod")]
pub struct Args {
    #[command(flatten)]
    context: ContextArg,
    /// Forget the token though the server cannot be told; it stays valid there until it expires
    #[arg(long)]
    forget: bool,
}

pub fn run(args: Args) -> Outcome {
    let target = args.context.target()?;
    if target.context.token.is_none() {
        return Err(Failure::new(format!("there is no login at {} to end", target.context.server)));
    }
    if !args.forget {
        block_on(Threads::One, async {
            let client =
                args.context.client().await.map_err(|failure| {
                    failure.help("to forget the token here all the same:   berth logout --forget")
                })?;
            match client.access().logout(pb::LogoutRequest {}).await {
                Ok(_) => Ok(()),
                Err(status) => match client.fault(&status) {
                    // It is over already.
                    fault if fault.code == Code::Unauthenticated => Ok(()),
                    fault => Err(told(fault)),
                },
            }
        })?;
    }
    let mut known = Contexts::load()?;
    if let Some(context) = known.contexts.get_mut(&target.name) {
        context.token = None;
        known.save()?;
    }
    anstream::eprintln!("logged out of {}", target.context.server);
    Ok(Exit::Done)
}
