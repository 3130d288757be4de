//! A server for one test.

use crate::support::{WAIT, start_server};
use berth_clouds::accounts::Simulated;
use berth_sandbox::{Sandbox, Speed};
use berth_server::client::{Client, Connection};
use berth_server::start::{Config, Running};
use berth_store::Options;
use reqwest::{Method, Response};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub struct World {
    pub running: Running,
    pub folder: tempfile::TempDir,
    pub http: reqwest::Client,
    pub token: String,
    pub sandbox: Option<Sandbox>,
}

impl World {
    /// With a database of SQLite's and no worker: nothing but the API.
    pub async fn quiet() -> Self {
        Self::with(|config| config.worker = None).await
    }

    /// With simulated clouds and a worker inside.
    pub async fn busy() -> Self {
        Self::busy_on(None).await
    }

    pub async fn busy_on(database: Option<String>) -> Self {
        let config = berth_sandbox::Config { speed: Speed::Instant, ..Default::default() };
        let sandbox = Sandbox::start(config).await.expect("the sandbox starts");
        let simulated = Simulated { urls: sandbox.urls(), token: None, pace: 1.0 };
        let mut world = Self::with(|config| {
            config.simulated = Some(simulated);
            if let Some(address) = database {
                config.store = Options::url(&address).expect("an address");
            }
        })
        .await;
        world.sandbox = Some(sandbox);
        world
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let (running, folder, http) = start_server(change).await;
        let token = std::fs::read_to_string(folder.path().join("server/admin.token")).expect("a first token");
        Self { running, folder, http, token: token.trim().to_owned(), sandbox: None }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.url())
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, self.url(path)).bearer_auth(&self.token)
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        read(self.request(Method::GET, path).send().await.expect("an answer")).await
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        read(self.request(Method::POST, path).json(&body).send().await.expect("an answer")).await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        read(self.request(Method::DELETE, path).send().await.expect("an answer")).await
    }

    /// Applies one file.
    pub async fn apply(&self, text: &str) -> (u16, Value) {
        self.post("/v1/resources", json!({"files": [{"name": "a.yaml", "text": text}]})).await
    }

    /// Asks until the answer is as wanted.
    pub async fn until(&self, path: &str, wanted: impl Fn(u16, &Value) -> bool) -> Value {
        let end = Instant::now() + WAIT;
        loop {
            let (status, body) = self.get(path).await;
            if wanted(status, &body) {
                return body;
            }
            assert!(Instant::now() < end, "{path} stayed {status} {body:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn ready(&self, path: &str) -> Value {
        self.until(path, |status, body| status == 200 && body["state"] == "Ready").await
    }

    /// Another token, of this role and scope.
    pub async fn token(&self, role: &str, org: &str, env: &str) -> String {
        let name = format!("{role}-{org}-{env}");
        let (status, body) = self.post("/v1/tokens", json!({"name": name, "role": role, "org": org, "env": env})).await;
        assert_eq!(status, 200, "{body:#}");
        body["secret"].as_str().expect("a secret").to_owned()
    }

    pub async fn grpc(&self, token: &str) -> Client {
        let ca = std::fs::read(self.folder.path().join("server/ca.pem")).expect("an authority");
        let connection =
            Connection { ca: Some(ca), ..Connection::new(self.running.url(), SecretString::from(token.to_owned())) };
        connection.connect().await.expect("a connection")
    }

    pub async fn stop(self) {
        self.running.stop().await;
        if let Some(sandbox) = self.sandbox {
            sandbox.stop().await;
        }
    }
}

pub async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

pub fn vpc(name: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}}}\nspec: {{networkName: {name}, region: fra1}}\n"
    )
}
