//! The Kubernetes API of every sandbox cluster: one TLS port, a path prefix for each cluster.
//!
//! Discovery, the object store and the rules of the API machinery are real enough for unmodified kubectl, Helm and client
//! libraries. Workloads get their pods, which are placed, started and stopped on the simulated clock; nothing runs in them.

pub mod access;
mod admission;
mod api;
mod change;
mod columns;
mod controllers;
mod convert;
mod defaults;
mod definitions;
mod delete;
mod discovery;
mod identity;
mod issuer;
mod listen;
mod login;
mod logs;
mod metrics;
mod objects;
mod ownership;
mod patch;
mod print;
mod proto;
mod quantity;
mod real;
mod resources;
mod schema;
pub mod seed;
mod select;
mod status;
mod subresources;
#[cfg(test)]
mod tests;
mod types;
mod validate;
mod watch;
mod yaml;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::net::TcpListener;
use tokio::sync::watch as signal;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::clock::{SimTime, Speed};
use crate::http::Cloud;
use crate::registry::CloudName;
use crate::world::{ClusterView, World};
use crate::{SandboxError, server};
use api::Need;
use controllers::Pace;
use identity::Identity;
use issuer::Issuer;
use objects::Objects;
use real::RealClusters;

/// Simulated time that load balancers and volumes of a real control plane take.
const MOMENT_MS: i64 = 3_000;
const MAX_OBJECTS_FILE_BYTES: u64 = 256 << 20;
/// How many clusters' objects are loaded before deleted clusters are looked for again.
const SWEEP_EVERY: usize = 64;

/// The TLS server behind all sandbox clusters; cheap to ask for endpoints and kubeconfigs.
pub struct KubeServer {
    addr: SocketAddr,
    identity: Identity,
    real: Option<Arc<RealClusters>>,
    stop: signal::Sender<bool>,
    accepting: Mutex<Option<JoinHandle<()>>>,
    issuer: Arc<Issuer>,
    clouds: Arc<Mutex<CloudApis>>,
}

/// The clouds that know their own tokens. Weak: a cloud holds the server of its clusters.
type CloudApis = BTreeMap<CloudName, Weak<dyn Cloud>>;

/// What every connection shares.
struct Clusters {
    world: Arc<World>,
    identity: Identity,
    address: String,
    /// Where objects outlive the process; only with a state file.
    folder: Option<PathBuf>,
    objects: Mutex<HashMap<String, Arc<Mutex<Objects>>>>,
    issuer: Arc<Issuer>,
    clouds: Arc<Mutex<CloudApis>>,
    /// With the programs of a real control plane, clusters are not simulated.
    real: Option<Arc<RealClusters>>,
}

