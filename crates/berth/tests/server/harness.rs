//! Servers and workers as processes, a cloud inside the test, and a client.

use crate::postgres_server::Postgres;
use crate::support::KEY;
use crate::support::cloud::variables;
use crate::support::folder::berth;
use crate::support::free_port;
use crate::support::process::Process;
use crate::support::server::https;
use berth_sandbox::{Config, Rule, Sandbox};
use berth_server::client::{Client, Connection};
use berth_server::pb;
use secrecy::SecretString;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use crate::support::LONGEST;
pub use berth_sandbox::Speed;
pub use rustix::process::Signal;

/// What the simulated cloud takes as a token; must be found nowhere.
pub const CLOUD_TOKEN: &str = "civo-token-d41c9f27";
pub const START_WITHIN: Duration = Duration::from_secs(60);

pub struct Setup {
    pub servers: usize,
    pub workers: usize,
    pub postgres: bool,
    pub lease: &'static str,
    pub capacity: u32,
    pub cloud: Config,
    /// The servers have simulated clouds of their own.
    pub sandbox: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let cloud = Config { speed: Speed::Instant, token: Some(CLOUD_TOKEN.into()), ..Config::default() };
        Self { servers: 1, workers: 1, postgres: false, lease: "5s", capacity: 8, cloud, sandbox: false }
    }
}

/// A control plane with everything around it.
pub struct Plane {
    pub servers: Vec<Process>,
    pub workers: Vec<Process>,
    pub postgres: Option<Postgres>,
    pub urls: Vec<String>,
    pub sandbox: Sandbox,
    admin: SecretString,
    ca: PathBuf,
    capacity: u32,
    pub folder: tempfile::TempDir,
}

impl Plane {
    pub async fn start(setup: Setup) -> Self {
        let folder = tempfile::Builder::new().prefix("berth-plane-").tempdir().unwrap();
        let sandbox = Sandbox::start(setup.cloud).await.expect("the sandbox starts");
        let postgres = setup.postgres.then(Postgres::start);
        let mut plane = Self {
            servers: Vec::new(),
            workers: Vec::new(),
            postgres,
            urls: Vec::new(),
            sandbox,
            admin: SecretString::from(""),
            ca: folder.path().join("ca.pem"),
            capacity: setup.capacity,
            folder,
        };
        for number in 0..setup.servers {
            plane.add_server(number, setup.lease, setup.sandbox).await;
        }
        if setup.workers > 0 {
            plane.worker_token().await;
        }
        for number in 0..setup.workers {
            plane.add_worker(&format!("w{number}"), &[]);
        }
        plane
    }

