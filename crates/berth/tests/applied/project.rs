//! A folder with manifests and clouds of its own, and what berth printed without what differs from run to run.

use crate::support::KEY;
use crate::support::cloud::Cloud;
use crate::support::folder::Folder;
use crate::support::ran::Ran;
use berth_sandbox::{Config, Speed};
use regex::Regex;
use serde_json::{Value, json};
use std::ops::Deref;

pub struct Project {
    folder: Folder,
    pub cloud: Cloud,
}

impl Deref for Project {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.folder
    }
}

impl Project {
    /// Where provisioning takes no time.
    pub fn new(files: &[(&str, &str)]) -> Self {
        Self::at(Speed::Instant, files)
    }

    pub fn at(speed: Speed, files: &[(&str, &str)]) -> Self {
        let cloud = Cloud::start(Config { speed, ..Config::default() });
        let folder = Folder::with(files).and_env("BERTH_KEY", KEY).and_env("BERTH_STATE", ".berth/state.db");
        let folder = cloud.variables().iter().fold(folder, |folder, (name, value)| folder.and_env(name, value));
        Self { folder, cloud }
    }

    /// With everything in it applied.
    pub fn applied(files: &[(&str, &str)]) -> Self {
        let project = Self::new(files);
        project.berth(&["apply", "-f", ".", "--yes"]).ok();
        project
    }

    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        self.berth(args).ok().json()
    }

    /// An output of a resource, as a shell reads it.
    pub fn output(&self, resource: &str, name: &str) -> String {
        self.berth(&["outputs", resource, name]).ok().stdout.trim().to_owned()
    }

    /// One call to Civo's own API, as another tool would make it.
    pub fn civo(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        self.cloud.call(berth_sandbox::civo::NAME, method, &format!("/v2/{path}?region=FRA1"), body)
    }

    pub fn digitalocean(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        self.cloud.call(berth_sandbox::digitalocean::NAME, method, &format!("/v2/{path}"), body)
    }

    /// Scales a cluster's default pool by hand.
    pub fn scale(&self, cluster: &str, count: u32) {
        let shown = self.civo("GET", &format!("kubernetes/clusters/{cluster}"), None);
        let pool = shown["pools"][0]["id"].as_str().expect("a pool").to_owned();
        let body = json!({"count": count, "region": "FRA1"});
        self.civo("PUT", &format!("kubernetes/clusters/{cluster}/pools/{pool}"), Some(body));
    }
}

/// What a command printed, with ids, times and ports as words.
pub fn shown(ran: &Ran) -> String {
    clean(&ran.printed())
}

pub fn clean(text: &str) -> String {
    let filters = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(/[a-z0-9-]+)?", "[ID]"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[TIME]"),
        (r"\(\d+[smh] ago\)", "([AGE] ago)"),
        (r"https://127\.0\.0\.1:\d+\S*", "[ENDPOINT]"),
        (r"in \d+\.\d s\b", "in [TOOK]"),
        (r"in \d+s\b", "in [TOOK]"),
        (r"\b\d+ms\b", "[TOOK]"),
        (r"\d+ API calls?", "[N] API calls"),
        (r" {2}\d+s {2}", "  [AGE]  "),
    ];
    let mut text = text.to_owned();
    for (pattern, word) in filters {
        text = Regex::new(pattern).expect("a pattern").replace_all(&text, word).into_owned();
    }
    // Columns are as wide as ids and times were; a diff is not in columns.
    let columns = Regex::new(r"(\]|[^\n ]) {2,}").expect("a pattern");
    let mut out = String::new();
    for line in text.lines() {
        let is_diff = line.starts_with(['+', '-']);
        out.push_str(&if is_diff { line.into() } else { columns.replace_all(line, "$1  ") });
        out.push('\n');
    }
    out
}

pub const SHOP: &str = "\
# The shop.
apiVersion: civo.berth.dev/v1
kind: CivoVpc
metadata:
  name: shop-net
  labels: {team: shop}
spec:
  networkName: shop-net
  region: fra1
---
apiVersion: civo.berth.dev/v1
kind: CivoKubernetesCluster
metadata:
  name: shop
  labels: {team: shop, tier: web}
spec:
  clusterName: shop-k8s
  region: fra1
  kubernetesVersion: 1.30.5-k3s1 # tested with the shop
  network: {valueFrom: {name: shop-net}}
  defaultNodePool:
    size: g4s.kube.medium
    nodeCount: 3 # one for each zone
  additionalNodePools:
    - name: gpu
      size: g4s.kube.large
      nodeCount: 1
---
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

pub const BLOG: &str = "\
apiVersion: digitalocean.berth.dev/v1
kind: DigitalOceanVpc
metadata: {name: blog-net, env: staging}
spec: {region: fra1}
---
apiVersion: digitalocean.berth.dev/v1
kind: DigitalOceanKubernetesCluster
metadata: {name: blog, env: staging}
spec:
  clusterName: blog-k8s
  region: fra1
  kubernetesVersion: 1.33.1-do.0
  vpc: {valueFrom: {name: blog-net}}
  defaultNodePool: {size: s-2vcpu-4gb, nodeCount: 2}
";
