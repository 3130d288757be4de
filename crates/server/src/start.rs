//! Starts a server: folder, database, key, certificate, first token, services, controller, worker.

use crate::access::head_sinks::HeadSinks;
use crate::access::oidc::{Oidc, OidcConfig, OidcError};
use crate::access::{self, AccessLayer, Authenticator};
use crate::api::ServerState;
use crate::api::front::{Front, Health};
use crate::fault::{Code, Fault};
use crate::limits::{ACCEPT_SLACK, Limits};
use crate::pb::access_server::AccessServer;
use crate::rest::Gateway;
use crate::serve;
use crate::tls::{self, Certificates, Tls, TlsError};
use axum::Router;
use berth_clouds::accounts::Simulated;
use berth_store::{Control, Options, Store, StoreError};
use secrecy::{ExposeSecret, SecretString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

/// Everything that a server is told.
#[derive(Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// Where the server says, without encryption, whether it is alive and ready; it says so on `listen` too.
    pub health: Option<SocketAddr>,
    /// Where the server keeps what is its own: certificate, first token, and by default the database and its key.
    pub folder: PathBuf,
    pub store: Options,
    pub tls: Tls,
    /// Authority of workers' certificates; with it, workers have to show one.
    pub client_ca: Option<PathBuf>,
    pub limits: Limits,
    /// Where people log in; `None`: by token alone.
    pub oidc: Option<OidcConfig>,
    /// Where the audit log's head is offered.
    pub audit_heads: HeadSinks,
    /// The worker inside the server; `None`: only workers elsewhere.
    pub worker: Option<WorkerHere>,
    /// Simulated clouds in place of real ones, for the worker inside.
    pub simulated: Option<Simulated>,
    /// Whether a state from before it said so itself is of simulated clouds.
    pub was_simulated: bool,
    /// How long a worker may hold a task without a heartbeat.
    pub lease: Duration,
    /// What the labels and tags that Berth writes begin with.
    pub label_prefix: String,
    /// Addresses of APIs that Accounts may name, beside the clouds' own.
    pub allow_api_urls: Vec<String>,
}

/// Of the address that says how the server is.
const HEALTH_CONNECTIONS: usize = 256;
/// Databases, logs, certificates, calls to clouds.
const OTHER_FILES: usize = 256;

/// Long enough for a server to be replaced, short enough that a dead worker's tasks do not wait long.
pub const LEASE: Duration = Duration::from_secs(30);

/// The worker inside the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerHere {
    pub capacity: u32,
    /// Environment variables and files that accounts may take their tokens from.
    pub allow_env: Vec<String>,
    pub allow_file: Vec<PathBuf>,
    /// Orgs that these and the environment's credentials are for, beside resources without an org.
    pub own_credentials_for: Vec<String>,
}

impl Default for WorkerHere {
    fn default() -> Self {
        Self { capacity: 16, allow_env: Vec::new(), allow_file: Vec::new(), own_credentials_for: Vec::new() }
    }
}

impl Config {
    /// A server with its own database in its folder, on a free port of this machine.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            health: None,
            store: Options::at(folder.join("state.db")),
            folder,
            tls: Tls::Own { names: Vec::new() },
            client_ca: None,
            limits: Limits::default(),
            oidc: None,
            audit_heads: HeadSinks::default(),
            worker: Some(WorkerHere::default()),
            simulated: None,
            was_simulated: false,
            lease: LEASE,
            label_prefix: berth_clouds::DEFAULT_LABEL_PREFIX.into(),
            allow_api_urls: Vec::new(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot make the folder {}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Oidc(#[from] OidcError),
    #[error("the first admin's token cannot be made: {0}")]
    FirstToken(Fault),
    #[error("cannot read the first admin's token in {}", path.display())]
    ReadToken { path: PathBuf, source: std::io::Error },
    #[error(
        "the state holds what was made in {} clouds, and the server was started for {} ones",
        if *sandbox { "real" } else { "simulated" },
        if *sandbox { "simulated" } else { "real" }
    )]
    OtherClouds { sandbox: bool },
    #[error("the API's own description cannot be used: {0}")]
    Api(String),
}

/// A server that runs.
pub struct Running {
    pub address: SocketAddr,
    /// Where it says how it is, beside that.
    pub health: Option<SocketAddr>,
    /// Where clients find what to trust; `None` where a certificate was given.
    pub ca: Option<PathBuf>,
    /// SHA-256 of what clients may trust: the own authority's certificate, or the one that was given.
    pub fingerprint: String,
    /// Where the first admin's token lies, when this start made it.
    pub first_token: Option<PathBuf>,
    pub server: Arc<ServerState>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    serving: Vec<JoinHandle<()>>,
}

impl Running {
    /// Such as `https://127.0.0.1:7443`.
    pub fn url(&self) -> String {
        let address = match self.address.ip() {
            ip if ip.is_unspecified() => SocketAddr::from(([127, 0, 0, 1], self.address.port())),
            _ => self.address,
        };
        format!("https://{address}")
    }

    /// Lets open requests and tasks end, then closes the database.
    pub async fn stop(self) {
        self.stop.cancel();
        for task in self.serving.into_iter().chain(self.tasks) {
            _ = task.await;
        }
        self.server.control.close().await;
        self.server.control.store().close().await;
    }
}

