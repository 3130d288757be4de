//! `berth server`: the control plane, in one process and with nothing else needed to start.

use crate::args::{AuditArgs, OidcArgs, SandboxArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::sandbox::{Sandboxed, connect_or_start};
use crate::signals::StopSignal;
use crate::view::{output, terminal};
use berth_clouds::label_prefix;
use berth_server::address::{AddressRange, TrustedProxies};
use berth_server::limits::Limits;
use berth_server::start::{Config, Running, StartError, WorkerHere, start};
use berth_server::telemetry::{self, LogFormat, Telemetry};
use berth_server::tls::Tls;
use berth_store::{KeySource, Options};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Serve the control plane: API, controller, and a worker
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth server --sandbox\n  berth server --db postgres://berth@db.example.com/berth --listen 0.0.0.0:7443",
    after_help = "Without flags it makes a folder berth-server/ with its database, key, certificate and first admin token, \
                  and says what to type next. SIGTERM and Ctrl-C let open requests and tasks end."
)]
pub struct Args {
    /// Address to listen on; gRPC and REST share it
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7443")]
    listen: SocketAddr,
    /// Further address that answers /healthz and /readyz without TLS, for probes
    #[arg(long, value_name = "ADDR")]
    health_listen: Option<SocketAddr>,
    /// Database, as sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE; by default a file in the folder
    #[arg(long, value_name = "URL", env = "BERTH_DB", hide_env_values = true)]
    db: Option<String>,
    /// Where the server keeps what is its own
    #[arg(long, value_name = "DIR", default_value = "berth-server")]
    folder: PathBuf,
    /// File with the key ring; by default what BERTH_KEY, BERTH_KEY_COMMAND or BERTH_KEY_FILE say, else a key in the folder
    #[arg(long, value_name = "FILE", conflicts_with = "key_command")]
    key_file: Option<PathBuf>,
    /// Command that prints the key ring; it is started without a shell
    #[arg(long, value_name = "COMMAND")]
    key_command: Option<String>,
    /// Certificate chain in PEM form; by default one of the server's own authority. Taken up anew when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "TLS")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "TLS")]
    tls_key: Option<PathBuf>,
    /// Further name or address that clients use, for the server's own certificate; may be given more than once
    #[arg(long, value_name = "NAME", conflicts_with = "tls_cert", help_heading = "TLS")]
    tls_name: Vec<String>,
    /// Authority of workers' certificates; with it, workers have to show one
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    client_ca: Option<PathBuf>,
    #[command(flatten)]
    oidc: OidcArgs,
    #[command(flatten)]
    audit: AuditArgs,
    /// Leave all tasks to workers elsewhere
    #[arg(long, conflicts_with_all = ["capacity", "allow_env", "allow_file"], help_heading = "Worker inside")]
    no_worker: bool,
    /// Changes at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Worker inside")]
    capacity: u32,
    /// A variable that Accounts may take their token from; may be given more than once
    #[arg(long, value_name = "NAME", help_heading = "Worker inside")]
    allow_env: Vec<String>,
    /// A file, or folder of files, that Accounts may take their token from; may be given more than once
    #[arg(long, value_name = "PATH", help_heading = "Worker inside")]
    allow_file: Vec<PathBuf>,
    /// An org whose tasks may use what is this worker's own: its environment's token, and the variables and files that it
    /// allows; `*` for every org. Resources without an org always may. May be given more than once
    #[arg(
        long,
        value_name = "ORG",
        env = "BERTH_OWN_CREDENTIALS_FOR",
        value_delimiter = ',',
        help_heading = "Worker inside"
    )]
    own_credentials_for: Vec<String>,
    /// Address that Accounts may give as their `apiUrl`, such as https://civo.example.com; may be given more than once. The
    /// clouds' own are always allowed, this machine's never are
    #[arg(long, value_name = "URL", env = "BERTH_ALLOW_API_URL", value_delimiter = ',', help_heading = "Workers")]
    allow_api_url: Vec<String>,
    /// How long a worker may hold a task without a word from it, such as 30s; from 2s to 10m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease, help_heading = "Workers")]
    lease: Duration,
    #[command(flatten)]
    sandbox: SandboxArgs,
    /// Connections at once; a quarter of them for callers without a valid token
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Limits")]
    max_connections: u32,
    /// Connections without a valid token that one address, or one IPv6 /64 network, may have at once; for a further one the
    /// oldest of them is closed
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Limits")]
    connections_per_address: u32,
    /// How long a connection without a valid token may go without a request, such as 30s; from 1s to 10m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = idle, help_heading = "Limits")]
    idle_timeout: Duration,
    /// Addresses or ranges, such as 10.0.0.0/8, of proxies that say in X-Forwarded-For whose address a caller has
    #[arg(long, value_name = "ADDR", value_delimiter = ',', help_heading = "Limits")]
    trusted_proxies: Vec<AddressRange>,
    /// The trusted proxies say it by the PROXY protocol instead (version 1 or 2), at the start of each connection
    #[arg(long, requires = "trusted_proxies", help_heading = "Limits")]
    proxy_protocol: bool,
    /// Requests at once; those that only wait do not count
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Limits")]
    max_requests: u32,
    /// Requests that one token may make in a second; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 5000, help_heading = "Limits")]
    requests_per_second: u32,
    /// Failed calls without a valid token that are logged for one address at once, with two more each second; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 60, help_heading = "Limits")]
    failed_attempts: u32,
    /// `text`, or `json` for one object in each line
    #[arg(long, value_name = "FORMAT", value_parser = log_format, default_value = "text", help_heading = "Log and traces")]
    log_format: LogFormat,
    /// Where to send traces, such as http://127.0.0.1:4317
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", help_heading = "Log and traces")]
    otlp_endpoint: Option<String>,
    /// Print the OpenAPI document of the REST API, and end
    #[arg(long)]
    print_openapi: bool,
}

