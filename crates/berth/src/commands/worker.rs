//! `berth worker`: carries out a server's tasks. It dials out, and needs no database.

use crate::args::change_args::duration;
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::sandbox::sandbox_token;
use berth_server::Fault;
use berth_server::client::Connection;
use berth_server::telemetry::{self, LogFormat, Telemetry};
use berth_server::worker::credentials::WorkerCredentials;
use berth_server::worker::remote::Servers;
use berth_server::worker::{CHECKS, WorkerConfig, WorkerError, services};
use secrecy::{ExposeSecret, SecretString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Tokens and certificates are small; anything larger is the wrong file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Carry out a server's tasks
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth worker --server https://berth.example.com:7443 --token-file worker.token --ca ca.pem\n  berth worker --server https://a:7443 --server https://b:7443 --service network --capacity 8",
    after_help = "SIGTERM lets tasks end, for as long as --drain-timeout says; what is left is given back to the server."
)]
pub struct Args {
    /// Address of a server; with more than one, the next is asked when one does not answer
    #[arg(long, value_name = "URL", env = "BERTH_SERVER", value_delimiter = ',', required = true)]
    server: Vec<String>,
    /// File with a token of role `worker`; otherwise BERTH_TOKEN holds the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate authority of the servers; the system's own when omitted
    #[arg(long, value_name = "FILE", env = "BERTH_CA_FILE")]
    ca: Option<PathBuf>,
    /// This worker's certificate, for servers that ask for one
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Serve only this service; may be given more than once
    #[arg(long = "service", value_name = "SERVICE")]
    services: Vec<String>,
    /// Changes at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    capacity: u32,
    /// Drift checks at once, beside the changes
    #[arg(long, value_name = "N", default_value_t = CHECKS, value_parser = clap::value_parser!(u32).range(0..=64))]
    checks: u32,
    /// Unique among the workers that run; host and process when omitted
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long tasks have to end on SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    drain_timeout: Duration,
    /// A variable that Accounts may take their token from; may be given more than once
    #[arg(long, value_name = "NAME")]
    allow_env: Vec<String>,
    /// A file, or folder of files, that Accounts may take their token from; may be given more than once
    #[arg(long, value_name = "PATH")]
    allow_file: Vec<PathBuf>,
    /// An org whose tasks may use what is this worker's own: its environment's token, and the variables and files that it
    /// allows; `*` for every org. Resources without an org always may. May be given more than once
    #[arg(long, value_name = "ORG", env = "BERTH_OWN_CREDENTIALS_FOR", value_delimiter = ',')]
    own_credentials_for: Vec<String>,
    /// Folder for what tasks need while they run; wiped as they end
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Work on the simulated clouds of a server that was started with --sandbox, on the same machine
    #[arg(long)]
    sandbox: bool,
    /// One JSON object for each line of the log
    #[arg(long)]
    log_json: bool,
    /// Where to send traces, such as http://127.0.0.1:4317
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
}

pub fn run(args: Args, verbose: u8) -> CommandResult {
    let known = services();
    if let Some(unknown) = args.services.iter().find(|service| !known.contains(service.as_str())) {
        let all: Vec<&str> = known.into_iter().collect();
        return Err(
            Failure::new(format!("there is no service `{unknown}`")).help(format!("there are: {}", all.join(", ")))
        );
    }
    let token = token(&args)?;
    let ca = args.ca.as_deref().map(read).transpose()?;
    let identity = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            let key =
                String::from_utf8(read(key)?).map_err(|_| Failure::new(format!("{} is not PEM", key.display())))?;
            Some((read(cert)?, SecretString::from(key)))
        }
        _ => None,
    };
    let connections: Vec<Connection> = args
        .server
        .iter()
        .map(|url| Connection { ca: ca.clone(), identity: identity.clone(), ..Connection::new(url, token.clone()) })
        .collect();
    let config = WorkerConfig {
        name: args.name.clone().unwrap_or_else(own_name),
        services: args.services.clone(),
        capacity: args.capacity,
        checks: args.checks,
        simulated: args.sandbox,
        sandbox_token: sandbox_token(),
        credentials: WorkerCredentials {
            allow_env: args.allow_env.iter().cloned().collect(),
            allow_files: args.allow_file.clone(),
            own_for: args.own_credentials_for.iter().cloned().collect(),
            ..WorkerCredentials::default()
        },
        scratch: args.work_dir.clone().unwrap_or_else(|| std::env::temp_dir().join("berth-workers")),
        drain: args.drain_timeout,
    };
    block_on(Threads::Two, work(args, verbose, config, connections))
}