/// Returns when the server answers.
pub async fn start(mut config: Config) -> Result<Running, StartError> {
    make_folder(&config.folder)?;
    config.limits.connections = within_open_files(config.limits.connections);
    let (listener, address) = listen(config.listen).await?;
    let health = match config.health {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let certificates = Certificates::open(&config.tls, &config.folder, address.ip())?;
    let tls = Arc::new(tls::config(certificates.clone(), config.client_ca.as_deref())?);
    let oidc = config.oidc.clone().map(Oidc::new).transpose()?.map(Arc::new);
    let control = Control::open(Store::open(config.store.clone()).await?).await?;
    if !control.claim(config.simulated.is_some(), config.was_simulated).await? {
        return Err(StartError::OtherClouds { sandbox: config.simulated.is_some() });
    }
    let first_token = first_token(&control, &config.folder).await?;

    let stop = CancellationToken::new();
    let server = Arc::new(ServerState::new(control, config, stop.clone()));
    let authenticator =
        Arc::new(Authenticator::new(server.control.clone(), &server.config.limits, server.metrics.clone()));
    let inside = inside(&server, &authenticator, oidc).await?;
    let gateway =
        Gateway::new(inside.clone(), authenticator.clone()).map_err(|error| StartError::Api(error.to_string()))?;
    let front = Arc::new(Front::new(server.clone(), inside, gateway));

    let (ca, fingerprint) = (certificates.authority(), certificates.fingerprint());
    let mut tasks = vec![tokio::spawn(certificates.renew(stop.clone()))];
    tasks.push(tokio::spawn(authenticator.clone().keep_live(stop.clone())));
    tasks.push(tokio::spawn(authenticator.keep(stop.clone())));
    tasks.push(crate::controller::spawn(server.clone(), stop.clone()));
    tasks.extend(crate::worker::in_process(&server, stop.clone()));
    let heads = server.config.audit_heads.clone();
    tasks.extend(heads.start(server.control.clone(), server.metrics.clone(), stop.clone()));
    let (limits, metrics) = (server.config.limits.clone(), server.metrics.clone());
    let mut serving = Vec::new();
    let health_address = health.as_ref().map(|(_, address)| *address);
    if let Some((listener, _)) = health {
        let limits = Limits { connections: HEALTH_CONNECTIONS, ..Limits::default() };
        let (app, metrics, stop) = (Arc::new(Health(front.clone())), metrics.clone(), stop.clone());
        serving.push(tokio::spawn(async move { serve::serve(listener, None, app, &limits, metrics, stop).await }));
    }
    let stopped = stop.clone();
    serving
        .push(tokio::spawn(async move { serve::serve(listener, Some(tls), front, &limits, metrics, stopped).await }));
    Ok(Running { address, health: health_address, ca, fingerprint, first_token, server, stop, tasks, serving })
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// As many connections as there may be open files, which are let to be as many as they may: without a file for the next
/// connection nobody gets in, even if others are closed.
fn within_open_files(connections: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = (connections + ACCEPT_SLACK + OTHER_FILES) as u64;
    let found = getrlimit(Resource::Nofile);
    if found.current.is_some_and(|current| current < wanted) {
        let current = Some(found.maximum.map_or(wanted, |most| most.min(wanted)));
        _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: found.maximum });
    }
    let Some(current) = getrlimit(Resource::Nofile).current else { return connections };
    let possible = usize::try_from(current).unwrap_or(usize::MAX).saturating_sub(ACCEPT_SLACK + OTHER_FILES).max(1);
    if possible < connections {
        tracing::warn!(connections = possible, "few files may be open at once, so that there are fewer connections");
    }
    possible.min(connections)
}

/// The gRPC routes with everything that guards them: what REST calls, and what gRPC calls.
async fn inside(
    server: &Arc<ServerState>,
    authenticator: &Arc<Authenticator>,
    oidc: Option<Arc<Oidc>>,
) -> Result<Router, StartError> {
    let failed = |error: tonic_reflection::server::Error| StartError::Api(error.to_string());
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(crate::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Many tools ask by the older version only.
    let reflection = described().build_v1().map_err(failed)?;
    let reflection_alpha = described().build_v1alpha().map_err(failed)?;
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let mut routes = Routes::builder();
    routes.add_service(reflection).add_service(reflection_alpha).add_service(health);
    crate::api::add_services(&mut routes, server);
    routes.add_service(crate::tasks::worker_service(server));
    routes.add_service(AccessServer::new(access::service::Service::new(
        authenticator.clone(),
        oidc,
        server.is_sandbox(),
    )));
    Ok(routes.routes().prepare().into_axum_router().layer(AccessLayer::new(authenticator.clone())))
}

fn make_folder(folder: &Path) -> Result<(), StartError> {
    let failed = |source| StartError::Folder { path: folder.to_owned(), source };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(failed)
}

/// A state without any token gets one for its admin: the one that lies in the folder, else a new one, in a file that only the
/// server's user can read. The file comes first, so that no token is kept that nobody was told.
async fn first_token(control: &Control, folder: &Path) -> Result<Option<PathBuf>, StartError> {
    if !access::service::has_no_token(control).await.map_err(StartError::FirstToken)? {
        return Ok(None);
    }
    let path = folder.join("admin.token");
    let failed = |source| StartError::ReadToken { path: path.clone(), source };
    let token = match given_token(&path).map_err(failed)? {
        Some(token) => token,
        None => {
            let (token, _) = access::token::make()
                .map_err(|error| StartError::FirstToken(Fault::new(Code::Internal, error.to_string())))?;
            tls::write(&path, format!("{}\n", token.expose_secret()).as_bytes(), 0o600)?;
            token
        }
    };
    access::service::keep_first_token(control, &token).await.map_err(StartError::FirstToken)?;
    Ok(Some(path))
}

/// What is left of a server that was stopped between its two steps, or what an operator put there.
fn given_token(path: &Path) -> std::io::Result<Option<SecretString>> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(SecretString::from(text.trim()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
