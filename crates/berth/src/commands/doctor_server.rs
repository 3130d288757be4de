//! What `berth doctor` looks at where a server does the work.

use super::{Check, Health};
use crate::remote::contexts::Target;
use crate::remote::{Remote, messages};
use crate::view::resource_view::age;
use berth_server::{Code, Fault, pb};
use jiff::Timestamp;

const AREA: &str = "server";
/// A worker that was not seen for longer is reported as missing.
const SILENT_SECONDS: i64 = 60;
/// A token that expires sooner is mentioned.
const TOKEN_DAYS: i64 = 7;

fn failed(name: &str, fault: Fault) -> Check {
    Check { help: fault.help, ..Check::new(AREA, name, Health::Failed, fault.message) }
}

pub async fn checks(target: &Target) -> Vec<Check> {
    let url = &target.context.server;
    let client = match target.context.connection().connect().await {
        Ok(client) => client,
        Err(fault) => return vec![failed("reachable", fault)],
    };
    let remote = Remote::over(client, target.clone());
    let trust = match &target.context.ca {
        Some(_) => "signed by the context's own authority",
        None => "signed by an authority that this system knows",
    };
    let mut checks = vec![
        Check::new(AREA, "reachable", Health::Ok, url.as_str()),
        Check::new(AREA, "certificate", Health::Ok, format!("trusted: {trust}")),
        version(&remote).await,
    ];
    let (who, known) = token(&remote).await;
    checks.push(who);
    if known {
        checks.push(database(&remote).await);
        checks.push(workers(&remote).await);
    }
    checks
}

async fn version(remote: &Remote) -> Check {
    let ours = env!("CARGO_PKG_VERSION");
    match remote.client.access().login_options(pb::LoginOptionsRequest {}).await {
        Ok(options) => {
            let options = options.into_inner();
            let theirs = options.server_version;
            let same = minor(&theirs) == minor(ours);
            let clouds = if options.sandbox { "; its clouds are simulated (sandbox)" } else { "" };
            let detail = format!("server {theirs}, command {ours}{clouds}");
            match same {
                true => Check::new(AREA, "version", Health::Ok, detail),
                false => Check {
                    help: vec![
                        "use a command of the server's version: newer ones may ask for what it does not know".into(),
                    ],
                    ..Check::new(AREA, "version", Health::Failed, detail)
                },
            }
        }
        Err(status) => failed("version", remote.fault(&status)),
    }
}

/// `0.1` of `0.1.3`.
fn minor(version: &str) -> Option<(&str, &str)> {
    let mut parts = version.split('.');
    Some((parts.next()?, parts.next()?))
}

/// Whose token it is; whether the server knows it.
async fn token(remote: &Remote) -> (Check, bool) {
    let token = match remote.client.access().who_am_i(pb::WhoAmIRequest {}).await {
        Ok(answer) => answer.into_inner().token.unwrap_or_default(),
        Err(status) => {
            let mut fault = remote.fault(&status);
            if fault.code == Code::Unauthenticated && fault.help.is_empty() {
                fault = fault.help(format!("log in again:   berth login {}", remote.url()));
            }
            return (failed("token", fault), false);
        }
    };
    let scope = match (token.org.as_str(), token.env.as_str()) {
        ("", "") => "everywhere".to_owned(),
        (org, "") => format!("in org {org}"),
        ("", env) => format!("in env {env}"),
        (org, env) => format!("in org {org}, env {env}"),
    };
    let mut detail = format!("{}, {} {scope}", token.name, token.role);
    if let Some(ends) = messages::maybe_time(&token.expires_at) {
        let left = ends.duration_since(Timestamp::now()).as_secs() / 86_400;
        detail.push_str(&format!(", for {left} more days"));
        if left < TOKEN_DAYS {
            detail.push_str(": log in again soon");
        }
    }
    (Check::new(AREA, "token", Health::Ok, detail), true)
}

/// A list of one needs the database.
async fn database(remote: &Remote) -> Check {
    let request = pb::ListRequest { page_size: 1, ..Default::default() };
    match remote.client.resources().list(request).await {
        Ok(_) => Check::new(AREA, "database", Health::Ok, "answers"),
        Err(status) => failed("database", remote.fault(&status)),
    }
}

async fn workers(remote: &Remote) -> Check {
    let workers = match remote.client.tasks().workers(pb::ListWorkersRequest {}).await {
        Ok(answer) => answer.into_inner().workers,
        Err(status) => return failed("workers", remote.fault(&status)),
    };
    let now = Timestamp::now();
    let silent = |worker: &&pb::Worker| {
        messages::maybe_time(&worker.seen_at).is_none_or(|seen| now.duration_since(seen).as_secs() > SILENT_SECONDS)
    };
    let (away, here): (Vec<&pb::Worker>, Vec<&pb::Worker>) = workers.iter().partition(silent);
    if here.is_empty() {
        let last = away.iter().filter_map(|worker| messages::maybe_time(&worker.seen_at)).max();
        let detail = match last {
            Some(last) => format!("none is heard of; the last one {} ago", age(last, now)),
            None => "none was ever heard of".to_owned(),
        };
        let help = vec!["start one:   berth worker --server URL --token-file FILE".into()];
        return Check { help, ..Check::new(AREA, "workers", Health::Failed, detail) };
    }
    let capacity: u32 = here.iter().map(|worker| worker.capacity).sum();
    let running: u32 = here.iter().map(|worker| worker.running).sum();
    let mut detail =
        format!("{} with {running} of {capacity} places busy", crate::view::diagnostics::count(here.len(), "worker"));
    if !away.is_empty() {
        detail.push_str(&format!("; {} not heard of for a minute", away.len()));
    }
    Check::new(AREA, "workers", Health::Ok, detail)
}
