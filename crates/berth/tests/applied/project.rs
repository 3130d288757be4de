//! A folder with manifests, clouds of its own, and what berth answered.

use berth_sandbox::{Config, Sandbox, Speed};
use regex::Regex;
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tokio::runtime::Runtime;

const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

pub struct Project {
    dir: tempfile::TempDir,
    runtime: Runtime,
    sandbox: Sandbox,
    http: reqwest::Client,
}

pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    dir: PathBuf,
}

impl Project {
    /// Where provisioning takes no time.
    pub fn new(files: &[(&str, &str)]) -> Self {
        Self::at(Speed::Instant, files)
    }

    pub fn at(speed: Speed, files: &[(&str, &str)]) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
        let sandbox = runtime.block_on(Sandbox::start(Config { speed, ..Config::default() })).expect("clouds");
        let dir = tempfile::tempdir().expect("a folder");
        let project = Self { dir, runtime, sandbox, http: reqwest::Client::new() };
        for (name, text) in files {
            project.write(name, text);
        }
        project
    }

    /// With everything in it applied.
    pub fn applied(files: &[(&str, &str)]) -> Self {
        let project = Self::new(files);
        project.berth(&["apply", "-f", ".", "--yes"]).is(0);
        project
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("a readable file")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command.args(args).current_dir(self.path()).env_clear().stdin(Stdio::null());
        command.env("HOME", self.path()).env("BERTH_KEY", KEY).env("BERTH_STATE", ".berth/state.db");
        command.env("CIVO_TOKEN", "token").env("CIVO_API_URL", self.sandbox.url(berth_sandbox::civo::NAME));
        command
            .env("DIGITALOCEAN_ACCESS_TOKEN", "token")
            .env("DIGITALOCEAN_API_URL", self.sandbox.url(berth_sandbox::digitalocean::NAME));
        command
    }

    pub fn berth(&self, args: &[&str]) -> Run {
        Run::from_output(self.command(args).output().expect("berth runs"), self.path())
    }

    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.berth(args).is(0).stdout).expect("JSON")
    }

    /// An output of a resource, as a shell reads it.
    pub fn output(&self, resource: &str, name: &str) -> String {
        self.berth(&["outputs", resource, name]).is(0).stdout.trim().to_owned()
    }

    /// One call to Civo's own API, as another tool would make it.
    pub fn civo(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let url = format!("{}/v2/{path}?region=FRA1", self.sandbox.url(berth_sandbox::civo::NAME));
        self.call(method, &url, body)
    }

    pub fn digitalocean(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let url = format!("{}/v2/{path}", self.sandbox.url(berth_sandbox::digitalocean::NAME));
        self.call(method, &url, body)
    }

    fn call(&self, method: &str, url: &str, body: Option<Value>) -> Value {
        self.runtime.block_on(async {
            let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
            let mut request = self.http.request(method, url).bearer_auth("token");
            if let Some(body) = body {
                request = request.json(&body);
            }
            let answer = request.send().await.expect("an answer");
            let status = answer.status();
            let text = answer.text().await.expect("a body");
            assert!(status.is_success(), "{url}: {status}: {text}");
            serde_json::from_str(&text).unwrap_or(Value::Null)
        })
    }

    /// Scales a cluster's default pool by hand.
    pub fn scale(&self, cluster: &str, count: u32) {
        let shown = self.civo("GET", &format!("kubernetes/clusters/{cluster}"), None);
        let pool = shown["pools"][0]["id"].as_str().expect("a pool").to_owned();
        let body = json!({"count": count, "region": "FRA1"});
        self.civo("PUT", &format!("kubernetes/clusters/{cluster}/pools/{pool}"), Some(body));
    }
}

impl Run {
    pub fn from_output(output: Output, dir: &Path) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
            dir: dir.to_owned(),
        }
    }

    #[track_caller]
    pub fn is(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }
}

/// What was printed, with ids, times and ports as words.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.map_or("killed".to_owned(), |code| code.to_string());
        let text = format!("exit {code}\n----- stdout\n{}----- stderr\n{}", self.stdout, self.stderr);
        f.write_str(&clean(&text.replace(&self.dir.display().to_string(), "[DIR]")))
    }
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

/// Compares what was printed with the snapshot of that name.
#[macro_export]
macro_rules! shows {
    ($name:expr, $run:expr) => {
        insta::with_settings!({snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!($name, $run.to_string());
        })
    };
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
