//! Secrets never rest or travel in the clear where servers and workers are: planted in manifests, in workers' environments
//! and files, and in what the cloud hands out, they are looked for in the database and its dump, in all logs at the highest
//! verbosity, in traces, in the audit log, in metrics, in tasks' folders while they run, and in backups.

use crate::postgres_server::{Postgres, dump};
use crate::support::folder::berth;
use crate::support::process::Process;
use crate::support::ran::{Ran, run};
use crate::support::search::{Search, Secret, kubeconfig_secrets};
use crate::support::server::https;
use crate::support::{LONGEST, free_port, until};
use crate::traces::Traces;
use berth_sandbox::{Config, Sandbox, Speed};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

const IN_MANIFEST: &str = "PLANTED-in-the-manifest-7e1f90c2b6";
const REPLACED: &str = "PLANTED-and-then-replaced-88ad31f0c7";
const IN_ENV: &str = "PLANTED-in-the-workers-env-44d1a90e77";
const IN_FILE: &str = "PLANTED-in-the-workers-file-0c7be2d915";
/// What workers have in their environment.
const OF_WORKERS: [(&str, &str); 2] = [("PLANTED_TOKEN", IN_ENV), ("CIVO_TOKEN", IN_ENV)];
const SHOP: &str = "CivoKubernetesCluster/shop";

