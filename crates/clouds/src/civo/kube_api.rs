//! What Berth asks a Civo cluster's own API: to move work off a pool.

use super::client::Client;
use super::pool_view::View;
use crate::kube::Node;
use berth_engine::handler::{Class, Outcome, Trouble};
use std::time::Duration;

/// Civo puts the pool's id on each of its nodes.
const POOL_LABEL: &str = "kubernetes.civo.com/civo-node-pool";
/// How long one call drains; the engine calls again while pods are left.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

/// Moves the work off a pool's nodes, once the nodes of the pool that takes its place are Ready.
pub async fn drain(
    client: &Client,
    region: &str,
    cluster: &str,
    old: Option<&View<'_>>,
    new: Option<&View<'_>>,
) -> Outcome<()> {
    let Some(old) = old else { return Ok(()) };
    let unreachable = |trouble: Trouble| {
        let message = format!("the nodes of pool {} cannot be drained: {trouble}", old.id);
        Trouble::new(trouble.class, message)
            .help("Berth moves the work to the new nodes before the old ones go, and needs the cluster's API for it")
            .help("check that the firewall lets this machine reach port 6443")
            .help("where Berth is not meant to reach it, set the annotation berth.dev/ready-gate: cloud: Civo then drains by itself")
    };
    let kubeconfig = client.api.kubeconfig(region, cluster).await?;
    let kube = client.kubes.open(&kubeconfig)?;
    let nodes = kube.nodes(None).await.map_err(unreachable)?;
    if let Some(new) = new {
        let fresh = nodes_of(&nodes, new);
        let ready = fresh.iter().filter(|node| node.ready).count();
        let wanted = new.wanted.unwrap_or(0) as usize;
        if ready < wanted {
            let what = format!("pool {} cannot take over yet: {ready} of {wanted} nodes are Ready", new.id);
            return Err(Trouble::new(Class::Retry { after: Some(Duration::from_secs(2)) }, what)
                .help("look at the nodes:   kubectl describe nodes"));
        }
    }
    kube.drain(&nodes_of(&nodes, old), DRAIN_LIMIT).await.map_err(unreachable)?.or_again(old.id)
}

/// The nodes of a pool: by Civo's label, or by the names of its instances.
fn nodes_of(nodes: &[Node], pool: &View<'_>) -> Vec<Node> {
    let belongs = |node: &&Node| {
        node.labels.get(POOL_LABEL).map(String::as_str) == Some(pool.id)
            || pool.instances.iter().any(|instance| instance.hostname == node.name)
    };
    nodes.iter().filter(belongs).cloned().collect()
}
