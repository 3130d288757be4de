//! A simulated cloud inside the test, a folder to run berth in, and what it answered.

use berth_sandbox::{CloudName, Config, Rule, Sandbox, Speed};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A state key for all tests; 32 bytes in hex.
pub const KEY: &str = "5f4dcc3b5aa765d61d8327deb882cf995f4dcc3b5aa765d61d8327deb882cf99";
/// No command of these tests takes longer; one that does hangs.
pub const LONGEST: Duration = Duration::from_secs(150);

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    })
}

pub fn wait_for<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

fn http() -> &'static reqwest::Client {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("an HTTP client")
    })
}

/// Both simulated clouds.
pub struct Cloud {
    sandbox: Option<Sandbox>,
    pub civo_url: String,
    pub digitalocean_url: String,
}

impl Cloud {
    /// Where provisioning takes no time.
    pub fn instant() -> Self {
        Self::start(Config { speed: Speed::Instant, ..Config::default() })
    }

    pub fn start(config: Config) -> Self {
        let sandbox = runtime().block_on(Sandbox::start(config)).expect("the sandbox starts");
        let (civo_url, digitalocean_url) =
            (sandbox.url(berth_sandbox::civo::NAME), sandbox.url(berth_sandbox::digitalocean::NAME));
        Self { sandbox: Some(sandbox), civo_url, digitalocean_url }
    }

    fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().expect("a running sandbox")
    }

    pub fn ledgers(&self) -> [Value; 2] {
        let world = self.sandbox().world();
        [world.ledger(berth_sandbox::civo::NAME), world.ledger(berth_sandbox::digitalocean::NAME)]
    }

    /// Replaces the fault rules; none without any.
    pub fn faults(&self, rules: &[&str]) {
        let rules = rules.iter().map(|rule| rule.parse::<Rule>().expect("a rule")).collect();
        self.sandbox().world().faults().replace(rules);
    }

    /// How many calls the first fault rule was for.
    pub fn matched(&self) -> u64 {
        self.sandbox().world().faults().list().first().map_or(0, |(_, matched, _)| *matched)
    }

    pub fn mutating(&self) -> u64 {
        let world = self.sandbox().world();
        world.traffic(berth_sandbox::civo::NAME).mutating()
            + world.traffic(berth_sandbox::digitalocean::NAME).mutating()
    }

    pub fn reset_calls(&self) {
        let world = self.sandbox().world();
        world.traffic(berth_sandbox::civo::NAME).reset();
        world.traffic(berth_sandbox::digitalocean::NAME).reset();
    }

    pub fn held(&self) -> usize {
        let world = self.sandbox().world();
        world.traffic(berth_sandbox::civo::NAME).held() + world.traffic(berth_sandbox::digitalocean::NAME).held()
    }

    /// How many calls were refused and are still to be acted on.
    pub fn late(&self) -> u64 {
        let world = self.sandbox().world();
        world.traffic(berth_sandbox::civo::NAME).late() + world.traffic(berth_sandbox::digitalocean::NAME).late()
    }

    /// The changes that were asked of both clouds, for messages.
    pub fn events(&self) -> String {
        let world = self.sandbox().world();
        let mut text = String::new();
        for cloud in [berth_sandbox::civo::NAME, berth_sandbox::digitalocean::NAME] {
            for event in world.traffic(cloud).events() {
                let fault = event.fault.map(|fault| format!(" [{fault}]")).unwrap_or_default();
                let status = event.status.map_or("-".into(), |status| status.to_string());
                text.push_str(&format!("  {} {} -> {status}{fault}\n", event.method, event.path));
            }
        }
        text
    }

    /// One call of the cloud's own API, as its own tools would make it. Panics unless it succeeds.
    pub fn call(&self, cloud: CloudName, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.try_call(cloud, method, path, body);
        assert!((200..300).contains(&status), "{method} {path} answered {status}: {answer}");
        answer
    }

    pub fn try_call(&self, cloud: CloudName, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let base = match cloud {
            berth_sandbox::civo::NAME => &self.civo_url,
            _ => &self.digitalocean_url,
        };
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = http().request(method, format!("{base}{path}")).header("authorization", "bearer outside");
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        runtime().block_on(async {
            let answer = request.send().await.expect("an answer");
            let status = answer.status().as_u16();
            let text = answer.text().await.expect("a body");
            (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
        })
    }

    pub fn stop(mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            runtime().block_on(sandbox.stop());
        }
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            runtime().block_on(sandbox.stop());
        }
    }
}

/// A folder to run berth in, alone: nothing of the user's environment reaches it.
pub struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for folder in ["work/.berth", "tmp", "data", "home"] {
            std::fs::create_dir_all(dir.path().join(folder)).expect("a folder");
        }
        Self { dir }
    }

    pub fn with(files: &[(&str, &str)]) -> Self {
        let project = Self::new();
        files.iter().for_each(|(name, text)| project.write(name, text));
        project
    }

    /// Everything that a command may leave behind is below this.
    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// The folder that commands run in.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.work().join(name), text).expect("a file");
    }

    pub fn command(&self, cloud: &Cloud, args: &[&str]) -> Command {
        let root = self.dir.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command.args(args).current_dir(self.work()).env_clear();
        command.env("PATH", "/nonexistent").env("HOME", root.join("home")).env("XDG_DATA_HOME", root.join("data"));
        command.env("TMPDIR", root.join("tmp")).env("BERTH_KEY", KEY);
        command.env("CIVO_API_URL", &cloud.civo_url).env("CIVO_TOKEN", "civo-token");
        command.env("DIGITALOCEAN_API_URL", &cloud.digitalocean_url);
        command.env("DIGITALOCEAN_ACCESS_TOKEN", "digitalocean-token");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn berth(&self, cloud: &Cloud, args: &[&str]) -> Ran {
        self.start(cloud, args).finish()
    }

    /// Starts a command and leaves it running.
    pub fn start(&self, cloud: &Cloud, args: &[&str]) -> Running {
        self.start_command(self.command(cloud, args), args)
    }

    pub fn start_command(&self, mut command: Command, args: &[&str]) -> Running {
        let mut child = command.spawn().expect("berth starts");
        let stdout = drain(child.stdout.take().expect("its output"));
        let stderr = drain(child.stderr.take().expect("its errors"));
        Running { child, stdout, stderr, line: format!("berth {}", args.join(" ")), started: Instant::now() }
    }
}

