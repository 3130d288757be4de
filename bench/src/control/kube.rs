//! kube-apiserver with etcd: what tools that are made of custom resources store in. As usual: etcd syncs every write, TLS, a bearer
//! token, RBAC. In its favour: no TLS between it and etcd, no audit log, no controller that looks at what was created.

use crate::http::{self, Site};
use crate::process::{Process, free_port};
use anyhow::{Context, Result, bail};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const CRD: &str = include_str!("../../peer/crd.yaml");
const START_WAIT: Duration = Duration::from_secs(120);
const OBJECTS: &str = "/apis/civo.berth.dev/v1/namespaces/default/civokubernetesclusters";
const PAGE: usize = 5_000;
/// May do everything; only to set things up.
const ADMIN_TOKEN: &str = "bench-admin";
/// May do what its role says: creates go through RBAC as anyone's do.
const USER_TOKEN: &str = "bench-user";

pub struct Kube {
    pub site: Site,
    etcd: Process,
    server: Process,
}

impl Kube {
    pub async fn start(etcd: &Path, kube_apiserver: &Path, folder: &Path) -> Result<Self> {
        let (client_port, peer_port, port) = (free_port()?, free_port()?, free_port()?);
        let etcd_url = format!("http://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let mut command = Command::new(etcd);
        command
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--name", "bench", "--log-level", "error", "--quota-backend-bytes", "8589934592"])
            .args(["--listen-client-urls", &etcd_url, "--advertise-client-urls", &etcd_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("bench={peer_url}")]);
        let mut etcd = Process::start("etcd", command, folder)?;
        let plain = reqwest::Client::new();
        http::ready(&plain, &format!("{etcd_url}/health"), START_WAIT, || etcd.check()).await?;

        let tokens = folder.join("tokens.csv");
        std::fs::write(&tokens, format!("{ADMIN_TOKEN},admin,1,system:masters\n{USER_TOKEN},user,2,\n"))?;
        let key = folder.join("service-accounts.pem");
        let public = folder.join("service-accounts.pub");
        let pair_of_keys = rcgen::KeyPair::generate()?;
        std::fs::write(&key, pair_of_keys.serialize_pem())?;
        std::fs::write(&public, pair_of_keys.public_key_pem())?;
        let mut command = Command::new(kube_apiserver);
        command
            .args(["--etcd-servers", &etcd_url, "--bind-address", "127.0.0.1", "--secure-port", &port.to_string()])
            .args(["--advertise-address", "127.0.0.1", "--service-cluster-ip-range", "10.0.0.0/24"])
            .args(["--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc"])
            .args([pair("--cert-dir", &folder.join("certificates")), pair("--token-auth-file", &tokens)])
            .args([pair("--service-account-key-file", &public), pair("--service-account-signing-key-file", &key)]);
        let mut server = Process::start("kube-apiserver", command, folder)?;
        let client = http::client()?;
        let url = format!("https://127.0.0.1:{port}");
        http::ready(&client, &format!("{url}/readyz"), START_WAIT, || server.check().and_then(|()| etcd.check()))
            .await?;

        let admin = Site { url, token: ADMIN_TOKEN.into(), dialect: "kube", client };
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        admin.send(Method::POST, crds, Some(("application/yaml", CRD.to_owned()))).await?;
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        admin.post(&format!("{rbac}/clusterroles"), &role()).await?;
        admin.post(&format!("{rbac}/clusterrolebindings"), &binding()).await?;
        let site = Site { token: USER_TOKEN.into(), ..admin };
        let until = Instant::now() + START_WAIT;
        while let Err(error) = site.get(&format!("{OBJECTS}?limit=1")).await {
            if Instant::now() > until {
                return Err(error.context("the custom resource is not served"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let kube = Self { site, etcd, server };
        kube.proves_its_schema().await?;
        Ok(kube)
    }

    /// A wrong object is refused: what is measured includes validation.
    async fn proves_its_schema(&self) -> Result<()> {
        let wrong = json!({"apiVersion": "civo.berth.dev/v1", "kind": "CivoKubernetesCluster", "metadata": {"name": "wrong"},
            "spec": {"clusterName": "wrong", "region": "fra1", "kubernetesVersion": "1.30.5-k3s1", "network": {"value": "n"},
                "defaultNodePool": {"size": "g4s.kube.medium", "nodeCount": 0}}});
        match self.site.post(OBJECTS, &wrong).await {
            Err(error) if error.to_string().contains("nodeCount") => Ok(()),
            Err(error) => Err(error.context("a wrong object was refused for another reason than its mistake")),
            Ok(_) => bail!("kube-apiserver accepted an object with no nodes: its schema is not in force"),
        }
    }

    /// How many objects are stored, counted page by page.
    pub async fn count(&self) -> Result<u64> {
        let mut count = 0;
        let mut next = String::new();
        loop {
            let page: Value = self.site.get(&format!("{OBJECTS}?limit={PAGE}&continue={next}")).await?;
            count += page["items"].as_array().context("no items")?.len() as u64;
            next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                return Ok(count);
            }
        }
    }

    pub fn stop(self) -> Result<()> {
        self.server.stop()?;
        self.etcd.stop()
    }
}

fn pair(flag: &str, path: &Path) -> String {
    format!("{flag}={}", PathBuf::from(path).display())
}

fn role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "bench"},
        "rules": [{"apiGroups": ["civo.berth.dev"], "resources": ["civokubernetesclusters"], "verbs": ["create", "get", "list"]}]})
}

fn binding() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "user"}]})
}
