//! What Berth asks a DigitalOcean cluster's own API: whether it answers, and to move work off a pool.

use super::api::Client;
use crate::kube::Drained;
use berth_engine::handler::{Class, Outcome, Trouble};
use berth_engine::unit::{WaitFor, Waiting};
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

/// DigitalOcean puts the pool's id on each of its nodes.
const POOL_LABEL: &str = "doks.digitalocean.com/node-pool-id";
/// So long in one go; the engine asks again, and can be interrupted in between.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);
/// How many pods are named in a message.
const PODS_NAMED: usize = 5;

/// What is missing until the cluster can be used: its API, or `nodes` that Kubernetes itself calls ready.
pub async fn waiting_for(client: &Client, kubeconfig: &SecretString, nodes: u32) -> Outcome<Option<Waiting>> {
    let kube = client.kubes.open(kubeconfig.expose_secret())?;
    if let Err(why) = kube.answers().await {
        let what = format!("waiting for the API server at {}: {why}", kube.server());
        return Ok(Some(Waiting::on(WaitFor::Access, what)));
    }
    // Who may not list nodes has still seen the API answer.
    let Ok(seen) = kube.nodes(None).await else { return Ok(None) };
    let ready = seen.iter().filter(|node| node.ready).count();
    let what = || format!("waiting for nodes: {ready} of {nodes} are Ready in Kubernetes");
    Ok((ready < nodes as usize).then(|| Waiting::on(WaitFor::Parts, what())))
}

/// Keeps new pods off a pool's nodes and evicts those that run there.
pub async fn drain(client: &Client, cluster: &str, pool: &str) -> Outcome<()> {
    let kubeconfig = client.kubeconfig(cluster).await?;
    let kube = client.kubes.open(kubeconfig.expose_secret())?;
    let nodes = kube.nodes(Some(&format!("{POOL_LABEL}={pool}"))).await?;
    match kube.drain(&nodes, DRAIN_LIMIT).await? {
        Drained::Done => Ok(()),
        Drained::Waiting { pods, held_back } => {
            let named = pods.iter().take(PODS_NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more =
                if pods.len() > PODS_NAMED { format!(" and {} more", pods.len() - PODS_NAMED) } else { String::new() };
            let trouble = Trouble::new(
                Class::Retry { after: None },
                format!("the nodes of pool {pool} are still running {named}{more}"),
            );
            Err(if held_back {
                trouble.help("a disruption budget holds pods back:   kubectl get poddisruptionbudgets --all-namespaces")
            } else {
                trouble.help("see what keeps them:   kubectl get pods --all-namespaces -o wide")
            })
        }
    }
}