impl KubeServer {
    /// Binds and serves until `stop`. Asks `world.cluster_view(id)` for what to show. With a state file, certificates, port
    /// and objects are kept in the folder `STATE.kube` beside it. `programs` is a folder with those of a real control plane.
    pub async fn start(
        addr: SocketAddr,
        state: Option<&Path>,
        programs: Option<&Path>,
        world: Arc<World>,
    ) -> Result<KubeServer, SandboxError> {
        let folder = state.map(identity::folder_beside);
        let mut identity = Identity::load_or_make(folder.as_deref())?;
        let listener = bind_again(addr, identity.address).await?;
        let addr = listener.local_addr().map_err(|source| SandboxError::Bind { addr, source })?;
        identity.address = Some(addr);
        if let Some(folder) = &folder {
            identity.keep(folder)?;
        }
        let acceptor = TlsAcceptor::from(Arc::new(identity.server_config()?));
        let issuer = Arc::new(Issuer::new(addr.to_string(), folder.clone()));
        let clouds = Arc::new(Mutex::new(CloudApis::new()));
        let (stop, stopped) = signal::channel(false);
        let open = |programs| {
            let known = real::Known { ca: identity.ca.clone(), issuer: issuer.clone(), world: world.clone() };
            RealClusters::open(programs, folder.as_deref(), known, stopped.clone())
        };
        let real = programs.map(open).transpose()?.map(Arc::new);
        let clusters = Arc::new(Clusters {
            real: real.clone(),
            world,
            identity: identity.clone(),
            address: addr.to_string(),
            folder,
            objects: Mutex::default(),
            issuer: issuer.clone(),
            clouds: clouds.clone(),
        });
        clusters.sweep_folder();
        let accepting = tokio::spawn(listen::accept(listener, acceptor, clusters, stopped));
        let accepting = Mutex::new(Some(accepting));
        Ok(KubeServer { addr, identity, real, stop, accepting, issuer, clouds })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The certificate authority of all clusters, as PEM text.
    pub fn ca_pem(&self) -> &str {
        &self.identity.ca
    }

    /// The administrator's certificate and key, as PEM text.
    pub fn client_pem(&self) -> (&str, &str) {
        (&self.identity.client, &self.identity.client_key)
    }

    /// The bearer token that a cluster takes in place of the client certificate.
    pub fn token(&self, cluster_id: &str) -> String {
        self.identity.token(cluster_id)
    }

    /// Lets a cloud say whom its tokens belong to.
    pub(crate) fn serve_for(&self, name: CloudName, api: &Arc<dyn Cloud>) {
        lock(&self.clouds).insert(name, Arc::downgrade(api));
    }

    /// The issuer of a cluster's service account tokens: `https://127.0.0.1:PORT/id/ID`.
    pub fn issuer(&self, cluster_id: &str) -> String {
        self.issuer.url(cluster_id)
    }

    /// The claims of a service account's token, whichever cluster it is of; otherwise what is wrong with it.
    pub fn check_token(&self, token: &str) -> Result<serde_json::Value, String> {
        self.issuer.check(token)
    }

    /// Stops serving; called once by `Sandbox::stop`.
    pub async fn stop(&self) {
        let _ = self.stop.send(true);
        let accepting = lock(&self.accepting).take();
        if let Some(accepting) = accepting {
            let _ = accepting.await;
        }
        if let Some(real) = &self.real {
            real.stop().await;
        }
    }
}

/// With any port allowed, the one used last is tried first, so that kubeconfigs given out earlier still work.
async fn bind_again(addr: SocketAddr, last: Option<SocketAddr>) -> Result<TcpListener, SandboxError> {
    if let Some(last) = last.filter(|last| addr.port() == 0 && last.ip() == addr.ip()) {
        match server::bind(last).await {
            Ok(listener) => return Ok(listener),
            Err(error) => tracing::warn!(%error, "the clusters' earlier port is taken; old kubeconfigs will not work"),
        }
    }
    server::bind(addr).await
}

/// `https://127.0.0.1:PORT/clusters/ID`
pub fn endpoint(server: &KubeServer, cluster_id: &str) -> String {
    format!("https://{}/clusters/{cluster_id}", server.addr)
}

/// A kubeconfig (YAML text) with which kubectl reaches the cluster.
pub fn kubeconfig(server: &KubeServer, cluster_id: &str, cluster_name: &str) -> String {
    let user = format!(
        "    client-certificate-data: {}\n    client-key-data: {}\n",
        STANDARD.encode(&server.identity.client),
        STANDARD.encode(&server.identity.client_key)
    );
    kubeconfig_with(server, cluster_id, cluster_name, cluster_name, &user)
}

/// A kubeconfig whose user has a token instead of a certificate, as DigitalOcean gives them out.
pub fn kubeconfig_with_token(server: &KubeServer, cluster_id: &str, context: &str) -> String {
    let user = format!("    token: {}\n", server.token(cluster_id));
    kubeconfig_with(server, cluster_id, context, &format!("{context}-admin"), &user)
}

fn kubeconfig_with(server: &KubeServer, cluster_id: &str, name: &str, user: &str, credentials: &str) -> String {
    // JSON strings are YAML strings: no name can break out.
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    let (endpoint, ca) = (endpoint(server, cluster_id), STANDARD.encode(&server.identity.ca));
    let (name, user, server_name) = (quote(name), quote(user), identity::server_name(cluster_id));
    // The server name tells the cluster for the requests that leave out the path of `server`, as `kubectl get --raw` does.
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: {name}\n  cluster:\n    certificate-authority-data: {ca}\n    server: \
         {endpoint}\n    tls-server-name: {server_name}\ncontexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: \
         {user}\ncurrent-context: {name}\nusers:\n- name: {user}\n  user:\n{credentials}preferences: {{}}\n"
    )
}

