//! `berth server`, the real binary, without a worker of its own: what is measured is the server.

use crate::http::{self, Site};
use crate::process::{Process, free_port};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const START_WAIT: Duration = Duration::from_secs(60);
const PAGE: usize = 1_000;

pub struct Server {
    /// With the right to apply in org `shop`, env `prod`, and nothing else.
    pub site: Site,
    pub admin: Site,
    /// From its start until it said that it is ready.
    pub started_in: Duration,
    process: Process,
    folder: PathBuf,
}

impl Server {
    pub async fn start(berth: &Path, database: &str, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let port = free_port()?;
        let mut command = Command::new(berth);
        command
            .current_dir(folder)
            // By the environment: an address may hold a password.
            .env("BERTH_DB", database)
            .env("BERTH_CONFIG", folder.join("no-contexts.yaml"))
            .args(["server", "--listen", &format!("127.0.0.1:{port}"), "--no-worker"])
            .args(["--requests-per-second", "0"]);
        let client = http::client()?;
        let url = format!("https://127.0.0.1:{port}");
        let begun = Instant::now();
        let mut process = Process::start("berth-server", command, folder)?;
        http::ready(&client, &format!("{url}/readyz"), START_WAIT, || process.check()).await?;
        let started_in = begun.elapsed();
        let secret = std::fs::read_to_string(folder.join("berth-server/admin.token")).context("no first token")?;
        let admin = Site { url, token: secret.trim().to_owned(), dialect: "berth", client };
        let token = token(&admin, "bench", "operator").await?;
        let site = Site { token, ..admin.clone() };
        Ok(Self { site, admin, started_in, process, folder: folder.to_owned() })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub async fn worker_token(&self) -> Result<String> {
        token(&self.admin, "bench-worker", "worker").await
    }

    /// The certificate that clients trust.
    pub fn authority(&self) -> Result<String> {
        std::fs::read_to_string(self.folder.join("berth-server/ca.pem")).context("no certificate")
    }

    /// One request for all the manifests.
    pub async fn apply(&self, manifests: &[String]) -> Result<()> {
        let text = manifests.join("---\n");
        self.site.post("/v1/resources", &json!({"files": [{"name": "bench.yaml", "text": text}]})).await?;
        Ok(())
    }

    /// How many resources are stored, counted page by page.
    pub async fn count(&self) -> Result<u64> {
        let mut count = 0;
        let mut next = String::new();
        loop {
            let page = self.site.get(&format!("/v1/resources?pageSize={PAGE}&pageToken={next}")).await?;
            count += page["resources"].as_array().map_or(0, Vec::len) as u64;
            next = page["nextPageToken"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                return Ok(count);
            }
        }
    }

    /// A wrong object is refused: what is measured includes validation.
    pub async fn proves_its_schema(&self) -> Result<()> {
        let text = fleet_manifest("wrong", "").replace("nodeCount: 3", "nodeCount: 0");
        match self.apply(&[text]).await {
            Err(error) if error.to_string().contains("nodeCount") => Ok(()),
            Err(error) => Err(error.context("a wrong object was refused for another reason than its mistake")),
            Ok(_) => anyhow::bail!("an object with no nodes was accepted"),
        }
    }

    pub fn stop(self) -> Result<()> {
        self.process.stop()
    }
}

async fn token(admin: &Site, name: &str, role: &str) -> Result<String> {
    let made: Value = admin.post("/v1/tokens", &json!({"name": name, "role": role})).await?;
    Ok(made["secret"].as_str().context("no token was made")?.to_owned())
}

/// A cluster as `create.lua` makes it, here as YAML.
pub fn fleet_manifest(name: &str, account: &str) -> String {
    let account = if account.is_empty() { String::new() } else { format!("  account: {account}\n") };
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata:\n  name: {name}\n  org: shop\n  env: prod\n  \
         labels: {{team: shop, tier: bench}}\n  annotations: {{note: \"made by the benchmark, to be forgotten\"}}\nspec:\n{account}  \
         clusterName: {name}\n  region: fra1\n  kubernetesVersion: 1.30.5-k3s1\n  network: 7c1f4a52-1b0e-4f0e-9a55-3f0c2a9d1e77\n  \
         defaultNodePool: {{size: g4s.kube.medium, nodeCount: 3}}\n  cni: cilium\n  tags: [web, bench]\n  \
         applications: [metrics-server]\n  additionalNodePools:\n    - {{name: batch, size: g4s.kube.large, nodeCount: 2, \
         autoScale: true, minNodes: 1, maxNodes: 5, labels: {{workload: batch}}, taints: [{{key: dedicated, value: batch, \
         effect: NoSchedule}}]}}\n"
    )
}
