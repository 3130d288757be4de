//! Clusters with a real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and kwok in place of
//! kubelets, each cluster its own. They are started at a cluster's first call and end with the cluster or the sandbox.
//!
//! Users see the same address and the same credentials as of a simulated cluster. The sandbox itself plays the cloud's part:
//! nodes, load balancers and volumes, by ordinary calls to the API.

mod certificates;
mod client;
mod control_plane;
mod error;
mod guard;
mod kwok;
mod load_balancers;
mod nodes;
mod processes;
mod programs;
mod proxy;
mod seed;
#[cfg(all(test, unix))]
mod tests;
mod volumes;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::http::request::Parts;
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::watch as signal;

use super::api::Given;
use super::issuer::Issuer;
use super::status::{self, Answer};
use super::{MOMENT_MS, identity, lock};
use crate::clock::Speed;
use crate::world::{ClusterView, World};
use crate::{SandboxError, world};
use client::Api;
use control_plane::{Blueprint, ControlPlane};
use error::RealError;
use guard::Guard;
use nodes::NodeSync;
use programs::Programs;
pub use proxy::Caller;

/// A control plane takes some hundred megabytes, and a core while it starts.
const MAX_REAL_CLUSTERS: usize = 4;
/// How often nodes, load balancers and volumes are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The clusters whose control plane runs.
pub struct RealClusters {
    programs: Programs,
    known: Known,
    /// Has a folder for each cluster.
    folder: PathBuf,
    kept: bool,
    guard: Arc<Guard>,
    stopped: signal::Receiver<bool>,
    clusters: Mutex<HashMap<String, Arc<Cluster>>>,
}

/// What the users of all clusters, and the sandbox, know.
pub struct Known {
    /// The authority of the clusters' addresses.
    pub ca: String,
    /// Whose documents say how tokens of service accounts are checked.
    pub issuer: Arc<Issuer>,
    pub world: Arc<World>,
}

/// One cluster: its control plane, once there was a call and while all its programs run.
#[derive(Default)]
struct Cluster {
    running: AsyncMutex<Option<Running>>,
}

struct Running {
    control_plane: ControlPlane,
    nodes: NodeSync,
}

impl RealClusters {
    /// `folder` is where data is kept between runs; without it, a temporary one is used.
    pub fn open(
        programs: &Path,
        folder: Option<&Path>,
        known: Known,
        stopped: signal::Receiver<bool>,
    ) -> Result<RealClusters, SandboxError> {
        let programs = Programs::find(programs)?;
        let (place, kept) = match folder {
            Some(folder) => (folder.join("real"), true),
            None => (std::env::temp_dir().join(format!("berth-sandbox-{}", world::new_id())), false),
        };
        let place = std::path::absolute(&place).unwrap_or(place);
        let guard =
            identity::make_private_folder(&place).and_then(|()| Guard::start((!kept).then_some(place.as_path())));
        let guard = Arc::new(guard.map_err(|source| SandboxError::State { path: place.clone(), source })?);
        let clusters = Mutex::default();
        let opened = RealClusters { programs, known, folder: place, kept, guard, stopped, clusters };
        opened.end_leftovers();
        Ok(opened)
    }

