//! What Berth asks a DigitalOcean cluster's own API: to move work off a pool.

use super::client::Client;
use berth_engine::handler::Outcome;
use secrecy::ExposeSecret;
use std::time::Duration;

/// DigitalOcean puts the pool's id on each of its nodes.
const POOL_LABEL: &str = "doks.digitalocean.com/node-pool-id";
/// How long one call drains; the engine calls again while pods are left.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);
/// Keeps new pods off a pool's nodes and evicts those that run there.
pub async fn drain(client: &Client, cluster: &str, pool: &str) -> Outcome<()> {
    let kubeconfig = client.api.kubeconfig(cluster).await?;
    let kube = client.kubes.open(kubeconfig.expose_secret())?;
    let nodes = kube.nodes(Some(&format!("{POOL_LABEL}={pool}"))).await?;
    kube.drain(&nodes, DRAIN_LIMIT).await?.or_again(pool)
}
