//! A shop's manifests.

use crate::support::folder::Folder;

pub const NET: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoVpc
metadata:
  name: shop-net
spec:
  networkName: shop-net
  region: fra1
";

pub const CLUSTER: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoKubernetesCluster
metadata:
  name: shop
spec:
  clusterName: shop-k8s
  region: fra1
  kubernetesVersion: 1.30.5-k3s1
  network: {valueFrom: {name: shop-net}}
  firewall: {valueFrom: {name: shop-fw}}
  defaultNodePool:
    size: g4s.kube.medium
    nodeCount: 3
";

pub const FIREWALL: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoFirewall
metadata:
  name: shop-fw
spec:
  name: shop-fw
  networkId: {valueFrom: {name: shop-net}}
  inboundRules:
    - {protocol: tcp, portRange: \"443\", action: allow, label: https}
";

pub const POOL: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoKubernetesNodePool
metadata:
  name: shop-batch
spec:
  nodePoolName: batch
  cluster: {valueFrom: {name: shop}}
  size: g4s.kube.large
  nodeCount: 2
";

/// A network, a firewall, a cluster and a pool in a folder.
pub fn shop() -> Folder {
    Folder::with(&[
        ("shop/net.yaml", NET),
        ("shop/firewall.yaml", FIREWALL),
        ("shop/cluster.yaml", CLUSTER),
        ("shop/pool.yaml", POOL),
    ])
}