async fn work(args: Args, verbose: u8, config: WorkerConfig, connections: Vec<Connection>) -> CommandResult {
    let telemetry = Telemetry {
        service: "berth-worker",
        format: if args.log_json { LogFormat::Json } else { LogFormat::Text },
        verbose,
        color: crate::view::terminal::stderr_color(),
        otlp_endpoint: args.otlp_endpoint,
    };
    let guard = telemetry::start(&telemetry).map_err(|error| Failure::caused("cannot start the log", &error))?;
    let stop = CancellationToken::new();
    let ends = stop_on_signal(stop.clone())?;
    let servers = Arc::new(Servers::new(connections).map_err(failure)?);
    let serves = if config.services.is_empty() { "every service".into() } else { config.services.join(", ") };
    tracing::info!(
        "worker {} for {}: {serves}, {} changes and {} drift checks at once{}",
        config.name,
        args.server.join(", "),
        config.capacity,
        config.checks,
        if config.simulated { ", on simulated clouds (sandbox)" } else { "" }
    );
    let ended = berth_server::worker::run(config, servers, stop).await;
    ends.abort();
    tracing::info!("stopped");
    guard.stop();
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(WorkerError::Unwelcome(fault)) => Err(failure(fault)),
        Err(error @ WorkerError::Scratch { .. }) => {
            Err(Failure::new(error.to_string()).help("choose another folder with --work-dir, or another --name"))
        }
    }
}

fn failure(fault: Fault) -> Failure {
    let unwelcome = matches!(fault.code, berth_server::Code::Unauthenticated | berth_server::Code::Denied);
    let mut failure = Failure::new(fault.message);
    if unwelcome {
        return failure
            .help("a worker needs a token of its role:   berth token create NAME --role worker")
            .help("give it by --token-file FILE, or in BERTH_TOKEN");
    }
    for line in fault.help {
        failure = failure.help(line);
    }
    failure
}

fn token(args: &Args) -> Result<SecretString, Failure> {
    let text = match &args.token_file {
        Some(path) => {
            String::from_utf8(read(path)?).map_err(|_| Failure::new(format!("{} holds no token", path.display())))?
        }
        None => std::env::var("BERTH_TOKEN").unwrap_or_default(),
    };
    let token = SecretString::from(text.trim().to_owned());
    if token.expose_secret().is_empty() {
        return Err(Failure::new("a worker needs a token")
            .help("give it by --token-file FILE, or in BERTH_TOKEN")
            .help("to make one:   berth token create NAME --role worker"));
    }
    Ok(token)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |error: std::io::Error| Failure::caused(format!("cannot read {}", path.display()), &error);
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)).map_err(cannot)?;
    Ok(bytes)
}

fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let host = host.map(|name| name.trim().to_owned()).unwrap_or_default();
    let host = if host.is_empty() { "worker".to_owned() } else { host };
    format!("{host}-{}", std::process::id())
}

/// The first signal drains; the second ends at once.
fn stop_on_signal(stop: CancellationToken) -> Result<tokio::task::JoinHandle<()>, Failure> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|error| Failure::caused("cannot listen for signals", &error))?;
    Ok(tokio::spawn(async move {
        for asked in 0.. {
            #[cfg(unix)]
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            #[cfg(not(unix))]
            if tokio::signal::ctrl_c().await.is_err() {
                return;
            }
            if asked > 0 {
                std::process::exit(130);
            }
            stop.cancel();
        }
    }))
}
