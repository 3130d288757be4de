//! `berth context`: which servers are known, and which one commands go to.

use crate::failure::{CommandResult, Exit};
use crate::remote::contexts::{self, Context, Contexts};
use crate::view::output::{self, Format, OutputArgs, Table};
use crate::view::resource_view::or_dash;
use serde_json::{Value, json};

/// Choose the server that commands go to
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth context list\n  berth context use prod",
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// List the known servers
    #[command(before_help = "Examples:\n  berth context list\n  berth context list -o json")]
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Make a server the one that commands go to
    #[command(
        before_help = "Examples:\n  berth context use prod\n  berth context use prod --org shop --env staging\n  berth context use --local"
    )]
    Use {
        /// Name of the context
        #[arg(value_name = "NAME", required_unless_present = "local")]
        name: Option<String>,
        /// No server: commands use the embedded engine again
        #[arg(long, conflicts_with = "name")]
        local: bool,
        /// What --org is from now on when nobody says
        #[arg(long, value_name = "ORG", requires = "name")]
        org: Option<String>,
        /// What --env is from now on when nobody says
        #[arg(long, value_name = "ENV", requires = "name")]
        env: Option<String>,
    },
    /// Show where commands go, environment variables included
    #[command(
        before_help = "Examples:\n  berth context show\n  BERTH_SERVER=https://127.0.0.1:7443 berth context show"
    )]
    Show {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Forget a server; its token stays valid until it is revoked
    #[command(before_help = "Examples:\n  berth logout --context old\n  berth context delete old")]
    Delete {
        /// Name of the context
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub fn run(args: Args) -> CommandResult {
    match args.what {
        None => list(args.output.output),
        Some(What::List { output }) => list(output.output),
        Some(What::Use { name: Some(name), org, env, .. }) => choose(&name, org, env),
        Some(What::Use { .. }) => embedded(),
        Some(What::Show { output }) => show(output.output),
        Some(What::Delete { name }) => delete(&name),
    }
}

fn list(format: Format) -> CommandResult {
    let known = Contexts::load()?;
    if known.contexts.is_empty() && format.is_for_people() {
        anstream::eprintln!("no server is known yet; to make a context:   berth login URL");
        return Ok(Exit::Done);
    }
    let value: Vec<Value> =
        known.contexts.iter().map(|(name, context)| as_json(name, context, *name == known.current)).collect();
    let table = |_| {
        let mut table = Table::new(["CURRENT", "NAME", "SERVER", "ORG", "ENV", "TOKEN"]).text_columns(0);
        for (name, context) in &known.contexts {
            let current = if *name == known.current { "*" } else { "" };
            let token = if context.token.is_some() { "yes" } else { "no" };
            table.row([current, name, &context.server, &or_dash(&context.org), &or_dash(&context.env), token]);
        }
        table.render()
    };
    output::show(format, &value, table, || known.contexts.keys().cloned().collect())?;
    Ok(Exit::Done)
}

fn choose(name: &str, org: Option<String>, env: Option<String>) -> CommandResult {
    let mut known = Contexts::load()?;
    known.get(name)?;
    known.current = name.to_owned();
    if let Some(context) = known.contexts.get_mut(name) {
        context.org = org.unwrap_or(std::mem::take(&mut context.org));
        context.env = env.unwrap_or(std::mem::take(&mut context.env));
        anstream::eprintln!("commands go to {} ({name})", context.server);
    }
    known.save()?;
    Ok(Exit::Done)
}

fn embedded() -> CommandResult {
    let mut known = Contexts::load()?;
    known.current.clear();
    known.save()?;
    anstream::eprintln!("commands use the embedded engine");
    Ok(Exit::Done)
}

fn show(format: Format) -> CommandResult {
    let Some(target) = contexts::active()? else {
        if format.is_for_people() {
            anstream::eprintln!("no server is chosen: commands use the embedded engine");
        }
        output::show(format, &Value::Null, |_| String::new(), Vec::new)?;
        return Ok(Exit::Done);
    };
    let value = as_json(&target.name, &target.context, true);
    let table = |_| {
        let mut table = Table::new(["NAME", "SERVER", "ORG", "ENV", "TOKEN"]).text_columns(0);
        let Context { server, org, env, token, .. } = &target.context;
        let token = if token.is_some() { "yes" } else { "no" };
        table.row([&or_dash(&target.name), server, &or_dash(org), &or_dash(env), token]);
        table.render()
    };
    output::show(format, &value, table, || vec![target.name.clone()])?;
    Ok(Exit::Done)
}

fn delete(name: &str) -> CommandResult {
    let mut known = Contexts::load()?;
    known.get(name)?;
    known.contexts.remove(name);
    let was_current = known.current == name;
    if was_current {
        known.current.clear();
    }
    known.save()?;
    anstream::eprintln!("forgot {name}{}", if was_current { "; commands use the embedded engine now" } else { "" });
    Ok(Exit::Done)
}

/// Never with the token.
fn as_json(name: &str, context: &Context, current: bool) -> Value {
    json!({
        "name": name,
        "current": current,
        "server": context.server,
        "org": context.org,
        "env": context.env,
        "hasToken": context.token.is_some(),
        "hasCa": context.ca.is_some(),
    })
}
