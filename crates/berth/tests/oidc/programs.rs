//! Keycloak, `berth server`, and `berth` as its users run it. Each is ended when its handle goes.

use regex::Regex;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::time::timeout;

const BERTH: &str = env!("CARGO_BIN_EXE_berth");
const LOGIN_WITHIN: Duration = Duration::from_secs(120);

pub struct Keycloak {
    pub issuer: String,
    folder: TempDir,
}

impl Keycloak {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let output = tool().arg("start").arg(folder.path()).output().expect("tools/keycloak runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "Keycloak did not start: {said}");
        let issuer = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Self { issuer, folder }
    }
}

impl Drop for Keycloak {
    fn drop(&mut self) {
        _ = tool().arg("stop").arg(self.folder.path()).status();
    }
}

fn tool() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/keycloak"))
}

pub struct Server {
    pub url: String,
    pub ca: String,
    pub admin_token: String,
    pub fingerprint: String,
    folder: TempDir,
    child: Child,
    _stdout: BufReader<ChildStdout>,
    http: reqwest::Client,
}

impl Server {
    pub fn start(issuer: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut child = clean(BERTH)
            .current_dir(folder.path())
            .args(["-vv", "server", "--listen", "127.0.0.1:0", "--no-worker"])
            .args(["--oidc-issuer", issuer, "--oidc-client-id", "berth"])
            .args(["--oidc-role", "platform=admin", "--oidc-role", "shop-developers=operator:shop"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("berth login") {
            if stdout.read_line(&mut said).unwrap() == 0 {
                let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
                panic!("the server ended: {said}{log}");
            }
        }
        let find = |pattern: &str| Regex::new(pattern).unwrap().find(&said).map(|found| found.as_str().to_owned());
        let at = |name: &str| folder.path().join("berth-server").join(name).to_str().unwrap().to_owned();
        let url = find(r"https://127\.0\.0\.1:\d+").unwrap_or_else(|| panic!("no address in {said}"));
        let fingerprint = find("sha256:[0-9a-f]{64}").unwrap_or_else(|| panic!("no fingerprint in {said}"));
        let ca = std::fs::read(at("ca.pem")).unwrap();
        let http =
            reqwest::Client::builder().tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()]).build().unwrap();
        let (ca, admin_token) = (at("ca.pem"), at("admin.token"));
        Self { url, ca, admin_token, fingerprint, child, _stdout: stdout, http, folder }
    }

    /// By REST, as anyone could.
    pub async fn log_in(&self, id_token: &str, nonce: &str) -> (u16, Value) {
        let body = json!({"idToken": id_token, "nonce": nonce});
        let answer = self.http.post(format!("{}/v1/login", self.url)).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Nothing of whoever runs the tests.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BERTH_") {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// Someone with a configuration of their own.
pub struct User {
    pub folder: TempDir,
    pub config: PathBuf,
}

impl User {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        Self { folder, config }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = clean(BERTH);
        command.current_dir(self.folder.path()).env("BERTH_CONFIG", &self.config).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> (bool, String, String) {
        let output = self.command(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    }

    pub fn done(&self, args: &[&str]) -> String {
        let (fine, stdout, stderr) = self.run(args);
        assert!(fine, "{args:?}: {stderr}");
        stdout
    }

    pub fn fails(&self, args: &[&str]) -> String {
        let (fine, _, stderr) = self.run(args);
        assert!(!fine, "{args:?} went well: {stderr}");
        stderr
    }

    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.done(args)).unwrap()
    }

    /// A login that waits for its user.
    pub fn begin(&self, args: &[&str]) -> Login {
        let mut command = tokio::process::Command::from(self.command(args));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let stderr = tokio::io::BufReader::new(child.stderr.take().unwrap());
        Login { child, stderr, said: String::new() }
    }
}

pub struct Login {
    child: tokio::process::Child,
    stderr: tokio::io::BufReader<tokio::process::ChildStderr>,
    said: String,
}

impl Login {
    /// The line with such a text in it, once it is said.
    pub async fn line_with(&mut self, text: &str) -> String {
        let read = async {
            loop {
                let mut line = String::new();
                if self.stderr.read_line(&mut line).await.unwrap() == 0 {
                    panic!("the login ended: {}", self.said);
                }
                self.said.push_str(&line);
                if line.contains(text) {
                    return line.trim().to_owned();
                }
            }
        };
        timeout(LOGIN_WITHIN, read).await.expect("in time")
    }

    /// What it said, when it has ended so.
    pub async fn end(mut self, code: i32) -> String {
        let rest = async {
            self.stderr.read_to_string(&mut self.said).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = timeout(LOGIN_WITHIN, rest).await.expect("in time");
        assert_eq!(status.code(), Some(code), "{}", self.said);
        self.said
    }
}
