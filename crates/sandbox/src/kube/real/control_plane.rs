//! One cluster's etcd, API server, controllers, scheduler and kwok, from nothing to ready.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::certificates::{Certificates, FRONT_PROXY};
use super::client::Api;
use super::error::RealError;
use super::guard::Guard;
use super::kwok;
use super::processes::{self, Processes};
use super::programs::{API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, Programs, SCHEDULER};
use crate::kube::identity;
use crate::kube::issuer::API_AUDIENCE;

const READY_WITHIN: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Ports are chosen before the programs bind them; another process may be quicker.
const ATTEMPTS: usize = 3;

const SERVICE_ADDRESSES: &str = "10.43.0.0/16";
const POD_ADDRESSES: &str = "10.244.0.0/14";

/// What a control plane is made from.
pub struct Blueprint<'a> {
    pub programs: &'a Programs,
    pub guard: Arc<Guard>,
    /// Its own folder.
    pub folder: PathBuf,
    /// Whether objects must outlive the machine's failure.
    pub kept: bool,
    /// The authority that users of the cluster know.
    pub cluster_ca: &'a str,
    /// The issuer of its service accounts' tokens, and the keys that sign and check them.
    pub issuer: String,
    pub token_keys: (String, String),
    pub pull: Duration,
}

/// A control plane whose API serves.
pub struct ControlPlane {
    pub api: Api,
    pub kubelet_port: u16,
    pub processes: Processes,
}

/// Loopback ports of its programs.
struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api: u16,
    kubelet: u16,
}

