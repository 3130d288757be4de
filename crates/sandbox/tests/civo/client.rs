//! A sandbox of its own for each test, and short words to talk to its Civo.

use berth_sandbox::{Config, Rule, Sandbox, Speed};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};

pub struct Cloud {
    pub sandbox: Sandbox,
    pub http: Client,
    pub url: String,
}

pub async fn cloud() -> Cloud {
    start(Config { speed: Speed::Instant, ..Config::default() }).await
}

pub async fn failing(rules: &[&str]) -> Cloud {
    let fail = rules.iter().map(|rule| rule.parse::<Rule>().expect("a rule")).collect();
    start(Config { speed: Speed::Instant, fail, ..Config::default() }).await
}

pub async fn start(config: Config) -> Cloud {
    let sandbox = Sandbox::start(config).await.expect("the sandbox starts");
    let url = sandbox.url(berth_sandbox::civo::NAME);
    Cloud { sandbox, http: Client::builder().no_proxy().build().expect("a client"), url }
}

impl Cloud {
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).header("Authorization", "bearer any")
    }

    pub async fn send(&self, request: RequestBuilder) -> (u16, Value) {
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        let text = response.text().await.expect("a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        let join = if path.contains('?') { '&' } else { '?' };
        self.send(self.request(Method::GET, &format!("{path}{join}region=FRA1"))).await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.send(self.request(Method::DELETE, &format!("{path}?region=FRA1"))).await
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.with_body(Method::POST, path, body).await
    }

    pub async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.with_body(Method::PUT, path, body).await
    }

    async fn with_body(&self, method: Method, path: &str, mut body: Value) -> (u16, Value) {
        if body.get("region").is_none() {
            body["region"] = json!("FRA1");
        }
        self.send(self.request(method, path).json(&body)).await
    }

    pub async fn admin(&self, path: &str) -> Value {
        self.send(self.http.get(format!("{}/_sandbox/{path}", self.url))).await.1
    }

    pub async fn network(&self, label: &str) -> String {
        let (status, made) = self.post("/v2/networks", json!({"label": label})).await;
        assert_eq!(status, 200, "{made}");
        text(&made["id"])
    }

    pub async fn firewall(&self, name: &str, network: &str) -> String {
        let (status, made) = self.post("/v2/firewalls", json!({"name": name, "network_id": network})).await;
        assert_eq!(status, 200, "{made}");
        text(&made["id"])
    }

    pub async fn cluster(&self, name: &str) -> String {
        let body = json!({"name": name, "kubernetes_version": "1.29.0-k3s1", "tags": "a b",
                          "pools": [{"id": "main", "count": 2, "size": "g4s.kube.medium"}]});
        let (status, made) = self.post("/v2/kubernetes/clusters", body).await;
        assert_eq!(status, 200, "{made}");
        text(&made["id"])
    }

    pub async fn show(&self, cluster: &str) -> Value {
        let (status, shown) = self.get(&format!("/v2/kubernetes/clusters/{cluster}")).await;
        assert_eq!(status, 200, "{shown}");
        shown
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

#[track_caller]
pub fn refused(answer: &(u16, Value), status: u16, code: &str) {
    assert_eq!((answer.0, answer.1["code"].as_str()), (status, Some(code)), "{}", answer.1);
    assert!(answer.1["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{}", answer.1);
}