    async fn add_server(&mut self, number: usize, lease: &str, sandbox: bool) {
        let (port, name) = (free_port(), format!("s{number}"));
        let listen = format!("127.0.0.1:{port}");
        let args = ["server", "--listen", &listen, "--folder", &name, "--no-worker", "--lease", lease];
        let mut command = berth(self.folder.path(), &args);
        if sandbox {
            command.args(["--sandbox", "--speed", "max"]);
        }
        if let Some(postgres) = &self.postgres {
            command.env("BERTH_DB", postgres.url());
        }
        command.env("BERTH_KEY", KEY);
        self.servers.push(Process::start(&name, self.folder.path(), command));
        self.urls.push(format!("https://127.0.0.1:{port}"));
        let own = self.folder.path().join(&name);
        let until = Instant::now() + START_WITHIN;
        loop {
            let ready = own.join("ca.pem").exists() && self.try_client(number).await.is_some();
            if ready && (number > 0 || own.join("admin.token").exists()) {
                break;
            }
            let log = self.servers[number].log();
            assert!(Instant::now() < until && self.servers[number].is_running(), "the server did not start: {log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if number == 0 {
            let token = std::fs::read_to_string(own.join("admin.token")).unwrap();
            self.admin = SecretString::from(token.trim().to_owned());
        }
        let mut all = String::new();
        for number in 0..=number {
            all += &std::fs::read_to_string(self.folder.path().join(format!("s{number}/ca.pem"))).unwrap();
        }
        std::fs::write(&self.ca, all).unwrap();
    }

    async fn try_client(&self, number: usize) -> Option<Client> {
        let ca = std::fs::read(self.folder.path().join(format!("s{number}/ca.pem"))).ok()?;
        let connection = Connection { ca: Some(ca), ..Connection::new(&self.urls[number], self.admin.clone()) };
        connection.connect().await.ok()
    }

    /// To one of the servers, as admin.
    pub async fn client(&self, number: usize) -> Client {
        let until = Instant::now() + START_WITHIN;
        loop {
            if let Some(client) = self.try_client(number).await {
                return client;
            }
            assert!(Instant::now() < until, "server {number} does not answer: {}", self.servers[number].log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub async fn client_as(&self, token: &str) -> Client {
        let ca = std::fs::read(&self.ca).unwrap();
        let token = SecretString::from(token.trim().to_owned());
        Connection { ca: Some(ca), ..Connection::new(&self.urls[0], token) }.connect().await.expect("a connection")
    }

    pub async fn worker_token(&self) {
        let request = pb::CreateTokenRequest {
            name: "workers".into(),
            role: "worker".into(),
            ..pb::CreateTokenRequest::default()
        };
        let made = self.client(0).await.access().create_token(request).await.expect("a token for workers").into_inner();
        std::fs::write(self.folder.path().join("worker.token"), made.secret).unwrap();
    }

    pub fn add_worker(&mut self, name: &str, more: &[&str]) {
        let urls = [self.sandbox.url(berth_sandbox::civo::NAME), self.sandbox.url(berth_sandbox::digitalocean::NAME)];
        self.add_worker_with(name, more, urls);
    }

    /// One whose own credentials are for other clouds.
    pub fn add_worker_for(&mut self, name: &str, cloud: &Sandbox) {
        self.add_worker_with(
            name,
            &[],
            [cloud.url(berth_sandbox::civo::NAME), cloud.url(berth_sandbox::digitalocean::NAME)],
        );
    }

    fn add_worker_with(&mut self, name: &str, more: &[&str], [civo_url, digitalocean_url]: [String; 2]) {
        let mut command = berth(self.folder.path(), &["worker", "-v", "--name", name]);
        // Each begins with another server.
        let count = self.urls.len();
        for at in 0..count {
            command.args(["--server", &self.urls[(at + self.workers.len()) % count]]);
        }
        command.args(["--token-file", "worker.token", "--work-dir", "work"]).arg("--ca").arg(&self.ca);
        command.args(["--capacity", &self.capacity.to_string()]).args(more);
        command.envs(variables(&civo_url, &digitalocean_url, [CLOUD_TOKEN; 2]));
        self.workers.push(Process::start(name, self.folder.path(), command));
    }

    /// An account whose token the worker has, fast enough for tests.
    pub async fn account(&self) {
        let text = format!(
            "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: civo}}\nspec:\n  provider: civo\n  \
             requestsPerSecond: 10000\n  civo: {{token: {{value: {CLOUD_TOKEN}}}, region: fra1}}\n"
        );
        self.apply(&text).await;
    }

    /// The same for DigitalOcean, named `digitalocean`.
    pub async fn digitalocean_account(&self) {
        let text = format!(
            "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: digitalocean}}\nspec:\n  provider: digitalocean\n  \
             requestsPerSecond: 10000\n  digitalocean: {{token: {{value: {CLOUD_TOKEN}}}}}\n"
        );
        self.apply(&text).await;
    }

    /// How many calls were refused and are still to be acted on.
    pub fn late(&self) -> u64 {
        let world = self.sandbox.world();
        world.traffic(berth_sandbox::civo::NAME).late() + world.traffic(berth_sandbox::digitalocean::NAME).late()
    }

    pub async fn apply(&self, text: &str) -> Vec<pb::Applied> {
        self.try_apply(0, text).await.unwrap_or_else(|status| panic!("{status}\n{}", self.told()))
    }

    pub async fn try_apply(&self, server: usize, text: &str) -> Result<Vec<pb::Applied>, tonic::Status> {
        let files = vec![pb::ManifestFile { name: "test.yaml".into(), text: text.into() }];
        let request = pb::ApplyRequest { files, allow_replace: true, allow_data_loss: true, ..Default::default() };
        let client = self.try_client(server).await.ok_or_else(|| tonic::Status::unavailable("no server"))?;
        Ok(client.resources().apply(request).await?.into_inner().resources)
    }

    pub async fn get(&self, kind: &str, name: &str, env: &str) -> Option<pb::Resource> {
        let request = pb::GetRequest { kind: kind.into(), name: name.into(), env: env.into(), org: String::new() };
        self.client(0).await.resources().get(request).await.ok().map(tonic::Response::into_inner)
    }

    pub async fn list(&self, server: usize) -> Result<Vec<pb::Resource>, tonic::Status> {
        let client = self.try_client(server).await.ok_or_else(|| tonic::Status::unavailable("no server"))?;
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = pb::ListRequest { page_size: 1000, page_token, ..pb::ListRequest::default() };
            let page = client.resources().list(request).await?.into_inner();
            all.extend(page.resources);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            page_token = page.next_page_token;
        }
    }

    pub async fn delete(&self, kind: &str, name: &str, env: &str, cascade: bool) -> Result<usize, tonic::Status> {
        let (kind, name, env) = (kind.into(), name.into(), env.into());
        let request = pb::DeleteRequest { kind, name, env, org: String::new(), cascade };
        Ok(self.client(0).await.resources().delete(request).await?.into_inner().deleting.len())
    }

    /// Waits until all resources are as they should be.
    pub async fn until(&self, what: &str, within: Duration, good: impl Fn(&[pb::Resource]) -> bool) {
        let until = Instant::now() + within;
        let mut seen = Vec::new();
        loop {
            for server in 0..self.urls.len() {
                if let Ok(all) = self.list(server).await {
                    seen = all;
                    break;
                }
            }
            if good(&seen) {
                return;
            }
            if Instant::now() >= until {
                let states: Vec<String> = seen
                    .iter()
                    .filter(|r| r.state != "Ready")
                    .map(|r| format!("{} {}: {} {}", kind(r), name(r), r.state, r.message))
                    .collect();
                let tasks = self.tasks(pb::ListTasksRequest::default()).await;
                let open: Vec<String> = tasks
                    .iter()
                    .filter(|t| t.state == "queued" || t.state == "running")
                    .map(|t| format!("{t:?}"))
                    .collect();
                panic!("not {what}:\n{}\nopen: {}\n{}", states.join("\n"), open.join("\n"), self.told());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub async fn until_ready(&self) {
        self.until("all Ready", LONGEST, |all| {
            !all.is_empty() && all.iter().all(|r| r.state == "Ready" && r.observed_generation == r.generation)
        })
        .await;
    }

    pub async fn tasks(&self, request: pb::ListTasksRequest) -> Vec<pb::Task> {
        let request = pb::ListTasksRequest { page_size: 1000, ..request };
        self.client(0).await.tasks().list(request).await.map(|r| r.into_inner().tasks).unwrap_or_default()
    }

    pub fn faults(&self, rules: &[&str]) {
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        self.sandbox.world().faults().replace(rules);
    }

    /// Live objects of a type, without the cloud's own.
    pub fn objects(&self, kind: &str) -> Vec<Value> {
        let cloud =
            if kind.starts_with("civo.") { berth_sandbox::civo::NAME } else { berth_sandbox::digitalocean::NAME };
        let ledger = self.sandbox.world().ledger(cloud);
        let objects = ledger["objects"].as_array().cloned().unwrap_or_default();
        objects.into_iter().filter(|o| o["type"] == kind && o["default"] != true && o["auto"] != true).collect()
    }

    pub fn names(&self, kind: &str) -> Vec<String> {
        let name = |o: &Value| o["name"].as_str().unwrap_or_default().to_owned();
        let mut names: Vec<String> = self.objects(kind).iter().map(name).collect();
        names.sort();
        names
    }

    /// How many of a type were ever made.
    pub fn made(&self, kind: &str) -> i64 {
        self.sandbox.world().ledger(berth_sandbox::civo::NAME)["totals"][kind]["created"].as_i64().unwrap_or(0)
    }

    /// For messages: the ends of all logs.
    pub fn told(&self) -> String {
        self.servers.iter().chain(&self.workers).map(Process::told).collect()
    }

    /// One of Prometheus' counters, over all servers.
    pub async fn counter(&self, name: &str) -> f64 {
        let mut total = 0.0;
        for server in 0..self.urls.len() {
            total += self.counter_of(server, name).await;
        }
        total
    }

    /// Of one server; zero when it does not answer.
    pub async fn counter_of(&self, server: usize, name: &str) -> f64 {
        let client = https(&self.folder.path().join(format!("s{server}/ca.pem")));
        let Ok(answer) = client.get(format!("{}/metrics", self.urls[server])).send().await else { return 0.0 };
        let text = answer.text().await.unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        value.unwrap_or(0.0)
    }
}

pub fn name(resource: &pb::Resource) -> &str {
    resource.id.as_ref().map_or("", |id| &id.name)
}

pub fn kind(resource: &pb::Resource) -> &str {
    resource.id.as_ref().map_or("", |id| &id.kind)
}

/// A network, and a firewall in it.
pub fn pair(number: usize, label: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net-{number}}}\nspec: {{networkName: net-{number}, \
         region: fra1, account: civo}}\n---\n\
         apiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {{name: fw-{number}}}\nspec:\n  name: fw-{number}\n  \
         account: civo\n  networkId: {{valueFrom: {{name: net-{number}}}}}\n  inboundRules:\n    - {{protocol: tcp, \
         portRange: \"443\", label: {label}}}\n"
    )
}