/// YAML as a JSON value.
pub fn parse_yaml(text: &[u8]) -> Result<serde_json::Value, String> {
    yaml::parse(text)
}

impl Clusters {
    /// Runs `work` on a cluster's objects as they are now; what a caller changed is on disk before this returns.
    fn with<R>(&self, view: &ClusterView, work: impl FnOnce(&mut Objects, SimTime) -> R) -> R {
        let cell = self.objects_of(&view.id);
        let mut objects = lock(&cell);
        let now = self.world.now();
        let pace = self.pace();
        controllers::settle(&mut objects, view, now, pace);
        let before = objects.version();
        let result = work(&mut objects, now);
        if objects.version() != before {
            controllers::settle(&mut objects, view, now, pace);
            self.keep(&view.id, &objects);
        }
        result
    }

    /// As `with`, for those who only look. The objects of a cluster that nobody ever changed follow from its view, so they are
    /// made for the moment and not kept: thousands of clusters being watched come up cost no memory here.
    fn look<R>(&self, view: &ClusterView, need: Need, work: impl FnOnce(&mut Objects, SimTime) -> R) -> R {
        let kept = lock(&self.objects).contains_key(&view.id) || self.file(&view.id).is_some_and(|file| file.exists());
        if kept {
            return self.with(view, work);
        }
        let (mut objects, now) = (Objects::new(&view.id), self.world.now());
        match need {
            Need::Nodes => controllers::register(&mut objects, view, now),
            Need::Types => seed::first_objects(&mut objects, view),
            Need::Everything => controllers::settle(&mut objects, view, now, self.pace()),
        }
        work(&mut objects, now)
    }

    fn pace(&self) -> Pace {
        Pace { instant: self.world.clock().speed() == Speed::Instant }
    }

    fn objects_of(&self, id: &str) -> Arc<Mutex<Objects>> {
        let mut all = lock(&self.objects);
        if let Some(cell) = all.get(id) {
            return cell.clone();
        }
        if all.len() % SWEEP_EVERY == SWEEP_EVERY - 1 {
            all.retain(|id, _| self.world.cluster_view(id).is_some());
        }
        let cell = Arc::new(Mutex::new(self.load(id)));
        all.insert(id.to_owned(), cell.clone());
        cell
    }

    fn file(&self, id: &str) -> Option<PathBuf> {
        let plain =
            !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        self.folder.as_ref().filter(|_| plain).map(|folder| folder.join(format!("cluster-{id}.json")))
    }

    fn load(&self, id: &str) -> Objects {
        let Some(file) = self.file(id) else { return Objects::new(id) };
        match identity::read_up_to(&file, MAX_OBJECTS_FILE_BYTES).map(|text| serde_json::from_str(&text)) {
            Ok(Ok(saved)) => Objects::restore(id, saved),
            Ok(Err(error)) => {
                tracing::warn!(file = %file.display(), %error, "a sandbox cluster's objects cannot be read; it starts afresh");
                Objects::new(id)
            }
            Err(_) => Objects::new(id),
        }
    }

    fn keep(&self, id: &str, objects: &Objects) {
        let Some(file) = self.file(id) else { return };
        let kept = serde_json::to_vec(&objects.save()).map_err(std::io::Error::from);
        if let Err(error) = kept.and_then(|bytes| identity::write_private(&file, &bytes)) {
            tracing::error!(file = %file.display(), %error, "a sandbox cluster's objects are not kept");
        }
    }

    /// A cluster that is gone takes its objects with it.
    fn forget(&self, id: &str) {
        let had = lock(&self.objects).remove(id).is_some();
        if let (true, Some(file)) = (had, self.file(id)) {
            let _ = std::fs::remove_file(file);
        }
    }

    fn sweep_folder(&self) {
        let Some(entries) = self.folder.as_ref().and_then(|folder| std::fs::read_dir(folder).ok()) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let id = name.strip_prefix("cluster-").and_then(|rest| rest.strip_suffix(".json"));
            if id.is_some_and(|id| self.world.cluster_view(id).is_none()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