fn idle(text: &str) -> Result<Duration, String> {
    let time = crate::args::change_args::duration(text)?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(600);
    if allowed.contains(&time) { Ok(time) } else { Err("it is from 1s to 10m".into()) }
}

fn lease(text: &str) -> Result<Duration, String> {
    let time = crate::args::change_args::duration(text)?;
    let allowed = Duration::from_secs(2)..=Duration::from_secs(600);
    if allowed.contains(&time) { Ok(time) } else { Err("it is from 2s to 10m".into()) }
}

pub fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("it is `text` or `json`".into()),
    }
}

pub fn run(args: Args, verbose: u8) -> CommandResult {
    if args.print_openapi {
        let document = berth_server::rest::openapi::document();
        output::print(&format!("{document:#}\n"))?;
        return Ok(Exit::Done);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::caused("cannot start the runtime", &error))?;
    let ended = runtime.block_on(serve(args, verbose));
    // A request that is still under way must not keep the process alive.
    runtime.shutdown_background();
    ended
}

async fn serve(args: Args, verbose: u8) -> CommandResult {
    let telemetry = Telemetry {
        service: "berth-server",
        format: args.log_format,
        verbose,
        color: terminal::stderr_color(),
        otlp_endpoint: args.otlp_endpoint.clone().filter(|endpoint| !endpoint.is_empty()),
    };
    let guard = telemetry::start(&telemetry).map_err(|error| Failure::caused("cannot start the log", &error))?;
    let mut stop = StopSignal::listen()?;
    let mut config = config(&args)?;
    // Checked first: starting the sandbox creates the file.
    let had_sandbox = crate::local::sandbox::cloud_path(&args.folder).exists();
    let sandbox = match args.sandbox.sandbox {
        true => Some(connect_or_start(args.sandbox.speed, &args.folder).await?),
        false => None,
    };
    config.simulated = sandbox.as_ref().map(Sandboxed::simulated);
    config.was_simulated = had_sandbox;
    let database = config.store.location.to_string();
    let running = start(config).await.map_err(|error| cannot_start(&error, &args))?;
    output::print(&how_to(&running, &args, &database))?;
    stop.wait().await;
    anstream::eprintln!("stopping: open requests and tasks are let to end; again to stop at once");
    let stopped = running.stop();
    tokio::select! {
        () = stopped => {}
        () = stop.wait() => anstream::eprintln!("stopped at once; leases of tasks end by themselves"),
    }
    if let Some(sandbox) = sandbox {
        sandbox.stop().await;
    }
    guard.stop();
    Ok(Exit::Done)
}

