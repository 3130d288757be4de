//! When a new cluster may be used: as soon as its API server answers and its nodes are ready, or, where the annotation
//! `berth.dev/ready-gate: cloud` says that Berth cannot reach the API server, as soon as the cloud calls it ready.

use crate::kube::Kubes;
use crate::props::text;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_engine::handler::{LowerInput, Outcome};
use berth_engine::unit::{Props, Readiness, WaitFor, Waiting};
use berth_model::annotations::READY_GATE;
use secrecy::{ExposeSecret, SecretString};

/// `cloud` where Berth cannot reach the API server; not compared.
const PROPERTY: &str = "ready_gate";
const CLOUD: &str = "cloud";
const API: &str = "api";
/// How many nodes a message names.
const NODES_NAMED: usize = 3;

/// Keeps the annotation with a unit. Validation has made sure that it is `api` or `cloud`; `api` is the default.
pub fn put(input: &LowerInput<'_>, props: &mut Props) {
    if input.metadata.annotations.get(READY_GATE).is_some_and(|gate| gate == CLOUD) {
        props.insert(PROPERTY.into(), CLOUD.into());
    }
}

/// Whether the cloud's word is enough: then Berth neither calls the API server nor drains nodes through it.
pub fn trusts_cloud(props: &Props) -> bool {
    text(props, PROPERTY) == CLOUD
}

/// What is missing until a cluster of so many nodes can be used. `output` is the name of the secret output that holds the
/// kubeconfig; an empty kubeconfig is one that the cloud has not written yet.
pub async fn readiness(
    kubes: &Kubes,
    kubeconfig: &SecretString,
    output: &str,
    props: &Props,
    nodes: u32,
) -> Outcome<Readiness> {
    let mut readiness = Readiness::default();
    let text = kubeconfig.expose_secret();
    if text.trim().is_empty() {
        readiness.waiting_for = Some("waiting for its kubeconfig".into());
        return Ok(readiness);
    }
    readiness.secrets.insert(output.to_owned(), encoded(kubeconfig));
    if trusts_cloud(props) {
        readiness.gate = Some(CLOUD.into());
    } else {
        readiness.gate = Some(API.into());
        readiness.waiting_for = waiting_for(kubes, text, nodes).await?;
    }
    Ok(readiness)
}

/// A kubeconfig as outputs hold it.
pub fn encoded(kubeconfig: &SecretString) -> SecretString {
    SecretString::from(STANDARD.encode(kubeconfig.expose_secret()))
}

async fn waiting_for(kubes: &Kubes, kubeconfig: &str, wanted: u32) -> Outcome<Option<Waiting>> {
    let kube = kubes.open(kubeconfig)?;
    if let Err(why) = kube.answers().await {
        let what = format!("waiting for the API server at {} to answer: {why}", kube.server());
        return Ok(Some(Waiting::on(WaitFor::Access, what)));
    }
    // The API server has answered, which is what counts: a user without permission to list nodes is not kept waiting.
    let Ok(nodes) = kube.nodes(None).await else { return Ok(None) };
    let ready = nodes.iter().filter(|node| node.ready).count();
    if ready >= wanted as usize {
        return Ok(None);
    }
    let unready = nodes.iter().filter(|node| !node.ready).map(|node| node.name.as_str());
    let names: Vec<&str> = unready.take(NODES_NAMED).collect();
    let which = if names.is_empty() { String::new() } else { format!(" (NotReady: {})", names.join(", ")) };
    Ok(Some(Waiting::on(WaitFor::Parts, format!("waiting for nodes: {ready} of {wanted} are Ready{which}"))))
}
