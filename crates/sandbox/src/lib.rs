//! Simulated clouds: the real HTTP APIs of clouds on loopback, with provisioning time, faults
//! and quotas, faithful enough for the clouds' own clients.
//!
//! Phases are never pushed by background tasks: every object holds the times at which it changes, and what a
//! caller sees follows from the simulated clock at the moment of the call.

mod admin;
pub mod aws;
pub mod civo;
pub mod clock;
pub mod digitalocean;
pub mod faults;
pub mod http;
pub mod kube;
mod log;
pub mod registry;
pub mod rule;
mod server;
pub mod table;
pub mod traffic;
pub mod world;

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

pub use clock::{SimTime, Speed};
pub use registry::{CloudName, CloudOption, CloudOptions};
pub use rule::{Rule, RuleError};
pub use world::{ClusterView, NodeCapacity, NodeView, TaintView, World};

use kube::KubeServer;
use server::Server;

const FREE_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How a sandbox is to run. The default: any free ports, real speed, nothing kept, no faults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Loopback addresses of the clouds; port 0 takes any free one, and so does a cloud that is not named.
    pub clouds: BTreeMap<CloudName, SocketAddr>,
    pub kube: SocketAddr,
    pub speed: Speed,
    /// Where objects are kept between runs.
    pub state: Option<PathBuf>,
    pub fail: Vec<Rule>,
    pub seed: u64,
    /// The only token accepted; without it any will do.
    pub token: Option<String>,
    pub quota: Quota,
    /// A folder with the programs of a real Kubernetes control plane; clusters are then real ones.
    pub kube_bin: Option<PathBuf>,
    /// Settings of single clouds.
    pub options: BTreeMap<CloudName, CloudOptions>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            clouds: BTreeMap::new(),
            kube: FREE_PORT,
            speed: Speed::Times(1.0),
            state: None,
            fail: vec![],
            seed: 0,
            token: None,
            quota: Quota::default(),
            kube_bin: None,
            options: BTreeMap::new(),
        }
    }
}

/// Limits of the simulated accounts, each for each cloud on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub clusters: u64,
    /// Nodes of all clusters together.
    pub nodes: u64,
    pub networks: u64,
    pub firewalls: u64,
    /// Rate limits of the clouds that have them, on the simulated clock.
    pub requests_per_hour: u32,
    pub requests_per_minute: u32,
}

impl Default for Quota {
    /// Wide enough to never be met by accident.
    fn default() -> Quota {
        Quota {
            clusters: 100_000,
            nodes: 1_000_000,
            networks: 100_000,
            firewalls: 100_000,
            requests_per_hour: 10_000_000,
            requests_per_minute: 10_000_000,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("the sandbox listens on loopback only, not on {addr}")]
    NotLoopback { addr: SocketAddr },
    #[error("cannot listen on {addr}")]
    Bind { addr: SocketAddr, source: io::Error },
    #[error("another sandbox is using the state file {}", path.display())]
    StateInUse { path: PathBuf },
    #[error("state file {}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error("state file {}, line {line}: {reason}", path.display())]
    StateUnreadable { path: PathBuf, line: usize, reason: String },
    #[error("{cloud}: {reason}")]
    Option { cloud: CloudName, reason: String },
    #[error("{} does not have these programs: {missing}", folder.display())]
    KubePrograms { folder: PathBuf, missing: String },
    #[error("TLS for the clusters' Kubernetes APIs: {0}")]
    Tls(String),
}

impl SandboxError {
    /// The error and its causes in one line, for answers over HTTP.
    fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(next) = cause {
            text = format!("{text}: {next}");
            cause = next.source();
        }
        text
    }
}

/// Running simulated clouds. Dropped without `stop`, their ports close soon after.
pub struct Sandbox {
    world: Arc<World>,
    kube: Arc<KubeServer>,
    clouds: BTreeMap<CloudName, Server>,
}

impl Sandbox {
    pub async fn start(config: Config) -> Result<Sandbox, SandboxError> {
        if !config.kube.ip().is_loopback() {
            return Err(SandboxError::NotLoopback { addr: config.kube });
        }
        // Ports before the state file: a taken port must not touch what is kept.
        let mut listeners = Vec::new();
        for cloud in registry::clouds() {
            let addr = config.clouds.get(&cloud.name).copied().unwrap_or(FREE_PORT);
            listeners.push((cloud, server::bind(addr).await?));
        }
        let world = Arc::new(World::open(&config)?);
        let (state, programs) = (config.state.as_deref(), config.kube_bin.as_deref());
        let kube = Arc::new(KubeServer::start(config.kube, state, programs, world.clone()).await?);
        let mut clouds = BTreeMap::new();
        for (cloud, listener) in listeners {
            let options = config.options.get(&cloud.name).cloned().unwrap_or_default();
            let api = (cloud.api)(world.clone(), kube.clone(), &options);
            let api = api.map_err(|reason| SandboxError::Option { cloud: cloud.name, reason })?;
            kube.serve_for(cloud.name, &api);
            clouds.insert(cloud.name, Server::start(listener, api, world.clone(), config.token.clone())?);
        }
        Ok(Sandbox { world, kube, clouds })
    }

    /// `http://127.0.0.1:PORT`, without a path: what the tools of that cloud take as its address.
    pub fn url(&self, cloud: CloudName) -> String {
        format!("http://{}", self.clouds[&cloud].addr())
    }

    /// The addresses of all clouds, by name.
    pub fn urls(&self) -> BTreeMap<String, String> {
        self.clouds.keys().map(|name| (name.to_string(), self.url(*name))).collect()
    }

    pub fn kube_addr(&self) -> SocketAddr {
        self.kube.addr()
    }

    pub fn world(&self) -> Arc<World> {
        self.world.clone()
    }

    /// Closes every port and connection and lets go of the state file.
    pub async fn stop(self) {
        for cloud in self.clouds.into_values() {
            cloud.stop().await;
        }
        self.kube.stop().await;
        self.world.close();
    }
}