fn config(args: &Args) -> Result<Config, Failure> {
    let mut config = Config::in_folder(&args.folder);
    config.listen = args.listen;
    if let Some(url) = &args.db {
        config.store = Options::url(url)?;
    }
    config.store.key = key(args);
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        config.tls = Tls::Given { certificate: certificate.clone(), key: key.clone() };
    } else {
        config.tls = Tls::Own { names: args.tls_name.clone() };
    }
    config.lease = args.lease;
    config.client_ca.clone_from(&args.client_ca);
    config.health = args.health_listen;
    config.limits = Limits {
        connections: args.max_connections as usize,
        connections_per_address: args.connections_per_address as usize,
        stranger_idle: args.idle_timeout,
        proxies: TrustedProxies { ranges: args.trusted_proxies.clone(), proxy_protocol: args.proxy_protocol },
        requests: args.max_requests as usize,
        requests_per_second: NonZeroU32::new(args.requests_per_second),
        failed_attempts: if args.failed_attempts == 0 { u32::MAX } else { args.failed_attempts },
        ..Limits::default()
    };
    config.worker = (!args.no_worker).then(|| WorkerHere {
        capacity: args.capacity,
        allow_env: args.allow_env.clone(),
        allow_file: args.allow_file.clone(),
        own_credentials_for: args.own_credentials_for.clone(),
    });
    for url in &args.allow_api_url {
        berth_clouds::address::check(url)?;
    }
    config.allow_api_urls = args.allow_api_url.clone();
    config.oidc = args.oidc.config()?;
    config.audit_heads = args.audit.sinks()?;
    config.label_prefix = label_prefix(|name| std::env::var(name).ok())?;
    Ok(config)
}

/// What was said, else the folder's own.
fn key(args: &Args) -> KeySource {
    let said = |name: &str| std::env::var_os(name).is_some_and(|text| !text.is_empty());
    match (&args.key_file, &args.key_command) {
        (Some(path), _) => KeySource::File(path.clone()),
        (None, Some(command)) => KeySource::Command(command.clone()),
        _ if ["BERTH_KEY", "BERTH_KEY_COMMAND", "BERTH_KEY_FILE"].into_iter().any(said) => KeySource::Usual,
        _ => KeySource::File(args.folder.join("key")),
    }
}

fn cannot_start(error: &StartError, args: &Args) -> Failure {
    let failure = match error {
        StartError::Store(error) => {
            let failure = Failure::caused(error.to_string(), error);
            return error.help().into_iter().fold(failure, Failure::help);
        }
        error => Failure::caused("the server cannot start", error),
    };
    match error {
        StartError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            failure.help("another server may be running; choose another address with --listen")
        }
        StartError::OtherClouds { sandbox: true } => failure
            .help("start it without --sandbox")
            .help("or give it a state of its own for the sandbox, with --folder or --db"),
        StartError::OtherClouds { sandbox: false } => failure
            .help("start it with --sandbox")
            .help("or give it a state of its own for real clouds, with --folder or --db"),
        StartError::Folder { .. } => failure.help("choose another place with --folder"),
        StartError::Tls(_) if args.tls_cert.is_some() => {
            failure.help("leave --tls-cert and --tls-key out to let the server make its own")
        }
        _ => failure,
    }
}

/// Where everything is, and what to type next.
fn how_to(running: &Running, args: &Args, database: &str) -> String {
    let url = running.url();
    let mut text = format!("berth server {} answers at {url}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: &str| text.push_str(&format!("  {name:<10} {value}\n"));
    line("database", database);
    match key(args) {
        KeySource::File(path) => line("key", &shown(&path)),
        KeySource::Command(_) => line("key", "from --key-command"),
        _ => line("key", "from the environment"),
    }
    match (&running.ca, &args.tls_cert) {
        (Some(ca), _) => line("authority", &shown(ca)),
        (None, Some(certificate)) => line("TLS", &shown(certificate)),
        (None, None) => {}
    }
    line("trust", &running.fingerprint);
    match args.no_worker {
        true => {
            let sandbox = if args.sandbox.sandbox { " --sandbox" } else { "" };
            line("worker", &format!("none here; to start one:   berth worker --server URL --token-file FILE{sandbox}"));
        }
        false => line("worker", &format!("in this process, {} changes at once", args.capacity)),
    }
    if args.sandbox.sandbox {
        line("clouds", "simulated (sandbox)");
    }
    line("REST", &format!("{url}/openapi.json"));
    line("metrics", &format!("{url}/metrics"));
    if let Some(health) = running.health {
        line("health", &format!("http://{health}/healthz, /readyz"));
    }
    let ca = running.ca.as_ref().map(|ca| format!(" --ca {}", shown(ca))).unwrap_or_default();
    let token = args.folder.join("admin.token");
    let token = if token.exists() { format!(" --token-file {}", shown(&token)) } else { String::new() };
    text.push_str(&format!("\nfrom another terminal:\n  berth login {url}{ca}{token}\n  berth apply -f FILE\n"));
    text
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
