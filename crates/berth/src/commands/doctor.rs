//! `berth doctor`: what is installed, reachable and authorised, and what to do about what is not.

#[path = "doctor_server.rs"]
mod server;

use crate::args::repeated_flags::complete;
use crate::args::{LookArgs, Which};
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::{project, sandbox};
use crate::view::diagnostics::count;
use crate::view::output::{self, Format, OutputArgs, Table};
use crate::view::terminal::harmless_line;
use berth_clouds::{Credentials, registry};
use berth_engine::handler::{Class, Trouble};
use berth_store::{Filter, Holder, Options, Store, StoreError};
use serde::Serialize;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;

const TOOL_WITHIN: Duration = Duration::from_secs(5);
const CLOUD_WITHIN: Duration = Duration::from_secs(20);
const TOOL_OUTPUT_BYTES: u64 = 16 << 10;
const HOLDER_BYTES: u64 = 4096;

/// Check tools, state and accounts
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth doctor\n  CIVO_TOKEN=… berth doctor -o json")]
pub struct Args {
    #[command(flatten)]
    look: LookArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Ok,
    /// Missing, and nothing needs it.
    Absent,
    Failed,
}

#[derive(Debug, Serialize)]
pub struct Check {
    area: &'static str,
    name: String,
    health: Health,
    detail: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub help: Vec<String>,
}

impl Check {
    pub fn new(area: &'static str, name: impl Into<String>, health: Health, detail: impl Into<String>) -> Self {
        Self { area, name: name.into(), health, detail: detail.into(), help: Vec::new() }
    }
}

pub fn run(args: Args) -> CommandResult {
    let which = args.look.which()?;
    let checks = block_on(Threads::One, async {
        match &which {
            Which::Local(path) => {
                let (tools, state, accounts) = futures::join!(tools(), state(path), accounts(args.look.sandbox));
                Ok(tools.into_iter().chain(state).chain(accounts).collect::<Vec<Check>>())
            }
            Which::Server(target) => {
                let (tools, server) = futures::join!(tools(), server::checks(target));
                Ok(tools.into_iter().chain(server).collect())
            }
        }
    })?;
    let healthy = checks.iter().all(|check| check.health != Health::Failed);
    #[derive(Serialize)]
    struct Report<'a> {
        healthy: bool,
        checks: &'a [Check],
    }
    let names = || checks.iter().map(|check| format!("{}/{}", check.area, check.name)).collect();
    let report = Report { healthy, checks: &checks };
    output::show(args.output.output, &report, |_| table(&checks), names)?;
    if args.output.output == Format::Table && healthy {
        anstream::eprintln!("\nnothing is wrong");
    }
    Ok(if healthy { Exit::Done } else { Exit::Failed })
}

fn table(checks: &[Check]) -> String {
    let mut table = Table::new(["", "AREA", "NAME", "FOUND"]);
    for check in checks {
        let mark = match check.health {
            Health::Ok => "✓",
            Health::Absent => "·",
            Health::Failed => "✗",
        };
        // The problem is printed below, with advice.
        let found = if check.health == Health::Failed { "failed, see below" } else { &check.detail };
        table.row([mark, check.area, &check.name, found]);
    }
    let mut text = table.render();
    for check in checks.iter().filter(|check| check.health == Health::Failed) {
        text.push_str(&format!("\n{} {}: {}\n", check.area, check.name, harmless_line(&check.detail)));
        for help in &check.help {
            text.push_str(&format!("  = help: {}\n", harmless_line(&complete(help))));
        }
    }
    text
}

/// What each tool is for; Berth itself needs none of them.
const TOOLS: [(&str, &[&str]); 4] = [
    ("kubectl", &["version", "--client", "-o", "json"]),
    ("helm", &["version", "--template", "{{.Version}}"]),
    ("tofu", &["version", "-json"]),
    ("terraform", &["version", "-json"]),
];

async fn tools() -> Vec<Check> {
    let of_clouds = registry::clouds().filter_map(|cloud| cloud.client);
    futures::future::join_all(TOOLS.into_iter().chain(of_clouds).map(|(name, args)| tool(name, args))).await
}

async fn tool(name: &'static str, args: &[&str]) -> Check {
    let absent = |detail: &str| Check::new("tool", name, Health::Absent, detail);
    let ask = async {
        let mut child = tokio::process::Command::new(name)
            .args(args)
            .env("CHECKPOINT_DISABLE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut text = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(TOOL_OUTPUT_BYTES).read_to_end(&mut text).await?;
        }
        _ = child.wait().await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&text).into_owned())
    };
    match tokio::time::timeout(TOOL_WITHIN, ask).await {
        Ok(Ok(text)) => match version(&text) {
            Some(version) => Check::new("tool", name, Health::Ok, version),
            None => Check::new("tool", name, Health::Ok, "installed; its version cannot be told"),
        },
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            absent("not installed; not needed by berth itself")
        }
        Ok(Err(error)) => absent(&format!("cannot be run: {error}")),
        Err(_) => absent(&format!("did not answer within {} s", TOOL_WITHIN.as_secs())),
    }
}

