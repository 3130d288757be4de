//! `berth token`: makes, lists and revokes tokens.

use crate::args::DatabaseArgs;
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::project::write_private;
use crate::remote::contexts::ContextArg;
use crate::view::output::{self, Format, OutputArgs, Table};
use crate::view::resource_view::or_dash;
use berth_server::access::service::recover_token;
use berth_server::client::Client;
use berth_server::pb;
use berth_store::{Control, Store};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const PAGE: u32 = 1000;
const DAY: i64 = 24 * 3600;

/// Make, list and revoke tokens
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth token create ci --role operator --org shop --expires 30d\n  berth token list"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Make a token; it is shown this once
    #[command(
        before_help = "Examples:\n  berth token create ci --role operator --org shop --out ci.token\n  berth token create w1 --role worker --expires 365d"
    )]
    Create(Create),
    /// List tokens
    #[command(before_help = "Examples:\n  berth token list\n  berth token list --all -o json")]
    List(List),
    /// Make an admin's token from the database and its key, where every other was lost
    #[command(
        before_help = "Examples:\n  berth token recover --db sqlite:berth-server/state.db --out admin.token\n  BERTH_DB=postgres://… berth token recover --key-file ring --expires 1h",
        after_help = "It needs no server, and is written down in the audit log. Of a database in a file, stop its server first."
    )]
    Recover(Recover),
    /// Revoke tokens
    #[command(before_help = "Examples:\n  berth token revoke 0198c5b2-…\n  berth token revoke ci")]
    Revoke(Revoke),
}

#[derive(clap::Args, Debug)]
struct Create {
    /// What it is for: it is the actor in the audit log
    #[arg(value_name = "NAME")]
    name: String,
    /// viewer, operator, admin or worker
    #[arg(long, value_name = "ROLE", value_parser = ["viewer", "operator", "admin", "worker"])]
    role: String,
    /// Only resources of this org
    #[arg(long, value_name = "ORG", default_value = "", hide_default_value = true)]
    org: String,
    /// Only resources of this env
    #[arg(long, value_name = "ENV", default_value = "", hide_default_value = true)]
    env: String,
    /// How long it holds, such as 30d or 12h; at most 366d
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = seconds)]
    expires: i64,
    /// Write the token to this file, for its owner alone, and not to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Debug)]
struct Recover {
    /// What it is called: it is the actor in the audit log
    #[arg(value_name = "NAME", default_value = "recovered-admin")]
    name: String,
    /// How long it holds, such as 30d or 12h; at most 366d
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = seconds)]
    expires: i64,
    /// Write the token to this file, for its owner alone, and not to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Debug)]
struct List {
    /// Expired and revoked ones too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Debug)]
struct Revoke {
    /// Ids, or names that only one valid token has
    #[arg(value_name = "ID|NAME", required = true)]
    which: Vec<String>,
    #[command(flatten)]
    context: ContextArg,
}

pub fn run(args: Args) -> CommandResult {
    match args.what {
        What::Create(args) => create(args),
        What::Recover(args) => recover(args),
        What::List(args) => list(args),
        What::Revoke(args) => revoke(args),
    }
}

fn create(args: Create) -> CommandResult {
    let request = pb::CreateTokenRequest {
        name: args.name.clone(),
        role: args.role.clone(),
        org: args.org.clone(),
        env: args.env.clone(),
        expires_in_seconds: args.expires,
    };
    let made = block_on(Threads::One, async {
        let client = args.context.client().await?;
        let answer = client.access().create_token(request).await;
        Ok(answer.map_err(|status| Failure::from(client.fault(&status)))?.into_inner())
    })?;
    tell(&made.token.unwrap_or_default(), &SecretString::from(made.secret), args.out.as_deref(), args.output.output)
}

fn recover(args: Recover) -> CommandResult {
    if !args.database.is_said() {
        return Err(Failure::new("which database?")
            .help("name it with --db, as the server's is:   --db sqlite:berth-server/state.db"));
    }
    let options = args.database.existing()?;
    let (secret, token) = block_on(Threads::Two, async {
        let control = Control::open(Store::open(options).await?).await?;
        let made = recover_token(&control, args.name.clone(), args.expires).await;
        control.close().await;
        control.store().close().await;
        made.map_err(Failure::from)
    })?;
    tell(&token, &secret, args.out.as_deref(), args.output.output)
}

/// A new token, and its secret this once.
fn tell(token: &pb::Token, secret: &SecretString, out: Option<&Path>, format: Format) -> CommandResult {
    let mut value = as_json(token);
    let text = format!("{}\n", secret.expose_secret());
    if let Some(path) = out {
        write_private(path, text.as_bytes())?;
        anstream::eprintln!("the token is in {}", path.display());
    } else {
        value["secret"] = Value::String(secret.expose_secret().to_owned());
    }
    if format.is_for_people() {
        anstream::eprintln!(
            "made {} ({}), until {}",
            token.name,
            crate::commands::login::reach(token),
            token.expires_at
        );
        if out.is_none() {
            anstream::eprintln!("this is the only time it is shown:");
        }
    }
    let shown = if out.is_some() { String::new() } else { text };
    output::show(format, &value, |_| shown, || vec![token.id.clone()])?;
    Ok(Exit::Done)
}

fn list(args: List) -> CommandResult {
    let mut tokens = block_on(Threads::One, async { all(&args.context.client().await?).await })?;
    if !args.all {
        tokens.retain(is_valid);
    }
    let format = args.output.output;
    if tokens.is_empty() && format.is_for_people() {
        anstream::eprintln!("there are no tokens here that you may see");
        return Ok(Exit::Done);
    }
    let value: Vec<Value> = tokens.iter().map(as_json).collect();
    let table = |wide| {
        let mut columns = vec!["ID", "NAME", "ROLE", "ORG", "ENV", "EXPIRES", "LAST USED"];
        if wide || args.all {
            columns.extend(["CREATED", "BY", "REVOKED"]);
        }
        let mut table = Table::new(columns).text_columns(0);
        for token in &tokens {
            let dash = |text: &str| or_dash(text);
            table.row(
                [
                    token.id.clone(),
                    token.name.clone(),
                    token.role.clone(),
                    dash(&token.org),
                    dash(&token.env),
                    dash(&brief(&token.expires_at)),
                    dash(&brief(&token.used_at)),
                    brief(&token.created_at),
                    token.created_by.clone(),
                    dash(&brief(&token.revoked_at)),
                ]
                .into_iter()
                .take(if wide || args.all { 10 } else { 7 }),
            );
        }
        table.render()
    };
    output::show(format, &value, table, || tokens.iter().map(|token| token.id.clone()).collect())?;
    Ok(Exit::Done)
}

fn revoke(args: Revoke) -> CommandResult {
    block_on(Threads::One, async {
        let client = args.context.client().await?;
        let tokens = all(&client).await?;
        // All are found before the first is revoked.
        let mut found = Vec::new();
        for text in &args.which {
            found.push(one(&tokens, text)?);
        }
        for token in found {
            let request = pb::RevokeTokenRequest { id: token.id.clone() };
            client.access().revoke_token(request).await.map_err(|status| Failure::from(client.fault(&status)))?;
            anstream::eprintln!("revoked {} ({})", token.name, token.id);
        }
        Ok(Exit::Done)
    })
}

fn one<'t>(tokens: &'t [pb::Token], text: &str) -> Result<&'t pb::Token, Failure> {
    if let Some(token) = tokens.iter().find(|token| token.id == text) {
        return Ok(token);
    }
    let named: Vec<&pb::Token> = tokens.iter().filter(|token| token.name == text && is_valid(token)).collect();
    match named.as_slice() {
        [token] => Ok(token),
        [] => Err(Failure::new(format!("there is no valid token `{text}`")).help("berth token list")),
        many => Err(Failure::new(format!("{} tokens are named `{text}`: say which by its id", many.len()))
            .help("berth token list")),
    }
}

