//! Keycloak, a server that trusts it, and logins that wait for their users. Each is ended when its handle goes.

use crate::support;
use crate::support::folder::{Folder, berth};
use regex::Regex;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::time::timeout;

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

/// A server for people of this issuer.
pub struct Server {
    server: support::server::Server,
    pub url: String,
    pub ca: String,
    pub admin_token: String,
    pub fingerprint: String,
    http: reqwest::Client,
}

impl Server {
    pub fn start(issuer: &str) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let mut command = berth(dir.path(), &["-vv"]);
        command.env("NO_COLOR", "1");
        let people = ["--no-worker", "--oidc-issuer", issuer, "--oidc-client-id", "berth"];
        let roles = ["--oidc-role", "platform=admin", "--oidc-role", "shop-developers=operator:shop"];
        let server = support::server::Server::run_command(dir.clone(), command, &[&people[..], &roles].concat());
        let at = |name: &str| dir.path().join("berth-server").join(name).to_str().unwrap().to_owned();
        let said = server.log();
        let fingerprint = Regex::new("sha256:[0-9a-f]{64}").unwrap().find(&said).expect("a fingerprint").as_str();
        Self {
            url: server.url.clone(),
            ca: at("ca.pem"),
            admin_token: at("admin.token"),
            fingerprint: fingerprint.to_owned(),
            http: server.http(),
            server,
        }
    }

    /// By REST, as anyone could.
    pub async fn log_in(&self, id_token: &str, nonce: &str) -> (u16, Value) {
        let body = json!({"idToken": id_token, "nonce": nonce});
        let answer = self.http.post(format!("{}/v1/login", self.url)).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    pub fn log(&self) -> String {
        self.server.log()
    }
}

/// A login that waits for its user.
pub fn begin(user: &Folder, args: &[&str]) -> Login {
    let mut command = tokio::process::Command::from(user.command(args));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let stderr = tokio::io::BufReader::new(child.stderr.take().unwrap());
    Login { child, stderr, said: String::new() }
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