/// The version in what a tool printed: a field of its JSON, or the first word that looks like one.
fn version(text: &str) -> Option<String> {
    let json: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let field = json.as_ref().and_then(|json| {
        let version = json.pointer("/clientVersion/gitVersion").or_else(|| json.get("terraform_version"))?;
        version.as_str()
    });
    let word = || {
        text.split_whitespace().find(|word| {
            let word = word.trim_start_matches('v');
            word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    field.or_else(word).map(|version| version.trim_start_matches('v').chars().take(60).collect())
}

/// The state file, its key, and whether someone is writing.
async fn state(path: &Path) -> Vec<Check> {
    let place = path.display().to_string();
    let options = Options { must_exist: true, ..Options::at(path) };
    let store = match Store::open(options).await {
        Ok(store) => store,
        // Nothing was applied yet.
        Err(StoreError::Missing { .. }) => {
            return vec![Check::new(
                "state",
                "file",
                Health::Absent,
                format!("none yet; the first apply makes {place}"),
            )];
        }
        Err(error) => {
            let name = if matches!(
                error,
                StoreError::Key { .. } | StoreError::KeyMissing { .. } | StoreError::WrongKey { .. }
            ) {
                "key"
            } else {
                "file"
            };
            let help = error.help();
            let detail = Failure::caused(error.to_string(), &error).to_string();
            return vec![Check { help, ..Check::new("state", name, Health::Failed, detail) }];
        }
    };
    let mut checks = Vec::new();
    match store.resources(&Filter::default()).await {
        Ok(resources) => {
            let detail = format!("{place}, {}", count(resources.len(), "resource"));
            checks.push(Check::new("state", "file", Health::Ok, detail));
            checks.push(Check::new("state", "key", Health::Ok, "opens the state"));
        }
        Err(error) => {
            let help = error.help();
            checks.push(Check { help, ..Check::new("state", "file", Health::Failed, error.to_string()) });
        }
    }
    checks.push(match writer(path) {
        Some(holder) => Check::new("state", "lock", Health::Ok, format!("in use by {holder}")),
        None => Check::new("state", "lock", Health::Ok, "free"),
    });
    store.close().await;
    checks
}

/// Who is writing the state now. The lock is only asked, never taken for longer than that.
fn writer(state: &Path) -> Option<Holder> {
    let mut name = state.as_os_str().to_owned();
    name.push(".lock");
    let file = File::open(Path::new(&name)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        _ => return None,
    }
    let mut text = String::new();
    file.take(HOLDER_BYTES).read_to_string(&mut text).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_default())
}

async fn accounts(simulated: bool) -> Vec<Check> {
    match simulated {
        true => vec![simulated_clouds().await],
        false => futures::future::join_all(registry::names().into_iter().map(account)).await,
    }
}

/// Simulated clouds need no token.
async fn simulated_clouds() -> Check {
    let check = |health, detail: String| Check::new("account", "sandbox", health, detail);
    let recorded = project::folder().ok().and_then(|folder| sandbox::recorded(&folder));
    let Some(record) = recorded else {
        return check(Health::Ok, "none is running: each command starts one, and keeps what it made".into());
    };
    let speed = &record.speed;
    match sandbox::answers(&record).await {
        true => check(Health::Ok, format!("answers at {}, speed {speed}", record.addresses())),
        false => {
            let help = vec!["to end it:   berth sandbox --stop".into()];
            Check { help, ..check(Health::Failed, format!("process {} runs and does not answer", record.pid)) }
        }
    }
}

async fn account(provider: &'static str) -> Check {
    let credentials = match Credentials::from_env(provider, |name| std::env::var(name).ok()) {
        Ok(credentials) => credentials,
        // A missing token is not an error: a manifest may declare the account, or the cloud may be unused.
        Err(trouble) => return Check::new("account", provider, Health::Absent, trouble.to_string()),
    };
    let failed = |trouble: Trouble| {
        let help =
            if trouble.help.is_empty() { vec![cure(&trouble.class, &credentials)] } else { trouble.help_lines() };
        Check { help, ..Check::new("account", provider, Health::Failed, trouble.to_string()) }
    };
    let connection = match berth_clouds::connect(&credentials) {
        Ok(connection) => connection,
        Err(trouble) => return failed(trouble),
    };
    match tokio::time::timeout(CLOUD_WITHIN, connection.identity()).await {
        Ok(Ok(identity)) => Check::new("account", provider, Health::Ok, format!("reachable, authorised as {identity}")),
        Ok(Err(trouble)) => failed(trouble),
        Err(_) => {
            let message = format!("{provider} did not answer within {} s", CLOUD_WITHIN.as_secs());
            failed(Trouble::new(Class::Retry { after: None }, message))
        }
    }
}

/// What to try where the cloud's own words hold no advice.
fn cure(class: &Class, credentials: &Credentials) -> String {
    match (class, &credentials.api_url) {
        (Class::Unauthorized, _) => "make a new token in the cloud's console, and set it in the environment".into(),
        (_, Some(url)) => format!("check that {url} is the right address, and the network between here and there"),
        (_, None) => "check the network, proxies and firewalls between here and the cloud".into(),
    }
}
