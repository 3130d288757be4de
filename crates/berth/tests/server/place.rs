//! A server in a folder of its own, with simulated clouds, and folders to ask it from.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tempfile::TempDir;

const STARTS_WITHIN: Duration = Duration::from_secs(60);

pub struct Server {
    child: Child,
    dir: Arc<TempDir>,
    pub url: String,
    login: Vec<String>,
}

/// What a command answered.
#[derive(Debug)]
pub struct Run {
    pub args: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The binary with nothing of the user's environment.
fn berth(folder: &Path, args: &[&str]) -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_berth")), folder, args)
}

/// Any version's binary, likewise.
pub fn program(berth: &Path, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(berth);
    command.args(args).current_dir(folder).env_clear();
    command.env("PATH", "/nonexistent").env("HOME", folder).env("XDG_DATA_HOME", folder.join("data"));
    command
}

impl Server {
    pub fn start(more: &[&str]) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().expect("a folder")), more)
    }

    /// Where one was before, or another's clouds are.
    pub fn start_in(dir: Arc<TempDir>, more: &[&str]) -> Self {
        let mut args = vec!["--sandbox", "--speed", "max"];
        args.extend(more);
        Self::run(dir, &args)
    }

    /// One that does not start; what it said.
    pub fn refused_in(dir: &TempDir, more: &[&str]) -> Run {
        let mut args = vec!["server", "--listen", "127.0.0.1:0"];
        args.extend(more);
        let mut command = berth(dir.path(), &args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("berth runs");
        for _ in 0..600 {
            if child.try_wait().expect("a child").is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        _ = child.kill();
        let output = child.wait_with_output().expect("its output");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Run { args: args.join(" "), code: output.status.code(), stdout, stderr }
    }

    pub fn without_worker() -> Self {
        Self::run(Arc::new(tempfile::tempdir().expect("a folder")), &["--no-worker"])
    }

    fn run(dir: Arc<TempDir>, more: &[&str]) -> Self {
        Self::run_command(dir.clone(), berth(dir.path(), &[]), more)
    }

    /// Of any version, with an environment of its own.
    pub fn run_command(dir: Arc<TempDir>, mut command: Command, more: &[&str]) -> Self {
        command.args(["server", "--listen", "127.0.0.1:0"]).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("the server starts");
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        let (send, lines) = mpsc::channel();
        // Read to the end, so that the server never waits for its reader.
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                _ = send.send(line);
            }
        });
        let login = loop {
            let line = lines.recv_timeout(STARTS_WITHIN).expect("the server says how to log in");
            if let Some(rest) = line.trim().strip_prefix("berth login ") {
                break rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            }
        };
        Self { child, url: login[0].clone(), dir, login }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What it has in memory, in KiB.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says so");
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    /// What `berth login` takes, in the server's folder.
    pub fn login(&self) -> &[String] {
        &self.login
    }

    /// Lets it end in order. Its folder stays.
    pub fn stop(mut self) -> Arc<TempDir> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
        self.dir.clone()
    }

    /// Someone who is logged in as the first admin.
    pub fn admin(&self) -> User {
        let user = User::new();
        let mut args = vec!["login"];
        args.extend(self.login.iter().map(String::as_str));
        // Files are named as the server's folder sees them.
        let mut command = berth(self.path(), &args);
        command.env("BERTH_CONFIG", user.config());
        let run = user.finish(command, &args);
        assert_eq!(run.code, Some(0), "{run:?}");
        user
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

pub struct User {
    dir: TempDir,
}

impl User {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder") }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn config(&self) -> PathBuf {
        self.path().join("config.yaml")
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = berth(self.path(), args);
        command.env("BERTH_CONFIG", self.config());
        command
    }

    pub fn berth(&self, args: &[&str]) -> Run {
        self.finish(self.command(args), args)
    }

    pub fn finish(&self, mut command: Command, args: &[&str]) -> Run {
        let output = command.stdin(Stdio::null()).output().expect("berth runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Run {
            args: args.join(" "),
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl Run {
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "berth {}\n{}\n{}", self.args, self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("berth {}: {error}\n{}", self.args, self.stdout))
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text) || self.stderr.contains(text),
            "berth {} does not say `{text}`:\n{}\n{}",
            self.args,
            self.stdout,
            self.stderr
        );
        self
    }
}

/// The names and types of a value, without its values. Lists are as their items, put together.
pub fn shape(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(items) => {
            let mut shapes: Vec<Value> = Vec::new();
            for one in items.iter().map(shape) {
                if !shapes.contains(&one) {
                    shapes.push(one);
                }
            }
            shapes.sort_by_key(ToString::to_string);
            Value::Array(shapes)
        }
        Value::Object(map) => Value::Object(map.iter().map(|(name, value)| (name.clone(), shape(value))).collect()),
    }
}