pub async fn start(blueprint: &Blueprint<'_>) -> Result<ControlPlane, RealError> {
    processes::end_leftovers(&blueprint.folder);
    let mut attempt = 1;
    loop {
        match try_start(blueprint).await {
            Err(error @ RealError::Ended { .. }) if attempt < ATTEMPTS => {
                tracing::warn!(%error, attempt, "a real control plane did not start; trying again");
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

async fn try_start(blueprint: &Blueprint<'_>) -> Result<ControlPlane, RealError> {
    let files = |source| RealError::Files { folder: blueprint.folder.clone(), source };
    identity::make_private_folder(&blueprint.folder).map_err(files)?;
    let certificates = Certificates::make(&blueprint.folder, blueprint.cluster_ca, &blueprint.token_keys)?;
    let ports = Ports::choose().map_err(files)?;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.api));
    let api = Api::new(addr, &certificates);
    let mut processes = Processes::new(blueprint.guard.clone(), blueprint.folder.clone());
    let mut run = |name, arguments| processes.start(name, blueprint.programs.path(name), arguments);
    run(ETCD, etcd(&ports, &certificates, &blueprint.folder, blueprint.kept))?;
    run(API_SERVER, api_server(&ports, &certificates, &blueprint.issuer))?;
    until(&mut processes, &blueprint.folder, API_SERVER, &api).await?;
    let config = kwok::write_config(&blueprint.folder, blueprint.pull).map_err(files)?;
    let server = format!("https://{addr}");
    let as_user = |user, group| certificates.kubeconfig(&server, user, group);
    let mut run = |name, arguments| processes.start(name, blueprint.programs.path(name), arguments);
    run(CONTROLLER_MANAGER, controller_manager(as_user("system:kube-controller-manager", None)?, &certificates))?;
    run(SCHEDULER, scheduler(as_user("system:kube-scheduler", None)?))?;
    run(KWOK, kwok_arguments(as_user("kwok", Some("system:masters"))?, config, &ports, &certificates))?;
    until(&mut processes, &blueprint.folder, CONTROLLER_MANAGER, &api).await?;
    Ok(ControlPlane { api, kubelet_port: ports.kubelet, processes })
}

/// Waits for a program to be of use; ends early when any has ended.
async fn until(processes: &mut Processes, folder: &Path, program: &'static str, api: &Api) -> Result<(), RealError> {
    let until = Instant::now() + READY_WITHIN;
    loop {
        let useful = match program {
            API_SERVER => api.ready().await,
            // Pods cannot be made before the controllers have made this; a first call that makes one should succeed.
            _ => matches!(api.get("/api/v1/namespaces/default/serviceaccounts/default").await, Ok(Some(_))),
        };
        if useful {
            return Ok(());
        }
        if let Some(ended) = processes.ended() {
            return Err(ended);
        }
        if Instant::now() > until {
            let log = folder.join(format!("{program}.log"));
            return Err(RealError::NotReady { program, seconds: READY_WITHIN.as_secs(), log });
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

impl Ports {
    fn choose() -> std::io::Result<Ports> {
        // All held until the last is chosen, so that they differ.
        let held: Vec<TcpListener> =
            (0..4).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<std::io::Result<_>>()?;
        let ports: Vec<u16> =
            held.iter().map(|one| one.local_addr().map(|addr| addr.port())).collect::<std::io::Result<_>>()?;
        match ports.as_slice() {
            &[etcd, etcd_peer, api, kubelet] => Ok(Ports { etcd, etcd_peer, api, kubelet }),
            _ => Err(std::io::Error::other("no free ports")),
        }
    }
}

/// `--name=value` for each pair.
fn flags(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

fn etcd(ports: &Ports, certificates: &Certificates, folder: &Path, kept: bool) -> Vec<String> {
    let (client, peer) =
        (format!("https://127.0.0.1:{}", ports.etcd), format!("https://127.0.0.1:{}", ports.etcd_peer));
    let (ca, certificate, key) =
        (certificates.path("ca.crt"), certificates.path("etcd.crt"), certificates.path("etcd.key"));
    let (data, members) = (folder.join("etcd"), format!("sandbox={peer}"));
    flags(&[
        ("name", "sandbox"),
        ("data-dir", &data.to_string_lossy()),
        ("listen-client-urls", &client),
        ("advertise-client-urls", &client),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
        ("initial-cluster", &members),
        ("cert-file", &certificate),
        ("key-file", &key),
        ("trusted-ca-file", &ca),
        ("client-cert-auth", "true"),
        ("peer-cert-file", &certificate),
        ("peer-key-file", &key),
        ("peer-trusted-ca-file", &ca),
        ("peer-client-cert-auth", "true"),
        ("enable-grpc-gateway", "false"),
        ("unsafe-no-fsync", if kept { "false" } else { "true" }),
        ("log-level", "warn"),
    ])
}

fn api_server(ports: &Ports, certificates: &Certificates, issuer: &str) -> Vec<String> {
    let path = |file: &str| certificates.path(file);
    flags(&[
        ("etcd-servers", &format!("https://127.0.0.1:{}", ports.etcd)),
        ("etcd-cafile", &path("ca.crt")),
        ("etcd-certfile", &path("etcd.crt")),
        ("etcd-keyfile", &path("etcd.key")),
        ("bind-address", "127.0.0.1"),
        ("advertise-address", "127.0.0.1"),
        ("secure-port", &ports.api.to_string()),
        // Loopback addresses are refused as endpoints of a service.
        ("endpoint-reconciler-type", "none"),
        ("tls-cert-file", &path("apiserver.crt")),
        ("tls-private-key-file", &path("apiserver.key")),
        ("client-ca-file", &path("ca.crt")),
        ("requestheader-client-ca-file", &path("front-proxy-ca.crt")),
        ("requestheader-allowed-names", FRONT_PROXY),
        ("requestheader-username-headers", "X-Remote-User"),
        ("requestheader-group-headers", "X-Remote-Group"),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        ("anonymous-auth", "false"),
        ("authorization-mode", "RBAC"),
        ("allow-privileged", "true"),
        ("service-cluster-ip-range", SERVICE_ADDRESSES),
        ("service-account-issuer", issuer),
        ("service-account-jwks-uri", &format!("{issuer}/keys")),
        ("api-audiences", API_AUDIENCE),
        ("service-account-key-file", &path("service-accounts.pub")),
        ("service-account-signing-key-file", &path("service-accounts.key")),
        ("kubelet-client-certificate", &path("kubelet-client.crt")),
        ("kubelet-client-key", &path("kubelet-client.key")),
        ("kubelet-certificate-authority", &path("ca.crt")),
        // Nodes have invented addresses; under this name every one of them is kwok.
        ("kubelet-preferred-address-types", "InternalDNS"),
        ("profiling", "false"),
    ])
}

fn controller_manager(kubeconfig: String, certificates: &Certificates) -> Vec<String> {
    flags(&[
        ("kubeconfig", &kubeconfig),
        ("use-service-account-credentials", "true"),
        ("service-account-private-key-file", &certificates.path("service-accounts.key")),
        ("root-ca-file", &certificates.path("cluster-ca.crt")),
        ("allocate-node-cidrs", "true"),
        ("cluster-cidr", POD_ADDRESSES),
        ("service-cluster-ip-range", SERVICE_ADDRESSES),
        ("leader-elect", "false"),
        ("bind-address", "127.0.0.1"),
        ("secure-port", "0"),
        ("kube-api-qps", "200"),
        ("kube-api-burst", "400"),
        ("profiling", "false"),
    ])
}

fn scheduler(kubeconfig: String) -> Vec<String> {
    flags(&[
        ("kubeconfig", &kubeconfig),
        ("leader-elect", "false"),
        ("bind-address", "127.0.0.1"),
        ("secure-port", "0"),
        ("kube-api-qps", "200"),
        ("kube-api-burst", "400"),
        ("profiling", "false"),
    ])
}

fn kwok_arguments(kubeconfig: String, config: String, ports: &Ports, certificates: &Certificates) -> Vec<String> {
    flags(&[
        ("kubeconfig", &kubeconfig),
        ("config", &config),
        ("manage-all-nodes", "true"),
        ("cidr", POD_ADDRESSES),
        ("node-ip", "127.0.0.1"),
        ("node-port", &ports.kubelet.to_string()),
        ("server-address", &format!("127.0.0.1:{}", ports.kubelet)),
        ("tls-cert-file", &certificates.path("kubelet.crt")),
        ("tls-private-key-file", &certificates.path("kubelet.key")),
        ("node-lease-duration-seconds", "40"),
    ])
}