fn drain(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A killed process closes its end; what came until then is what there is.
        _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// A command under way.
pub struct Running {
    child: Child,
    stdout: std::thread::JoinHandle<Vec<u8>>,
    stderr: std::thread::JoinHandle<Vec<u8>>,
    line: String,
    started: Instant,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its status").is_some()
    }

    /// Waits for its end, and not for ever.
    pub fn finish(mut self) -> Ran {
        while !self.has_ended() {
            if self.started.elapsed() > LONGEST {
                let line = self.line.clone();
                let ran = self.kill();
                panic!("`{line}` did not end within {LONGEST:?}\n{ran}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.end()
    }

    /// SIGKILL, now.
    pub fn kill(mut self) -> Ran {
        self.child.kill().expect("it is killed");
        self.end()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it gets the signal");
    }

    fn end(mut self) -> Ran {
        let status = self.child.wait().expect("its end");
        let text = |thread: std::thread::JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&thread.join().expect("its output")).into_owned()
        };
        Ran {
            line: self.line,
            code: status.code(),
            stdout: text(self.stdout),
            stderr: text(self.stderr),
            took: self.started.elapsed(),
        }
    }
}

/// How a command ended.
pub struct Ran {
    pub line: String,
    /// `None`: killed by a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Ran {
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\n{self}");
        self
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        self.ends_with(0)
    }

    /// Every one of these texts is in what it printed.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stderr.contains(text) || self.stdout.contains(text), "`{text}` is missing:\n{self}");
        }
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON: {error}\n{self}"))
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.map_or("killed".to_owned(), |code| code.to_string());
        let Ran { line, stdout, stderr, took, .. } = self;
        write!(f, "$ {line}\nexit {code} after {took:.1?}\n----- stdout\n{stdout}----- stderr\n{stderr}")
    }
}

/// Waits until something holds, and not for ever.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LONGEST, "waited {LONGEST:?} for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs all jobs, a few at a time, and tells of all that failed.
#[track_caller]
pub fn all<J: Send>(jobs: Vec<(String, J)>, work: impl Fn(&str, J) + Sync) {
    // Children wait for answers most of the time: a few more than there are cores keep these busy.
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get()).clamp(2, 8) * 2;
    many(workers, jobs, work);
}

/// The same, as many at a time as asked.
#[track_caller]
pub fn many<J: Send>(workers: usize, jobs: Vec<(String, J)>, work: impl Fn(&str, J) + Sync) {
    let count = jobs.len();
    let jobs = Mutex::new(VecDeque::from(jobs));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = jobs.lock().expect("jobs").pop_front();
                    let Some((name, job)) = next else { break };
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(&name, job))) {
                        let text = panic.downcast_ref::<String>().cloned();
                        let text = text.or(panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
                        failures.lock().expect("failures").push((name, text));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("failures");
    failures.sort();
    let names: Vec<&str> = failures.iter().map(|(name, _)| name.as_str()).collect();
    let texts: Vec<String> = failures.iter().take(4).map(|(name, text)| format!("===== {name}\n{text}")).collect();
    assert!(
        failures.is_empty(),
        "{} of {count} failed:\n  {}\n\n{}",
        failures.len(),
        names.join("\n  "),
        texts.join("\n")
    );
}

/// Whether everything is to be tried, and not only the sample that every run of the tests takes.
pub fn whole() -> bool {
    std::env::var_os("BERTH_LAWS").is_some_and(|value| value == "all")
}

/// A cloud and a project at one moment, to start from again and again.
pub struct Prepared {
    dir: tempfile::TempDir,
}

impl Prepared {
    /// What `make` leaves behind. The cloud that it gets is kept in a file.
    pub fn new(make: impl FnOnce(&Project, &Cloud)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let project = Project::new();
        let cloud = Cloud::start(Config {
            speed: Speed::Instant,
            state: Some(dir.path().join("cloud.jsonl")),
            ..Config::default()
        });
        make(&project, &cloud);
        cloud.stop();
        copy(project.root(), &dir.path().join("project"));
        Self { dir }
    }

    /// A copy of both, with the cloud running.
    pub fn copy(&self, speed: Speed) -> (Project, Cloud, tempfile::TempDir) {
        let project = Project::new();
        copy(&self.dir.path().join("project"), project.root());
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["cloud.jsonl", "cloud.jsonl.kube"] {
            let from = self.dir.path().join(name);
            if from.exists() {
                copy(&from, &folder.path().join(name));
            }
        }
        let state = Some(folder.path().join("cloud.jsonl"));
        (project, Cloud::start(Config { speed, state, ..Config::default() }), folder)
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        std::fs::copy(from, to).expect("a copied file");
        return;
    }
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a readable folder") {
        let entry = entry.expect("an entry");
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}
