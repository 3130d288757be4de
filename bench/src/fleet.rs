//! Manifests to measure with.

use crate::measure::Bench;
use anyhow::Result;
use std::fmt::Write;

/// Clusters in one file: well under the size limit of a manifest file.
const PER_FILE: usize = 500;

/// A network, a firewall, a cluster and a pool.
pub fn four() -> String {
    let mut text = network("four");
    text.push_str(
        "---\napiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {name: four}\nspec:\n  name: four\n  \
         networkId: {valueFrom: {name: four}}\n  inboundRules:\n    - {protocol: tcp, portRange: \"6443\"}\n",
    );
    text.push_str(&cluster("four", "four"));
    text
}

fn network(name: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}}}\nspec: {{networkName: {name}, region: fra1}}\n"
    )
}

fn cluster(name: &str, network: &str) -> String {
    let mut text = String::new();
    _ = write!(
        text,
        "---\napiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {{name: {name}}}\nspec:\n  clusterName: {name}\n  \
         region: fra1\n  kubernetesVersion: 1.30.5-k3s1\n  network: {{valueFrom: {{name: {network}}}}}\n  \
         defaultNodePool: {{size: g4s.kube.medium, nodeCount: 3}}\n\
         ---\napiVersion: civo.berth.dev/v1\nkind: CivoKubernetesNodePool\nmetadata: {{name: {name}}}\nspec:\n  nodePoolName: work\n  \
         cluster: {{valueFrom: {{name: {name}}}}}\n  size: g4s.kube.medium\n  nodeCount: 2\n"
    );
    text
}

/// One network and so many clusters in it, each with a pool, in the folder `fleet`.
pub fn write(bench: &Bench, clusters: usize) -> Result<()> {
    bench.write("fleet/network.yaml", &network("fleet"))?;
    for first in (0..clusters).step_by(PER_FILE) {
        let text: String =
            (first..clusters.min(first + PER_FILE)).map(|i| cluster(&format!("c{i:05}"), "fleet")).collect();
        bench.write(&format!("fleet/clusters-{first:05}.yaml"), &text)?;
    }
    Ok(())
}
