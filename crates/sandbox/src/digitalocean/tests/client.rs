//! A sandbox and a client of its API.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{Config, Sandbox, Speed};

pub struct Cloud {
    pub sandbox: Sandbox,
    pub client: reqwest::Client,
}

impl Cloud {
    pub async fn start(config: Config) -> Cloud {
        let sandbox = Sandbox::start(config).await.unwrap();
        Cloud { sandbox, client: reqwest::Client::new() }
    }

    pub async fn instant() -> Cloud {
        Cloud::start(Config { speed: Speed::Instant, ..Config::default() }).await
    }

    pub async fn raw(&self, method: Method, path: &str, body: Option<Value>) -> reqwest::Response {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.sandbox.url(crate::digitalocean::NAME)))
            .bearer_auth("any");
        if let Some(body) = body {
            request = request.json(&body);
        }
        request.send().await.unwrap()
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let response = self.raw(method, path, body).await;
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() })
    }

    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::POST, path, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::PUT, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.call(Method::DELETE, path, None).await
    }

    pub async fn cluster(&self, name: &str) -> Value {
        let (status, body) = self.post("/v2/kubernetes/clusters", cluster(name)).await;
        assert_eq!(status, 201, "{body}");
        body["kubernetes_cluster"].clone()
    }

    /// Sends what must be refused, and gives the message.
    pub async fn refused(&self, method: Method, path: &str, body: Value, status: u16) -> String {
        let (seen, answer) = self.call(method, path, Some(body.clone())).await;
        assert_eq!(seen, status, "{path} {body}: {answer}");
        assert!(answer["id"].is_string() && answer["request_id"].is_string(), "{answer}");
        answer["message"].as_str().unwrap().to_owned()
    }
}

pub fn cluster(name: &str) -> Value {
    json!({
        "name": name, "region": "fra1", "version": "1.32.5-do.0", "tags": ["team-a", "env:dev"],
        "node_pools": [{"name": "default", "size": "s-2vcpu-4gb", "count": 2}],
    })
}

pub fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

pub fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}