    /// Programs that an earlier sandbox could not end, and data of clusters that the cloud no longer has.
    fn end_leftovers(&self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            processes::end_leftovers(&entry.path());
            if self.known.world.cluster_view(&entry.file_name().to_string_lossy()).is_none() {
                remove_folder(&entry.path());
            }
        }
    }

    /// The answer of the cluster's API server, whose control plane is started if this is the first call.
    pub async fn answer(
        self: &Arc<Self>,
        view: &ClusterView,
        head: &Parts,
        caller: &Caller,
        body: Bytes,
    ) -> Answer<Given> {
        if proxy::wants_upgrade(head) {
            return Err(status::bad_request(
                "exec, attach and port-forward are not possible: the containers of a sandbox cluster are simulated, and nothing runs in them",
            ));
        }
        let forwarded = async { proxy::forward(&self.api(view).await?, head, &target(head), caller, body).await };
        match forwarded.await {
            Ok(wire) => Ok(Given::Forwarded(wire)),
            Err(RealError::Gone) => Err(status::no_such_cluster(&view.id)),
            Err(error @ RealError::Full { .. }) => Err(status::beyond_limits(&error)),
            Err(error) => {
                tracing::warn!(cluster = view.id, %error, "a call to a real control plane failed");
                Err(status::control_plane_down(&error))
            }
        }
    }

    /// An API that shows the nodes as the cloud does now.
    async fn api(self: &Arc<Self>, view: &ClusterView) -> Result<Api, RealError> {
        let cluster = self.cluster(&view.id)?;
        let (all, view) = (self.clone(), view.clone());
        // In a task of its own: a caller that goes away must not leave half a control plane.
        let up = tokio::spawn(async move {
            let mut running = cluster.running.lock().await;
            if *all.stopped.borrow() {
                return Err(RealError::Stopping);
            }
            // It may have been deleted while this call waited for others.
            if all.known.world.cluster_view(&view.id).is_none() {
                return Err(RealError::Gone);
            }
            let up = match &mut *running {
                Some(up) => up,
                none => {
                    let mut stopped = all.stopped.clone();
                    let started = tokio::select! {
                        started = all.start(&view) => started,
                        _ = stopped.wait_for(|stopped| *stopped) => Err(RealError::Stopping),
                    };
                    let up = none.insert(started?);
                    tokio::spawn(all.clone().look_after(view.id.clone(), cluster.clone()));
                    up
                }
            };
            if !up.nodes.current(&view)
                && let Err(error) = up.nodes.sync(&up.control_plane.api, &view).await
            {
                tracing::debug!(cluster = view.id, %error, "the nodes will be written a little later");
            }
            Ok(up.control_plane.api.clone())
        });
        up.await.unwrap_or_else(|error| Err(RealError::NoAnswer(error.to_string())))
    }

    fn cluster(&self, id: &str) -> Result<Arc<Cluster>, RealError> {
        let mut clusters = lock(&self.clusters);
        if let Some(cluster) = clusters.get(id) {
            return Ok(cluster.clone());
        }
        if clusters.len() >= MAX_REAL_CLUSTERS {
            // Those that are gone from the cloud end by themselves; some never came up.
            clusters.retain(|id, _| self.known.world.cluster_view(id).is_some());
        }
        if clusters.len() >= MAX_REAL_CLUSTERS {
            return Err(RealError::Full { limit: MAX_REAL_CLUSTERS });
        }
        Ok(clusters.entry(id.to_owned()).or_default().clone())
    }

    async fn start(&self, view: &ClusterView) -> Result<Running, RealError> {
        let begun = std::time::Instant::now();
        let blueprint = Blueprint {
            programs: &self.programs,
            guard: self.guard.clone(),
            folder: self.folder.join(&view.id),
            kept: self.kept,
            cluster_ca: &self.known.ca,
            issuer: self.known.issuer.url(&view.id),
            token_keys: self.known.issuer.key_pem().map_err(RealError::Certificates)?,
            pull: self.moment(),
        };
        let control_plane = control_plane::start(&blueprint).await?;
        seed::seed(&control_plane.api, view).await?;
        tracing::info!(cluster = view.id, ms = begun.elapsed().as_millis(), "a real control plane is up");
        let nodes = NodeSync::new(control_plane.kubelet_port);
        Ok(Running { control_plane, nodes })
    }

    /// Plays the cloud's part until cluster, control plane or sandbox end.
    async fn look_after(self: Arc<Self>, id: String, cluster: Arc<Cluster>) {
        let mut stopped = self.stopped.clone();
        loop {
            let stopping = tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => true,
                () = tokio::time::sleep(LOOK_AGAIN) => false,
            };
            if stopping {
                return self.end(&id, &cluster).await;
            }
            let Some(view) = self.known.world.cluster_view(&id) else {
                self.end(&id, &cluster).await;
                remove_folder(&self.folder.join(&id));
                return;
            };
            let mut running = cluster.running.lock().await;
            let Some(up) = &mut *running else { return };
            if let Some(error) = up.control_plane.processes.ended() {
                tracing::error!(cluster = id, %error, "a real control plane is down; the next call starts it again");
                up.control_plane.processes.stop().await;
                *running = None;
                return;
            }
            if let Err(error) = self.play_cloud(up, &view).await {
                tracing::warn!(cluster = id, %error, "what the cloud shows is not in its cluster yet");
            }
        }
    }

    async fn play_cloud(&self, up: &mut Running, view: &ClusterView) -> Result<(), RealError> {
        let (api, moment) = (&up.control_plane.api, self.moment());
        if !up.nodes.current(view) {
            up.nodes.sync(api, view).await?;
        }
        load_balancers::sync(api, moment).await?;
        volumes::sync(api, view, moment).await
    }

    async fn end(&self, id: &str, cluster: &Cluster) {
        if let Some(mut up) = cluster.running.lock().await.take() {
            up.control_plane.processes.stop().await;
        }
        lock(&self.clusters).remove(id);
    }

    /// Ends every control plane, after the signal to stop was given.
    pub async fn stop(&self) {
        let clusters: Vec<_> = lock(&self.clusters).iter().map(|(id, cluster)| (id.clone(), cluster.clone())).collect();
        for (id, cluster) in clusters {
            self.end(&id, &cluster).await;
        }
        if !self.kept {
            remove_folder(&self.folder);
        }
    }

    /// Real time that an image's pull, a load balancer or a volume takes.
    fn moment(&self) -> Duration {
        match self.known.world.clock().speed() {
            Speed::Instant => Duration::ZERO,
            Speed::Times(times) => Duration::from_secs_f64(MOMENT_MS as f64 / 1000.0 / times),
        }
    }
}

/// Path and query as the API server knows them: without the prefix that tells the cluster.
fn target(head: &Parts) -> String {
    let path = head.uri.path();
    let rest = match path.strip_prefix("/clusters/") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => path,
    };
    match head.uri.query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    }
}

/// Whether an object is there for so long.
fn settled(object: &Value, moment: Duration) -> bool {
    let created = object["metadata"]["creationTimestamp"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    created.is_none_or(|created| {
        let age = jiff::Timestamp::now().as_millisecond() - created.as_millisecond();
        age >= i64::try_from(moment.as_millis()).unwrap_or(i64::MAX)
    })
}

fn remove_folder(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "data of a real control plane is left");
    }
}
