//! Secrets never rest or travel in the clear where servers and workers are: planted in manifests, in workers' environments
//! and files, and in what the cloud hands out, they are looked for in the database and its dump, in all logs at the highest
//! verbosity, in traces, in the audit log, in metrics, in tasks' folders while they run, and in backups.

use crate::postgres::Postgres;
use crate::search::{Search, Secret, kubeconfig_secrets};
use crate::traces::Traces;
use berth_sandbox::{Config, Sandbox, Speed};
use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

const IN_MANIFEST: &str = "PLANTED-in-the-manifest-7e1f90c2b6";
const REPLACED: &str = "PLANTED-and-then-replaced-88ad31f0c7";
const IN_ENV: &str = "PLANTED-in-the-workers-env-44d1a90e77";
const IN_FILE: &str = "PLANTED-in-the-workers-file-0c7be2d915";
/// What workers have in their environment.
const OF_WORKERS: [(&str, &str); 2] = [("PLANTED_TOKEN", IN_ENV), ("CIVO_TOKEN", IN_ENV)];
const WITHIN: Duration = Duration::from_secs(90);

struct Process(Child);

impl Process {
    fn cmdline(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/cmdline", self.0.id())).unwrap_or_default()
    }

    /// As a service manager does.
    fn stop(mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()));
        let until = Instant::now() + WITHIN;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command.args(args).current_dir(self.path(at)).env_clear();
        command.env("PATH", "/nonexistent").env("HOME", self.path(at)).env("TMPDIR", self.path("tmp"));
        command.env("CIVO_API_URL", self.sandbox.url(berth_sandbox::civo::NAME));
        command.env("DIGITALOCEAN_API_URL", self.sandbox.url(berth_sandbox::digitalocean::NAME));
        command.stdin(Stdio::null());
        command
    }

    /// Its log is a file, and so is looked at with all others.
    fn start(&self, at: &str, args: &[&str], env: &[(&str, &str)]) -> Process {
        let log = File::create(self.path(&format!("{at}.log"))).unwrap();
        let mut command = self.command(at, args);
        command.envs(env.iter().copied()).stdout(log.try_clone().unwrap()).stderr(log);
        Process(command.spawn().expect("berth starts"))
    }

    fn log(&self, at: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{at}.log"))).unwrap_or_default()
    }

    /// Runs a command of the user's, and gives what it printed.
    #[track_caller]
    fn user(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.command("user", args).output().expect("berth runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// One that must show no secret.
    #[track_caller]
    fn quiet(&self, args: &[&str], code: i32) -> String {
        let (exit, stdout, stderr) = self.user(args);
        self.search.read().unwrap().text(&format!("the output of `{}`", args.join(" ")), &format!("{stdout}{stderr}"));
        let logs = || format!("{}\n{}", self.log("server"), self.log("worker"));
        assert_eq!(exit, code, "`berth {}`: {stdout}{stderr}\n{}", args.join(" "), logs());
        stdout
    }

    async fn until(&self, what: &str, ready: impl Fn() -> bool) {
        let until = Instant::now() + WITHIN;
        while !ready() {
            assert!(Instant::now() < until, "{what}:\n{}\n{}", self.log("server"), self.log("worker"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
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

async fn nothing_is_left(postgres: Option<Postgres>, inside: bool) {
    let world = World::new().await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let url = format!("https://{listen}");
    let secret_file = world.path("worker/cloud.token");
    let db = postgres.as_ref().map(Postgres::url);
    let mut args = vec!["server", "-vvv", "--listen", &listen, "--folder", ".", "--otlp-endpoint", &world.traces_url];
    let mut env = vec![("BERTH_KEY_FILE", "ring")];
    let of_workers = ["--allow-env", "PLANTED_TOKEN", "--allow-file", secret_file.to_str().unwrap()];
    if inside {
        args.extend(of_workers);
        env.extend(OF_WORKERS);
    } else {
        args.push("--no-worker");
    }
    if let Some(db) = &db {
        env.push(("BERTH_DB", db));
    }
    world.quiet_at("server", &["key", "new", "--key-file", "ring"]);
    let ring = std::fs::read_to_string(world.path("server/ring")).unwrap();
    world.keep("the key", "server/ring", ring.split_whitespace().nth(1).unwrap());
    let server = world.start("server", &args, &env);
    world.until("the server starts", || world.path("server/admin.token").exists()).await;
    let token_of = |path: &str| std::fs::read_to_string(world.path(path)).unwrap().trim().to_owned();
    world.keep("the first token", "server/admin.token", &token_of("server/admin.token"));
    world.search.write().unwrap().known.push(world.path("user/.config/berth/config.yaml"));
    let ca = world.path("server/ca.pem");
    let (ca, admin) = (ca.to_str().unwrap().to_owned(), world.path("server/admin.token"));
    let until = Instant::now() + WITHIN;
    while world.user(&["login", &url, "--ca", &ca, "--token-file", admin.to_str().unwrap()]).0 != 0 {
        assert!(Instant::now() < until, "{}", world.log("server"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // A token is shown once, to whoever made it.
    let (code, stdout, stderr) = world.user(&["token", "create", "workers", "--role", "worker", "-o", "json"]);
    assert_eq!(code, 0, "{stderr}");
    let made: serde_json::Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}"));
    let worker_token = made["secret"].as_str().unwrap_or_else(|| panic!("{stdout}")).to_owned();
    std::fs::write(world.path("worker/worker.token"), &worker_token).unwrap();
    world.keep("the worker's token", "worker/worker.token", &worker_token);
    let worker = (!inside).then(|| {
        let mut args =
            vec!["worker", "-vvv", "--server", &url, "--ca", &ca, "--token-file", "worker.token", "--name", "w1"];
        args.extend(["--otlp-endpoint", &world.traces_url, "--work-dir", "tasks"]);
        args.extend(of_workers);
        world.start("worker", &args, &OF_WORKERS)
    });
    let watch = Watch::over(world.folder.path(), &world.search);

    let write = |text: &str| {
        let text = text.replace("fromFile: cloud.token", &format!("fromFile: {}", secret_file.display()));
        std::fs::write(world.path("user/all.yaml"), text).unwrap();
    };
    write(&manifests(REPLACED));
    world.quiet(&["plan", "-f", "all.yaml", "-vvv"], 0);
    world.quiet(&["apply", "-f", "all.yaml", "--yes", "-vvv"], 0);
    write(&manifests(IN_MANIFEST));
    world.quiet(&["apply", "-f", "all.yaml", "--yes", "-o", "json"], 0);
    let kubeconfig = {
        let ledger = world.sandbox.world().ledger(berth_sandbox::civo::NAME);
        let objects = ledger["objects"].as_array().cloned().unwrap_or_default();
        let cluster = objects.iter().find(|o| o["type"] == "civo.cluster").expect("a cluster")["id"].clone();
        let path = format!(
            "{}/v2/kubernetes/clusters/{}?region=FRA1",
            world.sandbox.url(berth_sandbox::civo::NAME),
            cluster.as_str().unwrap()
        );
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.get(path).header("authorization", "bearer outside").send().await.unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        answer["kubeconfig"].as_str().expect("a kubeconfig").to_owned()
    };
    world.search.write().unwrap().secrets.extend(kubeconfig_secrets(&kubeconfig));

    let shop = "CivoKubernetesCluster/shop";
    for format in ["table", "wide", "json", "yaml"] {
        world.quiet(&["get", "-o", format], 0);
        world.quiet(&["outputs", shop, "-o", format], 0);
        world.quiet(&["events", "-o", format], 0);
        world.quiet(&["tasks", "-o", format], 0);
    }
    for what in [shop, "Account/given", "Account/variable"] {
        world.quiet(&["describe", what], 0);
    }
    world.quiet(&["drift", "-vv"], 0);
    world.quiet(&["plan", "-f", "all.yaml", "-o", "json"], 0);
    // Asked for, it is given, and that it was is remembered.
    let (code, given, stderr) = world.user(&["kubeconfig", shop]);
    assert_eq!(code, 0, "{stderr}");
    assert!(world.search.read().unwrap().secrets.iter().any(|secret| secret.found_in(given.as_bytes()).is_some()));
    // What goes wrong tells no secret either: a cloud that refuses, a manifest that is wrong.
    world.sandbox.world().faults().replace(vec!["POST 422".parse().unwrap()]);
    std::fs::write(
        world.path("user/more.yaml"),
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: more}\n\
         spec: {networkName: more, region: fra1, account: given}\n",
    )
    .unwrap();
    world.quiet(&["apply", "-f", "more.yaml", "--yes", "-vv", "--timeout", "20s"], 1);
    world.sandbox.world().faults().replace(Vec::new());
    write(&manifests(IN_MANIFEST).replace("provider: civo,", "provider: cvio,"));
    world.quiet(&["apply", "-f", "all.yaml", "--yes"], 1);
    write(&manifests(&format!("[{IN_MANIFEST}]")));
    world.quiet(&["apply", "-f", "all.yaml", "--yes", "-o", "json"], 1);

    // A new key, while all of it runs.
    let (code, _, stderr) = world.at("server", &["key", "new", "--key-file", "ring"]);
    assert_eq!(code, 0, "{stderr}");
    let ring = std::fs::read_to_string(world.path("server/ring")).unwrap();
    world.keep("the new key", "server/ring", ring.split_whitespace().nth(1).unwrap());
    world.quiet(&["key", "rotate"], 0);
    let audit = world.quiet(&["audit", "list", "--limit", "500", "-o", "json"], 0);
    world.quiet(&["audit", "verify"], 0);
    assert!(audit.contains("rotate keys") && audit.contains("kubeconfig"), "{audit}");

    let metrics = {
        let ca = reqwest::Certificate::from_pem(&std::fs::read(&ca).unwrap()).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build().unwrap();
        client.get(format!("{url}/metrics")).send().await.unwrap().text().await.unwrap()
    };
    assert!(metrics.contains("berth_"), "{metrics}");
    world.search.read().unwrap().text("/metrics", &metrics);

    // A backup, as it is stored, and as whoever may open it reads it.
    let identity = age::x25519::Identity::generate();
    let state = format!("sqlite:{}", world.path("server/state.db").display());
    let db = db.unwrap_or(state);
    let public = identity.to_public().to_string();
    let mut backup = world.command("server", &["backup", "--out", "b.age", "--recipient", &public, "-vvv"]);
    let output = backup.env("BERTH_DB", &db).env("BERTH_KEY_FILE", "ring").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let decryptor =
        age::Decryptor::new_buffered(std::io::BufReader::new(File::open(world.path("server/b.age")).unwrap()));
    let mut plain = String::new();
    decryptor.unwrap().decrypt(std::iter::once(&identity as _)).unwrap().read_to_string(&mut plain).unwrap();
    let (head, rows) = plain.split_once("{\"keyRing\":").expect("a line of keys");
    let (keys, rows) = rows.split_once('\n').unwrap();
    assert!(keys.contains(ring.split_whitespace().nth(1).unwrap()), "the search would see what is there");
    world.search.read().unwrap().text("the lines of a backup", &format!("{head}{rows}"));
    assert!(rows.contains("sealed:v2:") && rows.contains("shop-k8s"));

    for process in worker.iter().chain([&server]) {
        world.search.read().unwrap().text("a process's arguments", &process.cmdline());
    }
    let logs = if inside { &["server"][..] } else { &["server", "worker"] };
    worker.into_iter().for_each(Process::stop);
    server.stop();
    watch.end();
    // Everything that is left: databases with their logs, logs of servers and workers, tasks' folders.
    let search = world.search.read().unwrap();
    assert!(search.files(world.folder.path()) > 8);
    for at in logs {
        assert!(world.log(at).lines().count() > 20, "the log of the {at} is a log:\n{}", world.log(at));
    }
    let traces = world.traces.text();
    assert!(traces.contains("berth-server") && traces.contains("Resources.Apply"), "{traces:.2000}");
    assert!(
        (inside || traces.contains("berth-worker")) && traces.contains("\"call\""),
        "calls to clouds are in the traces"
    );
    search.text("traces", &traces);
    if let Some(postgres) = &postgres {
        let dump = postgres.dump();
        assert!(dump.contains("shop-k8s") && dump.contains("sealed:v2:"));
        search.text("a dump of the database", &dump);
        assert!(search.files(postgres.folder()) > 100, "its own files are looked at, too");
    }
}

impl World {
    fn at(&self, at: &str, args: &[&str]) -> (i32, String, String) {
        let output = self.command(at, args).output().expect("berth runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn quiet_at(&self, at: &str, args: &[&str]) {
        let (code, stdout, stderr) = self.at(at, args);
        self.search.read().unwrap().text(&args.join(" "), &format!("{stdout}{stderr}"));
        assert_eq!(code, 0, "{stderr}");
    }
}