async fn all(client: &Client) -> Result<Vec<pb::Token>, Failure> {
    let mut tokens = Vec::new();
    let mut request = pb::ListTokensRequest { page_size: PAGE, page_token: String::new() };
    loop {
        let page = client.access().list_tokens(request.clone()).await;
        let page = page.map_err(|status| Failure::from(client.fault(&status)))?.into_inner();
        tokens.extend(page.tokens);
        if page.next_page_token.is_empty() {
            return Ok(tokens);
        }
        request.page_token = page.next_page_token;
    }
}

fn is_valid(token: &pb::Token) -> bool {
    let over = token.expires_at.parse::<jiff::Timestamp>().is_ok_and(|end| end <= jiff::Timestamp::now());
    token.revoked_at.is_empty() && !over
}

/// Seconds are enough for people.
pub fn brief(time: &str) -> String {
    time.parse::<jiff::Timestamp>().map_or_else(|_| time.to_owned(), crate::view::resource_view::time)
}

/// `30d`, `12h`, `45m`, `90s`.
fn seconds(text: &str) -> Result<i64, String> {
    let form = "write it as a number and a unit: 30d, 12h, 45m or 90s";
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let unit = match unit {
        "d" => DAY,
        "h" => 3600,
        "m" => 60,
        "s" => 1,
        _ => return Err(form.into()),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| i64::from(number).checked_mul(unit)).ok_or(form)?;
    match seconds {
        0 => Err("it has to hold for a while".into()),
        seconds if seconds > 366 * DAY => Err("at most 366d".into()),
        seconds => Ok(seconds),
    }
}

pub fn as_json(token: &pb::Token) -> Value {
    let given = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    json!({
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "org": token.org,
        "env": token.env,
        "createdAt": token.created_at,
        "createdBy": token.created_by,
        "expiresAt": given(&token.expires_at),
        "revokedAt": given(&token.revoked_at),
        "usedAt": given(&token.used_at),
        "identity": given(&token.identity),
        "owner": given(&token.owner),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_an_end() {
        for (text, expected) in [("30d", 30 * DAY), ("12h", 43_200), ("45m", 2_700), ("90s", 90), ("366d", 366 * DAY)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for bad in ["", "d", "30", "-1d", "1.5h", "367d", "0s", "1w", "30µ", "99999999999d"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_is_enough_where_only_one_valid_token_has_it() {
        let token = |id: &str, name: &str, revoked: &str| pb::Token {
            id: id.into(),
            name: name.into(),
            revoked_at: revoked.into(),
            ..Default::default()
        };
        let tokens =
            [token("1", "ci", "2026-01-01T00:00:00Z"), token("2", "ci", ""), token("3", "w", ""), token("4", "w", "")];
        assert_eq!(one(&tokens, "ci").unwrap().id, "2");
        assert_eq!(one(&tokens, "1").unwrap().id, "1");
        assert!(one(&tokens, "w").unwrap_err().to_string().contains("2 tokens"));
        assert!(one(&tokens, "x").is_err());
    }
}