struct World {
    folder: tempfile::TempDir,
    sandbox: Sandbox,
    traces: Traces,
    traces_url: String,
    search: Arc<RwLock<Search>>,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("berth-secrets-").tempdir().unwrap();
        for name in ["user", "server", "worker", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let sandbox = Sandbox::start(Config { speed: Speed::Times(300.0), ..Config::default() }).await.unwrap();
        let traces = Traces::default();
        let traces_url = traces.start().await;
        std::fs::write(folder.path().join("worker/cloud.token"), IN_FILE).unwrap();
        let planted = [
            ("the manifest's token", IN_MANIFEST),
            ("the token of before", REPLACED),
            ("the worker's variable", IN_ENV),
            ("the worker's file", IN_FILE),
        ];
        let secrets = planted.iter().map(|(name, text)| Secret::new(name, text)).collect();
        let known = ["user/all.yaml", "worker/cloud.token"].map(|name| folder.path().join(name)).to_vec();
        let search = Arc::new(RwLock::new(Search { secrets, known }));
        Self { folder, sandbox, traces, traces_url, search }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file that is made to hold a secret, and nothing else may.
    fn keep(&self, name: &str, path: &str, secret: &str) {
        let mut search = self.search.write().unwrap();
        search.known.push(self.path(path));
        search.secrets.push(Secret::new(name, secret));
    }

    fn command(&self, at: &str, args: &[&str]) -> Command {
        let mut command = berth(&self.path(at), args);
        command.env_remove("XDG_DATA_HOME").env("TMPDIR", self.path("tmp"));
        command.env("CIVO_API_URL", self.sandbox.url(berth_sandbox::civo::NAME));
        command.env("DIGITALOCEAN_API_URL", self.sandbox.url(berth_sandbox::digitalocean::NAME));
        command
    }

    /// Its log is a file, and so is looked at with all others.
    fn start(&self, at: &str, args: &[&str], env: &[(&str, &str)]) -> Process {
        let mut command = self.command(at, args);
        command.envs(env.iter().copied());
        Process::start(at, self.folder.path(), command)
    }

    fn log(&self, at: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{at}.log"))).unwrap_or_default()
    }

    /// Runs a command of the user's.
    #[track_caller]
    fn user(&self, args: &[&str]) -> Ran {
        run(&mut self.command("user", args))
    }

    fn looks_at(&self, ran: &Ran) {
        self.search.read().unwrap().text(&format!("the output of `{}`", ran.line), &ran.text());
    }

    /// One that must show no secret.
    #[track_caller]
    fn quiet(&self, args: &[&str], code: i32) -> String {
        let ran = self.user(args);
        self.looks_at(&ran);
        assert_eq!(ran.code, Some(code), "{ran}\n{}\n{}", self.log("server"), self.log("worker"));
        ran.stdout
    }

    /// A new key in the server's ring.
    fn new_key(&self, name: &str) -> String {
        let ran = run(&mut self.command("server", &["key", "new", "--key-file", "ring"])).ok();
        self.looks_at(&ran);
        let ring = std::fs::read_to_string(self.path("server/ring")).unwrap();
        let key = ring.split_whitespace().nth(1).unwrap().to_owned();
        self.keep(name, "server/ring", &key);
        key
    }

    /// The manifests, with this token in one of them.
    fn write(&self, text: &str) {
        let file = self.path("worker/cloud.token");
        let text = text.replace("fromFile: cloud.token", &format!("fromFile: {}", file.display()));
        std::fs::write(self.path("user/all.yaml"), text).unwrap();
    }
}

/// Looks at every file for as long as it lives: what is there only for a moment was there.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    fn over(folder: &Path, search: &Arc<RwLock<Search>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, folder, search) = (stop.clone(), folder.to_owned(), search.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                search.read().unwrap().files(&folder);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Self { stop, thread: Some(thread) }
    }

    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(panic)) = self.thread.take().map(std::thread::JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

fn manifests(token: &str) -> String {
    let account = |name: &str, token: &str| {
        format!(
            "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: {name}}}\n\
             spec: {{provider: civo, civo: {{token: {{{token}}}, region: fra1}}}}\n"
        )
    };
    let net = |name: &str| {
        format!(
            "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}}}\n\
             spec: {{networkName: {name}, region: fra1, account: {name}}}\n"
        )
    };
    let cluster = "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {name: shop}\nspec:\n  \
         clusterName: shop-k8s\n  region: fra1\n  kubernetesVersion: 1.30.5-k3s1\n  account: given\n  \
         network: {valueFrom: {name: given}}\n  defaultNodePool: {size: g4s.kube.medium, nodeCount: 1}\n";
    [
        account("given", &format!("value: {token}")),
        account("variable", "fromEnv: PLANTED_TOKEN"),
        account("file", "fromFile: cloud.token"),
        net("given"),
        net("variable"),
        net("file"),
        cluster.to_owned(),
    ]
    .join("---\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_left_by_a_server_on_sqlite() {
    nothing_is_left(None, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_left_by_a_server_with_its_worker_inside() {
    nothing_is_left(None, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_left_by_a_server_on_postgresql() {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await.unwrap();
    nothing_is_left(Some(postgres), false).await;
}

/// A server with a worker inside or beside it, and a user who is logged in to it.
struct Running {
    world: World,
    server: Process,
    worker: Option<Process>,
    url: String,
    /// The address of its database.
    db: String,
}

impl Running {
    async fn start(db: Option<String>, inside: bool) -> Self {
        let world = World::new().await;
        let listen = format!("127.0.0.1:{}", free_port());
        let url = format!("https://{listen}");
        let secret_file = world.path("worker/cloud.token");
        let of_workers = ["--allow-env", "PLANTED_TOKEN", "--allow-file", secret_file.to_str().unwrap()];
        let mut args =
            vec!["server", "-vvv", "--listen", &listen, "--folder", ".", "--otlp-endpoint", &world.traces_url];
        let mut env = vec![("BERTH_KEY_FILE", "ring")];
        if inside {
            args.extend(of_workers);
            env.extend(OF_WORKERS);
        } else {
            args.push("--no-worker");
        }
        env.extend(db.as_deref().map(|db| ("BERTH_DB", db)));
        world.new_key("the key");
        let server = world.start("server", &args, &env);
        world.log_in(&url);
        world.worker_token();
        let ca = world.path("server/ca.pem");
        let worker = (!inside).then(|| {
            let mut args = vec!["worker", "-vvv", "--server", &url, "--ca", ca.to_str().unwrap()];
            args.extend(["--token-file", "worker.token", "--name", "w1", "--work-dir", "tasks"]);
            args.extend(["--otlp-endpoint", &world.traces_url]);
            args.extend(of_workers);
            world.start("worker", &args, &OF_WORKERS)
        });
        let db = db.unwrap_or_else(|| format!("sqlite:{}", world.path("server/state.db").display()));
        Self { world, server, worker, url, db }
    }

    /// What the server's metrics say, and what its backups hold, as stored and as whoever may open them reads them.
    async fn metrics_and_backups(&self, key: &str) {
        let Self { world, url, db, .. } = self;
        let client = https(&world.path("server/ca.pem"));
        let metrics = client.get(format!("{url}/metrics")).send().await.unwrap().text().await.unwrap();
        assert!(metrics.contains("berth_"), "{metrics}");
        world.search.read().unwrap().text("/metrics", &metrics);

        let identity = age::x25519::Identity::generate();
        let public = identity.to_public().to_string();
        let mut backup = world.command("server", &["backup", "--out", "b.age", "--recipient", &public, "-vvv"]);
        run(backup.env("BERTH_DB", db).env("BERTH_KEY_FILE", "ring")).ok();
        let decryptor =
            age::Decryptor::new_buffered(std::io::BufReader::new(File::open(world.path("server/b.age")).unwrap()));
        let mut plain = String::new();
        decryptor.unwrap().decrypt(std::iter::once(&identity as _)).unwrap().read_to_string(&mut plain).unwrap();
        let (head, rows) = plain.split_once("{\"keyRing\":").expect("a line of keys");
        let (keys, rows) = rows.split_once('\n').unwrap();
        assert!(keys.contains(key), "the search would see what is there");
        world.search.read().unwrap().text("the lines of a backup", &format!("{head}{rows}"));
        assert!(rows.contains("sealed:v2:") && rows.contains("shop-k8s"));
    }

    /// Stops all of it, and looks through what is left: databases with their logs, logs of servers and workers, tasks'
    /// folders, traces.
    fn stop_and_search(mut self, watch: Watch, postgres: Option<&Postgres>) {
        let world = &self.world;
        for process in self.worker.iter().chain([&self.server]) {
            world.search.read().unwrap().text("a process's arguments", &process.cmdline());
        }
        for process in self.worker.iter_mut().chain([&mut self.server]) {
            assert!(process.stop(LONGEST), "{} does not stop", process.name);
        }
        watch.end();
        let search = world.search.read().unwrap();
        assert!(search.files(world.folder.path()) > 8);
        for process in self.worker.iter().chain([&self.server]) {
            assert!(process.log().lines().count() > 20, "the log of the {} is a log:\n{}", process.name, process.log());
        }
        let traces = world.traces.text();
        assert!(traces.contains("berth-server") && traces.contains("Resources.Apply"), "{traces:.2000}");
        assert!(
            (self.worker.is_none() || traces.contains("berth-worker")) && traces.contains("\"call\""),
            "calls to clouds are in the traces"
        );
        search.text("traces", &traces);
        if let Some(postgres) = postgres {
            let dump = dump(&postgres.url());
            assert!(dump.contains("shop-k8s") && dump.contains("sealed:v2:"));
            search.text("a dump of the database", &dump);
            assert!(search.files(postgres.folder()) > 100, "its own files are looked at, too");
        }
    }
}

impl World {
    fn token(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap().trim().to_owned()
    }

    fn log_in(&self, url: &str) {
        until("the server to start", || self.path("server/admin.token").exists());
        self.keep("the first token", "server/admin.token", &self.token("server/admin.token"));
        self.search.write().unwrap().known.push(self.path("user/.config/berth/config.yaml"));
        let (ca, admin) = (self.path("server/ca.pem"), self.path("server/admin.token"));
        let login = ["login", url, "--ca", ca.to_str().unwrap(), "--token-file", admin.to_str().unwrap()];
        until("the server to answer", || self.user(&login).code == Some(0));
    }

    /// A token is shown once, to whoever made it.
    fn worker_token(&self) {
        let made = self.user(&["token", "create", "workers", "--role", "worker", "-o", "json"]).ok().json();
        let token = made["secret"].as_str().unwrap_or_else(|| panic!("{made}"));
        std::fs::write(self.path("worker/worker.token"), token).unwrap();
        self.keep("the worker's token", "worker/worker.token", token);
    }

    /// What the cloud hands out must not be found either.
    async fn know_kubeconfig(&self) {
        let ledger = self.sandbox.world().ledger(berth_sandbox::civo::NAME);
        let objects = ledger["objects"].as_array().cloned().unwrap_or_default();
        let cluster = objects.iter().find(|o| o["type"] == "civo.cluster").expect("a cluster")["id"].clone();
        let url = self.sandbox.url(berth_sandbox::civo::NAME);
        let path = format!("{url}/v2/kubernetes/clusters/{}?region=FRA1", cluster.as_str().unwrap());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.get(path).header("authorization", "bearer outside").send().await.unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        let kubeconfig = answer["kubeconfig"].as_str().expect("a kubeconfig");
        self.search.write().unwrap().secrets.extend(kubeconfig_secrets(kubeconfig));
    }

    /// Everything that shows something, in all forms.
    fn look_at_everything(&self) {
        for format in ["table", "wide", "json", "yaml"] {
            self.quiet(&["get", "-o", format], 0);
            self.quiet(&["outputs", SHOP, "-o", format], 0);
            self.quiet(&["events", "-o", format], 0);
            self.quiet(&["tasks", "-o", format], 0);
        }
        for what in [SHOP, "Account/given", "Account/variable"] {
            self.quiet(&["describe", what], 0);
        }
        self.quiet(&["drift", "-vv"], 0);
        self.quiet(&["plan", "-f", "all.yaml", "-o", "json"], 0);
        // Asked for, it is given, and that it was is remembered.
        let given = self.user(&["kubeconfig", SHOP]).ok();
        let search = self.search.read().unwrap();
        assert!(search.secrets.iter().any(|secret| secret.found_in(given.stdout.as_bytes()).is_some()));
    }

    /// What goes wrong tells no secret either: a cloud that refuses, a manifest that is wrong.
    fn let_things_go_wrong(&self) {
        self.sandbox.world().faults().replace(vec!["POST 422".parse().unwrap()]);
        std::fs::write(
            self.path("user/more.yaml"),
            "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: more}\n\
             spec: {networkName: more, region: fra1, account: given}\n",
        )
        .unwrap();
        self.quiet(&["apply", "-f", "more.yaml", "--yes", "-vv", "--timeout", "20s"], 1);
        self.sandbox.world().faults().replace(Vec::new());
        self.write(&manifests(IN_MANIFEST).replace("provider: civo,", "provider: cvio,"));
        self.quiet(&["apply", "-f", "all.yaml", "--yes"], 1);
        self.write(&manifests(&format!("[{IN_MANIFEST}]")));
        self.quiet(&["apply", "-f", "all.yaml", "--yes", "-o", "json"], 1);
    }
}

async fn nothing_is_left(postgres: Option<Postgres>, inside: bool) {
    let running = Running::start(postgres.as_ref().map(Postgres::url), inside).await;
    let world = &running.world;
    let watch = Watch::over(world.folder.path(), &world.search);
    world.write(&manifests(REPLACED));
    world.quiet(&["plan", "-f", "all.yaml", "-vvv"], 0);
    world.quiet(&["apply", "-f", "all.yaml", "--yes", "-vvv"], 0);
    world.write(&manifests(IN_MANIFEST));
    world.quiet(&["apply", "-f", "all.yaml", "--yes", "-o", "json"], 0);
    world.know_kubeconfig().await;
    world.look_at_everything();
    world.let_things_go_wrong();

    // A new key, while all of it runs.
    let key = world.new_key("the new key");
    world.quiet(&["key", "rotate"], 0);
    let audit = world.quiet(&["audit", "list", "--limit", "500", "-o", "json"], 0);
    world.quiet(&["audit", "verify"], 0);
    assert!(audit.contains("rotate keys") && audit.contains("kubeconfig"), "{audit}");
    running.metrics_and_backups(&key).await;
    running.stop_and_search(watch, postgres.as_ref());
}
